"""torchao's operators of affine quantisation: a scale for each block of `block_size` elements.

A block takes all of an axis, one index of it, or a number of indices that divides it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.dims import DimExpr, equal, product
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from . import build as B
from .declare import Composite
from .pointwise import clamp, sub
from .quantize import dequantized, quantized, spread, with_zero
from .rules import show

Blocks = Sequence[DimExpr]
LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1)}
SMALLEST = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14, "f64": 2.0**-1022}  # normal numbers


def _limits(low: B.Number | None, high: B.Number | None, dtype: str) -> tuple[B.Number, B.Number]:
    """The range of quantised values, by default the dtype's."""
    least, most = LIMITS[dtype]
    return least if low is None else low, most if high is None else high


def _counts(op: str, x: Value, blocks: Blocks) -> tuple[DimExpr, ...]:
    """The number of blocks along each axis of `x`."""
    shape = B.shape_of(x)
    if len(blocks) != len(shape):
        raise ShapeError(f"{op}: block_size has {len(blocks)} axes; {show(shape)} has {len(shape)}")
    counts: list[DimExpr] = []
    for size, block in zip(shape, blocks, strict=True):
        if B.is_one(block) or equal(size, block):
            counts.append(size if B.is_one(block) else 1)
        elif isinstance(size, int) and isinstance(block, int) and block > 0 and size % block == 0:
            counts.append(size // block)
        else:
            raise ShapeError(f"{op}: blocks of {show(tuple(blocks))} do not divide {show(shape)}")
    return tuple(counts)


def choose_qparams_affine(
    b: Builder, x: Value, mapping_type: str, block_size: Blocks, target_dtype: str,
    quant_min: B.Number | None = None, quant_max: B.Number | None = None, eps: float | None = None,
    scale_dtype: str | None = None, zero_point_dtype: str | None = None, keepdim: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """The scale and the zero point of each block, from its least and greatest element."""
    low, high = _limits(quant_min, quant_max, target_dtype)
    dtype = B.dtype_of(x)
    least, most = with_zero(b, *(_extreme(b, op, x, block_size, keepdim) for op in ("min", "max")))
    if mapping_type == "ASYMMETRIC":
        scale = B.pointwise(b, "div", sub(b, most, least), float(high - low))
    elif mapping_type == "SYMMETRIC":
        most = B.pointwise(b, "maximum", b.one("neg", least), most)
        scale = B.pointwise(b, "div", most, float(high - low) / 2)
    elif mapping_type == "SYMMETRIC_NO_CLIPPING_ERR":
        below, above = B.pointwise(b, "div", least, float(low)), B.pointwise(b, "div", most, float(high))
        scale = B.where(b, B.pointwise(b, "gt", below, above), below, above)
    else:
        raise UnsupportedOp(f"choose_qparams_affine: mapping_type {mapping_type!r}")
    scale = B.pointwise(b, "maximum", scale, SMALLEST[dtype] if eps is None else eps)
    if mapping_type == "ASYMMETRIC":
        rounded = b.one("round", B.pointwise(b, "div", least, scale))
        zero = B.cast_to(b, clamp(b, sub(b, low, rounded), low, high), zero_point_dtype or "i32")
    else:
        middle = int((high + low + 1) / 2)
        zero = B.full(b, middle, zero_point_dtype or dtype, B.shape_of(scale))
    return B.cast_to(b, scale, scale_dtype or dtype), zero


def _extreme(b: Builder, op: str, x: Value, blocks: Blocks, keepdim: bool) -> Value:
    """The least or greatest element of each block; with `keepdim` of x's rank, else without reduced axes."""
    counts = _counts("choose_qparams_affine", x, blocks)
    split: list[DimExpr] = []
    reduced, kept = [], []
    for size, block, count in zip(B.shape_of(x), blocks, counts, strict=True):
        if B.is_one(block):
            split.append(size)
            kept.append(count)
        elif equal(size, block):
            reduced.append(len(split))
            split.append(size)
        else:
            reduced.append(len(split) + 1)
            split += [count, block]
            kept.append(count)
    result = B.reduce(b, f"reduce_{op}", B.reshape(b, x, split), reduced, keepdim=False) if reduced else x
    return B.reshape(b, result, counts if keepdim else tuple(kept))


def quantize_affine(
    b: Builder, x: Value, block_size: Blocks, scale: Value, zero_point: Value | None, output_dtype: str,
    quant_min: B.Number | None = None, quant_max: B.Number | None = None,
) -> Value:  # fmt: skip
    """round(x / scale) + zero_point, within the limits of the dtype or those given."""
    low, high = _limits(quant_min, quant_max, output_dtype)
    counts, shape = _counts("quantize_affine", x, block_size), B.shape_of(x)
    inverse = spread(b, B.reshape(b, b.one("reciprocal", scale), counts), shape)
    zero = None
    if zero_point is not None and not equal(
        product(B.shape_of(zero_point)), 0
    ):  # torchao writes that for none
        zero = spread(b, B.reshape(b, zero_point, counts), shape)
    return quantized(b, x, inverse, zero, low, high, output_dtype)


def dequantize_affine(
    b: Builder, q: Value, block_size: Blocks, scale: Value, zero_point: Value | None, input_dtype: str,
    quant_min: B.Number | None = None, quant_max: B.Number | None = None, output_dtype: str = "f32",
) -> Value:  # fmt: skip
    """(q - zero_point) * scale."""
    counts = _counts("dequantize_affine", q, block_size)
    zero = None if zero_point is None else B.reshape(b, zero_point, counts)
    return dequantized(b, q, B.reshape(b, scale, counts), zero, output_dtype)


OPS = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("torchao.choose_qparams_affine.default",), choose_qparams_affine),
    Composite(("torchao.quantize_affine.default",), quantize_affine),
    Composite(("torchao.dequantize_affine.default",), dequantize_affine),
)
