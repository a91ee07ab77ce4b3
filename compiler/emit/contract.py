"""The input contract: how a graph's inputs and symbols become the rows that the VM checks before anything
runs.

A row holds scale * symbol + offset, or a constant. An axis whose size is any other expression gets its own
symbol, and a guard at the start of the program that compares both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from ...vm.program import Axis, Input, Output, Symbol
from ..ir.dims import DimExpr, format_dim, symbol, symbols_of
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Graph, Value
from ..ir.types import DictType, ListType, ScalarType, TensorType, TupleType, Type


@dataclass(frozen=True)
class Guard:
    """A condition at the start: `left == right`, else the program stops with `message`."""

    left: DimExpr
    right: DimExpr
    message: str


@dataclass(frozen=True)
class Contract:
    """`symbols` are the graph's, then those of axes that guards check."""

    inputs: tuple[Input, ...]
    symbols: tuple[Symbol, ...]
    guards: tuple[Guard, ...]


def contract_of(graph: Graph) -> Contract:
    """Return the contract of `graph`.

    Raises ShapeError for a symbol that no input determines, UnsupportedOp for an input that is a container.
    """
    builder = _ContractBuilder(graph)
    inputs = tuple(
        builder.input(name, value) for name, value in zip(graph.inputs, graph.body.params, strict=True)
    )
    unbound = [s.name for i, s in enumerate(builder.symbols) if i not in builder.bound]
    if unbound:
        raise ShapeError(
            f"size {unbound[0]!r} is determined by no input of {graph.name!r}: one input's axis must be "
            f"{unbound[0]}, or a multiple of it plus a constant; or make it constant"
        )
    return Contract(inputs, tuple(builder.symbols), tuple(builder.guards))


def share_symbols(contracts: Sequence[Contract]) -> list[Contract]:
    """Return the contracts of a program's entry points, each with the symbols of all, each name once, in
    order of occurrence.

    Raises ShapeError for a name with different bounds in two of them.
    """
    table: dict[str, Symbol] = {}
    for row in (row for contract in contracts for row in contract.symbols):
        if table.setdefault(row.name, row) != row:
            raise ShapeError(
                f"size {row.name!r} has other bounds in another function of the program: give one range"
            )
    index = {name: i for i, name in enumerate(table)}
    return [_with_symbols(contract, tuple(table.values()), index) for contract in contracts]


def _with_symbols(contract: Contract, symbols: tuple[Symbol, ...], index: Mapping[str, int]) -> Contract:
    """Return `contract` with a larger table of symbols that includes its own."""
    places = [index[row.name] for row in contract.symbols]

    def moved(row: Any) -> Any:
        return row if row.symbol is None else replace(row, symbol=places[row.symbol])

    inputs = (replace(moved(row), axes=tuple(map(moved, row.axes))) for row in contract.inputs)
    return replace(contract, inputs=tuple(inputs), symbols=symbols)


def outputs_of(graph: Graph, contract: Contract) -> tuple[Output, ...]:
    """Return the declared results of `graph`: tags, dtypes, and sizes as scale * symbol + offset, or else as
    text."""
    index = {s.name: i for i, s in enumerate(contract.symbols)}
    return tuple(
        _output(name, value.type, index)
        for name, value in zip(graph.outputs, graph.body.results, strict=True)
    )


_TAGS = {ListType: "list", TupleType: "tuple", DictType: "dict"}


def _output(name: str, type: Type, index: Mapping[str, int]) -> Output:
    if isinstance(type, TensorType):
        return Output(name, "tensor", type.dtype, tuple(_output_axis(size, index) for size in type.shape))
    return Output(name, type.kind if isinstance(type, ScalarType) else _TAGS.get(type.__class__))


def _output_axis(size: DimExpr, index: Mapping[str, int]) -> Axis:
    if isinstance(size, int):
        return Axis.const(size)
    linear = _linear(size)
    if linear is not None and linear[0] in index:
        return Axis.of(index[linear[0]], linear[1], linear[2])
    return Axis(expression=format_dim(size))


class _ContractBuilder:
    def __init__(self, graph: Graph) -> None:
        infos = graph.symbols.values()
        self.symbols = [Symbol(i.name, i.min, i.max, i.multiple_of, i.why) for i in infos]
        self.in_place = {f"state.{name}" for name in graph.structure.get("in_place", [])}
        self.in_rows = set(graph.structure.get("in_rows", []))
        self.index = {s.name: i for i, s in enumerate(self.symbols)}
        self.bound: set[int] = set()
        self.guards: list[Guard] = []

    def input(self, name: str, value: Value) -> Input:
        """Return the row of one input, and bind its axes."""
        type = value.type
        if isinstance(type, TensorType):
            axes = tuple(self._axis(name, i, size) for i, size in enumerate(type.shape))
            return Input(name, "tensor", type.dtype, axes, None, name in self.in_place, name in self.in_rows)
        if isinstance(type, ListType):
            return Input(name, "list")
        if not isinstance(type, ScalarType):
            raise UnsupportedOp(f"input {name!r} is a {type}: pass its elements as inputs of their own")
        row = Input(name, type.kind)
        return row if type.expr is None else replace(row, symbol=self._int(name, type.expr))

    def _axis(self, name: str, axis: int, size: DimExpr) -> Axis:
        if isinstance(size, int):
            return Axis.const(size)
        linear = _linear(size)
        if linear is not None and linear[0] in self.index:
            index = self.index[linear[0]]
            self.bound.add(index)
            return Axis.of(index, linear[1], linear[2])
        return Axis.of(
            self._checked(f"{name}.axis{axis}", f'input "{name}": axis {axis} must have size', size)
        )

    def _int(self, name: str, value: DimExpr) -> int:
        linear = _linear(value)
        if linear is not None and linear[1:] == (1, 0) and linear[0] in self.index:
            self.bound.add(self.index[linear[0]])
            return self.index[linear[0]]
        return self._checked(name, f'input "{name}" must be', value)

    def _checked(self, name: str, what: str, value: DimExpr) -> int:
        """Return a new symbol that a guard compares with `value`."""
        names = ", ".join(sorted(symbols_of(value)))
        given = f", as other inputs determine {names}" if names else ""
        self.guards.append(Guard(symbol(name), value, f"{what} {format_dim(value)}{given}"))
        self.symbols.append(Symbol(name))
        self.bound.add(len(self.symbols) - 1)
        self.index[name] = len(self.symbols) - 1
        return len(self.symbols) - 1


def _linear(size: DimExpr) -> tuple[str, int, int] | None:
    """Return (symbol, scale, offset) if `size` is scale * symbol + offset with scale >= 1."""
    if isinstance(size, int):
        return None
    free = list(size.free_symbols)
    if len(free) != 1 or not size.is_polynomial(free[0]):
        return None
    coefficients = sympy.Poly(size, free[0]).all_coeffs()
    if len(coefficients) != 2 or not all(c.is_Integer for c in coefficients) or coefficients[0] < 1:
        return None
    return str(free[0]), int(coefficients[0]), int(coefficients[1])
