"""Chains that stand for attention, GELU, layer norm and transposition: which are replaced, and by what."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt
from typing import Any

import numpy as np
import pytest
from shapevm.compiler.ir.graph import Builder, Graph, Value
from shapevm.compiler.ir.text import parse
from shapevm.compiler.ops import build as B
from shapevm.compiler.passes.compose import compose
from shapevm.compiler.reference import run
from shapevm.compiler.verify import verify

ATTENTION = """graph "g"
  symbol n min=0 multiple_of=1
  symbol m min=0 multiple_of=1
  input %q: f32[2, 3, n, 4]
  input %k: f32[2, 3, m, 4]
  input %v: f32[2, 3, m, 5]
  input %mask: bool[2, 1, n, m]
  input %bias: f32[n, m]
"""
ROWS = """graph "g"
  symbol n min=0 multiple_of=1
  input %x: f32[n, 6]
  input %w: f32[6]
  input %b: f32[6]
"""
Write = Callable[..., Value]


def composed(text: str, write: Write) -> tuple[Graph, Graph]:
    """Return the graph that `write` completes, and the same after the pass."""
    graphs = []
    for _ in range(2):
        graph = parse(text)
        written = write(Builder(graph), *graph.body.params)
        results = written if isinstance(written, tuple) else (written,)
        graph.body.results, graph.outputs = list(results), [f"y{i}" for i in range(len(results))]
        graphs.append(graph)
    compose(graphs[1])
    verify(graphs[1], "imported")
    return graphs[0], graphs[1]


def ops(graph: Graph) -> list[str]:
    """Return what a graph applies, without views and sources."""
    views = ("expand", "permute", "reshape", "full", "constant", "size", "guard", "not")
    return [node.op for node in graph.nodes() if node.op not in views]


def check(text: str, write: Write, wanted: list[str], *inputs: Any) -> None:
    """Compare the graph's operators after the pass, and the results with those before it."""
    before, after = composed(text, write)
    assert ops(after) == wanted
    for one, other in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def of_attention(n: int = 3, m: int = 7) -> list[np.ndarray]:
    """Return inputs; the first row is masked whole."""
    rng = np.random.default_rng(0)
    shapes = ((2, 3, n, 4), (2, 3, m, 4), (2, 3, m, 5))
    mask = rng.random((2, 1, n, m)) < 0.6
    mask[:, :, :1] = False
    tensors = [rng.standard_normal(shape, np.float32) for shape in shapes]
    return [*tensors, mask, rng.standard_normal((n, m), np.float32)]


def attend(
    b: Builder, q: Value, k: Value, v: Value, masked: Callable[[Value], Value], scale: float = 0.5
) -> Value:
    keys = B.permute(b, k, [0, 1, 3, 2])
    product = b.one("matmul", q, keys)
    scores = B.pointwise(b, "mul", product, scale) if scale != 1 else product
    return b.one("softmax", masked(scores), axis=3)


#: How masks are written.
MASKS: dict[str, Callable[..., Any]] = {
    "none": lambda b, mask, bias: lambda s: s,
    "bias": lambda b, mask, bias: lambda s: B.pointwise(b, "add", bias, s),
    "0 or -inf": lambda b, mask, bias: lambda s: B.pointwise(
        b, "add", s, B.where(b, mask, B.full(b, 0.0, "f32"), -inf)),
    "-inf or 0": lambda b, mask, bias: lambda s: B.pointwise(
        b, "add", s, B.where(b, mask, B.full(b, -inf, "f32"), 0.0)),
    "finite": lambda b, mask, bias: lambda s: B.pointwise(
        b, "add", s, B.where(b, mask, B.full(b, 0.0, "f32"), -3e38)),
    "bias and finite": lambda b, mask, bias: lambda s: B.pointwise(
        b, "add", B.pointwise(b, "add", s, bias), B.where(b, mask, B.full(b, 0.0, "f32"), -3e38)),
    "chosen": lambda b, mask, bias: lambda s: B.where(b, mask, s, -inf),
    "filled": lambda b, mask, bias: lambda s: B.where(b, mask, B.full(b, -inf, "f32"), s),
}  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask: str) -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, seen: Value, bias: Value) -> Value:
        return b.one("matmul", attend(b, q, k, v, MASKS[mask](b, seen, bias)), v)

    wanted = {"finite": ["where", "attention"], "bias and finite": ["where", "add", "attention"]}
    for n, m in ((3, 7), (0, 2), (1, 1)):
        check(ATTENTION, write, wanted.get(mask, ["attention"]), *of_attention(n, m))


def test_rows_that_are_masked_whole_are_nan_unless_the_program_replaces_it() -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, seen: Value, bias: Value, is_safe: bool) -> Value:
        weights = attend(b, q, k, v, MASKS["chosen"](b, seen, bias))
        if is_safe:
            weights = B.where(b, b.one("isnan", weights), B.full(b, 0.0, "f32"), weights)
        return b.one("matmul", weights, v)

    for is_safe in (False, True):
        _, graph = composed(ATTENTION, lambda *args, safe=is_safe: write(*args, safe))
        assert ops(graph) == ["attention"]
        (found,) = run(graph, of_attention())
        rows = found[:, :, 0]
        assert (rows == 0).all() if is_safe else np.isnan(rows).all()


def test_scales_of_both_operands() -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, *_: Value) -> Value:
        q, k = B.pointwise(b, "mul", q, 0.5), B.pointwise(b, "div", k, 4.0)
        return b.one("matmul", attend(b, q, k, v, lambda s: s, 1.0), v)

    check(ATTENTION, write, ["div", "attention"], *of_attention())


def test_weights_that_are_used_again_stay() -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, *_: Value) -> tuple[Value, Value]:
        weights = attend(b, q, k, v, lambda s: s)
        return weights, b.one("matmul", weights, v)

    check(ATTENTION, write, ["matmul", "mul", "softmax", "matmul"], *of_attention())


def test_a_softmax_of_queries_stays() -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, *_: Value) -> Value:
        scores = b.one("matmul", q, B.permute(b, k, [0, 1, 3, 2]))
        return b.one("matmul", b.one("softmax", scores, axis=2), v)

    check(ATTENTION, write, ["matmul", "softmax", "matmul"], *of_attention())


def times(b: Builder, x: Any, y: Any) -> Value:
    return B.pointwise(b, "mul", x, y)


def plus(b: Builder, x: Any, y: Any) -> Value:
    return B.pointwise(b, "add", x, y)


def gate(b: Builder, x: Value) -> Value:
    return b.one("erf", B.pointwise(b, "div", x, sqrt(2)))


def tanh_gate(b: Builder, x: Value) -> Value:
    cube = times(b, times(b, x, x), x)
    return b.one("tanh", times(b, plus(b, x, times(b, cube, 0.044715)), 0.7978846))


def tanh_of_square(b: Builder, x: Value) -> Value:
    inner = plus(b, times(b, times(b, x, x), 0.044715), 1.0)
    return b.one("tanh", times(b, times(b, x, sqrt(2 / pi)), inner))


#: Orders of the factors.
GELUS: dict[str, Write] = {
    "half last": lambda b, x: times(b, times(b, x, plus(b, gate(b, x), 1.0)), 0.5),
    "half of x": lambda b, x: times(b, times(b, x, 0.5), plus(b, 1.0, gate(b, x))),
    "half of the gate": lambda b, x: times(b, x, times(b, plus(b, gate(b, x), 1.0), 0.5)),
    "divided by 2": lambda b, x: times(b, x, B.pointwise(b, "div", plus(b, gate(b, x), 1.0), 2.0)),
    "half inside": lambda b, x: times(b, x, plus(b, times(b, gate(b, x), 0.5), 0.5)),
    "tanh": lambda b, x: times(b, times(b, x, 0.5), plus(b, tanh_gate(b, x), 1.0)),
    "tanh of a square": lambda b, x: times(b, times(b, x, 0.5), plus(b, tanh_of_square(b, x), 1.0)),
}
X = np.linspace(-4, 4, 30, dtype=np.float32).reshape(5, 6)
OF_ROWS = (X, np.arange(6, dtype=np.float32), np.ones(6, np.float32))


@pytest.mark.parametrize("form", GELUS)
def test_gelu(form: str) -> None:
    check(ROWS, lambda b, x, w, bias: GELUS[form](b, plus(b, x, bias)), ["add", "gelu"], *OF_ROWS)


def test_what_is_no_gelu_stays() -> None:
    def other(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        return times(b, times(b, w, plus(b, gate(b, x), 1.0)), 0.5)

    check(ROWS, other, ["div", "erf", "add", "mul", "mul"], *OF_ROWS)


def norm(b: Builder, x: Value, form: str, eps: float = 1e-5) -> Value:
    centred = B.pointwise(b, "sub", x, b.one("mean", x, axes=(1,), keepdim=True))
    variance = plus(b, b.one("mean", times(b, centred, centred), axes=(1,), keepdim=True), eps)
    if form == "rsqrt":
        return times(b, centred, b.one("rsqrt", variance))
    root = b.one("sqrt", variance)
    if form == "div":
        return B.pointwise(b, "div", centred, root)
    return times(b, centred, b.one("reciprocal", root))


@pytest.mark.parametrize("form", ["rsqrt", "div", "reciprocal"])
def test_layer_norm(form: str) -> None:
    check(ROWS, lambda b, x, w, bias: plus(b, times(b, norm(b, x, form), w), bias), ["layer_norm"], *OF_ROWS)
    check(ROWS, lambda b, x, w, bias: times(b, w, norm(b, x, form)), ["layer_norm"], *OF_ROWS)
    check(ROWS, lambda b, x, w, bias: norm(b, x, form), ["layer_norm"], *OF_ROWS)


def test_a_norm_of_columns_stays() -> None:
    def write(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        centred = B.pointwise(b, "sub", x, b.one("mean", x, axes=(0,), keepdim=True))
        square = b.one("mean", times(b, centred, centred), axes=(0,), keepdim=True)
        return times(b, centred, b.one("rsqrt", plus(b, square, 1e-5)))

    check(ROWS, write, ["mean", "sub", "mul", "mean", "add", "rsqrt", "mul"], *OF_ROWS)


def test_a_transposition_between_merged_axes() -> None:
    def write(b: Builder, q: Value, k: Value, v: Value, *_: Value) -> Value:
        n = B.shape_of(k)[2]
        merged = B.permute(b, B.reshape(b, k, [6, n, 4]), [0, 2, 1])
        return B.reshape(b, merged, [2, 3, 4, n])

    before, after = composed(ATTENTION, write)
    assert [node.op for node in after.nodes()] == ["permute"]
    inputs = of_attention()
    np.testing.assert_array_equal(run(before, inputs)[0], run(after, inputs)[0])


def test_long_sums_are_searched_quickly() -> None:
    """A sum of a value with itself, many times over, has few nodes and countless paths."""

    def write(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        for _ in range(200):
            x = plus(b, x, x)
        return b.one("tanh", x)

    _, after = composed(ROWS, write)
    assert ops(after) == [*["add"] * 200, "tanh"]
