"""Examples of size 1 for axes that are dynamic: they are one size among others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.dynamic_shapes import without_ones
from torch import Tensor, nn
from torch.export import Dim

import shapevm


class Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.linear, self.lstm = nn.Linear(6, 4), nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        y = x.transpose(0, 1)
        if self.kind == "linear":
            return self.linear(y)
        if self.kind == "product":
            return y @ self.linear.weight.T
        return y.reshape(-1, 6) if self.kind == "reshape" else self.lstm(x)[0]


@pytest.mark.parametrize("example", [(1, 5), (3, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["linear", "product", "reshape", "lstm"])
def test_an_example_of_size_1_does_not_fix_the_size(kind: str, example: tuple[int, int]) -> None:
    model = Model(kind).eval()
    dynamic = ({0: Dim("batch", min=1, max=64), 1: Dim("length", min=1)},)
    with shapevm.compile(model, (torch.randn(*example, 6),), dynamic_shapes=dynamic) as exe:
        for sizes in [(1, 1), (1, 3), (3, 1), (2, 7)]:
            x = torch.randn(*sizes, 6)
            torch.testing.assert_close(exe(x), model(x))


def test_one_program_does_not_fix_the_sizes_of_the_next() -> None:
    """torch's `scan` keeps what it compiled, and asking whether it serves again fixed the sizes."""
    dynamic = ({0: Dim("batch", min=1, max=64), 1: Dim("length", min=1, max=64)},)
    for length in (5, 6, 7):
        model = nn.LSTM(16, 8, batch_first=True).eval()
        shapevm.compile(model, (torch.randn(3, length, 16),)).close()
        with shapevm.compile(model, (torch.randn(3, length, 16),), dynamic_shapes=dynamic) as exe:
            for sizes in [(1, 1), (2, 1), (3, 5), (4, 9)]:
                x = torch.randn(*sizes, 16)
                torch.testing.assert_close(exe(x)[0], model(x)[0])


BATCH, LENGTH = Dim("batch"), Dim("length", max=4)


@pytest.mark.parametrize(
    ("dynamic", "sizes"),
    [
        (({0: BATCH}, {"y": {0: BATCH}}), [(3, 1), (3, 1)]),
        ({"x": {0: BATCH, 1: LENGTH}, "nested": None}, [(3, 4), (1, 1)]),
        (({0: BATCH, 1: 2 * BATCH}, {"y": (None, LENGTH)}), [(3, 6), (1, 4)]),
        (({0: Dim.AUTO}, {"y": {1: Dim.DYNAMIC}}), [(3, 1), (1, 3)]),
        (({0: Dim.STATIC}, None), None),
        (None, None),
    ],
)
def test_rows_are_repeated_along_dynamic_axes(dynamic: Any, sizes: list[tuple[int, ...]] | None) -> None:
    def forward(x: Tensor, nested: dict[str, Tensor]) -> Tensor:
        return x

    x = torch.full((1, 2 if sizes and sizes[0] == (3, 6) else 1), 7.0)
    made = without_ones(forward, (x, {"y": torch.ones(1, 1)}), {}, dynamic)
    if sizes is None or made is None:
        assert made is sizes
        return
    (grown, nested), _ = made
    assert [tuple(grown.shape), tuple(nested["y"].shape)] == sizes
    assert (grown == 7).all()
