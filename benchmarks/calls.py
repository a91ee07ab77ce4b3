"""What a call costs: from Python into a one-kernel program, and each further kernel of a plan."""

from __future__ import annotations

import numpy as np
import torch
from measure import Figure, per_call

import shapevm


class Chain(torch.nn.Module):
    """`n` matrix products of [rows, 16] by constant [16, 16]: one kernel each, next to no arithmetic."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16, bias=False) for _ in range(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Double(torch.nn.Module):
    """One kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def compiled(model: torch.nn.Module, x: torch.Tensor) -> shapevm.Executable:
    """Compile with dynamic rows and call until exact kernels are in."""
    exe = shapevm.compile(model.eval(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},))
    for _ in range(5):
        exe(x)
    exe.wait_until_specialised()
    exe(x)
    return exe


def figures() -> list[Figure]:
    """Return the figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    x = torch.randn(3, 16)
    with torch.inference_mode():
        double, eager = compiled(Double(), x), Double()
        array = x.numpy()
        one_torch, one_numpy = per_call(lambda: double(x)), per_call(lambda: double(array))
        one_eager, one_plain = per_call(lambda: eager(x)), per_call(lambda: np.multiply(array, 2))
        short, long = compiled(Chain(10), x), compiled(Chain(110), x)
        slope = (per_call(lambda: long(x), calls=500) - per_call(lambda: short(x), calls=500)) / 100
    return [
        Figure(
            "warm call of a one-kernel model with a torch tensor",
            f"{one_torch * 1e6:.2f} us (eager {one_eager * 1e6:.2f})",
            "at most 6 us",
        ),
        Figure(
            "warm call of a one-kernel model with a numpy array",
            f"{one_numpy * 1e6:.2f} us (numpy itself {one_plain * 1e6:.2f})",
            "at most 6 us",
        ),
        Figure(
            "each further kernel of a plan, its [3,16] @ [16,16] included",
            f"{slope * 1e9:.0f} ns",
            "at most 150 ns",
        ),
    ]
