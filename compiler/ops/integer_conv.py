"""Convolutions of bytes by a constant, in the forms that kernels have.

Kernels multiply u8 by i8, four channels of a tap together, and have exact sums in i32. Narrow groups, mainly
depthwise ones, multiply u8 by f32, with short and therefore exact sums. Padding is the image's zero point,
which kernels support only if it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..ir.dims import DimExpr
from ..ir.graph import Builder, Value
from . import build as B
from .integer_product import SHIFT, STEP, is_short_enough

MAX_EXACT_F32 = (1 << 24) // (255 * 128)  # steps of a sum of bytes that f32 holds exactly


@dataclass(frozen=True)
class Image:
    """An image [N, spatial.., C] of bytes, whose `zero` represents 0: a number, or a tensor [] in i32."""

    q: Value
    zero: int | Value

    def in_u8(self, b: Builder) -> Image:
        """Return it in u8: bytes of i8 are moved by SHIFT."""
        if B.dtype_of(self.q) == "u8":
            return self
        moved = B.pointwise(b, "add", B.cast_to(b, self.q, "i32"), SHIFT)
        zero = self.zero + SHIFT if isinstance(self.zero, int) else B.pointwise(b, "add", self.zero, SHIFT)
        return Image(B.cast_to(b, moved, "u8"), zero)

    def padded(self, b: Builder, attrs: dict[str, Any]) -> tuple[Image, dict[str, Any]]:
        """Return it with its padding, where that is not 0, and the attributes of the convolution then."""
        if _is_zero(self) or not any((*attrs["low"], *attrs["high"])):
            return self, attrs
        amounts = [(0, 0), *zip(attrs["low"], attrs["high"], strict=True), (0, 0)]
        none = (0,) * len(attrs["low"])
        return Image(_pad(b, self.q, amounts, self.zero), self.zero), {**attrs, "low": none, "high": none}


def _is_zero(image: Image) -> bool:
    return isinstance(image.zero, int) and image.zero == 0


def integer_conv(
    b: Builder, image: Image, weight: np.ndarray, name: str, attrs: dict[str, Any], is_narrow: bool
) -> Value | None:
    """Return the convolution of (image - zero) by a weight [taps * C / groups, F] in i8, in f32; None if no
    kernel computes it exactly. `is_narrow`: a kernel for narrow groups does."""
    is_spread = any(step != 1 for step in attrs["expansion"])
    if is_spread and not _is_zero(image):
        return None  # what lies between the elements would be the zero point
    k = len(weight)
    if is_narrow:
        if k > MAX_EXACT_F32:
            return None
        image, attrs = image.in_u8(b).padded(b, attrs)
        result = b.one("conv", image.q, b.constant(weight.astype(np.float32), "f32", name), **attrs)
        return _without_zero(b, result, weight, image.zero, name, "f32")
    groups, taps = attrs["groups"], prod(attrs["kernel"])
    left = -(k // taps) % STEP
    if (left and groups > 1) or not is_short_enough(k):
        return None
    image, attrs = image.in_u8(b).padded(b, attrs)
    if left:
        channels = weight.reshape(taps, -1, weight.shape[1])
        weight = np.pad(channels, ((0, 0), (0, left), (0, 0))).reshape(-1, weight.shape[1])
        amounts = [*((0, 0) for _ in B.shape_of(image.q)[:-1]), (0, left)]
        image = Image(_pad(b, image.q, amounts), image.zero)
    result = b.one("conv", image.q, b.constant(np.ascontiguousarray(weight), "i8", name), **attrs)
    return B.cast_to(b, _without_zero(b, result, weight, image.zero, name, "i32"), "f32")


def _pad(b: Builder, q: Value, amounts: Sequence[tuple[DimExpr, DimExpr]], value: int | Value = 0) -> Value:
    """Return an image with its padding: before channels become its last axis, as lines are longer there."""
    node = q.node
    if node is None or node.op != "permute":
        return B.pad(b, q, amounts, value) if isinstance(value, int) else _pad_with(b, q, amounts, value)
    axes = node.attrs["axes"]
    before = [amounts[axes.index(axis)] for axis in range(len(axes))]
    return B.permute(b, B.pad(b, node.arg(0), before, value), axes)


def _pad_with(b: Builder, q: Value, amounts: Sequence[tuple[DimExpr, DimExpr]], value: Value) -> Value:
    """Return bytes with a padding that is known at run time only."""
    moved = B.pad(b, B.pointwise(b, "sub", B.cast_to(b, q, "i32"), value), amounts)
    return B.cast_to(b, B.pointwise(b, "add", moved, value), "u8")


def _without_zero(
    b: Builder, sums: Value, weight: np.ndarray, zero: int | Value, name: str, dtype: str
) -> Value:
    """Return sums of an image without what its zero point adds."""
    if isinstance(zero, int) and not zero:
        return sums
    held, columns = np.float32 if dtype == "f32" else np.int32, weight.sum(0, dtype=np.int64)
    if isinstance(zero, int):
        taken = b.constant((columns * zero).astype(held), dtype, f"{name}.sums")
    else:
        factors = b.constant(columns.astype(held), dtype, f"{name}.sums")
        taken = B.pointwise(b, "mul", factors, B.cast_to(b, zero, dtype))
    return B.pointwise(b, "sub", sums, taken)
