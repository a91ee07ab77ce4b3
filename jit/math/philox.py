"""Philox 4x32-10 (Salmon et al., Parallel Random Numbers, 2011): random bits of a counter and a key."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..llvm.vector import Vec

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_LOW = 0xFFFFFFFF


def philox(counter: Vec, key: Vec) -> Vec:
    """The first two words of the block of `counter` under `key`, the first one low; all are i64."""
    words = [counter & _LOW, counter.binary("lshr", 32), counter.like(0), counter.like(0)]
    keys = [key & _LOW, key.binary("lshr", 32)]
    for _ in range(ROUNDS):
        first, second = words[0] * MULTIPLIERS[0], words[2] * MULTIPLIERS[1]
        words = [
            second.binary("lshr", 32) ^ words[1] ^ keys[0],
            second & _LOW,
            first.binary("lshr", 32) ^ words[3] ^ keys[1],
            first & _LOW,
        ]
        keys = [(k + step) & _LOW for k, step in zip(keys, KEY_STEPS, strict=True)]
    return words[0] | words[1] << 32


def reference(counter: Any, key: Any) -> Any:
    """The same on numpy arrays of i64."""
    low, shift = np.uint64(_LOW), np.uint64(32)
    counter, key = np.asarray(counter, np.int64).view(np.uint64), np.asarray(key, np.int64).view(np.uint64)
    zero = np.zeros_like(counter)
    words, keys = [counter & low, counter >> shift, zero, zero], [key & low, key >> shift]
    for _ in range(ROUNDS):
        first, second = (words[i] * np.uint64(m) for i, m in zip((0, 2), MULTIPLIERS, strict=True))
        words = [
            (second >> shift) ^ words[1] ^ keys[0],
            second & low,
            (first >> shift) ^ words[3] ^ keys[1],
            first & low,
        ]
        keys = [(k + np.uint64(step)) & low for k, step in zip(keys, KEY_STEPS, strict=True)]
    return (words[0] | words[1] << shift).view(np.int64)
