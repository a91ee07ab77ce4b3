"""Non-maximum suppression, defined with numpy: slow and obvious.

As in torchvision's C++ operator, a maximum or minimum with a NaN is its first argument, and a NaN quotient
suppresses nothing.
"""

from __future__ import annotations

import numpy as np

from ...evaluation import Array


def nms(corners: Array, threshold: float) -> Array:
    """Return which boxes stay; `corners` [4, count], the best box first."""
    x1, y1, x2, y2 = corners[0], corners[1], corners[2], corners[3]
    kept = np.ones(corners.shape[1], bool)
    with np.errstate(all="ignore"):
        areas = (x2 - x1) * (y2 - y1)
        for i in range(len(kept)):
            if kept[i]:
                rest = slice(i + 1, None)
                width = _size(x1[i], x1[rest], x2[i], x2[rest])
                height = _size(y1[i], y1[rest], y2[i], y2[rest])
                common = width * height
                quotient = common / (areas[i] + areas[rest] - common)
                kept[rest] &= ~(quotient.astype(np.float64) > threshold)
    return kept


def _size(low: Array, lows: Array, high: Array, highs: Array) -> Array:
    """Return the overlap of [low, high] with each of [lows, highs], at least 0."""
    size: Array = np.where(highs < high, highs, high)
    size = size - np.where(low < lows, lows, low)
    return np.where(size > 0, size, size.dtype.type(0))
