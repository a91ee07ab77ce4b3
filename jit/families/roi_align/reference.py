"""Regions of images, defined with numpy: slow and obvious. Arithmetic is that of torchvision's C++ operator,
in its order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...evaluation import Array

#: More samples than this no axis of a bin has.
MAX_SAMPLES = 2**31 - 1


def roi_align(
    images: Array, regions: Array, bins: tuple[int, int], scale: float, samples: int, aligned: bool
) -> Array:
    """Return the bins [regions, rows, columns, channels] of `images` [batch, height, width, channels]."""
    out = np.zeros((len(regions), *bins, images.shape[3]), images.dtype)
    for region, made in zip(regions, out, strict=True):
        (y, height), (x, width) = (_span(region, axis, scale, aligned) for axis in (1, 0))
        steps = height / images.dtype.type(bins[0]), width / images.dtype.type(bins[1])
        counts = [samples or _whole(np.ceil(step)) for step in steps]
        for row, column in np.ndindex(*bins):
            starts = y + images.dtype.type(row) * steps[0], x + images.dtype.type(column) * steps[1]
            places = [
                [start + images.dtype.type(i + 0.5) * step / images.dtype.type(count) for i in range(count)]
                for start, step, count in zip(starts, steps, counts, strict=True)
            ]
            for at in ((a, c) for a in places[0] for c in places[1]):
                made[row, column] += _sample(images[int(region[0])], *at)
            made[row, column] /= images.dtype.type(max(counts[0] * counts[1], 1))
    return out


def _span(region: Array, axis: int, scale: float, aligned: bool) -> tuple[Any, Any]:
    """Return where a region starts along an axis (0: x, 1: y) and its size."""
    kind = region.dtype.type
    start, end = (region[1 + axis + 2 * i] * kind(scale) - kind(0.5 if aligned else 0) for i in (0, 1))
    size = end - start
    return start, size if aligned else max(size, kind(1))


def _whole(size: Any) -> int:
    return 0 if math.isnan(size) else int(min(max(size, 0), MAX_SAMPLES))


def _sample(image: Array, y: Any, x: Any) -> Any:
    """Return the channels at a place; 0 more than a pixel outside of the image."""
    kind, weights, places = image.dtype.type, [], []
    for at, size in ((y, image.shape[0]), (x, image.shape[1])):
        if not -1 <= at <= size:
            return kind(0)
        at = max(at, kind(0))
        low = min(int(at), size - 1)
        part = at - kind(low) if low < size - 1 else kind(0)
        places.append((low, min(low + 1, size - 1)))
        weights.append((kind(1) - part, part))
    total = kind(0)
    for i, j in np.ndindex(2, 2):
        total = total + weights[0][i] * weights[1][j] * image[places[0][i], places[1][j]]
    return total
