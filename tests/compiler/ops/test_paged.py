"""Attention to pages, compiled: a cache that is written in place, of any size, on any threads."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.jit.families.paged_attention.reference import Cache, Rule, paged_attention

import shapevm
from shapevm import nn

PAGE, HEADS, KV_HEADS, SIZE = 16, 4, 2, 32
INPUTS = {
    "query": ("tokens", HEADS, SIZE),
    "key": ("tokens", KV_HEADS, SIZE),
    "value": ("tokens", KV_HEADS, SIZE),
    "slots": (("tokens",), "i64"),
    "offsets": (("bounds",), "i64"),
    "lengths": (("sequences",), "i64"),
    "table": (("sequences", "pages"), "i32"),
}


class Layer(nn.Module):
    """Writes the new tokens' keys and values, then attends."""

    def __init__(self, pages: int) -> None:
        shape = (pages * PAGE, KV_HEADS, SIZE)
        self.keys, self.values = (nn.Buffer(shape, in_place=True) for _ in range(2))

    def forward(
        self, query: Any, key: Any, value: Any, slots: Any, offsets: Any, lengths: Any, table: Any
    ) -> Any:
        self.keys.update(nn.index_copy(self.keys, 0, slots, key))
        self.values.update(nn.index_copy(self.values, 0, slots, value))
        return nn.paged_attention(query, self.keys, self.values, table, offsets, lengths, 0.2, window=50)


@cache
def compiled(pages: int = 24) -> shapevm.Executable:
    return nn.compile(Layer(pages), INPUTS)


def call(
    exe: shapevm.Executable,
    qkv: list[np.ndarray],
    tables: list[list[int]],
    new: list[int],
    lengths: list[int],
) -> np.ndarray:
    """Run the last `new` tokens of sequences of these lengths."""
    width = max(map(len, tables))
    table = np.array([[*pages, *[0] * (width - len(pages))] for pages in tables], np.int32)
    slots = [
        pages[p // PAGE] * PAGE + p % PAGE
        for pages, count, length in zip(tables, new, lengths, strict=True)
        for p in range(length - count, length)
    ]
    offsets = np.cumsum([0, *new]).astype(np.int64)
    return np.asarray(exe(*qkv, np.array(slots, np.int64), offsets, np.array(lengths, np.int64), table))


def sequences(lengths: list[int]) -> list[list[np.ndarray]]:
    """Return the query, keys and values of each sequence."""
    rng = np.random.default_rng(0)
    shapes = [(HEADS, SIZE), (KV_HEADS, SIZE), (KV_HEADS, SIZE)]
    return [[np.float32(rng.standard_normal((n, *shape))) for shape in shapes] for n in lengths]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = shapevm.get_threads()
    yield
    shapevm.set_threads(before)


LENGTHS = [70, 3, 33, 17]
TABLES = [[9, 2, 20, 5, 1], [3], [7, 8, 6], [15, 0]]


def alone() -> list[np.ndarray]:
    exe = compiled()
    return [
        call(exe, qkv, [pages], [n], [n])
        for qkv, pages, n in zip(sequences(LENGTHS), TABLES, LENGTHS, strict=True)
    ]


def test_the_definition() -> None:
    for qkv, found in zip(sequences(LENGTHS), alone(), strict=True):
        query, keys, values = qkv
        n = len(query)
        padded = [np.pad(x, ((0, -n % PAGE), (0, 0), (0, 0))) for x in (keys, values)]
        table = np.arange(-(-n // PAGE))[None]
        wanted = paged_attention(
            query, Cache(*padded, table, np.array([n])), np.array([0, n]), Rule(0.2, 50, 0)
        )
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("step", [1, 7, 16, 40])
def test_bits_alone_together_and_in_chunks(step: int, threads: int) -> None:
    """Sequences that join and leave, in pages that are not those of the calls alone."""
    wanted = alone()
    shapevm.set_threads(threads)
    exe, made = compiled(), sequences(LENGTHS)
    tables = [pages[::-1] for pages in TABLES]
    found: list[list[np.ndarray]] = [[] for _ in LENGTHS]
    for begin in range(0, max(LENGTHS), step):
        live = [s for s, n in enumerate(LENGTHS) if begin < n]
        ends = [min(begin + step, LENGTHS[s]) for s in live]
        qkv = [
            np.concatenate([made[s][i][begin:e] for s, e in zip(live, ends, strict=True)]) for i in range(3)
        ]
        counts = [end - begin for end in ends]
        rows = call(exe, qkv, [tables[s] for s in live], counts, ends)
        for s, part in zip(live, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
            found[s].append(part)
    for s, parts in enumerate(found):
        assert np.array_equal(np.concatenate(parts), wanted[s]), s


@pytest.mark.parametrize("pages", [4, 4096])
def test_a_call_allocates_no_pool(pages: int, tmp_path: Path) -> None:
    """The memory of loading and of calls does not grow with the pool but by the pool itself."""
    compiled(pages).save(tmp_path / "layer.svm")
    exe = shapevm.load(tmp_path / "layer.svm", strategy="generic")
    qkv = [np.ones((1, heads, SIZE), np.float32) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    tracemalloc.start()  # sees results, whose memory numpy allocates
    for _ in range(3):  # interpreted, planned, through the quick path
        assert np.array_equal(call(exe, qkv, [[3]], [1], [1]), np.ones((1, HEADS, SIZE), np.float32))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20
    assert exe.stats().arena_bytes < 1 << 20
