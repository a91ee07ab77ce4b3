"""Matrix products of groups of rows, columns or inner positions: torch's _grouped_mm, of mixtures of experts.
The ends of groups are data: every group is a separate product, whose size is given by the offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.dims import DimExpr, simplify
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite
from .matmul import matmul

OP = "grouped_mm"


def grouped_mm(
    b: Builder,
    x: Value,
    y: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: str | None = None,
) -> Value:
    """Products of matrices. Group g of an axis ends before position offs[g] of it: of x's rows if only y has
    three axes, of y's columns if only x has, else of the inner axis. Elements after the last group are 0."""
    if bias is not None:
        raise UnsupportedOp(f"{OP}: a bias cannot be compiled; add it to the result")
    ranks = len(B.shape_of(x)), len(B.shape_of(y))
    dtype = out_dtype or B.dtype_of(x)
    if ranks == (3, 3):
        return B.cast_to(b, matmul(b, x, y), dtype)
    if offs is None:
        raise ShapeError(f"{OP}: matrices of ranks {ranks[0]} and {ranks[1]} need offsets")
    if ranks == (2, 3):
        found = _ragged(b, x, y, offs)
    elif ranks == (3, 2):
        swapped = _ragged(b, B.permute(b, y, [1, 0]), B.permute(b, x, [0, 2, 1]), offs)
        found = B.permute(b, swapped, [1, 0])
    else:
        found = _inner(b, x, y, offs)
    return B.cast_to(b, found, dtype)


def _ragged(b: Builder, x: Value, y: Value, offs: Value) -> Value:
    """Rows of x by the matrix of their group."""
    n_rows, (n_groups, _, n_columns) = B.shape_of(x)[0], B.shape_of(y)
    parts, end = [], simplify(0)
    for group, (start, end) in enumerate(_groups(b, offs, n_groups, n_rows)):
        rows = B.take(b, x, 0, start, simplify(end - start))
        parts.append(matmul(b, rows, B.drop_axis(b, B.take(b, y, 0, group, 1), 0)))
    rest = (simplify(n_rows - end), n_columns)
    return B.concat(b, [*parts, B.full(b, 0, B.dtype_of(x), rest)], 0)


def _inner(b: Builder, x: Value, y: Value, offs: Value) -> Value:
    """One product for each group of x's columns and y's rows."""
    parts = []
    for start, end in _groups(b, offs, B.shape_of(offs)[0], B.shape_of(x)[1]):
        length = simplify(end - start)
        made = matmul(b, B.take(b, x, 1, start, length), B.take(b, y, 0, start, length))
        parts.append(B.add_axis(b, made, 0))
    if not parts:
        return B.full(b, 0, B.dtype_of(x), (0, B.shape_of(x)[0], B.shape_of(y)[1]))
    return B.concat(b, parts, 0)


def _groups(b: Builder, offs: Value, n_groups: DimExpr, size: DimExpr) -> Iterator[tuple[DimExpr, DimExpr]]:
    """Yield (start, end) of every group of an axis of `size`. Raises UnsupportedOp if their number is not
    known."""
    found = B.shape_of(offs)[0]
    if not isinstance(found, int) or not isinstance(n_groups, int):
        raise UnsupportedOp(f"{OP}: the number of groups must be known when compiling; make it constant")
    if found != n_groups:
        raise ShapeError(f"{OP}: {found} offsets are given for {n_groups} matrices")
    ends = B.pointwise(b, "minimum", B.cast_to(b, offs, "i64"), size)  # as PyTorch's slices are
    start: DimExpr = 0
    for group in range(n_groups):
        end = B.size_of(b, B.take(b, ends, 0, group, 1))
        right = b.one("int_le", b.size(start), b.size(end))
        before = f"offset {group - 1}" if group else "0"
        b.apply("guard", right, message=f"{OP}: offset {group} must be at least {before}")
        yield start, end
        start = end


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(
        ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"),
        grouped_mm,
    ),
)
