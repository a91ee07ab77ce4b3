"""Descriptions of a program's inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..vm.program import Axis, Input, Output, Symbol


class ValueInfo(NamedTuple):
    """An input or output of a program.

    `kind`: tensor, int, float, bool, str, none, list, tuple or dict; None if unspecified.
    `dtype`: of a tensor, such as "f32", else None. `shape`: of a tensor, else None: an int for an axis of a
    fixed size, else text: a size symbol ("batch"), or an expression of some ("2*length+1").
    """

    name: str
    kind: str | None
    dtype: str | None = None
    shape: tuple[int | str, ...] | None = None

    @property
    def type(self) -> str:
        """Readable form: `f32[batch, 384]`, `int`."""
        if self.shape is None:
            return self.kind or "any value"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @classmethod
    def of(cls, row: Input | Output, symbols: tuple[Symbol, ...]) -> ValueInfo:
        """Return the description of a row of the contract."""
        if row.kind != "tensor":
            return cls(row.name, row.kind)
        return cls(row.name, row.kind, row.dtype, tuple(_size(axis, symbols) for axis in row.axes))


def infos(rows: Sequence[Input | Output], symbols: tuple[Symbol, ...]) -> tuple[ValueInfo, ...]:
    """Return the descriptions of rows of a contract."""
    return tuple(ValueInfo.of(row, symbols) for row in rows)


def _size(axis: Axis, symbols: tuple[Symbol, ...]) -> int | str:
    is_fixed = axis.symbol is None and not axis.expression
    return axis.offset if is_fixed else axis.text(symbols)
