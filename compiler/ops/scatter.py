"""Updates at positions chosen by an index tensor: `scatter` and torch's overloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ...jit.families.scatter import reference
from ...jit.families.scatter.spec import SCATTER_MODES
from ..ir.dims import DimExpr, equal, symbol
from ..ir.errors import DtypeError, ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import add_guard, equation
from .declare import Composite, Op, Sample
from .gather import merged_index, without_masks, wrapped
from .rules import COMPUTE, Attrs, Shape, Types, check_axis, check_dtype, show, tensors
from .slices import strided_places


def _infer_scatter(types: Types, attrs: Attrs) -> Sequence[Type]:
    base, index, source = tensors("scatter", types, 3)
    shape, updates, axis = tuple(attrs["shape"]), tuple(attrs["updates"]), attrs["axis"]
    check_axis("scatter", axis, len(shape))
    check_dtype("scatter", index.dtype, ["i64", "i32"])
    if base.dtype != source.dtype:
        raise DtypeError(f"scatter: base is {base.dtype} and source {source.dtype}; cast them to one dtype")
    if (base.dtype == "bool") != (attrs["mode"] in ("any", "all")) and attrs["mode"] != "set":
        raise DtypeError(f"scatter: mode {attrs['mode']} does not take {base.dtype}")
    for what, small, large, name in (
        ("base", base.shape, shape, "shape"),
        ("index", index.shape, updates, "updates"),
        ("source", source.shape, updates, "updates"),
        ("updates", updates, shape, "shape"),
    ):
        pairs = list(zip(small, large, strict=len(small) == len(large)))
        fits = what == "updates" or all(equal(a, b) or B.is_one(a) for a, b in pairs)
        if len(small) != len(large) or not fits:
            raise ShapeError(
                f"scatter: {what} is {show(small)} and {name} {show(large)}; each axis must be equal or 1"
            )
    return (TensorType(base.dtype, shape),)


def _scatter(args: Sequence[Any], attrs: Attrs) -> Any:
    base, index, source = args
    index, source = (np.broadcast_to(x, attrs["updates"]) for x in (index, source))
    try:
        return reference.scatter(
            np.broadcast_to(base, attrs["shape"]), index, source, attrs["axis"], attrs["mode"]
        )
    except IndexError as error:
        raise ShapeError(str(error)) from None


def _example(types: str, size: int, axis: int, mode: str, shape: Shape, updates: Shape) -> Sample:
    attrs = {"axis": axis, "mode": mode, "shape": shape, "updates": updates}
    return Sample(tuple(types.split()), attrs, f"index:{size}")


_N = symbol("s0")
OPS: tuple[Op, ...] = (
    Op(
        "scatter",
        "standalone",
        "scatter(Tensor base, Tensor index, Tensor source; axis, mode, shape, updates) -> Tensor",
        "base, expanded to `shape`, after [.., index, ..] = combine([.., index, ..], source) along one axis, "
        "in order of it, for index and source expanded to `updates`, at most `shape` along the other axes. "
        "`mode`: " + ", ".join(SCATTER_MODES) + ". An index out of range is an error when it runs.",
        _infer_scatter,
        _scatter,
        samples=(
            _example("f32[9,4] i64[s0,1] f32[s0,4]", 9, 0, "sum", (9, 4), (_N, 4)),
            _example("f32[1,1] i32[s0,5] f32[1,1]", 7, 1, "set", (_N, 7), (_N, 5)),
            _example("i64[s0] i64[3] i64[3]", 1, 0, "max", (_N,), (3,)),
            _example("bool[2,3,s0] i64[1,4,1] bool[2,4,s0]", 3, 1, "any", (2, 3, _N), (2, 4, _N)),
            _example("f64[2,3] i64[0,3] f64[0,3]", 2, 0, "prod", (2, 3), (0, 3)),
        ),
        errors=(
            (
                _example("f32[3] i64[2] f64[2]", 3, 0, "sum", (3,), (2,)),
                "scatter: base is f32 and source f64; cast them to one dtype",
            ),
            (
                _example("f32[3] i64[2] f32[4]", 3, 0, "sum", (3,), (2,)),
                "scatter: source is [4] and updates [2]; each axis must be equal or 1",
            ),
            (
                _example("f32[3] i64[2] f32[2]", 3, 0, "any", (3,), (2,)),
                "scatter: mode any does not take f32",
            ),
        ),
    ),
)

#: torch's name of a reduction -> our mode, for numbers and for bool.
_REDUCTIONS = {
    "sum": ("sum", "any"),
    "add": ("sum", "any"),
    "prod": ("prod", "all"),
    "multiply": ("prod", "all"),
    "amax": ("max", "any"),
    "amin": ("min", "all"),
}


def mode_of(reduce: str, dtype: str) -> str:
    """Return the mode of torch's reduction on a dtype."""
    return _REDUCTIONS[reduce][dtype == "bool"]


def scatter(
    b: Builder, base: Value, index: Value, source: Value, axis: int, mode: str, shape: Shape | None = None
) -> Value:
    """The op `scatter` of `shape` (None: base's); the index's axes of size 1 cover whole axes, except the
    chosen one."""
    index = index if B.dtype_of(index) in ("i64", "i32") else B.cast_to(b, index, "i64")
    shape = B.shape_of(base) if shape is None else shape
    updates = tuple(
        size if a != axis and B.is_one(n) else n
        for a, (size, n) in enumerate(zip(shape, B.shape_of(index), strict=True))
    )
    return b.one("scatter", base, index, source, axis=axis, mode=mode, shape=shape, updates=updates)


def _along(b: Builder, x: Value, axis: int, index: Value, source: Value, mode: str) -> Value:
    """x[.., index[i, j, ..], ..] changed by source[i, j, ..]: torch's scatter. Few axes, long ones."""
    shape, places = B.shape_of(x), B.shape_of(index)
    if not shape or not places:
        x, index, source = (B.reshape(b, t, [B.product(B.shape_of(t))]) for t in (x, index, source))
        return B.reshape(b, scatter(b, x, index, source, 0, mode), shape)
    if not all(map(B.is_one, B.shape_of(source))):
        for i, size in enumerate(places):
            source = B.take(b, source, i, 0, size)
    if all(equal(shape[i], places[i]) for i in range(len(shape)) if i != axis):
        x, index, source = (_joined(b, t, axis) for t in (x, index, source))
        return B.reshape(b, scatter(b, x, index, source, min(axis, 1), mode), shape)
    return b.one("scatter", x, index, source, axis=axis, mode=mode, shape=shape, updates=places)


def _joined(b: Builder, x: Value, axis: int) -> Value:
    """Merge the axes before `axis`, and those after it."""
    shape = B.shape_of(x)
    before, after = shape[:axis], shape[axis + 1 :]
    merged = [B.product(part) for part in (before, shape[axis : axis + 1], after) if part]
    return B.reshape(b, x, merged)


def _ones(b: Builder, value: Any, dtype: str, rank: int) -> Value:
    """A number as a tensor of one element."""
    return B.full(b, value, dtype, (1,) * max(rank, 1))


# torch's overloads: scatter -------------------------------------------------------------------------


def scatter_src(b: Builder, x: Value, dim: int, index: Value, src: Value, *, reduce: str = "") -> Value:
    """x with src at the index's positions along dim, replacing or reduced."""
    axis = B.axis_of("scatter", dim, len(B.shape_of(x)))
    mode = mode_of(reduce, B.dtype_of(x)) if reduce else "set"
    return _along(b, x, axis, index, src, mode)


def as_strided_scatter(
    b: Builder, x: Value, src: Value, size: Sequence[DimExpr], stride: Sequence[DimExpr], offset: Any = None
) -> Value:
    """row-major x with src at positions of other strides."""
    shape = B.shape_of(x)
    places = B.reshape(b, strided_places(b, size, stride, offset), [B.product(size)])
    values = B.reshape(b, B.expand(b, B.cast_to(b, src, B.dtype_of(x)), size), [B.product(size)])
    line = scatter(b, B.reshape(b, x, [B.product(shape)]), places, values, 0, "set")
    return B.reshape(b, line, shape)


def scatter_value(b: Builder, x: Value, dim: int, index: Value, value: Any, *, reduce: str = "") -> Value:
    """x with one number at the index's positions along dim."""
    one = _ones(b, value, B.dtype_of(x), len(B.shape_of(x)))
    return scatter_src(b, x, dim, index, one, reduce=reduce)


def scatter_add(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    """x + src at the index's positions along dim."""
    return scatter_src(b, x, dim, index, src, reduce="sum")


def scatter_reduce(
    b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """x reduced with src at the index's positions; without x itself there if not include_self."""
    dtype, rank = B.dtype_of(x), len(B.shape_of(x))
    axis = B.axis_of("scatter_reduce", dim, rank)
    start = x
    if not include_self:
        start = _along(b, x, axis, index, _ones(b, _identity(reduce, dtype), dtype, rank), "set")
    if reduce != "mean":
        return _along(b, start, axis, index, src, mode_of(reduce, dtype))
    total = _along(b, start, axis, index, src, mode_of("sum", dtype))
    ones = B.full(b, 1 if include_self else 0, dtype, B.shape_of(x))
    count = _along(b, ones, axis, index, _ones(b, 1, dtype, rank), mode_of("sum", dtype))
    if not include_self:
        count = B.pointwise(b, "maximum", count, 1)
    return _divided(b, total, count)


def _divided(b: Builder, total: Value, count: Value) -> Value:
    if is_float(B.dtype_of(total)):
        return B.in_f32(b, lambda x, y: B.pointwise(b, "div", x, y), total, count)
    return B.pointwise(b, "floordiv", total, count)


def _identity(reduce: str, dtype: str) -> Any:
    """Return the number that a reduction starts from."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype == "bool":
        return reduce == "amin"
    if is_float(dtype):
        return float("-inf") if reduce == "amax" else float("inf")
    limits = np.iinfo(COMPUTE[dtype])
    return int(limits.min if reduce == "amax" else limits.max)


# torch's overloads: whole rows ----------------------------------------------------------------------


def _rows(b: Builder, name: str, x: Value, dim: int, index: Value, source: Value, mode: str) -> Value:
    """x[.., index[i], ..] changed by source[.., i, ..]."""
    shape = B.shape_of(x)
    axis = B.axis_of(name, dim, len(shape))
    n = B.product(B.shape_of(index))
    whole = _joined(b, x if shape else B.reshape(b, x, [1]), axis)
    if not all(map(B.is_one, B.shape_of(source))):
        wanted = [*shape[:axis], n, *shape[axis + 1 :]]
        source = _joined(b, B.reshape(b, _of_sizes(b, name, source, wanted), wanted), axis)
    else:
        source = B.reshape(b, source, [1] * len(B.shape_of(whole)))
    axis = min(axis, 1)
    places = [n if i == axis else 1 for i in range(len(B.shape_of(whole)))]
    return B.reshape(b, scatter(b, whole, B.reshape(b, index, places), source, axis, mode), shape)


def _of_sizes(b: Builder, name: str, x: Value, shape: Sequence[DimExpr]) -> Value:
    """Return a tensor whose sizes are these, if it has as many axes."""
    for axis, size in enumerate(shape if len(B.shape_of(x)) == len(shape) else ()):
        x = B.of_size(b, name, x, axis, size)
    return x


def index_add(b: Builder, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    """x + alpha * source at rows along dim."""
    if alpha != 1:
        source = B.pointwise(b, "mul", source, B.full(b, alpha, B.dtype_of(x)))
    return _rows(b, "index_add", x, dim, index, source, mode_of("sum", B.dtype_of(x)))


def index_copy(b: Builder, x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with rows of source along dim."""
    return _rows(b, "index_copy", x, dim, index, source, "set")


def index_fill(b: Builder, x: Value, dim: int, index: Value, value: Any) -> Value:
    """x with one number in rows along dim; negative indices count from the end."""
    shape = B.shape_of(x)
    axis = B.axis_of("index_fill", dim, len(shape))
    index = wrapped(b, index, shape[axis] if shape else 1)
    source = B.reshape(b, B.tensor_of(b, value, B.dtype_of(x)), [1] * max(len(shape), 1))
    return _rows(b, "index_fill", x, dim, index, source, "set")


def index_reduce(
    b: Builder, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """x reduced with rows of source along dim."""
    shape = B.shape_of(x)
    axis = B.axis_of("index_reduce", dim, len(shape))
    places = [B.product(B.shape_of(index)) if i == axis else 1 for i in range(len(shape))]
    wide = [places[axis] if i == axis else size for i, size in enumerate(shape)]
    index = B.expand(b, B.reshape(b, index, places), wide)
    source = _of_sizes(b, "index_reduce", source, wide)
    return scatter_reduce(b, x, dim, index, source, reduce, include_self=include_self)


# torch's overloads: indexing by several tensors -----------------------------------------------------


def index_put(
    b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, *_: Any
) -> Value:
    """x[i, j, ..] = values, or += if accumulate; values are broadcast to x[i, j, ..]."""
    dtype, shape = B.dtype_of(x), B.shape_of(x)
    mode = mode_of("sum", dtype) if accumulate else "set"
    named = {axis: i for axis, i in enumerate(indices) if i is not None}
    masks = [axis for axis, i in named.items() if B.dtype_of(i) in ("bool", "u8")]
    if masks and len(named) == 1 and mode == "set" and all(map(B.is_one, B.shape_of(values))):
        return _fill_where(b, x, masks[0], named[masks[0]], values)
    if masks:
        merged, found = without_masks(b, x, indices)
        return B.reshape(b, index_put(b, merged, found, values, accumulate), shape)
    axes = list(named)
    if axes != list(range(axes[0], axes[0] + len(axes))):  # the indexed axes go first
        order = [*axes, *(i for i in range(len(shape)) if i not in axes)]
        back = [order.index(i) for i in range(len(shape))]
        put = index_put(b, B.permute(b, x, order), list(named.values()), values, accumulate)
        return B.permute(b, put, back)
    first, end = axes[0], axes[-1] + 1
    chosen = B.agreeing(b, "index_put", list(named.values()), or_one=True)
    places = B.broadcast_shape("index_put", [B.shape_of(i) for i in chosen])
    chosen = [wrapped(b, i, shape[axis]) for axis, i in zip(named, chosen, strict=True)]
    index = merged_index(b, shape[first:end], chosen, places)
    if all(map(B.is_one, B.shape_of(values))):
        values = B.reshape(b, values, [1])
    else:
        values = _spread(b, values, (*shape[:first], *places, *shape[end:]))
        values = B.reshape(b, values, [*shape[:first], B.product(places), *shape[end:]])
    line = B.reshape(b, x, [*shape[:first], B.product(shape[first:end]), *shape[end:]])
    return B.reshape(b, _rows(b, "index_put", line, first, index, values, mode), shape)


def _spread(b: Builder, values: Value, shape: Shape) -> Value:
    """Expand values to `shape`; run-time sizes, which may be 1, are checked at run time."""
    given = B.shape_of(values)
    for axis, size in enumerate(given):
        wanted = shape[len(shape) - len(given) + axis]
        if not B.is_one(size) and not equal(size, wanted):
            message = f"index_put: axis {axis} of the values must be as long as what is indexed, or 1"
            may_be_one = B.bounds_of(b, size)[0] in (None, 0, 1)
            fits = equation(size, wanted)
            add_guard(b, sympy.Or(fits, equation(size, 1)) if may_be_one else fits, message)
            values = B.repeated(b, values, axis, wanted) if may_be_one else B.take(b, values, axis, 0, wanted)
    return B.expand(b, values, shape)


def _fill_where(b: Builder, x: Value, axis: int, mask: Value, values: Value) -> Value:
    """x[.., mask, ..] = one value."""
    shape, covered = B.shape_of(x), B.shape_of(mask)
    mask = B.cast_to(b, mask, "bool")
    mask = B.reshape(b, mask, [1] * axis + [*covered] + [1] * (len(shape) - axis - len(covered)))
    return B.where(b, mask, B.reshape(b, B.cast_to(b, values, B.dtype_of(x)), []), x)


def put(b: Builder, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """x with source at positions of flattened x; negative ones count from the end."""
    shape = B.shape_of(x)
    n, count = B.product(shape), B.product(B.shape_of(index))
    mode = mode_of("sum", B.dtype_of(x)) if accumulate else "set"
    places = wrapped(b, B.reshape(b, index, [count]), n)
    line, values = B.reshape(b, x, [n]), B.reshape(b, source, [count])
    return B.reshape(b, scatter(b, line, places, values, 0, mode), shape)


# torch's overloads: sums by class -------------------------------------------------------------------


def embedding_backward(
    b: Builder, grad: Value, indices: Value, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Value:
    """The sums of grad's rows for every row of an embedding's weight; none for row padding_idx."""
    if scale_grad_by_freq:
        raise UnsupportedOp("embedding_dense_backward: scale_grad_by_freq has no lowering; leave it False")
    width, dtype = B.shape_of(grad)[-1], B.dtype_of(grad)
    n = B.product(B.shape_of(indices))
    rows, index = B.reshape(b, grad, [n, width]), B.reshape(b, indices, [n, 1])
    if padding_idx >= 0:
        skipped = B.pointwise(b, "eq", index, B.full(b, padding_idx, B.dtype_of(index)))
        rows = B.where(b, skipped, B.full(b, 0, dtype), rows)
    return scatter(b, _ones(b, 0, dtype, 2), index, rows, 0, "sum", (num_weights, width))


def _above(b: Builder, index: Value, least: int) -> DimExpr:
    """Return a size above all of `index`, at least `least`; it depends on the data."""
    line = B.reshape(b, index, [B.product(B.shape_of(index))])
    top = B.cast_to(b, B.reduce(b, "reduce_max", line, [0], False), "i64")
    return B.size_of(b, B.pointwise(b, "maximum", B.pointwise(b, "add", top, 1), least))


def bincount(b: Builder, index: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """The count of each number from 0 up in `index`, or the sum of its weights."""
    one = _ones(b, 1, "i64", 1)
    if weights is not None:
        index, weights = B.agreeing(b, "bincount", [index, weights])
        one = weights if B.dtype_of(weights) == "f32" else B.cast_to(b, weights, "f64")
    length = _above(b, index, minlength)
    return scatter(b, _ones(b, 0, B.dtype_of(one), 1), index, one, 0, "sum", (length,))


def one_hot(b: Builder, index: Value, num_classes: Any = -1) -> Value:
    """1 at the index, 0 elsewhere, along a new last axis."""
    if num_classes == -1:
        raise UnsupportedOp("one_hot: num_classes must be given; -1 makes a size that depends on the data")
    shape = B.shape_of(index)
    n = B.product(shape)
    hot = scatter(
        b,
        _ones(b, 0, "i64", 2),
        B.reshape(b, index, [n, 1]),
        _ones(b, 1, "i64", 2),
        1,
        "set",
        (n, num_classes),
    )
    return B.reshape(b, hot, [*shape, num_classes])


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.as_strided_scatter.default",), as_strided_scatter),
    Composite(("aten.scatter.src", "aten.scatter.reduce"), scatter_src),
    Composite(("aten.scatter.value", "aten.scatter.value_reduce"), scatter_value),
    Composite(("aten.scatter_add.default",), scatter_add),
    Composite(("aten.scatter_reduce.two",), scatter_reduce),
    Composite(("aten.index_add.default",), index_add),
    Composite(("aten.index_copy.default",), index_copy),
    Composite(("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"), index_fill),
    Composite(("aten.index_reduce.default",), index_reduce),
    Composite(
        ("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default"),
        index_put,
    ),
    Composite(("aten.put.default",), put),
    Composite(("aten.embedding_dense_backward.default",), embedding_backward),
    Composite(("aten.one_hot.default",), one_hot),
    Composite(("aten.bincount.default",), bincount),
)
