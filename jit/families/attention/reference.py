"""The bounds of segments, defined with numpy: slow and obvious."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...evaluation import Array


def segment_bounds(offsets: Array, tokens: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yield the first token and the length of each segment between `offsets`, whatever these hold."""
    bounds = np.clip(np.maximum.accumulate(offsets), 0, tokens)
    for first, after in zip(bounds[:-1], bounds[1:], strict=True):
        yield int(first), min(int(after - first), longest)
