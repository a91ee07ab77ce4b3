"""The spec of Fft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...spec import BufferAccess, Index, KernelSpec, Size, Unknown, at_loops

TABLES = 2  # the buffers before the data
DTYPES = ("f32", "f64")


@dataclass(frozen=True)
class Fft(KernelSpec[Unknown]):
    """The discrete Fourier transforms along the middle axis of [outer, length, columns], of which the first
    `kept` elements are written.

    Buffers: cos(2 pi i / length) and sin(2 pi i / length), [1, length, 1] of f64; the real parts and, unless
    all are 0, the imaginary parts, [outer, length, columns]; the results' real parts and, if they are needed,
    imaginary parts, [outer, kept, columns].
    """

    family: ClassVar[str] = "fft"
    outer: Size[Unknown]
    length: Size[Unknown]
    columns: Size[Unknown]
    kept: Size[Unknown]


def accesses(spec: Fft) -> Iterator[BufferAccess]:
    """Yield a kernel's accesses, one for each buffer."""
    for number, buffer in enumerate(spec.buffers):
        if number < TABLES:
            index = (Index(), Index(loop=0), Index())
            yield BufferAccess(number, index, (spec.length,), ("f64",))
        else:
            length = spec.kept if buffer.is_output else spec.length
            loops = (spec.outer, length, spec.columns)
            yield at_loops(number, loops, (spec.buffers[TABLES].dtype,), buffer.is_output)
