"""What a RoiAlign computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Unknown


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
