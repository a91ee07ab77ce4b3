"""Views: reshape, permute, expand, slice, and torch's many names for them. No data moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, format_dim, product, simplify
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.ranges import always_at_most
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_axis, check_same_size, show, tensors

# The operators ------------------------------------------------------------------------------------


def _infer_reshape(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("reshape", types, 1)
    check_same_size("reshape", x.shape, attrs["shape"])
    return (TensorType(x.dtype, tuple(attrs["shape"])),)


def _infer_permute(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("permute", types, 1)
    axes = tuple(attrs["axes"])
    if sorted(axes) != list(range(x.rank)):
        raise ShapeError(f"permute: axes are {list(axes)}; they must be 0 to {x.rank - 1} in some order")
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in axes)),)


def _infer_expand(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("expand", types, 1)
    shape = tuple(attrs["shape"])
    tail = shape[len(shape) - x.rank :]
    if len(shape) < x.rank or not all(
        B.is_one(old) or equal(old, new) for old, new in zip(x.shape, tail, strict=True)
    ):
        raise ShapeError(
            f"expand: {show(x.shape)} does not expand to {show(shape)}; only sizes of 1 can grow"
        )
    return (TensorType(x.dtype, shape),)


def _infer_slice(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("slice", types, 1)
    axis, start, length, step = (attrs[name] for name in ("axis", "start", "length", "step"))
    check_axis("slice", axis, x.rank)
    if not isinstance(step, int) or step == 0:
        raise ShapeError(f"slice: the step is {step}; it must be an integer other than 0")
    size = x.shape[axis]
    if all(isinstance(d, int) for d in (size, start, length)) and not (
        length >= 0 and (not length or all(0 <= d < size for d in (start, start + (length - 1) * step)))
    ):
        raise ShapeError(
            f"slice: positions {start} + {step} * (0 to {length - 1}) are outside of an axis of size {size}"
        )
    return (TensorType(x.dtype, (*x.shape[:axis], length, *x.shape[axis + 1 :])),)


def _slice(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    start, length, step = attrs["start"], attrs["length"], attrs["step"]
    size = x.shape[attrs["axis"]]
    if length and not all(0 <= d < size for d in (start, start + (length - 1) * step)):
        raise ShapeError(f"slice: {length} positions from {start} are outside of an axis of size {size}")
    end = start + length * step
    chosen = [slice(None)] * x.ndim
    chosen[attrs["axis"]] = slice(start, end if end >= 0 else None, step) if length else slice(0)
    return x[tuple(chosen)]


def _example(x: str, **attrs: Any) -> Sample:
    return Sample((x,), attrs)


_S0, _S1 = sympy.symbols("s0 s1", integer=True, nonnegative=True)
OPS: tuple[Op, ...] = (
    Op(
        "reshape",
        "view",
        "reshape(Tensor x; shape) -> Tensor",
        "The elements of x in row-major order under another shape.",
        _infer_reshape,
        lambda args, attrs: args[0].reshape(attrs["shape"]),
        samples=(
            _example("f32[2, s0]", shape=(2 * _S0,)),
            _example("f32[4, s0]", shape=(2, 2, _S0)),
            _example("f32[]", shape=(1, 1)),
            _example("f32[0, s0]", shape=(_S0, 0)),
            _example("i64[s0, 1, 3]", shape=(_S0, 3)),
        ),
        errors=(
            (
                _example("f32[2, 3]", shape=(7,)),
                "reshape: [2, 3] has 6 elements and [7] has 7; they must be as many",
            ),
        ),
    ),
    Op(
        "permute",
        "view",
        "permute(Tensor x; axes) -> Tensor",
        "x with its axes in another order.",
        _infer_permute,
        lambda args, attrs: np.transpose(args[0], attrs["axes"]),
        samples=(
            _example("f32[2, s0, 3]", axes=(2, 0, 1)),
            _example("f32[0, s0]", axes=(1, 0)),
            _example("f32[]", axes=()),
            _example("f32[1, s0]", axes=(1, 0)),
        ),
        errors=(
            (
                _example("f32[2, 3]", axes=(0, 0)),
                "permute: axes are [0, 0]; they must be 0 to 1 in some order",
            ),
        ),
    ),
    Op(
        "expand",
        "view",
        "expand(Tensor x; shape) -> Tensor",
        "x repeated along axes of size 1 and new leading axes (NumPy's rule).",
        _infer_expand,
        lambda args, attrs: np.broadcast_to(args[0], attrs["shape"]),
        samples=(
            _example("f32[1, s0]", shape=(_S1, _S0)),
            _example("f32[]", shape=(_S0, 2)),
            _example("f32[1]", shape=(0,)),
            _example("f32[s0, 1]", shape=(3, _S0, 4)),
        ),
        errors=(
            (_example("f32[2]", shape=(3,)), "expand: [2] does not expand to [3]; only sizes of 1 can grow"),
        ),
    ),
    Op(
        "slice",
        "view",
        "slice(Tensor x; axis, start, length, step) -> Tensor",
        "Positions start, start + step, ... (`length` of them) of one axis, all in bounds; no step of 0.",
        _infer_slice,
        _slice,
        samples=(
            _example("f32[2, s0]", axis=1, start=1, length=_S0 - 1, step=1),
            _example("f32[9]", axis=0, start=1, length=4, step=2),
            _example("f32[2, s0]", axis=1, start=_S0 - 1, length=_S0, step=-1),
            _example("f32[9]", axis=0, start=7, length=3, step=-3),
            _example("f32[3, s0]", axis=0, start=3, length=0, step=1),
            _example("f32[1, s0]", axis=0, start=0, length=1, step=1),
        ),
        errors=(
            (
                _example("f32[2, 3]", axis=2, start=0, length=1, step=1),
                "slice: axis is 2; a tensor of rank 2 has axes 0 to 1",
            ),
            (
                _example("f32[3]", axis=0, start=2, length=2, step=1),
                "slice: positions 2 + 1 * (0 to 1) are outside of an axis of size 3",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def reshape(b: Builder, x: Value, shape: Sequence[DimExpr]) -> Value:
    """x in `shape`, one size of which may be -1."""
    return B.reshape(b, x, shape)


def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """x with its axes in the order `dims`."""
    return B.permute(b, x, [B.axis_of("permute", dim, len(B.shape_of(x))) for dim in dims])


def transpose(b: Builder, x: Value, dim0: int, dim1: int) -> Value:
    """x with two axes exchanged."""
    rank = len(B.shape_of(x))
    if rank == 0:
        return x
    axes = list(range(rank))
    i, j = B.axis_of("transpose", dim0, rank), B.axis_of("transpose", dim1, rank)
    axes[i], axes[j] = axes[j], axes[i]
    return B.permute(b, x, axes)


def t(b: Builder, x: Value) -> Value:
    """x with its axes in reverse order: of a matrix, its transpose."""
    return B.permute(b, x, range(len(B.shape_of(x)))[::-1])


def flatten(b: Builder, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """x with the axes start_dim .. end_dim merged."""
    shape = B.shape_of(x)
    if not shape:
        return B.reshape(b, x, [1])
    start, end = B.axis_of("flatten", start_dim, len(shape)), B.axis_of("flatten", end_dim, len(shape))
    return B.reshape(b, x, [*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :]])


def unflatten(b: Builder, x: Value, dim: int, sizes: Sequence[DimExpr]) -> Value:
    """x with one axis split into `sizes`, one of which may be -1."""
    shape = B.shape_of(x)
    axis = B.axis_of("unflatten", dim, len(shape))
    known = product(size for size in sizes if not equal(size, -1))
    parts = [B.divide(shape[axis], known) if equal(size, -1) else size for size in sizes]
    return B.reshape(b, x, [*shape[:axis], *parts, *shape[axis + 1 :]])


def unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    """x with a new axis of size 1."""
    return B.add_axis(b, x, B.axis_of("unsqueeze", dim, len(B.shape_of(x)) + 1))


def squeeze(b: Builder, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    """x without those of the named axes (all for None) whose size is 1; sizes that calls tell must be
    others, but 1 where they are at most that."""
    shape = B.shape_of(x)
    named = range(len(shape)) if dim is None else B.axes_of("squeeze", dim, len(shape)) if dim != [] else []
    for axis in named:
        size = shape[axis]
        if isinstance(size, int) or always_at_most(2, size, b.graph.symbols):
            continue
        what = f"squeeze: axis {axis}, of size {format_dim(size)}"
        if B.bounds_of(b, size)[1] == 1:
            x = B.of_size(b, what, x, axis, 1)
        else:
            advice = f"where the result would lose it: give it min=2, or drop it by select({axis}, 0)"
            add_guard(b, sympy.Ne(size, 1), f"{what}, must not be 1 in a call, {advice}")
    shape = B.shape_of(x)
    return B.reshape(
        b, x, [size for axis, size in enumerate(shape) if axis not in named or not B.is_one(size)]
    )


def expand(b: Builder, x: Value, sizes: Sequence[DimExpr], *, implicit: bool = False) -> Value:
    """x repeated to `sizes`; -1 keeps an axis."""
    old = B.shape_of(x)
    first = len(sizes) - len(old)
    return B.expand(
        b, x, [old[i - first] if i >= first and equal(size, -1) else size for i, size in enumerate(sizes)]
    )


def view_as(b: Builder, x: Value, other: Value) -> Value:
    """x in the other's shape, of as many elements."""
    return B.reshape(b, x, B.shape_of(other))


def expand_as(b: Builder, x: Value, other: Value) -> Value:
    """x repeated to the other's shape."""
    return B.expand(b, x, B.shape_of(other))


def repeat(b: Builder, x: Value, repeats: Sequence[DimExpr]) -> Value:
    """x laid side by side `repeats` times along each axis (new axes first)."""
    old = (1,) * (len(repeats) - len(B.shape_of(x))) + B.shape_of(x)
    x = B.reshape(b, x, [size for pair in old for size in (1, pair)])
    x = B.expand(b, x, [size for pair in zip(repeats, old, strict=True) for size in pair])
    return B.reshape(b, x, [product(pair) for pair in zip(repeats, old, strict=True)])


def repeat_interleave(b: Builder, x: Value, repeats: DimExpr, dim: int | None = None, **_: Any) -> Value:
    """x with every position of an axis (of the flattened x for None) repeated in place."""
    if dim is None:
        x, dim = flatten(b, x), 0
    shape = B.shape_of(x)
    axis = B.axis_of("repeat_interleave", dim, len(shape))
    x = B.expand(b, B.add_axis(b, x, axis + 1), [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return B.reshape(b, x, [*shape[:axis], product((shape[axis], repeats)), *shape[axis + 1 :]])


def select(b: Builder, x: Value, dim: int, index: DimExpr) -> Value:
    """One position of an axis, which goes away."""
    shape = B.shape_of(x)
    axis = B.axis_of("select", dim, len(shape))
    return B.drop_axis(b, B.take(b, x, axis, position_of(b, "select", shape[axis], index), 1), axis)


def position_of(b: Builder, op: str, size: DimExpr, index: DimExpr) -> DimExpr:
    """Return an index into an axis of `size` counted from the front."""
    if isinstance(index, int) and isinstance(size, int) and not -size <= index < size:
        raise ShapeError(f"{op}: index is {index}; an axis of size {size} takes -{size} to {size - 1}")
    low, _ = B.bounds_of(b, index)
    if low is None or (low < 0 and not isinstance(index, int)):
        raise UnsupportedOp(
            f"{op}: it is not known whether index {format_dim(index)} is negative; use a size that cannot be"
        )
    return index if low >= 0 else simplify(size + index)


def narrow(b: Builder, x: Value, dim: int, start: DimExpr, length: DimExpr) -> Value:
    """`length` positions of an axis from `start`."""
    return slice_(b, x, dim, start, start + length)


def slice_(
    b: Builder,
    x: Value,
    dim: int = 0,
    start: DimExpr | None = None,
    end: DimExpr | None = None,
    step: int = 1,
) -> Value:
    """Python's x[start:end:step] of one axis: negative positions count from the end, all are limited to the
    axis."""
    axis = B.axis_of("slice", dim, len(B.shape_of(x)))
    first, length = slice_bounds(b, B.shape_of(x)[axis], start, end, step)
    return B.take(b, x, axis, first, length, step)


def slice_bounds(
    b: Builder, size: DimExpr, start: DimExpr | None, end: DimExpr | None, step: int
) -> tuple[DimExpr, DimExpr]:
    """Return the first position and the number of positions of start:end:step in an axis of `size`."""
    first = 0 if start is None else _position(b, start, size)
    last = size if end is None else _position(b, end, size)
    length: DimExpr = simplify(last - first)
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
        raise UnsupportedOp(
            f"slice: it is not known whether {format_dim(position)} is negative; use a size that cannot be"
        )
    return (
        position
        if always_at_most(position, size, b.graph.symbols)
        else _limited(b, sympy.Min, position, size)
    )


def _limited(b: Builder, function: Any, x: DimExpr, y: DimExpr) -> DimExpr:
    """Return Min or Max of x and y, one of them where the contract tells which."""
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
    """x cut along an axis into at most `chunks` parts of equal size but for the last."""
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


def copy(b: Builder, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """src in x's shape and dtype."""
    return B.expand(b, B.cast_to(b, src, B.dtype_of(x)), B.shape_of(x))


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
    if not shape:
        return B.reshape(b, x, [1])
    axis = B.axis_of("unfold", dimension, len(shape))
    count = at_least(b, simplify(B.divide(shape[axis] - size, step) + 1), 0)
    return B.windows(b, x, axis, size, step, count)


def strided_places(b: Builder, size: Sequence[DimExpr], stride: Sequence[DimExpr], offset: Any) -> Value:
    """Return the places in memory of a tensor of those strides."""
    places = B.full(b, 0 if offset is None else offset, "i64", tuple(size))
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        if not B.is_one(length):
            place = B.pointwise(b, "mul", B.iota(b, length, axis, len(size)), step)
            places = B.pointwise(b, "add", places, place)
    return B.expand(b, places, size)


def as_strided(
    b: Builder, x: Value, size: Sequence[DimExpr], stride: Sequence[DimExpr], storage_offset: Any = None
) -> Value:
    """The elements of x, which lies in memory row by row, at places of its own strides."""
    line = B.reshape(b, x, [product(B.shape_of(x))])
    places = B.reshape(b, strided_places(b, size, stride, storage_offset), [product(size)])
    return B.reshape(b, b.one("gather", line, places, axis=0), size)


def resize(b: Builder, x: Value, size: Sequence[DimExpr], **_: Any) -> Value:
    """The first elements of x in another shape; the contents of what is beyond are open."""
    before, after = product(B.shape_of(x)), product(size)
    line = B.reshape(b, x, [before])
    if not always_at_most(after, before, b.graph.symbols):
        line = B.pad(b, line, [(0, at_least(b, simplify(after - before), 0))])
    return B.reshape(b, B.take(b, line, 0, 0, after), size)


def same(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    """x itself: values are immutable here and memory formats are the compiler's business."""
    return x


# torch's prims ------------------------------------------------------------------------------------


def broadcast_in_dim(b: Builder, x: Value, shape: Sequence[DimExpr], axes: Sequence[int]) -> Value:
    """x whose axes become those named of `shape`, repeated along all others."""
    sizes = dict(zip(axes, B.shape_of(x), strict=True))
    return B.expand(b, B.reshape(b, x, [sizes.get(i, 1) for i in range(len(shape))]), shape)


def collapse(b: Builder, x: Value, start: int, end: int) -> Value:
    """x with its axes from `start` to `end`, both included, as one."""
    shape = B.shape_of(x)
    return B.reshape(b, x, [*shape[:start], B.product(shape[start : end + 1]), *shape[end + 1 :]])


def split_dim(b: Builder, x: Value, dim: int, outer: DimExpr) -> Value:
    """x with an axis as two, the first of `outer` positions."""
    shape = B.shape_of(x)
    return B.reshape(b, x, [*shape[:dim], outer, B.divide(shape[dim], outer), *shape[dim + 1 :]])


COMPOSITES: tuple[Composite, ...] = (
    Composite(
        (
            "aten.view.default",
            "aten._unsafe_view.default",
            "aten.reshape.default",
            "aten.view_copy.default",
            "prims.reshape.default",
        ),
        reshape,
    ),
    Composite(("aten.permute.default", "aten.permute_copy.default", "prims.transpose.default"), permute),
    Composite(("prims.broadcast_in_dim.default",), broadcast_in_dim),
    Composite(("prims.collapse_view.default", "prims.collapse.default"), collapse),
    Composite(("prims.split_dim.default",), split_dim),
    Composite(("aten.transpose.int", "aten.swapaxes.default"), transpose),
    Composite(("aten.t.default", "aten.numpy_T.default"), t),
    Composite(("aten.mT.default",), lambda b, x: transpose(b, x, -1, -2), "the last two axes exchanged"),
    Composite(("aten.flatten.using_ints",), flatten),
    Composite(("aten.unflatten.int",), unflatten),
    Composite(("aten.unsqueeze.default",), unsqueeze),
    Composite(
        ("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "prims.squeeze.default"), squeeze
    ),
    Composite(("aten.expand.default",), expand),
    Composite(("aten.view_as.default", "aten.reshape_as.default"), view_as),
    Composite(("aten.expand_as.default",), expand_as),
    Composite(("aten.repeat.default",), repeat),
    Composite(("aten.repeat_interleave.self_int",), repeat_interleave),
    Composite(("aten.select.int",), select),
    Composite(("aten.slice.Tensor",), slice_),
    Composite(("aten.narrow.default", "aten.narrow_copy.default"), narrow),
    Composite(("aten.split.Tensor", "aten.split_with_sizes.default", "aten.split.sizes"), split),
    Composite(("aten.chunk.default",), chunk),
    Composite(("aten.unbind.int", "aten.unbind_copy.int"), unbind),
    Composite(("aten.flip.default", "prims.rev.default"), flip),
    Composite(("aten.copy.default",), copy),
    Composite(("aten.diagonal.default",), diagonal),
    Composite(("aten.unfold.default",), unfold),
    Composite(("aten.as_strided.default", "aten.as_strided_copy.default"), as_strided),
    Composite(("aten.resize.default",), resize),
    Composite(
        (
            "aten.alias.default",
            "aten.detach.default",
            "aten.clone.default",
            "aten.contiguous.default",
            "aten.lift_fresh.default",
            "aten.lift_fresh_copy.default",
            "aten.resolve_conj.default",
            "aten.resolve_neg.default",
            "prims.view_of.default",
            "prims.clone.default",
        ),
        same,
    ),
)
