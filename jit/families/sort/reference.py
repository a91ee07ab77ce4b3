"""Stable sorting, defined with numpy: slow and obvious. f16 and bf16 come as float32."""

from __future__ import annotations

import numpy as np

from ...evaluation import Array


def sort(x: Array, keep: int, descending: bool) -> tuple[Array, Array]:
    """Return the first `keep` elements of every row (the last axis) in a stable order, and their places.

    A NaN is above all others, -0 equals 0.
    """
    _, ranks = np.unique(x, return_inverse=True)  # NaN, the last, is one value
    ranks = ranks.reshape(x.shape).astype(np.int64)
    places = np.argsort(-ranks if descending else ranks, axis=-1, kind="stable")[..., :keep]
    return np.take_along_axis(x, places, -1), places.astype(np.int64)
