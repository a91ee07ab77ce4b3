"""Quantised tensors: (q - zero point) * scale. Those of the standard, and those of ONNX Runtime's that are an
operator on floats between dequantisation and quantisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.dims import equal, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.integer_product import int_mm
from ....ops.quantize import rounded, spread, with_zero
from ..known import NUMPY, Known
from ..reader import element_name
from ..rows import Call, Operand, row
from .products import conv_of

MICROSOFT = "com.microsoft"
FLOATS = ("f32", "f16", "bf16", "f64")


# One tensor


def _factor(call: Call, x: Value, i: int, axis: int) -> Value | None:
    """Return the scale or zero point that input `i` is, with the rank of x; its axes divide those of x. None
    if it is left out."""
    if not call.has(i):
        return None
    b, factor, shape = call.b, call.value(i), B.shape_of(x)
    sizes = B.shape_of(factor)
    if len(sizes) < 2 and all(map(B.is_one, sizes)):
        return B.reshape(b, factor, [1] * len(shape))
    axis = B.axis_of(call.op, axis, len(shape))
    if len(sizes) == 1 and not call.attr("block_size", 0):
        factor = B.of_size(b, call.op, factor, 0, shape[axis])
        return B.reshape(b, factor, [shape[axis] if at == axis else 1 for at in range(len(shape))])
    block, count = call.attr("block_size", 0), sizes[axis]
    if not block or B.is_one(count) or equal(simplify(count * block), shape[axis]):
        return factor
    whole = spread(b, factor, (*sizes[:axis], simplify(count * block), *sizes[axis + 1 :]))
    return B.take(b, whole, axis, 0, shape[axis])


def _is_zero(call: Call, i: int) -> bool:
    found = call.input(i) if call.has(i) else None
    return found is None or (isinstance(found, Known) and not found.is_symbolic and not found.items.any())


def dequantised(call: Call, i: int, axis: int = 1, dtype: str | None = None) -> Value:
    """Return the tensor that inputs `i` (integers), `i` + 1 (scale) and `i` + 2 (zero point) stand for."""
    q = call.value(i)
    scale = _factor(call, q, i + 1, axis)
    assert scale is not None
    zero = None if _is_zero(call, i + 2) else _factor(call, q, i + 2, axis)
    return call.b.one("dequantize", q, scale, zero, dtype=dtype or B.dtype_of(scale))


def quantised(call: Call, x: Value, i: int, axis: int = 1, dtype: str = "u8") -> Value:
    """Return x in integers by inputs `i` (scale) and `i` + 1 (zero point, whose dtype is that of the
    result; else `dtype`)."""
    b, shape = call.b, B.shape_of(x)
    scale = _factor(call, x, i, axis)
    assert scale is not None
    x = x if B.dtype_of(x) == "f64" else B.cast_to(b, x, "f32")
    scaled = B.pointwise(b, "div", x, spread(b, B.cast_to(b, scale, B.dtype_of(x)), shape))
    dtype = call.dtype(i + 1) if call.has(i + 1) else dtype
    zero = None if _is_zero(call, i + 1) else _factor(call, x, i + 1, axis)
    return _within(call, scaled, None if zero is None else spread(b, zero, shape), dtype)


def _within(call: Call, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """Return a scaled tensor rounded to integers, plus the zero point."""
    if dtype not in ("u8", "i8", "i16"):
        raise UnsupportedOp(f"{call.op}: integers of {dtype} cannot be compiled; use u8, i8 or i16")
    limits = np.iinfo(NUMPY[dtype])
    return rounded(call.b, scaled, zero, limits.min, limits.max, dtype)


for _domain in ("", MICROSOFT):

    @row("QuantizeLinear", domain=_domain)
    def _quantize(call: Call) -> Value:
        said = call.attr("output_dtype", 0)
        dtype = element_name(said, "the result of QuantizeLinear") if said else "u8"
        return quantised(call, call.value(0), 1, call.attr("axis", 1), dtype)

    @row("DequantizeLinear", domain=_domain)
    def _dequantize(call: Call) -> Value:
        said = call.attr("output_dtype", 0)
        dtype = element_name(said, "the result of DequantizeLinear") if said else None
        return dequantised(call, 0, call.attr("axis", 1), dtype)


@row("DynamicQuantizeLinear")
def _dynamic(call: Call) -> tuple[Value, Value, Value]:
    return dynamically_quantised(call, call.value(0))


def dynamically_quantised(call: Call, x: Value) -> tuple[Value, Value, Value]:
    """Return x in u8, its scale and its zero point, from its least and greatest element and 0."""
    b = call.b
    axes = list(range(len(B.shape_of(x))))
    least, most = with_zero(b, *(B.reduce(b, op, x, axes, False) for op in ("reduce_min", "reduce_max")))
    room = B.pointwise(b, "sub", most, least)
    is_flat = B.pointwise(b, "eq", room, 0.0)
    scale = B.where(b, is_flat, B.full(b, 1.0, "f32"), B.pointwise(b, "div", room, 255.0))
    zero = _within(call, B.pointwise(b, "div", b.one("neg", least), scale), None, "u8")
    return _within(call, B.pointwise(b, "div", x, scale), zero, "u8"), scale, zero


# Products


def integers(call: Call, x: Value, x_zero: Value | None, at: int, zero_at: int) -> Value:
    """Return the product, in i32, of x and the matrix that input `at` is, without their zero points: those of
    rows of x, and input `zero_at`, of columns."""
    y, zero = call.value(at), call.input(zero_at) if call.has(zero_at) else None
    given: Any = None
    if isinstance(zero, Known):
        given = zero.items
    elif zero is not None:
        given = call.scope.value(zero)
    return int_mm(call.b, x, y, x_zero, given)


def zero_of_rows(call: Call, i: int, rank: int) -> Value | None:
    """Return input `i`, one zero point or scale or one for each row, with the rank of its tensor or none."""
    if not call.has(i):
        return None
    sizes = call.shape(i)
    if len(sizes) != 1 or B.is_one(sizes[0]):
        return call.value(i) if len(sizes) > 1 else B.reshape(call.b, call.value(i), [])
    return B.reshape(call.b, call.value(i), [*[1] * (rank - 2), sizes[0], 1])


@row("MatMulInteger")
def _matmul_integer(call: Call) -> Value:
    x = call.value(0)
    return integers(call, x, None if _is_zero(call, 2) else zero_of_rows(call, 2, len(B.shape_of(x))), 1, 3)


@row("QLinearMatMul")
def _qlinear_matmul(call: Call) -> Value:
    b, x = call.b, call.value(0)
    rank = len(B.shape_of(x))
    zero = None if _is_zero(call, 2) else zero_of_rows(call, 2, rank)
    sums = B.cast_to(b, integers(call, x, zero, 3, 5), "f32")
    left = zero_of_rows(call, 1, rank)
    assert left is not None
    scale, whole = (B.cast_to(b, each, "f32") for each in (left, call.value(6)))
    scale = B.pointwise(b, "mul", scale, B.cast_to(b, call.value(4), "f32"))
    scaled = B.pointwise(b, "mul", sums, B.pointwise(b, "div", scale, whole))
    return _within(call, scaled, None if _is_zero(call, 7) else call.value(7), call.dtype(7))


@row("ConvInteger")
def _conv_integer(call: Call) -> Value:
    """Sums beyond 2^24 are rounded to f32."""
    b = call.b
    one = Known(np.ones((), np.float32), "f32")
    given = [*call.inputs, None, None]
    pairs = replace(call, inputs=[given[0], one, given[2], given[1], one, given[3]])
    made = conv_of(call, dequantised(pairs, 0), dequantised(pairs, 3, 0), None)
    return B.cast_to(b, b.one("round", made), "i32")


@row("QLinearConv")
def _qlinear_conv(call: Call) -> Value:
    made = conv_of(call, dequantised(call, 0), dequantised(call, 3, 0), _bias(call, 8))
    return quantised(call, made, 6)


def _bias(call: Call, i: int) -> Value | None:
    """Return the bias that input `i` is, whose scale is the product of those of the operands, inputs 1
    and 4."""
    if not call.has(i):
        return None
    b = call.b
    wide = B.cast_to(b, call.value(i), "f32")
    return B.pointwise(b, "mul", wide, B.pointwise(b, "mul", call.value(1), call.value(4)))


@row("MatMulIntegerToFloat", domain=MICROSOFT)
def _to_float(call: Call) -> Value:
    x = call.value(0)
    rank = len(B.shape_of(x))
    zero, scale = None if _is_zero(call, 4) else zero_of_rows(call, 4, rank), zero_of_rows(call, 2, rank)
    assert scale is not None
    return scaled_sums(call, integers(call, x, zero, 1, 5), (scale, call.value(3)), call.maybe(6))


@row("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_matmul(call: Call) -> Value:
    q, scale, zero = dynamically_quantised(call, call.value(0))
    return scaled_sums(call, integers(call, q, zero, 1, 3), (scale, call.value(2)), call.maybe(4))


def scaled_sums(call: Call, sums: Value, scales: tuple[Value, Value], bias: Value | None) -> Value:
    """Return sums of integers times the operands' scales, plus a bias."""
    b = call.b
    made = B.pointwise(b, "mul", B.cast_to(b, sums, "f32"), B.pointwise(b, "mul", *scales))
    return made if bias is None else B.pointwise(b, "add", made, bias)


@row("QGemm", domain=MICROSOFT)
def _qgemm(call: Call) -> Value:
    x, y = dequantised(call, 0), dequantised(call, 3, 0 if call.attr("transB", 0) else 1)
    bias = _bias(call, 6)
    made = call.apply("Gemm", [x, y, bias])
    return quantised(call, made, 7) if call.has(7) else made


# Operators on floats between dequantisation and quantisation

#: The operator on floats, and how many tensors it takes.
_BETWEEN = {
    "QLinearAdd": ("Add", 2), "QLinearMul": ("Mul", 2), "QLinearSigmoid": ("Sigmoid", 1),
    "QLinearLeakyRelu": ("LeakyRelu", 1), "QLinearAveragePool": ("AveragePool", 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1), "QLinearReduceMean": ("ReduceMean", 1),
    "QLinearSoftmax": ("Softmax", 1),
}  # fmt: skip


@row(*_BETWEEN, domain=MICROSOFT)
def _between(call: Call) -> Value:
    if call.attr("channels_last", 0):
        raise UnsupportedOp(f"{call.op}: channels_last is not compiled; quantise without it")
    name, count = _BETWEEN[call.op]
    given: list[Operand] = [dequantised(call, 3 * i) for i in range(count)]
    made = call.apply(name, given, version=call.attr("opset", 12))
    return quantised(call, made, 3 * count)


@row("QLinearConcat", domain=MICROSOFT)
def _concat(call: Call) -> Value:
    """Inputs: the result's scale and zero point; then each tensor with its own."""
    parts: list[Operand] = [dequantised(call, i) for i in range(2, len(call.inputs), 3)]
    return quantised(call, call.apply("Concat", parts), 0)
