"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, sqrt
from typing import Any

import numpy as np

from ..ir.dims import equal, format_dim
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Value
from ..ir.types import FLOAT_DTYPES, TensorType, Type
from . import build as B
from .declare import Composite, Op, Sample
from .matmul import matmul
from .random import dropout
from .rules import Attrs, Types, check_dtype, equal_shapes, same_dtype, show, tensor


def _infer_attention(types: Types, attrs: Attrs) -> Sequence[Type]:
    q, k, v = (tensor("attention", types, i) for i in range(3))
    dtype = same_dtype("attention", [q, k, v])
    check_dtype("attention", dtype, FLOAT_DTYPES)
    batch, shapes = q.shape[:-2], f"q {show(q.shape)}, k {show(k.shape)}, v {show(v.shape)}"
    if min(q.rank, k.rank, v.rank) < 2 or not all(equal_shapes(batch, t.shape[:-2]) for t in (k, v)):
        raise ShapeError(f"attention: {shapes} must be [batch.., length, width] with equal batch sizes")
    if not equal(q.shape[-1], k.shape[-1]):
        raise ShapeError(
            f"attention: the width differs, {format_dim(q.shape[-1])} and {format_dim(k.shape[-1])} in "
            f"{shapes}"
        )
    if not equal(k.shape[-2], v.shape[-2]):
        raise ShapeError(
            f"attention: k and v differ in length, {format_dim(k.shape[-2])} and "
            f"{format_dim(v.shape[-2])} in {shapes}"
        )
    if len(types) > 3 and types[3] is not None:
        _check_mask(tensor("attention", types, 3), (*batch, q.shape[-2], k.shape[-2]), dtype)
    return (TensorType(dtype, (*q.shape[:-1], v.shape[-1])),)


def _check_mask(mask: TensorType, wanted: tuple[Any, ...], dtype: str) -> None:
    if mask.dtype not in ("bool", dtype):
        raise DtypeError(f"attention: the mask is {mask.dtype}; it must be bool or {dtype}")
    if not equal_shapes(mask.shape, wanted):
        raise ShapeError(f"attention: the mask has shape {show(mask.shape)}; it must be {show(wanted)}")


def _attention(args: Sequence[Any], attrs: Attrs) -> Any:
    """softmax(scale * q k^T, masked) v; a row that is masked whole gives 0."""
    q, k, v, mask = args
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(attrs["scale"])
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
        highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
        total = np.sum(weights, axis=-1, keepdims=True, dtype=np.float64).astype(q.dtype)
        return np.matmul(weights / np.where(total == 0, 1, total), v).astype(q.dtype)


_SAMPLES = (
    (("f32[2, s0, 8]", "f32[2, s1, 8]", "f32[2, s1, 4]", ""), 0.5),
    (("f32[2, 3, s0, 8]", "f32[2, 3, s0, 8]", "f32[2, 3, s0, 8]", "bool[2, 3, s0, s0]"), 0.35),
    (("f32[s0, 8]", "f32[5, 8]", "f32[5, 8]", "f32[s0, 5]"), 1.0),
    (("f32[1, 1, 4]", "f32[1, 1, 4]", "f32[1, 1, 4]", ""), 0.5),
    (("f32[0, s0, 4]", "f32[0, s0, 4]", "f32[0, s0, 4]", ""), 0.5),
    (("f32[2, s0, 4]", "f32[2, 0, 4]", "f32[2, 0, 4]", ""), 0.5),
)
OPS: tuple[Op, ...] = (
    Op(
        "attention",
        "attention",
        "attention(Tensor q, Tensor k, Tensor v, Tensor? mask; scale) -> Tensor",
        "softmax(scale * q k^T) v with q [batch.., Lq, D], k [batch.., Lk, D], v [batch.., Lk, Dv]. The mask "
        "[batch.., Lq, Lk] is bool (True keeps) or is added; a row that is masked whole gives 0.",
        _infer_attention,
        _attention,
        samples=tuple(Sample(args, {"scale": scale}) for args, scale in _SAMPLES),
        errors=(
            (
                Sample(("f32[2, 8]", "f32[3, 7]", "f32[3, 8]", ""), {"scale": 1.0}),
                "attention: the width differs, 8 and 7 in q [2, 8], k [3, 7], v [3, 8]",
            ),
            (
                Sample(("f32[2, 8]", "f32[3, 8]", "f32[3, 8]", "bool[3, 3]"), {"scale": 1.0}),
                "attention: the mask has shape [3, 3]; it must be [2, 3]",
            ),
        ),
    ),
)


# torch's overload ---------------------------------------------------------------------------------


def sdpa(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """torch's scaled_dot_product_attention; `is_causal` lets position i see positions 0 .. i."""
    if enable_gqa:
        return _grouped(
            b, q, k, v, mask, partial(sdpa, b, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
        )
    shapes = [B.shape_of(x) for x in (q, k, v)]
    batch = B.broadcast_shape("attention", [shape[:-2] for shape in shapes])
    q, k, v = (B.expand(b, x, (*batch, *shape[-2:])) for x, shape in zip((q, k, v), shapes, strict=True))
    (length, width), keys = shapes[0][-2:], shapes[1][-2]
    k = B.of_size(b, "attention", k, len(batch) + 1, width)
    v = B.of_size(b, "attention", v, len(batch), keys)
    if is_causal:
        mask = causal(b, length, keys)
    if mask is not None:
        mask = mask if B.dtype_of(mask) == "bool" else B.cast_to(b, mask, B.dtype_of(q))
        mask = B.expand(b, mask, (*batch, length, keys))
    dtype = B.dtype_of(q)
    if dropout_p or dtype == "f64" or (scale is None and not isinstance(width, int)):
        return B.in_f32(b, partial(_by_products, b, mask=mask, dropout_p=dropout_p, scale=scale), q, k, v)
    scale = float(scale if scale is not None else 1 / sqrt(width))
    q, k, v = (B.cast_to(b, x, "f32") for x in (q, k, v))
    mask = mask if mask is None or B.dtype_of(mask) == "bool" else B.cast_to(b, mask, "f32")
    return B.cast_to(b, b.one("attention", q, k, v, mask, scale=scale), dtype)


def _by_products(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None, dropout_p: float, scale: float | None
) -> Value:
    """Attention in its parts: with dropout, in f64, or of a width that only calls tell."""
    dtype, rank = B.dtype_of(q), len(B.shape_of(q))
    if scale is None:
        width = B.full(b, B.shape_of(q)[-1], dtype)
        q = B.pointwise(b, "mul", q, b.one("rsqrt", width))
    else:
        q = B.pointwise(b, "mul", q, float(scale))
    scores = matmul(b, q, B.permute(b, k, [*range(rank - 2), rank - 1, rank - 2]))
    if mask is not None and B.dtype_of(mask) == "bool":
        scores = B.where(b, mask, scores, -inf)
    elif mask is not None:
        scores = B.pointwise(b, "add", scores, mask)
    most = B.reduce(b, "reduce_max", scores, [rank - 1], True)
    chances = b.one("softmax", scores, axis=rank - 1)
    chances = B.where(b, B.pointwise(b, "eq", most, -inf), B.full(b, 0, dtype), chances)
    return matmul(b, dropout(b, chances, dropout_p), v)


def causal(b: Builder, length: Any, keys: Any) -> Value:
    """True at [i, j] where j <= i: bool [length, keys]."""
    rows = b.one("iota", start=0, step=1, length=length, dtype="i64")
    columns = b.one("iota", start=0, step=1, length=keys, dtype="i64")
    return B.pointwise(b, "le", columns, B.add_axis(b, rows, 1))


def _grouped(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None, attend: Callable[..., Value]
) -> Value:
    """Attention where several heads of q, a group, read each head of k and v. These are not repeated: the
    heads of q become two axes, and k and v have one index along the second."""
    *outer, n_heads, length, width = B.shape_of(q)
    heads, other = B.shape_of(k)[-3], B.shape_of(v)[-3]
    if not equal(heads, other):
        raise ShapeError(
            f"attention: k has {format_dim(heads)} heads and v {format_dim(other)}; they must be equal"
        )
    groups = B.divide(n_heads, heads)
    q = B.reshape(b, q, (*outer, heads, groups, length, width))
    k, v = (B.add_axis(b, x, len(B.shape_of(x)) - 2) for x in (k, v))
    if mask is not None and len(B.shape_of(mask)) > 2:
        *before, own, rows, columns = B.shape_of(mask)
        split = (1, 1) if B.is_one(own) else (heads, groups)
        mask = B.reshape(b, mask, (*before, *split, rows, columns))
    found = attend(q, k, v, mask)
    *before, _, _, rows, columns = B.shape_of(found)
    return B.reshape(b, found, (*before, n_heads, rows, columns))


COMPOSITES: tuple[Composite, ...] = (Composite(("aten.scaled_dot_product_attention.default",), sdpa),)
