"""The patches of a Conv's images in numpy, as `jit.families.conv.patches` copies them into scratch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..matmul.layouts import Layout
from .spec import Window


def patches(window: Window, out: Sequence[int], image: np.ndarray) -> np.ndarray:
    """Return the patches [groups, rows, taps * channels of a group] of `image` [N, X.., C]; `out`: the values
    of the window's output sizes."""
    channels = image.shape[-1] // window.groups
    taps = [_tap(window, out, image, tap) for tap in np.ndindex(*window.kernel)]
    n_rows = image.shape[0] * int(np.prod(out))
    rows = np.stack(taps, -2).reshape(n_rows, len(taps), window.groups, channels)
    return rows.transpose(2, 0, 1, 3).reshape(window.groups, n_rows, len(taps) * channels)


def _tap(window: Window, out: Sequence[int], image: np.ndarray, tap: Sequence[int]) -> np.ndarray:
    """Return the element under one tap for every output position [N, out.., C], 0 outside."""
    result = image
    for axis, t in enumerate(tap, 1):
        i = axis - 1
        at = np.arange(out[i]) * window.stride[i] + t * window.dilation[i] - window.low[i]
        place, rest = np.divmod(at, window.expansion[i])
        inside = (rest == 0) & (place >= 0) & (place < image.shape[axis])
        shape = (*result.shape[:axis], len(at), *result.shape[axis + 1 :])
        moved = np.zeros(shape, image.dtype)
        before = (slice(None),) * axis
        moved[(*before, inside)] = result[(*before, place[inside])]
        result = moved
    return result


def group_columns(weights: np.ndarray, layout: Layout, groups: int, k: int, n: int) -> np.ndarray:
    """Return the weights [groups, k, n] of a conv's B, `n` columns a group."""
    if layout.in_place:
        return weights.reshape(k, groups, n).transpose(1, 0, 2)
    return np.stack([layout.unpack(part, k, n) for part in np.split(weights, groups)])
