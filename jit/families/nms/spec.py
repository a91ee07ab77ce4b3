"""What an Nms computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...spec import KernelSpec, Size, Unknown


@dataclass(frozen=True)
class Nms(KernelSpec[Unknown]):
    """Which boxes non-maximum suppression keeps, of boxes that come best first: those whose intersection over
    union with each box kept before them is at most the threshold.

    Buffers: corners [4, count] (x1, y1, x2, y2; f32 or f64), the threshold [1] (f64), kept [count] (bool).
    """

    family: ClassVar[str] = "nms"
    count: Size[Unknown]
