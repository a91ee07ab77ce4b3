"""Random numbers that programs draw themselves: their distribution, seeds, and who draws them."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

import shapevm
from shapevm import ArgumentError

N = 40_000
ROWS = torch.export.Dim("rows", min=0, max=2**20)
F = torch.nn.functional


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def build(function: Callable[..., Any], x: torch.Tensor, strategy: str = "generic", **options: Any) -> Any:
    made = shapevm.Options(**{"fallback": "error", **options})
    return shapevm.compile(
        Function(function), (x,), dynamic_shapes=({0: ROWS},), strategy=strategy, options=made
    )


def _flat(low: float, high: float) -> Callable[[float], float]:
    return lambda x: min(max((x - low) / (high - low), 0.0), 1.0)


_NORMAL = NormalDist().cdf
#: (function of a tensor of zeros, the distribution's cumulative function)
CONTINUOUS = {
    "rand": (torch.rand_like, _flat(0, 1)),
    "rand64": (lambda x: torch.rand_like(x, dtype=torch.float64), _flat(0, 1)),
    "randn": (torch.randn_like, _NORMAL),
    "randn64": (lambda x: torch.randn_like(x, dtype=torch.float64), _NORMAL),
    "uniform": (lambda x: x.clone().uniform_(-3, 5), _flat(-3, 5)),
    "normal": (lambda x: x.clone().normal_(2, 3), NormalDist(2, 3).cdf),
    "normal of tensors": (lambda x: torch.normal(x + 1, x.abs() + 2), NormalDist(1, 2).cdf),
    "log_normal": (lambda x: x.clone().log_normal_(1, 0.5), lambda x: NormalDist(1, 0.5).cdf(math.log(x))),
    "exponential": (lambda x: x.clone().exponential_(3), lambda x: 1 - math.exp(-3 * x)),
    "cauchy": (lambda x: x.clone().cauchy_(1, 2), lambda x: math.atan((x - 1) / 2) / math.pi + 0.5),
    "rrelu": (lambda x: F.rrelu(x - 1, 0.2, 0.7, training=True), _flat(-0.7, -0.2)),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str) -> None:
    """Kolmogorov and Smirnov's statistic, below what one in 10,000 exceeds; neighbours do not correlate."""
    function, cumulative = CONTINUOUS[name]
    found = build(function, torch.zeros(3))(torch.zeros(N)).double().numpy()
    wanted = np.array([cumulative(x) for x in np.sort(found)])
    assert abs(wanted - (np.arange(N) + 0.5) / N).max() * N**0.5 < 2.3
    ranks = np.argsort(np.argsort(found))
    assert abs(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]) < 0.03


#: (function of a tensor of zeros, the probabilities of 0, 1, 2 ...)
DISCRETE = {
    "randint": (lambda x: torch.randint_like(x, 5), [0.2] * 5),
    "randint low": (lambda x: torch.randint(1, 4, x.shape, dtype=torch.int32), [0, *[1 / 3] * 3]),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), [0.7, 0.3]),
    "bernoulli p": (lambda x: x.clone().bernoulli_(0.9), [0.1, 0.9]),
    "geometric": (lambda x: x.clone().geometric_(0.5), [0, *(0.5**k for k in range(1, 30))]),
    "dropout": (lambda x: F.dropout(x + 1, 0.25, training=True) * 0.75, [0.25, 0.75]),
    "feature_dropout": (lambda x: F.dropout1d(x[:, None, None] + 1, 0.5)[:, 0, 0] / 2, [0.5, 0.5]),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([1.0, 0, 3, 0]), x.shape[0] + 1, replacement=True)[1:],
        [0.25, 0, 0.75],
    ),
    "multinomial without replacement": (
        lambda x: torch.multinomial(x[:, None] + torch.tensor([1.0, 0, 3, 0]), 2)[:, 0],
        [0.25, 0, 0.75],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    function, wanted = DISCRETE[name]
    found = build(function, torch.zeros(3))(torch.zeros(N)).double().round().long()
    counts = np.bincount(found, minlength=len(wanted))
    expected = np.array(wanted) / sum(wanted) * N
    assert len(counts) == len(wanted) and not counts[expected == 0].any()
    kept = expected > 10
    assert ((counts - expected)[kept] ** 2 / expected[kept]).sum() < 5 * len(wanted) + 25


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_refuses_what_eager_refuses(replacement: bool) -> None:
    """Negative, infinite and nan probabilities, and rows of zeros."""
    exe = build(lambda x: torch.multinomial(x, 2, replacement), torch.ones(3, 4))
    assert exe(torch.ones(2, 4)).shape == (2, 2)
    for wrong in ([-1.0, 2, 3, 1], [math.nan, 1, 1, 1], [1, math.inf, 1, 1], [0.0] * 4):
        with pytest.raises(shapevm.errors.GuardError, match="multinomial: x must be finite and at least 0"):
            exe(torch.tensor([[1.0] * 4, wrong]))


def test_alpha_dropout_keeps_mean_and_deviation() -> None:
    x = F.selu(torch.randn(N, generator=torch.Generator().manual_seed(0)))
    found = build(lambda v: F.alpha_dropout(v, 0.3, training=True), x[:3])(x)
    assert abs(found.mean() - x.mean()) < 0.05 and abs(found.std() - x.std()) < 0.05


def test_randperm() -> None:
    exe = build(lambda x: torch.randperm(x.shape[0]), torch.zeros(3))
    found = exe(torch.zeros(1000))
    assert torch.equal(found.sort().values, torch.arange(1000)) and not torch.equal(
        found, exe(torch.zeros(1000))
    )
    assert [exe(torch.zeros(n)).tolist() for n in (0, 1)] == [[], [0]]


def test_seeds() -> None:
    exe = build(lambda x: (torch.rand_like(x), torch.randn_like(x)), torch.zeros(3))
    first = [exe(torch.zeros(n)) for n in (7, 1, 0, 5)]
    assert not torch.equal(first[0][0][:1], first[1][0])
    exe.reset_state()
    torch.testing.assert_close([exe(torch.zeros(n)) for n in (7, 1, 0, 5)], first, rtol=0, atol=0)
    exe.manual_seed(8)
    other = exe(torch.zeros(7))
    assert not torch.equal(other[0], first[0][0])
    exe.manual_seed(8)
    exact = exe.using("jit")(torch.zeros(7))
    torch.testing.assert_close(exact, other, rtol=0, atol=0)
    exe.manual_seed(-1)
    exe(torch.zeros(7))


def test_the_first_seed_is_torchs() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return build(torch.rand_like, torch.zeros(3))(torch.zeros(4))

    assert torch.equal(draw(5), draw(5)) and not torch.equal(draw(5), draw(6))


def test_who_draws() -> None:
    def layer(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, training=False)

    assert not build(layer, torch.ones(3)).state()
    with pytest.raises(ArgumentError, match=r"draws no random numbers of its own"):
        build(layer, torch.ones(3)).manual_seed(1)
    exe = build(torch.rand_like, torch.ones(3), fallback="torch", random="torch")
    torch.manual_seed(3)
    found = exe(torch.ones(5))
    torch.manual_seed(3)
    assert torch.equal(found, torch.rand(5))
    with pytest.raises(ArgumentError, match="random 'mine' is unknown; known are native, torch"):
        build(layer, torch.ones(3), random="mine")


def test_a_draw_in_a_branch_is_torchs() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: torch.rand_like(v), lambda v: v + 1, (x,))

    exe = build(choose, torch.ones(3), fallback="torch")
    assert exe.machine.externs and torch.equal(exe(-torch.ones(4)), torch.zeros(4))
