"""Laying tensors side by side: `concat`, and torch's operators that put pieces into one output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, format_dim, simplify
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_axis, equal_shapes, same_dtype, show, tensors
from .slices import position_of, slice_bounds

# The operator -------------------------------------------------------------------------------------


def _infer(types: Types, attrs: Attrs) -> Sequence[Type]:
    if not types:
        raise DtypeError("concat: no arguments given; it takes at least 1")
    xs, axis = tensors("concat", types, len(types)), attrs["axis"]
    check_axis("concat", axis, xs[0].rank)
    first = xs[0].shape
    for x in xs[1:]:
        other = x.shape
        if len(other) != len(first) or not equal_shapes(
            first[:axis] + first[axis + 1 :], other[:axis] + other[axis + 1 :]
        ):
            raise ShapeError(
                f"concat: arguments have shapes {show(first)} and {show(other)}; all axes but {axis} must "
                "have the same sizes"
            )
    total = simplify(sum(x.shape[axis] for x in xs))
    return (TensorType(same_dtype("concat", xs), (*first[:axis], total, *first[axis + 1 :])),)


def _example(*args: str, axis: int) -> Sample:
    return Sample(args, {"axis": axis})


OPS: tuple[Op, ...] = (
    Op(
        "concat",
        "concat",
        "concat(Tensor[] xs; axis) -> Tensor",
        "The arguments one after the other along one axis.",
        _infer,
        lambda args, attrs: np.concatenate(args, axis=attrs["axis"]),
        samples=(
            _example("f32[2, s0]", "f32[2, 3]", "f32[2, s1]", axis=1),
            _example("f32[s0, 5]", "f32[0, 5]", "f32[1, 5]", axis=0),
            _example("i64[s0]", axis=0),
            _example("bf16[2, 1, s0]", "bf16[2, s1, s0]", axis=1),
        ),
        errors=(
            (
                _example("f32[2, 3]", "f32[3, 3]", axis=1),
                "concat: arguments have shapes [2, 3] and [3, 3]; all axes but 1 must have the same sizes",
            ),
            (
                _example("f32[2]", "i64[2]", axis=0),
                "concat: arguments have dtypes f32 and i64; cast them to one dtype first",
            ),
            (_example("f32[]", axis=0), "concat: axis is 0; a tensor of rank 0 has axes 0 to -1"),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """The concatenation of tensors along an axis; 1-d tensors of size 0 are ignored (PyTorch's rule)."""
    dtype = B.common_dtype(*tensors)
    kept = [x for x in tensors if not equal_shapes(B.shape_of(x), (0,))] or list(tensors[:1])
    axis = B.axis_of("cat", dim, len(B.shape_of(kept[0])))
    return B.concat(b, [B.cast_to(b, x, dtype) for x in kept], axis)


def stack(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """The tensors along a new axis."""
    shapes = list(map(B.shape_of, tensors))
    if len(set(map(len, shapes))) > 1:
        raise ShapeError(
            f"stack: the tensors are {', '.join(map(show, shapes))}; they must have as many axes"
        )
    axis = B.axis_of("stack", dim, len(B.shape_of(tensors[0])) + 1)
    dtype = B.common_dtype(*tensors)
    return B.concat(b, [B.add_axis(b, B.cast_to(b, x, dtype), axis) for x in tensors], axis)


def constant_pad(b: Builder, x: Value, pad: Sequence[DimExpr], value: Any = 0) -> Value:
    """x with `value` around it, or with its edges cut where an amount is negative: (low, high) of the last
    axis first."""
    rank = len(B.shape_of(x))
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise ShapeError(f"pad: {len(pad)} amounts given; a tensor of rank {rank} takes up to {2 * rank}")
    amounts: list[tuple[DimExpr, DimExpr]] = [(0, 0)] * rank
    for i in range(0, len(pad), 2):
        amounts[rank - 1 - i // 2] = (pad[i], pad[i + 1])
    return B.pad(b, x, amounts, value)


def roll(b: Builder, x: Value, shifts: Any, dims: Any = ()) -> Value:
    """x rotated along axes."""
    shape = B.shape_of(x)
    shifts = list(shifts) if isinstance(shifts, list | tuple) else [shifts]
    dims = list(dims) if isinstance(dims, list | tuple) else [dims]
    if not dims:
        line = B.reshape(b, x, [B.product(shape)])
        return B.reshape(b, roll(b, line, shifts, [0]), shape) if shape else x
    if len(shifts) != len(dims):
        raise ShapeError(f"roll: {len(shifts)} shifts and {len(dims)} dims are given; they must be as many")
    for shift, dim in zip(shifts, dims, strict=True):
        axis = B.axis_of("roll", dim, len(shape))
        x = _rolled(b, x, axis, shift)
    return x


def _rolled(b: Builder, x: Value, axis: int, shift: DimExpr) -> Value:
    size = B.shape_of(x)[axis]
    if equal(size, 0):
        return x
    low, _ = B.bounds_of(b, size)
    divisor = size if low is not None and low > 0 else sympy.Max(size, 1)
    first = simplify(sympy.Mod(sympy.sympify(shift), divisor))
    if low == 0 and not isinstance(size, int):
        first = simplify(sympy.Min(first, size))
    rest = simplify(size - first)
    return B.concat(b, [B.take(b, x, axis, rest, first), B.take(b, x, axis, 0, rest)], axis)


def diff(
    b: Builder, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    """The difference of each element to the previous one along an axis, repeated `n` times. If `n` is 0, it
    is just `x`, as in PyTorch."""
    if n == 0:
        return x
    given = [each for each in (prepend, x, append) if each is not None]
    x = cat(b, given, dim) if len(given) > 1 else x
    axis = B.axis_of("diff", dim, len(B.shape_of(x)))
    op = "xor" if B.dtype_of(x) == "bool" else "sub"
    for _ in range(n):
        size = B.shape_of(x)[axis]
        low, _ = B.bounds_of(b, size)
        length = simplify(size - 1 if low else sympy.Max(size - 1, 0))
        start = simplify(size - length)
        x = B.pointwise(b, op, B.take(b, x, axis, start, length), B.take(b, x, axis, 0, length))
    return x


def slice_scatter(
    b: Builder,
    x: Value,
    src: Value,
    dim: int = 0,
    start: DimExpr | None = None,
    end: DimExpr | None = None,
    step: int = 1,
) -> Value:
    """x with x[start:end:step] of one axis replaced by src."""
    axis = B.axis_of("slice_scatter", dim, len(B.shape_of(x)))
    src = B.cast_to(b, src, B.dtype_of(x))
    first, length = slice_bounds(b, B.shape_of(x)[axis], start, end, step)
    src = _fitting(b, "slice_scatter", x, src, axis, length)
    if step == 1:
        return B.place(b, x, src, axis, first, length)
    return _strided(b, x, src, axis, first, length, step)


def _strided(
    b: Builder, x: Value, src: Value, axis: int, first: DimExpr, length: DimExpr, step: int
) -> Value:
    """x with positions first, first + step, .. replaced: from `first` on it is seen as rows of `step`
    positions, of which the last may be incomplete."""
    shape = B.shape_of(x)
    count, rows = simplify(shape[axis] - first), simplify(length * step)
    rest = B.take(b, x, axis, first, count)
    rest = B.pad(b, rest, [(0, step if i == axis else 0) for i in range(len(shape))])
    behind = B.take(b, rest, axis, rows, simplify(count + step - rows))
    made = B.reshape(b, B.take(b, rest, axis, 0, rows), [*shape[:axis], length, step, *shape[axis + 1 :]])
    made = B.place(b, made, B.add_axis(b, src, axis + 1), axis + 1, 0, 1)
    made = B.reshape(b, made, [*shape[:axis], rows, *shape[axis + 1 :]])
    made = B.take(b, B.concat(b, [made, behind], axis), axis, 0, count)
    return B.concat(b, [B.take(b, x, axis, 0, first), made], axis)


def select_scatter(b: Builder, x: Value, src: Value, dim: int, index: DimExpr) -> Value:
    """x with one position of an axis replaced by src."""
    axis = B.axis_of("select_scatter", dim, len(B.shape_of(x)))
    first = position_of(b, "select_scatter", B.shape_of(x)[axis], index)
    src = B.add_axis(b, B.cast_to(b, src, B.dtype_of(x)), axis)
    return B.place(b, x, _fitting(b, "select_scatter", x, src, axis, 1), axis, first, 1)


def _fitting(b: Builder, op: str, x: Value, src: Value, axis: int, length: DimExpr) -> Value:
    """Return `src`, whose sizes are checked to be those of x, except `length` along an axis."""
    for i, size in enumerate(B.shape_of(x)):
        src = B.of_size(b, op, src, i, length if i == axis else size)
    return src


def diagonal_scatter(
    b: Builder, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """x with the elements x[.., i, i + offset, ..] of two axes replaced by src."""
    shape = B.shape_of(x)
    rank = len(shape)
    rows, columns = (B.axis_of("diagonal_scatter", dim, rank) for dim in (dim1, dim2))
    below = max(-offset, 0)
    src = B.cast_to(b, src, B.dtype_of(x))
    after = simplify(shape[rows] - below - B.shape_of(src)[-1])
    add_guard(b, sympy.Ge(sympy.sympify(after), 0), "diagonal_scatter: src is longer than the diagonal")
    after = after if isinstance(after, int) else simplify(sympy.Max(0, after))
    line = B.pad(b, src, [*[(0, 0)] * (rank - 2), (below, after)])  # an element for each row
    line = B.of_size(b, "diagonal_scatter", line, rank - 2, shape[rows])
    others = [i for i in range(rank) if i not in (rows, columns)]
    placed = B.reshape(b, line, [*(shape[i] for i in others), shape[rows], 1])
    order = [*others, rows, columns]
    placed = B.permute(b, placed, [order.index(i) for i in range(rank)])
    row, column = (B.iota(b, shape[axis], axis, rank) for axis in (rows, columns))
    on = B.pointwise(b, "eq", B.pointwise(b, "add", row, offset), column)
    return B.expand(b, B.where(b, on, placed, x), shape)


def fill_diagonal(b: Builder, x: Value, fill_value: B.Number, wrap: bool = False) -> Value:
    """x with `fill_value` where all indices are equal; `wrap`: again below each square of a tall matrix."""
    shape = B.shape_of(x)
    first, *others = (B.iota(b, size, axis, len(shape)) for axis, size in enumerate(shape))
    if wrap and len(shape) == 2:
        first = B.pointwise(b, "mod", first, simplify(shape[1] + 1))
    filled = B.full(b, fill_value, B.dtype_of(x))
    for other in others:
        filled = B.where(b, B.pointwise(b, "eq", first, other), filled, x)
    return filled


# Padding from the input ---------------------------------------------------------------------------


def _sides(pad: Sequence[DimExpr], rank: int) -> list[tuple[int, DimExpr, DimExpr]]:
    """Return (axis, low, high) for torch's list of amounts, the last axis first."""
    return [(rank - 1 - i, pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]


def reflection_pad(b: Builder, x: Value, padding: Sequence[DimExpr]) -> Value:
    """x reflected at its first and last positions; negative amounts cut positions off."""
    for axis, low, high in _sides(padding, len(B.shape_of(x))):
        size = B.shape_of(x)[axis]
        for amount in (low, high):
            add_guard(
                b,
                sympy.Lt(sympy.sympify(amount), sympy.sympify(size)),
                f"reflection_pad: {format_dim(amount)} positions are added to an axis of size "
                f"{format_dim(size)}; there may be at most one less than it has",
            )
        before, after = (B.positive_part(b, amount) for amount in (low, high))
        ends = ((before, 1), (after, simplify(size - 1 - after)))
        sides = [None if equal(n, 0) else B.flip(b, B.take(b, x, axis, at, n), [axis]) for n, at in ends]
        x = _between(b, sides, B.cut(b, x, axis, low, high), axis)
    return x


def _between(b: Builder, sides: Sequence[Value | None], x: Value, axis: int) -> Value:
    """Return x between the existing ones of the two sides."""
    return B.concat(b, [part for part in (sides[0], x, sides[1]) if part is not None], axis)


def replication_pad(b: Builder, x: Value, padding: Sequence[DimExpr]) -> Value:
    """x with its first and last positions repeated beyond its edges; negative amounts cut positions off."""
    for axis, low, high in _sides(padding, len(B.shape_of(x))):
        size = B.shape_of(x)[axis]
        add_guard(
            b,
            sympy.Ge(sympy.sympify(size), 1),
            f"replication_pad: an axis of size {format_dim(size)} has no edge; it needs at least 1 position",
        )
        ends = ((B.positive_part(b, low), 0), (B.positive_part(b, high), simplify(size - 1)))
        sides = [None if equal(n, 0) else _repeated(b, B.take(b, x, axis, at, 1), axis, n) for n, at in ends]
        x = _between(b, sides, B.cut(b, x, axis, low, high), axis)
    return x


def _repeated(b: Builder, x: Value, axis: int, times: DimExpr) -> Value:
    shape = B.shape_of(x)
    return B.expand(b, x, (*shape[:axis], times, *shape[axis + 1 :]))


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.cat.default", "aten.concat.default"), cat),
    Composite(("aten.stack.default",), stack),
    Composite(("aten.diff.default",), diff),
    Composite(("aten.constant_pad_nd.default",), constant_pad),
    Composite(("aten.roll.default",), roll),
    Composite(("aten.slice_scatter.default",), slice_scatter),
    Composite(("aten.select_scatter.default",), select_scatter),
    Composite(("aten.diagonal_scatter.default",), diagonal_scatter),
    Composite(("aten.fill_diagonal.default",), fill_diagonal),
    Composite(tuple(f"aten.reflection_pad{n}d.default" for n in (1, 2, 3)), reflection_pad),
    Composite(tuple(f"aten.replication_pad{n}d.default" for n in (1, 2, 3)), replication_pad),
)
