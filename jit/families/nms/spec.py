"""The spec of Nms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...spec import BufferAccess, KernelSpec, Size, Unknown, at_loops


@dataclass(frozen=True)
class Nms(KernelSpec[Unknown]):
    """Non-maximum suppression of boxes that come best first. It keeps those whose intersection over
    union with each box kept before them is at most the threshold.

    Buffers: corners [4, count] (x1, y1, x2, y2; f32 or f64), the threshold [1] (f64), kept [count] (bool).
    """

    family: ClassVar[str] = "nms"
    count: Size[Unknown]


class Accesses(NamedTuple):
    """A kernel's accesses."""

    corners: BufferAccess
    threshold: BufferAccess
    kept: BufferAccess


def accesses(spec: Nms) -> Accesses:
    """Return a kernel's accesses."""
    corners, kept = at_loops(0, (4, spec.count), ("f32", "f64")), at_loops(2, (spec.count,), ("bool",), True)
    return Accesses(corners, at_loops(1, (1,), ("f64",)), kept)
