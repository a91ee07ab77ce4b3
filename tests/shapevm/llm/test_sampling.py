"""The program's sampling against definitions in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import shapevm
from shapevm import nn
from shapevm.errors import ArgumentError
from shapevm.llm.artifact import arguments_of, inputs_of_sample
from shapevm.llm.drawing import drawn
from shapevm.llm.sampling import Sampling

from . import fakes

LOGITS = np.array([1.0, 4.0, 2.0, 3.5, -1.0, 3.0], np.float32)


class Drawing(nn.Module):
    def forward(self, logits: Any, tokens: Any, numbers: Any, integers: Any, mask: Any) -> Any:
        return drawn(logits, tokens, numbers, integers, mask)


@cache
def program(vocabulary: int) -> shapevm.Executable:
    return nn.compile(Drawing(), inputs_of_sample(vocabulary), strategy="generic")


def choose(logits: np.ndarray[Any, Any], how: Sampling, tokens: Sequence[int]) -> int:
    (token,) = program(len(logits))(**arguments_of(logits, how, tokens))
    return int(token)


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 96, 1009, 50257])
def test_tokens_are_those_of_a_plain_definition(vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    for number in range(60):
        logits = (rng.standard_normal(vocabulary) * rng.choice([0.1, 1, 8])).astype(np.float32)
        if number % 3 == 0:
            logits = logits.round()  # ties
        how = Sampling(
            temperature=float(rng.choice([0, 0.3, 1, 1.7])),
            top_k=int(rng.choice([0, 1, 2, 40, 1 << 31])),
            top_p=float(rng.choice([0, 0.2, 0.9, 1])),
            min_p=float(rng.choice([0, 0.05, 1])),
            repetition_penalty=float(rng.choice([1, 1.3, 0.7])),
            seed=int(rng.integers(0, 9)) if number % 4 else (1 << 64) - 1,
        )
        tokens = rng.integers(0, vocabulary, rng.integers(1, 90)).tolist()
        assert choose(logits, how, tokens) == fakes.choose(logits, how, tokens), how


def test_infinite_logits_are_never_drawn() -> None:
    logits = np.full(50, -np.inf, np.float32)
    logits[[3, 7]] = 1
    found = {choose(logits, Sampling(temperature=2.0, seed=seed), [1]) for seed in range(40)}
    assert found == {3, 7}


def _drawn(how: dict[str, Any], n: int = 2000) -> np.ndarray[Any, Any]:
    """Return the share of each token among draws at different positions."""
    tokens: list[int] = []
    counts = np.zeros(len(LOGITS))
    sampling = Sampling(temperature=1.0, **how)
    for _ in range(n):
        counts[choose(LOGITS, sampling, tokens)] += 1
        tokens.append(0)
    return counts / n


def _shares(kept: list[int]) -> np.ndarray[Any, Any]:
    shares = np.zeros(len(LOGITS))
    shares[kept] = np.exp(LOGITS[kept].astype(float))
    return shares / shares.sum()


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 2}, [1, 3]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.0}, [1]),
        ({"min_p": 0.3}, [1, 3, 5]),
        ({"top_k": 4, "top_p": 0.9, "min_p": 0.2}, [1, 3, 5]),
    ],
)
def test_tokens_are_drawn_by_their_probabilities(how: dict[str, Any], kept: list[int]) -> None:
    np.testing.assert_allclose(_drawn(how), _shares(kept), atol=0.04)
    assert (_drawn(how)[[i for i in range(6) if i not in kept]] == 0).all()


def test_temperature_0_takes_the_greatest_and_the_first_of_equals() -> None:
    assert choose(np.array([1, 3, 3, 2], np.float32), Sampling(), [0]) == 1


def test_the_penalty_lowers_positive_and_negative_logits_of_tokens_that_stand() -> None:
    how = Sampling(repetition_penalty=4.0)
    assert choose(LOGITS, how, [1, 1, 3]) == 5
    assert choose(np.array([-1.0, -2.0], np.float32), how, [0]) == 1


def test_a_draw_depends_on_the_seed_and_the_position() -> None:
    flat = np.zeros(1000, np.float32)
    draws = {
        (seed, n): choose(flat, Sampling(temperature=1.0, seed=seed), [0] * n)
        for seed in range(9)
        for n in range(9)
    }
    assert len(set(draws.values())) > 70
    assert draws[3, 4] == choose(flat, Sampling(temperature=1.0, seed=3), [5] * 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": -1}, "temperature is -1; it must be a number from 0 to 10000.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 1.5}, "top_k is 1.5; it must be a whole number from 0 to 2147483648"),
        ({"top_p": True}, "top_p is True; it must be a number from 0 to 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_refusals_name_the_setting(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Sampling(**given)
