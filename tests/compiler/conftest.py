"""What tests of the compiler share: running a program by the definitions of instructions and kernels."""

from collections.abc import Callable
from typing import Any

import pytest
from shapevm.compiler.emit import emit
from shapevm.compiler.passes.copy_results import copy_results
from shapevm.compiler.text import parse
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import from_json
from shapevm.vm.program import Program
from shapevm.vm.reference import Reference


@pytest.fixture
def execute() -> Callable[..., list[Any]]:
    """Return execute(program, inputs, externs) on the reference interpreter, kernels from their specs."""

    def execute(program: Program, inputs: list[Any], externs: dict[str, Any] | None = None) -> list[Any]:
        def run_kernel(index: int, dims: tuple[int, ...], buffers: list[Any]) -> None:
            evaluate(from_json(program.kernels[index].spec), dims, buffers)

        return Reference(program, run_kernel, externs).call(inputs)

    return execute


@pytest.fixture
def run(execute: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return run(text, *inputs): the results of a lowered graph, made fresh."""

    def run(text: str, *inputs: Any, **more: Any) -> list[Any]:
        graph = parse(text)
        copy_results(graph)
        return execute(emit(graph, **more), list(inputs))

    return run
