"""Weights of small integers: values that a parameter may have instead of an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Quantised:
    """(integers - zeros) * scales, in f32: `integers` in i8, `scales` and `zeros` in f32. A scale and a zero
    point belong to a block of the integers: their axes divide the integers'. Without `zeros` they are 0.

    Products and embeddings read the integers; no copy in f32 is made of a large weight.
    """

    integers: Array
    scales: Array
    zeros: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.integers.shape

    @property
    def blocks(self) -> list[int]:
        """The elements along each axis that share a scale."""
        sizes = zip(self.shape, self.scales.shape, strict=True)
        return [size // count if count else 1 for size, count in sizes]

    def values(self) -> Array:
        """Return the values in f32."""
        numbers = self.integers.astype(np.float32)
        if self.zeros is not None:
            numbers -= self._spread(self.zeros)
        return numbers * self._spread(self.scales)

    def _spread(self, x: Array) -> Array:
        for axis, block in enumerate(self.blocks):
            x = np.repeat(x, block, axis)
        return x

    def transposed(self) -> Quantised:
        """Return a matrix with its axes exchanged."""
        return Quantised(self.integers.T, self.scales.T, None if self.zeros is None else self.zeros.T)

    def rows(self, begin: int, end: int) -> Quantised:
        """Return rows of a matrix, each of whose rows has its own scales."""
        part = slice(begin, end)
        zeros = None if self.zeros is None else self.zeros[part]
        return Quantised(self.integers[part], self.scales[part], zeros)
