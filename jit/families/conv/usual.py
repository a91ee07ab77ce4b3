"""Convolutions whose parts most such networks need: compiled before it is known what a model needs."""

from __future__ import annotations

from ...spec import Buffer, Dim, Index, Instr
from ..matmul.schedules import PANEL
from ..matmul.spec import MatrixProduct
from .spec import Conv, Window
from .winograd_points import LAYOUT, TAPS

CHANNELS = (64, 128)  # sums in one chain, and in several


def usual_convs() -> list[Conv[Dim]]:
    """Return convolutions of 3 x 3 taps at stride 1 of any images with constant weights, by channels."""
    return [_conv(channels) for channels in CHANNELS]


def _conv(channels: int) -> Conv[Dim]:
    images, side, rows = Dim(0), Dim(1), Dim(2)
    steps = TAPS * TAPS * channels
    buffers = (
        Buffer("f32", (images, side, side, channels)),
        Buffer("f32", (channels // PANEL, steps, PANEL)),
        Buffer("f32", (rows, channels), True),
    )
    place = (Index(loop=0), Index(loop=1))
    epilogue = (Instr("acc", "f32"), Instr("store", "f32", (0,), buffer=2, index=place))
    product = MatrixProduct((), rows, channels, steps, 0, (), 1, (), LAYOUT, epilogue)
    one = (1, 1)
    return Conv(3, buffers, product, Window((side, side), (TAPS, TAPS), one, one, one, one))
