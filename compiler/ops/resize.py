"""Resizing and sampling images: torch's interpolations and grid_sample, as sums of elements taken by index.

Source positions are computed as in PyTorch's CPU kernels: in f32 (f64 for f64), by the given scale or else by
the quotient of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product as combinations
from math import pi
from typing import Any, NamedTuple, cast

import numpy as np

from ..ir.dims import DimExpr, equal, product, simplify
from ..ir.errors import DtypeError
from ..ir.graph import Builder, Value
from ..ir.promotion import is_float
from ..ir.ranges import scaled
from . import build as B
from .declare import Composite
from .matmul import matmul
from .pool import along_axis, line_of, merged_places

Scale = float | Value | None  # a Value: a number that is known at run time only
Scales = Sequence[Scale] | None
_CUBIC = -0.75


class Tap(NamedTuple):
    """One element of a weighted sum: its index along the axis, and its weight (None: 1)."""

    place: Value
    weight: Value | None


# Sizes and positions --------------------------------------------------------------------------------


def scaled_size(b: Builder, size: DimExpr, scale: float | Value, dtype: str = "f64") -> DimExpr:
    """Return floor(size * scale), as `dtype`, f64 or f32, computes it: known at run time only, unless it is a
    quotient of integers."""
    if not isinstance(scale, Value):
        found = scaled(size, scale, b.graph.symbols, np.float64 if dtype == "f64" else np.float32)
        if found is not None:
            return found
    made = B.pointwise(b, "mul", B.full(b, size, dtype), scale)
    return B.size_of(b, made, "interpolate" if isinstance(scale, Value) else "")


def _sizes_and_scales(
    b: Builder, x: Value, n: int, sizes: Sequence[DimExpr] | None, scales: Scales
) -> tuple[list[DimExpr], list[Scale]]:
    """Return the last axes' new sizes, and the scales for computing positions."""
    given: list[Scale] = list(scales) if scales else [None] * n
    if sizes is not None:
        return list(sizes), given
    old = B.shape_of(x)[-n:]
    pairs = zip(old, given, strict=True)
    return [scaled_size(b, size, cast(float | Value, scale)) for size, scale in pairs], given


def _position_dtype(x: Value) -> str:
    return "f64" if B.dtype_of(x) == "f64" else "f32"


def _scale(b: Builder, old: DimExpr, new: DimExpr, corners: bool, given: Scale, dtype: str) -> Value:
    """Return the distance in the source of two neighbours of the result, 0-d."""
    if corners:
        steps = B.pointwise(b, "maximum", B.full(b, simplify(new - 1), dtype), 1.0)
        apart = B.pointwise(b, "div", B.full(b, simplify(old - 1), dtype), steps)
        return B.where(b, B.pointwise(b, "gt", B.full(b, new, "i64"), 1), apart, B.full(b, 0, dtype))
    if isinstance(given, Value):
        return B.cast_to(b, B.pointwise(b, "div", B.full(b, 1.0, "f64"), given), dtype)
    if given is not None and given > 0:
        return B.full(b, 1.0 / given, dtype)
    return B.pointwise(b, "div", B.full(b, old, dtype), B.full(b, new, dtype))


def _positions(b: Builder, old: DimExpr, new: DimExpr, corners: bool, given: Scale, dtype: str) -> Value:
    """Return the source positions of the result's elements: [new], not clamped to the source."""
    places = B.cast_to(b, line_of(b, new), dtype)
    scale = _scale(b, old, new, corners, given, dtype)
    if corners:
        return B.pointwise(b, "mul", places, scale)
    return _plus(b, B.pointwise(b, "mul", _plus(b, places, 0.5), scale), -0.5)


def _plus(b: Builder, x: Value, number: float) -> Value:
    return B.pointwise(b, "add", x, number, dtype=B.dtype_of(x))


def _limited(b: Builder, x: Value, low: B.Tensorlike, high: B.Tensorlike) -> Value:
    dtype = B.dtype_of(x)
    return B.pointwise(b, "minimum", B.pointwise(b, "maximum", x, low, dtype=dtype), high, dtype=dtype)


def _is_same(b: Builder, old: DimExpr, new: DimExpr) -> Value:
    return B.pointwise(b, "eq", B.full(b, old, "i64"), B.full(b, new, "i64"))


# Interpolation ------------------------------------------------------------------------------------


def _linear_taps(
    b: Builder, old: DimExpr, new: DimExpr, corners: bool, given: Scale, dtype: str
) -> list[Tap]:
    position = _positions(b, old, new, corners, given, dtype)
    if not corners:
        position = B.pointwise(b, "maximum", position, 0.0)
    same = B.cast_to(b, line_of(b, new), dtype)
    position = B.where(b, _is_same(b, old, new), same, position)
    first = B.pointwise(b, "minimum", B.cast_to(b, position, "i64"), simplify(old - 1))
    second = B.pointwise(b, "minimum", B.pointwise(b, "add", first, 1), simplify(old - 1))
    second = B.where(b, _is_same(b, old, new), first, second)
    weight = _limited(b, B.pointwise(b, "sub", position, B.cast_to(b, first, dtype)), 0.0, 1.0)
    return [Tap(first, B.pointwise(b, "sub", 1.0, weight, dtype=dtype)), Tap(second, weight)]


def _cubic_taps(b: Builder, old: DimExpr, new: DimExpr, corners: bool, given: Scale, dtype: str) -> list[Tap]:
    position = _positions(b, old, new, corners, given, dtype)
    first = B.pointwise(b, "minimum", B.cast_to(b, b.one("floor", position), "i64"), simplify(old - 1))
    t = _limited(b, B.pointwise(b, "sub", position, B.cast_to(b, first, dtype)), 0.0, 1.0)
    places = [_limited(b, B.pointwise(b, "add", first, i), 0, simplify(old - 1)) for i in (-1, 0, 1, 2)]
    return [Tap(place, weight) for place, weight in zip(places, _cubic_weights(b, t), strict=True)]


def _cubic_weights(b: Builder, t: Value) -> list[Value]:
    """Return the weights of the four elements around a point at `t` between the middle two."""
    rest = B.pointwise(b, "sub", 1.0, t)
    return [_outer(b, _plus(b, t, 1.0)), _inner(b, t), _inner(b, rest), _outer(b, _plus(b, rest, 1.0))]


def _polynomial(b: Builder, x: Value, *coefficients: float) -> Value:
    """Return the polynomial of `x`, highest power first, by Horner's rule."""
    first, *others = coefficients
    result = B.pointwise(b, "mul", x, first)
    for i, coefficient in enumerate(others):
        result = _plus(b, result, coefficient) if coefficient else result
        result = b.one("mul", result, x) if i + 1 < len(others) else result
    return result


def _inner(b: Builder, x: Value) -> Value:
    """The cubic kernel up to a distance of 1."""
    return _polynomial(b, x, _CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0)


def _outer(b: Builder, x: Value) -> Value:
    """The cubic kernel from a distance of 1 to 2."""
    return _polynomial(b, x, _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)


Taps = Callable[[Builder, DimExpr, DimExpr, bool, Scale, str], list[Tap]]


def _interpolate(
    b: Builder,
    x: Value,
    taps_of: Taps,
    sizes: Sequence[DimExpr],
    corners: bool,
    scales: Sequence[Scale],
) -> Value:
    """Interpolate along the last axes in order, in f32 for f16 and bf16. Raises DtypeError for u8."""
    dtype, wide, rank = B.dtype_of(x), _position_dtype(x), len(B.shape_of(x))
    if not is_float(dtype):
        raise DtypeError(
            f"interpolate: the dtype is {dtype}, for which PyTorch rounds the weights to 16 bits and the "
            "values after each axis; cast to f32 first"
        )
    for axis, (new, given) in enumerate(zip(sizes, scales, strict=True), rank - len(sizes)):
        old = B.shape_of(x)[axis]
        if equal(old, new) and (corners or given in (None, 1.0) or taps_of is _linear_taps):
            continue
        terms = []
        for tap in taps_of(b, old, new, corners, given, wide):
            taken = B.cast_to(b, b.one("gather", x, tap.place, axis=axis), wide)
            weight = along_axis(b, cast(Value, tap.weight), axis, rank)
            terms.append(B.pointwise(b, "mul", taken, weight))
        x = reduce(lambda a, c: b.one("add", a, c), terms)
    return B.cast_to(b, x, dtype)


def _smooth(n: int, taps_of: Taps) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, sizes: Sequence[DimExpr], corners: bool, *scales: Scale) -> Value:
        return _interpolate(b, x, taps_of, sizes, corners, [*scales, *[None] * n][:n])

    expand.__doc__ = f"Interpolation of the last {n} axes."
    return expand


def _smooth_vec(n: int, taps_of: Taps) -> Callable[..., Value]:
    def expand(
        b: Builder, x: Value, sizes: Sequence[DimExpr] | None, corners: bool, scales: Scales = None
    ) -> Value:
        return _interpolate(b, x, taps_of, *_with_corners(_sizes_and_scales(b, x, n, sizes, scales), corners))

    expand.__doc__ = f"Interpolation of the last {n} axes to a size or by a factor."
    return expand


def _with_corners(
    found: tuple[list[DimExpr], list[Scale]], corners: bool
) -> tuple[list[DimExpr], bool, list[Scale]]:
    return found[0], corners, found[1]


# Antialiased --------------------------------------------------------------------------------------

_SOFT_CUBIC = -0.5  # the cubic kernel's parameter where it smooths


Kernel = Callable[[Builder, Value], Value]  # the weights of elements at distances, each at least 0


def _smoothing_linear(b: Builder, apart: Value) -> Value:
    return B.pointwise(b, "maximum", B.pointwise(b, "sub", 1.0, apart), 0.0)


def _smoothing_cubic(b: Builder, apart: Value) -> Value:
    a, zero = _SOFT_CUBIC, B.full(b, 0, B.dtype_of(apart))
    outer = _polynomial(b, apart, a, -5 * a, 8 * a, -4 * a)
    outer = B.where(b, B.pointwise(b, "lt", apart, 2.0), outer, zero)
    inner = _polynomial(b, apart, a + 2, -(a + 3), 0.0, 1.0)
    return B.where(b, B.pointwise(b, "lt", apart, 1.0), inner, outer)


def _smoothing_lanczos(b: Builder, apart: Value) -> Value:
    """sinc(x) sinc(x / 3) up to a distance of 3."""
    dtype = B.dtype_of(apart)
    angle = B.pointwise(b, "mul", apart, pi)
    waves = B.pointwise(b, "mul", b.one("sin", angle), b.one("sin", B.pointwise(b, "div", angle, 3.0)))
    square = B.pointwise(b, "div", B.pointwise(b, "mul", angle, angle), 3.0)
    weights = B.where(
        b, B.pointwise(b, "eq", apart, 0.0), B.full(b, 1, dtype), B.pointwise(b, "div", waves, square)
    )
    return B.where(b, B.pointwise(b, "lt", apart, 3.0), weights, B.full(b, 0, dtype))


def _antialiased_weights(
    b: Builder, old: DimExpr, new: DimExpr, corners: bool, given: Scale, dtype: str, kernel: Kernel
) -> Value:
    """Return [old, new]: the weight of each source element in each element of the result. The kernel's width
    is the distance of the result's elements."""
    scale = _scale(b, old, new, corners, given, dtype)
    centre = B.pointwise(b, "mul", _plus(b, B.cast_to(b, line_of(b, new), dtype), 0.5), scale)
    place = B.add_axis(b, _plus(b, B.cast_to(b, line_of(b, old), dtype), 0.5), 1)
    apart = B.pointwise(b, "div", B.pointwise(b, "sub", place, centre), B.pointwise(b, "maximum", scale, 1.0))
    weights = kernel(b, b.one("abs", apart))
    return B.pointwise(b, "div", weights, B.reduce(b, "reduce_sum", weights, [0], True))


def _smoothed(
    b: Builder,
    x: Value,
    kernel: Kernel,
    sizes: Sequence[DimExpr],
    corners: bool,
    scales: Sequence[Scale],
) -> Value:
    """Resize the last axes, starting with the last one, as products with the weights."""
    dtype, wide, rank = B.dtype_of(x), _position_dtype(x), len(B.shape_of(x))
    if not is_float(dtype):
        raise DtypeError(f"antialiased interpolation: the dtype is {dtype}; cast to f32 first")
    x = B.cast_to(b, x, wide)
    for axis in range(rank - 1, rank - 1 - len(sizes), -1):
        new, given = sizes[axis - rank], scales[axis - rank]
        old = B.shape_of(x)[axis]
        weights = _antialiased_weights(b, old, new, corners, given, wide, kernel)
        order = [*(i for i in range(rank) if i != axis), axis]
        back = [order.index(i) for i in range(rank)]
        x = B.permute(b, matmul(b, B.permute(b, x, order), weights), back)
    return B.cast_to(b, x, dtype)


def _antialiased(kernel: Kernel) -> tuple[Callable[..., Value], Callable[..., Value]]:
    def direct(b: Builder, x: Value, sizes: Sequence[DimExpr], corners: bool, *scales: Scale) -> Value:
        return _smoothed(b, x, kernel, sizes, corners, [*scales, None, None][:2])

    def vec(
        b: Builder, x: Value, sizes: Sequence[DimExpr] | None, corners: bool, scales: Scales = None
    ) -> Value:
        return _smoothed(b, x, kernel, *_with_corners(_sizes_and_scales(b, x, 2, sizes, scales), corners))

    for expand in (direct, vec):
        expand.__doc__ = "Interpolation of the last two axes that smooths what it makes smaller."
    return direct, vec


# Nearest ------------------------------------------------------------------------------------------


def _nearest_of(
    b: Builder, x: Value, sizes: Sequence[DimExpr], scales: Sequence[Scale], exact: bool
) -> Value:
    """Take the nearest elements of the last axes: one gather on these axes as one."""
    n, shape, dtype = len(sizes), B.shape_of(x), _position_dtype(x)
    old = shape[len(shape) - n :]
    lines = []
    for length, new, given in zip(old, sizes, scales, strict=True):
        if exact:
            position = B.pointwise(b, "maximum", _positions(b, length, new, False, given, dtype), 0.0)
            position = _plus(b, position, 0.5)
        else:
            scale = _scale(b, length, new, False, given, dtype)
            for times in (1, 2):  # as PyTorch does, whatever the scale
                is_whole = _is_same(b, simplify(length * times), new)
                scale = B.where(b, is_whole, B.full(b, 1.0 / times, dtype), scale)
            position = B.pointwise(b, "mul", B.cast_to(b, line_of(b, new), dtype), scale)
        place = B.cast_to(b, b.one("floor", position), "i64")
        lines.append(B.pointwise(b, "minimum", place, simplify(length - 1)))
    places = merged_places(b, lines, [product(old[i + 1 :]) for i in range(n)])
    line = B.reshape(b, x, [*shape[: len(shape) - n], product(old)])
    return b.one("gather", line, places, axis=len(shape) - n)


def _nearest(n: int, exact: bool) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, sizes: Sequence[DimExpr], *scales: Scale) -> Value:
        return _nearest_of(b, x, sizes, [*scales, *[None] * n][:n], exact)

    expand.__doc__ = f"The nearest elements of the last {n} axes."
    return expand


def _nearest_vec(n: int, exact: bool) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, sizes: Sequence[DimExpr] | None, scales: Scales = None) -> Value:
        return _nearest_of(b, x, *_sizes_and_scales(b, x, n, sizes, scales), exact)

    expand.__doc__ = f"The nearest elements of the last {n} axes, to a size or by a factor."
    return expand


# Sampling at given points -----------------------------------------------------------------------------

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def _unnormalised(b: Builder, x: Value, size: DimExpr, corners: bool) -> Value:
    """Return coordinates of -1 .. 1 as positions along an axis."""
    dtype = B.dtype_of(x)
    half = B.pointwise(b, "div", B.full(b, simplify(size - 1 if corners else size), dtype), 2.0)
    position = B.pointwise(b, "mul", _plus(b, x, 1.0), half)
    return position if corners else _plus(b, position, -0.5)


def _inside_axis(b: Builder, x: Value, size: DimExpr, padding: int, corners: bool) -> Value:
    """Return positions mapped into the axis by the padding mode; NaN becomes 0."""
    if padding == ZEROS:
        return x
    dtype = B.dtype_of(x)
    if padding == REFLECTION:
        low = 0.0 if corners else -0.5
        twice = B.full(b, simplify(2 * (size - 1) if corners else 2 * size), dtype)
        distance = b.one("abs", _plus(b, x, -low))
        flips = b.one("trunc", B.pointwise(b, "div", distance, twice))
        extra = B.pointwise(b, "sub", distance, B.pointwise(b, "mul", flips, twice))
        x = _plus(b, B.pointwise(b, "minimum", extra, B.pointwise(b, "sub", twice, extra)), low)
    x = B.where(b, b.one("isnan", x), B.full(b, 0, dtype), x)
    return _limited(b, x, 0.0, B.full(b, simplify(size - 1), dtype))


def _grid_sample(b: Builder, x: Value, grid: Value, mode: int, padding: int, corners: bool) -> Value:
    """x at the points of a grid (last axis: x, y(, z) from -1 to 1), by interpolation of its last axes."""
    wide = _position_dtype(x)
    shape, n = B.shape_of(x), len(B.shape_of(x)) - 2
    grid = B.of_size(b, "grid_sampler", B.cast_to(b, grid, wide), 0, shape[0])
    last = len(B.shape_of(grid)) - 1
    grid = B.of_size(b, "grid_sampler: the last axis of the grid", grid, last, n)
    points = [
        _unnormalised(b, B.drop_axis(b, B.take(b, grid, last, n - 1 - i, 1), last), shape[2 + i], corners)
        for i in range(n)
    ]
    return sampled(b, x, points, mode, padding, corners)


def sampled(b: Builder, x: Value, points: Sequence[Value], mode: int, padding: int, corners: bool) -> Value:
    """Return x [images, channels, ..] at positions along its last axes, each [images, ..]."""
    wide, shape = _position_dtype(x), B.shape_of(x)
    if mode != BICUBIC:
        points = [
            _inside_axis(b, p, size, padding, corners) for p, size in zip(points, shape[2:], strict=True)
        ]
    taps = [
        _sample_taps(b, p, size, mode, padding, corners) for p, size in zip(points, shape[2:], strict=True)
    ]
    terms = []
    for chosen in combinations(*taps):
        taken = B.cast_to(b, _at_points(b, x, [tap.place for tap in chosen]), wide)
        weights = [tap.weight for tap in chosen if tap.weight is not None]
        if weights:
            weight = B.add_axis(b, reduce(lambda a, c: b.one("mul", a, c), weights), 1)
            taken = B.pointwise(b, "mul", taken, weight)
        terms.append(taken)
    return B.cast_to(b, reduce(lambda a, c: b.one("add", a, c), terms), B.dtype_of(x))


def _sample_taps(b: Builder, x: Value, size: DimExpr, mode: int, padding: int, corners: bool) -> list[Tap]:
    """Return the elements around positions along one axis; positions are floats, maybe outside of it."""
    if mode == NEAREST:
        return [Tap(b.one("round", x), None)]
    first = b.one("floor", x)
    t = B.pointwise(b, "sub", x, first)
    if mode == BILINEAR:
        return [Tap(first, B.pointwise(b, "sub", 1.0, t)), Tap(_plus(b, first, 1.0), t)]
    places = [_inside_axis(b, _plus(b, first, float(i)), size, padding, corners) for i in (-1, 0, 1, 2)]
    return [Tap(place, weight) for place, weight in zip(places, _cubic_weights(b, t), strict=True)]


def _at_points(b: Builder, x: Value, places: Sequence[Value]) -> Value:
    """Return x[n, c, places[..][n, ..]], 0 for positions outside."""
    shape, rank = B.shape_of(x), len(B.shape_of(x))
    inside: Value | None = None
    merged: Value | None = None
    for axis, place in enumerate(places, 2):
        last = simplify(shape[axis] - 1)
        high = B.full(b, last, B.dtype_of(place))
        within = b.one("and", B.pointwise(b, "ge", place, 0.0), B.pointwise(b, "le", place, high))
        place = B.cast_to(b, B.where(b, within, place, B.full(b, 0, B.dtype_of(place))), "i64")
        place = B.pointwise(b, "mul", place, product(shape[axis + 1 :]))
        inside = within if inside is None else b.one("and", inside, within)
        merged = place if merged is None else b.one("add", merged, place)
    rows = merged_places(
        b, [line_of(b, shape[0]), line_of(b, shape[1])], [product(shape[1:]), product(shape[2:])]
    )
    rows = B.reshape(b, rows, [shape[0], shape[1], *[1] * (rank - 2)])
    assert merged is not None and inside is not None
    index = B.pointwise(b, "add", rows, B.add_axis(b, merged, 1))
    taken = b.one("gather", B.reshape(b, x, [product(shape)]), index, axis=0)
    return B.where(b, B.add_axis(b, inside, 1), taken, B.full(b, 0, B.dtype_of(x)))


def _of_both(name: str, direct: Callable[..., Value], vec: Callable[..., Value]) -> tuple[Composite, ...]:
    return Composite((f"aten.{name}.default",), direct), Composite((f"aten.{name}.vec",), vec)


OPS: tuple[Any, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    *(
        composite
        for n in (1, 2, 3)
        for name, exact in ((f"upsample_nearest{n}d", False), (f"_upsample_nearest_exact{n}d", True))
        for composite in _of_both(name, _nearest(n, exact), _nearest_vec(n, exact))
    ),
    *_of_both("upsample_linear1d", _smooth(1, _linear_taps), _smooth_vec(1, _linear_taps)),
    *_of_both("upsample_bilinear2d", _smooth(2, _linear_taps), _smooth_vec(2, _linear_taps)),
    *_of_both("upsample_trilinear3d", _smooth(3, _linear_taps), _smooth_vec(3, _linear_taps)),
    *_of_both("upsample_bicubic2d", _smooth(2, _cubic_taps), _smooth_vec(2, _cubic_taps)),
    *_of_both("_upsample_bilinear2d_aa", *_antialiased(_smoothing_linear)),
    *_of_both("_upsample_bicubic2d_aa", *_antialiased(_smoothing_cubic)),
    *_of_both("_upsample_lanczos2d_aa", *_antialiased(_smoothing_lanczos)),
    Composite(tuple(f"aten.grid_sampler{n}.default" for n in ("", "_2d", "_3d")), _grid_sample),
)
