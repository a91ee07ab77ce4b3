"""A program in numpy with a decoder's interface: its logits depend on all tokens that its cache holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from shapevm.jit.math import philox

from shapevm.llm.engine import Engine, Limits
from shapevm.llm.pages import PAGE
from shapevm.llm.sampling import Sampling

VOCABULARY = 40


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
    key = np.array([seed], np.uint64).view(np.int64)
    (bits,) = philox.reference(np.array([position]), key)
    return float(int(bits) & (1 << 53) - 1) * 2.0**-53


def logits_of(tokens: list[int]) -> np.ndarray[Any, Any]:
    """Return logits that a hash of the tokens gives."""
    digest = hashlib.sha256(np.asarray(tokens, np.int64).tobytes()).digest()
    seed = int.from_bytes(digest[:8], "little")
    return np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32)


def expected(tokens: list[int], how: Sampling, length: int) -> list[int]:
    """Return the new tokens of a sequence alone."""
    tokens = list(tokens)
    made: list[int] = []
    while len(made) < how.max_new_tokens and len(tokens) < length:
        token = choose(logits_of(tokens), how, tokens)
        if token in how.stop_tokens:
            break
        made.append(token)
        tokens.append(token)
    return made


class Fake:
    """Keeps a token in each slot. `fail_at`: the call that raises; `before` gets each call's number."""

    def __init__(
        self, n_pages: int, fail_at: int = -1, before: Callable[[int], Any] = lambda number: None
    ) -> None:
        self.slots = np.full(n_pages * PAGE, -1)
        self.before = before
        self.fail_at, self.n_calls, self.n_tokens, self.widest = fail_at, 0, 0, 0

    def draw(self, logits: Any, how: Sampling, tokens: Sequence[int], mask: Any = None) -> int:
        return choose(logits, how, tokens)

    def compute(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        self.n_calls += 1
        self.before(self.n_calls)
        self.n_tokens += len(inputs["ids"])
        self.widest = max(self.widest, len(inputs["ids"]))
        if self.n_calls == self.fail_at:
            self.slots[:] = -1
            raise MemoryError("no memory")
        assert len(set(inputs["slots"])) == len(inputs["slots"])
        self.slots[inputs["slots"]] = inputs["ids"]
        logits = np.array([logits_of(self._context(inputs, i)) for i in range(len(inputs["lengths"]))])
        return logits, logits.argmax(-1)

    def _context(self, inputs: dict[str, Any], index: int) -> list[int]:
        """Return what a sequence's queries read."""
        positions = np.arange(inputs["lengths"][index])
        first, end = inputs["offsets"][index : index + 2]
        own = slice(first, end)
        assert inputs["last"][index] == end - 1
        assert (inputs["positions"][own] == positions[len(positions) - (end - first) :]).all()
        slots = inputs["table"][index][positions // PAGE] * PAGE + positions % PAGE
        assert (slots[len(positions) - (end - first) :] == inputs["slots"][own]).all()
        return [int(each) for each in self.slots[slots]]


def engine_of(fake: Fake, length: int = 200, max_tokens: int = 24, max_sequences: int = 6) -> Engine:
    """Return an engine of a fake program."""
    return Engine(fake, Limits(len(fake.slots) // PAGE, length, VOCABULARY, max_tokens, max_sequences))
