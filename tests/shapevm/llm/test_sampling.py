"""Sampling against definitions in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.sampling import Sampling, choose

LOGITS = np.array([1.0, 4.0, 2.0, 3.5, -1.0, 3.0], np.float32)


def _drawn(how: dict[str, Any], n: int = 4000) -> np.ndarray[Any, Any]:
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
    np.testing.assert_allclose(_drawn(how), _shares(kept), atol=0.03)
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
