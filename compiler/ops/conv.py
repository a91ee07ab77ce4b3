"""Convolutions: `conv` on channels-last images, and torch's overloads of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from ..ir.dims import DimExpr, equal, floordiv, format_dim, product, simplify
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .matmul import matmul
from .pointwise import add
from .rules import Attrs, Types, check_dtype, same_dtype, show, tensors

#: The dtype of sums by those of a narrow image and its weight. Sums of bytes are exact, in i32 modulo 2^32
#: or, for narrow groups, whose sums are short, in f32.
SUMS = {("u8", "i8"): "i32", ("u8", "f32"): "f32", ("bf16", "bf16"): "f32"}
PER_AXIS = ("kernel", "stride", "dilation", "expansion", "low", "high")

# The operator -------------------------------------------------------------------------------------


def _infer_conv(types: Types, attrs: Attrs) -> Sequence[Type]:
    x, weight = tensors("conv", types, 2)
    if attrs["planes"] and x.rank > 2:
        x = TensorType(x.dtype, (x.shape[0], *x.shape[2:], x.shape[1]))
    dtype = SUMS.get((x.dtype, weight.dtype)) or same_dtype("conv", [x, weight])
    if (x.dtype, weight.dtype) not in SUMS:
        check_dtype("conv", dtype, ("f32",))
    groups, n_axes = attrs["groups"], len(attrs["kernel"])
    if x.rank < 3 or any(len(attrs[name]) != x.rank - 2 for name in PER_AXIS):
        raise ShapeError(
            f"conv: x is {show(x.shape)} and the window has {n_axes} axes; x must be [N, spatial.., C] with "
            "as many"
        )
    channels = x.shape[-1]
    if weight.rank != 2 or not equal(
        product((groups, weight.shape[0])), product((*attrs["kernel"], channels))
    ):
        raise ShapeError(
            f"conv: the weight is {show(weight.shape)}; it must be [{_taps(attrs)} * "
            f"{format_dim(channels)} / {groups}, F] for x {show(x.shape)} in {groups} groups"
        )
    if groups != 1 and not (isinstance(weight.shape[1], int) and weight.shape[1] % groups == 0):
        raise ShapeError(
            f"conv: {format_dim(weight.shape[1])} output channels do not divide into {groups} groups"
        )
    return (TensorType(dtype, (x.shape[0], *out_sizes(x.shape[1:-1], attrs), weight.shape[1])),)


def _taps(attrs: Attrs) -> int:
    return int(np.prod(attrs["kernel"]))


def out_sizes(sizes: Sequence[DimExpr], attrs: Attrs) -> list[DimExpr]:
    """Return the spatial sizes of the result for those of x. Raises ShapeError if one is known to be smaller
    than the kernel."""
    found: list[DimExpr] = []
    extents, reaches = [], []
    for i, size in enumerate(sizes):
        reach = simplify(abs(attrs["dilation"][i]) * (attrs["kernel"][i] - 1) + 1)
        extent = simplify((size - 1) * attrs["expansion"][i] + 1 + attrs["low"][i] + attrs["high"][i])
        extents.append(extent)
        reaches.append(reach)
        whole = floordiv(sympy.sympify(extent - reach), sympy.sympify(attrs["stride"][i]))
        found.append(simplify(whole + 1))
    if any(
        isinstance(extent, int) and isinstance(reach, int) and extent < reach
        for extent, reach in zip(extents, reaches, strict=True)
    ):
        padded, kernel = (" x ".join(map(format_dim, part)) for part in (extents, reaches))
        raise ShapeError(
            f"conv: Calculated padded input size per channel: ({padded}). Kernel size: ({kernel}). "
            "Kernel size can't be greater than actual input size"
        )
    return found


def _conv(args: Sequence[Any], attrs: Attrs) -> Any:
    x, weight = args
    x = np.moveaxis(x, 1, -1) if attrs["planes"] else x
    groups, n_axes = attrs["groups"], x.ndim - 2
    channels, width = x.shape[-1] // groups, weight.shape[1] // groups
    x = padded(x, attrs)
    reach = [abs(d) * (k - 1) for d, k in zip(attrs["dilation"], attrs["kernel"], strict=True)]
    out = [(x.shape[i + 1] - reach[i] - 1) // attrs["stride"][i] + 1 for i in range(n_axes)]
    result = np.zeros((x.shape[0], *out, groups, width), np.float64)
    taps = weight.reshape(_taps(attrs), channels, groups, width).transpose(0, 2, 1, 3).astype(np.float64)
    for weights, tap in zip(taps, np.ndindex(*attrs["kernel"]), strict=True):
        starts = [
            d * t if d > 0 else r + d * t for t, d, r in zip(tap, attrs["dilation"], reach, strict=True)
        ]
        chosen = [
            slice(s, s + (n - 1) * step + 1, step)
            for s, n, step in zip(starts, out, attrs["stride"], strict=True)
        ]
        part = x[(slice(None), *chosen)].reshape(x.shape[0], *out, groups, channels)
        result += np.einsum("...gc,gcf->...gf", part, weights)
    is_exact = weight.dtype == np.int8
    return result.reshape(*result.shape[:-2], groups * width).astype(np.int32 if is_exact else np.float32)


def padded(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Return [N, spatial.., C] with zeros between its elements and around them, or cropped."""
    for axis, (expansion, low, high) in enumerate(
        zip(attrs["expansion"], attrs["low"], attrs["high"], strict=True), 1
    ):
        shape = list(x.shape)
        shape[axis] = (shape[axis] - 1) * expansion + 1 if shape[axis] else 0
        spread = np.zeros(shape, x.dtype)
        spread[(slice(None),) * axis + (slice(None, None, expansion),)] = x
        shape[axis] += low + high
        x = np.zeros(shape, x.dtype)
        first, last = max(-low, 0), spread.shape[axis] + min(high, 0)
        inner = spread[(slice(None),) * axis + (slice(first, last),)]
        x[(slice(None),) * axis + (slice(max(low, 0), max(low, 0) + inner.shape[axis]),)] = inner
    return x


def window(kernel: Sequence[DimExpr], **given: Any) -> dict[str, Any]:
    """Return the attributes of a conv; defaults are ones and no padding."""
    n = len(kernel)
    plain = {
        "stride": (1,) * n,
        "dilation": (1,) * n,
        "expansion": (1,) * n,
        "low": (0,) * n,
        "high": (0,) * n,
    }
    return {**plain, "kernel": tuple(kernel), "groups": 1, "planes": False, **given}


OPS: tuple[Op, ...] = (
    Op(
        "conv",
        "conv",
        "conv(Tensor x, Tensor weight; kernel, stride, dilation, expansion, low, high, groups, planes) -> "
        "Tensor",
        "The channels-last image x [N, spatial.., C], spread by `expansion` and padded by zeros `low` and "
        "`high`, under the windows of `kernel` taps: [N, out.., F]. weight is [taps * C / groups, F]. A "
        "negative dilation reverses the taps of its axis. `planes`: x is [N, C, spatial..] (`read_planes`). "
        "u8 images by constant i8 weights have sums in i32, by f32 weights in f32; bf16 images by constant "
        "bf16 weights in f32.",
        _infer_conv,
        _conv,
        samples=(
            Sample(("f32[s0, 5, 6, 3]", "f32[27, 4]"), window((3, 3), low=(1, 1), high=(1, 1))),
            Sample(("f32[2, s0 + 6, 7, 2]", "f32[18, 5]"), window((3, 3), stride=(2, 1), dilation=(1, 2))),
            Sample(("f32[s0, 6, 4]", "f32[6, 6]"), window((3,), groups=2, low=(2,), high=(0,))),
            Sample(("f32[1, s0, 3, 2, 5]", "f32[10, 3]"), window((1, 2, 1), stride=(1, 1, 2))),
            Sample(
                ("f32[s0, 4, 3]", "f32[9, 2]"),
                window((3,), expansion=(2,), dilation=(-1,), low=(2,), high=(3,)),
            ),
            Sample(("f32[0, 5, 5, 2]", "f32[18, s0]"), window((3, 3))),
            Sample(("f32[s0, 5, 0]", "f32[0, 3]"), window((2,))),
            Sample(
                ("f32[s0, 2, 6, 9]", "f32[18, 4]"), window((3, 3), stride=(1, 2), low=(1, 1), planes=True)
            ),
        ),
        errors=(
            (
                Sample(("f32[1, 2, 2, 3]", "f32[27, 4]"), window((3, 3))),
                "conv: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size "
                "can't be greater than actual input size",
            ),
            (
                Sample(("f32[1, 4, 4, 3]", "f32[18, 4]"), window((3, 3))),
                "conv: the weight is [18, 4]; it must be [9 * 3 / 1, F] for x [1, 4, 4, 3] in 1 groups",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _each(values: DimExpr | Sequence[DimExpr], n: int) -> tuple[Any, ...]:
    """Return one value for each of `n` axes."""
    given = list(values) if isinstance(values, Sequence) else [values]
    return tuple(simplify(v) for v in (given * n if len(given) == 1 else given))


def _check_steps(b: Builder, stride: Sequence[DimExpr], low: Sequence[DimExpr], dilation: Any) -> None:
    """Append guards that run-time strides are at least 1 and run-time padding is not negative."""
    if not all(isinstance(step, int) for step in dilation):
        raise UnsupportedOp("convolution: the dilation is a size; it must be a number")
    for name, values, least in (("stride", stride, 1), ("padding", low, 0)):
        for value in values:
            if not isinstance(value, int):
                text = f"convolution: {name}, {format_dim(value)}, must be at least {least}"
                add_guard(b, sympy.Ge(sympy.sympify(value), least), text)


def convolution(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: DimExpr,
    *_: Any,
) -> Value:
    """torch.ops.aten.convolution: x [N, C, spatial..] (or without N) channels first."""
    n = len(B.shape_of(weight)) - 2
    stride, padding, dilation = (_each(v, n) for v in (stride, padding, dilation))
    _check_steps(b, stride, padding, dilation)
    if transposed:
        return _transposed(b, x, weight, bias, groups, (stride, padding, dilation, _each(output_padding, n)))
    return convolve(b, x, weight, bias, groups, stride=stride, dilation=dilation, low=padding, high=padding)


def convolve(b: Builder, x: Value, weight: Value, bias: Value | None, groups: DimExpr, **attrs: Any) -> Value:
    """weight [F, C / groups, kernel..]."""
    shape = B.shape_of(weight)
    n = len(shape) - 2
    x = _of_channels(b, x, product((shape[1], groups)), groups, shape)
    columns = B.permute(b, weight, [*range(2, n + 2), 1, 0])
    return _apply(b, x, columns, bias, {**window(shape[2:], **attrs), "groups": groups})


def _transposed(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    groups: DimExpr,
    steps: Sequence[tuple[int, ...]],
) -> Value:
    """weight [C, F / groups, kernel..]: the windows of the reversed kernel over x with zeros between its
    elements. `steps`: stride, padding, dilation and output padding of each axis."""
    stride, padding, dilation, output_padding = steps
    channels, width, *sizes = B.shape_of(weight)
    kernel, n = tuple(sizes), len(sizes)
    for i, extra in enumerate(output_padding):
        if extra == 0:
            continue
        fits = sympy.Lt(sympy.sympify(extra), sympy.Max(stride[i], dilation[i]))
        message = (
            f"conv_transpose: output_padding is {format_dim(extra)}; it must be smaller than stride "
            f"{format_dim(stride[i])} or dilation {format_dim(dilation[i])}"
        )
        if fits == sympy.false:
            raise ShapeError(message)
        add_guard(b, fits, message)
    x = _of_channels(b, x, channels, groups, (channels, width, *sizes))
    _check_groups(b, channels, groups)
    parts = B.reshape(b, weight, (groups, B.divide(channels, groups), width, *sizes))
    columns = B.permute(b, parts, [*range(3, n + 3), 1, 0, 2])
    columns = B.reshape(b, columns, (*sizes, B.divide(channels, groups), product((groups, width))))
    low = tuple(simplify(dilation[i] * (kernel[i] - 1) - padding[i]) for i in range(n))
    high = tuple(simplify(low[i] + output_padding[i]) for i in range(n))
    back = tuple(-d for d in dilation)
    attrs = window(kernel, dilation=back, expansion=stride, low=low, high=high, groups=groups)
    return _apply(b, x, columns, bias, attrs)


def _of_channels(b: Builder, x: Value, wanted: DimExpr, groups: DimExpr, weight: Sequence[DimExpr]) -> Value:
    """Return x with the weight's number of channels; run-time sizes are checked."""
    shape, n = B.shape_of(x), len(weight) - 2
    if len(shape) not in (n + 1, n + 2):
        raise ShapeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{n}d, but got input of size: "
            f"{show(shape)}"
        )
    axis = len(shape) - n - 1
    if B.is_known(shape[axis] - wanted) and not equal(shape[axis], wanted):
        raise ShapeError(
            f"Given groups={groups}, weight of size {show(tuple(weight))}, expected input{show(shape)} to "
            f"have {format_dim(wanted)} channels, but got {format_dim(shape[axis])} channels "
            "instead"
        )
    return B.of_size(b, "convolution", x, axis, wanted)


def _check_groups(b: Builder, channels: DimExpr, groups: DimExpr) -> None:
    """Append guards that channels divide into groups, unless they are known to."""
    texts = format_dim(channels), format_dim(groups)
    add_guard(b, sympy.Ge(sympy.sympify(groups), 1), f"convolution: groups, {texts[1]}, must be at least 1")
    if not equal(product((B.divide(channels, groups), groups)), channels):
        divides = sympy.Eq(sympy.Mod(sympy.sympify(channels), groups), 0)
        add_guard(b, divides, "convolution: {} channels must divide into {} groups".format(*texts))


def _apply(b: Builder, x: Value, columns: Value, bias: Value | None, attrs: dict[str, Any]) -> Value:
    """`columns`: the weight as [kernel.., C / groups, F]. f16 and bf16 are computed in f32."""
    n, dtype = len(attrs["kernel"]), B.dtype_of(x)
    if dtype == "bool":
        raise UnsupportedOp("convolution: x is bool; cast it to a number's dtype")
    if not B.dtype_of(columns) == dtype or (bias is not None and B.dtype_of(bias) != dtype):
        raise ShapeError(f"convolution: x is {dtype}; weight and bias must be too")
    unbatched = len(B.shape_of(x)) == n + 1
    kind = dtype if dtype not in ("f16", "bf16") else "f32"
    x = B.cast_to(b, B.add_axis(b, x, 0) if unbatched else x, kind)
    columns = B.cast_to(b, columns, kind)
    _check_sizes(b, B.shape_of(x)[2:], attrs)
    x = B.permute(b, x, [0, *range(2, n + 2), 1])
    *taps, width = B.shape_of(columns)
    _check_groups(b, width, attrs["groups"])
    are_known = attrs["groups"] == 1 or (isinstance(attrs["groups"], int) and isinstance(width, int))
    steps = [step for name in PER_AXIS for step in attrs[name]]
    if kind == "f32" and are_known and all(isinstance(step, int) for step in steps):
        result = b.one("conv", x, B.reshape(b, columns, (product(taps), width)), **attrs)
    else:
        result = _by_patches(b, x, columns, attrs)
    if bias is not None:
        result = add(b, result, B.cast_to(b, bias, kind))
    result = B.permute(b, B.cast_to(b, result, dtype), [0, n + 1, *range(1, n + 1)])
    return B.drop_axis(b, result, 0) if unbatched else result


def _by_patches(b: Builder, x: Value, columns: Value, attrs: dict[str, Any]) -> Value:
    """Like the op `conv`, for run-time kernels, steps and groups and for dtypes other than f32: the
    patches are gathered axis by axis, then multiplied."""
    n, groups, batch = len(attrs["kernel"]), attrs["groups"], B.shape_of(x)[0]
    *kernel, depth, width = B.shape_of(columns)
    sizes = out_sizes(B.shape_of(x)[1:-1], attrs)
    for i in range(n):  # an axis becomes two: positions and taps
        x = patches(b, x, 1 + 2 * i, sizes[i], {name: attrs[name][i] for name in PER_AXIS})
    x = B.reshape(b, x, (*B.shape_of(x)[:-1], groups, depth))
    positions, taps = range(1, 2 * n, 2), range(2, 2 * n + 1, 2)
    rows, count = product((batch, *sizes)), product((*kernel, depth))
    x = B.permute(b, x, [2 * n + 1, 0, *positions, *taps, 2 * n + 2])
    weights = B.reshape(b, columns, (count, groups, B.divide(width, groups)))
    result = matmul(b, B.reshape(b, x, (groups, rows, count)), B.permute(b, weights, [1, 0, 2]))
    return B.reshape(b, B.permute(b, result, [1, 0, 2]), (batch, *sizes, width))


#: Of one axis, whose patches have one element each.
_PLAIN = {"kernel": 1, "stride": 1, "dilation": 1, "expansion": 1, "low": 0, "high": 0}


def patches(b: Builder, x: Value, axis: int, size: DimExpr, attrs: dict[str, Any]) -> Value:
    """Return x with an axis replaced by one of positions of the result, `size`, and one of taps. `attrs`:
    those of a conv for this axis."""
    if attrs == _PLAIN and equal(size, B.shape_of(x)[axis]):
        return B.add_axis(b, x, axis + 1)
    kernel, dilation, spread = attrs["kernel"], attrs["dilation"], attrs["expansion"]
    first = B.pointwise(b, "mul", B.iota(b, size, 0, 2), attrs["stride"])
    tap = B.iota(b, kernel, 1, 2)
    if dilation < 0:
        tap = B.pointwise(b, "sub", simplify(kernel - 1), tap)
    places = B.pointwise(b, "add", first, B.pointwise(b, "mul", tap, abs(dilation)))
    places = B.pointwise(b, "sub", places, attrs["low"])
    length, shape = B.shape_of(x)[axis], [1] * (len(B.shape_of(x)) + 1)
    inside = B.pointwise(b, "eq", B.pointwise(b, "mod", places, spread), 0)
    places = B.pointwise(b, "floordiv", places, spread)
    for relation, bound in (("ge", 0), ("lt", length)):
        inside = B.pointwise(b, "and", inside, B.pointwise(b, relation, places, bound))
    last = B.pointwise(b, "maximum", B.full(b, simplify(length - 1), "i64"), 0)
    safe = B.pointwise(b, "minimum", B.pointwise(b, "maximum", places, 0), last)
    found = b.one("gather", x, safe, axis=axis)
    shape[axis : axis + 2] = [size, kernel]
    return B.where(b, B.reshape(b, inside, shape), found, B.full(b, 0, B.dtype_of(x)))


def _check_sizes(b: Builder, sizes: Sequence[DimExpr], attrs: dict[str, Any]) -> None:
    """Append guards that the padded image is as large as the kernel; if it never is, `conv` reports it."""
    for i, size in enumerate(sizes):
        reach = simplify(abs(attrs["dilation"][i]) * (attrs["kernel"][i] - 1) + 1)
        extent = simplify((size - 1) * attrs["expansion"][i] + 1 + attrs["low"][i] + attrs["high"][i])
        if not isinstance(extent, int) or not isinstance(reach, int):
            condition = sympy.Ge(sympy.sympify(extent), reach)
            message = f"convolution: axis {i} of the padded input is shorter than the kernel, {reach}"
            add_guard(b, condition, message)


def conv(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: str | Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: DimExpr = 1,
) -> Value:
    """conv1d, conv2d, conv3d; padding may be "valid" or "same"."""
    n = len(B.shape_of(weight)) - 2
    stride, dilation = _each(stride, n), _each(dilation, n)
    if not isinstance(padding, str):
        low = high = _each(padding, n)
    elif padding == "same":
        if stride != (1,) * n:
            raise ShapeError("conv: padding='same' is not supported for strided convolutions")
        total = [simplify(d * (k - 1)) for d, k in zip(dilation, B.shape_of(weight)[2:], strict=True)]
        low = tuple(B.divide(t, 2) for t in total)
        high = tuple(simplify(t - part) for t, part in zip(total, low, strict=True))
    else:
        low = high = (0,) * n
    _check_steps(b, stride, low, dilation)
    return convolve(b, x, weight, bias, groups, stride=stride, dilation=dilation, low=low, high=high)


def conv_transpose(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: DimExpr = 1,
    dilation: Sequence[int] = (1,),
) -> Value:
    """conv_transpose1d, conv_transpose2d, conv_transpose3d."""
    return convolution(b, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.convolution.default", "aten._convolution.default"), convolution),
    Composite(
        (
            *(f"aten.conv{n}d.default" for n in (1, 2, 3)),
            *(f"aten.conv{n}d.padding" for n in (1, 2, 3)),
            "aten._convolution_mode.default",
        ),
        conv,
    ),
    Composite(
        (
            "aten.conv_transpose1d.default",
            "aten.conv_transpose2d.input",
            "aten.conv_transpose3d.input",
        ),
        conv_transpose,
    ),
)
