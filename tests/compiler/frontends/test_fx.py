"""torch.fx.GraphModules: ATen graphs as they are, others through torch.export; names of inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.compiler.frontends.fx import GraphModuleImporter, import_graph_module, is_aten, is_plain
from shapevm.compiler.ir.errors import GuardError, UnsupportedOp
from shapevm.compiler.reference import run
from torch.fx.experimental.proxy_tensor import make_fx

import shapevm

X, W = torch.randn(4, 5), torch.randn(5, 3)


def traced(function: Any, *args: Any) -> torch.fx.GraphModule:
    """Return the ATen graph of `function`."""
    return make_fx(function, tracing_mode="symbolic")(*args)


def test_an_aten_graph_is_imported_as_it_is() -> None:
    module = traced(lambda x, w: torch.softmax(x @ w, -1), X, W)
    assert is_aten(module) and is_plain(module)
    graph = import_graph_module(module)
    assert graph.inputs == ["x_1", "w_1"] and graph.outputs == ["output"]
    x = torch.randn(9, 5)
    (found,) = run(graph, [x.numpy(), W.numpy()])
    np.testing.assert_allclose(found, torch.softmax(x @ W, -1).numpy(), rtol=1e-5, atol=1e-6)


def test_results_are_nested_as_the_graph_returns_them() -> None:
    module = traced(lambda x, w: {"a": x @ w, "b": (x + 1, None, [x.shape[0]])}, X, W)
    exe = shapevm.compile(module)
    x = torch.randn(6, 5)
    found = exe(x, W)
    torch.testing.assert_close(found, {"a": x @ W, "b": (x + 1, None, [6])})


def test_operators_that_change_their_arguments() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        y.add_(1)
        x.mul_(2.0)
        return y * x.shape[0] ** 0.5

    module = traced(function, X.clone(), W)
    assert is_aten(module) and not is_plain(module)
    exe = shapevm.compile(module, options=shapevm.Options(fallback="error"))
    ours, theirs = torch.randn(7, 5), torch.empty(7, 5)
    theirs.copy_(ours)
    torch.testing.assert_close(exe(ours, W), function(theirs, W))
    torch.testing.assert_close(ours, theirs)
    assert exe.machine.outputs[-1].name == "changed.x_1"


def test_new_values_at_the_end_of_a_graph() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x + 1
        x.copy_(y)
        return x * z

    module = traced(function, X.clone(), X[:1].double())
    assert is_plain(module)
    ours, y = torch.randn(4, 5), torch.randn(1, 5, dtype=torch.float64)
    theirs = ours.clone()
    torch.testing.assert_close(shapevm.compile(module)(ours, y), function(theirs, y))
    torch.testing.assert_close(ours, theirs)


def test_what_tracing_assumed_is_checked() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] % 2 == 0 else x

    graph = import_graph_module(traced(function, X))
    (info,) = (info for info in graph.symbols.values() if info.multiple_of != 1)
    assert info.multiple_of == 2
    exe = shapevm.compile(traced(lambda x, y: torch.cat([x, y]) if x.shape[0] != y.shape[0] else x, X, X[:3]))
    with pytest.raises(GuardError, match="tracing assumed"):
        exe(torch.randn(3, 5), torch.randn(3, 5))


def test_constants_of_a_graph() -> None:
    table = torch.randn(3)
    exe = shapevm.compile(make_fx(lambda x: x + table, tracing_mode="real")(torch.ones(3)), (torch.ones(3),))
    torch.testing.assert_close(exe(torch.ones(3)), table + 1)


def test_a_symbolically_traced_module() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU())
            self.scale = torch.nn.Parameter(torch.ones(4) * 2)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.inner(pixels).neg() * self.scale

    model = Model()
    module = torch.fx.symbolic_trace(model)
    assert not is_aten(module)
    exe = shapevm.compile(module, (X,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert [row.name for row in exe.machine.inputs] == ["pixels"]
    for n in (1, 4, 9):
        x = torch.randn(n, 5)
        torch.testing.assert_close(exe(x), model(x))


def test_a_part_of_a_graph_with_constants() -> None:
    module = make_fx(lambda x, w: torch.relu(x @ w) + 1, tracing_mode="fake")(X, W)
    nodes = {str(node.target): node for node in module.graph.nodes}
    relu = next(node for node in module.graph.nodes if "relu" in str(node.target))
    graph = GraphModuleImporter(module).run_part([nodes["x_1"]], {nodes["w_1"]: W}, [relu])
    assert graph.inputs == ["x_1"]
    np.testing.assert_allclose(run(graph, [X.numpy()])[0], torch.relu(X @ W).numpy(), rtol=1e-5, atol=1e-6)


def test_operators_without_a_kernel() -> None:
    square = X @ X.T
    module = traced(lambda x: torch.linalg.matrix_exp(x), square)
    with pytest.raises(UnsupportedOp, match="linalg_matrix_exp"):
        shapevm.compile(module, options=shapevm.Options(fallback="error"))
    torch.testing.assert_close(shapevm.compile(module)(square), torch.linalg.matrix_exp(square))


# Names, shapes, dtypes ----------------------------------------------------------------------------


class Pair(torch.nn.Module):
    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return x[ids] * 2


def test_names_alone(tmp_path: Path) -> None:
    ids = torch.tensor([0, 1])
    exe = shapevm.compile(Pair(), (X, ids), inputs=["table", "rows"])
    exe.save(tmp_path / "pair.svm")
    loaded = shapevm.load(tmp_path / "pair.svm")
    assert [row.name for row in loaded.machine.inputs] == ["table", "rows"]
    torch.testing.assert_close(loaded.run({"rows": ids, "table": X})["output"], X[ids] * 2)
    torch.testing.assert_close(loaded(rows=ids, table=X), X[ids] * 2)


@pytest.mark.parametrize("dtype", ["i64", "int64", torch.int64, np.dtype("int64")])
def test_shapes_and_dtypes_stand_in_for_examples(dtype: Any) -> None:
    rows = torch.export.Dim("rows", min=1, max=64)
    exe = shapevm.compile(Pair(), inputs={"x": (rows, 5), "ids": (("n",), dtype)})
    assert {symbol.name for symbol in exe.machine.symbols} == {"rows", "n"}
    x, ids = torch.randn(9, 5), torch.tensor([8, 0, 3])
    torch.testing.assert_close(exe(x, ids), x[ids] * 2)


def test_names_of_programs_and_graphs() -> None:
    program = torch.export.export(Pair(), (X, torch.tensor([0, 1])))
    exe = shapevm.compile(program, inputs={"table": (4, 5), "rows": ((2,), "i64")})
    assert [row.name for row in exe.machine.inputs] == ["table", "rows"]
    exe = shapevm.compile(traced(lambda x: x.mul_(2), X.clone()), inputs={"state": ("n", 5)})
    assert exe.machine.symbols[0].name == "n"
    assert exe.machine.outputs[-1].name == "changed.state"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("x", "inputs is 'x'; give a list of names, or a dict from names to shapes"),
        (["x"], "inputs gives 1 names; the program has 2 inputs: x, ids"),
        (["x", "x"], "inputs are named x, x; each must have a name of its own"),
        (["x", "a=b"], "input name 'a=b' must be a string that is not empty and has no ="),
        ({"x": (3, 5), "ids": None}, r'input "x" is said to have shape \[3, 5\]; the program takes f32'),
        ({"x": None, "ids": ((2,), "i32")}, 'input "ids" is said to be i32; the program takes i64'),
        ({"x": ((4, 5), "complex64"), "ids": None}, 'input "x" has dtype complex64; use one of bool'),
        ({"x": (-1, 5), "ids": None}, 'input "x" has the size -1; give an int, a name or a Dim'),
        ({"x": 3, "ids": None}, r'input "x" is described by 3; give a shape, or \(shape, dtype\)'),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, message: str) -> None:
    with pytest.raises(shapevm.ArgumentError, match=message):
        shapevm.compile(Pair(), (X, torch.tensor([0, 1])), inputs=inputs)


def test_examples_need_shapes() -> None:
    with pytest.raises(shapevm.ArgumentError, match='input "ids" has no shape; give one, or example inputs'):
        shapevm.compile(Pair(), inputs={"x": (4, 5), "ids": None})
