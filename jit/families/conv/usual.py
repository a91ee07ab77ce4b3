"""Usual convolutions, for speculative compilation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ...loops.bodies import LANES
from ...spec import Buffer, Dim
from ..matmul.layouts import WINOGRAD
from ..matmul.schedules import PANEL
from ..matmul.spec import MatrixProduct
from ..matmul.usual import with_ending
from .planes import is_fit
from .spec import Conv, Window
from .winograd_points import TAPS

Pair = tuple[int, int]


class Layer(NamedTuple):
    """A dense convolution of images, from its module. `padding`: at each side."""

    channels: int
    columns: int
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def is_product(self) -> bool:
        """Whether its rows are the pixels in place."""
        return self.kernel == self.stride == (1, 1)

    @property
    def is_shortcut(self) -> bool:
        """Whether it reduces images for the next stage of a network: fewer pixels, more channels."""
        return self.kernel == (1, 1) != self.stride and self.columns > self.channels


def usual_conv(layer: Layer, ending: Sequence[str] = ()) -> Conv[Dim]:
    """Return a layer with a constant weight for any number of square images of any side, as it is lowered.
    `ending`: see `matmul.usual.with_ending`."""
    channels, columns, kernel, stride, low = layer
    images, side, rows = Dim(0), Dim(1), Dim(2)
    keeps_side = stride == (1, 1) and all(2 * p == k - 1 for p, k in zip(low, kernel, strict=True))
    out, one = side if keeps_side else Dim(3), (1, 1)
    axes = {"kernel": kernel, "stride": stride, "dilation": one, "expansion": one}
    planes = is_fit(channels, axes, 1)
    is_winograd = kernel == (TAPS, TAPS) and stride == one and channels % LANES == 0
    steps = prod(kernel) * channels
    image = (images, channels, side, side) if planes else (images, side, side, channels)
    operands = Buffer("f32", image), Buffer("f32", (-(-columns // PANEL), steps, PANEL))
    buffers, epilogue = with_ending(operands, rows, columns, ending)
    layout = WINOGRAD if is_winograd and not planes else "panels"
    product = MatrixProduct((), rows, columns, steps, 0, (), 1, (), layout, epilogue)
    window = Window((out, out), kernel, stride, one, one, low)
    return Conv(3 if keeps_side else 4, buffers, product, window, planes)
