"""Affine quantisation: the composite `dequantize`, and the operators of torch's quantisers.

A quantised tensor q represents (q - zero_point) * scale. A scale belongs to a block of elements: to the whole
tensor, a channel, a row of activations, or a group of a row. Its tensor has q's rank, and each of its axes
divides q's. Quantisation is imported as ordinary arithmetic. `dequantize` stays one operator until the pass
`move_scales` has found products of quantised tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, format_dim
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Node, Value
from ..ir.types import FLOAT_DTYPES, INT_DTYPES, TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .pointwise import clamp, sub
from .reduce import extremum
from .rules import COMPUTE, Attrs, Types, check_dtype, show, tensor

Shape = tuple[DimExpr, ...]

EPS = float(np.finfo(np.float32).eps)

# The operator -------------------------------------------------------------------------------------


def _infer_dequantize(types: Types, attrs: Attrs) -> Sequence[Type]:
    q, scale = tensor("dequantize", types, 0), tensor("dequantize", types, 1)
    check_dtype("dequantize", q.dtype, INT_DTYPES)
    check_dtype("dequantize", attrs["dtype"], FLOAT_DTYPES)
    for factor in (scale, *(tensor("dequantize", types, 2) for _ in types[2:] if types[2] is not None)):
        if factor.rank != q.rank or not all(map(_divides, factor.shape, q.shape)):
            raise ShapeError(
                f"dequantize: a scale or zero point has shape {show(factor.shape)}; its axes must "
                f"divide those of {show(q.shape)}"
            )
    return (TensorType(attrs["dtype"], q.shape),)


def _divides(blocks: DimExpr, size: DimExpr) -> bool:
    """Whether an axis of `size` elements has `blocks` blocks."""
    if B.is_one(blocks) or equal(blocks, size):
        return True
    return isinstance(blocks, int) and isinstance(size, int) and blocks > 0 and size % blocks == 0


def _dequantize(args: Sequence[Any], attrs: Attrs) -> Any:
    q, scale, zero = args
    wide = np.result_type(scale, np.float32)
    result = q.astype(wide)
    if zero is not None:
        result = result - repeated(zero, q.shape).astype(wide)
    return (result * repeated(scale, q.shape)).astype(COMPUTE[attrs["dtype"]])


def repeated(x: Any, shape: Sequence[int]) -> Any:
    """Return an array, whose axes divide those of `shape`, with each element repeated over its block."""
    for axis, size in enumerate(shape):
        x = np.repeat(x, size // x.shape[axis], axis) if x.shape[axis] else x
    return x


def _decompose_dequantize(b: Builder, node: Node) -> Sequence[Value]:
    q, scale, *zeros = (arg for arg in node.args if arg is not None)
    dtype = node.attrs["dtype"]
    wide = B.common_dtype(B.full(b, 0, dtype, (1,)), scale)
    result = B.cast_to(b, q, wide)
    for zero in zeros:
        result = b.one("sub", result, spread(b, B.cast_to(b, zero, wide), B.shape_of(q)))
    return [B.cast_to(b, b.one("mul", result, spread(b, B.cast_to(b, scale, wide), B.shape_of(q))), dtype)]


def spread(b: Builder, x: Value, shape: Shape) -> Value:
    """Return `x`, whose axes divide those of `shape`, with each element repeated over its block."""
    for axis, (size, blocks) in enumerate(zip(shape, B.shape_of(x), strict=True)):
        if equal(size, blocks) or B.is_one(blocks):
            continue
        before, after = B.shape_of(x)[:axis], B.shape_of(x)[axis + 1 :]
        x = B.reshape(b, x, (*before, blocks, 1, *after))
        x = B.expand(b, x, (*before, blocks, B.divide(size, blocks), *after))
        x = B.reshape(b, x, (*before, size, *after))
    return B.expand(b, x, shape)


OPS: tuple[Op, ...] = (
    Op(
        "dequantize",
        "composite",
        "dequantize(Tensor q, Tensor scale, Tensor? zero_point; dtype) -> Tensor",
        "(q - zero_point) * scale; a scale and a zero point belong to a block of q: their axes divide q's.",
        _infer_dequantize,
        _dequantize,
        decompose=_decompose_dequantize,
        samples=(
            Sample(("i8[4, 6]", "f32[4, 1]", ""), {"dtype": "f32"}),
            Sample(("u8[s0, 6]", "f32[1, 1]", "i32[1, 1]"), {"dtype": "f32"}),
            Sample(("i8[4, 6]", "f32[4, 3]", "i8[4, 3]"), {"dtype": "f32"}),
            Sample(("i8[s0, 5]", "f64[s0, 1]", "i64[s0, 1]"), {"dtype": "f32"}),
            Sample(("i8[0, 5]", "f32[1, 1]", ""), {"dtype": "bf16"}),
        ),
        errors=(
            (
                Sample(("i8[4, 6]", "f32[4, 4]", ""), {"dtype": "f32"}),
                "dequantize: a scale or zero point has shape [4, 4]; its axes must divide those of [4, 6]",
            ),
        ),
    ),
)


# torch's operators --------------------------------------------------------------------------------


def dequantized(b: Builder, q: Value, scale: B.Tensorlike, zero: B.Tensorlike | None, dtype: str) -> Value:
    """(q - zero) * scale in `dtype`; scale and zero are numbers, or of q's rank, or of one element."""
    rank = len(B.shape_of(q))
    if not isinstance(scale, Value):
        scale = B.full(b, scale, dtype)
    if zero is not None and (B.uniform(zero) if isinstance(zero, Value) else zero) == 0:
        zero = None
    factors = [scale] if zero is None else [scale, B.tensor_of(b, zero)]
    shaped = [x if len(B.shape_of(x)) == rank else B.reshape(b, x, (1,) * rank) for x in factors]
    return b.one("dequantize", q, *shaped, *([None] if zero is None else []), dtype=dtype)


def quantized(
    b: Builder, x: Value, inverse: B.Tensorlike, zero: B.Tensorlike | None, low: B.Number,
    high: B.Number, dtype: str, zero_first: bool = False,
) -> Value:  # fmt: skip
    """round(x * inverse) + zero, limited to low .. high; `zero_first`: zero is added before rounding."""
    return rounded(b, B.pointwise(b, "mul", x, inverse), zero, low, high, dtype, zero_first)


def rounded(
    b: Builder, scaled: Value, zero: B.Tensorlike | None, low: B.Number, high: B.Number, dtype: str,
    zero_first: bool = False,
) -> Value:  # fmt: skip
    """round(scaled) + zero, limited to low .. high; `zero_first`: zero is added before rounding."""
    shift: Callable[[Value], Value] = (
        (lambda y: y) if zero is None else (lambda y: B.pointwise(b, "add", y, _as_float(b, zero, y)))
    )
    whole = b.one("round", shift(scaled)) if zero_first else shift(b.one("round", scaled))
    return B.cast_to(b, clamp(b, whole, low, high), dtype)


def _as_float(b: Builder, zero: B.Tensorlike, like: Value) -> B.Tensorlike:
    return B.cast_to(b, zero, B.dtype_of(like)) if isinstance(zero, Value) else zero


def _in_f32(b: Builder, x: Value) -> Value:
    return B.cast_to(b, x, "f32") if B.dtype_of(x) in ("f16", "bf16") else x


def quantize_per_tensor(
    b: Builder, x: Value, scale: B.Tensorlike, zero: B.Tensorlike, low: B.Tensorlike, high: B.Tensorlike,
    dtype: str,
) -> Value:  # fmt: skip
    """One scale for all of x. A scale in a tensor is inverted in f64, like a Python number."""
    if isinstance(scale, Value):
        scale = B.cast_to(b, b.one("reciprocal", B.cast_to(b, B.reshape(b, scale, ()), "f64")), "f32")
    else:
        scale = 1.0 / scale
    if isinstance(zero, Value):
        zero = B.reshape(b, zero, ())
    return quantized(b, _in_f32(b, x), scale, zero, _number(b, low), _number(b, high), dtype)


def _number(b: Builder, limit: B.Tensorlike) -> Any:
    return B.cast_to(b, B.reshape(b, limit, ()), "f32") if isinstance(limit, Value) else limit


def dequantize_per_tensor(
    b: Builder, q: Value, scale: B.Tensorlike, zero: B.Tensorlike, low: B.Tensorlike, high: B.Tensorlike,
    dtype: str, *, out_dtype: str | None = None,
) -> Value:  # fmt: skip
    """One scale for all of q."""
    wide = out_dtype or "f32"
    if isinstance(scale, Value):
        scale = B.cast_to(b, scale, wide)
    return dequantized(b, q, scale, zero, wide)


def _along(b: Builder, x: Value, axis: int, rank: int) -> Value:
    """A factor for each index of an axis, with the rank of its operand."""
    (size,) = B.shape_of(x)
    return B.reshape(b, x, tuple(size if i == axis % rank else 1 for i in range(rank)))


def quantize_per_channel(
    b: Builder, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, dtype: str
) -> Value:
    """A scale for each index of an axis."""
    rank = len(B.shape_of(x))
    inverse, zero = (_along(b, y, axis, rank) for y in (b.one("reciprocal", scales), zeros))
    return quantized(b, _in_f32(b, x), inverse, zero, low, high, dtype)


def dequantize_per_channel(
    b: Builder, q: Value, scales: Value, zeros: Value | None, axis: int, low: int, high: int, dtype: str, *,
    out_dtype: str | None = None,
) -> Value:  # fmt: skip
    """A scale for each index of an axis."""
    zero = None if zeros is None else _per_index(b, zeros, q, axis)
    return dequantized(b, q, _per_index(b, scales, q, axis), zero, out_dtype or "f32")


def _per_index(b: Builder, factors: Value, q: Value, axis: int) -> Value:
    """A factor for each index of q's axis, or one for all; their number may be checked at run time."""
    (size,), shape = B.shape_of(factors), B.shape_of(q)
    if not B.is_one(size) and not B.is_known(shape[axis] - size):
        factors = B.of_size(b, "dequantize_per_channel", factors, 0, shape[axis])
    return _along(b, factors, axis, len(shape))


def _per_token(b: Builder, factor: Value, like: Value) -> Value:
    return B.reshape(b, factor, (*B.shape_of(like)[:-1], 1))


def quantize_per_token(
    b: Builder, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: str
) -> Value:
    """A scale for each row; the zero point is added before rounding."""
    inverse = B.cast_to(b, _per_token(b, b.one("reciprocal", scales), x), B.common_dtype(x, scales))
    return quantized(b, x, inverse, _per_token(b, zeros, x), low, high, dtype, zero_first=True)


def dequantize_per_token(
    b: Builder, q: Value, scales: Value, zeros: Value, low: int, high: int, dtype: str,
    output_dtype: str = "f32",
) -> Value:  # fmt: skip
    """A scale for each row."""
    return dequantized(b, q, _per_token(b, scales, q), _per_token(b, zeros, q), output_dtype)


def quantize_per_channel_group(
    b: Builder, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: str, group_size: int = 128
) -> Value:
    """A scale for each group of `group_size` elements of a row; the zero point is added before rounding."""
    x, columns = _of_groups(b, "quantize_per_channel_group", x, scales, group_size)
    shape = _groups(x, scales, group_size)
    inverse = spread(b, B.reshape(b, b.one("reciprocal", scales), shape), B.shape_of(x))
    zero = spread(b, B.reshape(b, zeros, shape), B.shape_of(x))
    result = quantized(b, x, inverse, zero, low, high, dtype, zero_first=True)
    return B.of_size(b, "quantize_per_channel_group", result, 1, columns)


def dequantize_per_channel_group(
    b: Builder, q: Value, scales: Value, zeros: Value | None, low: int, high: int, dtype: str,
    group_size: int = 128, output_dtype: str = "f32",
) -> Value:  # fmt: skip
    """A scale for each group of `group_size` elements of a row."""
    q, columns = _of_groups(b, "dequantize_per_channel_group", q, scales, group_size)
    shape = _groups(q, scales, group_size)
    zero = None if zeros is None else B.reshape(b, zeros, shape)
    result = dequantized(b, q, B.reshape(b, scales, shape), zero, output_dtype)
    return B.of_size(b, "dequantize_per_channel_group", result, 1, columns)


def _of_groups(b: Builder, op: str, x: Value, scales: Value, group_size: int) -> tuple[Value, DimExpr]:
    """Return x, whose rows have the total length of the groups, which is checked at run time if necessary;
    and the length of x by its type."""
    shape, groups = B.shape_of(x), B.shape_of(scales)[-1]
    if len(shape) != 2:
        raise UnsupportedOp(f"groups of a tensor of shape {show(shape)}; it must be [rows, columns]")
    columns = shape[1]
    if B.is_known(columns):
        return x, columns
    if B.is_one(groups):
        message = (
            f"{op}: rows of {format_dim(columns)} with one scale must have at most {group_size} elements"
        )
        add_guard(b, sympy.Le(sympy.sympify(columns), group_size), message)
        return x, columns
    return B.of_size(b, op, x, 1, groups * group_size), columns


def _groups(x: Value, scales: Value, group_size: int) -> Shape:
    """The shape of one factor for each group of x [rows, columns]."""
    rows, columns = B.shape_of(x)
    groups = B.shape_of(scales)[-1]
    if not isinstance(columns, int):
        return (rows, groups)
    size = columns if group_size > columns and B.is_one(groups) else group_size
    if size < 1 or columns % size:
        raise ShapeError(f"groups of {size} elements in rows of {columns}: the rows must be a multiple of it")
    return (rows, columns // size)


def with_zero(b: Builder, least: Value, most: Value) -> tuple[Value, Value]:
    """A range, widened until zero is in it."""
    return B.pointwise(b, "minimum", least, 0.0), B.pointwise(b, "maximum", most, 0.0)


def choose_qparams(
    b: Builder, x: Value, low: int, high: int, eps: float, dtype: str, is_symmetric: bool = False
) -> tuple[Value, Value]:
    """The scale [1] in f64 and the zero point [1] in i64, from x's least and greatest element."""
    least, most = with_zero(b, *(extremum(op)(b, x) for op in ("min", "max")))
    steps = float(high - low)
    if is_symmetric:
        most, steps = B.pointwise(b, "maximum", b.one("neg", least), most), steps / 2
        scale = B.pointwise(b, "div", most, steps)
        zero = B.full(b, 128 if dtype == "u8" else 0, "i64")
    else:
        scale = B.pointwise(b, "div", sub(b, most, least), steps)
    scale = B.pointwise(b, "maximum", B.cast_to(b, scale, "f32"), eps)
    if not is_symmetric:
        rounded = B.cast_to(b, b.one("round", B.pointwise(b, "div", least, scale)), "i32")
        zero = B.cast_to(b, clamp(b, sub(b, B.full(b, low, "i32"), rounded), low, high), "i64")
    return B.reshape(b, B.cast_to(b, scale, "f64"), (1,)), B.reshape(b, zero, (1,))


def choose_qparams_per_token_asymmetric(b: Builder, x: Value, dtype: str) -> tuple[Value, Value]:
    """The scales in f64 and the zero points in i64 of rows from their least and greatest elements and 0."""
    low, high = -128, 127
    least, most = with_zero(b, *(extremum(op)(b, x, -1, keepdim=True) for op in ("min", "max")))
    scale = B.pointwise(b, "div", sub(b, most, least), float(high - low))
    scale = B.pointwise(b, "maximum", scale, EPS)
    below, above = (B.pointwise(b, "div", x, scale) for x in (least, most))
    errors = B.pointwise(b, "add", B.pointwise(b, "add", below, low), B.pointwise(b, "add", above, high))
    zero = B.where(b, B.pointwise(b, "gt", errors, 0.0), sub(b, low, below), sub(b, high, above))
    zero = b.one("round", clamp(b, zero, low, high))
    return B.cast_to(b, scale, "f64"), B.cast_to(b, zero, "i64")


def weight_int8pack_mm(b: Builder, x: Value, weight: Value, scales: Value) -> Value:
    """x times a transposed weight [N, K] of bytes, whose rows have a scale each."""
    rows = dequantized(b, weight, _along(b, scales, 0, 2), None, B.dtype_of(x))
    return b.one("linear", x, rows, None)


def convert_element_type(b: Builder, x: Value, dtype: str) -> Value:
    """x as `dtype`."""
    return B.cast_to(b, x, dtype)


_NAMESPACE = "quantized_decomposed."


def _of(name: str, expand: Callable[..., Any], *overloads: str) -> Composite:
    return Composite(
        tuple(f"{_NAMESPACE}{name}.{overload}" for overload in overloads or ("default",)), expand
    )


COMPOSITES: tuple[Composite, ...] = (
    _of("quantize_per_tensor", quantize_per_tensor, "default", "tensor", "tensor2"),
    _of("dequantize_per_tensor", dequantize_per_tensor, "default", "tensor", "tensor2"),
    _of("quantize_per_channel", quantize_per_channel),
    _of("dequantize_per_channel", dequantize_per_channel),
    _of("quantize_per_token", quantize_per_token),
    _of("dequantize_per_token", dequantize_per_token),
    _of("quantize_per_channel_group", quantize_per_channel_group),
    _of("dequantize_per_channel_group", dequantize_per_channel_group),
    _of("choose_qparams", choose_qparams, "tensor"),
    _of("choose_qparams_symmetric", partial(choose_qparams, is_symmetric=True), "tensor"),
    _of("choose_qparams_per_token_asymmetric", choose_qparams_per_token_asymmetric),
    _of("_choose_qparams_per_token_asymmetric_impl", choose_qparams_per_token_asymmetric),
    _of("convert_element_type", convert_element_type, "no_fuse"),
    Composite(("aten._weight_int8pack_mm.default",), weight_int8pack_mm),
)
