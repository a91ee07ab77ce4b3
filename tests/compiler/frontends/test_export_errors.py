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


class Shifted(torch.nn.Module):
    def forward(self, x, y):
        return x[1:] + y  # shifted


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
    assert "\n" not in text and len(text) < 400
    assert caught.value.__suppress_context__ and (error is shapevm.ArgumentError) == bool(
        caught.value.__cause__
    )
    return text


X = torch.randn(5, 4)


def test_sizes(capfd):
    where = f"n (axis 1 of x) is always 4 in this model ({line('fixed')}); leave that axis out"
    assert where in refused(Fixed(), (X,), {"x": {1: N}}, ShapeError)
    for shapes in (({1: Dim("n", min=1, max=64)},), ([None, N],)):
        assert where in refused(Fixed(), (X,), shapes, ShapeError)
    assert "axis 1 of x is always 4" in refused(Fixed(), (X,), {"x": {1: Dim.DYNAMIC}}, ShapeError)
    text = refused(Equal(), (X, X.clone()), {"x": {0: N}, "y": {0: M}}, ShapeError)
    both = "m (axis 0 of y) and n (axis 0 of x) are always equal in this model"
    assert text == f"dynamic_shapes: {both} ({line('equal')}); give both the same Dim"
    text = refused(Bounded(), (X,), {"x": {0: N}}, ShapeError)
    assert "must satisfy n <= 10" in text.replace("2 <= n and ", "") and line("bounded") in text
    assert re.search(r"write n = Dim\('n',.* max=10\)", text)
    text = refused(Divided(), (torch.randn(14, 3),), {"x": {0: N}}, ShapeError)
    assert f"n (axis 0 of x) must be a multiple of 7 in this model ({line('divided')})" in text
    assert "def forward" not in "".join(capfd.readouterr())


def test_sizes_with_bounds():
    n, m = Dim("n", min=1, max=64), Dim("m", min=1, max=64)
    text = refused(Bounded(), (X,), {"x": {0: n}}, ShapeError)
    assert "must satisfy" in text and "n <= 10" in text and line("bounded") in text
    text = refused(Divided(), (torch.randn(14, 3),), {"x": {0: n}}, ShapeError)
    assert text == (
        f"dynamic_shapes: n (axis 0 of x) must be a multiple of 7 in this model ({line('divided')}); "
        "write _n = Dim('_n', min=1) and give 7*_n as its Dim"
    )
    text = refused(Shifted(), (X, X[1:].clone()), {"x": {0: n}, "y": {0: m}}, ShapeError)
    assert f"n (axis 0 of x) is always m + 1 in this model ({line('shifted')}); give m + 1 as its Dim" in text


def test_a_model_that_cannot_be_called(capfd):
    text = refused(Fixed(), (torch.randn(5, 3),), None, shapevm.ArgumentError)
    assert text.startswith(
        f"the model cannot be called with the example inputs ({line('fixed')}: return self"
    )
    assert "5x3 and 4x3" in text
    assert "Traceback" not in "".join(capfd.readouterr())


class Raises(torch.nn.Module):
    def forward(self, x):
        return {}["mine"] + x  # raises


class RaisesItself(torch.nn.Module):
    def forward(self, x):
        raise KeyError("mine")  # itself


@pytest.mark.parametrize(("model", "mark"), [(Raises(), "raises"), (RaisesItself(), "itself")])
def test_an_error_of_the_model_itself_is_named_with_its_line(model, mark):
    text = refused(model, (X,), None, shapevm.ArgumentError)
    assert f"({line(mark)}: " in text and "): KeyError: 'mine'; give inputs" in text


def test_what_is_written_works():
    seven, m = Dim("_n", min=1, max=9), Dim("m", min=1, max=63)
    exe = shapevm.compile(Divided(), (torch.randn(14, 3),), dynamic_shapes={"x": {0: 7 * seven}})
    assert exe(torch.ones(21, 3)).shape == (9, 7)
    shapes = {"x": {0: m + 1}, "y": {0: m}}
    exe = shapevm.compile(Shifted(), (X, X[1:].clone()), dynamic_shapes=shapes)
    assert exe(torch.ones(9, 4), torch.ones(8, 4)).shape == (8, 4)
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


class _Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


class KeysCache(_Pair):
    """Named as caches are."""


class _Returns(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return self.kind(x, x + 1)


class _Takes(torch.nn.Module):
    def forward(self, pair):
        return pair.first + pair.second


def test_objects_that_torch_export_does_not_know_are_named_with_the_fix():
    x = torch.ones(3)
    with pytest.raises(shapevm.ArgumentError, match=r"returns a _Pair, .*; return its .*register_dataclass"):
        shapevm.compile(_Returns(_Pair), (x,))
    with pytest.raises(shapevm.ArgumentError, match="returns a KeysCache, .* or give use_cache=False; the"):
        shapevm.compile(_Returns(KeysCache), (x,))
    with pytest.raises(shapevm.ArgumentError, match="takes a _Pair, which torch.export .*; give its tensors"):
        shapevm.compile(_Takes(), (_Pair(x, x),))


def test_what_torch_alone_does_not_trace_is_one_sentence() -> None:
    class Read(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x.numpy().sum()

    with pytest.raises(shapevm.UnsupportedOp, match=r"torch.export cannot trace .*; .* in other operators"):
        shapevm.compile(Read(), (torch.rand(3),))
