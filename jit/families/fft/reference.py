"""Fourier transforms, defined with numpy: slow and obvious."""

from __future__ import annotations

import numpy as np

from ...evaluation import Array

QUARTERS = (1.0, -1j, -1.0, 1j)  # of a turn


def factors(length: int) -> list[int]:
    """Return the factors of `length` in the order of the stages: fours, a two, then odd primes, rising."""
    found, rest = [], max(length, 1)
    while rest > 1:
        found.append(next_factor(rest))
        rest //= found[-1]
    return found


def next_factor(rest: int) -> int:
    """Return the factor of the next stage, of the part `rest` > 1 of the length that is left."""
    for even in (4, 2):
        if rest % even == 0:
            return even
    odd = 3
    while rest % odd and odd * odd <= rest:
        odd += 2
    return odd if rest % odd == 0 else rest


def transform(x: Array, cosines: Array, sines: Array) -> Array:
    """Return the transforms of complex `x` along its axis 1, with the tables' numbers.

    Before a stage of factor p, `parts`[s, k] is the transform of the elements s, s + n, s + 2 n, ...; n is
    p * step. Quarters of turns are exact in stages of 2 and 4.
    """
    length = x.shape[1]
    turns = cosines - 1j * sines
    parts = x[:, :, None]
    for p in factors(length):
        step, done = parts.shape[1] // p, parts.shape[2]
        made = np.zeros((len(x), step, p * done, *x.shape[2:]), complex)
        for k, r in np.ndindex(p * done, p):
            turn = turns[r * (k % done if p % 2 == 0 else k) * step % length] if r else 1.0
            quarter = QUARTERS[4 // p * r * (k // done) % 4] if p % 2 == 0 else 1.0
            made[:, :, k] += parts[:, r * step : (r + 1) * step, k % done] * turn * quarter
        parts = made
    return parts.reshape(x.shape)
