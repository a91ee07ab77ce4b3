"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.dims import DimExpr, product, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Value
from ....ops import build as B
from ....ops.conv import convolve
from ..rows import Call, row


@row("MatMul")
def _matmul(call: Call) -> Value:
    return call.aten("matmul", call.value(0), call.value(1))


@row("Einsum")
def _einsum(call: Call) -> Value:
    return B.cast_to(call.b, call.aten("einsum", call.attr("equation"), call.values()), call.dtype(0))


@row("Gemm")
def _gemm(call: Call) -> Value:
    b, x, y = call.b, call.value(0), call.value(1)
    x = B.permute(b, x, [1, 0]) if call.attr("transA", 0) else x
    alpha, beta = float(call.attr("alpha", 1.0)), float(call.attr("beta", 1.0))
    bias = call.maybe(2)
    if alpha == 1 and call.attr("transB", 0) and (bias is None or (beta == 1 and len(B.shape_of(bias)) == 1)):
        return call.aten("linear", x, y, bias)
    y = B.permute(b, y, [1, 0]) if call.attr("transB", 0) else y
    made = call.aten("mm", x, y)
    made = made if alpha == 1 else B.pointwise(b, "mul", made, alpha, dtype=B.dtype_of(made))
    if bias is None or beta == 0:
        return made
    bias = bias if beta == 1 else B.pointwise(b, "mul", bias, beta, dtype=B.dtype_of(bias))
    return B.pointwise(b, "add", made, bias)


def each(call: Call, name: str, n: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with a number for each axis."""
    return tuple(call.attr(name) or [default] * n)


def padding(
    call: Call, sizes: Sequence[DimExpr], reach: Sequence[Any], stride: Sequence[int]
) -> tuple[tuple[DimExpr, ...], tuple[DimExpr, ...]]:
    """Return how many positions are added before and after each axis. `reach`: the window's length."""
    n, how = len(sizes), call.attr("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        pads = call.attr("pads") or [0] * (2 * n)
        return tuple(pads[:n]), tuple(pads[n:])
    if how == "VALID":
        return (0,) * n, (0,) * n
    low: list[DimExpr] = []
    high: list[DimExpr] = []
    for size, length, step in zip(sizes, reach, stride, strict=True):
        count = B.divide(simplify(size + step - 1), step)
        total = B.positive_part(call.b, simplify((count - 1) * step + length - size))
        less = B.divide(total, 2)
        more = simplify(total - less)
        low.append(less if how == "SAME_UPPER" else more)
        high.append(more if how == "SAME_UPPER" else less)
    return tuple(low), tuple(high)


@row("Conv")
def _conv(call: Call) -> Value:
    return conv_of(call, call.value(0), call.value(1), call.maybe(2))


def conv_of(call: Call, x: Value, weight: Value, bias: Value | None) -> Value:
    """Return a convolution with the attributes of a node."""
    kernel = B.shape_of(weight)[2:]
    n = len(kernel)
    stride, dilation = each(call, "strides", n), each(call, "dilations", n)
    reach = [simplify(d * (k - 1) + 1) for d, k in zip(dilation, kernel, strict=True)]
    low, high = padding(call, B.shape_of(x)[2:], reach, stride)
    if not all(isinstance(each, int) for each in (*low, *high)):
        x = B.pad(call.b, x, [(0, 0), (0, 0), *zip(low, high, strict=True)])
        low = high = (0,) * n
    attrs = {"stride": stride, "dilation": dilation, "low": low, "high": high}
    return convolve(call.b, x, weight, bias, call.attr("group", 1), **attrs)


@row("ConvTranspose")
def _conv_transpose(call: Call) -> Value:
    x, weight = call.value(0), call.value(1)
    kernel = B.shape_of(weight)[2:]
    n = len(kernel)
    stride, dilation = each(call, "strides", n), each(call, "dilations", n)
    extra = each(call, "output_padding", n, 0)
    low, high = _removed(call, B.shape_of(x)[2:], kernel, (stride, dilation, extra))
    made = call.aten("convolution", x, weight, call.maybe(2), stride, (0,) * n, dilation, True, extra,
                     call.attr("group", 1))  # fmt: skip
    for axis, (before, after) in enumerate(zip(low, high, strict=True), 2):
        size = simplify(B.shape_of(made)[axis] - before - after)
        if not isinstance(before, int) or before < 0 or (isinstance(after, int) and after < 0):
            amounts: list[Any] = [(0, 0)] * (n + 2)
            amounts[axis] = (-before, -after)
            made = B.pad(call.b, made, amounts)
        else:
            made = B.take(call.b, made, axis, before, size)
    return made


def _removed(
    call: Call, sizes: Sequence[DimExpr], kernel: Sequence[Any], steps: Sequence[Sequence[int]]
) -> tuple[list[Any], list[Any]]:
    """Return how many positions of the whole result are cut off before and after each axis."""
    n = len(sizes)
    stride, dilation, extra = steps
    how, wanted = call.attr("auto_pad", "NOTSET"), call.attr("output_shape")
    if wanted is None and how in ("NOTSET", "", "VALID"):
        pads = (call.attr("pads") if how != "VALID" else None) or [0] * (2 * n)
        return list(pads[:n]), list(pads[n:])
    low, high = [], []
    for i in range(n):
        whole = simplify(stride[i] * (sizes[i] - 1) + extra[i] + (kernel[i] - 1) * dilation[i] + 1)
        target = wanted[len(wanted) - n + i] if wanted is not None else simplify(sizes[i] * stride[i])
        total = simplify(whole - target)
        half = B.divide(total, 2)
        less, more = half, simplify(total - half)
        low.append(less if how == "SAME_UPPER" else more)
        high.append(more if how == "SAME_UPPER" else less)
        if not isinstance(total, int) and not B.is_size(call.b, total):
            raise UnsupportedOp("ConvTranspose: a result larger than its input gives has no lowering")
    return low, high


@row("Det")
def _determinant(call: Call) -> Value:
    """The product of the pivots of Gauss's elimination, each the greatest element of its column."""
    b, x = call.b, call.value(0)
    *outer, n, _ = B.shape_of(x)
    if not isinstance(n, int):
        raise UnsupportedOp(f"Det: the matrices have {n} rows; their number must be a constant")
    batch, dtype = product(outer), B.dtype_of(x)
    rest, made = B.reshape(b, x, [batch, n, n]), B.full(b, 1, dtype, (batch,))
    for size in range(n, 0, -1):
        column = B.reshape(b, B.take(b, rest, 2, 0, 1), [batch, size])
        best = call.aten("argmax", b.one("abs", column), 1, True)
        place = B.iota(b, size, 1, 2)
        swapped = B.where(b, B.pointwise(b, "eq", place, best), 0, place)
        swapped = B.where(b, B.pointwise(b, "eq", place, 0), best, swapped)
        index = B.expand(b, B.reshape(b, swapped, [batch, size, 1]), [batch, size, size])
        rest = call.aten("gather", rest, 1, index)
        pivot = B.reshape(b, B.take(b, B.take(b, rest, 1, 0, 1), 2, 0, 1), [batch])
        sign = B.where(b, B.pointwise(b, "eq", B.reshape(b, best, [batch]), 0), 1.0, -1.0)
        made = b.one("mul", made, b.one("mul", pivot, B.cast_to(b, sign, dtype)))
        if size > 1:
            rest = _eliminated(b, rest, pivot, size)
    return B.reshape(b, made, outer)


def _eliminated(b: Builder, x: Value, pivot: Value, size: int) -> Value:
    """Return the matrices without their first rows and columns, of which multiples are subtracted."""
    batch = B.shape_of(x)[0]
    safe = B.where(b, B.pointwise(b, "eq", pivot, 0), B.full(b, 1, B.dtype_of(x)), pivot)
    row, below = B.take(b, x, 1, 0, 1), B.take(b, x, 1, 1, size - 1)
    factor = B.pointwise(b, "div", B.take(b, below, 2, 0, 1), B.reshape(b, safe, [batch, 1, 1]))
    changed = B.pointwise(b, "mul", factor, B.take(b, row, 2, 1, size - 1))
    return B.pointwise(b, "sub", B.take(b, below, 2, 1, size - 1), changed)
