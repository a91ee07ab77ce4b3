"""The next token of a sequence from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..vm.errors import ArgumentError


@dataclass(frozen=True)
class Sampling:
    """How a sequence goes on.

    Args:
        max_new_tokens: The most tokens that are added.
        temperature: Divides the logits; 0: the greatest logit's token.
        top_k: How many of the most probable tokens remain; 0: all.
        top_p: The most probable tokens remain whose probabilities reach this share together.
        min_p: Tokens remain whose probability is at least this share of the greatest one.
        repetition_penalty: Lowers the logits of tokens that are in the sequence: positive ones are divided by
            it, negative ones multiplied.
        seed: With the position of a token in its sequence it determines the random number.
        stop_tokens: Tokens that end the sequence; they are not returned.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop_tokens: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for each in fields(self)[:-1]:
            value, (is_whole, low, high) = getattr(self, each.name), _BOUNDS[each.name]
            kinds: Any = int if is_whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                kind = "a whole number" if is_whole else "a number"
                raise ArgumentError(f"{each.name} is {value!r:.40}; it must be {kind} from {low} to {high}")


#: Whether a field is a whole number, its least and its greatest value.
_BOUNDS = {
    "max_new_tokens": (True, 0, 1 << 24), "temperature": (False, 0, 1e4), "top_k": (True, 0, 1 << 31),
    "top_p": (False, 0, 1), "min_p": (False, 0, 1), "repetition_penalty": (False, 1e-4, 1e4),
    "seed": (True, 0, (1 << 64) - 1),
}  # fmt: skip


def choose(logits: np.ndarray[Any, Any], how: Sampling, tokens: Sequence[int]) -> int:
    """Return the token after `tokens`, given its logits f32[vocabulary]. The result depends on these
    arguments only."""
    if how.repetition_penalty != 1:
        seen = np.unique(np.asarray(tokens, np.int64))
        values, penalty = logits[seen], np.float32(how.repetition_penalty)
        logits = logits.copy()
        logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    if how.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / how.temperature
    order = np.argsort(-scaled, kind="stable")[: how.top_k or None]
    shares = np.exp(scaled[order] - scaled[order[0]])
    shares /= shares.sum()
    sums = np.cumsum(shares)
    kept = (sums - shares < how.top_p) & (shares >= how.min_p * shares[0])
    kept[0] = True
    sums = np.cumsum(np.where(kept, shares, 0))
    index = int(np.searchsorted(sums, _uniform(how.seed, len(tokens)) * sums[-1], side="right"))
    return int(order[min(index, int(np.flatnonzero(kept)[-1]))])


def _uniform(seed: int, position: int) -> float:
    """Return a number from 0 to 1, without 1, of a position of the sequences with a seed."""
    bits = np.random.Philox(key=seed, counter=position).random_raw()
    return float(int(bits) >> 11) * 2.0**-53
