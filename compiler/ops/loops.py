"""Loops over the rows of tensors, as `while` nodes whose results are written row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.dims import DimExpr
from ..ir.errors import UnsupportedOp
from ..ir.graph import Block, Builder, Node, Value
from ..ir.types import INT, Type, types_equal
from . import build as B

#: (row or place, carried values) -> the new carried values.
Step = Callable[[Value, list[Value]], list[Value]]


def for_each(b: Builder, length: DimExpr, carried: Sequence[Value], step: Step, what: str) -> list[Value]:
    """Run `step(row, carried)` for the rows 0 .. length - 1, `row` a 0-d i64 tensor; return the carried
    values.

    Raises UnsupportedOp, for the operator `what`, if the step changes the types.
    """

    def turn(place: Value, carried: list[Value]) -> list[Value]:
        return step(b.one("scalar", place, dtype="i64"), carried)

    return _loop(b, lambda: b.size(length), carried, turn, what)


def for_each_place(b: Builder, length: Value, carried: Sequence[Value], step: Step) -> list[Value]:
    """Like `for_each`, with an int `length` and int indices, over a list."""
    return _loop(b, lambda: length, carried, step, "list")


def _loop(
    b: Builder, length: Callable[[], Value], carried: Sequence[Value], step: Step, what: str
) -> list[Value]:
    types: list[Type] = [INT, *(value.type for value in carried)]
    blocks = []
    for is_condition in (True, False):
        params = [Value(b.graph.new_name("p"), type) for type in types]

        def results(params: list[Value] = params, is_condition: bool = is_condition) -> list[Value]:
            if is_condition:
                return [b.one("int_lt", params[0], length())]
            made = step(params[0], params[1:])
            return [b.one("int_add", params[0], b.size(1)), *made]

        blocks.append(block(b, params, results))
    require_types(what, "its function returns", types, blocks[1])
    start = b.one("int_sub", b.size(0), b.size(0))
    return b.insert(Node("while", [start, *carried], regions=blocks), types)[1:]


def block(b: Builder, params: list[Value], results: Callable[[], list[Value]]) -> Block:
    """Return the block that `results` fills."""
    made = Block(params=params)
    outer, b.block = b.block, made
    try:
        made.results = results()
    finally:
        b.block = outer
    return made


def require_types(name: str, what: str, wanted: Sequence[Type], *blocks: Block) -> None:
    """Raise UnsupportedOp if blocks yield other types."""
    for each in blocks:
        for value, type in zip(each.results, wanted, strict=True):
            if not types_equal(value.type, type):
                raise UnsupportedOp(
                    f"{name}: {what} {value.type} where {type} is needed; "
                    "its tensors must have the same sizes and dtypes whichever way the program goes"
                )


def row_of(b: Builder, x: Value, row: Value) -> Value:
    """Return x[row]."""
    return b.one("gather", x, row, axis=0)


def with_row(b: Builder, whole: Value, part: Value, row: Value) -> Value:
    """Return `whole` with `part` in place of its row `row`."""
    index = B.reshape(b, row, [1] * len(B.shape_of(whole)))
    updates = (1, *B.shape_of(part))
    placed = {"axis": 0, "mode": "set", "shape": B.shape_of(whole), "updates": updates}
    return b.one("scatter", whole, index, B.add_axis(b, part, 0), **placed)
