"""The whole pipeline on an encoder layer made by hand: it computes what numpy says, at every shape."""

from math import erf

import numpy as np
import pytest
from shapevm.compiler.emit.emit import emit
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.text import constants, format_graph, parse
from shapevm.compiler.passes import pipeline
from shapevm.compiler.verify import STAGES, verify

WIDTH, HEADS = 24, 3
RNG = np.random.default_rng(7)
WEIGHTS = [RNG.standard_normal((WIDTH, WIDTH)).astype("float32") / 5 for _ in range(4)]
BIASES = [RNG.standard_normal(WIDTH).astype("float32") for _ in range(5)]
INPUTS = """graph "layer"
  symbol batch min=0 multiple_of=1
  symbol length min=1 max=64 multiple_of=1
  input %x: f32[batch, length, 24]
  input %mask: bool[batch, length]
"""


def layer() -> Graph:
    """Attention over masked rows, residual, layer norm, gelu."""
    graph = parse(INPUTS)
    builder = Builder(graph)
    builder.source = "model.py:1"
    x, mask = graph.body.params
    batch, length, _ = x.type.shape

    def linear(value, i):
        weight = builder.constant(WEIGHTS[i], "f32", f"w{i}")
        return builder.one("linear", value, weight, builder.constant(BIASES[i], "f32", f"b{i}"))

    split = [
        builder.one("reshape", linear(x, i), shape=(batch, length, HEADS, WIDTH // HEADS)) for i in range(3)
    ]
    q, k, v = (builder.one("permute", part, axes=(0, 2, 1, 3)) for part in split)
    wide = builder.one("reshape", mask, shape=(batch, 1, 1, length))
    wide = builder.one("expand", wide, shape=(batch, HEADS, length, length))
    attended = builder.one("attention", q, k, v, wide, scale=0.3, safe=True)
    attended = builder.one("permute", attended, axes=(0, 2, 1, 3))
    rows = linear(builder.one("reshape", attended, shape=(batch, length, WIDTH)), 3)
    one = builder.constant(np.ones(WIDTH, "float32"), "f32", "one")
    shift = builder.constant(BIASES[4], "f32", "shift")
    normal = builder.one("layer_norm", builder.one("add", rows, x), one, shift, n_axes=1, eps=1e-5)
    graph.body.results.append(builder.one("gelu", normal, approximate="none"))
    graph.outputs.append("y")
    return graph


def expected(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    x = x.astype("float64")

    def linear(value, i):
        return value @ WEIGHTS[i].T + BIASES[i]

    q, k, v = (
        linear(x, i).reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for i in range(3)
    )
    score = np.where(mask[:, None, None, :], 0.3 * q @ k.swapaxes(-1, -2), -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    y = linear((weight @ v).transpose(0, 2, 1, 3).reshape(x.shape), 3) + x
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5) + BIASES[4]
    return y * 0.5 * (1 + np.vectorize(erf, otypes=["float64"])(y / np.sqrt(2)))


def compiled() -> Graph:
    graph = layer()
    pipeline.run(graph)
    return graph


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 5), (3, 64), (0, 4)])
def test_encoder_layer(execute, batch, length):
    x = RNG.standard_normal((batch, length, WIDTH)).astype("float32")
    mask = np.arange(length) < np.arange(1, batch + 1)[:, None]
    (y,) = execute(emit(compiled()), [x, mask])
    assert y.shape == x.shape and np.allclose(y, expected(x, mask), atol=1e-5)


def test_lowered_text_round_trip():
    graph = compiled()
    text = format_graph(graph)
    again = parse(text, constants(graph))
    verify(again, "lowered")
    assert format_graph(again) == text and emit(again) == emit(graph)


def test_every_stage_can_be_continued_from_its_text():
    """A pass depends on nothing that the text of a graph does not say."""
    texts, graph = [], layer()
    for step, _ in pipeline.PASSES:
        texts.append((format_graph(graph), constants(graph)))
        step(graph)
    wanted = emit(graph)
    for i, (text, arrays) in enumerate(texts):
        again = parse(text, arrays)
        for step, _ in pipeline.PASSES[i:]:
            step(again)
        assert emit(again) == wanted, f"from the text before {pipeline.PASSES[i][0].__name__}"


def test_no_work_on_weights_is_left():
    kernels = [node for node in compiled().nodes() if node.op == "kernel"]
    specs = [node.attrs["spec"] for node in kernels]
    assert [spec.product.b_layout for spec in specs if spec.family == "matmul"] == ["panels"] * 4
    assert all(node.source == "model.py:1" for node in kernels)


def test_passes_are_watched_in_order():
    seen = []
    pipeline.run(layer(), watch=lambda name, graph: seen.append((name, len(list(graph.nodes())))))
    assert [name for name, _ in seen] == [step.__name__ for step, _ in pipeline.PASSES]
    assert all(stage in STAGES for _, stage in pipeline.PASSES)


def lowered(text: str) -> Graph:
    graph = parse(text)
    pipeline.run(graph)
    return graph


HALVE = """graph "halve"
  symbol s min=1 multiple_of=1
  input %x: f32[s]
  %zero: int(0) = size() {dim=0}
  %y: f32[s], %n: int = while(%x, %zero)
    cond(%p: f32[s], %i: int):
      %one: f32[] = full() {value=1.0, dtype="f32", shape=[]}
      %ones: f32[s] = expand(%one) {shape=[s]}
      %big: bool[s] = gt(%p, %ones)
      %any: bool[1] = reduce_any(%big)
      %c: bool = item(%any)
      yield %c
    body(%q: f32[s], %j: int):
      %half: f32[] = full() {value=0.5, dtype="f32", shape=[]}
      %halves: f32[s] = expand(%half) {shape=[s]}
      %r: f32[s] = mul(%q, %halves)
      %step: int(1) = size() {dim=1}
      %k: int = int_add(%j, %step)
      yield %r, %k
  output %y as "y"
  output %n as "n"
"""


@pytest.mark.parametrize("top", [0.5, 1.0, 3.0, 1000.0])
def test_loop_on_data(execute, top):
    x = np.float32([0.25, top, -7.0])
    y, n = execute(emit(lowered(HALVE)), [x])
    times = max(0, int(np.ceil(np.log2(top))))
    assert n == times and np.array_equal(y, x / np.float32(2**times)) and not np.shares_memory(x, y)


RANGE = """graph "range"
  input %t: i64[]
  %n: int(u0) = item(%t) {symbol="u0"}
  %i: i64[u0] = iota() {start=3, step=2, length=u0, dtype="i64"}
  %j: i64[u0] = mul(%i, %i)
  output %j as "y"
"""


@pytest.mark.parametrize("n", [0, 1, 9])
def test_sizes_from_data(execute, n):
    (y,) = execute(emit(lowered(RANGE)), [np.array(n)])
    assert np.array_equal(y, (3 + 2 * np.arange(n)) ** 2)


CONTAINERS = """graph "containers"
  input %x: f32[2]
  input %n: int
  %a: f32[2] = neg(%x)
  %l: list<f32[2]> = list(%x, %a)
  %m: list<f32[2]> = append(%l, %a)
  %e: f32[2] = get(%m, %n)
  %b: f32[2] = exp(%e)
  %k: int = len(%m)
  %t: tuple<int, f32[2]> = tuple(%k, %b)
  %zero: int(0) = size() {dim=0}
  %f: int = get(%t, %zero)
  output %b as "b"
  output %f as "f"
  output %e as "e"
"""


@pytest.mark.parametrize("n", [0, 1, 2])
def test_containers(execute, n):
    x = np.float32([1, 2])
    b, f, e = execute(emit(lowered(CONTAINERS)), [x, n])
    assert (
        f == 3
        and np.array_equal(e, x if n == 0 else -x)
        and np.allclose(b, np.exp(e))
        and not np.shares_memory(e, x)
    )
