"""Attention to keys and values in pages of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...jit.families.paged_attention import reference
from ...jit.families.paged_attention.spec import MAX_HEADS, MAX_SIZE, SCALED, STORED
from ..ir.dims import equal, format_dim
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_dtype, same_dtype, show, tensor, tensors

OP = "paged_attention"
_INTEGERS = {"table": "i32", "offsets": "i64", "lengths": "i64"}


def _infer(types: Types, attrs: Attrs) -> Sequence[Type]:
    query, keys, values, *places = tensors(OP, types[:6], 6)
    check_dtype(OP, query.dtype, ("f32",))
    check_dtype(OP, same_dtype(OP, (keys, values)), STORED)
    for (name, dtype), place in zip(_INTEGERS.items(), places, strict=True):
        if place.dtype != dtype:
            raise DtypeError(f"{OP}: the {name} are {place.dtype}; they must be {dtype}")
    if [t.rank for t in (query, keys, values, *places)] != [3, 3, 3, 2, 1, 1]:
        raise ShapeError(_refusal(query, keys, values, *places))
    table, _, lengths = places
    same = (
        (keys.shape[0], values.shape[0]),
        (keys.shape[1], values.shape[1]),
        (query.shape[2], keys.shape[2]),
    )
    if not all(equal(a, b) for a, b in (*same, (table.shape[0], lengths.shape[0]))):
        raise ShapeError(_refusal(query, keys, values, *places))
    _check_heads(query, keys, values)
    _check_scales(keys, [tensor(OP, types, 6) for each in types[6:] if each is not None])
    for name in ("window", "soft_cap"):
        if attrs[name] < 0:
            raise ShapeError(f"{OP}: the {name} is {attrs[name]}; it must be at least 0 (none)")
    return (TensorType("f32", (*query.shape[:2], values.shape[2])),)


def _refusal(query: TensorType, keys: TensorType, values: TensorType, *places: TensorType) -> str:
    table, offsets, lengths = (show(place.shape) for place in places)
    return (
        f"{OP}: the query is {show(query.shape)}, keys {show(keys.shape)}, values {show(values.shape)}, "
        f"table {table}, offsets {offsets}, lengths {lengths}; they must be [tokens, heads, size], [slots, "
        "kv_heads, size], [slots, kv_heads, v_size], [sequences, pages], [sequences + 1], [sequences]"
    )


def _check_heads(query: TensorType, keys: TensorType, values: TensorType) -> None:
    """Check the sizes for which there are kernels."""
    heads, kv_heads, sizes = query.shape[1], keys.shape[1], (query.shape[2], values.shape[2])
    are_known = isinstance(heads, int) and isinstance(kv_heads, int) and 0 < kv_heads <= heads <= MAX_HEADS
    if not are_known or heads % kv_heads:
        raise ShapeError(
            f"{OP}: {format_dim(heads)} heads read {format_dim(kv_heads)} heads of keys; they must be "
            f"numbers up to {MAX_HEADS}, of which the second divides the first"
        )
    if not all(isinstance(size, int) and 1 <= size <= MAX_SIZE for size in sizes):
        raise ShapeError(f"{OP}: the sizes of a head are {show(sizes)}; they must be from 1 to {MAX_SIZE}")


def _check_scales(keys: TensorType, scales: Sequence[TensorType]) -> None:
    wanted = (*keys.shape[:2], 2)
    if (keys.dtype == SCALED) != bool(scales):
        raise DtypeError(f"{OP}: the keys are {keys.dtype}; those in {SCALED} have scales, and no others")
    for each in scales:
        if each.dtype != "f32" or each.rank != 3 or not all(map(equal, each.shape, wanted)):
            given = f"{each.dtype}{show(each.shape)}"
            raise ShapeError(f"{OP}: the scales are {given}; they must be f32{show(wanted)}")


def _reference(args: Sequence[Any], attrs: Attrs) -> Any:
    query, keys, values, table, offsets, lengths, scales = args
    cache = reference.Cache(keys, values, table, lengths, scales)
    rule = reference.Rule(attrs["scale"], attrs["window"], attrs["soft_cap"])
    return reference.paged_attention(query, cache, offsets, rule).astype(np.float32)


def paged_attention(
    b: Builder,
    query: Value,
    keys: Value,
    values: Value,
    table: Value,
    offsets: Value,
    lengths: Value,
    scale: float,
    window: int = 0,
    soft_cap: float = 0.0,
    scales: Value | None = None,
) -> Value:
    """Attention of new tokens to the pages of their sequences."""
    given = (query, keys, values, table, offsets, lengths, scales)
    return b.one(OP, *given, scale=float(scale), window=int(window), soft_cap=float(soft_cap))


_QUERY, _KEYS, _PLACES = "f32[s0, 4, 16]", "f32[69, 2, 16]", ("i32[s1, 5]", "i64[4]", "i64[s1]")
_ATTRS = {"scale": 0.25, "window": 0, "soft_cap": 0.0}
OPS: tuple[Op, ...] = (
    Op(
        OP,
        "standalone",
        "paged_attention(Tensor query, Tensor keys, Tensor values, Tensor table, Tensor offsets, Tensor "
        "lengths, Tensor? scales; scale, window, soft_cap) -> Tensor",
        "Causal attention of new tokens to the pages of their sequence: query [tokens, heads, size], keys "
        "[slots, kv_heads, size], values [slots, kv_heads, v_size]. Sequence s has the tokens offsets[s] .. "
        "offsets[s + 1] - 1, the last of its lengths[s] positions; position p is slot 16 * table[s, p // 16] "
        "+ p % 16. Keys and values in i8 are multiplied by their scales [slots, kv_heads, 2]. A token sees "
        "the last `window` positions up to its own (0: all); `soft_cap`, unless 0, "
        "limits scores by tanh. Numbers out of range count as the nearest in range; a token without "
        "keys gives 0.",
        _infer,
        _reference,
        samples=(
            Sample((_QUERY, _KEYS, _KEYS, *_PLACES, ""), _ATTRS, "index:70"),
            Sample(("f32[7, 3, 20]", "f32[s0, 3, 20]", "f32[s0, 3, 37]", "i32[2, s1]", "i64[3]", "i64[2]",
                    ""), {"scale": 0.3, "window": 7, "soft_cap": 2.0}, "index:33"),
            Sample((_QUERY, "bf16[64, 1, 16]", "bf16[64, 1, 16]", *_PLACES, ""), _ATTRS, "index:9"),
            Sample((_QUERY, "i8[64, 1, 16]", "i8[64, 1, 20]", *_PLACES, "f32[64, 1, 2]"), _ATTRS, "index:9"),
        ),
        errors=(
            (
                Sample((_QUERY, _KEYS, _KEYS, "i64[s1, 5]", "i64[4]", "i64[s1]", ""), _ATTRS),
                "paged_attention: the table are i64; they must be i32",
            ),
            (
                Sample(("f32[s0, 3, 16]", _KEYS, _KEYS, *_PLACES, ""), _ATTRS),
                "paged_attention: 3 heads read 2 heads of keys; they must be numbers up to 4096, of which "
                "the second divides the first",
            ),
            (
                Sample((_QUERY, _KEYS, _KEYS, *_PLACES, ""), {**_ATTRS, "window": -1}),
                "paged_attention: the window is -1; it must be at least 0 (none)",
            ),
            (
                Sample((_QUERY, "i8[64, 1, 16]", "i8[64, 1, 16]", *_PLACES, ""), _ATTRS),
                "paged_attention: the keys are i8; those in i8 have scales, and no others",
            ),
            (
                Sample((_QUERY, "i8[64, 1, 16]", "i8[64, 1, 16]", *_PLACES, "f32[64, 1]"), _ATTRS),
                "paged_attention: the scales are f32[64, 1]; they must be f32[64, 1, 2]",
            ),
        ),
    ),
)  # fmt: skip
COMPOSITES: tuple[Composite, ...] = (Composite(("shapevm.paged_attention.default",), paged_attention),)
