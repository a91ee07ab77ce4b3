"""The registers of a running function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .instruction import Instruction
from .program import Function


class Frame:
    """The registers of one running function."""

    def __init__(self, index: int, function: Function, args: Sequence[Any]) -> None:
        self.index, self.function = index, function
        self.registers: list[Any] = [*args, *[None] * (function.n_registers - len(args))]
        self.next = 0  # word offset of the next instruction
        self.call: Instruction | None = None  # the call instruction in progress
        self.results: list[Any] | None = None
