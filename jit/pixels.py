"""What convolutions that are no matmul of patches share: a matmul's epilogue over the pixels of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from .llvm import Function, Int
from .matmul import _Matmul
from .microkernel import Schedule
from .spec import Conv


class OverPixels(_Matmul):
    """The state of one emission whose rows come from `spec`'s window; of a matmul it has columns and
    epilogue."""

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule) -> None:
        self.conv = spec
        self.stride: Int = 0  # A has no rows in memory
        super().__init__(f, spec, sizes, schedule)
        self.row_loops = [*self.batch, self.m]

    def _left(self, sizes: Sequence[Int]) -> Self:  # type: ignore[override]
        return self

    def loops_at(self, pixel: Int) -> list[Int]:
        """Return the value of each batch loop and of m for output pixel number `pixel`."""
        f = self.f
        found: list[Int] = []
        for size in self.row_loops[:0:-1]:
            found.append(f.urem(pixel, size))
            pixel = f.udiv(pixel, size)
        return [pixel, *found[::-1]]
