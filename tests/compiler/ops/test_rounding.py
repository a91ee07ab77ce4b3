"""f16 and bf16 are computed in f32 and rounded once, as PyTorch does; results whose dtype is easily wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shapevm

HALVES = (torch.float16, torch.bfloat16)
ROUNDED_ONCE: dict[str, Callable[..., torch.Tensor]] = {
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=3.14),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=3.14),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.4),
    "lerp by tensor": lambda x, y, z: torch.lerp(x, y, z),
    "addmm": lambda x, y, z: torch.addmm(x, y, z, beta=0.6, alpha=0.2),
    "addmv": lambda x, y, z: torch.addmv(x[0], y, z[0], beta=0.6, alpha=0.2),
    "addbmm": lambda x, y, z: torch.addbmm(x, y.view(2, 48, 48), z.view(2, 48, 48), beta=0.6, alpha=0.2),
    "baddbmm": lambda x, y, z: torch.baddbmm(x[None], y[None], z[None], beta=0.6, alpha=0.2),
}
TYPED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "factors of integers": (
        lambda x, y: torch.addmm(x, y, y, beta=0.6, alpha=2.7),
        (torch.ones(3, 3, dtype=torch.int32), torch.full((3, 3), 5, dtype=torch.int32)),
    ),
    "negative numbers of u8": (
        lambda x: (x.add(x, alpha=-1), x.index_add(0, x.long(), x, alpha=-2), x.new_full((2,), -5), x < -2),
        (torch.arange(4, dtype=torch.uint8),),
    ),
    "poles of trigamma": (
        lambda x: torch.polygamma(1, x),
        (torch.tensor([-3, -1, 0, 2], dtype=torch.int8),),
    ),
    "square of bool": (torch.square, (torch.tensor([True, False]),)),
    "promotion before rounding": (
        lambda x, y: (torch.addcmul(x, y, y), torch.addcmul(y, x, x)),
        (torch.full((3,), 0.1, dtype=torch.float16), torch.full((3,), 0.7)),
    ),
    "a negative integer": (lambda x: x.sum().item(), (torch.tensor([-3, -4], dtype=torch.int8),)),
    "places of an empty tensor": (torch.nonzero, (torch.ones(5, 0),)),
    "parts at sizes in data": (torch.tensor_split, (torch.arange(12.0).view(6, 2), torch.tensor([1, 4]))),
    "statistics in f16": (
        lambda x, mean, var: torch.nn.functional.batch_norm(x, mean, var, training=True),
        (torch.randn(4, 3).half(), torch.zeros(3).half(), torch.ones(3).half()),
    ),
}


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ROUNDED_ONCE)
def test_rounded_once(name: str, dtype: torch.dtype) -> None:
    """But for sums that lie, in f32, on the other side of a rounding boundary, results are f64's, rounded."""
    generator = torch.Generator().manual_seed(3)
    side = 96 if name == "addbmm" else 48
    shapes = ((48, 48), (side, 48), (side, 48))
    args = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    found = shapevm.compile(Function(ROUNDED_ONCE[name]), args, strategy="generic")(*args)
    exact = ROUNDED_ONCE[name](*(x.double() for x in args)).to(dtype)
    assert found.dtype == dtype and (found != exact).double().mean() < 0.01


@pytest.mark.parametrize("name", TYPED)
def test_typed(name: str) -> None:
    function, args = TYPED[name]
    expected = function(*(x.clone() for x in args))
    given = tuple(x.clone() for x in args)
    found = shapevm.compile(Function(function), args, strategy="generic")(*given)
    torch.testing.assert_close(found, expected, rtol=4e-3, atol=1e-3)  # PyTorch rounds statistics first
