"""Pools with randomly placed windows, and the gradients of pools that kept their indices."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.dims import DimExpr, product, simplify
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite, Op
from .gather import torch_gather
from .pool import each_axis, line_of
from .reduce import place_of
from .scatter import scatter_add

OPS: tuple[Op, ...] = ()


def _starts(b: Builder, sample: Value, length: DimExpr, window: int, count: DimExpr) -> Value:
    """Return the starts of the windows along an axis: [rows, count] for samples [rows, 1] from 0 to 1."""
    dtype, rest = B.dtype_of(sample), simplify(length - window)
    steps = B.pointwise(b, "maximum", B.full(b, simplify(count - 1), dtype), 1.0)
    apart = B.pointwise(b, "div", B.full(b, rest, dtype), steps)
    line = B.reshape(b, line_of(b, count), [1, count])
    ahead = B.pointwise(b, "mul", B.pointwise(b, "add", B.cast_to(b, line, dtype), sample), apart)
    first = B.pointwise(b, "mul", sample, apart)
    found = B.pointwise(b, "sub", B.cast_to(b, ahead, "i64"), B.cast_to(b, first, "i64"))
    return B.where(b, B.pointwise(b, "eq", line, simplify(count - 1)), B.full(b, rest, "i64"), found)


def _fractional(
    b: Builder,
    x: Value,
    kernel: Sequence[int],
    sizes: Sequence[DimExpr],
    samples: Value,
    order: Sequence[int],
) -> tuple[Value, Value]:
    """`order`: which of a row's samples each axis takes."""
    n, shape = len(order), B.shape_of(x)
    outer, old = shape[: len(shape) - n], shape[len(shape) - n :]
    rows, kernel = product(outer), each_axis(kernel, n)
    samples = B.cast_to(b, B.reshape(b, samples, [rows, n]), B.dtype_of(x))
    places = B.full(b, 0, "i64", (1,) * (2 * n + 1))
    for axis in range(n):
        sample = B.take(b, samples, 1, order[axis], 1)
        starts = _starts(b, sample, old[axis], kernel[axis], sizes[axis])
        shapes = [[1] * (2 * n + 1), [1] * (2 * n + 1)]
        shapes[0][0], shapes[0][1 + axis], shapes[1][1 + n + axis] = rows, sizes[axis], kernel[axis]
        taps = B.reshape(b, line_of(b, kernel[axis]), shapes[1])
        along = B.pointwise(b, "add", B.reshape(b, starts, shapes[0]), taps)
        step = product(old[axis + 1 :])
        places = B.pointwise(b, "add", places, B.pointwise(b, "mul", along, step))
    many, taps_each = product(sizes), product(kernel)
    places = B.expand(b, places, (rows, *sizes, *kernel))
    places = B.reshape(b, places, [rows, product((many, taps_each))])
    line = B.reshape(b, x, [rows, product(old)])
    values = B.reshape(b, torch_gather(b, line, 1, places), [rows, many, taps_each])
    best = place_of(b, "max", values, 2, True)
    chosen = torch_gather(b, B.reshape(b, places, [rows, many, taps_each]), 2, best)
    greatest = torch_gather(b, values, 2, best)
    return B.reshape(b, greatest, [*outer, *sizes]), B.reshape(b, chosen, [*outer, *sizes])


def fractional_max_pool2d(
    b: Builder, x: Value, kernel: Sequence[int], sizes: Sequence[DimExpr], samples: Value
) -> tuple[Value, Value]:
    """The greatest elements of windows placed by samples, and their indices."""
    return _fractional(b, x, kernel, sizes, samples, (1, 0))


def fractional_max_pool3d(
    b: Builder, x: Value, kernel: Sequence[int], sizes: Sequence[DimExpr], samples: Value
) -> tuple[Value, Value]:
    """The greatest elements of windows placed by samples, and their indices."""
    return _fractional(b, x, kernel, sizes, samples, (0, 1, 2))


def _at_places(b: Builder, grad: Value, x: Value, places: Value, n: int) -> Value:
    """Return zeros of x's shape with grad added at places of its last `n` axes as one."""
    shape, split = B.shape_of(x), len(B.shape_of(x)) - n
    rows, length = product(shape[:split]), product(shape[split:])
    count = product(B.shape_of(grad)[split:])
    zeros = B.full(b, 0, B.dtype_of(grad), (rows, length))
    parts = [B.reshape(b, part, [rows, count]) for part in (places, grad)]
    return B.reshape(b, scatter_add(b, zeros, 1, *parts), shape)


def _max_pool_backward(n: int) -> Composite:
    def expand(b: Builder, grad: Value, x: Value, *rest: object) -> Value:
        places = rest[-1]
        assert isinstance(places, Value)
        return _at_places(b, grad, x, places, n)

    names = (f"max_pool{n}d_with_indices_backward", f"adaptive_max_pool{n}d_backward")
    return Composite(
        tuple(f"aten.{name}.default" for name in names), expand, "the gradient goes to its place"
    )


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.fractional_max_pool2d.default",), fractional_max_pool2d),
    Composite(("aten.fractional_max_pool3d.default",), fractional_max_pool3d),
    _max_pool_backward(2),
    _max_pool_backward(3),
)
