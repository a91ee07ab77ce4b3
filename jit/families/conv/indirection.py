"""A convolution's rows of A read in place in the image: pieces of a pixel's channels, one for each tap.

A table in scratch holds the address of each piece of a block of rows, or that of zeros for a tap outside of
the image; micro-kernels read A through it (`Strides.taps`). So the image is not copied, and a row tile may
continue from one line of outputs, or image, into the next. k runs over taps and channels as in patches: the
bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...llvm.constant_pool import FromSize
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES
from ...spec import Terms
from ..matmul.arithmetic import VECTOR
from ..matmul.problem import uses_tiles
from ..matmul.strides import Strides, Taps
from .pixels import Geometry
from .spec import Conv, Window

MAX_TAPS = 64  # of a table
ADDRESSES = 8  # in one store of the table
WIDE, _BITS = f"<{ADDRESSES} x i64>", f"<{ADDRESSES} x i1>"


def fits_indirection(f: Function, spec: Conv) -> bool:
    """Whether a kernel's rows are read in the image, which must not be expanded. AMX tiles need whole
    rows."""
    has_tiles = f.has_tiles and uses_tiles(spec)
    window, channels = spec.window, spec.buffers[spec.product.a].shape[-1]
    has_pieces = isinstance(channels, int) and channels >= window.groups
    is_plain = set(window.expansion) == {1} and prod(window.kernel) <= MAX_TAPS
    return has_pieces and is_plain and not has_tiles


class Indirection:
    """The addresses of a block of at most `block` rows, in scratch at `place`. Construct it in the entry
    block."""

    stride: Int = 0  # rows are at addresses
    has_whole_groups = False

    def __init__(self, f: Function, geometry: Geometry, image: Value, place: Value, block: int) -> None:
        self.f, self.geometry, self.image = f, geometry, image
        self.apart = block + ADDRESSES  # whole vectors are stored
        self.zeros = place
        self.table = f.at(place, "float", self.n_zeros)
        self.addresses_apart = self._lanes(4 * self.window.stride[-1] * self.channels)

    @property
    def window(self) -> Window:
        """The layout of the rows in the image."""
        return self.geometry.window

    @property
    def channels(self) -> int:
        """How many channels the image has."""
        assert isinstance(self.geometry.channels, int)
        return self.geometry.channels

    @property
    def width(self) -> int:
        """How many channels a row has of each tap."""
        assert isinstance(self.geometry.width, int)
        return self.geometry.width

    @property
    def taps(self) -> int:
        """How many elements of the image a row has of each channel."""
        return prod(self.window.kernel)

    @property
    def n_zeros(self) -> int:
        """How many zeros stand for what lies outside of the image: whole vectors."""
        return -(-self.width // LANES) * LANES

    def scratch(self) -> Terms:
        """Return the scratch (see `CodeObject`) of zeros and addresses."""
        return ((4 * self.n_zeros + 8 * self.taps * self.apart, ()),)

    def clear(self) -> None:
        """Emit the zeros."""
        f = self.f
        with f.loop(0, self.n_zeros, LANES) as place:
            f.store(Value(VECTOR, "zeroinitializer"), f.at(self.zeros, "float", place.index), align=4)

    def of(self, strides: Strides) -> Strides:
        """Return the strides of a micro-kernel that reads A here."""
        return replace(strides, lda=0, k=self.width, taps=Taps(self.taps, self.apart))

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the table of the block, whose first row is `m0`."""
        return self.table

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the addresses of `rows` rows from `m0` on, line by line; `outer`: the group and the batch
        loops."""
        f, geometry = self.f, self.geometry
        group, *batch = outer
        first = geometry.row(f, batch, m0)
        end, length = f.add(first, rows), geometry.out[-1]
        source = f.at(self.image, "float", f.mul(group, self.width))
        with f.loop(f.udiv(first, length), f.udiv(f.add(end, f.sub(length, 1)), length)) as line:
            start = f.mul(line.index, length)
            begin = f.maximum(f.sub(first, start), 0)
            there = f.at(self.table, "i64", f.sub(f.add(start, begin), first))
            columns = (begin, f.minimum(f.sub(end, start), length))
            image, *position = f.unravel(line.index, geometry.out[:-1])
            inside = self._inside(image, geometry.n_images)
            self._axis(position, columns, source, there, image, inside)

    def _axis(
        self, position: Sequence[Int], columns: tuple[Int, Int], source: Value, to: Value, before: Int,
        inside: Value,
    ) -> None:  # fmt: skip
        """Emit the addresses under the taps of an axis and those after it.

        `position`: on the remaining axes but the last, whose range is `columns`; `before`: the image's
        row-major position over the axes so far; `inside`: it is within the image; `to`: the destination of
        the addresses.
        """
        f, window = self.f, self.window
        axis = len(window.kernel) - 1 - len(position)
        if not position:
            self._line(columns, source, to, f.mul(before, self.geometry.extent[-1]), inside)
            return
        start = f.sub(f.mul(position[0], window.stride[axis]), window.low[axis])
        step = prod(window.kernel[axis + 1 :]) * self.apart
        with f.loop(0, window.kernel[axis]) as tap:
            place = f.add(start, f.mul(tap.index, window.dilation[axis]))
            here = self._inside(place, self.geometry.extent[axis])
            both = f.op("i1", f"and i1 {inside.name}, {here.name}")
            there = f.add(f.mul(before, self.geometry.extent[axis]), place)
            self._axis(position[1:], columns, source, f.at(to, "i64", f.mul(tap.index, step)), there, both)

    def _line(self, columns: tuple[Int, Int], source: Value, to: Value, line: Int, inside: Value) -> None:
        """Emit the addresses under the taps of the last axis, in the image's line that begins at pixel
        `line`."""
        f, window = self.f, self.window
        stride, begin = window.stride[-1], columns[0]
        with f.loop(0, window.kernel[-1]) as tap, f.loop(*columns, ADDRESSES, nonempty=True) as x:
            start = f.sub(f.mul(x.index, stride), window.low[-1])
            place = f.add(start, f.mul(tap.index, window.dilation[-1]))
            pixel = f"getelementptr float, ptr {source.name}, i64 "
            address = f.op("ptr", pixel + f.i64(f.mul(f.add(line, place), self.channels)).name)
            number = f.op("i64", f"ptrtoint ptr {address.name} to i64")
            places = self._spread(f.i64(place), self._lanes(stride))
            addresses = self._spread(number, self.addresses_apart)
            extent = f.splat(f.i64(f.select(inside, self.geometry.extent[-1], 0)), ADDRESSES)
            there = f.op(_BITS, f"icmp ult {WIDE} {places.name}, {extent.name}")
            zeros = f.splat(f.op("i64", f"ptrtoint ptr {self.zeros.name} to i64"), ADDRESSES)
            chosen = f.op(WIDE, f"select {_BITS} {there.name}, {WIDE} {addresses.name}, {WIDE} {zeros.name}")
            row = f.add(f.mul(tap.index, self.apart), f.sub(x.index, begin))
            f.store(chosen, f.at(to, "i64", row), align=8)

    def _lanes(self, step: int) -> Value:
        """Return the vector of 0, `step`, ...: computed if the step is a number of the kernel's table."""
        f = self.f
        is_written = not isinstance(step, FromSize)
        numbers = ", ".join(f"i64 {lane * step if is_written else lane}" for lane in range(ADDRESSES))
        if is_written:
            return Value(WIDE, f"<{numbers}>")
        return f.op(WIDE, f"mul {WIDE} {f.splat(f.i64(step), ADDRESSES).name}, <{numbers}>")

    def _spread(self, first: Value, lanes: Value) -> Value:
        """Return `first` plus those of `lanes`."""
        return self.f.op(WIDE, f"add {WIDE} {self.f.splat(first, ADDRESSES).name}, {lanes.name}")

    def _inside(self, place: Int, size: Int) -> Value:
        f = self.f
        return f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(size).name}")
