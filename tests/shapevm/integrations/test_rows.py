"""Rows of different sizes through one program: in order, bit for bit as alone, one sentence for bad ones."""

import ast
import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.vm.errors import ArgumentError

import shapevm
from shapevm.integrations.rows import RowModel, column, rows_of


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"running": x.cumsum(1), "sum": x.sum(1)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, length = torch.export.Dim("rows", min=1, max=8), torch.export.Dim("length", min=0, max=64)
    shapes = ({0: rows, 1: length},)
    exe = shapevm.compile(Sums(), (torch.zeros(3, 5),), dynamic_shapes=shapes, strategy="generic")
    place = tmp_path_factory.mktemp("rows") / "sums.svm"
    exe.save(place)
    return place


def ragged(n: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [{"x": random.standard_normal(i * 7 % 13).astype(np.float32), "id": i} for i in range(n)]


def test_rows_come_back_in_order_with_the_bits_of_one_alone(path: Path) -> None:
    model, rows = RowModel(path, strategy="generic"), ragged(50)
    together = model.run(rows)
    for row, found in zip(rows, together, strict=True):
        alone = model.run([row])[0]
        for name in ("running", "sum"):
            assert found[name].tobytes() == alone[name].tobytes()
        assert found["running"].shape == row["x"].shape
        np.testing.assert_allclose(found["sum"], row["x"].sum(), rtol=1e-5, atol=1e-6)
    assert model.run([]) == []


def test_a_call_takes_no_more_rows_than_the_program(path: Path) -> None:
    model = RowModel(path, strategy="generic")
    assert model.max_rows == 8
    rows = [{"x": np.full(3, i, np.float32)} for i in range(20)]
    assert [float(found["sum"]) for found in model.run(rows)] == [3.0 * i for i in range(20)]
    assert model.executable.stats().calls == 3


def test_it_is_pickled_as_its_path(path: Path) -> None:
    text = pickle.dumps(RowModel(path, strategy="generic"))
    assert len(text) < 2500
    for again in (pickle.loads(text), copy.deepcopy(RowModel(path, strategy="generic"))):
        assert float(again.run([{"x": np.ones(4, np.float32)}])[0]["sum"]) == 4.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"y": 1}, "row 1 lacks input 'x'; it has y"),
        ({}, "row 1 lacks input 'x'; it has nothing"),
        ({"x": None}, "row 1: input 'x' is None; it must be an array of f32"),
        ({"x": [[1.0], [1.0, 2.0]]}, "row 1: input 'x' is .*; it must be an array of f32"),
        ({"x": np.array(["a"])}, "row 1: input 'x' has dtype <U1; it must be f32"),
    ],
)
def test_a_bad_row_is_named(path: Path, row: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        RowModel(path).run([{"x": np.ones(4, np.float32)}, row])
    found = RowModel(path, strategy="generic").run_each([{"x": np.ones(4, np.float32)}, row])
    assert isinstance(found[0], dict) and float(found[0]["sum"]) == 4.0
    assert isinstance(found[1], ArgumentError)


def test_values_of_data_frames_are_arrays(path: Path) -> None:
    nested = np.empty(2, object)
    nested[:] = [np.float32(1), np.float32(2)]
    found = RowModel(path, strategy="generic").run([{"x": [1.0, 2.0]}, {"x": nested}, {"x": []}])
    assert [float(row["sum"]) for row in found] == [3.0, 3.0, 0.0]


def test_a_program_without_rows_is_refused() -> None:
    exe = shapevm.compile(torch.nn.Linear(4, 2), (torch.zeros(3, 4),), strategy="generic")
    with pytest.raises(ArgumentError, match="the program has no axis of rows"):
        RowModel(exe)


def test_an_axis_of_rows_that_cannot_be_1_is_refused() -> None:
    shapes = ({0: 2 * torch.export.Dim("half", min=1, max=8)},)
    exe = shapevm.compile(
        torch.nn.Linear(4, 2), (torch.zeros(4, 4),), dynamic_shapes=shapes, strategy="generic"
    )
    with pytest.raises(ArgumentError, match="no axis of rows|cannot be 1"):
        RowModel(exe)
    rows = torch.export.Dim("rows", min=2, max=8)
    exe = shapevm.compile(
        torch.nn.Linear(4, 2), (torch.zeros(4, 4),), dynamic_shapes=({0: rows},), strategy="generic"
    )
    with pytest.raises(ArgumentError, match="rows' cannot be 1: its least size is 2, a multiple of 1"):
        RowModel(exe)
    with pytest.raises(ArgumentError, match="max_rows is 0; it must be at least 1"):
        RowModel(
            shapevm.compile(
                torch.nn.Linear(4, 2),
                (torch.zeros(4, 4),),
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
                strategy="generic",
            ),
            max_rows=0,
        )


def test_only_integrations_know_engines() -> None:
    root, engines, here = Path(__file__).parents[3], {"ray", "apache_beam", "pyspark"}, "integrations"
    knowing = set()
    for path in (p for folder in ("shapevm", "compiler", "jit", "vm") for p in (root / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            )
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.ImportFrom):
                assert here not in (node.module or "").split("."), path
            if engines & {name.split(".")[0] for name in names} and not (
                isinstance(node, ast.ImportFrom) and node.level
            ):
                knowing.add(path.relative_to(root / "shapevm").as_posix())
    assert knowing == {f"{here}/{name}.py" for name in ("ray", "beam", "spark")}


def test_columns() -> None:
    assert rows_of({"a": [1, 2], "b": [3, 4]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    assert column([np.zeros(2), np.ones(2)]).shape == (2, 2)
    uneven = column([np.zeros(2), np.ones(3)])
    assert uneven.dtype == object and uneven[1].tolist() == [1, 1, 1]
