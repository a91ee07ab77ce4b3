"""Assumptions about the sizes of intermediate results: those that change nothing restrict no call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.export import export_model
from torch import Tensor, nn
from torch.export import Dim

import shapevm


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def shuffled(x: Tensor) -> Tensor:
    return nn.functional.channel_shuffle(nn.functional.avg_pool2d(x, 2), 2) * 2


def as_rows(x: Tensor) -> Tensor:
    y = nn.functional.avg_pool2d(x, 4).permute(0, 2, 3, 1)
    return y.reshape(y.shape[0], -1, y.shape[3]).transpose(1, 2).contiguous().flatten(1)


def windows(x: Tensor) -> Tensor:
    n = x.shape[2] // 4  # 0 at sizes below 4, by which the rows of a window are then divided
    y = x.reshape(x.shape[0], x.shape[1], n, x.shape[2] // n, x.shape[3])
    return y.transpose(2, 3).contiguous().flatten(1)


def branching(x: Tensor) -> Tensor:
    return x + 1 if x.shape[2] // 2 != 1 else x - 1


def checking(x: Tensor) -> Tensor:
    if x.shape[2] // 4 <= 1:
        raise ValueError("too low")
    return x * 2


def thirds(x: Tensor) -> tuple[Tensor, ...]:
    return torch.tensor_split(x, 3, 2)


def enlarged(x: Tensor) -> Tensor:
    return nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True)


def averaged(x: Tensor) -> Tensor:
    return nn.functional.adaptive_avg_pool1d(x, 1)


FREE = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}


def compiled(function: Callable[..., Any], shape: Sequence[int] = (2, 4, 16, 24)) -> shapevm.Executable:
    example = (torch.randn(shape),)
    return shapevm.compile(Function(function), example, dynamic_shapes=(FREE,), strategy="generic")


@pytest.mark.parametrize(
    "function, shapes",
    [
        (shuffled, [(1, 4, 2, 2), (1, 4, 3, 2), (2, 4, 2, 7), (3, 4, 64, 2), (0, 4, 8, 8)]),
        (as_rows, [(1, 4, 4, 4), (1, 4, 5, 13), (2, 4, 9, 4)]),
        (windows, [(1, 4, 8, 4), (0, 4, 8, 3), (2, 4, 64, 1)]),
        (enlarged, [(1, 4, 1, 1), (2, 4, 1, 5), (1, 4, 2, 1)]),
    ],
)
def test_results_of_one_element(function: Callable[..., Any], shapes: Sequence[Sequence[int]]) -> None:
    with compiled(function) as exe:
        for shape in shapes:
            x = torch.randn(shape)
            torch.testing.assert_close(exe(x), function(x))


def test_sizes_of_one_that_meet() -> None:
    model, free = Function(averaged), (dict.fromkeys(range(3), Dim.AUTO),)
    with shapevm.compile(model, (torch.randn(1, 2, 4),), dynamic_shapes=free, strategy="generic") as exe:
        for shape in ((1, 1, 1), (2, 1, 1), (1, 3, 1), (3, 2, 5)):
            x = torch.randn(shape)
            torch.testing.assert_close(exe(x), model(x))


def test_sizes_above_those_of_an_example_of_one_element() -> None:
    with compiled(as_rows, (2, 4, 4, 4)) as exe:
        x = torch.randn(3, 4, 8, 12)
        torch.testing.assert_close(exe(x), as_rows(x))


@pytest.mark.parametrize("function", [branching, checking])
def test_what_the_model_itself_asks_stays(function: Callable[..., Any]) -> None:
    with compiled(function) as exe:
        torch.testing.assert_close(exe(x := torch.randn(1, 4, 8, 3)), function(x))
        with pytest.raises(shapevm.Error):
            exe(torch.randn(1, 4, 3, 3))


def test_shapes_that_depend_on_a_condition() -> None:
    with compiled(thirds) as exe:
        for rows in (10, 12, 13, 14, 17):
            x = torch.randn(1, 4, rows, 3)
            try:
                found = exe(x)
            except shapevm.Error:
                continue
            assert [part.shape for part in found] == [part.shape for part in thirds(x)]


def test_programs_without_doubtful_guards_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    trace = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, **k: traced.append(a) or trace(*a, **k))
    for function, times in ((torch.relu, 1), (shuffled, 2), (branching, 2)):
        traced.clear()
        export_model(Function(function), (torch.randn(2, 4, 16, 24),), dynamic_shapes=(FREE,))
        assert len(traced) == times
