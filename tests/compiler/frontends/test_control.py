"""Control flow of exported programs: cond, while_loop, map, scan, and recurrent layers of any length."""

import warnings
from typing import Any

import pytest
import torch
from shapevm.compiler.ir.errors import UnsupportedOp
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import shapevm

ROWS = {0: Dim("rows", min=1, max=64)}


def module(forward: Any) -> nn.Module:
    """Return a module with this forward (self first)."""
    return type("Model", (nn.Module,), {"forward": forward})()


def same(model: nn.Module, shapes: Any, *calls: tuple[Any, ...], **options: Any) -> Any:
    """Compile on the first arguments, compare on all."""
    exe = shapevm.compile(model, calls[0], dynamic_shapes=shapes, options=shapevm.Options(**options))
    for args in calls:
        torch.testing.assert_close(exe(*args), model(*args), rtol=1e-5, atol=1e-5)
    return exe


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def large(x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + x.shape[0]

        def small(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.min() < -5, torch.cos, lambda x: self.linear(x).relu(), (x,))

        return torch.cond(x.sum() > 0, large, small, (x,)) * 2 + self.linear(x)


def test_cond() -> None:
    x = torch.randn(4, 64).abs()
    exe = same(
        Branches().eval(), (ROWS,), (x,), (-x,), (-x - 6,), (x[:1],), (torch.randn(9, 64),), fallback="error"
    )
    assert exe.machine.externs == ()


def test_cond_on_sizes() -> None:
    model = module(lambda self, x: torch.cond(x.shape[0] > 5, torch.sin, torch.neg, (x,)))
    same(model, (ROWS,), (torch.randn(4, 3),), (torch.randn(5, 3),), (torch.randn(6, 3),))


def test_branches_of_other_sizes() -> None:
    model = module(lambda self, x: torch.cond(x.sum() > 0, lambda x: x[:1] + 0, lambda x: x[:2] + 0, (x,)))
    with pytest.raises((UnsupportedOp, RuntimeError), match="cond"):
        shapevm.compile(model, (torch.randn(4, 3),), options=shapevm.Options(fallback="error"))


def test_while_loop() -> None:
    def forward(self: Any, x: torch.Tensor, n: torch.Tensor) -> Any:
        def step(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, y * 0.5 + x.cos()

        return while_loop(lambda i, y: i < n, step, (torch.zeros((), dtype=torch.int64), x + 1))

    x = torch.randn(4, 3)
    calls = [(x, torch.tensor(3)), (x, torch.tensor(0)), (torch.randn(1, 3), torch.tensor(20))]
    same(module(forward), (ROWS, None), *calls, fallback="error")


def test_while_loop_with_a_number() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y + i), (0, x * 1))[1]

    same(module(forward), (ROWS,), (torch.randn(4, 3),), (torch.randn(2, 3),))


def test_map() -> None:
    def forward(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch_map(lambda row, y: torch.softmax(row, 0) + y, x, y)

    y = torch.randn(3)
    same(module(forward), (ROWS, None), *[(torch.randn(n, 3), y) for n in (4, 1, 9)], fallback="error")


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    def forward(self: Any, state: torch.Tensor, x: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> Any:
            state = torch.tanh(state + row)
            return state, state * 2

        return scan(step, state, x, reverse=reverse)

    state = torch.randn(3)
    same(module(forward), (None, ROWS), *[(state, torch.randn(n, 3)) for n in (4, 1, 9)], fallback="error")


@pytest.mark.parametrize(
    ("kind", "batch_first", "options"),
    [
        (nn.LSTM, True, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, False, {"bias": False, "proj_size": 3}),
        (nn.GRU, False, {"bidirectional": True}),
        (nn.RNN, True, {"nonlinearity": "relu"}),
    ],
)
def test_recurrent_layers_of_any_length(kind: Any, batch_first: bool, options: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(5, 4, batch_first=batch_first, **options)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x)

    length = {1 if batch_first else 0: Dim("length", min=1, max=64)}
    calls = [(torch.randn((2, n, 5) if batch_first else (n, 2, 5)),) for n in (4, 1, 9)]
    exe = same(Model().eval(), (length,), *calls, fallback="error")
    assert [symbol.name for symbol in exe.machine.symbols] == ["length"]


RECURRENT = (
    (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    (nn.LSTM, {"bias": False, "proj_size": 3}),
    (nn.GRU, {"num_layers": 2, "batch_first": True}),
    (nn.GRU, {"bias": False, "bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 3}),
    (nn.RNN, {"bidirectional": True, "bias": False}),
)


@pytest.mark.parametrize(("kind", "options"), RECURRENT)
def test_recurrent_layers_of_exported_programs(kind: Any, options: Any) -> None:
    layer, x = kind(5, 4, **options).eval(), torch.randn(3, 6, 5)
    batch = 0 if options.get("batch_first") else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(layer, (x,), dynamic_shapes=({batch: Dim.DYNAMIC},))
    exe = shapevm.compile(program, options=shapevm.Options(fallback="error"))
    for n in (1, 2):
        given = torch.randn(n, 6, 5) if batch == 0 else torch.randn(3, n, 5)
        torch.testing.assert_close(exe(given), layer(given))


def test_layers_are_torchs_again_after_an_export() -> None:
    before = torch._VF.lstm
    layer = nn.LSTM(3, 2).eval()
    shapevm.compile(layer, (torch.randn(4, 1, 3),))
    assert torch._VF.lstm is before
