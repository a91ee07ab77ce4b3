"""What convolutions that are no matmul of patches share: a matmul's epilogue over the pixels of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...llvm.function import Function, Int
from ..matmul.matmul import _Matmul
from ..matmul.microkernel import Schedule
from .spec import Conv, Window

AXES = 2  # of an image, at most


class OverPixels(_Matmul):
    """The state of one emission whose rows come from `spec`'s window; of a matmul it has columns and
    epilogue."""

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule) -> None:
        self.conv = spec
        self.stride: Int = 0  # A has no rows in memory
        super().__init__(f, spec, sizes, schedule)
        self.row_loops = [*self.batch, self.m]

    def _lhs(self, sizes: Sequence[Int]) -> Self:  # type: ignore[override]
        return self

    def loops_at(self, pixel: Int) -> list[Int]:
        """Return the value of each batch loop and of m for output pixel number `pixel`."""
        f = self.f
        found: list[Int] = []
        for size in self.row_loops[:0:-1]:
            found.append(f.urem(pixel, size))
            pixel = f.udiv(pixel, size)
        return [pixel, *found[::-1]]


def two(sides: Sequence[Int]) -> tuple[Int, Int]:
    """Return the sizes of an image of AXES axes, one of fewer being a single line."""
    return (sides[0], sides[1]) if len(sides) == AXES else (1, sides[0])


def flat(window: Window) -> Window:
    """Return the window over two axes of one over fewer."""
    more = AXES - len(window.kernel)
    one, none = (1,) * more, (0,) * more
    return Window(
        (*one, *window.out), (*one, *window.kernel), (*one, *window.stride), (*one, *window.dilation),
        (*one, *window.expansion), (*none, *window.low), window.groups,
    )  # fmt: skip
