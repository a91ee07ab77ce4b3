"""A trace that torch.export is going to refuse ends at the guard that decides it."""

import pytest
import torch
from shapevm.compiler.frontends.early_refusal import EarlyRefusal, until_refused
from shapevm.compiler.frontends.export import export_model, sizes_are_alike

import shapevm


class Asks(torch.nn.Module):
    """Asks whether a size is 1 before its work, and notes in `log` (torch.export sets attributes back) how
    far it gets."""

    def __init__(self, log=(), catches=False):
        super().__init__()
        self.note = getattr(log, "append", lambda what: None)
        self.catches = catches

    def forward(self, x):
        self.note("asks")
        try:
            scale = 1.0 if x.shape[0] == 1 else 2.0
        except:  # noqa: E722 (as rude as a model may be)
            if not self.catches:
                raise
            scale = 3.0
        self.note("works")
        return x * scale


def dim(least):
    return ({0: torch.export.Dim("n", min=least, max=9)},)


def test_a_trace_that_will_be_refused_ends_at_once(caplog):
    log = []
    program = export_model(Asks(log), (torch.ones(4, 3),), None, dim(1))
    assert log == ["asks", "asks", "works"]
    assert torch.equal(program.module()(torch.ones(4, 3)), torch.full((4, 3), 2.0))
    assert "failed during" not in caplog.text


def test_a_model_that_catches_everything_is_traced_again():
    log = []
    program = export_model(Asks(log, catches=True), (torch.ones(4, 3),), None, dim(1))
    assert log == ["asks", "works"] * 2
    assert torch.equal(program.module()(torch.ones(4, 3)), torch.full((4, 3), 2.0))


@pytest.mark.parametrize("shapes", [dim(2), ({0: torch.export.Dim.AUTO},), None])
def test_ranges_that_hold_are_traced_once(shapes):
    log = []
    export_model(Asks(log), (torch.ones(4, 3),), None, shapes)
    assert log == ["asks", "works"]


def test_a_derived_size_is_none_that_was_given():
    log = []
    half = torch.export.Dim("half", min=1, max=9)
    export_model(Asks(log), (torch.ones(4, 3),), None, ({0: 2 * half},))
    assert log == ["asks", "works"]


def test_the_other_way_is_still_found_at_size_1():
    with pytest.raises(shapevm.ShapeError, match=r"at n = 1 the model takes another way"):
        shapevm.compile(Asks(), (torch.ones(4, 3),), dynamic_shapes=dim(1))


def test_the_reason_is_that_of_the_whole_trace_where_nothing_works():
    class Fixes(torch.nn.Module):
        def forward(self, x):
            scale = 1.0 if x.shape[0] == 1 else 2.0
            return x * scale + torch.ones(4, 3)

    with pytest.raises(shapevm.ShapeError, match="4"):
        export_model(Fixes(), (torch.ones(4, 3),), None, dim(1))


def test_errors_of_the_model_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), until_refused():
        raise ZeroDivisionError


def test_guards_outside_of_a_watch_are_left_alone():
    with pytest.raises(EarlyRefusal), until_refused(), sizes_are_alike():
        torch.export.export(Asks(), (torch.ones(4, 3),), dynamic_shapes=dim(1), strict=False)
    with pytest.raises(Exception, match="Not all values of n"), sizes_are_alike():
        torch.export.export(Asks(), (torch.ones(4, 3),), dynamic_shapes=dim(1), strict=False)
