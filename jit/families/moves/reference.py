"""The families that move elements to places which depend on data, defined with numpy: slow and obvious.

Arrays hold values as they are computed with: f16 and bf16 as float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...math.table import OPS
from ...spec import SCATTER_MODES

Array = Any  # np.ndarray, of any dtype


def same(values: Array) -> Array:
    """Return `values` as they are."""
    return values


def scatter(
    base: Array, index: Array, source: Array, axis: int, mode: str, rounded: Callable[[Array], Array] = same
) -> Array:
    """Return `base` after out[.., index, ..] = combine(out[.., index, ..], source), along `axis`.

    `index` and `source` have one shape, at most base's along the other axes. `rounded` rounds what an update
    gives. Raises IndexError for an index out of range.
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


def sort(x: Array, keep: int, descending: bool) -> tuple[Array, Array]:
    """Return the first `keep` elements of every row (the last axis) in a stable order, and their places.

    A NaN is above all others, -0 equals 0.
    """
    _, ranks = np.unique(x, return_inverse=True)  # NaN, the last, is one value
    ranks = ranks.reshape(x.shape).astype(np.int64)
    places = np.argsort(-ranks if descending else ranks, axis=-1, kind="stable")[..., :keep]
    return np.take_along_axis(x, places, -1), places.astype(np.int64)


def places(mask: Array, count: int) -> Array:
    """Return the first `count` places where `mask` holds, in order, then -1."""
    found = np.flatnonzero(mask)[:count]
    return np.concatenate([found, np.full(count - len(found), -1)]).astype(np.int64)


def search(rows: Array, values: Array, right: bool) -> Array:
    """Return how many elements of each row (going up) come before each of its values, or are equal to it."""
    result = np.zeros(values.shape, np.int64)
    for row, found, place in zip(
        np.broadcast_to(rows, (len(values), rows.shape[1])), values, result, strict=True
    ):
        known = ~np.isnan(found) if found.dtype.kind == "f" else np.ones(found.shape, bool)
        place[:] = np.where(known, np.searchsorted(row, found, "right" if right else "left"), len(row))
    return result
