"""Attention over segments, compiled: the bits of `attention` for each segment alone and in a padded batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import inf, prod

import numpy as np
import pytest
import sympy
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.graph import Builder, Graph, SymbolInfo, Value
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.ops.build import where
from shapevm.compiler.reference import run

import shapevm
from shapevm.build.compile import compile_graphs

T, N, LONGEST, B = (symbol(name) for name in ("tokens", "n", "longest", "batch"))
WIDTH = 16
HEADS: dict[str, tuple[int, ...]] = {"no heads": (), "heads": (3,), "groups of heads": (2, 2)}
LENGTHS = {
    "one": [7],
    "one token": [1],
    "none": [0, 0],
    "many": [5, 1, 0, 13, 2, 31, 1, 64, 3],
    "blocks of keys": [523, 0, 313, 1],
    "a long one": [1031],
}


def finish(graph: Graph, *values: Value) -> Graph:
    graph.body.results = list(values)
    graph.outputs = [f"y{i}" for i in range(len(values))]
    return graph


def start(name: str, *sizes: sympy.Symbol) -> tuple[Graph, Builder]:
    graph = Graph(name, symbols={str(x): SymbolInfo(str(x), 0) for x in sizes})
    return graph, Builder(graph)


def part(b: Builder, x: Value, i: int, heads: tuple[int, ...]) -> Value:
    """Return q, k or v: a slice of one product."""
    cut = b.one("slice", x, axis=1, start=i, length=1, step=1)
    return b.one("reshape", cut, shape=(T, *heads, WIDTH))


def by_segments(heads: tuple[int, ...], mask: str) -> Graph:
    """Attention of all segments; its result is written as rows of all heads."""
    graph, b = start("segments", T, N, *([LONGEST] if mask else []))
    x = graph.input("x", TensorType("f32", (T, 3, *heads, WIDTH)))
    offsets = graph.input("offsets", TensorType("i64", (N,)))
    masks = [graph.input("mask", TensorType(mask, (*heads, LONGEST, LONGEST)))] if mask else [None]
    q, k, v = (part(b, x, i, heads) for i in range(3))
    longest = LONGEST if mask else T
    out = b.one("segment_attention", q, k, v, offsets, *masks, scale=0.25, longest=longest)
    return finish(graph, b.one("reshape", out, shape=(T, prod(heads) * WIDTH)))


def by_batch(heads: tuple[int, ...], mask: str) -> Graph:
    """The padded attention of a batch, whose keys have a mask."""
    graph, b = start("padded", B, LONGEST)
    shape = (B, *heads, LONGEST, WIDTH)
    q, k, v = (graph.input(name, TensorType("f32", shape)) for name in "qkv")
    wide = (B, *heads, LONGEST, LONGEST)
    keys = graph.input("keys", TensorType("bool", (B, *(1 for _ in heads), 1, LONGEST)))
    seen = b.one("expand", keys, shape=wide)
    if mask:
        own = graph.input("mask", TensorType(mask, (1, *heads, LONGEST, LONGEST)))
        own = b.one("expand", own, shape=wide)
        seen = b.one("and", seen, own) if mask == "bool" else where(b, seen, own, -inf)
    return finish(graph, b.one("attention", q, k, v, seen, scale=0.25, safe=True))


def alone(heads: tuple[int, ...], mask: str) -> Graph:
    """The attention of one segment."""
    graph, b = start("alone", LONGEST)
    shape = (*heads, LONGEST, WIDTH)
    q, k, v = (graph.input(name, TensorType("f32", shape)) for name in "qkv")
    masks = [graph.input("mask", TensorType(mask, (*heads, LONGEST, LONGEST)))] if mask else [None]
    return finish(graph, b.one("attention", q, k, v, *masks, scale=0.25, safe=True))


@cache
def compiled(make: Callable[..., Graph], *given: object) -> shapevm.Executable:
    return compile_graphs(lambda: [make(*given)], "generic")


def result(exe: shapevm.Executable, *given: np.ndarray) -> np.ndarray:
    (found,) = exe(*given)
    return found


def inputs(
    lengths: Sequence[int], heads: tuple[int, ...], mask: str
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return rows, offsets and, if there is one, a mask."""
    rng, longest = np.random.default_rng(len(lengths)), max(lengths)
    x = rng.standard_normal((sum(lengths), 3, *heads, WIDTH)).astype(np.float32)
    shape = (*heads, longest, longest)
    masks = {
        "": [],
        "bool": [rng.random(shape) < 0.7],
        "f32": [rng.standard_normal(shape).astype(np.float32)],
    }
    return x, np.cumsum([0, *lengths]), masks[mask]


def rows_of(x: np.ndarray, first: int, n: int) -> list[np.ndarray]:
    """Return q, k and v [heads.., n, width] of a segment."""
    return [np.ascontiguousarray(np.moveaxis(x[first : first + n, i], 0, -2)) for i in range(3)]


def joined(y: np.ndarray) -> np.ndarray:
    """Return [heads.., n, width] as rows of all heads."""
    moved = np.moveaxis(y, -2, 0)
    return moved.reshape(len(moved), prod(moved.shape[1:]))


@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize("mask", ["", "bool", "f32"])
@pytest.mark.parametrize("name", HEADS)
def test_a_segment_has_the_bits_of_attention_alone_and_padded(name: str, mask: str, case: str) -> None:
    heads, lengths = HEADS[name], LENGTHS[case]
    x, offsets, masks = inputs(lengths, heads, mask)
    exe, batch = compiled(by_segments, heads, mask), len(lengths)
    found = result(exe, x, offsets, *masks)
    assert np.array_equal(found, result(exe.using("jit"), x, offsets, *masks))
    single, padded = compiled(alone, heads, mask), compiled(by_batch, heads, mask)
    longest = max(lengths)
    qkv = [np.zeros((batch, *heads, longest, WIDTH), np.float32) for _ in range(3)]
    keys = np.arange(longest) < np.array(lengths)[:, None]
    for s, (first, n) in enumerate(zip(offsets, lengths, strict=False)):
        rows = rows_of(x, first, n)
        cut = [np.ascontiguousarray(m[..., :n, :n]) for m in masks]
        assert np.array_equal(found[first : first + n], joined(result(single, *rows, *cut))), (s, n)
        for to, row in zip(qkv, rows, strict=True):
            to[s, ..., :n, :] = row
    keys = keys.reshape(batch, *(1 for _ in heads), 1, longest)
    batched = result(padded, *qkv, keys, *(m[None] for m in masks))
    for s, (first, n) in enumerate(zip(offsets, lengths, strict=False)):
        assert np.array_equal(found[first : first + n], joined(batched[s, ..., :n, :])), (s, n)


def test_the_reference_gives_these_values() -> None:
    for heads in HEADS.values():
        x, offsets, masks = inputs(LENGTHS["many"], heads, "f32")
        (wanted,) = run(by_segments(heads, "f32"), [x, offsets, *masks])
        found = result(compiled(by_segments, heads, "f32"), x, offsets, *masks)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4])
def test_numbers_of_threads_give_the_same_bits(n_threads: int) -> None:
    x, offsets, masks = inputs(LENGTHS["many"], (3,), "f32")
    hostile = [offsets, offsets[::-1].copy(), np.array([0, 90, 20, 70, 50, 120]), np.array([-1, 1 << 62])]
    exe, before = compiled(by_segments, (3,), "f32"), shapevm.get_threads()
    wanted = [result(exe, x, given, *masks) for given in hostile]
    try:
        shapevm.set_threads(n_threads)
        for _ in range(5):
            for given, right in zip(hostile, wanted, strict=True):
                assert np.array_equal(result(exe, x, given, *masks), right)
    finally:
        shapevm.set_threads(before)


@pytest.mark.parametrize(
    "offsets",
    [[37, 20, 10, 0], [0, 10, 5, 12, 3, 30, -1, 37], [-(1 << 63), (1 << 63) - 1], [5], [38, 40], [3, 9, 12]],
)
def test_offsets_may_hold_anything(offsets: list[int]) -> None:
    x, _, masks = inputs([12, 25], (2, 2), "f32")
    given = [x, np.array(offsets), *masks]
    (wanted,) = run(by_segments((2, 2), "f32"), given)
    exe = compiled(by_segments, (2, 2), "f32")
    for strategy in ("generic", "jit"):
        np.testing.assert_allclose(result(exe.using(strategy), *given), wanted, rtol=2e-5, atol=2e-6)


def test_its_text_is_exact() -> None:
    text = format_graph(by_segments((3,), "bool"))
    call = "segment_attention(%v2, %v4, %v6, %offsets, %mask) {scale=0.25, longest=longest}"
    assert f"%v7: f32[tokens, 3, 16] = {call}" in text
    assert format_graph(parse(text)) == text


def test_without_offsets_there_is_one_sentence() -> None:
    x, _, _ = inputs([4], (3,), "")
    with pytest.raises(shapevm.Error, match='^kernel "segment_attention": .* an axis of size 0; .*$'):
        compiled(by_segments, (3,), "")(x, np.zeros(0, np.int64))
