"""Loops change carried tensors where they lie: values, and that nothing else sees it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapevm.compiler.passes.update_in_place import update_in_place
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import shapevm

ROWS = {0: Dim("rows", min=1, max=64)}


class Placed(torch.nn.Module):
    """Puts `x[i] * 2` into the rows of `start`, itself an input, a constant, or computed; `start` is read
    again."""

    def __init__(self, start: str) -> None:
        super().__init__()
        self.start = start

    def forward(self, x: torch.Tensor) -> Any:
        start = {"input": x, "computed": x + 1, "constant": torch.ones(5, 3)}[self.start]

        def step(i: torch.Tensor, y: torch.Tensor) -> Any:
            place = i.reshape(1, 1).expand(1, 3)
            return i + 1, torch.scatter(y, 0, place, x[:1] * 2)

        i, y = while_loop(lambda i, y: i < 3, step, (torch.zeros((), dtype=torch.int64), start * 1))
        return y, start, x


@pytest.mark.parametrize("start", ["input", "computed", "constant"])
def test_what_a_loop_starts_with_stays(start: str) -> None:
    model, x = Placed(start), torch.randn(5, 3)
    exe = shapevm.compile(model, (x,), options=shapevm.Options(fallback="error"))
    for _ in range(2):
        for found, wanted in zip(exe(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_scan_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    passes = shapevm.compiler.passes.pipeline.PASSES

    def watch(graph: Any) -> None:
        update_in_place(graph)
        seen.extend(node for node in graph.nodes() if node.attrs.get("in_place"))

    changed = tuple((watch if step is update_in_place else step, stage) for step, stage in passes)
    monkeypatch.setattr(shapevm.compiler.passes.pipeline, "PASSES", changed)

    class Model(torch.nn.Module):
        def forward(self, state: torch.Tensor, x: torch.Tensor) -> Any:
            return scan(lambda state, row: (state + row, state * 2), state, x)

    state, x = torch.randn(3), torch.randn(7, 3)
    exe = shapevm.compile(
        Model(), (state, x), dynamic_shapes=(None, ROWS), options=shapevm.Options(fallback="error")
    )
    assert len(seen) == 1
    for rows in (7, 1, 40):
        x = torch.randn(rows, 3)
        for found, wanted in zip(exe(state, x), Model()(state, x), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_tensor_that_is_read_again_is_copied() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            def step(i: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> Any:
                placed = torch.scatter(y, 0, i.reshape(1), x[:1])
                return i + 1, placed, total + y - placed

            zero = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, y, total: i < 4, step, (zero, x * 1, x * 0))

    x = torch.randn(6)
    exe = shapevm.compile(Model(), (x,), options=shapevm.Options(fallback="error"))
    for found, wanted in zip(exe(x), Model()(x), strict=True):
        torch.testing.assert_close(found, wanted)
