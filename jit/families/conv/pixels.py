"""A convolution's image and outputs with resolved sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.abi import resolve
from ...llvm.function import Function, Int
from ..matmul.layouts import layout_of
from .spec import Conv, Window

AXES = 2  # at most, of an image


class Sides(NamedTuple):
    """Lines of an image and pixels of a line, and those of its outputs."""

    height: Int
    across: Int
    down: Int
    along: Int


@dataclass(frozen=True)
class Geometry:
    """`n_images` images of `extent` pixels and `channels`, `width` of them in a group; `out` pixels of
    outputs each. All outputs together are the rows of a product, `batch` x `m`. Narrow channels count in
    units of a step."""

    window: Window
    n_images: Int
    extent: Sequence[Int]
    channels: Int
    width: Int
    out: Sequence[Int]
    batch: Sequence[Int]
    m: Int

    @property
    def sides(self) -> Sides:
        """The sides of an image and its outputs, of at most AXES axes."""
        return Sides(*_two(self.extent), *_two(self.out))

    def row(self, f: Function, batch: Sequence[Int], m: Int) -> Int:
        """Return the number of a row among all rows."""
        return f.add(f.mul(f.ravel(batch, self.batch), self.m), m)

    def loops_at(self, f: Function, row: Int) -> list[Int]:
        """Return the value of each batch loop and of m for a row's number."""
        return f.unravel(row, [*self.batch, self.m][1:])


def geometry_of(f: Function, spec: Conv, sizes: Sequence[Int]) -> Geometry:
    """Return the geometry of `spec`; call in the entry block."""
    given = spec.product
    n_images, *extent = (resolve(size, sizes) for size in spec.buffers[given.a].shape)
    channels = extent.pop(0 if spec.planes else -1)
    channels = f.udiv(channels, layout_of(spec).together)
    width = f.udiv(channels, spec.window.groups)
    out = [resolve(size, sizes) for size in spec.window.out]
    batch = [resolve(size, sizes) for size in given.batch]
    return Geometry(spec.window, n_images, extent, channels, width, out, batch, resolve(given.m, sizes))


def _two(sides: Sequence[Int]) -> tuple[Int, Int]:
    """Return the sizes of an image of AXES axes; one of fewer is a single line."""
    return (sides[0], sides[1]) if len(sides) == AXES else (1, sides[0])


def flat(window: Window) -> Window:
    """Return the window over two axes of one over fewer."""
    more = AXES - len(window.kernel)
    one, none = (1,) * more, (0,) * more
    return Window(
        (*one, *window.out), (*one, *window.kernel), (*one, *window.stride), (*one, *window.dilation),
        (*one, *window.expansion), (*none, *window.low), window.groups,
    )  # fmt: skip
