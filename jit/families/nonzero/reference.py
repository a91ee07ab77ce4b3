"""The indices where a mask holds, defined with numpy: slow and obvious. f16 and bf16 come as float32."""

from __future__ import annotations

import numpy as np

from ...evaluation import Array


def nonzero(mask: Array, count: int) -> Array:
    """Return the first `count` indices of true elements of `mask`, in order, then -1."""
    found = np.flatnonzero(mask)[:count]
    return np.concatenate([found, np.full(count - len(found), -1)]).astype(np.int64)
