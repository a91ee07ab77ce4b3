"""Reductions over groups of rows: torch's embedding_bag and segment_reduce; and embedding_renorm."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from ..ir.dims import DimExpr, equal, simplify
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from . import build as B
from .bags import MAX, SUM, bag_of_each, kept_for_gradient
from .declare import Composite
from .gather import gather
from .pool import lowest
from .reduce import vector_norm
from .scatter import scatter


def embedding_bag(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    has_gradient: bool = True,
) -> tuple[Value | None, ...]:
    """The sum, mean or maximum of the weight's rows in every bag, and the values for its gradient."""
    settings = (mode, per_sample_weights, include_last_offset, padding_idx)
    found = _bags(b, weight, indices, offsets, *settings)
    if not has_gradient:
        return found, None, None, None
    return found, *kept_for_gradient(b, weight, indices, offsets, found, mode, padding_idx)


def embedding_bag_forward_only(b: Builder, *args: Any, **named: Any) -> tuple[Value | None, ...]:
    """The same without gradient: the other results are meaningless."""
    return embedding_bag(b, *args, **named, has_gradient=False)


def _bags(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int,
    per_sample_weights: Value | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Value:
    size = _bag_size(indices, offsets, include_last_offset)
    if size is None:
        return _ragged_bags(
            b, weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx
        )
    bags = [B.shape_of(offsets)[0], size]
    indices = B.reshape(b, indices, bags)
    rows = gather(b, weight, indices, 0)
    kept = None if padding_idx < 0 else B.add_axis(b, B.pointwise(b, "ne", indices, padding_idx), 2)
    if mode == MAX:
        return _largest(b, rows, kept)
    factors = None if per_sample_weights is None else B.reshape(b, per_sample_weights, [*bags, 1])

    def compute(rows: Value, factors: Value | None) -> Value:
        rows = rows if factors is None else B.pointwise(b, "mul", rows, factors)
        rows = rows if kept is None else B.where(b, kept, rows, B.full(b, 0, B.dtype_of(rows)))
        total = B.reduce(b, "reduce_sum", rows, [1], False)
        return total if mode == SUM else B.pointwise(b, "div", total, _n_kept(b, kept, size, total))

    return B.in_f32(b, compute, rows, factors)


def _bag_size(indices: Value, offsets: Value, include_last_offset: bool) -> DimExpr | None:
    """Return the common size of all bags, if the offsets are known to be its multiples, else None."""
    node = offsets.node
    if node is not None and node.op == "iota" and not include_last_offset and node.attrs["start"] == 0:
        size: DimExpr = node.attrs["step"]
        (n_bags,), (n,) = B.shape_of(offsets), B.shape_of(indices)
        if equal(B.product((n_bags, size)), n):
            return size
    return None


def _ragged_bags(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int,
    factors: Value | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Value:
    """Bags whose sizes depend on data: the rows are scattered to their bags."""
    (n,), (n_offsets,) = B.shape_of(indices), B.shape_of(offsets)
    n_bags = simplify(n_offsets - 1) if include_last_offset else n_offsets
    bag = B.add_axis(b, bag_of_each(b, indices, offsets), 1)
    if padding_idx >= 0:
        kept = B.pointwise(b, "ne", B.reshape(b, indices, [n, 1]), padding_idx)
        bag = B.where(b, kept, bag, B.full(b, n_bags, "i64"))

    def compute(rows: Value, factors: Value | None) -> Value:
        rows = rows if factors is None else B.pointwise(b, "mul", rows, B.reshape(b, factors, [n, 1]))
        kind = ("sum", "mean", "max")[mode]
        return grouped(b, rows, bag, n_bags, kind, None, 0, 0.0)

    return B.in_f32(b, compute, gather(b, weight, indices, 0), factors)


def grouped(
    b: Builder,
    x: Value,
    group: Value,
    n_groups: DimExpr,
    kind: str,
    initial: float | None,
    axis: int,
    of_none: float,
) -> Value:
    """Reduce the positions of an axis of x by groups; those of a group beyond the last are ignored.

    `initial`: the initial value of a reduction, None: its neutral element, and then `of_none` is the result
    of empty groups.
    """
    dtype, shape = B.dtype_of(x), B.shape_of(x)
    sizes = (*shape[:axis], simplify(n_groups + 1), *shape[axis + 1 :])
    neutral = {"sum": 0, "mean": 0, "prod": 1, "max": lowest(dtype), "min": -lowest(dtype)}[kind]
    start = B.full(b, neutral if initial is None else initial, dtype, (1,) * len(shape))
    ones = B.full(b, 1, dtype, (1,) * len(shape))
    mode = "sum" if kind == "mean" else kind
    total = B.take(b, scatter(b, start, group, x, axis, mode, sizes), axis, 0, n_groups)
    none = B.full(b, 0, dtype, (1,) * len(shape))
    counts = B.take(b, scatter(b, none, group, ones, axis, "sum", sizes), axis, 0, n_groups)
    if kind == "mean":
        total = B.pointwise(b, "div", total, B.pointwise(b, "maximum", counts, 1.0))
    if initial is not None:
        return total
    return B.where(b, B.pointwise(b, "gt", counts, 0.0), total, B.full(b, of_none, dtype))


def embedding_renorm(b: Builder, weight: Value, indices: Value, max_norm: float, p: float) -> Value:
    """The weight with the indexed rows scaled down to a norm of at most max_norm."""
    rows, _ = B.shape_of(weight)
    line = B.reshape(b, indices, [B.product(B.shape_of(indices))])
    unused, used = (B.full(b, value, "bool", (1,)) for value in (False, True))
    named = B.reshape(b, scatter(b, unused, line, used, 0, "set", (rows,)), [rows, 1])
    norm = vector_norm(b, weight, p, [1], True)
    factor = B.pointwise(b, "div", float(max_norm), B.pointwise(b, "add", norm, 1e-7))
    changed = B.pointwise(b, "and", named, B.pointwise(b, "gt", norm, float(max_norm)))
    return B.where(b, changed, B.pointwise(b, "mul", weight, factor), weight)


def segment_reduce(
    b: Builder,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Value:
    """Reductions of consecutive segments of an axis."""
    if indices is not None or (lengths is None) == (offsets is None) or not is_float(B.dtype_of(data)):
        raise UnsupportedOp("segment_reduce: give lengths or offsets of segments of floats")
    shape = B.shape_of(data)
    rows, inner = B.product(shape[:axis]), B.product(shape[axis + 1 :])
    given = offsets if lengths is None else lengths
    assert given is not None
    given = B.cast_to(b, given, "i64")
    count = B.shape_of(given)[-1]
    ends = B.reshape(b, given, [rows, count])
    n_before = 1 if lengths is None else 0  # the first offset ends the elements outside of segments
    if lengths is not None:
        ends = B.reshape(
            b, b.one("scan", B.reshape(b, ends, [rows, count, 1]), function="sum"), [rows, count]
        )
    line = B.reshape(b, b.one("iota", start=0, step=1, length=shape[axis], dtype="i64"), [1, shape[axis]])
    line = B.expand(b, line, [rows, shape[axis]])
    group = B.reshape(b, b.one("search", ends, line, right=True), [rows, shape[axis], 1])
    of_none = {"sum": 0.0, "prod": 1.0, "mean": nan, "max": -inf, "min": inf}[reduce]

    def compute(x: Value) -> Value:
        return grouped(b, x, group, count, reduce, initial, 1, of_none)

    found = B.in_f32(b, compute, B.reshape(b, data, [rows, shape[axis], inner]))
    count = simplify(count - n_before)
    found = B.take(b, found, 1, n_before, count)
    return B.reshape(b, found, [*shape[:axis], count, *shape[axis + 1 :]])


def _n_kept(b: Builder, kept: Value | None, size: DimExpr, like: Value) -> Value:
    """Return the divisor of a bag's sum, never 0."""
    dtype = B.dtype_of(like)
    if kept is None:
        return B.pointwise(b, "maximum", B.full(b, size, dtype), 1.0)
    count = B.reduce(b, "reduce_sum", B.cast_to(b, kept, dtype), [1], False)
    return B.pointwise(b, "maximum", count, 1.0)


def _largest(b: Builder, rows: Value, kept: Value | None) -> Value:
    """Return the maximum over axis 1 of the rows that are kept; 0 where there are none."""
    zero = B.full(b, 0, B.dtype_of(rows))
    if equal(B.shape_of(rows)[1], 0):
        return B.expand(b, zero, [B.shape_of(rows)[0], B.shape_of(rows)[2]])
    if kept is None:
        return B.reduce(b, "reduce_max", rows, [1], False)
    found = B.reduce(b, "reduce_max", B.where(b, kept, rows, lowest(B.dtype_of(rows))), [1], False)
    return B.where(b, B.reduce(b, "reduce_any", kept, [1], False), found, zero)


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._embedding_bag.default",), embedding_bag),
    Composite(("aten._embedding_bag_forward_only.default",), embedding_bag_forward_only),
    Composite(("aten.segment_reduce.default",), segment_reduce),
    Composite(("aten.embedding_renorm.default",), embedding_renorm),
)
