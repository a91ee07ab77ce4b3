"""Numbers that are read from tensors, known at run time only, as operands of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shapevm

FLOATS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
NATIVE = shapevm.Options(fallback="error")
Function = Callable[[Tensor, float, int], Any]

#: Of a tensor of positive numbers, a float (1.7) and an int (3).
ARITHMETIC: dict[str, Function] = {
    "add": lambda x, n, i: (x + n, n + x, x + i, torch.add(x, x, alpha=n)),
    "sub": lambda x, n, i: (x - n, n - x, x - i, torch.rsub(x, n, alpha=2)),
    "mul": lambda x, n, i: (x * n, x * i, torch.sin(x * n)),
    "div": lambda x, n, i: (x / n, n / x, x / i, torch.div(x, n, rounding_mode="trunc")),
    "floor_divide": lambda x, n, i: (x // n, torch.remainder(x, n), torch.fmod(x, n), x // i, n // x),
    "pow": lambda x, n, i: (x**n, n**x, x**i),
    "compare": lambda x, n, i: (x == n, x != i, x < n, x <= n, x > i, x >= n),
    "clamp": lambda x, n, i: (x.clamp(n), x.clamp(max=i), x.clamp(-i, n), x.clamp_min(n), x.clamp_max(n)),
    "where": lambda x, n, i: (
        torch.where(x > 1, x, n),
        torch.where(x > 1, n, x),
        torch.where(x > 1, n, n * 2),
    ),
    "lerp": lambda x, n, i: (torch.lerp(x, x * 2, n), torch.lerp(x, x * 2, n / 10), torch.lerp(x, x * 2, i)),
    "addcmul": lambda x, n, i: (torch.addcmul(x, x, x, value=n), torch.addcdiv(x, x, x, value=n)),
    "xlogy": lambda x, n, i: (torch.xlogy(x, n), torch.xlogy(n, x)),
    "arithmetic of numbers": lambda x, n, i: (x * (n * 2 + 1), x * (n / i), x + i * 2, x * n**2, x - -n),
}
FILLS: dict[str, Function] = {
    "full": lambda x, n, i: (
        torch.full((2,), n),
        torch.full((2,), i),
        torch.full_like(x, n),
        x.new_full((3,), i),
    ),
    "fill": lambda x, n, i: (
        torch.fill(x, n),
        x.masked_fill(x > 1, n),
        x.index_fill(0, torch.tensor([1]), n),
    ),
    "scatter": lambda x, n, i: x.scatter(0, torch.zeros(1, 4, dtype=torch.int64), n),
    "scatter added": lambda x, n, i: x.scatter(0, torch.zeros(1, 4, dtype=torch.int64), n, reduce="add"),
    "tensor": lambda x, n, i: (torch.scalar_tensor(n) * x.float(), torch.tensor(n), torch.tensor(i)),
    "assign": lambda x, n, i: _assigned(x, n),
}
ACTIVATIONS: dict[str, Function] = {
    "leaky_relu": lambda x, n, i: F.leaky_relu(x - 1, n),
    "elu": lambda x, n, i: (F.elu(x - 1, n), F.celu(x - 1, n)),
    "softplus": lambda x, n, i: (F.softplus(x, n), F.softplus(x, n, i)),
    "threshold": lambda x, n, i: (F.threshold(x, n, 0.5), F.threshold(x, 1.0, n)),
    "threshold_backward": lambda x, n, i: torch.ops.aten.threshold_backward(x, x, n),
}
PRODUCTS: dict[str, Function] = {
    "addmm": lambda x, n, i: (torch.addmm(x, x, x, alpha=n), torch.addmv(x[0], x, x[0], alpha=n)),
    "baddbmm": lambda x, n, i: (
        torch.baddbmm(x[None], x[None], x[None], beta=n),
        torch.addbmm(x, x[None], x[None], alpha=n),
    ),
}
REDUCTIONS: dict[str, Function] = {
    "search": lambda x, n, i: (
        torch.searchsorted(x[0].sort().values, n),
        torch.bucketize(n, x[0].sort().values),
    ),
    "histc": lambda x, n, i: torch.histc(x, 4, 0, n),
}
INTEGERS: dict[str, Function] = {
    "counts": lambda x, n, i: torch.arange(i),
    "arithmetic": lambda x, n, i: (x + i, x - i, x * i, i - x, x + n, x * n, x / i, x / n),
    "quotients": lambda x, n, i: (x // i, torch.remainder(x, i), torch.fmod(x, i), x // n, i // x),
    "powers": lambda x, n, i: (x**i, i**x, x**n),
    "bits": lambda x, n, i: (x & i, x | i, x ^ i, x << i, x >> i, i << x),
    "comparisons": lambda x, n, i: (x == i, x < n, x >= i),
    "limits": lambda x, n, i: (x.clamp(i), x.clamp(max=i), x.clamp(1, n)),
    "fills": lambda x, n, i: (
        x.masked_fill(x > 2, i),
        torch.full_like(x, i),
        x.new_full((2,), i),
        torch.fill(x, i),
    ),
    "choices": lambda x, n, i: (torch.where(x > 1, x, i), torch.where(x > 1, x, n)),
    "scattered": lambda x, n, i: x.scatter(0, torch.zeros(1, 4, dtype=torch.int64), i),
}
TABLES = {
    "arithmetic": ARITHMETIC,
    "fills": FILLS,
    "activations": ACTIVATIONS,
    "products": PRODUCTS,
    "reductions": REDUCTIONS,
}


def _assigned(x: Tensor, n: float) -> Tensor:
    y = x.clone()
    y[0] = n
    y[:, 1] += n
    y.mul_(n)
    return y


class Numbered(torch.nn.Module):
    """All functions of a table in one program."""

    def __init__(self, table: dict[str, Function]) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor, floats: Tensor, ints: Tensor) -> dict[str, Any]:
        """Call them with an element of `floats` and one of `ints`."""
        n, i = floats[1].item(), ints[1].item()
        return {name: function(x, n, i) for name, function in self.table.items()}


def _given(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.arange(1, 17).reshape(4, 4)
    x = x if dtype == torch.int64 else (x * 0.21).to(dtype)
    return x, torch.tensor([0, 1.7], dtype=torch.float64), torch.tensor([0, 3])


def _is_right(table: dict[str, Function], dtype: torch.dtype) -> None:
    args = _given(dtype)
    with shapevm.compile(Numbered(table), args, options=NATIVE, strategy="generic") as exe:
        for n, i in ((1.7, 3), (0.3, 1), (2.9, 5)):
            given = (args[0], torch.tensor([0, n], dtype=torch.float64), torch.tensor([0, i]))
            found, expected = exe(*given), Numbered(table)(*given)
            for name in table:
                torch.testing.assert_close(
                    found[name], expected[name], msg=lambda text, name=name: name + text
                )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", TABLES)
def test_numbers_of_floats(kind: str, dtype: str) -> None:
    _is_right(TABLES[kind], FLOATS[dtype])


def test_numbers_of_integers() -> None:
    _is_right(INTEGERS, torch.int64)


def filled(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return torch.full([2], n, dtype=torch.uint8), x.to(torch.uint8).fill_(n)


class Filled(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return filled(x, n.item())  # type: ignore[arg-type]


@pytest.mark.parametrize("door", ["export", "script"])
def test_fills_refuse_what_their_dtype_does_not_hold(door: str) -> None:
    """As eager does: value cannot be converted to type uint8_t without overflow."""
    x, made = torch.ones(3), int if door == "script" else torch.tensor
    program = torch.jit.script(filled) if door == "script" else Filled()
    with shapevm.compile(program, args=(x, made(3)), strategy="generic", options=NATIVE) as exe:
        for n in (0, 255, -255):
            torch.testing.assert_close(exe(x, made(n)), filled(x, n))
        for n in (256, -256):
            with pytest.raises(shapevm.errors.GuardError, match="-255 to 255, which u8 holds"):
                exe(x, made(n))


def test_a_constant_that_a_dtype_does_not_hold_is_one_sentence() -> None:
    model = nn.Module()
    model.forward = lambda x: torch.full_like(x, 300, dtype=torch.uint8)
    with pytest.raises(shapevm.Error, match="cannot be called.*without overflow|must be -255 to 255"):
        shapevm.compile(model, (torch.ones(3),), options=NATIVE)
