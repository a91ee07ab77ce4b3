"""What programs say of their inputs and outputs is what they take and give."""

import pytest
import torch
from torch.export import Dim

import shapevm
from shapevm import ValueInfo

BATCH, N = Dim("batch", min=1, max=64), Dim("n", min=1, max=64)


def forward(self, x, k):
    x = x["a"]
    two = torch.cat([x, x[:, :1]], dim=1)
    return {"sum": x.sum(), "pair": (two, x.to(torch.int8)), "half": x[:, : x.shape[1] // 2], "k": k + 1}


def test_inputs_and_outputs(build, tmp_path):
    shapes = {"x": {"a": {0: BATCH, 1: N}}, "k": Dim.DYNAMIC}
    exe = build(forward, {"a": torch.ones(2, 6)}, 5, dynamic_shapes=shapes)
    exe.save(tmp_path / "m.svm")
    for program in (exe, shapevm.load(tmp_path / "m.svm")):
        assert program.inputs == (
            ValueInfo("x.a", "tensor", "f32", ("batch", "n")),
            ValueInfo("k", "int"),
        )
        assert [str(row) for row in program.outputs] == [
            "sum: f32[]",
            "pair.0: f32[batch, n+1]",
            "pair.1: i8[batch, n]",
            "half: f32[batch, Min(n,floordiv(n,2))]",
            "k: int",
        ]
        assert program.outputs[1].shape == ("batch", "n+1") and program.outputs[0].shape == ()


def test_state_is_nobodys_business(build):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).train()
    exe = build(model, torch.randn(5, 3), dynamic_shapes=({0: Dim("rows", min=2)},))
    assert [str(row) for row in exe.inputs] == ["input: f32[rows, 3]"]
    assert [str(row) for row in exe.outputs] == ["output: f32[rows, 4]"]


def test_sizes_that_only_a_call_tells(build):
    exe = build(lambda self, x: x.nonzero(), torch.tensor([0.0, 1.0, 2.0]), dynamic_shapes=({0: N},))
    (row,) = exe.outputs
    assert (row.kind, row.dtype) == ("tensor", "i64")
    found, columns = row.shape
    assert isinstance(found, str) and found not in exe.bind(torch.ones(3)) and columns == 1
    assert exe(torch.tensor([0.0, 1.0, 2.0, 0.0])).shape == (2, 1)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 6), (7, 13)])
def test_declared_sizes_are_those_of_a_call(build, sizes):
    shapes = {"x": {"a": {0: BATCH, 1: N}}, "k": Dim.DYNAMIC}
    exe = build(forward, {"a": torch.ones(2, 6)}, 5, dynamic_shapes=shapes)
    inputs = {"x.a": torch.ones(sizes), "k": 5}
    symbols = {"batch": sizes[0], "n": sizes[1], "floordiv": int.__floordiv__, "Min": min}
    for row, value in zip(exe.outputs, exe.run(inputs).values(), strict=True):
        if row.kind == "tensor":
            assert tuple(eval(str(size), {}, symbols) for size in row.shape) == value.shape
