"""Gradients of means over windows and of repeated edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from ..ir.dims import DimExpr, equal, simplify
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite, Op
from .pool import (
    MAX_TAPS,
    Ints,
    Window,
    adaptive_axis,
    adaptive_sizes,
    along_axis,
    average_divisor,
    each_axis,
    line_of,
    windows_of,
)
from .scatter import scatter

OPS: tuple[Op, ...] = ()

# Windows ------------------------------------------------------------------------------------------


def _avg_pool_backward(n: int) -> Composite:
    def expand(
        b: Builder,
        grad: Value,
        x: Value,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        op, kernel = f"avg_pool{n}d_backward", each_axis(kernel, n)
        windows = windows_of(b, op, x, kernel, stride, padding, 1, ceil_mode)

        def compute(grad: Value) -> Value:
            count = average_divisor(
                b, x, windows, ceil_mode, count_include_pad, divisor_override, B.dtype_of(grad)
            )
            share = B.pointwise(b, "div", grad, count, dtype=B.dtype_of(grad))
            return reduce(lambda v, each: _of_windows(b, v, each, B.shape_of(x)[each.axis]), windows, share)

        return B.in_f32(b, compute, grad)

    doc = f"Every element of the last {n} axes gets its share of the gradients of the windows that it is in."
    expand.__doc__ = doc
    return Composite((f"aten.avg_pool{n}d_backward.default",), expand)


def _of_windows(b: Builder, grad: Value, window: Window, length: DimExpr) -> Value:
    """Sum along an axis, for each of `length` positions, the values of the windows that contain it, from the
    last one backwards."""
    n_at_most = -(-window.size // window.stride)
    place = line_of(b, length, 1, window.before)  # in the padded axis
    last = B.pointwise(b, "floordiv", place, window.stride)
    highest = B.full(b, simplify(window.count - 1), "i64")

    def values(steps_back: B.Tensorlike, place: Value, last: Value) -> Value:
        number = B.pointwise(b, "sub", last, steps_back)
        end = B.pointwise(b, "add", B.pointwise(b, "mul", number, window.stride), window.size)
        inside = B.pointwise(b, "and", B.pointwise(b, "ge", number, 0), B.pointwise(b, "lt", place, end))
        inside = B.pointwise(b, "and", inside, B.pointwise(b, "le", number, highest))
        safe = B.pointwise(b, "maximum", B.pointwise(b, "minimum", number, highest), 0)
        found = b.one("gather", grad, safe, axis=window.axis)
        behind = len(B.shape_of(grad)) - window.axis - 1
        inside = B.reshape(b, inside, [*B.shape_of(inside), *[1] * behind])
        return B.where(b, inside, found, B.full(b, 0, B.dtype_of(grad)))

    if n_at_most <= MAX_TAPS:
        parts = [values(i, place, last) for i in reversed(range(n_at_most))]
        return reduce(lambda a, c: b.one("add", a, c), parts)
    rows = (B.add_axis(b, line, 1) for line in (place, last))
    return B.reduce(b, "reduce_sum", values(line_of(b, n_at_most), *rows), [window.axis + 1], False)


def _adaptive_avg_pool_backward(n: int) -> Composite:
    def expand(b: Builder, grad: Value, x: Value) -> Value:
        """Positions and windows change roles: the windows that contain a position are its adaptive window."""
        shape, dtype = B.shape_of(x), B.dtype_of(x)

        def compute(grad: Value) -> Value:
            for axis in range(len(shape) - n, len(shape)):
                count = B.shape_of(grad)[axis]
                sizes = B.cast_to(b, adaptive_sizes(b, shape[axis], count), B.dtype_of(grad))
                grad = B.pointwise(b, "div", grad, along_axis(b, sizes, axis, len(shape)))
                grad = _spread(b, grad, axis, shape[axis])
            return grad

        return B.cast_to(b, B.in_f32(b, compute, grad), dtype)

    return Composite((f"aten._adaptive_avg_pool{n}d_backward.default",), expand)


def _spread(b: Builder, grad: Value, axis: int, length: DimExpr) -> Value:
    shape = B.shape_of(grad)
    if B.is_one(shape[axis]):
        return B.expand(b, grad, [*shape[:axis], length, *shape[axis + 1 :]])
    if equal(shape[axis], length):
        return grad
    return adaptive_axis(b, grad, axis, length, "add", "reduce_sum")


# Edges --------------------------------------------------------------------------------------------


def replication_pad_backward(b: Builder, grad: Value, x: Value, padding: Sequence[DimExpr]) -> Value:
    """Every element gets the gradients of its copies: elements at the edges get those of all padding."""
    rank = len(B.shape_of(x))

    def compute(grad: Value) -> Value:
        for i, low in enumerate(padding[::2]):
            grad = _of_copies(b, grad, rank - 1 - i, B.shape_of(x)[rank - 1 - i], low)
        return grad

    return B.in_f32(b, compute, grad)


def _of_copies(b: Builder, grad: Value, axis: int, length: DimExpr, low: DimExpr) -> Value:
    shape = B.shape_of(grad)
    place = line_of(b, shape[axis], 1, simplify(-low))
    place = B.pointwise(b, "minimum", place, B.full(b, simplify(length - 1), "i64"))
    place = along_axis(b, B.pointwise(b, "maximum", place, 0), axis, len(shape))
    zeros = B.full(b, 0, B.dtype_of(grad), (1,) * len(shape))
    return scatter(b, zeros, place, grad, axis, "sum", (*shape[:axis], length, *shape[axis + 1 :]))


_Backward: tuple[Callable[[int], Composite], ...] = (_avg_pool_backward, _adaptive_avg_pool_backward)
COMPOSITES: tuple[Composite, ...] = (
    *(make(n) for make in _Backward for n in (2, 3)),
    Composite(
        tuple(f"aten.replication_pad{n}d_backward.default" for n in (1, 2, 3)), replication_pad_backward
    ),
)
