"""The spec of Conv."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Generic

from ...spec import Size, Unknown
from ..matmul.spec import ProductSpec


@dataclass(frozen=True)
class Window(Generic[Unknown]):
    """The layout of a convolution's rows in its image [N, X.., C], one entry per spatial axis.

    Row r of A belongs to image r // product(out) and, row-major, to position o of the axes `out`. Its k runs
    over the taps t of `kernel`, row-major, and the channels of a group within each: the element at position
    o * stride + t * dilation - low, or 0 outside. With `expansion` e > 1 the image's elements are e apart,
    with zeros between them (a transposed convolution). Columns n are of group n // (N / groups).
    """

    out: tuple[Size[Unknown], ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    expansion: tuple[int, ...]
    low: tuple[int, ...]
    groups: int = 1


@dataclass(frozen=True)
class Conv(ProductSpec[Unknown]):
    """A product whose A[.., i, k] is a patch of the image `buffers[a]` by `window`; `a_index` is ().

    The loops batch.., m together are the images and output positions, row-major; n the output channels, k
    taps and channels of one group. Each group's columns are packed separately (`matmul.layouts`). The layout
    "winograd" is for 3 x 3 taps, C in multiples of 16 and finite weights; the sums are those of Winograd's
    algorithm, unless images are small or have strides or dilations. `planes`: the image is [N, C, X..]
    instead, for few channels (`jit.families.conv.planes`).
    """

    family: ClassVar[str] = "conv"
    window: Window[Unknown]
    planes: bool = False

    @property
    def repeats_lhs(self) -> bool:
        """See `ProductSpec`."""
        window = self.window
        return set(window.expansion) == {1} and prod(window.kernel) > prod(window.stride)
