"""Attention in training: the values that torch's CPU kernel keeps for the gradient, and the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

from ..ir.dims import DimExpr
from ..ir.graph import Builder, Value
from . import build as B
from .attention import causal
from .declare import Composite, Op
from .matmul import matmul

OPS: tuple[Op, ...] = ()


def flash_attention(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value]:
    """softmax(scale * q k^T, masked) v, and the logarithm of each row's sum of exponentials: both 0 for
    completely masked rows."""
    dtype, (q, k, v) = B.dtype_of(q), _wide(b, q, k, v)
    v = _of_shape(b, v, (*B.shape_of(v)[:-1], B.shape_of(q)[-1]))
    scores = _scores(b, q, k, is_causal, attn_mask, scale)
    axis = len(B.shape_of(scores)) - 1
    most = B.reduce(b, "reduce_max", scores, [axis], True)
    is_masked = B.pointwise(b, "eq", most, -inf)
    zero = B.full(b, 0, B.dtype_of(most))
    most = B.where(b, is_masked, zero, most)
    weights = B.pointwise(b, "exp", B.pointwise(b, "sub", scores, most))
    total = B.reduce(b, "reduce_sum", weights, [axis], True)
    result = matmul(
        b, B.pointwise(b, "div", weights, B.where(b, is_masked, B.full(b, 1, B.dtype_of(total)), total)), v
    )
    logsum = B.where(b, is_masked, zero, B.pointwise(b, "add", most, b.one("log", total)))
    return B.cast_to(b, result, dtype), B.drop_axis(b, logsum, axis)


def flash_attention_backward(
    b: Builder,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    logsum: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value, Value]:
    """The gradients of q, k and v."""
    dtype, (grad, q, k, v, out) = B.dtype_of(q), _wide(b, grad, q, k, v, out)
    scores = _scores(b, q, k, is_causal, attn_mask, scale)
    axis = len(B.shape_of(scores)) - 1
    logsum = B.add_axis(b, B.cast_to(b, logsum, B.dtype_of(q)), axis)
    weights = B.pointwise(b, "exp", B.pointwise(b, "sub", scores, logsum))
    of_weights = matmul(b, grad, _turned(b, v))
    mean = B.reduce(b, "reduce_sum", B.pointwise(b, "mul", grad, out), [axis], True)
    of_scores = B.pointwise(b, "mul", weights, B.pointwise(b, "sub", of_weights, mean))
    of_scores = _scaled(b, of_scores, q, scale)
    found = (
        matmul(b, of_scores, k),
        matmul(b, _turned(b, of_scores), q),
        matmul(b, _turned(b, weights), grad),
    )
    of_q, of_k, of_v = (
        _of_shape(b, B.cast_to(b, x, dtype), B.shape_of(like))
        for x, like in zip(found, (q, k, v), strict=True)
    )
    return of_q, of_k, of_v


def _of_shape(b: Builder, x: Value, shape: Sequence[DimExpr]) -> Value:
    """Return x in a shape that may be known only at run time."""
    for axis, size in enumerate(shape):
        if not B.is_known(B.shape_of(x)[axis] - size):
            x = B.of_size(b, "scaled_dot_product_attention", x, axis, size)
    return x


def _wide(b: Builder, *values: Value) -> list[Value]:
    return [B.cast_to(b, x, "f32") if B.dtype_of(x) in ("f16", "bf16") else x for x in values]


def _scores(
    b: Builder, q: Value, k: Value, is_causal: bool, mask: Value | None, scale: float | None
) -> Value:
    """scale * q k^T with the mask added, -inf where a bool mask is False."""
    scores = _scaled(b, matmul(b, q, _turned(b, k)), q, scale)
    if is_causal:
        mask = causal(b, *B.shape_of(scores)[-2:])
    if mask is None:
        return scores
    if B.dtype_of(mask) != "bool":
        return B.pointwise(b, "add", scores, B.cast_to(b, mask, B.dtype_of(scores)))
    return B.where(b, mask, scores, B.full(b, -inf, B.dtype_of(scores)))


def _scaled(b: Builder, x: Value, q: Value, scale: float | None) -> Value:
    width = B.shape_of(q)[-1]
    if scale is None and not isinstance(width, int):
        return B.pointwise(b, "mul", x, b.one("rsqrt", B.full(b, width, B.dtype_of(x))))
    return B.pointwise(b, "mul", x, float(1 / sqrt(max(width, 1)) if scale is None else scale))


def _turned(b: Builder, x: Value) -> Value:
    rank = len(B.shape_of(x))
    return B.permute(b, x, [*range(rank - 2), rank - 1, rank - 2])


_NAME = "aten._scaled_dot_product_flash_attention_for_cpu"
COMPOSITES: tuple[Composite, ...] = (
    Composite((f"{_NAME}.default",), flash_attention),
    Composite((f"{_NAME}_backward.default",), flash_attention_backward),
)
