"""Quantised weights: the scales of columns move behind products, others become constants."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.ops import build as B
from shapevm.compiler.passes.move_scales import move_scales
from shapevm.compiler.reference import run

HEAD = """graph "g"
 symbol s min=0 multiple_of=1
 input %x: f32[s, 2]
 input %i: i64[s]
"""
WEIGHT = """
      %q: i8[3, 2] = constant() {array=int8[3, 2](1, -2, 3, -4, 5, -6), dtype="i8", name="w"}
"""


def test_the_scale_of_a_linear_layer_comes_behind_it(rewrite) -> None:
    before = f"""{WEIGHT}
      %c: f32[3, 1] = constant() {{array=float32[3, 1](0.5, 2.0, 4.0), dtype="f32", name="c"}}
      %w: f32[3, 2] = dequantize(%q, %c, none) {{dtype="f32"}}
      %b: f32[3] = constant() {{array=float32[3](1.0, 2.0, 3.0), dtype="f32", name="b"}}
      %y: f32[s, 3] = linear(%x, %w, %b)  # model.py:3
      output %y as "y"
    """
    after = f"""{WEIGHT}
      %c: f32[3, 1] = constant() {{array=float32[3, 1](0.5, 2.0, 4.0), dtype="f32", name="c"}}
      %w: f32[3, 2] = dequantize(%q, %c, none) {{dtype="f32"}}
      %b: f32[3] = constant() {{array=float32[3](1.0, 2.0, 3.0), dtype="f32", name="b"}}
      %v1: f32[3, 2] = constant() {{array=float32[3, 2](1.0, -2.0, 3.0, -4.0, 5.0, -6.0), dtype="f32", name="w"}}  # model.py:3
      %v2: f32[s, 3] = linear(%x, %v1, none)  # model.py:3
      %v3: f32[3] = constant() {{array=float32[3](0.5, 2.0, 4.0), dtype="f32", name="w.scale"}}  # model.py:3
      %v4: f32[s, 3] = expand(%v3) {{shape=[s, 3]}}  # model.py:3
      %v5: f32[s, 3] = mul(%v2, %v4)  # model.py:3
      %v6: f32[s, 3] = expand(%b) {{shape=[s, 3]}}  # model.py:3
      %v7: f32[s, 3] = add(%v5, %v6)  # model.py:3
      output %v7 as "y"
    """  # noqa: E501
    rewrite(move_scales, HEAD + before, after, "imported")


def test_rows_of_a_table_are_taken_before_they_are_dequantised(rewrite) -> None:
    before = f"""{WEIGHT}
      %c: f32[3, 1] = constant() {{array=float32[3, 1](0.5, 2.0, 4.0), dtype="f32", name="c"}}
      %z: i8[1, 1] = full() {{value=3, dtype="i8", shape=[1, 1]}}
      %w: f32[3, 2] = dequantize(%q, %c, %z) {{dtype="f32"}}
      %y: f32[s, 2] = gather(%w, %i) {{axis=0}}
      output %y as "y"
    """
    after = f"""{WEIGHT}
      %c: f32[3, 1] = constant() {{array=float32[3, 1](0.5, 2.0, 4.0), dtype="f32", name="c"}}
      %z: i8[1, 1] = full() {{value=3, dtype="i8", shape=[1, 1]}}
      %w: f32[3, 2] = dequantize(%q, %c, %z) {{dtype="f32"}}
      %v1: i8[s, 2] = gather(%q, %i) {{axis=0}}
      %v2: f32[s, 1] = gather(%c, %i) {{axis=0}}
      %v3: f32[s, 2] = dequantize(%v1, %v2, %z) {{dtype="f32"}}
      output %v3 as "y"
    """
    rewrite(move_scales, HEAD + before, after, "imported")


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("scales", [(1, 1), (1, 6), (4, 1), (4, 3), (1, 3), (2, 1), (2, 6)])
@pytest.mark.parametrize("zeros", [None, (1, 1), (1, 6), (2, 2), (1, 3), (2, 1), (4, 6)])
def test_a_product_keeps_its_value(
    scales: tuple[int, int], zeros: tuple[int, int] | None, is_moved: bool
) -> None:
    rng = np.random.default_rng(0)
    graph = Graph("g")
    b = Builder(graph)
    x = graph.input("x", TensorType("f32", (5, 6 if is_moved else 4)))
    q = b.constant(rng.integers(-128, 128, (4, 6)).astype(np.int8), "i8", "w")
    scale = b.constant(rng.random(scales).astype(np.float32), "f32", "")
    zero = None if zeros is None else b.constant(rng.integers(-9, 9, zeros).astype(np.int32), "i32", "")
    weight = b.one("dequantize", q, scale, zero, dtype="f32")
    if is_moved:
        weight = b.one("permute", weight, axes=(1, 0))
    graph.body.results.append(b.one("matmul", x, weight))
    graph.outputs = ["y"]
    (given,) = (rng.standard_normal(v.tensor.shape).astype(np.float32) for v in graph.body.params)
    expected = evaluated(graph, given)
    move_scales(graph)
    np.testing.assert_allclose(evaluated(graph, given), expected, rtol=1e-5, atol=1e-4)
    (product,) = (node for node in graph.body.nodes if node.op == "matmul")
    assert product.arg(1).definition.op == "constant"
    has_one_each = scales[1 if is_moved else 0] == 1
    is_integer = bool((product.arg(1).definition.attrs["array"] % 1 == 0).all())
    assert is_integer == has_one_each


WINDOW = {"stride": (1, 1), "dilation": (1, 1), "expansion": (1, 1), "low": (1, 1), "high": (1, 1)}


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("has_bytes", [False, True])
@pytest.mark.parametrize("scales", [(1, 1, 1, 1), (8, 1, 1, 1), (4, 1, 1, 1), (8, 1, 3, 3)])
@pytest.mark.parametrize("zeros", [(8, 1, 1, 1), (4, 1, 1, 1), (1, 1, 3, 3), (8, 1, 3, 3), (8, 4, 3, 3)])
def test_a_convolution_keeps_its_value(
    scales: tuple[int, ...], zeros: tuple[int, ...], has_bytes: bool, groups: int
) -> None:
    """Scales and zero points of channels, of pairs of channels, and of places of the window."""
    rng = np.random.default_rng(0)
    graph = Graph("g")
    b = Builder(graph)
    x = given = graph.input("x", TensorType("u8" if has_bytes else "f32", (2, 5, 5, max(groups, 4))))
    if has_bytes:
        parts = b.constant(np.full((1, 1, 1, 1), 0.5, np.float32), "f32", ""), B.full(b, 3, "i32", (1,) * 4)
        x = b.one("dequantize", given, *parts, dtype="f32")
    channels = max(groups, 4) // groups
    zeros = (zeros[0], min(zeros[1], channels), *zeros[2:])
    q = b.constant(rng.integers(-100, 100, (8, channels, 3, 3)).astype(np.int8), "i8", "w")
    scale = b.constant(rng.random(scales).astype(np.float32), "f32", "")
    zero = b.constant(rng.integers(-9, 9, zeros).astype(np.int32), "i32", "")
    weight = b.one("permute", b.one("dequantize", q, scale, zero, dtype="f32"), axes=(2, 3, 1, 0))
    matrix = B.reshape(b, weight, (9 * channels, 8))
    graph.body.results.append(b.one("conv", x, matrix, **WINDOW, kernel=(3, 3), groups=groups, planes=False))
    graph.outputs = ["y"]
    shape = tuple(map(int, given.tensor.shape))
    array = rng.integers(0, 255, shape).astype(np.uint8) if has_bytes else rng.standard_normal(shape)
    expected = evaluated(graph, array if has_bytes else array.astype(np.float32))
    move_scales(graph)
    found = evaluated(graph, array if has_bytes else array.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)
    (product,) = (node for node in graph.body.nodes if node.op == "conv")
    assert product.arg(1).definition.op == "constant"
    is_of_bytes = has_bytes and scales[2] == 1
    assert (product.arg(0).tensor.dtype == "u8") == is_of_bytes
    (row,) = graph.rounding.weights.values()
    assert bool(row.reason) != is_of_bytes and row.name == "w"


@pytest.mark.parametrize(("width", "target", "factor"), [
    (8, "x86-64-v4-vnni", "i8"), (8, "x86-64-v3", "f32"), (4, "x86-64-v4-vnni", "f32"),
    (16, "x86-64-v3", "i8"),
])  # fmt: skip
@pytest.mark.parametrize("zero", [0, 3])
def test_groups_of_bytes_are_multiplied_by_what_is_faster(
    width: int, target: str, factor: str, zero: int
) -> None:
    """The integers are the same ones."""
    rng = np.random.default_rng(0)
    graph = Graph("g")
    graph.rounding.targets = (target,)
    b = Builder(graph)
    channels = 2 * width
    given = graph.input("x", TensorType("u8", (1, 5, 5, channels)))
    parts = b.constant(np.full((1,) * 4, 0.5, np.float32), "f32", ""), B.full(b, zero, "i32", (1,) * 4)
    x = b.one("dequantize", given, *parts, dtype="f32")
    q = b.constant(rng.integers(-128, 128, (channels, width, 3, 3)).astype(np.int8), "i8", "w")
    scale = b.constant(np.full((channels, 1, 1, 1), 0.25, np.float32), "f32", "")
    weight = b.one("permute", b.one("dequantize", q, scale, None, dtype="f32"), axes=(2, 3, 1, 0))
    matrix = B.reshape(b, weight, (9 * width, channels))
    graph.body.results.append(b.one("conv", x, matrix, **WINDOW, kernel=(3, 3), groups=2, planes=False))
    graph.outputs = ["y"]
    image = rng.integers(0, 256, (1, 5, 5, channels)).astype(np.uint8)
    expected = evaluated(graph, image)  # no number of it is rounded
    move_scales(graph)
    np.testing.assert_array_equal(evaluated(graph, image), expected)
    (product,) = (node for node in graph.body.nodes if node.op == "conv")
    assert product.arg(1).tensor.dtype == factor
    (row,) = graph.rounding.weights.values()
    assert row.format == ("u8 x int8" if factor == "i8" else "u8 x f32"), row.reason


def evaluated(graph: Graph, x: np.ndarray) -> np.ndarray:
    """Return a graph's result by the reference definitions."""
    (result,) = run(graph, [x], {})
    return np.asarray(result)
