"""Softmax and normalisations."""

from __future__ import annotations

from typing import Any

from ....ir.dims import product
from ....ir.graph import Value
from ....ops import build as B
from ..rows import Call, row

SOFTMAX_BY_AXIS = 13  # the version from which it is along one axis


@row("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: Call) -> Value:
    b, x = call.b, call.value(0)
    shape = B.shape_of(x)
    by_axis = call.version >= SOFTMAX_BY_AXIS
    axis = call.axis("axis", len(shape), -1 if by_axis else 1)
    if by_axis:
        return _along(call, x, axis)
    rows = B.reshape(b, x, [product(shape[:axis]), product(shape[axis:])])
    return B.reshape(b, _along(call, rows, 1), shape)


def _along(call: Call, x: Value, axis: int) -> Value:
    if call.op != "Hardmax":
        return call.aten("softmax.int" if call.op == "Softmax" else "log_softmax.int", x, axis)
    b, rank = call.b, len(B.shape_of(x))
    best = call.aten("argmax", x, axis, True)
    places = B.iota(b, B.shape_of(x)[axis], axis, rank)
    return B.cast_to(b, B.pointwise(b, "eq", places, best), B.dtype_of(x))


@row("BatchNormalization")
def _batch_norm(call: Call) -> Any:
    x, weight, bias, mean, variance = (call.value(i) for i in range(5))
    epsilon = call.attr("epsilon", 1e-5)
    if not call.attr("training_mode", 0):
        return call.aten("batch_norm", x, weight, bias, mean, variance, False, 0.1, epsilon, False)
    b, shape = call.b, B.shape_of(x)
    axes, kept = [i for i in range(len(shape)) if i != 1], float(call.attr("momentum", 0.9))
    now = call.aten("mean.dim", x, axes, False)
    apart = B.pointwise(b, "sub", x, B.reshape(b, now, [shape[1], *[1] * (len(shape) - 2)]))
    spread = call.aten("mean.dim", B.pointwise(b, "mul", apart, apart), axes, False)
    made = call.aten("batch_norm", x, weight, bias, now, spread, False, 0.1, epsilon, False)
    means = [
        B.pointwise(b, "add", B.pointwise(b, "mul", old, kept), B.pointwise(b, "mul", new, 1 - kept))
        for old, new in ((mean, now), (variance, spread))
    ]
    return made, *means


@row("InstanceNormalization")
def _instance_norm(call: Call) -> Value:
    x = call.value(0)
    return _groups(call, x, call.value(1), call.value(2), B.shape_of(x)[1])


@row("GroupNormalization")
def _group_norm(call: Call) -> Value:
    b, x, groups = call.b, call.value(0), call.attr("num_groups")
    weight, bias = call.value(1), call.value(2)
    channels = B.shape_of(x)[1]
    if call.version < 21:  # one weight for each group
        each = B.divide(channels, groups)
        weight, bias = (
            B.reshape(b, B.expand(b, B.reshape(b, w, [groups, 1]), [groups, each]), [channels])
            for w in (weight, bias)
        )
    return _groups(call, x, weight, bias, groups)


def _groups(call: Call, x: Value, weight: Value, bias: Value, groups: Any) -> Value:
    return call.aten("group_norm", x, groups, weight, bias, call.attr("epsilon", 1e-5))


@row("LayerNormalization")
def _layer_norm(call: Call) -> Any:
    x = call.value(0)
    shape = B.shape_of(x)
    axis = call.axis("axis", len(shape), -1)
    name = "layer_norm" if call.n_outputs == 1 else "native_layer_norm"
    b, last = call.b, shape[axis:]
    weight, bias = (None if w is None else B.expand(b, w, last) for w in (call.maybe(1), call.maybe(2)))
    return call.aten(name, x, last, weight, bias, call.attr("epsilon", 1e-5))


@row("RMSNormalization")
def _rms_norm(call: Call) -> Value:
    x = call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), -1)
    return call.aten("_fused_rms_norm", x, B.shape_of(x)[axis:], call.maybe(1), call.attr("epsilon", 1e-5))[0]


@row("LRN")
def _local_response(call: Call) -> Value:
    b, x, size = call.b, call.value(0), call.count("size", 0)
    before = (size - 1) // 2
    squares = B.pointwise(b, "mul", x, x)
    amounts: list[Any] = [(0, 0)] * len(B.shape_of(x))
    amounts[1] = (before, size - 1 - before)
    padded, channels = B.pad(b, squares, amounts), B.shape_of(x)[1]
    total = B.take(b, padded, 1, 0, channels)
    for i in range(1, size):
        total = B.pointwise(b, "add", total, B.take(b, padded, 1, i, channels))
    alpha, beta, bias = call.attr("alpha", 1e-4), call.attr("beta", 0.75), call.attr("bias", 1.0)
    base = B.pointwise(b, "add", B.pointwise(b, "mul", total, float(alpha / size)), float(bias))
    return B.pointwise(b, "div", x, call.aten("pow.Tensor_Scalar", base, float(beta)))


@row("LpNormalization")
def _lp_norm(call: Call) -> Value:
    b, x = call.b, call.value(0)
    axis = call.axis("axis", len(B.shape_of(x)), -1)
    norm = call.aten("linalg_vector_norm", x, call.attr("p", 2), [axis], True)
    return B.where(
        b, B.pointwise(b, "eq", norm, 0), B.full(b, 0, B.dtype_of(x)), B.pointwise(b, "div", x, norm)
    )


@row("MeanVarianceNormalization")
def _mean_variance(call: Call) -> Value:
    b, x = call.b, call.value(0)
    axes = B.axes_of(call.op, call.attr("axes") or [0, 2, 3], len(B.shape_of(x)))
    centred = B.pointwise(b, "sub", x, call.aten("mean.dim", x, axes, True))
    spread = b.one("sqrt", call.aten("mean.dim", B.pointwise(b, "mul", centred, centred), axes, True))
    return B.pointwise(b, "div", centred, B.pointwise(b, "add", spread, 1e-9, dtype=B.dtype_of(x)))
