"""Updates at indices, defined with numpy: slow and obvious. f16 and bf16 come as float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...evaluation import Array
from ...math.table import OPS
from .spec import SCATTER_MODES


def same(values: Array) -> Array:
    """Return `values` unchanged."""
    return values


def scatter(
    base: Array, index: Array, source: Array, axis: int, mode: str, rounded: Callable[[Array], Array] = same
) -> Array:
    """Return `base` after out[.., index, ..] = combine(out[.., index, ..], source), along `axis`.

    `index` and `source` have one shape, at most base's along the other axes. `rounded` rounds the result of
    an update. Raises IndexError for an index out of range.
    """
    out, size = np.array(base), base.shape[axis]
    wrong = index[(index < 0) | (index >= size)]
    if wrong.size:
        raise IndexError(f"index {wrong[0]} is out of range for a dimension of size {size}")
    part = out[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(index.shape))]
    for i in range(index.shape[axis] if index.size else 0):
        place, new = (np.take(x, [i], axis) for x in (index, source))
        if SCATTER_MODES[mode]:
            old = np.take_along_axis(part, place, axis)
            new = rounded(OPS[SCATTER_MODES[mode]].reference(old, new))
        np.put_along_axis(part, place, new, axis)
    return out
