"""Calls and kernels in `torch.profiler`: each is a `record_function` while a profiler is active."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..vm.machine import Machine


class _NoProfiler:
    """Replaces torch's profiler if torch was not imported."""

    _is_profiler_enabled = False


#: The module that knows whether a profiler is active. Each call checks it once, which takes about 10 ns.
module: Any = _NoProfiler


def find() -> None:
    """Look for torch's profiler, if torch was imported."""
    global module
    module = sys.modules.get("torch.autograd.profiler", module)


def run(machine: Machine, name: str, inputs: Sequence[Any]) -> list[Any]:
    """Return the results of a call of main, recorded with its kernels by the profiler."""
    with module.record_function(f"shapevm: {name}"):
        return machine.call_observed(inputs, _observer(machine))


def _observer(machine: Machine) -> Callable[[int, bool], None]:
    names = [f"k{index} {kernel.label}" for index, kernel in enumerate(machine.kernels)]
    sources = [kernel.source for kernel in machine.kernels]
    entered: list[Any] = []

    def observe(kernel: int, is_end: bool) -> None:
        if is_end:
            entered.pop().__exit__(None, None, None)
        else:
            entered.append(module.record_function(names[kernel], sources[kernel]))
            entered[-1].__enter__()

    return observe
