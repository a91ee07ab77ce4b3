"""Normalisations: softmax, log_softmax, layer_norm (composite operators) and torch's overloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..ir.dims import DimExpr
from ..ir.errors import ShapeError, UnsupportedOp
from ..ir.graph import Builder, Node, Value
from ..ir.types import FLOAT_DTYPES, Type
from . import build as B
from .declare import Composite, Infer, Op, Sample
from .reduce import mean_of, mean_square
from .rules import COMPUTE, Attrs, Types, check_axis, check_dtype, equal_shapes, show, tensor, tensors

# The operators ------------------------------------------------------------------------------------


def _infer_softmax(op: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        (x,) = tensors(op, types, 1)
        check_dtype(op, x.dtype, FLOAT_DTYPES)
        check_axis(op, attrs["axis"], x.rank)
        return (x,)

    return infer


def _softmax(args: Sequence[Any], attrs: Attrs) -> Any:
    return np.exp(_log_softmax(args, attrs))


def _log_softmax(args: Sequence[Any], attrs: Attrs) -> Any:
    x, axis = args[0].astype(np.float64), attrs["axis"]
    with np.errstate(all="ignore"):
        shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))).astype(args[0].dtype)


def _along_last(compute: Callable[[Builder, Value], Value]) -> Callable[[Builder, Node], Sequence[Value]]:
    """Make a decomposition that moves `axis` last, computes, and moves it back."""

    def decompose(b: Builder, node: Node) -> Sequence[Value]:
        x, axis = node.arg(0), node.attrs["axis"]
        if B.shape_of(x)[axis] == 0:
            return [x]
        order = list(range(len(B.shape_of(x))))
        order[axis], order[-1] = order[-1], order[axis]
        result = B.in_f32(b, lambda v: compute(b, v), B.permute(b, x, order))
        return [B.permute(b, result, order)]

    return decompose


def _softmax_last(b: Builder, x: Value) -> Value:
    """Divide once per row: the sum is at least 1, so multiplying by its reciprocal is as exact as dividing
    each power."""
    powers = b.one("exp_nonpositive", B.pointwise(b, "sub", x, b.one("reduce_max", x)))
    return B.pointwise(b, "mul", powers, b.one("reciprocal", b.one("reduce_sum", powers)))


def _log_softmax_last(b: Builder, x: Value) -> Value:
    shifted = B.pointwise(b, "sub", x, b.one("reduce_max", x))
    return B.pointwise(
        b, "sub", shifted, b.one("log", b.one("reduce_sum", b.one("exp_nonpositive", shifted)))
    )


def _infer_layer_norm(types: Types, attrs: Attrs) -> Sequence[Type]:
    x, n = tensor("layer_norm", types, 0), attrs["n_axes"]
    check_dtype("layer_norm", x.dtype, FLOAT_DTYPES)
    if not 1 <= n <= x.rank:
        raise ShapeError(f"layer_norm: n_axes is {n}; a tensor of rank {x.rank} takes 1 to {x.rank}")
    for position, name in ((1, "weight"), (2, "bias")):
        found = types[position] if len(types) > position else None
        if found is not None and not equal_shapes(tensor("layer_norm", types, position).shape, x.shape[-n:]):
            raise ShapeError(f"layer_norm: {name} is {found}; it must have shape {show(x.shape[-n:])}")
    return (x,)


def _layer_norm(args: Sequence[Any], attrs: Attrs) -> Any:
    x, weight, bias = args
    axes, wide = tuple(range(-attrs["n_axes"], 0)), args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        mean = wide.mean(axis=axes, keepdims=True)
        result = (wide - mean) / np.sqrt(wide.var(axis=axes, keepdims=True) + attrs["eps"])
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).astype(x.dtype)


def normalised(b: Builder, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """Return ((x - mean) * rstd, mean, rstd) over `axes`, which stay with size 1."""
    mean = mean_of(b, x, axes, True)
    centred = B.pointwise(b, "sub", x, mean)
    variance = mean_square(b, centred, axes)
    rstd = _rstd(b, variance, eps)
    return B.pointwise(b, "mul", centred, rstd), mean, rstd


def _decompose_layer_norm(b: Builder, node: Node) -> Sequence[Value]:
    compute = partial(_of_last_axes, b, node.attrs["n_axes"], node.attrs["eps"])
    return [B.in_f32(b, compute, node.arg(0), *(list(node.args[1:]) + [None, None])[:2])]


def _of_last_axes(
    b: Builder, n: int, eps: float, x: Value, weight: Value | None, bias: Value | None
) -> Value:
    """Layer norm over the last `n` axes."""
    rows = merge_last(b, x, n)
    result, _, _ = normalised(b, rows, [len(B.shape_of(rows)) - 1], eps)
    weight, bias = (t if t is None else merge_last(b, t, n) for t in (weight, bias))
    result = scale_and_shift(b, result, weight, bias)
    result = B.pointwise(b, "add", result, 0.0) if bias is None else result  # eager's bias is 0 then
    return B.reshape(b, result, B.shape_of(x))


def merge_last(b: Builder, x: Value, n: int) -> Value:
    """Return `x` with its last `n` axes as one: a row, which one kernel reduces and then reads again."""
    shape = B.shape_of(x)
    return B.reshape(b, x, [*shape[: len(shape) - n], B.product(shape[len(shape) - n :])])


def scale_and_shift(b: Builder, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """Return x * weight + bias, each if given."""
    x = x if weight is None else B.pointwise(b, "mul", x, weight)
    return x if bias is None else B.pointwise(b, "add", x, bias)


def _along(shape: str, axis: int) -> Sample:
    return Sample((shape,), {"axis": axis})


_SOFTMAX_SAMPLES = tuple(
    _along(shape, axis)
    for shape, axis in (
        ("f32[2, s0]", 1),
        ("f32[s0, 3]", 0),
        ("f32[1]", 0),
        ("f32[0, 4]", 1),
        ("f32[4, 0]", 1),
        ("bf16[2, s0]", 1),
    )
)
_SOFTMAX_ERROR = ((_along("f32[2, 3]", 2), "{}: axis is 2; a tensor of rank 2 has axes 0 to 1"),)
_SOFTMAX_OPS = tuple(
    Op(
        name, "composite", f"{name}(Tensor x; axis) -> Tensor", doc, _infer_softmax(name), reference,
        decompose=_along_last(last), samples=_SOFTMAX_SAMPLES,
        errors=tuple((sample, text.format(name)) for sample, text in _SOFTMAX_ERROR),
    )
    for name, doc, reference, last in (
        ("softmax", "exp(x - max) / sum(exp(x - max)) along one axis.", _softmax, _softmax_last),
        ("log_softmax", "x - max - log(sum(exp(x - max))) along one axis.", _log_softmax, _log_softmax_last),
    )
)  # fmt: skip
OPS: tuple[Op, ...] = (
    *_SOFTMAX_OPS,
    Op(
        "layer_norm",
        "composite",
        "layer_norm(Tensor x, Tensor? weight, Tensor? bias; n_axes, eps) -> Tensor",
        "(x - mean) / sqrt(variance + eps) over the last `n_axes` axes, times weight, plus bias.",
        _infer_layer_norm,
        _layer_norm,
        decompose=_decompose_layer_norm,
        samples=(
            Sample(("f32[2, s0, 8]", "f32[8]", "f32[8]"), {"n_axes": 1, "eps": 1e-5}),
            Sample(("f32[s0, 2, 3]", "f32[2, 3]", ""), {"n_axes": 2, "eps": 1e-5}),
            Sample(("f32[0, 4]", "", ""), {"n_axes": 1, "eps": 1e-12}),
            Sample(("f32[1, 1]", "", "f32[1]"), {"n_axes": 1, "eps": 1e-5}),
            Sample(("f16[3, 8]", "f16[8]", "f16[8]"), {"n_axes": 1, "eps": 1e-5}),
        ),
        errors=(
            (
                Sample(("f32[2, 3]", "f32[4]", ""), {"n_axes": 1, "eps": 1e-5}),
                "layer_norm: weight is f32[4]; it must have shape [3]",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def _softmax_of(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int, dtype: str | None = None) -> Value:
        rank = len(B.shape_of(x))
        x = B.cast_to(b, x, dtype or B.dtype_of(x))
        if rank == 0:
            return B.reshape(b, b.one(op, B.reshape(b, x, [1]), axis=0), [])
        return b.one(op, x, axis=B.axis_of(op, dim, rank))

    return expand


def _raw_softmax_of(op: str) -> Callable[..., Value]:
    def expand(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
        return _softmax_of(op)(b, x, dim, "f32" if half_to_float else None)

    return expand


def layer_norm(
    b: Builder,
    x: Value,
    shape: Sequence[DimExpr],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    *_: Any,
) -> Value:
    """torch.nn.functional.layer_norm."""
    x = _of_last_sizes(b, "layer_norm", x, shape)
    if not B.is_run_time(eps):
        return b.one("layer_norm", x, weight, bias, n_axes=len(shape), eps=float(eps))
    return B.in_f32(b, partial(_of_last_axes, b, len(shape), eps), x, weight, bias)


def _of_last_sizes(b: Builder, op: str, x: Value, shape: Sequence[DimExpr]) -> Value:
    """Return a tensor whose last axes have these sizes."""
    for axis, size in enumerate(shape[::-1] if len(shape) <= len(B.shape_of(x)) else ()):
        x = B.of_matching_size(b, op, x, -1 - axis, size)
    return x


def native_layer_norm(
    b: Builder, x: Value, shape: Sequence[DimExpr], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """layer_norm with its mean and 1 / sqrt(variance + eps)."""
    rank = len(B.shape_of(x))
    wide = B.cast_to(b, x, "f64" if B.dtype_of(x) == "f64" else "f32")
    _, mean, rstd = normalised(b, wide, range(rank - len(shape), rank), eps)
    return (
        layer_norm(b, x, shape, weight, bias, eps),
        B.cast_to(b, mean, B.dtype_of(x)),
        B.cast_to(b, rstd, B.dtype_of(x)),
    )


def rms_norm(
    b: Builder, x: Value, shape: Sequence[DimExpr], weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    """(x / sqrt(mean(x^2) + eps) * weight, 1 / sqrt(mean(x^2) + eps)) over the last axes; eps is by default
    the step from 1 to the next number of the computation's dtype."""
    dtype, n = B.dtype_of(x), len(shape)
    x = _of_last_sizes(b, "rms_norm", x, shape)
    weight = None if weight is None else _of_last_sizes(b, "rms_norm", weight, shape)
    wide = "f64" if dtype == "f64" else "f32"
    eps = float(np.finfo(COMPUTE[wide]).eps) if eps is None else B.as_float(eps)
    rows = merge_last(b, B.cast_to(b, x, wide), n)
    axis = len(B.shape_of(rows)) - 1
    rstd = _rstd(b, mean_square(b, rows, [axis]), eps)
    scale = None if weight is None else B.cast_to(b, merge_last(b, weight, n), wide)
    result = scale_and_shift(b, B.pointwise(b, "mul", rows, rstd), scale, None)
    result = B.cast_to(b, B.reshape(b, result, B.shape_of(x)), dtype)
    return result, B.reshape(b, rstd, [*B.shape_of(x)[:-n], *[1] * n])


def _rstd(b: Builder, variance: Value, eps: float) -> Value:
    """1 / sqrt(variance + eps)."""
    return b.one("rsqrt", B.pointwise(b, "add", variance, B.as_float(eps), dtype=B.dtype_of(variance)))


# Normalising channels (axis 1) ----------------------------------------------------------------------


def by_channel(
    b: Builder, x: Value, mean: Value, rstd: Value, weight: Value | None, bias: Value | None
) -> Value:
    """Return (x - mean) * rstd * weight + bias as x * scale + shift, as PyTorch does, so that constant
    statistics fold into two numbers a channel.

    `mean` and `rstd` have the shape [C] or [N, C], all are computed in `mean`'s dtype.
    """
    dtype, wide = B.dtype_of(x), B.dtype_of(mean)
    bias, scale = _scale(b, rstd, weight, bias)
    shift = B.pointwise(b, "mul", mean, scale)
    shift = B.pointwise(b, "sub", 0.0 if bias is None else bias, shift)
    spatial = [1] * (len(B.shape_of(x)) - 2)
    scale, shift = (B.reshape(b, t, [*B.shape_of(t), *spatial]) for t in (scale, shift))
    return B.cast_to(b, scale_and_shift(b, B.cast_to(b, x, wide), scale, shift), dtype)


def by_channel_about_mean(
    b: Builder, x: Value, mean: Value, rstd: Value, weight: Value | None, bias: Value | None
) -> Value:
    """Return (x - mean) * rstd * weight + bias for statistics of `x` itself, as `by_channel` takes them: far
    from 0, x * scale + shift would lose the difference of x and the mean."""
    bias, scale = _scale(b, rstd, weight, bias)
    spatial = [1] * (len(B.shape_of(x)) - 2)
    mean, scale = (B.reshape(b, t, [*B.shape_of(t), *spatial]) for t in (mean, scale))
    bias = None if bias is None else B.reshape(b, bias, [*B.shape_of(bias), *spatial])
    centred = B.pointwise(b, "sub", B.cast_to(b, x, B.dtype_of(mean)), mean)
    return B.cast_to(b, scale_and_shift(b, centred, scale, bias), B.dtype_of(x))


def _scale(b: Builder, rstd: Value, weight: Value | None, bias: Value | None) -> tuple[Value | None, Value]:
    """Return `bias` in the dtype of `rstd`, and rstd * weight."""
    wide = B.dtype_of(rstd)
    weight, bias = (None if t is None else B.cast_to(b, t, wide) for t in (weight, bias))
    return bias, rstd if weight is None else B.pointwise(b, "mul", rstd, weight)


def _wide_dtype(x: Value) -> str:
    """Return the dtype for statistics of `x`."""
    return "f64" if B.dtype_of(x) == "f64" else "f32"


def _statistics_dtype(x: Value, *parameters: Value | None) -> str:
    """Return the dtype of returned statistics: f32 if f16 or bf16 meets parameters in f32."""
    given = [B.dtype_of(p) for p in parameters if p is not None]
    return given[0] if given else B.dtype_of(x)


def batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Batch normalisation by running statistics; the second and third result are empty."""
    wide = _wide_dtype(x)
    mean, variance = (B.cast_to(b, t, wide) for t in (mean, variance))
    result = by_channel(b, x, mean, _rstd(b, variance, eps), weight, bias)
    empty = B.full(b, 0, B.dtype_of(x), (0,))
    return result, empty, empty


def batch_norm_in_evaluation(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    """Batch normalisation with the given running statistics. Raises UnsupportedOp in training, and ShapeError
    for a tensor without channels."""
    _check_channels(x)
    if mean is None or variance is None:
        return _by_own_statistics(b, x, weight, bias, eps)[0]
    if training:
        raise UnsupportedOp("batch_norm: training is True, which changes the running statistics in place")
    return batch_norm(b, x, weight, bias, mean, variance, momentum, eps)[0]


def _check_channels(x: Value) -> None:
    if len(B.shape_of(x)) < 2:
        raise ShapeError("batch_norm: its input has one axis; it needs two or more, the second of channels")


def batch_norm_by_batch(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Batch normalisation by the statistics of `x` itself, with mean and 1 / sqrt(variance + eps)."""
    result, mean, rstd, _ = _by_own_statistics(b, x, weight, bias, eps)
    saved = _statistics_dtype(x, weight, bias)
    return result, B.cast_to(b, mean, saved), B.cast_to(b, rstd, saved)


def _by_own_statistics(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Return (result, mean [C], rstd [C], variance [C]); with a batch of 1 each channel is a row."""
    _check_channels(x)
    shape = B.shape_of(x)
    line = B.product(shape[2:])
    rows = B.cast_to(b, B.reshape(b, x, [shape[0], shape[1], line]), _wide_dtype(x))
    rows = B.drop_axis(b, rows, 0) if B.is_one(shape[0]) else B.permute(b, rows, [1, 0, 2])
    rows = rows if B.is_one(shape[0]) else merge_last(b, rows, 2)
    mean = mean_of(b, rows, [1], True)
    centred = B.pointwise(b, "sub", rows, mean)
    variance = mean_square(b, centred, [1])
    rstd = _rstd(b, variance, eps)
    flat_mean, flat_rstd, flat_variance = (B.reshape(b, t, [shape[1]]) for t in (mean, rstd, variance))
    if not B.is_one(shape[0]):
        result = by_channel_about_mean(b, x, flat_mean, flat_rstd, weight, bias)
        return result, flat_mean, flat_rstd, flat_variance
    wide = B.dtype_of(rows)
    weight, bias = (None if t is None else B.add_axis(b, B.cast_to(b, t, wide), 1) for t in (weight, bias))
    result = scale_and_shift(b, B.pointwise(b, "mul", centred, rstd), weight, bias)
    return B.reshape(b, B.cast_to(b, result, B.dtype_of(x)), shape), flat_mean, flat_rstd, flat_variance


def batch_norm_functional(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Batch normalisation with the new running statistics as the fourth and fifth result."""
    if not training:
        results = batch_norm(b, x, weight, bias, running_mean, running_var, momentum, eps)
        return *results, running_mean, running_var
    result, mean, rstd, variance = _by_own_statistics(b, x, weight, bias, eps)
    n = B.product(size for axis, size in enumerate(B.shape_of(x)) if axis != 1)
    wide = B.dtype_of(mean)
    fewer = B.pointwise(b, "maximum", B.full(b, B.simplify(n - 1), wide), 0.0)
    unbiased = B.pointwise(b, "div", B.pointwise(b, "mul", variance, B.full(b, n, wide)), fewer)
    running = [
        B.cast_to(b, _moved(b, B.cast_to(b, old, wide), new, momentum), B.dtype_of(old))
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]
    saved = _statistics_dtype(x, weight, bias, running_mean)
    return result, B.cast_to(b, mean, saved), B.cast_to(b, rstd, saved), *running


def batch_norm_with_update(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """As `batch_norm_functional` in training; the fourth result is empty."""
    parameters = (weight, bias, running_mean, running_var)
    result, mean, rstd, *running = batch_norm_functional(b, x, *parameters, True, momentum, eps)
    return result, mean, rstd, B.full(b, 0, "u8", (0,)), *running


def _moved(b: Builder, old: Value, new: Value, momentum: float) -> Value:
    """momentum * new + (1 - momentum) * old."""
    return B.pointwise(
        b, "add", B.pointwise(b, "mul", new, momentum), B.pointwise(b, "mul", old, 1 - momentum)
    )


def native_group_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: DimExpr,
    channels: DimExpr,
    line: DimExpr,
    groups: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Normalisation of `groups` groups of channels, with each group's mean and 1 / sqrt(variance + eps)."""
    shape = B.shape_of(x)
    in_group = B.divide(shape[1], groups)
    wide = B.cast_to(b, x, _wide_dtype(x))
    rows = B.reshape(b, wide, [shape[0], groups, B.product((in_group, *shape[2:]))])
    mean = mean_of(b, rows, [2], True)
    rstd = _rstd(b, mean_square(b, B.pointwise(b, "sub", rows, mean), [2]), eps)
    each = [
        B.reshape(b, B.expand(b, t, [shape[0], groups, in_group]), [shape[0], shape[1]]) for t in (mean, rstd)
    ]
    result = by_channel_about_mean(b, x, each[0], each[1], weight, bias)
    saved = _statistics_dtype(x, weight, bias)
    lines = (B.take(b, B.reshape(b, t, [shape[0], groups]), 0, 0, n) for t in (mean, rstd))  # n: x's size
    mean, rstd = (B.cast_to(b, t, saved) for t in lines)
    return result, mean, rstd


def group_norm(
    b: Builder, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float, *_: Any
) -> Value:
    """torch.nn.functional.group_norm."""
    shape = B.shape_of(x)
    return native_group_norm(b, x, weight, bias, shape[0], shape[1], 1, groups, eps)[0]


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.softmax.int",), _softmax_of("softmax")),
    Composite(("aten.log_softmax.int",), _softmax_of("log_softmax")),
    Composite(("aten._softmax.default",), _raw_softmax_of("softmax")),
    Composite(("aten._log_softmax.default",), _raw_softmax_of("log_softmax")),
    Composite(("aten.layer_norm.default",), layer_norm),
    Composite(("aten.native_layer_norm.default",), native_layer_norm),
    Composite(("aten.rms_norm.default",), lambda b, *args: rms_norm(b, *args)[0], "x / its root mean square"),
    Composite(("aten._fused_rms_norm.default",), rms_norm),
    Composite(("aten._native_batch_norm_legit_no_training.default",), batch_norm),
    Composite(("aten.batch_norm.default",), batch_norm_in_evaluation),
    Composite(("aten._native_batch_norm_legit.no_stats",), batch_norm_by_batch),
    Composite(("aten._native_batch_norm_legit_functional.default",), batch_norm_functional),
    Composite(("aten._batch_norm_with_update_functional.default",), batch_norm_with_update),
    Composite(("aten.native_group_norm.default",), native_group_norm),
    Composite(("aten.group_norm.default",), group_norm),
)
