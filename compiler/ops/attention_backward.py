"""Attention in training: the values that torch's CPU kernel keeps for the gradient, and the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

from ..ir.dims import DimExpr, equal, product
from ..ir.graph import Builder, Value
from . import build as B
from .attention import causal, split_mask
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
    completely masked rows. A head of k and v may serve a group of heads of q."""
    if (groups := _Groups.of(b, q, k)) is not None:
        mask, (k, v) = groups.split_mask(attn_mask), groups.with_axis(k, v)
        out, logs = flash_attention(
            b, groups.split(q), k, v, dropout_p, is_causal, attn_mask=mask, scale=scale
        )
        return groups.merge(out), groups.merge(logs)
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
    shapes = [B.shape_of(x) for x in (q, k, v)]
    groups = _Groups.of(b, q, k)
    if groups is not None:
        grad, q, out, logsum = (groups.split(x) for x in (grad, q, out, logsum))
        k, v = groups.with_axis(k, v)
        attn_mask = groups.split_mask(attn_mask)
    found = _gradients(b, (grad, q, k, v, out), logsum, is_causal, attn_mask, scale)
    if groups is not None:
        found = groups.merge(found[0]), *map(groups.sum, found[1:])
    of_q, of_k, of_v = (_of_shape(b, x, shape) for x, shape in zip(found, shapes, strict=True))
    return of_q, of_k, of_v


def _gradients(
    b: Builder,
    given: Sequence[Value],
    logsum: Value,
    is_causal: bool,
    mask: Value | None,
    scale: float | None,
) -> Sequence[Value]:
    """`given`: the gradient of the result, q, k, v and the result."""
    dtype, (grad, q, k, v, out) = B.dtype_of(given[1]), _wide(b, *given)
    scores = _scores(b, q, k, is_causal, mask, scale)
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
    return [B.cast_to(b, x, dtype) for x in found]


@dataclass(frozen=True)
class _Groups:
    """Heads of q in groups, of which each has one head of k and v. They become two axes, of heads and of the
    members of a group; k and v have one index along the second."""

    b: Builder
    heads: DimExpr
    size: DimExpr

    @staticmethod
    def of(b: Builder, q: Value, k: Value) -> _Groups | None:
        """Return the groups; None if q and k have the same heads."""
        (_, own, *_), (_, heads, *_) = B.shape_of(q), B.shape_of(k)
        return None if equal(own, heads) else _Groups(b, heads, B.divide(own, heads))

    def split(self, x: Value) -> Value:
        """Split the heads of q, or of what has them."""
        n, _, *inner = B.shape_of(x)
        return B.reshape(self.b, x, (n, self.heads, self.size, *inner))

    def split_mask(self, mask: Value | None) -> Value | None:
        """Split the heads of a mask, if it has some."""
        return split_mask(self.b, mask, self.heads, self.size)

    def with_axis(self, *values: Value) -> list[Value]:
        """Return k and v with the axis of a group's members."""
        return [B.add_axis(self.b, x, 2) for x in values]

    def merge(self, x: Value) -> Value:
        """Undo `split`."""
        n, _, _, *inner = B.shape_of(x)
        return B.reshape(self.b, x, (n, product((self.heads, self.size)), *inner))

    def sum(self, x: Value) -> Value:
        """Sum over the members of each group."""
        return B.reduce(self.b, "reduce_sum", x, [2], False)


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
