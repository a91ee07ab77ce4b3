"""Parts of tensors: positions, slices, splits, diagonals, windows and strided views, by torch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from ..ir.dims import DimExpr, format_dim, product, simplify
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.ranges import always_at_most
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op

OPS: tuple[Op, ...] = ()


def select(b: Builder, x: Value, dim: int, index: DimExpr) -> Value:
    """One position of an axis, which is removed."""
    shape = B.shape_of(x)
    axis = B.axis_of("select", dim, len(shape))
    return B.drop_axis(b, B.take(b, x, axis, position_of(b, "select", shape[axis], index), 1), axis)


def position_of(b: Builder, op: str, size: DimExpr, index: DimExpr) -> DimExpr:
    """Return an index into an axis of `size` counted from the front."""
    if isinstance(index, int) and isinstance(size, int) and not -size <= index < size:
        raise ShapeError(f"{op}: index is {index}; an axis of size {size} takes -{size} to {size - 1}")
    inside = sympy.And(sympy.Ge(index, -size), sympy.Lt(index, size))
    text, low, high = (format_dim(simplify(x)) for x in (index, -size, size))
    add_guard(b, inside, f"{op}: index {text} must be at least {low} and less than {high}")
    return _from_front(b, index, size)


def _from_front(b: Builder, position: DimExpr, size: DimExpr) -> DimExpr:
    """Return a position counted from the front; negative ones count from the end."""
    low, high = B.bounds_of(b, position)
    if low is not None and low >= 0:
        return position
    if high is not None and high < 0:
        return simplify(size + position)
    is_negative = -sympy.Max(sympy.Min(position, 0), -1)  # 1 or 0
    return simplify(position + is_negative * size)


def narrow(b: Builder, x: Value, dim: int, start: DimExpr, length: DimExpr) -> Value:
    """`length` positions of an axis from `start`."""
    axis = B.axis_of("narrow", dim, len(B.shape_of(x)))
    size = B.shape_of(x)[axis]
    first = _from_front(b, start, size)
    inside = sympy.And(sympy.Ge(first, 0), sympy.Le(first + length, size))
    texts = tuple(format_dim(simplify(each)) for each in (length, start, size))
    add_guard(b, inside, "narrow: {} positions from {} must lie within an axis of size {}".format(*texts))
    return B.take(b, x, axis, first, length)


def slice_(
    b: Builder,
    x: Value,
    dim: int = 0,
    start: DimExpr | None = None,
    end: DimExpr | None = None,
    step: DimExpr = 1,
) -> Value:
    """Python's x[start:end:step] of one axis: negative positions count from the end, all are clamped to the
    axis."""
    axis = B.axis_of("slice", dim, len(B.shape_of(x)))
    size = B.shape_of(x)[axis]
    if isinstance(step, int):
        first, length = slice_bounds(b, size, start, end, step)
        return B.take(b, x, axis, first, length, step)
    add_guard(b, sympy.Ge(step, 1), f"slice: the step, {format_dim(step)}, must be above 0")
    first, length = slice_bounds(b, size, start, end, 1)
    count = B.divide(simplify(length + step - 1), step)
    places = B.pointwise(b, "add", B.pointwise(b, "mul", B.iota(b, count), step), first)
    return b.one("gather", x, places, axis=axis)


def slice_bounds(
    b: Builder, size: DimExpr, start: DimExpr | None, end: DimExpr | None, step: int
) -> tuple[DimExpr, DimExpr]:
    """Return the first position and the number of positions of start:end:step in an axis of `size`."""
    first = 0 if start is None else _position(b, start, size)
    last = size if end is None else _position(b, end, size)
    # A start clamped to 0, such as size - 1: at most one position, which the difference hides.
    starts = first.args if isinstance(first, sympy.Max) else (first,)
    length: DimExpr = simplify(sympy.Min(*(last - each for each in starts)))
    low, _ = B.bounds_of(b, length)
    if low is None or low < 0:
        length = _limited(b, sympy.Max, 0, length)
    return first, length if step == 1 else B.divide(length + step - 1, step)


def _position(b: Builder, position: DimExpr, size: DimExpr) -> DimExpr:
    """Return a slice's bound as a position in 0 .. size."""
    if isinstance(position, int | sympy.Integer) and int(position) >= 2**62:
        return size
    low, high = B.bounds_of(b, position)
    if high is not None and high < 0:
        position = _limited(b, sympy.Max, 0, simplify(size + position))
    elif low is None or low < 0:
        # size - 1 and size - 2 are negative if they are before the front.
        is_front = simplify(size - position) in (1, 2)
        position = sympy.Max(position if is_front else _from_front(b, position, size), 0)
    return (
        position
        if always_at_most(position, size, b.graph.symbols)
        else _limited(b, sympy.Min, position, size)
    )


def _limited(b: Builder, function: Any, x: DimExpr, y: DimExpr) -> DimExpr:
    """Return Min or Max of x and y, or the one that the contract proves."""
    if always_at_most(x, y, b.graph.symbols):
        return x if function is sympy.Min else y
    if always_at_most(y, x, b.graph.symbols):
        return y if function is sympy.Min else x
    return simplify(function(x, y))


def split(b: Builder, x: Value, sizes: DimExpr | Sequence[DimExpr], dim: int = 0) -> tuple[Value, ...]:
    """x cut along an axis into parts of `sizes`, or of one size (the last may be smaller)."""
    axis = B.axis_of("split", dim, len(B.shape_of(x)))
    if not isinstance(sizes, list | tuple):
        sizes = _parts(b, "split", B.shape_of(x)[axis], sizes)
    else:
        x = B.of_size(b, "split_with_sizes", x, axis, simplify(sum(sizes)))
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(B.take(b, x, axis, start, size) for start, size in zip(starts, sizes, strict=True))


def _parts(b: Builder, op: str, total: DimExpr, size: DimExpr) -> list[DimExpr]:
    if size == 0:
        return [0]
    count = B.divide(total + size - 1, size)
    if not isinstance(count, int) and b.n_results is not None:
        message = f"{op}: the model was traced with {b.n_results} parts, which these sizes do not give"
        add_guard(b, sympy.Eq(sympy.sympify(count), b.n_results), message)
        count = b.n_results
    if not isinstance(count, int):
        raise UnsupportedOp(
            f"{op}: cutting {format_dim(total)} into parts of {format_dim(size)} gives a number of "
            "parts that depends on the input"
        )
    count = max(count, 1)
    return [size] * (count - 1) + [simplify(total - size * (count - 1))]


def chunk(b: Builder, x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """x cut along an axis into at most `chunks` parts of equal size except the last."""
    axis = B.axis_of("chunk", dim, len(B.shape_of(x)))
    return split(b, x, B.divide(B.shape_of(x)[axis] + chunks - 1, chunks), axis)


def unbind(b: Builder, x: Value, dim: int = 0) -> tuple[Value, ...]:
    """Every position of an axis, each without that axis."""
    axis = B.axis_of("unbind", dim, len(B.shape_of(x)))
    size = B.shape_of(x)[axis]
    if not isinstance(size, int):
        raise UnsupportedOp(f"unbind: the axis has size {format_dim(size)}; it must be constant")
    return tuple(B.drop_axis(b, B.take(b, x, axis, i, 1), axis) for i in range(size))


def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """x with the order along the named axes reversed."""
    return B.flip(b, x, B.axes_of("flip", dims, len(B.shape_of(x))) if dims else [])


def diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The elements x[.., i, i + offset, ..] of two axes, as the last axis."""
    shape = B.shape_of(x)
    rows, columns = (B.axis_of("diagonal", dim, len(shape)) for dim in (dim1, dim2))
    if rows == columns:
        raise ShapeError(f"diagonal: dim1 and dim2 are both {dim1}; they must be two axes")
    x = B.permute(b, x, [*(i for i in range(len(shape)) if i not in (rows, columns)), rows, columns])
    below, above = max(-offset, 0), max(offset, 0)
    length = sympy.Min(simplify(shape[rows] - below), simplify(shape[columns] - above))
    return B.diagonal(b, x, below, above, at_least(b, simplify(length), 0))


def at_least(b: Builder, size: DimExpr, least: int) -> DimExpr:
    """Return max(size, least)."""
    return _limited(b, sympy.Max, least, size)


def unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    """The windows of `size` positions, `step` apart, along an axis; a window's positions come last."""
    shape = B.shape_of(x)
    if not shape and size <= 1:
        return B.take(b, B.reshape(b, x, [1]), 0, 0, size)
    shape = shape or (1,)
    axis = B.axis_of("unfold", dimension, len(shape))
    message = f"unfold: a window of {format_dim(size)} does not fit an axis of size {format_dim(shape[axis])}"
    add_guard(b, sympy.Ge(sympy.sympify(shape[axis]), size), message)
    count = at_least(b, simplify(B.divide(shape[axis] - size, step) + 1), 0)
    return B.windows(b, x, axis, size, step, count)


def strided_places(b: Builder, size: Sequence[DimExpr], stride: Sequence[DimExpr], offset: Any) -> Value:
    """Return the memory positions of a tensor with those strides."""
    places = B.full(b, 0 if offset is None else offset, "i64", tuple(size))
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        if not B.is_one(length):
            place = B.pointwise(b, "mul", B.iota(b, length, axis, len(size)), step)
            places = B.pointwise(b, "add", places, place)
    return B.expand(b, places, size)


def as_strided(
    b: Builder, x: Value, size: Sequence[DimExpr], stride: Sequence[DimExpr], storage_offset: Any = None
) -> Value:
    """The elements of row-major x at positions of other strides."""
    line = B.reshape(b, x, [product(B.shape_of(x))])
    places = B.reshape(b, strided_places(b, size, stride, storage_offset), [product(size)])
    return B.reshape(b, b.one("gather", line, places, axis=0), size)


def resize(b: Builder, x: Value, size: Sequence[DimExpr], **_: Any) -> Value:
    """The first elements of x in another shape; further contents are undefined."""
    before, after = product(B.shape_of(x)), product(size)
    line = B.reshape(b, x, [before])
    if not always_at_most(after, before, b.graph.symbols):
        line = B.pad(b, line, [(0, at_least(b, simplify(after - before), 0))])
    return B.reshape(b, B.take(b, line, 0, 0, after), size)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.select.int",), select),
    Composite(("aten.slice.Tensor",), slice_),
    Composite(("aten.narrow.default", "aten.narrow_copy.default"), narrow),
    Composite(
        (
            "aten.split.Tensor",
            "aten.split_with_sizes.default",
            "aten.split.sizes",
            "aten.unsafe_split.Tensor",
            "aten.unsafe_split_with_sizes.default",
        ),
        split,
    ),
    Composite(("aten.chunk.default",), chunk),
    Composite(("aten.unbind.int", "aten.unbind_copy.int"), unbind),
    Composite(("aten.flip.default", "prims.rev.default"), flip),
    Composite(("aten.diagonal.default",), diagonal),
    Composite(("aten.unfold.default",), unfold),
    Composite(("aten.as_strided.default", "aten.as_strided_copy.default"), as_strided),
    Composite(("aten.resize.default",), resize),
)
