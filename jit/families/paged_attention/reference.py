"""Attention to pages, defined with numpy: slow and obvious, one token and head after the other, in f64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...evaluation import Array
from .spec import PAGE


class Rule(NamedTuple):
    """Which positions a token sees, and how products become scores; see `PagedAttention`."""

    scale: float
    window: int
    soft_cap: float


class Cache(NamedTuple):
    """The keys and values of all sequences, where each sequence's are, and the scales of integers."""

    keys: Array
    values: Array
    table: Array
    lengths: Array
    scales: Array | None = None

    def at(self, slots: Array) -> tuple[Array, Array]:
        """Return the keys and values at slots, in f64."""
        keys, values = (x[slots].astype(np.float64) for x in (self.keys, self.values))
        if self.scales is None:
            return keys, values
        scales = self.scales[slots].astype(np.float64)
        return keys * scales[..., :1], values * scales[..., 1:]

    def slots(self, sequence: int) -> Array:
        """Return the slots of a sequence's positions in their order."""
        pages, pool = self.table.shape[1], len(self.keys) // PAGE
        length = int(np.clip(self.lengths[sequence], 0, pages * PAGE)) if pool else 0
        positions = np.arange(length)
        numbers = np.clip(self.table[sequence, positions // PAGE].astype(np.int64), 0, pool - 1)
        return numbers * PAGE + positions % PAGE


def paged_attention(query: Array, cache: Cache, offsets: Array, rule: Rule) -> Array:
    """Return the result [tokens, heads, v_size] in f64."""
    tokens, heads, _ = query.shape
    out = np.zeros((tokens, heads, cache.values.shape[2]))
    bounds = np.clip(np.maximum.accumulate(offsets), 0, tokens)
    for sequence in range(min(len(cache.lengths), len(bounds) - 1)):
        first, after = bounds[sequence : sequence + 2]
        slots = cache.slots(sequence)
        for token in range(first, after):
            end = len(slots) - (after - token) + 1
            begin = max(end - rule.window, 0) if rule.window else 0
            if begin < end:
                seen = slots[begin:end]
                out[token] = _attend(query[token], *cache.at(seen), rule)
    return out


def _attend(query: Array, keys: Array, values: Array, rule: Rule) -> Array:
    """Return the result [heads, v_size] of a token that sees `keys` and `values`."""
    group = len(query) // keys.shape[1]
    keys, values = (np.repeat(x, group, axis=1) for x in (keys, values))
    with np.errstate(all="ignore"):
        scores = np.einsum("hd,jhd->jh", query.astype(np.float64), keys) * rule.scale
        if rule.soft_cap:
            scores = np.tanh(scores / rule.soft_cap) * rule.soft_cap
        top = np.max(scores, axis=0)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = np.sum(weights, axis=0)
        sums = np.einsum("jh,jhd->hd", weights, values)
        return np.where(total[:, None] == 0, 0, sums / total[:, None])
