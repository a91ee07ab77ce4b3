"""Sizes and numbers that data or floats decide: what tracing found equal is checked at run time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import shapevm

AUTO = Dim.AUTO
NATIVE = shapevm.Options(fallback="error")


class Buffered(nn.Module):
    """A function of tensors that knows a buffer of strides."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("stride", torch.tensor([8.0, 16.0]))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(self, x, y)


def compiled(function: Callable[..., Any], x: Tensor, y: Tensor) -> shapevm.Executable:
    shapes = tuple(dict.fromkeys(range(t.dim()), AUTO) for t in (x, y))
    return shapevm.compile(Buffered(function), (x, y), dynamic_shapes=shapes, options=NATIVE)


def masked(n: int, m: int) -> tuple[Tensor, Tensor]:
    """Return n numbers of which m are above 0, and m others."""
    x = torch.rand(n) + 1
    x[m:] *= -1
    return x, torch.randn(m)


def add_at_mask(self: Any, x: Tensor, y: Tensor) -> Tensor:
    w = x.clone()
    w[x > 0] += y
    return w


@pytest.mark.parametrize("function", [lambda self, x, y: x[x > 0] * y, add_at_mask])
def test_a_size_that_data_decide_equals_an_inputs(function: Callable[..., Any]) -> None:
    with compiled(function, *masked(5, 3)) as exe:
        for n, m in ((5, 3), (7, 0), (2, 2), (9, 1), (0, 0)):
            x, y = masked(n, m)
            torch.testing.assert_close(exe(x, y), function(exe, x, y))
        with pytest.raises(shapevm.errors.GuardError, match="must be equal"):
            exe(masked(5, 3)[0], torch.randn(4))


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x, y: x + y[y > 0],
        lambda self, x, y: x + y[y > 0].repeat(2),
        lambda self, x, y: x.expand(y.nonzero().shape[0]) * 2,
        lambda self, x, y: x.expand(y.long().sum().item()) * 2,
    ],
    ids=["masked", "repeated", "found", "read"],
)
def test_an_axis_that_the_example_broadcasts_to_a_size_that_data_decide(function: Callable[..., Any]) -> None:
    with compiled(function, torch.randn(1), torch.ones(3)) as exe:
        for n in (3, 0, 1, 5):
            x, y = torch.randn(1), torch.ones(n)
            torch.testing.assert_close(exe(x, y), function(exe, x, y))


def test_an_example_of_size_1_equals_a_size_that_data_decide() -> None:
    with compiled(add_at_mask, *masked(2, 1)) as exe:
        for n, m in ((5, 3), (7, 0), (2, 2), (9, 1)):
            x, y = masked(n, m)
            torch.testing.assert_close(exe(x, y), add_at_mask(exe, x, y))


def test_an_example_that_is_run_changes_no_state() -> None:
    def counted(self: Any, x: Tensor, y: Tensor) -> Tensor:
        self.stride += 1
        return x + y[y > 0]

    x, y = torch.randn(1), torch.ones(3)
    with compiled(counted, x, y) as exe:
        assert exe.state()["stride"].tolist() == [8, 16]
        torch.testing.assert_close(exe(x, y), x + y)
        assert exe.state()["stride"].tolist() == [9, 17]


def test_sizes_that_data_decide_add_up_to_an_inputs() -> None:
    def halves(self: Any, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x[x > 0], x[x <= 0]]) + x

    with compiled(halves, *masked(5, 3)) as exe:
        for n, m in ((5, 3), (7, 0), (2, 2), (0, 0)):
            x, y = masked(n, m)
            torch.testing.assert_close(exe(x, y), halves(exe, x, y))


def test_a_size_that_data_decide_is_a_number() -> None:
    def confusion(self: Any, p: Tensor, t: Tensor) -> Tensor:
        return torch.bincount(p * 5 + t, minlength=25).reshape(5, 5)

    pair = torch.randint(0, 5, (20,)), torch.randint(0, 5, (20,))
    with compiled(confusion, *pair) as exe:
        for n in (0, 1, 20):
            p, t = pair[0][:n], pair[1][:n]
            assert torch.equal(exe(p, t), confusion(exe, p, t))
        with pytest.raises(shapevm.errors.GuardError, match="must be equal"):
            exe(torch.tensor([7]), torch.tensor([0]))


def test_a_view_of_another_inputs_batch() -> None:
    def masked_scores(self: Any, x: Tensor, mask: Tensor) -> Tensor:
        m = mask.view(x.shape[0], -1)[:, None, None, :]
        q = x[:, None].expand(-1, 4, -1, -1)
        m = m.expand(x.shape[0], 1, x.shape[1], -1)
        return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=m)

    with compiled(masked_scores, torch.randn(2, 5, 8), torch.randn(2, 5)) as exe:
        for n, m in ((2, 5), (3, 7), (1, 4)):
            x, mask = torch.randn(n, m, 8), torch.randn(n, m)
            torch.testing.assert_close(exe(x, mask), masked_scores(exe, x, mask))


def blocks(self: Any, x: Tensor, y: Tensor) -> Tensor:
    n, m = x.size(1), 8
    x = nn.functional.pad(x, (0, 0, m - n % m, 0)) if n % m else x
    return x.reshape(x.size(0), -1, math.ceil(n / m), 4).sum(2)


def test_guards_are_made_of_ceil_and_quotients() -> None:
    y = torch.randn(3)
    with compiled(blocks, torch.randn(2, 16, 4), y) as exe:
        for n in (8, 16, 32, 80):
            x = torch.randn(3, n, 4)
            torch.testing.assert_close(exe(x, y), blocks(exe, x, y))


def rounds(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[1]
    return x[:, : round(0.5 * n)], torch.full((round(2.5 * n),), round(n / 3)), x.new_ones(round(n / 4) + 1)


def test_sizes_are_rounded_to_the_nearest_integer() -> None:
    y = torch.randn(3)
    with compiled(rounds, torch.randn(2, 7, 6), y) as exe:
        for n in range(2, 14):
            x = torch.randn(3, n, 6)
            torch.testing.assert_close(exe(x, y), rounds(exe, x, y))


def ranges(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0]
    return (
        torch.arange(n * 1.5),
        torch.arange(0.5, n / 2, 0.25),
        torch.arange(0.0, n / 3 + 1, 0.1),
        torch.arange(n**0.5),
        torch.full((n,), n / 3),
    )


def test_ranges_end_at_floats_of_sizes() -> None:
    y = torch.randn(3)
    with compiled(ranges, torch.randn(4), y) as exe:
        for n in (1, 2, 7, 100, 1001):
            for found, expected in zip(exe(torch.randn(n), y), ranges(exe, torch.randn(n), y), strict=True):
                torch.testing.assert_close(found, expected)


def tensors_of_sizes(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    n, m = x.shape[0], y.shape[0]
    return torch.tensor([n, m]), torch.tensor(n) * y, torch.tensor([n * 1.5, 2.0])


def test_tensors_are_made_of_sizes() -> None:
    with compiled(tensors_of_sizes, torch.randn(4), torch.randn(3)) as exe:
        for n, m in ((4, 3), (0, 1), (7, 0)):
            x, y = torch.randn(n), torch.randn(m)
            torch.testing.assert_close(exe(x, y), tensors_of_sizes(exe, x, y))


FILLS: dict[str, Callable[..., Tensor]] = {
    "new_full": lambda self, x, y: x.new_full((x.shape[0], 1), self.stride[1]),
    "full": lambda self, x, y: torch.full((x.shape[0],), self.stride[0].item()),
    "full_like": lambda self, x, y: torch.full_like(x, y.sum().item()),
    "fill": lambda self, x, y: torch.zeros_like(x).fill_(self.stride[1]),
    "masked_fill": lambda self, x, y: x.masked_fill(x > 0, self.stride[1]),
    "clamp": lambda self, x, y: x.clamp(min=y.min().item()),
    "add": lambda self, x, y: x + y.max().item(),
}


@pytest.mark.parametrize("name", FILLS)
def test_a_number_is_read_from_a_tensor(name: str) -> None:
    with compiled(FILLS[name], torch.randn(3, 2), torch.randn(4)) as exe:
        for n in (0, 1, 5):
            x, y = torch.randn(n, 2), torch.randn(n + 1)
            torch.testing.assert_close(exe(x, y), FILLS[name](Buffered(FILLS[name]), x, y))
