"""Attention, of the standard and of the domain com.microsoft, onto the attention kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import sympy

from ....ir.dims import DimExpr, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Node, Value
from ....ir.ranges import always_at_most
from ....ops import build as B
from ....ops.attention import causal, sdpa
from ....ops.conditions import add_guard
from ..rows import Call, Operand, row
from .quantised import MICROSOFT, integers, scaled_sums, zero_of_rows


def _refuse(call: Call, *names: str) -> None:
    """Raise UnsupportedOp for attributes that are set, of which the standard value is 0."""
    found = next((name for name in names if call.attr(name, 0)), "")
    if found:
        raise UnsupportedOp(f"{call.op}: the attribute {found} is not compiled")


def _heads(call: Call, x: Value, n: int) -> Value:
    """Return x [batch, length, n * width] as [batch, n, length, width]."""
    batch, length, columns = B.shape_of(x)
    split = B.reshape(call.b, x, [batch, length, n, B.divide(columns, n)])
    return B.permute(call.b, split, [0, 2, 1, 3])


def _merged(call: Call, x: Value) -> Value:
    """Return x [batch, n, length, width] as [batch, length, n * width]."""
    batch, n, length, width = B.shape_of(x)
    return B.reshape(call.b, B.permute(call.b, x, [0, 2, 1, 3]), [batch, length, simplify(n * width)])


def _with_past(call: Call, past: Value | None, x: Value) -> Value:
    return x if past is None else B.concat(call.b, [past, x], 2)


def _padding(call: Call, i: int, batch: DimExpr, keys: DimExpr, dtype: str) -> Value | None:
    """Return what the mask that input `i` is adds to scores: 0 for keys that are seen, else
    mask_filter_value."""
    if not call.has(i):
        return None
    b, mask = call.b, call.value(i)
    rank = len(B.shape_of(mask))
    if rank == 1:
        lengths = B.of_size(b, call.op, mask, 0, batch)
        seen = B.pointwise(b, "lt", B.iota(b, keys), B.reshape(b, lengths, [batch, 1, 1, 1]))
    elif rank in (2, 3):
        mask = B.of_size(b, call.op, mask, rank - 1, keys)
        seen = B.pointwise(
            b, "ne", B.reshape(b, mask, [batch, 1, *([1] if rank == 2 else []), *B.shape_of(mask)[1:]]), 0
        )
    else:
        raise UnsupportedOp(f"{call.op}: a mask of {rank} axes is not compiled; use 1, 2 or 3")
    added = B.where(b, seen, B.full(b, 0.0, "f32"), float(call.attr("mask_filter_value", -10000.0)))
    return B.cast_to(b, added, dtype)


def _attend(call: Call, q: Value, k: Value, v: Value, masks: list[Value | None]) -> Value:
    """Return attention [batch, heads, length, width] with masks that are added."""
    b, mask = call.b, None
    length, keys = B.shape_of(q)[2], B.shape_of(k)[2]
    for each in masks:
        if each is not None:
            mask = each if mask is None else B.pointwise(b, "add", mask, each)
    if call.attr("unidirectional", 0):
        before = B.full(b, simplify(keys - length), "i64")
        rows = B.pointwise(b, "add", B.iota(b, length, 0, 2), before)
        seen = B.pointwise(b, "le", B.iota(b, keys), rows)
        mask = seen if mask is None else B.where(b, seen, mask, -inf)
    return sdpa(b, q, k, v, mask, scale=call.attr("scale", 0.0) or None, enable_gqa=True)


@row("Attention")
def _standard(call: Call) -> tuple[Value, ...] | None:
    """The standard's attention, unless its scores are a result, limited, windowed, or of other precision."""
    plain = ("is_causal", "kv_num_heads", "q_num_heads", "scale")
    if any(each for name, each in call.attributes.items() if name not in plain) or call.n_outputs > 3:
        return None
    if call.has(6) or (call.attr("is_causal", 0) and call.has(4)):
        return None
    b, counts = call.b, [call.attr(name) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    parts = [call.value(i) for i in range(3)]
    q, k, v = (
        _heads(call, x, n) if len(B.shape_of(x)) == 3 else x for x, n in zip(parts, counts, strict=True)
    )
    k, v = _with_past(call, call.maybe(4), k), _with_past(call, call.maybe(5), v)
    keys, mask = B.shape_of(k)[2], call.maybe(3)
    if mask is not None:
        mask = _of_keys(call, mask, keys)
    if call.attr("is_causal", 0):
        seen = causal(b, B.shape_of(q)[2], keys)
        is_bool = mask is not None and B.dtype_of(mask) == "bool"
        mask = seen if mask is None else B.pointwise(b, "and", seen, mask) if is_bool else B.where(
            b, seen, mask, -inf)  # fmt: skip
    made = sdpa(b, q, k, v, mask, scale=call.attr("scale") or None, enable_gqa=True)
    return made if len(B.shape_of(parts[0])) == 4 else _merged(call, made), k, v


def _of_keys(call: Call, mask: Value, keys: DimExpr) -> Value:
    """Return a mask with all keys: those behind its end are not seen."""
    shape = B.shape_of(mask)
    size, value = shape[-1], False if B.dtype_of(mask) == "bool" else -inf
    if isinstance(size, int) and isinstance(keys, int) and 1 < size < keys:
        return B.pad(call.b, mask, [*[(0, 0)] * (len(shape) - 1), (0, keys - size)], value)
    return mask if B.is_one(size) else B.of_size(call.b, call.op, mask, len(shape) - 1, keys)


@row("MultiHeadAttention", domain=MICROSOFT)
def _multi_head(call: Call) -> tuple[Value, ...]:
    b, n = call.b, call.attr("num_heads")
    if len(call.shape(0)) != 3 or not call.has(1) or not call.has(2) or len(call.inputs) > 8:
        raise UnsupportedOp(
            "MultiHeadAttention: queries, keys and values must be three tensors, without a cache"
        )
    parts = [call.value(i) for i in range(3)]
    if call.has(3):
        at = 0
        for i, part in enumerate(parts):
            if len(B.shape_of(part)) == 3:
                size = B.shape_of(part)[2]
                parts[i] = B.pointwise(b, "add", part, B.take(b, call.value(3), 0, at, size))
                at = simplify(at + size)
    q, k, v = (part if len(B.shape_of(part)) == 4 else _heads(call, part, n) for part in parts)
    k, v = _with_past(call, call.maybe(6), k), _with_past(call, call.maybe(7), v)
    masks = [_padding(call, 4, B.shape_of(q)[0], B.shape_of(k)[2], B.dtype_of(q)), call.maybe(5)]
    return _merged(call, _attend(call, q, k, v, masks)), k, v


@row("Attention", domain=MICROSOFT)
def _attention(call: Call) -> tuple[Value, ...]:
    """Queries, keys and values are one product of input 0; the past of keys and values is one tensor."""
    _refuse(call, "do_rotary", "past_present_share_buffer")
    whole = call.aten("matmul", call.value(0), call.value(1))
    whole = B.pointwise(call.b, "add", whole, call.value(2)) if call.has(2) else whole
    return _of_product(call, whole, 3, 4, call.maybe(5))


@row("QAttention", domain=MICROSOFT)
def _quantised(call: Call) -> tuple[Value, ...]:
    """Attention whose product is one of integers."""
    _refuse(call, "do_rotary", "past_present_share_buffer")
    zero = zero_of_rows(call, 6, 3)
    whole = scaled_sums(
        call, integers(call, call.value(0), zero, 1, 7), (call.value(3), call.value(4)), call.value(2)
    )
    return _of_product(call, whole, 5, 8, None)


def _of_product(call: Call, whole: Value, mask: int, past: int, bias: Value | None) -> tuple[Value, ...]:
    """Return attention of queries, keys and values [batch, length, columns of all three]. `mask`, `past`: the
    inputs that are these."""
    b, n = call.b, call.attr("num_heads")
    third = B.divide(B.shape_of(whole)[2], 3)
    q, k, v = (
        _heads(call, B.take(b, whole, 2, at, size), n)
        for at, size in _spans(call.attr("qkv_hidden_sizes") or [third] * 3)
    )
    if call.has(past):
        parts = [B.drop_axis(b, B.take(b, call.value(past), 0, i, 1), 0) for i in (0, 1)]
        k, v = _with_past(call, parts[0], k), _with_past(call, parts[1], v)
    masks = [_padding(call, mask, B.shape_of(q)[0], B.shape_of(k)[2], B.dtype_of(q)), bias]
    made = _merged(call, _attend(call, q, k, v, masks))
    if call.n_outputs == 1:
        return (made,)
    return made, B.concat(b, [B.add_axis(b, k, 0), B.add_axis(b, v, 0)], 0)


def _spans(sizes: list[Any]) -> list[tuple[Any, Any]]:
    """Return the start and the size of parts that follow each other."""
    return [(simplify(sum(sizes[:i])), size) for i, size in enumerate(sizes)]


@row("GroupQueryAttention", domain=MICROSOFT)
def _grouped(call: Call) -> tuple[Value, ...]:
    """Causal attention of new positions to those of a cache and to themselves."""
    _refuse(call, "softcap", "smooth_softmax", "qk_output", "k_quant_type", "v_quant_type")
    if any(call.has(i) for i in range(9, len(call.inputs))):
        raise UnsupportedOp("GroupQueryAttention: positions, a bias or sinks as inputs are not compiled")
    b, n, n_kv = call.b, call.attr("num_heads"), call.attr("kv_num_heads")
    parts = [call.value(i) for i in range(3) if call.has(i)]
    if len(parts) == 1:
        width = B.divide(B.shape_of(parts[0])[2], n + 2 * n_kv)
        sizes = [simplify(width * each) for each in (n, n_kv, n_kv)]
        parts = [B.take(b, parts[0], 2, at, size) for at, size in _spans(sizes)]
    q, k, v = (_heads(call, part, count) for part, count in zip(parts, (n, n_kv, n_kv), strict=True))
    cache = _cache_of(call, *(B.shape_of(q)[i] for i in (0, 2)))
    if call.attr("do_rotary", 0):
        angles = [_angles(call, call.value(i), cache.places) for i in (7, 8)]
        q, k = (_rotated(call, x, *angles) for x in (q, k))
    if call.has(3):
        k, v = _grown(call, cache, [call.value(3), call.value(4)], [k, v])
    mask = cache.seen(call.attr("local_window_size", -1))
    return _merged(call, sdpa(b, q, k, v, mask, scale=call.attr("scale", 0.0) or None, enable_gqa=True)), k, v


@dataclass(frozen=True)
class Cache:
    """Keys and values of earlier positions. Sequence i has starts[i] of them, i64 [batch], in a cache of
    `before` rows; its new positions follow, i64 [batch, length], and the next cache has `total` rows.
    `is_full`: whether all sequences have all rows, a bool."""

    b: Builder
    starts: Value
    places: Value
    before: DimExpr
    total: DimExpr
    is_full: Value

    def seen(self, window: int) -> Value:
        """Return which keys each new position sees, bool [batch, 1, length, total]: none after it, and the
        nearest `window` if that is positive."""
        b, keys = self.b, B.iota(self.b, self.total)
        rows = B.add_axis(b, B.add_axis(b, self.places, 1), 3)
        seen = B.pointwise(b, "le", keys, rows)
        if window <= 0:
            return seen
        return B.pointwise(b, "and", seen, B.pointwise(b, "gt", keys, B.pointwise(b, "sub", rows, window)))

    def append(self, past: Value, new: Value) -> Value:
        """Return all rows of the cache, [batch, heads, before, width], and the new ones."""
        return B.concat(self.b, [past, B.take(self.b, new, 2, 0, simplify(self.total - self.before))], 2)

    def insert(self, past: Value, new: Value) -> Value:
        """Return what each sequence has in the cache, its new rows, and zeros."""
        b, (batch, heads, length, width) = self.b, B.shape_of(new)
        end = simplify(length + 1)  # zeros are the row after the last new one
        rows = B.reshape(b, B.pad(b, new, [(0, 0), (0, 0), (0, 1), (0, 0)]), [batch * heads * end, width])
        at = B.pointwise(b, "sub", B.iota(b, self.total), B.reshape(b, self.starts, [batch, 1, 1]))
        near = B.pointwise(b, "maximum", B.pointwise(b, "minimum", at, length), 0)
        first = b.one("iota", start=0, step=end, length=simplify(batch * heads), dtype="i64")
        index = B.pointwise(b, "add", near, B.reshape(b, first, [batch, heads, 1]))
        kept = B.pad(b, past, [(0, 0), (0, 0), (0, simplify(self.total - self.before)), (0, 0)])
        is_kept = B.add_axis(b, B.pointwise(b, "lt", at, 0), 3)
        return B.where(b, is_kept, kept, b.one("gather", rows, index, axis=0))


def _grown(call: Call, cache: Cache, pasts: list[Value], new: list[Value]) -> Sequence[Value]:
    """Return caches with new rows; where all sequences have all rows they are only put behind them."""

    def rows(add: Callable[[Value, Value], Value]) -> list[Operand]:
        return [add(*pair) for pair in zip(pasts, new, strict=True)]

    blocks = [call.scope.block([], partial(rows, add)) for add in (cache.append, cache.insert)]
    types = [each.tensor for each in blocks[0].results]
    return call.b.insert(Node("if", [cache.is_full], regions=blocks), types)


def _cache_of(call: Call, batch: DimExpr, length: DimExpr) -> Cache:
    """Return what sequences have in the cache: as many positions as remain of seqlens_k + 1, but none in a
    first prompt, whose sequences may end before the input does."""
    b, ends = call.b, B.cast_to(call.b, call.value(5), "i64")
    ends = B.of_size(b, call.op, B.reshape(b, ends, [-1]), 0, batch)
    ends = B.pointwise(b, "add", ends, 1)
    before, total, is_first = 0, length, B.full(b, True, "bool")
    if call.has(3):
        before, count = call.shape(3)[2], call.size(6)
        total = (
            count if always_at_most(before, count, b.graph.symbols) else simplify(sympy.Max(before, count))
        )
        text = f"{call.op}: total_sequence_length is {count}; cache and input have fewer positions"
        add_guard(b, sympy.Le(count, simplify(before + length)), text)
        is_first = B.pointwise(b, "eq", B.full(b, length, "i64"), B.full(b, count, "i64"))
    later = B.pointwise(b, "sub", ends, length)
    fits = B.pointwise(b, "or", B.pointwise(b, "ge", later, 0), is_first)
    fits = B.pointwise(b, "and", fits, B.pointwise(b, "le", ends, total))
    fits = B.pointwise(b, "and", fits, B.pointwise(b, "ge", ends, 0))
    b.apply(
        "guard",
        b.one("item", B.reduce(b, "reduce_all", fits, [0], False)),
        message=f"{call.op}: seqlens_k + 1 must be at most the positions of cache and input together, and at "
        "least those of the input, unless this is the first prompt",
    )
    starts = B.pointwise(b, "maximum", later, 0)
    is_full = B.pointwise(b, "eq", starts, before)
    is_full = b.one("item", B.reduce(b, "reduce_all", is_full, [0], False))
    places = B.pointwise(b, "add", B.reshape(b, starts, [batch, 1]), B.iota(b, length))
    return Cache(b, starts, places, before, total, is_full)


@row("RotaryEmbedding", domain=MICROSOFT)
def _rotary(call: Call) -> Value:
    return _turned(call, call.value(0), call.value(1), call.value(2), call.value(3))


@row("RotaryEmbedding")
def _standard_rotary(call: Call) -> Value:
    return _turned(call, call.value(0), call.maybe(3), call.value(1), call.value(2))


def _turned(call: Call, x: Value, places: Value | None, cos: Value, sin: Value) -> Value:
    """Return x [batch, heads, length, width] or [batch, length, heads * width] turned by rows of `cos` and
    `sin` that `places` names: [batch, length], or the first of them."""
    b = call.b
    is_split = len(B.shape_of(x)) == 4
    count = call.attr("num_heads", 0)
    if not is_split and not count:
        width = simplify(2 * B.shape_of(cos)[-1])
        count = B.divide(B.shape_of(x)[2], width)
    length = B.shape_of(x)[2 if is_split else 1]
    heads = x if is_split else _heads(call, x, count)
    if places is not None and len(B.shape_of(places)) == 1:
        places = B.pointwise(b, "add", B.reshape(b, places, [1, 1]), B.iota(b, length, 1, 2))
    if places is not None:
        cos, sin = (_angles(call, table, places) for table in (cos, sin))
    made = _rotated(call, heads, cos, sin)
    return made if is_split else _merged(call, made)


def _angles(call: Call, table: Value, places: Value) -> Value:
    """Return the rows of a table for positions."""
    return call.b.one("gather", table, B.cast_to(call.b, places, "i64"), axis=0)


def _rotated(call: Call, x: Value, cos: Value, sin: Value) -> Value:
    """Return x [batch, heads, length, width], pairs of whose columns are turned by angles whose `cos` and
    `sin` are [batch or 1, length, columns / 2]."""
    b, width = call.b, B.shape_of(x)[3]
    half = B.shape_of(cos)[2]
    turned = call.attr("rotary_embedding_dim", 0) or simplify(2 * half)
    rest = B.take(b, x, 3, turned, simplify(width - turned)) if turned != width else None
    x = B.take(b, x, 3, 0, turned)
    first, second = (_half(call, x, i, half) for i in (0, 1))
    c, s = (B.cast_to(b, B.add_axis(b, table, 1), B.dtype_of(x)) for table in (cos, sin))

    def mixed(op: str, left: Value, right: Value) -> Value:
        return B.pointwise(b, op, B.pointwise(b, "mul", left, c), B.pointwise(b, "mul", right, s))

    parts = [mixed("sub", first, second), mixed("add", second, first)]
    if _is_interleaved(call):
        made = B.reshape(b, B.concat(b, [B.add_axis(b, part, 4) for part in parts], 4), B.shape_of(x))
    else:
        made = B.concat(b, parts, 3)
    return made if rest is None else B.concat(b, [made, rest], 3)


def _is_interleaved(call: Call) -> bool:
    return bool(call.attr("rotary_interleaved" if call.op == "GroupQueryAttention" else "interleaved", 0))


def _half(call: Call, x: Value, i: int, half: DimExpr) -> Value:
    """Return the first or second columns of pairs: halves, or neighbours."""
    if not _is_interleaved(call):
        return B.take(call.b, x, 3, simplify(i * half), half)
    return B.take(call.b, x, 3, i, half, 2)
