"""In-place operators by renaming: only where the memory is certainly not shared, with eager's values."""

from collections.abc import Callable

import pytest
import torch
from shapevm.compiler.frontends.exported_program import export_model
from shapevm.compiler.frontends.functional import functional

import shapevm

BATCH = torch.export.Dim("batch", min=1, max=9)


class Of(torch.nn.Module):
    """A function of x [batch, 4] as a module, with layers for it."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function, self.linear = function, torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def residual(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.norm(m.linear(x))
    first = y.relu_()
    second = first.add_(x)
    return y * 2 + first - second.mul_(3)


def view_after(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    y.mul_(x)
    return y.t() + y[0, 0]


def view_before(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    row = y[0]
    y.mul_(2)
    return row + y


def dropout_of_view(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return torch.nn.functional.dropout(y.flatten(), 0.5, training=False, inplace=True).sum() + y


def through_view(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    y[0].mul_(2)
    return y


def own_input(m: Of, x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


def other_dtype(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).mul_(x.double())


def training(m: Of, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, m.norm.running_mean, m.norm.running_var, training=True)


def unknown(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).reshape(-1, 2, 2).relu_().flatten(1)


def plain(m: Of, x: torch.Tensor) -> torch.Tensor:
    return torch.min(m.norm(m.linear(x)), x)


def exported(function: Callable) -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return export_model(Of(function), (torch.randn(3, 4),), None, {"x": {0: BATCH}})


@pytest.mark.parametrize("function", [residual, view_after, dropout_of_view])
def test_what_nothing_shares_is_renamed(function: Callable) -> None:
    program = exported(function)
    before = str(program.graph)
    renamed = functional(program)
    assert renamed is not None and renamed is not program and str(program.graph) == before
    assert not any(str(node.target).split(".")[1:2] == ["relu_"] for node in renamed.graph.nodes)


def test_what_changes_nothing_stays() -> None:
    program = exported(plain)
    assert functional(program) is program


@pytest.mark.parametrize("function", [view_before, through_view, own_input, other_dtype, training, unknown])
def test_what_may_be_shared_is_left_to_torch(function: Callable) -> None:
    assert functional(exported(function)) is None


@pytest.mark.parametrize(
    "function", [residual, view_after, dropout_of_view, view_before, through_view, plain, unknown]
)
def test_values_are_eagers(function: Callable) -> None:
    program = exported(function)
    with shapevm.compile(program, dynamic_shapes={"x": {0: BATCH}}, strategy="generic") as exe:
        for batch in (1, 4):
            x = torch.randn(batch, 4)
            with torch.no_grad():
                torch.testing.assert_close(exe(x), program.module()(x))
        assert not exe.machine.externs
