"""Operators that make tensors, or move elements without computing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import sympy

from ....ir.dims import DimExpr, floordiv, product, simplify
from ....ir.errors import ShapeError, UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.conditions import add_guard
from ..known import Known, known
from ..reader import element_name
from ..rows import Call, Operand, row

OPEN_END = 10**9  # exporters write this or more for the end of any axis


@row("Constant")
def _constant(call: Call) -> Known:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        found = call.attr(name)
        if found is None:
            continue
        if name == "value":
            return call.scope.array(found)
        return known(np.array(found), "i64" if "int" in name else "f32")
    raise UnsupportedOp("Constant: it has no tensor; strings and sparse tensors cannot be compiled")


@row("ConstantOfShape")
def _constant_of_shape(call: Call) -> Value:
    value = call.attr("value")
    filled = call.scope.array(value) if value is not None else Known(np.zeros(1, np.float32), "f32")
    return B.full(call.b, filled.items.reshape(-1)[0].item(), filled.dtype, tuple(call.dims(0)))


@row("Reshape")
def _reshape(call: Call) -> Value:
    old = call.shape(0)
    if call.has(1) and not isinstance(call.input(1), Known):
        return B.reshape(call.b, call.value(0), _run_time_shape(call, old))
    shape = call.dims(1) if call.has(1) else list(call.attr("shape"))
    if not call.attr("allowzero", 0):
        shape = [_copied(old, i) if size == 0 else size for i, size in enumerate(shape)]
    return B.reshape(call.b, call.value(0), _with_rest(old, shape))


def _run_time_shape(call: Call, old: list[DimExpr]) -> list[DimExpr]:
    """Return the sizes of a shape that the model computes, -1 and copied ones among them."""
    b, shape = call.b, call.value(1)
    given = B.reshape(b, B.cast_to(b, shape, "i64"), B.shape_of(shape) or [1])
    count = B.shape_of(given)[0]
    if not call.attr("allowzero", 0) and isinstance(count, int) and count:
        copied = [B.full(b, size, "i64", (1,)) for size in [*old, *[0] * count][:count]]
        given = B.where(b, B.pointwise(b, "eq", given, 0), B.concat(b, copied, 0), given)
    is_rest = B.pointwise(b, "eq", given, -1)
    others = call.aten("prod.dim_int", B.where(b, is_rest, 1, given), 0, True)
    rest = B.pointwise(b, "floordiv", B.full(b, product(old), "i64"), B.pointwise(b, "maximum", others, 1))
    return call.elements(B.where(b, is_rest, rest, given), "input 1")


def _with_rest(old: list[DimExpr], shape: list[DimExpr]) -> list[DimExpr]:
    """Return the sizes of a reshape with the rest in place of -1: sizes that both sides have cancel out, so
    that they may be 0."""
    unknown = [i for i, size in enumerate(shape) if isinstance(size, int) and size == -1]
    if len(unknown) != 1:
        return shape
    (at,) = unknown
    others = product(size for i, size in enumerate(shape) if i != at)
    above, below = (
        sympy.fraction(sympy.cancel(sympy.sympify(product(old)) / others)) if others != 0 else (0, 0)
    )
    if below == 0:
        return shape  # the message is that of any other reshape
    return [*shape[:at], simplify(floordiv(sympy.sympify(above), sympy.sympify(below))), *shape[at + 1 :]]


def _copied(old: list[DimExpr], i: int) -> DimExpr:
    if i >= len(old):
        raise ShapeError(f"Reshape: size {i} is 0, which means that of the input, which has {len(old)} axes")
    return old[i]


@row("Flatten")
def _flatten(call: Call) -> Value:
    shape = call.shape(0)
    axis = call.attr("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return B.reshape(call.b, call.value(0), [product(shape[:axis]), product(shape[axis:])])


@row("Transpose")
def _transpose(call: Call) -> Value:
    axes = call.attr("perm")
    return B.permute(call.b, call.value(0), axes or list(reversed(range(len(call.shape(0))))))


@row("Squeeze")
def _squeeze(call: Call) -> Value:
    shape, axes = call.shape(0), call.ints(1, "axes")
    if axes is None:
        chosen = [axis for axis, size in enumerate(shape) if B.is_one(size)]
    else:
        chosen = B.axes_of("Squeeze", axes, len(shape)) if axes else []
    x = call.value(0)
    for axis in chosen:
        x = B.of_size(call.b, "Squeeze", x, axis, 1)
    return B.reshape(call.b, x, [size for axis, size in enumerate(shape) if axis not in chosen])


@row("Unsqueeze")
def _unsqueeze(call: Call) -> Value:
    axes = call.ints(1, "axes") or []
    rank = len(call.shape(0)) + len(axes)
    placed = B.axes_of("Unsqueeze", axes, rank) if axes else []
    sizes = iter(call.shape(0))
    return B.reshape(call.b, call.value(0), [1 if axis in placed else next(sizes) for axis in range(rank)])


@row("Concat")
def _concat(call: Call) -> Value:
    values = call.values()
    axis = call.axis("axis", len(B.shape_of(values[0])), 1)
    return B.concat(call.b, values, axis)


@row("Split")
def _split(call: Call) -> tuple[Value, ...]:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), 0)
    size = B.shape_of(x)[axis]
    if call.has(1) or call.attr("split") is not None:
        sizes = call.dims(1) if call.has(1) else list(call.attr("split"))
    else:
        n = call.count("num_outputs", call.n_outputs)
        each = simplify(floordiv(sympy.sympify(size + n - 1), sympy.Integer(n)))
        sizes = [each] * (n - 1) + [simplify(size - each * (n - 1))]
    parts = call.aten("split.sizes", x, sizes, axis)
    total = simplify(sum(sizes))
    B.of_size(call.b, "Split", x, axis, total)
    return parts


@row("Slice")
def _slice(call: Call) -> Value:
    x = call.value(0)
    rank = len(B.shape_of(x))
    starts = call.dims(1, True) if call.has(1) else list(call.attr("starts"))
    ends = call.dims(2, True) if call.has(2) else list(call.attr("ends"))
    axes = call.ints(3, "axes") or list(range(len(starts)))
    steps = call.dims(4, True) if call.has(4) else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = B.axis_of("Slice", axis, rank)
        is_known = isinstance(start, int) and isinstance(end, int)
        if not isinstance(step, int) or (step < 0 and not is_known):
            x = _by_places(call, x, axis, (start, end, step))
        elif step < 0:
            x = _backwards(call, x, axis, start, end, step)
        else:
            x = call.aten("slice.Tensor", x, axis, start, _end(call, B.shape_of(x)[axis], end), step)
    return x


def _end(call: Call, size: DimExpr, end: Any) -> Any:
    """Return the end of a slice; that of the axis for a number which stands for it. An axis that is longer is
    refused."""
    if not isinstance(end, int) or end < OPEN_END:
        return end
    add_guard(
        call.b, sympy.Le(sympy.sympify(size), end), f"Slice: the axis must have at most {end} positions"
    )
    return size


def _by_places(call: Call, x: Value, axis: int, bounds: tuple[DimExpr, DimExpr, DimExpr]) -> Value:
    """A slice whose step, or bounds of a negative step, are known at run time only."""
    b, size = call.b, B.full(call.b, B.shape_of(x)[axis], "i64")
    start, end, step = (B.full(b, each, "i64") for each in bounds)
    back = B.cast_to(b, B.pointwise(b, "lt", step, 0), "i64")
    last = B.pointwise(b, "sub", size, back)
    ends = []
    for place, least in ((start, B.full(b, 0, "i64")), (end, b.one("neg", back))):
        place = B.where(b, B.pointwise(b, "lt", place, 0), B.pointwise(b, "add", place, size), place)
        ends.append(B.pointwise(b, "minimum", B.pointwise(b, "maximum", place, least), last))
    return b.one("gather", x, call.apply("Range", [*ends, step]), axis=axis)


def _backwards(call: Call, x: Value, axis: int, start: int, end: int, step: int) -> Value:
    """A slice with a negative step: one of the reversed axis."""
    size = B.shape_of(x)[axis]

    def mirrored(position: int) -> Any:
        # Position p, counted from the front, is size - 1 - p in the reversed axis; -1 is the last.
        return -position - 1 if position < 0 else simplify(size - 1 - position)

    flipped = call.aten("flip", x, [axis])
    first = 0 if start >= 2**31 - 1 else mirrored(start)
    low, _ = B.bounds_of(call.b, first)
    first = first if low is not None and low >= 0 else simplify(sympy.Max(sympy.sympify(first), 0))
    last = None if end <= -(2**31) + 1 else mirrored(end)
    low = 0 if last is None else B.bounds_of(call.b, last)[0]
    if last is not None and (low is None or low < 0):
        last = simplify(sympy.Max(sympy.sympify(last), 0))
    return call.aten("slice.Tensor", flipped, axis, first, last, -step)


@row("Expand")
def _expand(call: Call) -> Value:
    b, x, wanted = call.b, call.value(0), call.dims(1)
    rank = max(len(wanted), len(B.shape_of(x)))
    ones = [1] * (rank - len(B.shape_of(x)))
    x = B.reshape(b, x, [*ones, *B.shape_of(x)])
    other = B.full(b, 0, B.dtype_of(x), (*[1] * (rank - len(wanted)), *wanted))
    return B.broadcast(b, "Expand", [x, other], or_one=True)[0]


@row("Tile")
def _tile(call: Call) -> Value:
    return call.aten("repeat", call.value(0), call.dims(1))


@row("Range")
def _range(call: Call) -> Operand:
    dtype = call.dtype(0)
    if dtype in ("i64", "i32") and all(isinstance(call.input(i), Known) for i in range(3)):
        (start,), (limit,), (delta,) = (call.dims(i) for i in range(3))
        if isinstance(delta, int) and delta:
            sign = 1 if delta > 0 else -1
            room = simplify(sign * (limit - start))
            length = B.positive_part(call.b, B.divide(simplify(room + abs(delta) - 1), abs(delta)))
            line = call.b.one("iota", start=0, step=1, length=length, dtype="i64")
            line = line if delta == 1 else B.pointwise(call.b, "mul", line, delta)
            line = line if start == 0 else B.pointwise(call.b, "add", line, B.full(call.b, start, "i64"))
            return B.cast_to(call.b, line, dtype)
    return _run_time_range(call, dtype)


def _run_time_range(call: Call, dtype: str) -> Value:
    """A range whose bounds the model computes: its length is read when the program runs."""
    b = call.b
    start, limit, delta = (B.reshape(b, call.value(i), []) for i in range(3))
    wide = "f64" if dtype not in ("i64", "i32", "i16") else "i64"
    first, last, step = (B.cast_to(b, each, wide) for each in (start, limit, delta))
    room = B.pointwise(b, "sub", last, first)
    if wide == "i64":
        length = b.one("neg", B.pointwise(b, "floordiv", b.one("neg", room), step))
    else:
        length = B.cast_to(b, b.one("ceil", B.pointwise(b, "div", room, step)), "i64")
    size = call.read(B.pointwise(b, "maximum", length, 0))
    line = B.cast_to(b, B.iota(b, size), dtype)
    return B.pointwise(b, "add", B.pointwise(b, "mul", line, delta, dtype=dtype), start, dtype=dtype)


@row("Pad")
def _pad(call: Call) -> Value:
    b, x = call.b, call.value(0)
    rank = len(B.shape_of(x))
    pads = call.dims(1, True) if call.has(1) else list(call.attr("pads"))
    axes = _pad_axes(call, rank)
    amounts: list[tuple[DimExpr, DimExpr]] = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        amounts[axis] = (pads[i], pads[i + len(axes)])
    mode = call.attr("mode", "constant")
    if mode == "constant":
        value: Any = call.attr("value", 0.0)
        if call.has(2):
            value = B.reshape(b, call.value(2), [])
        return B.pad(b, x, amounts, value)
    for axis, (low, high) in enumerate(amounts):
        if (low, high) != (0, 0):
            x = _padded(call, x, axis, low, high, mode)
    return x


def _pad_axes(call: Call, rank: int) -> list[int]:
    """Return the axes that a Pad names."""
    axes = call.ints(3, "axes")
    return list(range(rank)) if axes is None else [B.axis_of("Pad", axis, rank) for axis in axes]


def _padded(call: Call, x: Value, axis: int, low: DimExpr, high: DimExpr, mode: str) -> Value:
    """Return x padded along an axis with its own values: the edge, a reflection, or around the end."""
    b, size = call.b, B.shape_of(x)[axis]
    places = B.iota(b, simplify(size + low + high))
    places = B.pointwise(b, "sub", places, B.full(b, low, "i64") if not isinstance(low, int) else low)
    last = B.full(b, simplify(size - 1), "i64")
    if mode == "edge":
        places = B.pointwise(b, "minimum", B.pointwise(b, "maximum", places, 0), last)
    elif mode == "wrap":
        places = B.pointwise(b, "mod", places, B.full(b, size, "i64"))
    elif mode == "reflect":
        period = B.pointwise(b, "maximum", B.pointwise(b, "mul", last, 2), 1)
        places = B.pointwise(b, "mod", places, period)
        places = B.pointwise(b, "minimum", places, B.pointwise(b, "sub", period, places))
        places = B.pointwise(b, "minimum", places, last)
    else:
        raise UnsupportedOp(f"Pad: mode {mode!r} is none of constant, edge, reflect and wrap")
    return b.one("gather", x, places, axis=axis)


@row("DepthToSpace")
def _depth_to_space(call: Call) -> Value:
    b, x, block = call.b, call.value(0), call.attr("blocksize")
    batch, channels, height, width = B.shape_of(x)
    depth = B.divide(channels, block * block)
    if call.attr("mode", "DCR") == "DCR":
        parts = B.reshape(b, x, [batch, block, block, depth, height, width])
        moved = B.permute(b, parts, [0, 3, 4, 1, 5, 2])
    else:
        parts = B.reshape(b, x, [batch, depth, block, block, height, width])
        moved = B.permute(b, parts, [0, 1, 4, 2, 5, 3])
    return B.reshape(b, moved, [batch, depth, simplify(height * block), simplify(width * block)])


@row("SpaceToDepth")
def _space_to_depth(call: Call) -> Value:
    b, x, block = call.b, call.value(0), call.attr("blocksize")
    batch, channels, height, width = B.shape_of(x)
    rows, columns = B.divide(height, block), B.divide(width, block)
    parts = B.reshape(b, x, [batch, channels, rows, block, columns, block])
    order = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}[call.attr("mode", "DCR")]
    moved = B.permute(b, parts, order)
    return B.reshape(b, moved, [batch, simplify(channels * block * block), rows, columns])


@row("Trilu")
def _trilu(call: Call) -> Value:
    b, x = call.b, call.value(0)
    *_, height, width = B.shape_of(x)
    (k,) = call.dims(1, is_signed=True) if call.has(1) else (0,)
    below = B.pointwise(b, "sub", B.iota(b, width, 1, 2), B.iota(b, height, 0, 2))
    side = "ge" if call.attr("upper", 1) else "le"
    keep = B.pointwise(b, side, below, k if isinstance(k, int) else b.size(k))
    return B.where(b, keep, x, B.full(b, 0, B.dtype_of(x)))


@row("EyeLike")
def _eye_like(call: Call) -> Value:
    b = call.b
    height, width = call.shape(0)
    dtype = element_name(call.attr("dtype"), "EyeLike") if call.attr("dtype") else call.dtype(0)
    apart = B.pointwise(b, "sub", B.iota(b, width, 1, 2), B.iota(b, height, 0, 2))
    return B.cast_to(b, B.pointwise(b, "eq", apart, call.attr("k", 0)), dtype)


@row("MelWeightMatrix")
def _mel_weights(call: Call) -> Known:
    """Triangles of frequencies, evenly spaced on the mel scale."""
    n_bins, length, rate, low, high = (call.numbers(i).reshape(-1)[0].item() for i in range(5))
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = np.arange(n_bins + 2) * ((ends[1] - ends[0]) / (n_bins + 2)) + ends[0]
    places = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    made = np.zeros((length // 2 + 1, n_bins))
    for i, (start, middle, end) in enumerate(zip(places, places[1:], places[2:], strict=False)):
        if middle == start:
            made[middle, i] = 1
        else:
            made[start : middle + 1, i] = np.arange(middle + 1 - start) / (middle - start)
        if end > middle:
            made[middle:end, i] = (end - np.arange(middle, end)) / (end - middle)
    dtype = element_name(call.attr("output_datatype", onnx.TensorProto.FLOAT), "MelWeightMatrix")
    return known(made, dtype)
