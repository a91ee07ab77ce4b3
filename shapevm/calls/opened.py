"""The open programs, for recordings of calls and collectors of metrics."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from ..vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from ..vm.machine import Machine


class Opened(Protocol):
    """A program that was opened and may be closed by now."""

    @property
    def machine(self) -> Machine:
        """The loaded program itself."""

    @property
    def name(self) -> str:
        """The program's display name."""

    def metrics(self, model: str | None = None) -> str:
        """Return all counters as OpenMetrics text."""


_OPENED: weakref.WeakSet[Opened] = weakref.WeakSet()
_OPENING = ForkLock()  # held while `_OPENED` grows or is read


def add_opened(program: Opened) -> None:
    """Register a program until it is garbage-collected."""
    with _OPENING:
        _OPENED.add(program)


def opened_programs() -> list[Opened]:
    """Return all programs that exist, including closed ones."""
    with _OPENING:
        return list(_OPENED)
