"""Guards of torch that ask whether a size is 1 are its own: programs take such a size."""

from __future__ import annotations

import pytest
import sympy
import torch
from shapevm.compiler.frontends.guards import excludes_0_and_1, parse_guard, shown_guard
from shapevm.compiler.ir.graph import SymbolInfo
from torch import nn
from torch.export import Dim

import shapevm

S, T = sympy.Symbol("s", integer=True), sympy.Symbol("t", integer=True)
LINES = 1 + sympy.floor((T - 3) / 4)


@pytest.mark.parametrize(
    ("condition", "size"),
    [
        (sympy.Ne(S, 1), "s"),
        (sympy.Ne(8 * S, 8), "s"),
        (sympy.Ne(8 * S, 16), None),
        (sympy.Ne(S * T, 1), None),
        (sympy.Ne(sympy.Mod(LINES, S * LINES), 0), "s"),
        (sympy.Ne(sympy.Mod(LINES, 2 * LINES), 0), None),
        (sympy.Ne(sympy.Mod(LINES, S), 0), None),
        (sympy.Ne(sympy.Mod(LINES, S * LINES), 1), None),
    ],
)
def test_which_conditions_refuse_a_size_of_1_alone(condition: sympy.Basic, size: str | None) -> None:
    assert excludes_0_and_1(condition) == size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(L['x'].size()[0] % 4) == 0", "s % 4 == 0"),
        ("(L['x'].size()[0] + (-1)*((1 + L['x'].size()[1]) // 2)) != 1", "s - (1 + 3 * t) // 2 != 1"),
        ("L['y'].size()[0] == 2", "L['y'].size()[0] == 2"),
    ],
)
def test_how_messages_show_a_guard(text: str, shown: str) -> None:
    assert shown_guard(text, {("x",): (S, 3 * T)}) == shown


@pytest.mark.parametrize(
    ("text", "at", "holds"),
    [
        ("math.ceil(L['x'].size()[0] / 8) != 0", 0, False),
        ("math.ceil(L['x'].size()[0] / 8) == 2", 9, True),
        ("math.floor(L['x'].size()[0] / 8) == 1", 15, True),
        ("math.trunc((L['x'].size()[0] - 9) / 4) == -1", 2, True),
        ("L['x'].size()[0] / 22 - 0.5 >= 0.001", 11, False),
        ("L['x'].size()[0] / 22 - 0.5 >= 0.001", 12, True),
        ("L['x'].size()[0] / 22 - 0.5 < 0.001", 11, True),
        ("L['x'].size()[0] / 22 - 0.5 < 0.001", 12, False),
        ("0.5 - L['x'].size()[0] / 22 <= 0.001", 10, False),
        ("0.5 - L['x'].size()[0] / 22 <= 0.001", 11, True),
        ("L['x'].size()[0] / 3 == 2.5", 7, False),
        ("L['x'].size()[0] / 3 != 2.5", 8, True),
        ("L['x'].size()[0] / 2 == 1.5", 3, True),
        ("L['x'].size()[0] / 2 > 1.5", 3, False),
        ("L['x'].size()[0] / 2 > 1.5", 4, True),
        ("torch.sym_float(L['x'].size()[0]) <= 2.5", 3, False),
        ("L['x'].size()[0] ** 0.5 >= 3", 8, False),
        ("L['x'].size()[0] ** 0.5 >= 3", 9, True),
        ("math.ceil(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 9, False),
        ("math.ceil(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 10, True),
        ("math.ceil(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 16, True),
        ("math.ceil(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 17, False),
        ("math.ceil(torch.sym_float(L['x'].size()[0]) ** 0.5) >= 0", 0, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 15, False),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 16, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 24, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) == 4", 25, False),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) != 4", 24, False),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) < 4", 15, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) < 4", 16, False),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) <= 4", 24, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) > 4", 24, False),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) > 4", 25, True),
        ("math.trunc(torch.sym_float(L['x'].size()[0]) ** 0.5) >= 4", 16, True),
        ("round(0.25*torch.sym_float(L['x'].size()[0])) == 1", 2, False),
        ("round(0.25*torch.sym_float(L['x'].size()[0])) == 1", 3, True),
        ("round(0.25*torch.sym_float(L['x'].size()[0])) == 2", 6, True),
        ("round(0.25*torch.sym_float(L['x'].size()[0])) == 2", 10, True),
        ("round(L['x'].size()[0] / 3) == 2", 7, True),
        ("round(1.0*torch.sym_float(round(2.0*torch.sym_float(L['x'].size()[0])))) == 6", 3, True),
        ("torch.sym_min(2, L['x'].size()[0]) == 2", 1, False),
        ("torch.sym_max(2, L['x'].size()[0]) == 2", 1, True),
        ("Max(3, Min(L['x'].size()[0], 7)) == 7", 8, True),
        ("Mod(L['x'].size()[0], 4) == 1 or not L['x'].size()[0] < 9", 5, True),
    ],
)
def test_guards_are_read(text: str, at: int, holds: bool) -> None:
    condition = parse_guard(text, {("x",): (S,)}, {"s": SymbolInfo("s", 0, 1 << 20)})
    assert bool(condition.subs(S, at)) == holds


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


def test_a_guard_beside_a_float_without_an_exact_decimal_fits_64_bits() -> None:
    """As resizing with antialiasing asks it."""

    class Smoothed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * max((x.shape[0] / 11 - 1.0) / 2.0, 0.001)

    smoothed = Smoothed()
    exe = shapevm.compile(smoothed, (torch.randn(18),), dynamic_shapes=({0: Dim.AUTO},), strategy="generic")
    for n in (12, 18, 101):
        x = torch.randn(n)
        torch.testing.assert_close(exe(x), smoothed(x))
    with pytest.raises(shapevm.Error, match="at least 12"):
        exe(torch.randn(11))
