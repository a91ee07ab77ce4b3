import numpy as np
import pytest
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.passes.fold_constants import SMALL, fold_constants
from shapevm.jit.evaluation import round_values

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s]\n'


def test_arithmetic_of_constants(rewrite):
    before = """
      %a: f32[2] = constant() {array=float32[2](1.5, 2.0), dtype="f32", name="a"}
      %b: f32[] = full() {value=2.0, dtype="f32", shape=[]}
      %d: f32[2] = expand(%b) {shape=[2]}
      %e: f32[2] = mul(%a, %d)  # model.py:3
      output %e as "y"
    """
    after = """
      %a: f32[2] = constant() {array=float32[2](1.5, 2.0), dtype="f32", name="a"}
      %b: f32[] = full() {value=2.0, dtype="f32", shape=[]}
      %d: f32[2] = expand(%b) {shape=[2]}
      %v1: f32[2] = constant() {array=float32[2](3.0, 4.0), dtype="f32", name="a"}  # model.py:3
      output %v1 as "y"
    """
    rewrite(fold_constants, HEAD + before, after)


def test_expands_and_what_is_not_constant_stay(rewrite):
    text = """
      %a: f32[1] = constant() {array=float32[1](1.5), dtype="f32", name="a"}
      %b: f32[3] = expand(%a) {shape=[3]}
      %d: f32[s] = expand(%a) {shape=[s]}
      %e: f32[s] = neg(%d)
      %f: f32[s] = add(%x, %d)
      output %b as "b"
      output %e as "e"
      output %f as "f"
    """
    rewrite(fold_constants, HEAD + text, text)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_weights_are_transposed_however_large(dtype):
    storage = {"f32": "float32", "bf16": "uint16", "i8": "int8"}[dtype]
    array = np.arange(300 * 200).astype(storage).reshape(300, 200)
    graph = Graph("g")
    builder = Builder(graph)
    weight = builder.constant(array, dtype, "w")
    transposed = builder.one("permute", weight, axes=(1, 0))
    graph.body.results.append(builder.one("reshape", transposed, shape=(200, 3, 100)))
    graph.outputs.append("y")
    fold_constants(graph)
    node = graph.body.results[0].node
    assert node.op == "constant" and node.attrs["name"] == "w" and node.attrs["dtype"] == dtype
    assert (node.attrs["array"] == array.T.reshape(200, 3, 100)).all()
    assert np.shares_memory(node.attrs["array"], array)  # nothing is copied before it is packed or written


@pytest.mark.parametrize(("n", "op"), [(SMALL, "constant"), (SMALL + 1, "cast")])
def test_results_over_the_limit_are_computed_when_running(n, op):
    graph = Graph("g")
    builder = Builder(graph)
    narrow = builder.constant(np.ones(n, "int8"), "i8", "w")
    graph.body.results.append(builder.one("cast", narrow, dtype="f32"))
    graph.outputs.append("y")
    fold_constants(graph)
    assert graph.body.results[0].node.op == op and graph.body.results[0].type == TensorType("f32", (n,))


def test_what_is_made_of_weights_folds_where_it_is_no_larger():
    """As a table of positions that is normalised and projected."""
    rng = np.random.default_rng(0)
    table, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((100, 90), (90, 80)))
    graph = Graph("g")
    builder = Builder(graph)
    t, w = builder.constant(table, "f32", "t"), builder.constant(weight, "f32", "w")
    total = builder.one("reduce_sum", t, axes=(1,), keepdim=True)
    normalised = builder.one("div", t, builder.one("expand", total, shape=(100, 90)))
    tall = builder.constant(np.ones((90, 101), np.float32), "f32", "v")
    graph.body.results += [builder.one("matmul", normalised, w), builder.one("matmul", normalised, tall)]
    graph.outputs += ["y", "z"]
    fold_constants(graph)
    folded, larger = (result.node for result in graph.body.results)
    assert folded.op == "constant" and larger.op == "matmul" and larger.args[0].node.op == "constant"
    wanted = table.astype(np.float64) / table.sum(1, keepdims=True, dtype=np.float64) @ weight
    np.testing.assert_allclose(folded.attrs["array"], wanted, rtol=1e-3, atol=1e-4)


def test_half_precision_arithmetic_is_left_to_the_kernels(rewrite):
    text = """
      %a: bf16[2] = constant() {array=uint16[2](16256, 16384), dtype="bf16", name="a"}
      %b: bf16[2] = neg(%a)
      output %b as "b"
    """
    rewrite(fold_constants, HEAD + text, text)


def test_sums_of_a_large_constant_fold():
    array = np.arange(100 * 90).astype(np.int8).reshape(100, 90)
    graph = Graph("g")
    builder = Builder(graph)
    wide = builder.one("cast", builder.constant(array, "i8", "w"), dtype="i32")
    graph.body.results.append(builder.one("reduce_sum", builder.one("permute", wide, axes=(1, 0))))
    fold_constants(graph)
    (result,) = graph.body.results
    assert result.node.op == "constant"
    np.testing.assert_array_equal(result.node.attrs["array"], array.astype(np.int32).sum(0)[:, None])


@pytest.mark.parametrize("is_used_elsewhere", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_weights_that_are_rounded_for_products_are_rounded_once(dtype, is_used_elsewhere):
    """As autocast writes them; a table in bf16 that is read otherwise stays as it is."""
    graph = Graph("g")
    builder = Builder(graph)
    x = graph.input("x", TensorType("f32", (3, 200)))
    array = np.random.default_rng(0).standard_normal((60, 200)).astype(np.float32)
    narrow = builder.one("cast", builder.constant(array, "f32", "w"), dtype=dtype)
    weight = builder.one("cast", builder.one("permute", narrow, axes=(1, 0)), dtype="f32")
    graph.body.results.append(builder.one("matmul", x, weight))
    graph.outputs.append("y")
    if is_used_elsewhere:
        graph.body.results.append(builder.one("neg", narrow))
        graph.outputs.append("z")
    fold_constants(graph)
    found = graph.body.results[0].node.arg(1).node
    assert (found.op == "constant") != is_used_elsewhere
    if not is_used_elsewhere:
        assert found.attrs["name"] == "w"
        assert np.array_equal(found.attrs["array"], round_values(array.T, dtype))
