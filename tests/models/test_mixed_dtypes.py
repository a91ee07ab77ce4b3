"""Small models whose linear layers take in casts, dequantisation and sums, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.export import Dim

import shapevm


class CastThenLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 70)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x.to(torch.float32)))


class DequantisedActivations(nn.Module):
    """(q - zero) * scale, the zero point one for each row, the scale one for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(48) * 0.1)
        self.linear = nn.Linear(48, 33, bias=False)

    def forward(self, q: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        x = (q.to(torch.float32) - zero.to(torch.float32)[:, None]) * self.scale
        return self.linear(x)


class ScaledSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, 65))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2 + y) @ self.weight


class BatchedCast(nn.Module):
    """f16 scores against f32 values, the batch and both lengths dynamic."""

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.where(scores > 0, scores, scores * 0.5).float() @ values


def bf16(m: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(m, 48).to(torch.bfloat16),)


def quantised(m: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(-128, 128, (m, 48), dtype=torch.int8), torch.randint(-5, 5, (m,), dtype=torch.int8)


def two(m: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(m, 48), torch.randn(m, 48)


def batched(m: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(3, m, m + 1).to(torch.float16), torch.randn(3, m + 1, 20)


ROWS = {0: Dim("rows", min=1, max=600)}
CASES = {
    "cast": (CastThenLinear, bf16, (ROWS,)),
    "dequantise": (DequantisedActivations, quantised, (ROWS, ROWS)),
    "sum": (ScaledSum, two, (ROWS, ROWS)),
}


@pytest.mark.parametrize("strategy", ["generic", "jit"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_eager_pytorchs_and_one_kernel_makes_them(name: str, strategy: str) -> None:
    torch.manual_seed(0)
    make, inputs, shapes = CASES[name]
    model = make().eval()
    with shapevm.compile(model, inputs(7), dynamic_shapes=shapes, strategy=strategy) as exe:
        assert len(exe.machine.kernels) == 1
        for m in (1, 5, 14, 33, 300):
            check(model, exe, inputs(m))


def check(model: nn.Module, exe: Callable, given: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        torch.testing.assert_close(exe(*given), model(*given), rtol=1e-4, atol=1e-4)


def test_a_batched_operand_of_f16() -> None:
    torch.manual_seed(0)
    m = Dim("m", min=2, max=100)
    shapes = ({1: m, 2: m + 1}, {1: m + 1})
    with shapevm.compile(BatchedCast(), batched(4), dynamic_shapes=shapes) as exe:
        assert len(exe.machine.kernels) == 1
        for n in (2, 9, 40):
            check(BatchedCast(), exe, batched(n))
