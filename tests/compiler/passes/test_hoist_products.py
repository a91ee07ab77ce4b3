"""Products of x[i] by a constant leave loops that take all of x."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shapevm


class Loop(torch.nn.Module):
    """`step` says what is multiplied in a turn; `n` is how often."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(5, 7)


class Rows(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            h = torch.tanh(h + self.linear(x[i]))
        return h


class Twice(Loop):
    """The product is used with its bias and without."""

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            y = torch.nn.functional.linear(x[i], self.linear.weight)
            h = torch.tanh(h + (y + self.linear.bias) * y)
        return h


class Inside(Loop):
    """The bias is added in a branch."""

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            y = torch.nn.functional.linear(x[i], self.linear.weight)
            if float(h.sum()) > 0:
                y = y + self.linear.bias
            h = torch.tanh(h + y)
        return h


class Blocks(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(1, 1)
        for i in range(x.size(0)):
            h = torch.tanh(h + self.linear(x[i]).sum())
        return h


class While(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h, i = torch.zeros(7), 0
        while i < x.size(0):
            h = torch.tanh(h + self.linear(x[i]))
            i += 1
        return h


class Some(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(n):
            h = torch.tanh(h + self.linear(x[i]))
        return h


class Breaks(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            h = torch.tanh(h + self.linear(x[i]))
            if float(h.sum()) > 1:
                break
        return h


class Second(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(1, x.size(0)):
            h = torch.tanh(h + self.linear(x[i - 1]))
        return h


class Other(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            h = torch.tanh(h + self.linear(x[x.size(0) - 1 - i]))
        return h


class Changed(Loop):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        h = torch.zeros(7)
        for i in range(x.size(0)):
            h = torch.tanh(h + self.linear(x[i]))
            x = x + h[0]
        return h


def n_products(exe: Any, x: torch.Tensor) -> int:
    """Return how many products a call computes."""
    with exe.profile() as found:
        exe(x, 4)
    return sum(row.calls for row in found.kernels if "matmul" in row.label)


@pytest.mark.parametrize("kind", [Rows, Twice, Inside, While, Some, Breaks, Second, Other, Changed])
def test_products_before_loops(kind: type[Loop]) -> None:
    torch.manual_seed(0)
    script = torch.jit.script(kind().eval())
    exe = shapevm.compile(script, args=(torch.randn(4, 5), 3), strategy="generic")
    for rows in (5, 1, 9):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(exe(x, 1), script(x, 1))
    is_hoisted = kind in (Rows, Twice, Inside)
    assert (n_products(exe, torch.randn(6, 5)) == 1) == is_hoisted
    if is_hoisted:
        assert torch.equal(exe(torch.zeros(0, 5), 1), torch.zeros(7))


def test_rows_keep_their_bits() -> None:
    """All rows at once, and each in its turn."""
    made = []
    for kind in (Rows, Some):
        torch.manual_seed(0)
        script = torch.jit.script(kind().eval())
        made.append(shapevm.compile(script, args=(torch.randn(4, 5), 3), strategy="generic"))
    x = torch.randn(40, 5)
    assert torch.equal(made[0](x, 40), made[1](x, 40))


def test_blocks_of_rows() -> None:
    torch.manual_seed(0)
    script = torch.jit.script(Blocks().eval())
    exe = shapevm.compile(script, args=(torch.randn(4, 3, 5), 3), strategy="generic")
    x = torch.randn(6, 3, 5)
    torch.testing.assert_close(exe(x, 1), script(x, 1))
    assert n_products(exe, x) == 1
