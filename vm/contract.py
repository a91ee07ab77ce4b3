"""The contract: checking a call's inputs and binding the symbols, with the messages of docs/artifact.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import NUMPY_NAMES
from .errors import ArgumentError, DtypeError, KindError, ShapeError
from .isa import article
from .program import EntryPoint, Input, Program, Symbol


def tag_of(value: Any) -> str:
    """Return the tag of a value of the reference interpreter. Raises KindError for any other value."""
    if isinstance(value, np.ndarray):
        return "tensor"
    names = {
        type(None): "none",
        bool: "bool",
        int: "int",
        float: "float",
        str: "str",
        list: "list",
        tuple: "tuple",
        dict: "dict",
    }
    if type(value) not in names:
        raise KindError(f"a {type(value).__name__} is no value of a program")
    return names[type(value)]


@dataclass
class _Bound:
    """A symbol's value and the words that say where it comes from."""

    value: int
    words: str


class Contract:
    """The contract of one entry point of a program."""

    def __init__(self, program: Program, entry: EntryPoint) -> None:
        self.inputs, self.symbols = entry.inputs, program.symbols

    def bind(self, values: Sequence[Any]) -> list[int]:
        """Return the symbols' values. Raises ArgumentError, KindError, DtypeError or ShapeError for the first
        violation.
        """
        if len(values) != len(self.inputs):
            names, plural = ", ".join(row.name for row in self.inputs), "" if len(self.inputs) == 1 else "s"
            raise ArgumentError(
                f"the program takes {len(self.inputs)} input{plural} ({names}), {len(values)} given"
            )
        bound: dict[int, _Bound] = {}
        for row, value in zip(self.inputs, values, strict=True):
            self._check(row, value, bound)
        return [bound[index].value if index in bound else 0 for index in range(len(self.symbols))]

    def _check(self, row: Input, value: Any, bound: dict[int, _Bound]) -> None:
        what = f'input "{row.name}"'
        if tag_of(value) != row.kind:
            raise KindError(f"{what} is {article(tag_of(value))}; the program takes {article(row.kind)}")
        if row.symbol is not None:
            self._bind(row.symbol, value, f"{what} is {value}", bound)
        if row.kind != "tensor":
            return
        dtype = NUMPY_NAMES.get(value.dtype)
        if dtype != row.dtype:
            raise DtypeError(f"{what} is {dtype}; the program takes {row.dtype}: convert it first")
        if value.ndim != len(row.axes):
            takes = ", ".join(axis.text(self.symbols) for axis in row.axes)
            given = f"rank {value.ndim}, sizes {list(value.shape)}"
            raise ShapeError(f"{what} has {given}; the program takes rank {len(row.axes)}: [{takes}]")
        for index in range(value.ndim):
            self._check_axis(row, index, value.shape[index], bound)

    def _check_axis(self, row: Input, index: int, size: int, bound: dict[int, _Bound]) -> None:
        axis, place = row.axes[index], f'input "{row.name}": axis {index} has size {size}'
        if axis.symbol is None:
            if size != axis.offset:
                raise ShapeError(f"{place}; it must be {axis.offset}")
            return
        value, rest = divmod(size - axis.offset, axis.scale)
        if rest or value < 0:
            name = self.symbols[axis.symbol].name
            raise ShapeError(f"{place}; it must be {axis.text(self.symbols)} with a whole {name} >= 0")
        self._bind(axis.symbol, value, place, bound)

    def _bind(self, index: int, value: int, place: str, bound: dict[int, _Bound]) -> None:
        symbol = self.symbols[index]
        words = f"{place}, so {symbol.name} is {value}"
        why = f" ({symbol.why})" if symbol.why else ""
        known = bound.setdefault(index, _Bound(value, words))
        if known.value != value:
            raise ShapeError(f"{words}; but {known.words}{why}")
        problem = _range(symbol, value)
        if problem:
            raise ShapeError(f"{words}; it must be {problem}{why}")


def _range(symbol: Symbol, value: int) -> str | None:
    if value < symbol.min:
        return f"at least {symbol.min}"
    if symbol.max is not None and value > symbol.max:
        return f"at most {symbol.max}"
    return f"a multiple of {symbol.multiple_of}" if value % symbol.multiple_of else None
