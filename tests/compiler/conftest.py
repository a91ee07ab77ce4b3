"""What tests of the compiler share: running programs by the definitions, and compiled in the C runtime."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from shapevm.compiler.emit.emit import emit
from shapevm.compiler.ir.text import parse
from shapevm.compiler.passes.copy_results import copy_results
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.reference import evaluate
from shapevm.jit.spec_reader import from_json
from shapevm.jit.store import KernelStore
from shapevm.vm.artifact import to_bytes
from shapevm.vm.machine import Machine
from shapevm.vm.program import Kernel, KernelObject, Program
from shapevm.vm.reference import Reference

from shapevm.settings import settings

Externs = dict[str, Any] | None


@cache
def generic_code(spec: str) -> KernelObject:
    folder = settings.cache_path()
    return KernelStore(folder and DiskCache(folder, None)).object(from_json(spec), None)


def on_reference(program: Program, inputs: list[Any], externs: Externs = None) -> list[Any]:
    def run_kernel(index: int, dims: tuple[int, ...], buffers: list[Any]) -> None:
        evaluate(from_json(program.kernels[index].spec), dims, buffers)

    return Reference(program, run_kernel, externs).call(inputs)


def on_machine(program: Program, inputs: list[Any], externs: Externs = None) -> list[Any]:
    def compiled(kernel: Kernel) -> Kernel:
        return replace(kernel, objects=(generic_code(kernel.spec),))

    with Machine.from_bytes(
        to_bytes(replace(program, kernels=tuple(map(compiled, program.kernels))))
    ) as machine:
        for name, function in (externs or {}).items():
            machine.register_extern(name, function)
        first = machine.call(inputs)
        again = machine.call(inputs)  # a recorded plan, where there is one
        assert all(bits(a) == bits(b) for a, b in zip(first, again, strict=True))
        return again


def bits(value: Any) -> Any:
    return value.tobytes() if hasattr(value, "tobytes") else value


@pytest.fixture(params=[on_reference, on_machine], ids=["reference", "machine"])
def execute(request) -> Callable[..., list[Any]]:
    """Return execute(program, inputs, externs): the results."""
    return request.param


@pytest.fixture
def run(execute: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return run(text, *inputs): the results of a lowered graph, made fresh."""

    def run(text: str, *inputs: Any, **more: Any) -> list[Any]:
        graph = parse(text)
        copy_results(graph)
        return execute(emit(graph, **more), list(inputs))

    return run
