"""Data-dependent sizes: indices of true elements, unique elements, repetitions; searches of sorted rows.

Such a size is an `item` with a new symbol; values of that size follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...jit.families.nonzero.reference import nonzero as indices_where
from ...jit.families.search.reference import search
from ..ir.dims import DimExpr, equal, symbol
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from . import build as B
from .concat import stack
from .declare import Composite, Op, Sample
from .gather import gather, holding, torch_gather
from .rules import Attrs, Types, check_dtype, same_dtype, show, tensors
from .scatter import scatter
from .sort import first_of


def _infer_places(types: Types, attrs: Attrs) -> Sequence[Type]:
    (mask,) = tensors("nonzero", types, 1)
    check_dtype("nonzero", mask.dtype, ["bool"])
    if mask.rank != 1:
        raise ShapeError(f"places: the mask is {show(mask.shape)}; it must have one axis")
    return (TensorType("i64", (attrs["count"],)),)


def _infer_search(types: Types, attrs: Attrs) -> Sequence[Type]:
    rows, values = tensors("search", types, 2)
    same_dtype("search", (rows, values))
    fits = rows.rank == values.rank == 2 and (
        B.is_one(rows.shape[0]) or equal(rows.shape[0], values.shape[0])
    )
    if not fits:
        raise ShapeError(
            f"search: rows are {show(rows.shape)} and values {show(values.shape)}; both must have two axes, "
            "and as many rows, or one"
        )
    return (TensorType("i64", values.shape),)


_N = symbol("s0")
OPS: tuple[Op, ...] = (
    Op(
        "nonzero",
        "standalone",
        "nonzero(Tensor mask; count) -> Tensor",
        "The places where a mask of one axis holds, in order (i64): the first `count`; where there are "
        "fewer, the rest are -1.",
        _infer_places,
        lambda args, attrs: indices_where(args[0], attrs["count"]),
        samples=(
            Sample(("bool[s0]",), {"count": _N}),
            Sample(("bool[50]",), {"count": 7}),
            Sample(("bool[0]",), {"count": 2}),
        ),
        errors=(
            (Sample(("bool[2, 3]",), {"count": 2}), "places: the mask is [2, 3]; it must have one axis"),
        ),
    ),
    Op(
        "search",
        "standalone",
        "search(Tensor rows, Tensor values; right) -> Tensor",
        "How many elements of each row (going up) come before each of its values, or with `right` are equal "
        "to it (i64). One row may serve all.",
        _infer_search,
        lambda args, attrs: search(args[0], args[1], attrs["right"]),
        samples=(
            Sample(("f32[1, s0]", "f32[3, 4]"), {"right": False}),
            Sample(("i64[2, 5]", "i64[2, s0]"), {"right": True}),
        ),
        errors=(
            (
                Sample(("f32[2, 3]", "f32[4, 3]"), {"right": False}),
                "search: rows are [2, 3] and values [4, 3]; both must have two axes, and as many rows, or "
                "one",
            ),
        ),
    ),
)


# Sizes found in data ------------------------------------------------------------------------------


def coordinates(b: Builder, places: Value, shape: Sequence[DimExpr]) -> list[Value]:
    """Return flat indices as indices along each axis of `shape`."""
    found, rest = [], places
    for size in reversed(shape):
        found.append(B.pointwise(b, "mod", rest, size))
        rest = B.pointwise(b, "floordiv", rest, size)
    return found[::-1]


def nonzero(b: Builder, x: Value) -> Value:
    """The indices of the nonzero elements: one row for each, one column for each axis."""
    shape = B.shape_of(x)
    if B.product(shape) == 0:
        return B.full(b, 0, "i64", (0, len(shape)))
    places = holding(b, x)
    count = B.shape_of(places)[0]
    if len(shape) <= 1:
        return B.reshape(b, places, [count, 1]) if shape else B.full(b, 0, "i64", (count, 0))
    return stack(b, coordinates(b, places, shape), 1)


def nonzero_static(b: Builder, x: Value, *, size: DimExpr, fill_value: int = -1) -> Value:
    """Like `nonzero` with `size` rows, padded with `fill_value`."""
    shape = B.shape_of(x)
    line = B.reshape(b, B.cast_to(b, x, "bool"), [B.product(shape)])
    places = b.one("nonzero", line, count=size)
    if not shape:
        return B.full(b, 0, "i64", (size, 0))
    rows = stack(b, coordinates(b, places, shape), 1)
    is_none = B.pointwise(b, "lt", B.reshape(b, places, [size, 1]), 0)
    return B.where(b, is_none, B.full(b, fill_value, "i64"), rows)


def masked_select(b: Builder, x: Value, mask: Value) -> Value:
    """The elements where a mask holds, in order."""
    x, mask = B.broadcast(b, "masked_select", [x, mask], or_one=True)
    return gather(b, B.reshape(b, x, [B.product(B.shape_of(x))]), holding(b, mask), 0)


def masked_scatter(b: Builder, x: Value, mask: Value, source: Value) -> Value:
    """x with the elements of source, in order, where a mask holds."""
    x, mask = B.broadcast(b, "masked_scatter", [x, mask])
    shape = B.shape_of(x)
    places = holding(b, mask)
    count = B.shape_of(places)[0]
    values = B.reshape(b, source, [B.product(B.shape_of(source))])
    values = gather(b, values, b.one("iota", start=0, step=1, length=count, dtype="i64"), 0)
    line = scatter(b, B.reshape(b, x, [B.product(shape)]), places, values, 0, "set")
    return B.reshape(b, line, shape)


def repeat_interleave(b: Builder, repeats: Value, *, output_size: DimExpr | None = None) -> Value:
    """Each index of `repeats`, repeated that many times."""
    (n,), dtype = B.shape_of(repeats), B.dtype_of(repeats)
    name = dict(zip(b.graph.body.params, b.graph.inputs, strict=True)).get(repeats, "the number of repeats")
    repeats = B.cast_to(b, repeats, "i64")
    every = B.reduce(b, "reduce_all", B.pointwise(b, "ge", repeats, 0), [0], False)
    b.apply("guard", b.one("item", every), message=f"repeat_interleave: {name} must be at least 0")
    if output_size is None:
        output_size = B.size_of(b, B.reduce(b, "reduce_sum", repeats, [0], False))
    ends = B.reshape(b, b.one("scan", B.reshape(b, repeats, [1, n, 1]), function="sum"), [1, n])
    line = b.one("iota", start=0, step=1, length=output_size, dtype="i64")
    found = b.one("search", ends, B.reshape(b, line, [1, output_size]), right=True)
    return B.cast_to(b, B.reshape(b, found, [output_size]), dtype)


def tensor_split(b: Builder, x: Value, indices: Value, dim: int = 0) -> tuple[Value, ...]:
    """x split along an axis before each of the indices in a tensor."""
    axis = B.axis_of("tensor_split", dim, len(B.shape_of(x)))
    if len(B.shape_of(indices)) != 1 or not isinstance(B.shape_of(indices)[0], int):
        raise UnsupportedOp("tensor_split: the number of parts depends on data; give a constant number")
    length, count = B.shape_of(x)[axis], B.shape_of(indices)[0]
    places = B.where(b, B.pointwise(b, "lt", indices, 0), B.pointwise(b, "add", indices, length), indices)
    places = B.pointwise(b, "minimum", B.pointwise(b, "maximum", places, 0), length)
    ends = B.concat(b, [places, B.full(b, length, "i64", (1,))], 0)
    starts = B.concat(b, [B.full(b, 0, "i64", (1,)), places], 0)
    sizes = B.pointwise(b, "maximum", B.pointwise(b, "sub", ends, starts), 0)
    found = [B.size_of(b, B.take(b, sizes, 0, i, 1)) for i in range(int(count) + 1)]
    first = [B.size_of(b, B.take(b, starts, 0, i, 1)) for i in range(int(count) + 1)]
    return tuple(B.take(b, x, axis, start, size) for start, size in zip(first, found, strict=True))


# Unique elements ----------------------------------------------------------------------------------


def _runs(
    b: Builder, x: Value, places: Value | None, return_inverse: bool, return_counts: bool
) -> tuple[Value, Value, Value]:
    """The first of every run of equal elements of one axis; the run of each element, which was at `places`
    (None: unmoved); the lengths of the runs."""
    (n,) = B.shape_of(x)
    count_up = b.one("iota", start=0, step=1, length=n, dtype="i64")
    before = gather(b, x, B.pointwise(b, "maximum", B.pointwise(b, "sub", count_up, 1), 0), 0)
    is_first = B.pointwise(b, "or", B.pointwise(b, "eq", count_up, 0), B.pointwise(b, "ne", x, before))
    starts = holding(b, is_first)
    inverse = counts = B.full(b, 0, "i64", (0,))
    if return_inverse:
        rows = [B.reshape(b, t, [1, B.shape_of(t)[0]]) for t in (starts, count_up)]
        run = B.pointwise(b, "sub", B.reshape(b, b.one("search", *rows, right=True), [n]), 1)
        zero = B.full(b, 0, "i64", (1,))
        inverse = run if places is None else scatter(b, zero, places, run, 0, "set", (n,))
    if return_counts:
        counts = B.pointwise(b, "sub", _next(b, starts, n), starts)
    return gather(b, x, starts, 0), inverse, counts


def _next(b: Builder, starts: Value, end: DimExpr) -> Value:
    """Return for each start the one after it, for the last `end`."""
    (count,) = B.shape_of(starts)
    after = b.one("iota", start=1, step=1, length=count, dtype="i64")
    is_last = B.pointwise(b, "eq", after, B.full(b, count, "i64"))
    return B.where(b, is_last, B.full(b, end, "i64"), gather(b, starts, B.where(b, is_last, 0, after), 0))


def unique(
    b: Builder, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Value, Value, Value]:
    """The distinct elements in ascending order; for each of x its index among them; their counts."""
    shape = B.shape_of(x)
    line = B.reshape(b, x, [B.product(shape)])
    ordered, places = first_of(b, "unique", line, 0, None, False)
    values, inverse, counts = _runs(b, ordered, places, return_inverse, return_counts)
    return values, B.reshape(b, inverse, shape) if return_inverse else inverse, counts


def unique_consecutive(
    b: Builder, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Value, Value, Value]:
    """The elements without repetitions of the previous one; each one's index in them; the runs' lengths."""
    shape = B.shape_of(x)
    if dim is not None and len(shape) != 1:
        return _unique_slices(b, x, dim, return_inverse, return_counts)
    values, inverse, counts = _runs(
        b, B.reshape(b, x, [B.product(shape)]), None, return_inverse, return_counts
    )
    return values, B.reshape(b, inverse, shape) if return_inverse else inverse, counts


def _unique_slices(
    b: Builder, x: Value, dim: int, return_inverse: bool, return_counts: bool
) -> tuple[Value, Value, Value]:
    """As `unique_consecutive` of the slices of an axis."""
    shape = B.shape_of(x)
    axis = B.axis_of("unique_consecutive", dim, len(shape))
    n, others = shape[axis], [i for i in range(len(shape)) if i != axis]
    rows = B.reshape(b, B.permute(b, x, [axis, *others]), [n, B.product(shape[i] for i in others)])
    count_up = b.one("iota", start=0, step=1, length=n, dtype="i64")
    before = gather(b, rows, B.pointwise(b, "maximum", B.pointwise(b, "sub", count_up, 1), 0), 0)
    differs = B.reduce(b, "reduce_any", B.pointwise(b, "ne", rows, before), [1], False)
    run = B.cast_to(b, B.pointwise(b, "or", B.pointwise(b, "eq", count_up, 0), differs), "i64")
    numbers = B.reshape(b, b.one("scan", B.reshape(b, run, [1, n, 1]), function="sum"), [n])
    starts, inverse, counts = _runs(b, numbers, None, return_inverse, return_counts)
    first = b.one("search", *(B.reshape(b, t, [1, B.shape_of(t)[0]]) for t in (numbers, starts)), right=False)
    return gather(b, x, B.reshape(b, first, [B.shape_of(starts)[0]]), axis), inverse, counts


def unique_dim(
    b: Builder,
    x: Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Value, Value, Value]:
    """The distinct slices of an axis, in lexicographic order; otherwise like `unique`."""
    shape = B.shape_of(x)
    axis = B.axis_of("unique_dim", dim, len(shape))
    if shape[axis] == 0:
        none = B.full(b, 0, "i64", (0,))
        return x, none, none
    order = _order_of_slices(b, x, axis)
    values, inverse, counts = _unique_slices(b, gather(b, x, order, axis), axis, True, True)
    back = scatter(b, B.full(b, 0, "i64", (1,)), order, inverse, 0, "set", (shape[axis],))
    return values, back, counts


def _order_of_slices(b: Builder, x: Value, axis: int) -> Value:
    """Return the indices of the slices of an axis in lexicographic order.

    A slice's elements become ranks among those of all slices; the ranks of two neighbours, as one number,
    are ranked again, until one is left (Karp, Miller, Rosenberg: Rapid identification of repeated patterns,
    1972).
    """
    shape = B.shape_of(x)
    n, others = shape[axis], [i for i in range(len(shape)) if i != axis]
    width = B.product(shape[i] for i in others)
    if not isinstance(width, int):
        raise UnsupportedOp(f"unique_dim: a slice has {width} elements; their number must be constant")
    rows = B.reshape(b, B.permute(b, x, [*others, axis]), [width, n])
    while width > 1:
        if width % 2:
            rows = B.concat(b, [rows, B.full(b, 0, B.dtype_of(rows), (1, n))], 0)
        width = -(-width // 2)
        ranks = b.one("search", first_of(b, "unique_dim", rows, 1, None, False)[0], rows, right=False)
        pairs = B.reshape(b, ranks, [width, 2, n])
        high, low = (B.reshape(b, B.take(b, pairs, 1, i, 1), [width, n]) for i in range(2))
        rows = B.pointwise(b, "add", B.pointwise(b, "mul", high, n + 1), low)  # NaN's rank is n
    return first_of(b, "unique_dim", B.reshape(b, rows, [n]), 0, None, False)[1]


# Searches -----------------------------------------------------------------------------------------


def searchsorted(
    b: Builder,
    rows: Value,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """The insertion points of values in ascending rows; `sorter` gives the order of unsorted rows."""
    right = right if side is None else side == "right"
    if sorter is not None:
        rows = torch_gather(b, rows, -1, sorter)
    dtype = B.common_dtype(rows, values)
    rows, values = B.cast_to(b, rows, dtype), B.tensor_of(b, values, dtype)
    shape, length = B.shape_of(values), B.shape_of(rows)[-1]
    count = shape[-1] if shape and len(B.shape_of(rows)) > 1 else B.product(shape)
    table = B.reshape(b, rows, [B.product(B.shape_of(rows)[:-1]), length])
    wanted = B.reshape(b, values, [B.shape_of(table)[0], count])
    found = B.reshape(b, b.one("search", table, wanted, right=right), shape)
    return B.cast_to(b, found, "i32") if out_int32 else found


def bucketize(
    b: Builder, values: Any, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    """As `searchsorted` of one row."""
    return searchsorted(b, boundaries, values, out_int32=out_int32, right=right)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.nonzero.default",), nonzero),
    Composite(("aten.repeat_interleave.Tensor",), repeat_interleave),
    Composite(("aten.nonzero_static.default",), nonzero_static),
    Composite(("aten.masked_select.default",), masked_select),
    Composite(("aten.masked_scatter.default",), masked_scatter),
    Composite(("aten.tensor_split.tensor_indices_or_sections",), tensor_split),
    Composite(("aten._unique2.default",), unique),
    Composite(("aten.unique_consecutive.default",), unique_consecutive),
    Composite(("aten.unique_dim.default",), unique_dim),
    Composite(("aten.searchsorted.Tensor", "aten.searchsorted.Scalar"), searchsorted),
    Composite(("aten.bucketize.Tensor", "aten.bucketize.Scalar"), bucketize),
)
