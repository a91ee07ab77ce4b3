"""The spec of RoiAlign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, KernelSpec, Unknown, whole


@dataclass(frozen=True)
class RoiAlign(KernelSpec[Unknown]):
    """Regions of images, divided into bins; a bin is the mean of its samples, each interpolated between the
    four pixels around it.

    Buffers: images [batch, height, width, channels], regions [count, 5] (an image's number, then x1, y1, x2,
    y2, times `scale` in pixels), bins [count, rows, columns, channels], all f32 or all f64. A bin has
    `samples` samples along each axis, with 0 as many as pixels, rounded up. `aligned`: a pixel's centre
    is at half its size.
    """

    family: ClassVar[str] = "roi_align"
    scale: float
    samples: int
    aligned: bool


class Accesses(NamedTuple):
    """A kernel's accesses."""

    images: BufferAccess
    regions: BufferAccess
    bins: BufferAccess


def accesses(spec: RoiAlign) -> Accesses:
    """Return a kernel's accesses; positions in the images are clamped."""
    images = whole(spec, 0, ("f32", "f64"))
    dtypes = (spec.buffers[0].dtype,)
    return Accesses(images, whole(spec, 1, dtypes), whole(spec, 2, dtypes, is_written=True))
