"""Products of states that start as zeros look for zeros, where the weight's elements are finite."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import shapevm

WIDE = 128


class State(torch.nn.Module):
    """A state that is multiplied in each turn, of which the first is `begin`."""

    def __init__(self, width: int = WIDE) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, width)

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.begin(x)
        for i in range(x.size(0)):
            h = torch.tanh(self.linear(h) + x[i])
        return h


class Ones(State):
    def begin(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(x[0])


class Given(State):
    def begin(self, x: torch.Tensor) -> torch.Tensor:
        return x[0]


class Sum(State):
    """The product is of what an inner loop has added up, as in a tree, or has not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.ones_like(x[0])
        for i in range(x.size(0)):
            total = torch.zeros_like(h)
            for _ in range(int(x[i, 0])):
                total = total + h
            h = torch.tanh(self.linear(total) + x[i])
        return h


class Computed(State):
    """The product is of something else than the state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.begin(x)
        for i in range(x.size(0)):
            h = torch.tanh(self.linear(torch.exp(h)) + x[i])
        return h


def compiled(model: torch.nn.Module, width: int = WIDE) -> Any:
    return shapevm.compile(torch.jit.script(model.eval()), args=(torch.randn(3, width).abs(),))


def skips(exe: Any) -> bool:
    """Whether a product of a program looks for zeros."""
    return any(json.loads(kernel.spec).get("skips_zeros", False) for kernel in exe.machine.kernels)


@pytest.mark.parametrize(
    "kind, wanted", [(State, True), (Sum, True), (Ones, False), (Given, False), (Computed, False)]
)
def test_which_products_look_for_zeros(kind: type[State], wanted: bool) -> None:
    model = kind()
    exe = compiled(model)
    assert skips(exe) == wanted
    for n in (1, 2, 5):
        x = torch.randn(n, WIDE).abs()
        x[:, 0] = torch.arange(n) % 3
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6)


def test_small_weights_are_read() -> None:
    assert not skips(compiled(State(64), 64))


@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_an_infinite_weight_makes_nan_of_zeros(number: float) -> None:
    model = State()
    with torch.no_grad():
        model.linear.weight[5, 7] = number
    exe, x = compiled(model), torch.randn(1, WIDE)
    assert not skips(exe)
    torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6, equal_nan=True)
    assert np.flatnonzero(exe(x).isnan().numpy()).tolist() == [5]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_skip_the_first_state(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind(WIDE, WIDE, num_layers=2).eval()
    length = torch.export.Dim("length", min=1, max=64)
    exe = shapevm.compile(model, (torch.randn(3, 1, WIDE),), dynamic_shapes=({0: length},))
    assert skips(exe)
    for n in (1, 7):
        x = torch.randn(n, 1, WIDE)
        torch.testing.assert_close(exe(x)[0], model(x)[0], rtol=1e-5, atol=1e-6)
