"""Guards of torch that ask whether a size is 1 are its own: programs take such a size."""

from __future__ import annotations

import pytest
import sympy
import torch
from shapevm.compiler.frontends.guards import excludes_0_and_1
from torch import nn
from torch.export import Dim

import shapevm

S, T = sympy.Symbol("s", integer=True), sympy.Symbol("t", integer=True)
LINES = 1 + sympy.floor((T - 3) / 4)


@pytest.mark.parametrize(
    ("condition", "size"),
    [
        (sympy.Ne(S, 1), "s"),
        (sympy.Ne(sympy.Mod(LINES, S * LINES), 0), "s"),
        (sympy.Ne(sympy.Mod(LINES, 2 * LINES), 0), None),
        (sympy.Ne(sympy.Mod(LINES, S), 0), None),
        (sympy.Ne(sympy.Mod(LINES, S * LINES), 1), None),
    ],
)
def test_which_conditions_refuse_a_size_of_1_alone(condition: sympy.Basic, size: str | None) -> None:
    assert excludes_0_and_1(condition) == size


class Audio(nn.Module):
    """Strided convolutions, a recurrent layer over their results, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv1d(1, 16, 10, stride=4), nn.Conv1d(16, 32, 4, stride=2)
        self.layer, self.last = nn.GRU(32, 24, batch_first=True), nn.Linear(24, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply all to samples [n, 1, t]."""
        y = nn.functional.gelu(self.second(nn.functional.gelu(self.first(x))))
        return self.last(self.layer(y.transpose(1, 2))[0])


def test_a_batch_of_one_behind_strided_convolutions() -> None:
    model = Audio().eval()
    sizes = ({0: Dim("batch", min=1, max=8), 2: Dim("time", min=64, max=512)},)
    exe = shapevm.compile(model, (torch.randn(3, 1, 200),), dynamic_shapes=sizes)
    for n, t in ((1, 200), (1, 64), (2, 333)):
        x = torch.randn(n, 1, t)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)
