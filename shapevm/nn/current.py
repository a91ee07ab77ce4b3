"""The current compilation, to which operators and updates of buffers are appended."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from ..vm.errors import ArgumentError


class Recorder(Protocol):
    """The interface of a trace for tensors and buffers."""

    def call(self, overload: str, *args: Any, **kwargs: Any) -> Any:
        """Append the operator that torch calls `overload`."""

    def update(self, buffer: Any, value: Any) -> None:
        """Make `value` the buffer's."""


CURRENT: ContextVar[Recorder] = ContextVar("shapevm.nn.current")


def current() -> Recorder:
    """Return the trace of the current compilation. Raises ArgumentError outside of one."""
    found = CURRENT.get(None)
    if found is None:
        raise ArgumentError("tensors of shapevm.nn exist in forward only; call nn.compile(module, inputs)")
    return found
