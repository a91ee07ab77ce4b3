"""The patches of a Conv's images in numpy: what `jit.families.conv.patches` copies into scratch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..matmul.problem import TOGETHER
from .spec import Window
from .winograd_points import LAYOUT, TAPS


def patches(window: Window, out: Sequence[int], image: np.ndarray) -> np.ndarray:
    """Return the patches [groups, rows, taps * channels of a group] of `image` [N, X.., C]; `out`: the values
    of the window's output sizes."""
    channels = image.shape[-1] // window.groups
    taps = [_tap(window, out, image, tap) for tap in np.ndindex(*window.kernel)]
    n_rows = image.shape[0] * int(np.prod(out))
    rows = np.stack(taps, -2).reshape(n_rows, len(taps), window.groups, channels)
    return rows.transpose(2, 0, 1, 3).reshape(window.groups, n_rows, len(taps) * channels)


def _tap(window: Window, out: Sequence[int], image: np.ndarray, tap: Sequence[int]) -> np.ndarray:
    """Return the element of every output position [N, out.., C] that lies under one tap, 0 outside."""
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


def group_columns(weights: np.ndarray, layout: str, groups: int, n: int) -> np.ndarray:
    """Return the weights [groups, k, n] of a conv's B, `n` columns a group."""
    if layout == LAYOUT:
        columns = group_columns(weights, "panels", 1, n)
        by_tap = columns.reshape(-1, TAPS * TAPS, n).transpose(1, 0, 2)
        return by_tap.reshape(columns.shape)
    if layout == "rows":
        return weights.reshape(len(weights), groups, n).transpose(1, 0, 2)
    if layout in TOGETHER:
        n_panels, steps, width, each = weights.shape
        weights = weights.swapaxes(2, 3).reshape(n_panels, steps * each, width)
    panels, k, width = weights.shape
    columns = weights.reshape(groups, panels // groups, k, width).transpose(0, 2, 1, 3)
    return columns.reshape(groups, k, panels // groups * width)[:, :, :n]
