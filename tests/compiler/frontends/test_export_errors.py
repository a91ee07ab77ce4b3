"""torch.export's refusals: one sentence with the size or value, the model's line and what to write."""

import re
from pathlib import Path

import pytest
import torch
from shapevm.compiler.ir.errors import ShapeError, UnsupportedOp
from torch.export import Dim

import shapevm

N, M = Dim("n"), Dim("m")


class Fixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)  # fixed


class Equal(torch.nn.Module):
    def forward(self, x, y):
        return x + y  # equal


class Bounded(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] > 10:  # bounded
            return x * 2
        return x + 1


class Divided(torch.nn.Module):
    def forward(self, x):
        return x.reshape(-1, 7)  # divided


class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # branch
            return x
        return -x


class Number(torch.nn.Module):
    def forward(self, x):
        return x + int(x.sum().item())  # number


def line(mark):
    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))
    return f"test_export_errors.py:{number}"


def refused(model, args, shapes, error):
    with pytest.raises(error) as caught:
        shapevm.compile(model, args, dynamic_shapes=shapes)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400 and caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return text


X = torch.randn(5, 4)


def test_sizes(capfd):
    where = f"n (axis 1 of x) is always 4 in this model ({line('fixed')}); leave that axis out"
    assert where in refused(Fixed(), (X,), {"x": {1: N}}, ShapeError)
    assert "axis 1 of x is always 4" in refused(Fixed(), (X,), {"x": {1: Dim.DYNAMIC}}, ShapeError)
    text = refused(Equal(), (X, X.clone()), {"x": {0: N}, "y": {0: M}}, ShapeError)
    both = "m (axis 0 of y) and n (axis 0 of x) are always equal in this model"
    assert text == f"dynamic_shapes: {both} ({line('equal')}); give both the same Dim"
    text = refused(Bounded(), (X,), {"x": {0: N}}, ShapeError)
    assert "must satisfy n <= 10" in text.replace("2 <= n and ", "") and line("bounded") in text
    assert re.search(r"write n = Dim\('n',.* max=10\)", text)
    text = refused(Divided(), (torch.randn(14, 3),), {"x": {0: N}}, ShapeError)
    assert "(3*n) % 7) == 0" in text and line("divided") in text
    assert "def forward" not in "".join(capfd.readouterr())


def test_what_is_written_works():
    for model, shapes in ((Fixed(), {"x": {0: N}}), (Bounded(), {"x": {0: Dim("n", max=10)}})):
        assert shapevm.compile(model, (X,), dynamic_shapes=shapes, strategy="generic") is not None
    both = {"x": {0: N}, "y": {0: N}}
    assert shapevm.compile(Equal(), (X, X.clone()), dynamic_shapes=both, strategy="generic") is not None


def test_data(capfd):
    text = refused(Branch(), (X,), None, UnsupportedOp)
    assert f"branches on a tensor's value ({line('branch')}: if x.sum() > 0:" in text
    assert "torch.jit.script(model)" in text
    text = refused(Number(), (X,), None, UnsupportedOp)
    assert f"a tensor's value as a number ({line('number')}: return x + int" in text
    printed = capfd.readouterr()
    assert "def forward" not in printed.err + printed.out


def test_script_keeps_the_branch():
    exe = shapevm.compile(torch.jit.script(Branch()), (X,), strategy="generic")
    for x in (X.abs(), -X.abs()):
        assert torch.equal(exe(x), Branch()(x))
