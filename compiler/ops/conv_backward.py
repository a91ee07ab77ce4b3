"""Gradients of convolutions: of the image a convolution the other way, of the weight a product of patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..ir.dims import DimExpr, equal, product, simplify
from ..ir.graph import Builder, Value
from . import build as B
from .conv import PER_AXIS, convolution, patches, window
from .declare import Composite, Op
from .matmul import matmul
from .pool import each_axis

OPS: tuple[Op, ...] = ()


def convolution_backward(
    b: Builder,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[DimExpr] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of a convolution's image x [N, C, spatial..], weight and bias; None if not requested."""
    n, dtype = len(B.shape_of(weight)) - 2, B.dtype_of(x)
    kind = "f32" if dtype in ("f16", "bf16") else dtype
    grad, x, weight = (B.cast_to(b, value, kind) for value in (grad, x, weight))
    stride, padding, dilation = (each_axis(values, n) for values in (stride, padding, dilation))
    steps: Mapping[str, Sequence[int]] = {
        "stride": stride, "dilation": dilation, "low": padding, "high": padding,
    }  # fmt: skip
    image, result = (grad, x) if transposed else (x, grad)
    of_image = partial(_of_image, b, grad, x, weight, stride, padding, dilation, transposed, groups)
    gradients: tuple[Callable[[], Value], ...] = (
        of_image,
        lambda: _of_weight(b, result, image, B.shape_of(weight), groups, steps),
        lambda: B.reduce(b, "reduce_sum", grad, [0, *range(2, n + 2)], False),
    )
    wanted = zip(gradients, output_mask, strict=True)
    return tuple(B.cast_to(b, gradient(), dtype) if is_asked else None for gradient, is_asked in wanted)


def _of_image(
    b: Builder,
    grad: Value,
    x: Value,
    weight: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Value:
    """The transposed convolution for a convolution, and the convolution for a transposed one; positions that
    no window reached have no gradient."""
    sizes = B.shape_of(x)[2:]
    n = len(sizes)
    extra = [0] * n if transposed else [step - 1 for step in stride]
    made = convolution(b, grad, weight, None, stride, padding, dilation, not transposed, extra, groups)
    for axis, size in enumerate(sizes, 2):
        if not equal(B.shape_of(made)[axis], size):
            made = B.take(b, made, axis, 0, size)
    return made


def _of_weight(
    b: Builder,
    grad: Value,
    image: Value,
    shape: Sequence[DimExpr],
    groups: int,
    steps: Mapping[str, Sequence[int]],
) -> Value:
    """The gradient of a weight [F, C / groups, kernel..], which made `grad` [N, F, out..] of the image
    [N, C, spatial..]: sums over all positions of `grad`."""
    width, depth, *kernel = shape
    n, (batch, _, *sizes) = len(kernel), B.shape_of(grad)
    attrs = window(kernel, **steps)
    x = B.permute(b, image, [0, *range(2, n + 2), 1])
    for i, size in enumerate(sizes):  # an axis becomes two: places and taps
        x = patches(b, x, 1 + 2 * i, size, {name: attrs[name][i] for name in PER_AXIS})
    rows, taps = product((batch, *sizes)), product(kernel)
    x = B.reshape(b, x, (*B.shape_of(x)[:-1], groups, depth))
    places, offsets = range(1, 2 * n, 2), range(2, 2 * n + 1, 2)
    x = B.permute(b, x, [2 * n + 1, 0, *places, *offsets, 2 * n + 2])
    x = B.reshape(b, x, (groups, rows, product((taps, depth))))
    part = B.divide(width, groups)
    out = B.permute(b, B.reshape(b, grad, (batch, groups, part, *sizes)), [1, 2, 0, *range(3, n + 3)])
    made = matmul(b, B.reshape(b, out, (groups, part, rows)), x)
    made = B.reshape(b, made, (simplify(width), *kernel, depth))
    return B.permute(b, made, [0, n + 1, *range(1, n + 1)])


COMPOSITES: tuple[Composite, ...] = (Composite(("aten.convolution_backward.default",), convolution_backward),)
