"""Models are exported by the trace that leaves the most sizes free, and a log says what it narrows."""

import logging
import math

import pytest
import torch
from shapevm.compiler.frontends.export import export_model
from torch import nn
from torch.export import Dim

import shapevm

AUTO, DYNAMIC = Dim.AUTO, Dim.DYNAMIC


class Star(nn.Module):
    """A function of any number of arguments."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def module(function):
    return Star(function)


def transposed(x):
    return x.transpose(0, 1).reshape(-1, x.shape[2])


LAYER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
CONV = nn.Conv2d(3, 4, 3, padding=1).eval().to(memory_format=torch.channels_last)
LAST = {"memory_format": torch.channels_last}


@pytest.mark.parametrize("kind", [AUTO, DYNAMIC])
@pytest.mark.parametrize(
    ("model", "example", "other"),
    [
        (LAYER, torch.randn(1, 3, 8), torch.randn(4, 5, 8)),
        (CONV, torch.randn(1, 3, 8, 9).to(**LAST), torch.randn(4, 3, 8, 6).to(**LAST)),
        (module(transposed), torch.randn(1, 3, 8), torch.randn(4, 5, 8)),
    ],
    ids=["encoder", "channels_last", "transposed"],
)
def test_an_example_of_size_1_fixes_nothing(model, example, other, kind):
    axes = {0: kind, 3 if example.dim() == 4 else 1: AUTO}
    shapes = ((axes,),) if isinstance(model, Star) else (axes,)
    with shapevm.compile(model, (example,), dynamic_shapes=shapes) as exe:
        for x in (example, other):
            torch.testing.assert_close(exe(x), model(x))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.add, (torch.randn(2, 5), torch.randn(2, 1))),
        (lambda x, t: x * t.view(x.size(0), -1, 1), (torch.randn(2, 24, 4), torch.randn(2))),
        (
            lambda q, k, m: nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=m),
            (torch.randn(2, 4, 5, 16), torch.randn(2, 4, 7, 16), torch.randn(2, 1, 5, 7)),
        ),
    ],
    ids=["broadcast", "view", "mask"],
)
def test_what_the_trace_of_sizes_0_and_1_cannot_do_is_traced_as_torch_does(function, args):
    shapes = (tuple(dict.fromkeys(range(a.dim()), AUTO) for a in args),)
    model = module(function)
    with shapevm.compile(model, args, dynamic_shapes=shapes) as exe:
        torch.testing.assert_close(exe(*args), model(*args))


def test_a_model_that_branches_at_the_examples_size_of_1_takes_its_example(caplog):
    model, x = module(lambda x: x * 2 if x.shape[0] == 1 else x + 1), torch.randn(1, 2)
    with shapevm.compile(model, (x,), dynamic_shapes=(({0: AUTO, 1: AUTO},),)) as exe:
        torch.testing.assert_close(exe(x), x * 2)
        for rows in (0, 2, 3):
            with pytest.raises(shapevm.Error):
                exe(torch.randn(rows, 2))
    assert "dynamic_shapes: axis 0 of args_0 is" in caplog.text


def test_a_fixed_axis_is_named(caplog):
    caplog.set_level(logging.INFO, "shapevm")
    args = (torch.randn(2, 5), torch.randn(2, 1))
    shapes = (tuple(dict.fromkeys(range(2), AUTO) for _ in args),)
    shapevm.compile(module(torch.add), args, dynamic_shapes=shapes).close()
    assert "is always 1 in this model" in caplog.text


@pytest.mark.parametrize("first", [(), (torch.randn(3),)])
def test_a_fixed_axis_of_arguments_in_a_tuple_is_named(first, caplog):
    caplog.set_level(logging.INFO, "shapevm")
    shapes = ((*[{0: AUTO} for _ in first], {0: AUTO, 1: AUTO}),)
    model = Star(lambda *values: torch.linspace(0, 1, values[-1].shape[1]))
    export_model(model, (*first, torch.randn(4, 5)), {}, shapes)
    assert f"axis 1 of args_{len(first)} is always 5" in caplog.text


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x[: int(x.shape[0] * 0.7)], "is at least 10 and at most 11"),
        (lambda x: x * 2 if x.shape[0] % 2 == 0 else x, "is a multiple of 2"),
    ],
    ids=["range", "multiple"],
)
def test_a_range_that_guards_narrow_is_named(function, said, caplog):
    caplog.set_level(logging.INFO, "shapevm")
    shapes = (({0: AUTO},),)
    shapevm.compile(module(function), (torch.randn(10),), dynamic_shapes=shapes).close()
    assert f"dynamic_shapes: s0 {said} in this model" in caplog.text


def test_a_size_that_a_weight_fixes_is_named_and_traced_once(caplog, monkeypatch):
    traces = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, **k: traces.append(a) or export(*a, **k))
    caplog.set_level(logging.INFO, "shapevm")
    shapes = ({0: AUTO, 1: AUTO},)
    with shapevm.compile(nn.Linear(6, 4), (torch.randn(3, 6),), dynamic_shapes=shapes) as exe:
        assert exe(torch.randn(1, 6)).shape == (1, 4)
    assert "is always 6 in this model" in caplog.text and len(traces) == 1


@pytest.mark.parametrize("n", [3, 30])
def test_distances_have_no_bound(n):
    model = module(torch.cdist)
    args = (torch.randn(n, 4), torch.randn(n + 2, 4))
    with shapevm.compile(model, args, dynamic_shapes=(({0: AUTO}, {0: AUTO}),)) as exe:
        assert [(s.min, s.max) for s in exe.machine.symbols] == [(0, None), (0, None)]
        for m in (0, 1, 3, 40):
            x, y = torch.randn(m, 4), torch.randn(m + 1, 4)
            torch.testing.assert_close(exe(x, y), torch.cdist(x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_take_length_1(kind):
    model = kind(8, 16, 2, bidirectional=True, batch_first=True).eval()
    with shapevm.compile(model, (torch.randn(3, 5, 8),), dynamic_shapes=({0: AUTO, 1: AUTO},)) as exe:
        for batch, length in ((3, 7), (5, 1), (1, 1)):
            x = torch.randn(batch, length, 8)
            torch.testing.assert_close(exe(x)[0], model(x)[0])


def test_the_first_refusal_is_said_where_no_trace_works():
    def branches(x):
        return x + 1 if x.sum() > math.pi else x

    with pytest.raises(shapevm.Error, match="branches on a tensor's value"):
        shapevm.compile(module(branches), (torch.ones(3, 2),), dynamic_shapes=(({0: AUTO},),))
