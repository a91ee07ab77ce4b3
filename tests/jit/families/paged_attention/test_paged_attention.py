"""Attention to pages: the definition, one sequence's bits in any company, and data that mean nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.evaluation import from_memory, to_memory
from shapevm.jit.execute import Kernel
from shapevm.jit.families.paged_attention.reference import Cache, Rule, paged_attention
from shapevm.jit.families.paged_attention.spec import PAGE
from shapevm.jit.text import parse_spec

from ....guarded import guarded
from ...operations import HOST_TARGETS

PLAIN = Rule(0.3, 0, 0.0)
HEADS = {"grouped": (4, 2, 64), "alone": (3, 3, 80), "one": (5, 1, 20), "wide": (2, 1, 256)}
MORE = {"96": (2, 2, 96), "128": (6, 2, 128), "17": (1, 1, 17)}
RULES = {"plain": PLAIN, "window": Rule(0.3, 21, 0.0), "narrow": Rule(0.3, 1, 0.0), "cap": Rule(0.3, 40, 2.0)}


@dataclass(frozen=True)
class Call:
    """The arrays of a call, in the spec's order."""

    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    table: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    scales: np.ndarray | None = None

    @property
    def dtype(self) -> str:
        """The keys' and values'."""
        return {"uint16": "bf16", "int8": "i8"}.get(self.keys.dtype.name, "f32")


@cache
def kernel(
    heads: tuple[int, int, int], rule: Rule, dtype: str, target: str, dims: tuple[int, ...] | None
) -> Kernel:
    count, kv_count, size = heads
    scales = f"\n  b6 f32[n1,{kv_count},2]" if dtype == "i8" else ""
    text = f"""paged_attention n_dims=5 scale={rule.scale} window={rule.window} soft_cap={rule.soft_cap}
  b0 f32[n0,{count},{size}]
  b1 {dtype}[n1,{kv_count},{size}]
  b2 {dtype}[n1,{kv_count},{size}]
  b3 i32[n2,n3]
  b4 i64[n4]
  b5 i64[n2]{scales}
  b{7 if scales else 6} f32[n0,{count},{size}] output"""
    return Kernel(compile_kernel(parse_spec(text), dims, target))


def run(call: Call, rule: Rule = PLAIN, target: str = HOST_TARGETS[0], is_exact: bool = False) -> np.ndarray:
    """Return the kernel's result; nothing beside its buffers can be touched."""
    heads = (call.query.shape[1], *call.keys.shape[1:])
    dims = (len(call.query), len(call.keys), *call.table.shape, len(call.offsets))
    out = np.full(call.query.shape, np.nan, np.float32)
    arrays = [guarded(array) for array in (*vars(call).values(), out) if array is not None]
    kernel(heads, rule, call.dtype, target, dims if is_exact else None).run(arrays, dims)
    return np.array(arrays[-1])


def filled(rng: np.random.Generator, heads: tuple[int, int, int], lengths: list[int], new: list[int]) -> Call:
    """Return a call of sequences with `new` tokens each, in pages of a shuffled pool; slots of no position
    are NaN."""
    count, kv_count, size = heads
    pages = [-(-length // PAGE) for length in lengths]
    pool = sum(pages) + 2
    numbers, table = list(rng.permutation(pool)), np.full((len(lengths), max([*pages, 0]) + 1), -7, np.int32)
    keys, values = np.full((2, pool * PAGE + 3, kv_count, size), np.nan, np.float32)
    for s, length in enumerate(lengths):
        table[s, : pages[s]] = [numbers.pop() for _ in range(pages[s])]
        positions = np.arange(length)
        slots = table[s, positions // PAGE] * PAGE + positions % PAGE
        keys[slots], values[slots] = rng.standard_normal((2, length, kv_count, size))
    query = np.float32(rng.standard_normal((sum(new), count, size)))
    offsets = np.cumsum([0, *new]).astype(np.int64)
    return Call(query, keys, values, table, offsets, np.array(lengths, np.int64))


def quantised(call: Call) -> Call:
    """Return the call with keys and values in i8; scales of no position stay NaN."""
    made, scales = [], np.empty((*call.keys.shape[:2], 2), np.float32)
    for i, each in enumerate((call.keys, call.values)):
        scales[..., i] = np.abs(each).max(-1) / np.float32(127)
        steps = np.maximum(scales[..., i, None], np.float32(1e-30))
        made.append(np.nan_to_num(np.rint(each / steps)).astype(np.int8))
    return replace(call, keys=made[0], values=made[1], scales=scales)


def defined(call: Call, rule: Rule) -> np.ndarray:
    keys, values = (from_memory(x, call.dtype) for x in (call.keys, call.values))
    cache = Cache(keys, values, call.table, call.lengths, call.scales)
    return paged_attention(call.query, cache, call.offsets, rule)


def part(call: Call, sequence: int, begin: int, end: int) -> Call:
    """Return the call of tokens `begin` .. `end` - 1 of a sequence alone, with the cache as it is by then."""
    first, after = (int(x) for x in call.offsets[sequence : sequence + 2])
    length = call.lengths[sequence : sequence + 1] - (after - first - end)
    table, offsets = call.table[sequence : sequence + 1], np.array([0, end - begin])
    query = call.query[first + begin : first + end]
    return replace(call, query=query, table=table, offsets=offsets, lengths=length)


@pytest.mark.parametrize("stored", ["f32", "i8"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
def test_the_definition_in_any_code(heads: tuple[int, int, int], rule: Rule, stored: str) -> None:
    rng = np.random.default_rng(0)
    call = filled(rng, heads, [70, 1, 16, 0, 33, 48], [70, 1, 3, 0, 1, 17])
    call = quantised(call) if stored == "i8" else call
    found = run(call, rule)
    np.testing.assert_allclose(found, defined(call, rule), rtol=2e-5, atol=2e-5)
    for target in HOST_TARGETS:
        assert np.array_equal(run(call, rule, target), found), target
    assert np.array_equal(run(call, rule, is_exact=True), found)


@pytest.mark.parametrize("heads", MORE.values(), ids=MORE)
def test_sizes_of_heads(heads: tuple[int, int, int]) -> None:
    call = filled(np.random.default_rng(1), heads, [37, 18], [2, 1])
    np.testing.assert_allclose(run(call), defined(call, PLAIN), rtol=2e-5, atol=2e-5)


def test_the_definition_is_dense_attention() -> None:
    """In f64, with whole matrices."""
    call = filled(np.random.default_rng(2), (4, 2, 64), [45], [13])
    slots = Cache(call.keys, call.values, call.table, call.lengths).slots(0)
    keys, values = (np.repeat(x[slots], 2, axis=1).astype(np.float64) for x in (call.keys, call.values))
    scores = np.einsum("ihd,jhd->hij", call.query.astype(np.float64), keys) * 0.3
    scores[:, np.arange(45) > np.arange(32, 45)[:, None]] = -np.inf
    weights = np.exp(scores)
    wanted = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), values)
    np.testing.assert_allclose(defined(call, PLAIN), wanted, rtol=1e-12)
    np.testing.assert_allclose(run(call), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("stored", ["f32", "i8"])
@pytest.mark.parametrize("rule", [RULES["plain"], RULES["window"]], ids=["plain", "window"])
def test_bits_alone_and_in_chunks_of_every_size(rule: Rule, stored: str) -> None:
    lengths, new = [50, 7, 31, 16, 64, 1, 90, 33], [37, 7, 1, 16, 2, 1, 1, 20]
    call = filled(np.random.default_rng(3), (4, 2, 32), lengths, new)
    call = quantised(call) if stored == "i8" else call
    found = run(call, rule)
    for s, count in enumerate(new):
        rows = found[call.offsets[s] : call.offsets[s + 1]]
        for size in (*range(1, min(count, 18) + 1), count):
            chunks = [part(call, s, i, min(i + size, count)) for i in range(0, count, size)]
            assert np.array_equal(np.concatenate([run(chunk, rule) for chunk in chunks]), rows), (s, size)


def test_bits_with_other_pages_and_a_wider_table() -> None:
    heads, lengths, new = (4, 2, 64), [50, 7, 31], [5, 7, 1]
    calls = [filled(np.random.default_rng(4), heads, lengths, new)]
    pool = len(calls[0].keys) // PAGE
    order = np.random.default_rng(5).permutation(pool)
    moved = (np.argsort(order)[:, None] * PAGE + np.arange(PAGE)).ravel()
    table = order[np.clip(calls[0].table, 0, pool - 1)].astype(np.int32)
    table = np.pad(table, ((0, 0), (0, 40)), constant_values=2**31 - 1)
    other = replace(calls[0], keys=calls[0].keys[moved], values=calls[0].values[moved], table=table)
    assert np.array_equal(run(calls[0]), run(other))


def test_pages_in_bf16() -> None:
    call = filled(np.random.default_rng(6), (4, 2, 64), [50, 7], [5, 1])
    narrow = replace(call, keys=to_memory(call.keys, "bf16"), values=to_memory(call.values, "bf16"))
    found = run(narrow)
    wide = replace(call, **{n: from_memory(getattr(narrow, n), "bf16") for n in ("keys", "values")})
    assert np.array_equal(found, run(wide))
    np.testing.assert_allclose(found, defined(narrow, PLAIN), rtol=2e-5, atol=2e-5)


def test_pages_in_int8_are_near_those_in_f32() -> None:
    call = filled(np.random.default_rng(6), (4, 2, 64), [50, 7], [5, 1])
    assert np.abs(run(quantised(call)) - defined(call, PLAIN)).max() < 0.05


def test_great_scores_do_not_overflow() -> None:
    call = filled(np.random.default_rng(7), (4, 2, 64), [50], [9])
    call = replace(call, query=call.query * np.float32(1000))
    np.testing.assert_allclose(run(call), defined(call, PLAIN), rtol=1e-3, atol=1e-3)


def test_infinities_and_nans_stay_in_their_rows() -> None:
    call = filled(np.random.default_rng(8), (4, 2, 64), [20, 20], [3, 3])
    clean = run(call)
    call.query[1, 0, 3], call.query[4, 2, 5] = np.nan, np.inf
    found = run(call)
    assert np.isnan(found[1, 0]).all()
    rest = np.ones(found.shape[:2], bool)
    rest[1, 0] = rest[4, 2] = False
    assert np.array_equal(found[rest], clean[rest])


HOSTILE = (0, 1, -1, 5, 17, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63))


@pytest.mark.parametrize("stored", ["f32", "i8"])
def test_any_data_stay_within_the_buffers(stored: str) -> None:
    rng = np.random.default_rng(9)
    for _ in range(60):
        call = filled(rng, (3, 1, 20), [20, 3, 40], [7, 1, 9])
        table = rng.choice(HOSTILE[:7], call.table.shape).astype(np.int32)
        offsets, lengths = (rng.choice(HOSTILE, n).astype(np.int64) for n in (4, 3))
        call = replace(call, table=table, offsets=offsets, lengths=lengths)
        call = replace(call, keys=np.nan_to_num(call.keys), values=np.nan_to_num(call.values))
        call = quantised(call) if stored == "i8" else call
        found = run(call, RULES["window"])
        np.testing.assert_allclose(found, defined(call, RULES["window"]), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("slots, pages, bounds", [(0, 3, 3), (15, 3, 3), (32, 0, 3), (32, 2, 0), (32, 2, 1)])
def test_without_slots_pages_or_offsets_all_is_zero(slots: int, pages: int, bounds: int) -> None:
    kv = np.ones((slots, 1, 20), np.float32)
    offsets, lengths = np.arange(bounds, dtype=np.int64), np.full(2, 9, np.int64)
    call = Call(np.ones((2, 3, 20), np.float32), kv, kv, np.zeros((2, pages), np.int32), offsets, lengths)
    assert not run(call).any()
