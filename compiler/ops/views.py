"""Views: reshape, permute, expand, slice, and torch's many names for the first three. No data moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, format_dim, product
from ..ir.errors import ShapeError
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


def _check_part(begin: Any, n: Any, size: Any) -> None:
    if not 0 <= begin <= size - n:
        raise ShapeError(f"part: {n} elements from {begin} on are not in a tensor of {size}")


def _infer_part(types: Types, attrs: Attrs) -> Sequence[Type]:
    (x,) = tensors("part", types, 1)
    begin, n, size = attrs["begin"], product(attrs["shape"]), product(x.shape)
    if all(isinstance(d, int) for d in (begin, n, size)):
        _check_part(begin, n, size)
    return (TensorType(x.dtype, tuple(attrs["shape"])),)


def _part(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    begin, n = attrs["begin"], product(attrs["shape"])
    _check_part(begin, n, x.size)
    return x.reshape(-1)[begin : begin + n].reshape(attrs["shape"])


def _example(x: str, **attrs: Any) -> Sample:
    return Sample((x,), attrs)


_S0, _S1 = sympy.symbols("s0 s1", integer=True)
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
        "part",
        "value",
        "part(Tensor x; begin, shape) -> Tensor",
        "The elements of x from `begin` on, in row-major order, where they lie, under another shape.",
        _infer_part,
        _part,
        samples=(
            _example("f32[4, s0]", begin=2 * _S0, shape=(_S0,)),
            _example("i64[2, s0]", begin=_S0, shape=(1, _S0)),
            _example("f32[0, s0]", begin=0, shape=(0,)),
        ),
        errors=(
            (
                _example("f32[2, 3]", begin=4, shape=(3,)),
                "part: 3 elements from 4 on are not in a tensor of 6",
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
    x = B.of_size(b, "unflatten", x, axis, product(parts))
    return B.reshape(b, x, [*shape[:axis], *parts, *shape[axis + 1 :]])


def unsqueeze(b: Builder, x: Value, dim: int) -> Value:
    """x with a new axis of size 1."""
    return B.add_axis(b, x, B.axis_of("unsqueeze", dim, len(B.shape_of(x)) + 1))


def squeeze(b: Builder, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    """x without those of the named axes (all for None) whose size is 1; run-time sizes must not be 1, unless
    they are known to be at most 1."""
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
    shape = [old[i - first] if i >= first and equal(size, -1) else size for i, size in enumerate(sizes)]
    for axis, (size, wanted) in enumerate(zip(old, shape[max(first, 0) :], strict=False)):
        if not B.is_one(size) and not B.is_known(size - wanted):
            x = _of_size_or_repeated(b, x, axis, wanted)
    return B.expand(b, x, shape)


def _of_size_or_repeated(b: Builder, x: Value, axis: int, size: DimExpr) -> Value:
    """x with the run-time `size` along an axis; one of at most 1 is 1, in TorchScript any may be, and is
    repeated."""
    found = B.shape_of(x)[axis]
    if B.bounds_of(b, found)[1] == 1:
        return B.of_size(b, "expand", x, axis, 1)
    if b.assume is None or B.bounds_of(b, found)[0] not in (None, 0, 1):
        return B.of_size(b, "expand", x, axis, size)
    message = f"expand: size {format_dim(found)} must be 1 or {format_dim(size)}"
    is_one, is_equal = (sympy.Eq(sympy.sympify(found), sympy.sympify(other)) for other in (1, size))
    add_guard(b, sympy.Or(is_one, is_equal), message)
    return B.repeated(b, x, axis, size)


def view_as(b: Builder, x: Value, other: Value) -> Value:
    """x in the other's shape, of as many elements."""
    return B.reshape(b, x, B.shape_of(other))


def expand_as(b: Builder, x: Value, other: Value) -> Value:
    """x repeated to the other's shape."""
    return expand(b, x, B.shape_of(other))


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


def copy(b: Builder, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """src in x's shape and dtype."""
    return expand(b, B.cast_to(b, src, B.dtype_of(x)), B.shape_of(x))


def same(b: Builder, x: Value, *_: Any, **__: Any) -> Value:
    """x itself: values are immutable here and the compiler chooses memory formats."""
    return x


# torch's prims ------------------------------------------------------------------------------------


def broadcast_in_dim(b: Builder, x: Value, shape: Sequence[DimExpr], axes: Sequence[int]) -> Value:
    """x whose axes become those named of `shape`, repeated along all others."""
    sizes = dict(zip(axes, B.shape_of(x), strict=True))
    return expand(b, B.reshape(b, x, [sizes.get(i, 1) for i in range(len(shape))]), shape)


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
    Composite(("aten.copy.default",), copy),
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
