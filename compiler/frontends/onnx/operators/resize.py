"""Resizing images: elements at computed places, weighted and added axis by axis, and samples at a grid.

Positions are computed as onnxruntime computes them: in f32 (f64 for f64), by the given factor or else by the
quotient of the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from ....ir.dims import DimExpr, product, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Value
from ....ir.promotion import is_float
from ....ops import build as B
from ....ops.pool import along_axis, line_of, merged_places
from ....ops.resize import Tap, scaled_size
from ..folds import whole
from ..known import Known
from ..rows import Call, row

_REACH = 2  # of the widest kernel
WITH_MODES = 11  # the version from which the coordinates are attributes


@dataclass(frozen=True)
class Axis:
    """An axis that changes: its sizes, the factor where the model gives one, and the region's input."""

    axis: int
    old: DimExpr
    new: DimExpr
    factor: float | None
    start: Value | None = None
    end: Value | None = None


@row("Resize", "Upsample")
def _resize(call: Call) -> Value:
    x = call.value(0)
    way, mode = _coordinates(call), call.attr("mode", "nearest")
    axes = [each for each in _axes(call) if _changes(each, way)]
    if not axes:
        return x
    if call.attr("antialias", 0) and mode != "nearest":
        return _antialiased(call, x, axes, way)
    b, dtype = call.b, "f64" if B.dtype_of(x) == "f64" else "f32"
    positions = [_position(b, each, way, dtype) for each in axes]
    made = _nearest(call, x, axes, positions) if mode == "nearest" else _smooth(call, x, axes, positions)
    if way != "tf_crop_and_resize":
        return made
    outside = B.full(b, float(call.attr("extrapolation_value", 0.0)), B.dtype_of(x))
    for each, position in zip(axes, positions, strict=True):
        last = B.full(b, simplify(each.old - 1), dtype)
        inside = b.one("and", B.pointwise(b, "ge", position, 0.0), B.pointwise(b, "le", position, last))
        made = B.where(b, along_axis(b, inside, each.axis, len(B.shape_of(x))), made, outside)
    return made


def _coordinates(call: Call) -> str:
    """Return the coordinate mode."""
    is_old = call.op == "Upsample" or call.version < WITH_MODES
    return "asymmetric" if is_old else str(call.attr("coordinate_transformation_mode", "half_pixel"))


def _changes(axis: Axis, way: str) -> bool:
    return way == "tf_crop_and_resize" or axis.old != axis.new or axis.factor not in (None, 1.0)


# Sizes ----------------------------------------------------------------------------------------------


def _axes(call: Call) -> list[Axis]:
    """Return the axes that the node names, with their new sizes."""
    shape = call.shape(0)
    rank = len(shape)
    chosen = [B.axis_of(call.op, axis, rank) for axis in call.attr("axes") or range(rank)]
    old = [shape[axis] for axis in chosen]
    sizes, factors = _sizes(call, old)
    roi: list[Value | None] = [None] * (2 * len(chosen))
    if _coordinates(call) == "tf_crop_and_resize":
        b, given = call.b, call.value(1)
        roi = [B.reshape(b, B.take(b, given, 0, i, 1), []) for i in range(len(roi))]
    rows = zip(chosen, old, sizes, factors, roi[: len(chosen)], roi[len(chosen) :], strict=True)
    return [Axis(*each) for each in rows]


def _sizes(call: Call, old: list[DimExpr]) -> tuple[list[DimExpr], list[float | None]]:
    """Return the new sizes, and the factors where the model gives them."""
    if call.has(3):
        return _kept_in_proportion(call, old, call.dims(3))
    at = 1 if call.op == "Upsample" or call.version < WITH_MODES else 2
    given = call.input(at) if call.has(at) else None
    if isinstance(given, Known) and given.is_symbolic:
        return [whole(size * by) for size, by in zip(old, given.items.flat, strict=True)], [None] * len(old)
    factors = [float(by) for by in call.numbers(at, call.attr("scales")).reshape(-1)]
    pairs = zip(old, factors, strict=True)
    return [size if by == 1 else scaled_size(call.b, size, by, "f32") for size, by in pairs], list(factors)


def _kept_in_proportion(
    call: Call, old: list[DimExpr], new: list[DimExpr]
) -> tuple[list[DimExpr], list[float | None]]:
    """Return the sizes that keep the image's proportions, if the node asks for it."""
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return new, [None] * len(old)
    if not all(isinstance(size, int) for size in (*old, *new)):
        raise UnsupportedOp(
            f"{call.op}: keep_aspect_ratio_policy {policy!r} needs sizes; each must be a constant"
        )
    choose = {"not_larger": min, "not_smaller": max}[policy]
    by = choose(n / o for n, o in zip(new, old, strict=True))
    return [int(np.floor(by * size + 0.5)) for size in old], [by] * len(old)


# Positions ------------------------------------------------------------------------------------------


def _position(b: Builder, axis: Axis, way: str, dtype: str) -> Value:
    """Return the source positions of the result's elements: [new], not clamped to the source."""
    if way not in _WAYS:
        raise UnsupportedOp(f"Resize: the coordinates {way!r} are none of {', '.join(_WAYS)}")
    place = B.cast_to(b, line_of(b, axis.new), dtype)
    return _WAYS[way](b, axis, place)


def _factor(b: Builder, axis: Axis, dtype: str) -> Value:
    if axis.factor is not None:
        return B.full(b, axis.factor, dtype)
    return B.pointwise(b, "div", B.full(b, axis.new, dtype), B.full(b, axis.old, dtype))


def _plus(b: Builder, x: Value, number: B.Tensorlike) -> Value:
    return B.pointwise(b, "add", x, number, dtype=B.dtype_of(x))


def _half_pixel(b: Builder, axis: Axis, place: Value) -> Value:
    return _plus(b, B.pointwise(b, "div", _plus(b, place, 0.5), _factor(b, axis, B.dtype_of(place))), -0.5)


def _if_several(b: Builder, axis: Axis, several: Value, one: B.Tensorlike) -> Value:
    """Return positions of a result of several elements, and those of a result of one."""
    is_several = B.pointwise(b, "gt", B.full(b, axis.new, "i64"), 1)
    return B.where(b, is_several, several, B.tensor_of(b, one, B.dtype_of(several)))


def _symmetric(b: Builder, axis: Axis, place: Value) -> Value:
    dtype = B.dtype_of(place)
    exact = B.pointwise(b, "mul", _factor(b, axis, dtype), B.full(b, axis.old, dtype))
    less = B.pointwise(b, "sub", 1.0, B.pointwise(b, "div", B.full(b, axis.new, dtype), exact), dtype=dtype)
    half = B.pointwise(b, "mul", B.full(b, axis.old, dtype), 0.5)
    return _plus(b, _half_pixel(b, axis, place), B.pointwise(b, "mul", half, less))


def _corners(b: Builder, axis: Axis, place: Value) -> Value:
    scaled = B.pointwise(b, "mul", place, B.full(b, simplify(axis.old - 1), B.dtype_of(place)))
    return B.pointwise(b, "div", scaled, _steps(b, axis, B.dtype_of(place)))


def _steps(b: Builder, axis: Axis, dtype: str) -> Value:
    return B.pointwise(b, "maximum", B.full(b, simplify(axis.new - 1), dtype), 1.0, dtype=dtype)


def _cropped(b: Builder, axis: Axis, place: Value) -> Value:
    dtype = B.dtype_of(place)
    assert axis.start is not None and axis.end is not None
    last = B.full(b, simplify(axis.old - 1), dtype)
    first, end = (B.pointwise(b, "mul", B.cast_to(b, x, dtype), last) for x in (axis.start, axis.end))
    apart = B.pointwise(b, "div", B.pointwise(b, "sub", end, first), _steps(b, axis, dtype))
    middle = B.pointwise(b, "mul", B.pointwise(b, "add", first, end), 0.5)
    return _if_several(b, axis, _plus(b, B.pointwise(b, "mul", place, apart), first), middle)


_WAYS = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": lambda b, axis, place: _if_several(b, axis, _half_pixel(b, axis, place), 0.0),
    "half_pixel_symmetric": _symmetric,
    "asymmetric": lambda b, axis, place: B.pointwise(b, "div", place, _factor(b, axis, B.dtype_of(place))),
    "align_corners": _corners,
    "tf_crop_and_resize": _cropped,
}


# Elements -------------------------------------------------------------------------------------------


def _limited(b: Builder, place: Value, old: DimExpr) -> Value:
    return B.pointwise(b, "minimum", B.pointwise(b, "maximum", place, 0), simplify(old - 1))


def _rounded(call: Call, x: Value, axis: Axis) -> Value:
    """Return positions rounded as the node says."""
    b, how = call.b, call.attr("nearest_mode", "round_prefer_floor")
    if call.op == "Upsample" or call.version < WITH_MODES:
        how = "ceil" if axis.factor is not None and axis.factor < 1 else "floor"
    if how in ("floor", "ceil"):
        return b.one(how, x)
    if how == "round_prefer_ceil":
        return b.one("floor", _plus(b, x, 0.5))
    if how == "round_prefer_floor":
        return b.one("ceil", _plus(b, x, -0.5))
    raise UnsupportedOp(f"{call.op}: nearest_mode {how!r} is unknown")


def _nearest(call: Call, x: Value, axes: list[Axis], positions: list[Value]) -> Value:
    """Take the nearest elements: one gather if the axes are neighbours."""
    b, shape = call.b, B.shape_of(x)
    lines = [
        _limited(b, B.cast_to(b, _rounded(call, position, each), "i64"), each.old)
        for each, position in zip(axes, positions, strict=True)
    ]
    first = axes[0].axis
    if [each.axis for each in axes] != list(range(first, first + len(axes))):
        for each, line in zip(axes, lines, strict=True):
            x = b.one("gather", x, line, axis=each.axis)
        return x
    old = shape[first : first + len(axes)]
    places = merged_places(b, lines, [product(old[i + 1 :]) for i in range(len(axes))])
    merged = B.reshape(b, x, [*shape[:first], product(old), *shape[first + len(axes) :]])
    return b.one("gather", merged, places, axis=first)


def _smooth(call: Call, x: Value, axes: list[Axis], positions: list[Value]) -> Value:
    """Interpolate axis by axis, in f32 for f16 and bf16."""
    b, dtype, rank = call.b, B.dtype_of(x), len(B.shape_of(x))
    mode = call.attr("mode")
    if mode not in ("linear", "cubic") or not is_float(dtype):
        raise UnsupportedOp(f"{call.op}: mode {mode!r} of {dtype} has no lowering")
    for each, position in zip(axes, positions, strict=True):
        taps = _linear(b, each, position) if mode == "linear" else _cubic(call, each, position)
        terms = []
        for tap in taps:
            taken = B.cast_to(b, b.one("gather", x, tap.place, axis=each.axis), B.dtype_of(position))
            assert tap.weight is not None
            terms.append(B.pointwise(b, "mul", taken, along_axis(b, tap.weight, each.axis, rank)))
        x = reduce(lambda a, c: b.one("add", a, c), terms)
    return B.cast_to(b, x, dtype)


def _linear(b: Builder, axis: Axis, position: Value) -> list[Tap]:
    dtype = B.dtype_of(position)
    last = B.full(b, simplify(axis.old - 1), dtype)
    position = B.pointwise(b, "minimum", B.pointwise(b, "maximum", position, 0.0), last)
    first = B.cast_to(b, position, "i64")
    weight = B.pointwise(b, "sub", position, B.cast_to(b, first, dtype))
    second = _limited(b, B.pointwise(b, "add", first, 1), axis.old)
    rest = B.pointwise(b, "sub", 1.0, weight, dtype=dtype)
    return [Tap(_limited(b, first, axis.old), rest), Tap(second, weight)]


def _cubic(call: Call, axis: Axis, position: Value) -> list[Tap]:
    b, dtype = call.b, B.dtype_of(position)
    low = b.one("floor", position)
    t = B.pointwise(b, "sub", position, low)
    first = B.cast_to(b, low, "i64")
    places = [B.pointwise(b, "add", first, i) for i in (-1, 0, 1, 2)]
    rest = B.pointwise(b, "sub", 1.0, t, dtype=dtype)
    outer, inner = _cubic_kernel(call)
    weights = [
        _polynomial(b, x, each)
        for x, each in ((_plus(b, t, 1.0), outer), (t, inner), (rest, inner), (_plus(b, rest, 1.0), outer))
    ]
    if call.attr("exclude_outside", 0):
        zero = B.full(b, 0, dtype)
        inside = [B.pointwise(b, "eq", _limited(b, place, axis.old), place) for place in places]
        weights = [B.where(b, is_in, weight, zero) for is_in, weight in zip(inside, weights, strict=True)]
        total = reduce(lambda x, y: b.one("add", x, y), weights)
        weights = [B.pointwise(b, "div", weight, total) for weight in weights]
    return [Tap(_limited(b, p, axis.old), weight) for p, weight in zip(places, weights, strict=True)]


def _cubic_kernel(call: Call) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the cubic kernel's polynomials at distances from 1 to 2 and up to 1."""
    a = float(call.attr("cubic_coeff_a", -0.75))
    return (a, -5 * a, 8 * a, -4 * a), (a + 2, -(a + 3), 0.0, 1.0)


def _polynomial(b: Builder, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Return the polynomial of `x`, highest power first, by Horner's rule."""
    made = B.full(b, coefficients[0], B.dtype_of(x))
    for coefficient in coefficients[1:]:
        made = _plus(b, B.pointwise(b, "mul", made, x), coefficient)
    return made


def _antialiased(call: Call, x: Value, axes: list[Axis], way: str) -> Value:
    """Resize by products with weights whose width grows where the image shrinks; edges are repeated."""
    b, dtype, kind, rank = (
        call.b,
        "f64" if B.dtype_of(x) == "f64" else "f32",
        B.dtype_of(x),
        len(B.shape_of(x)),
    )
    for each in axes:
        around = simplify((B.divide(each.old, each.new) + 1) * _REACH + 1)
        places = B.pointwise(b, "sub", B.iota(b, simplify(each.old + 2 * around)), around)
        inner = _limited(b, places, each.old)
        weights = _smoothing(call, each, B.cast_to(b, places, dtype), _position(b, each, way, dtype))
        if call.attr("exclude_outside", 0):
            inside = B.pointwise(b, "eq", places, inner)
            weights = B.where(b, inside, weights, B.full(b, 0, dtype))
        weights = B.pointwise(b, "div", weights, B.reduce(b, "reduce_sum", weights, [1], True))
        last = [*(i for i in range(rank) if i != each.axis), each.axis]
        rows = B.permute(b, B.cast_to(b, b.one("gather", x, inner, axis=each.axis), dtype), last)
        made = call.aten("matmul", rows, B.permute(b, weights, [1, 0]))
        x = B.permute(b, made, [last.index(i) for i in range(rank)])
    return B.cast_to(b, x, kind)


def _smoothing(call: Call, axis: Axis, places: Value, position: Value) -> Value:
    """Return the weights of elements at `places` for the result's positions, [new, places]; their sums are
    not 1."""
    b, dtype = call.b, B.dtype_of(places)
    width = B.pointwise(b, "minimum", _factor(b, axis, dtype), 1.0, dtype=dtype)
    apart = B.pointwise(b, "sub", places, B.add_axis(b, position, 1))
    apart = b.one("abs", B.pointwise(b, "mul", apart, width))
    if call.attr("mode") == "linear":
        return B.pointwise(b, "maximum", B.pointwise(b, "sub", 1.0, apart, dtype=dtype), 0.0, dtype=dtype)
    outer, inner = _cubic_kernel(call)
    beyond = B.where(b, B.pointwise(b, "lt", apart, 2.0), _polynomial(b, apart, outer), B.full(b, 0, dtype))
    return B.where(b, B.pointwise(b, "le", apart, 1.0), _polynomial(b, apart, inner), beyond)


_MODES = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@row("GridSample")
def _grid_sample(call: Call) -> Value:
    n = len(call.shape(0)) - 2
    settings = _MODES[call.attr("mode", "linear")], _PADDINGS[call.attr("padding_mode", "zeros")]
    if n not in (2, 3) or (n == 3 and settings[0] == _MODES["cubic"]):
        raise UnsupportedOp(f"GridSample: mode {call.attr('mode')!r} on {n} axes has no lowering")
    return call.aten(
        f"grid_sampler_{n}d", call.value(0), call.value(1), *settings, bool(call.attr("align_corners", 0))
    )
