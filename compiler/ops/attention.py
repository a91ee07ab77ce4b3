"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, sqrt
from typing import Any

import numpy as np

from ...jit.families.attention.reference import segment_bounds
from ..ir.dims import DimExpr, equal, format_dim, symbol
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
        _check_mask("attention", tensor("attention", types, 3), (*batch, q.shape[-2], k.shape[-2]), dtype)
    return (TensorType(dtype, (*q.shape[:-1], v.shape[-1])),)


def _check_mask(op: str, mask: TensorType, wanted: tuple[Any, ...], dtype: str) -> None:
    if mask.dtype not in ("bool", dtype):
        raise DtypeError(f"{op}: the mask is {mask.dtype}; it must be bool or {dtype}")
    if not equal_shapes(mask.shape, wanted):
        raise ShapeError(f"{op}: the mask has shape {show(mask.shape)}; it must be {show(wanted)}")


def _infer_segments(types: Types, attrs: Attrs) -> Sequence[Type]:
    op = "segment_attention"
    q, k, v, offsets = (tensor(op, types, i) for i in range(4))
    dtype, shapes = same_dtype(op, [q, k, v]), f"q {show(q.shape)}, k {show(k.shape)}, v {show(v.shape)}"
    check_dtype(op, dtype, ("f32",))
    if min(q.rank, k.rank, v.rank) < 2 or not all(equal_shapes(q.shape[:-1], t.shape[:-1]) for t in (k, v)):
        raise ShapeError(f"{op}: {shapes} must be [tokens, heads.., width] with equal tokens and heads")
    if not equal(q.shape[-1], k.shape[-1]):
        width, other = format_dim(q.shape[-1]), format_dim(k.shape[-1])
        raise ShapeError(f"{op}: the width differs, {width} and {other} in {shapes}")
    if offsets.dtype != "i64":
        raise DtypeError(f"{op}: the offsets are {offsets.dtype}; they must be i64")
    if offsets.rank != 1 or equal(offsets.shape[0], 0):
        raise ShapeError(f"{op}: the offsets have shape {show(offsets.shape)}; it must be [segments + 1]")
    if len(types) > 4 and types[4] is not None:
        _check_mask(op, tensor(op, types, 4), (*q.shape[1:-1], *[attrs["longest"]] * 2), dtype)
    return (TensorType(dtype, (*q.shape[:-1], v.shape[-1])),)


def _attention(args: Sequence[Any], attrs: Attrs) -> Any:
    """softmax(scale * q k^T, masked) v; a completely masked row gives 0 if `safe`, else NaN."""
    q, k, v, mask = args
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(attrs["scale"])
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
        highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
        total = np.sum(weights, axis=-1, keepdims=True, dtype=np.float64).astype(q.dtype)
        total = np.where(total == 0, 1, total) if attrs["safe"] else total
        return np.matmul(weights / total, v).astype(q.dtype)


def _segment_attention(args: Sequence[Any], attrs: Attrs) -> Any:
    """The attention of each segment alone; 0 for tokens in none."""
    q, k, v, offsets, mask = args
    out = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for first, length in segment_bounds(offsets, len(q), attrs["longest"]):
        here = slice(first, first + length)
        rows = (np.moveaxis(x[here], 0, -2) for x in (q, k, v))
        seen = mask if mask is None else mask[..., :length, :length]
        out[here] = np.moveaxis(_attention([*rows, seen], {**attrs, "safe": True}), -2, 0)
    return out


_SAMPLES = (
    (("f32[2, s0, 8]", "f32[2, s1, 8]", "f32[2, s1, 4]", ""), 0.5),
    (("f32[2, 3, s0, 8]", "f32[2, 3, s0, 8]", "f32[2, 3, s0, 8]", "bool[2, 3, s0, s0]"), 0.35),
    (("f32[s0, 8]", "f32[5, 8]", "f32[5, 8]", "f32[s0, 5]"), 1.0),
    (("f32[1, 1, 4]", "f32[1, 1, 4]", "f32[1, 1, 4]", ""), 0.5),
    (("f32[0, s0, 4]", "f32[0, s0, 4]", "f32[0, s0, 4]", ""), 0.5),
    (("f32[2, s0, 4]", "f32[2, 0, 4]", "f32[2, 0, 4]", ""), 0.5),
)
_HEADS = "f32[s0, 2, 8]"
_SEGMENT_SAMPLES = (
    Sample((_HEADS, _HEADS, "f32[s0, 2, 4]", "i64[s1]", ""), {"scale": 0.35, "longest": 4}, "index:9"),
    Sample((_HEADS, _HEADS, _HEADS, "i64[3]", "bool[2, 5, 5]"), {"scale": 0.35, "longest": 5}, "index:17"),
    Sample(("f32[9, s0]", "f32[9, s0]", "f32[9, 4]", "i64[3]", "f32[7, 7]"), {"scale": 0.5, "longest": 7}),
    Sample(("f32[s0, 2, 3, 4]",) * 3 + ("i64[2]", ""), {"scale": 0.5, "longest": symbol("s0")}),
)
OPS: tuple[Op, ...] = (
    Op(
        "attention",
        "attention",
        "attention(Tensor q, Tensor k, Tensor v, Tensor? mask; scale, safe) -> Tensor",
        "softmax(scale * q k^T) v with q [batch.., Lq, D], k [batch.., Lk, D], v [batch.., Lk, Dv]. The mask "
        "[batch.., Lq, Lk] is bool (True keeps) or is added; a row that is masked whole gives 0 if `safe`, "
        "else NaN.",
        _infer_attention,
        _attention,
        samples=tuple(Sample(args, {"scale": scale, "safe": True}) for args, scale in _SAMPLES),
        errors=(
            (
                Sample(("f32[2, 8]", "f32[3, 7]", "f32[3, 8]", ""), {"scale": 1.0, "safe": True}),
                "attention: the width differs, 8 and 7 in q [2, 8], k [3, 7], v [3, 8]",
            ),
            (
                Sample(("f32[2, 8]", "f32[3, 8]", "f32[3, 8]", "bool[3, 3]"), {"scale": 1.0, "safe": True}),
                "attention: the mask has shape [3, 3]; it must be [2, 3]",
            ),
        ),
    ),
    Op(
        "segment_attention",
        "attention",
        "segment_attention(Tensor q, Tensor k, Tensor v, Tensor offsets, Tensor? mask; scale, longest) "
        "-> Tensor",
        "Attention of each segment to itself alone, q and k [tokens, heads.., D], v [tokens, heads.., Dv]. "
        "Segment s has the tokens offsets[s] .. offsets[s + 1] - 1, at most `longest`; instead of an offset "
        "the greatest so far counts, from 0 to `tokens`. The mask [heads.., longest, longest], bool or "
        "added, is read at positions within the segment. A token in no segment gives 0, unless `longest` is "
        "0.",
        _infer_segments,
        _segment_attention,
        samples=_SEGMENT_SAMPLES,
        errors=(
            (
                Sample((_HEADS, "f32[s0, 3, 8]", _HEADS, "i64[3]", ""), {"scale": 1.0, "longest": 4}),
                "segment_attention: q [s0, 2, 8], k [s0, 3, 8], v [s0, 2, 8] must be [tokens, heads.., "
                "width] with equal tokens and heads",
            ),
            (
                Sample((_HEADS, "f32[s0, 2, 7]", _HEADS, "i64[3]", ""), {"scale": 1.0, "longest": 4}),
                "segment_attention: the width differs, 8 and 7 in q [s0, 2, 8], k [s0, 2, 7], v [s0, 2, 8]",
            ),
            (
                Sample((_HEADS, _HEADS, _HEADS, "i32[3]", ""), {"scale": 1.0, "longest": 4}),
                "segment_attention: the offsets are i32; they must be i64",
            ),
            (
                Sample((_HEADS, _HEADS, _HEADS, "i64[0]", ""), {"scale": 1.0, "longest": 4}),
                "segment_attention: the offsets have shape [0]; it must be [segments + 1]",
            ),
            (
                Sample((_HEADS, _HEADS, _HEADS, "i64[3]", "f32[2, 4, s0]"), {"scale": 1.0, "longest": 4}),
                "segment_attention: the mask has shape [2, 4, s0]; it must be [2, 4, 4]",
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
    if scale is not None and B.is_run_time(scale):
        q, scale = B.pointwise(b, "mul", q, scale), 1.0
    if dropout_p or dtype == "f64" or (scale is None and not isinstance(width, int)):
        return B.in_f32(b, partial(_by_products, b, mask=mask, dropout_p=dropout_p, scale=scale), q, k, v)
    scale = float(scale if scale is not None else 1 / sqrt(width))
    q, k, v = (B.cast_to(b, x, "f32") for x in (q, k, v))
    mask = mask if mask is None or B.dtype_of(mask) == "bool" else B.cast_to(b, mask, "f32")
    return B.cast_to(b, b.one("attention", q, k, v, mask, scale=scale, safe=True), dtype)


def _by_products(
    b: Builder, q: Value, k: Value, v: Value, mask: Value | None, dropout_p: float, scale: float | None
) -> Value:
    """Attention in parts: with dropout, in f64, or of run-time width."""
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
    """Attention in which each head of k and v serves a group of heads of q. k and v are not repeated: the
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
    found = attend(q, k, v, split_mask(b, mask, heads, groups))
    *before, _, _, rows, columns = B.shape_of(found)
    return B.reshape(b, found, (*before, n_heads, rows, columns))


def split_mask(b: Builder, mask: Value | None, heads: DimExpr, groups: DimExpr) -> Value | None:
    """Return a mask whose heads, if it has some, are two axes."""
    if mask is None or len(B.shape_of(mask)) <= 2:
        return mask
    *before, own, rows, columns = B.shape_of(mask)
    split = (1, 1) if B.is_one(own) else (heads, groups)
    return B.reshape(b, mask, (*before, *split, rows, columns))


COMPOSITES: tuple[Composite, ...] = (Composite(("aten.scaled_dot_product_attention.default",), sdpa),)
