"""Damaged models are refused in one sentence each."""

import numpy as np
import onnx
import pytest

import shapevm
from tests.compiler.frontends.onnx.hostile_models import MODELS
from tests.compiler.frontends.onnx.onnx_models import model_of, node
from tests.compiler.frontends.onnx.onnx_mutants import run, verdict


@pytest.mark.parametrize("model", MODELS)
def test_the_models_themselves_are_taken(model: onnx.ModelProto) -> None:
    assert verdict(model.SerializeToString()) == "taken"


def test_mutants() -> None:
    failures: list[str] = []
    ends = run([model.SerializeToString() for model in MODELS], range(200), 1, failures.append)
    assert failures == []
    assert ends["refused"] > 20 and ends["taken"] > 20


def test_a_cycle_is_refused() -> None:
    model = model_of([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"])], {"x": [2]}, outputs=("a",))
    with pytest.raises(shapevm.ArchiveError, match="neither a node before it"):
        shapevm.compile(model)


def test_deep_nesting_is_refused() -> None:
    graph = onnx.helper.make_graph([], "leaf", [], [])
    for _ in range(20):
        inner = node("If", ["c"], [], then_branch=graph, else_branch=graph)
        inner.attribute[1].g.Clear()
        graph = onnx.helper.make_graph([inner], "g", [], [])
    model = model_of([graph.node[0]], {"x": [2]}, {"c": np.array(True)}, outputs=())
    with pytest.raises(shapevm.ArchiveError, match="nested more than 16 deep"):
        shapevm.compile(model.SerializeToString())


@pytest.mark.parametrize("dims", [[1 << 40, 1 << 40], [-1], [1 << 62], [3]])
def test_sizes_that_data_do_not_have_are_refused(dims: list[int]) -> None:
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"w": np.zeros(2, np.float32)})
    model.graph.initializer[0].dims[:] = dims
    with pytest.raises(shapevm.ArchiveError, match="shape|size"):
        shapevm.compile(model)


@pytest.mark.parametrize("name", ["", "a b", "a=b", "1", "x\ny", "é", "x" * 5000, "state.x", "changed.x"])
def test_names_that_are_no_identifiers(name: str) -> None:
    model = model_of([node("Neg", [name or "x"], ["y"])], {name or "x": ["batch size", 2]})
    try:
        with shapevm.compile(model) as exe:
            np.testing.assert_array_equal(exe(np.ones((3, 2), np.float32)), -np.ones((3, 2)))
    except shapevm.Error as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
def test_windows_of_countless_positions_are_refused(op: str) -> None:
    made = node(op, ["x"], ["y"], kernel_shape=[2**40, 3], pads=[2**40, 0, 0, 0])
    with pytest.raises(shapevm.UnsupportedOp, match="windows of 1099511627776 positions"):
        shapevm.compile(model_of([made], {"x": [1, 2, "h", 8]}).SerializeToString())
