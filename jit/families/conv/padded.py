"""A convolution's rows of A read by AMX tiles from a copy of the image's lines, with zeros around them.

Tiles read rows at equal distances. Adjacent outputs have such rows: under a tap, they are `stride` pixels
apart. So have the outputs of all lines together, if each line is followed by dummy outputs for its padding,
whose sums are dropped. A block of rows copies the lines that it needs once, whereas patches would copy each
pixel once for each tap. If a stride skips lines, those that are `stride` apart are stored together, in a
plane for each tap's remainder.

A table has the offset of each step's bytes from its row. Sizes must be known; images of other sizes use
patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES
from ...spec import Terms
from ..matmul.amx import GROUP
from ..matmul.amx_bytes import ROW_BYTES, STEP, Rows
from ..matmul.amx_bytes_tiles import Emit, TileRows
from ..matmul.epilogue import RowTile
from ..matmul.problem import Problem
from ..matmul.strides import Strides
from .patches import copy_or_zero
from .pixels import Geometry, flat
from .spec import Window

QUAD = 4  # bytes of a step of the product
MAX_WASTE = 1.3  # rows of tiles per real row
MIN_STEP = 6  # steps of the product in one of the tiles, which costs as much as 16


class Lines(NamedTuple):
    """Lines of outputs as rows of tiles: `along` outputs of a line and `pitch` with dummy ones; `down` lines
    of an image and `apart` with dummy ones. `more`: lines after one that a tap reads; all of it in bytes of
    `channels`."""

    along: int
    pitch: int
    down: int
    apart: int
    more: int
    channels: int
    height: int
    across: int

    @staticmethod
    def of(geometry: Geometry) -> Lines | None:
        """Return the lines of a convolution whose sizes are known; else None."""
        window, sides = flat(geometry.window), geometry.sides
        known = [size for size in (*sides, geometry.channels) if isinstance(size, int)]
        if len(known) != len(sides) + 1:
            return None
        height, across, down, along, channels = known
        reach = [(n - 1) * step for n, step in zip(window.kernel, window.dilation, strict=True)]
        more, wider = (r // s for r, s in zip(reach, window.stride, strict=True))
        return Lines(along, along + wider, down, down + more, more, QUAD * channels, height, across)

    def waste(self, n_images: int) -> float:
        """Return how many rows tiles read per real row."""
        lines = self.apart * n_images - (self.apart - self.down)
        return lines * self.pitch / (self.down * self.along * n_images)


def fits(geometry: Geometry, is_exact: bool) -> bool:
    """Whether rows are read this way. Inexact sums must keep the order of patches, with whole tiles."""
    window, lines = flat(geometry.window), Lines.of(geometry)
    if lines is None or window.groups > 1 or prod(window.kernel) == 1:
        return False
    if min(window.dilation) < 1 or min(window.low) < 0:
        return False
    if window.low[1] > lines.pitch * window.stride[1]:
        return False  # so much padding does not fit a line in scratch
    if not isinstance(geometry.n_images, int) or lines.waste(max(geometry.n_images, 1)) > MAX_WASTE:
        return False
    return set(window.expansion) == {1} and _step(window, lines) >= (MIN_STEP if is_exact else STEP)


def _run(window: Window, lines: Lines) -> int:
    """Return the contiguous bytes under a line of taps."""
    return lines.channels * (window.kernel[1] if window.dilation[1] == 1 else 1)


def _step(window: Window, lines: Lines) -> int:
    """Return the product's steps in one of the tiles: a divisor of the contiguous ones."""
    run = _run(window, lines) // QUAD
    return next(steps for steps in range(STEP, 0, -1) if run % steps == 0)


class Room(NamedTuple):
    """Bytes of scratch: of a line and of a plane of them; offsets of the table and the lines, after the sums;
    and the total."""

    line: int
    plane: int
    table: int
    lines: int
    total: int

    @staticmethod
    def of(window: Window, lines: Lines, block: int, steps: int) -> Room:
        """Return the room for blocks of `block` rows of `steps` steps of the tiles."""
        row = window.stride[1] * lines.channels
        there = -(-block // lines.along) + 1
        there += -(-there // lines.down) * (lines.apart - lines.down)  # and dummy ones
        plane = _rounded((there + lines.more + 1) * lines.pitch * row + LINE_BYTES)
        table = -(-there * lines.pitch // GROUP) * GROUP * ROW_BYTES
        first = table + _rounded(8 * steps)
        behind = GROUP * row + _run(window, lines)  # of dummy rows of a group
        return Room(lines.pitch * row, plane, table, first, first + window.stride[0] * plane + behind)


def _rounded(n_bytes: int) -> int:
    return -(-n_bytes // LINE_BYTES) * LINE_BYTES


class Padded(TileRows):
    """The lines of a block of rows, in scratch at `place`. Construct it in the entry block."""

    stride: Int = 0
    has_whole_groups = True

    def __init__(self, f: Function, problem: Problem, geometry: Geometry, image: Value, place: Value) -> None:
        super().__init__(f)
        window, lines = flat(geometry.window), Lines.of(geometry)
        assert lines is not None and isinstance(problem.k, int)
        self.geometry, self.window, self.lines, self.image = geometry, window, lines, image
        length = _step(window, lines)
        self.room = Room.of(window, lines, problem.block, problem.k // length)
        self.sums, self.start = place, f.at(place, "i8", self.room.lines)
        self.lie = Rows(window.stride[1] * lines.channels, 0, f.at(place, "i8", self.room.table), length)

    def scratch(self) -> Terms:
        """Return the scratch (see `CodeObject`) of sums, table and lines."""
        return ((self.room.total, ()),)

    def of(self, strides: Strides) -> Strides:
        """See `lhs.Lhs`: no micro-kernel reads these rows."""
        return replace(strides, lda=0)

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """See `lhs.Lhs`."""
        return self.start

    def _line_of(self, row: Int) -> Int:
        """Return the line, counting dummy ones, of a row."""
        f, lines = self.f, self.lines
        line = f.udiv(row, lines.along)
        return f.add(f.mul(f.udiv(line, lines.down), lines.apart), f.urem(line, lines.down))

    def _range(self, batch: Sequence[Int], m0: Int, rows: Int) -> tuple[Int, Int, Int]:
        """Return the first line of a block, and its first and last row among those of lines that begin
        there."""
        f, lines = self.f, self.lines
        first = self.geometry.row(f, batch, m0)
        last = f.sub(f.add(first, rows), 1)
        line, last_line = self._line_of(first), self._line_of(last)
        end = f.add(f.mul(f.sub(last_line, line), lines.pitch), f.urem(last, lines.along))
        return line, f.urem(first, lines.along), end

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the table and the copy of the lines that `rows` rows from `m0` on read."""
        f, lines, (stride, _) = self.f, self.lines, self.window.stride
        for step, offset in enumerate(self._offsets()):
            f.store(
                Value("i64", str(offset)),
                f.at(self.start, "i8", self.room.table - self.room.lines + 8 * step),
                align=8,
            )
        line, _, end = self._range(outer[1:], m0, rows)
        count = f.add(f.udiv(end, lines.pitch), 1 + lines.more)
        taps = range(self.window.kernel[0])
        for plane in sorted({tap * self.window.dilation[0] % stride for tap in taps}):
            with f.loop(0, count) as at:
                to = f.at(self.start, "i8", f.add(f.mul(at.index, self.room.line), plane * self.room.plane))
                self._copy(f.add(line, at.index), plane, to)

    def _offsets(self) -> list[int]:
        """Return the bytes from a row to each of its steps."""
        window, lines, found = self.window, self.lines, []
        run, channels = _run(window, lines), lines.channels
        for tap in range(window.kernel[0]):
            further, plane = divmod(tap * window.dilation[0], window.stride[0])
            line = plane * self.room.plane + further * self.room.line
            n_runs = window.kernel[1] * channels // run
            for begin in (line + i * window.dilation[1] * channels for i in range(n_runs)):
                found += [begin + byte for byte in range(0, run, QUAD * self.lie.length)]
        return found

    def _copy(self, line: Int, plane: int, to: Value) -> None:
        """Emit the copy of the image's line of `plane` that outputs of `line` read first, with zeros around
        it."""
        f, lines, window = self.f, self.lines, self.window
        image, down = f.udiv(line, lines.apart), f.urem(line, lines.apart)
        here = f.sub(f.add(f.mul(down, window.stride[0]), plane), window.low[0])
        inside = f.op("i1", f"icmp ult i64 {f.i64(here).name}, {lines.height}")
        n_images = f.op("i1", f"icmp ult i64 {f.i64(image).name}, {f.i64(self.geometry.n_images).name}")
        both = f.op("i1", f"and i1 {inside.name}, {n_images.name}")
        before = window.low[1] * lines.channels
        n_bytes = min(lines.across * lines.channels, self.room.line - before)
        pixel = f.mul(f.add(f.mul(image, lines.height), here), lines.across)
        source = f.select(both, f.at(self.image, "i8", f.mul(pixel, lines.channels)), self.image)
        if before:
            copy_or_zero(f, to, source, 0, before // QUAD)
        taken = f.select(both, n_bytes // QUAD, 0)
        copy_or_zero(f, f.at(to, "i8", before), source, taken, (self.room.line - before) // QUAD)

    def count(self, tile: RowTile) -> Int:
        """See `TileRows`: those of lines from its first row on."""
        _, first, end = self._range(tile.batch, tile.m0, tile.rows)
        return self.f.add(self.f.sub(end, first), 1)

    def group_at(self, tile: RowTile, begin: Int, count: Int) -> tuple[Value, Int]:
        """See `TileRows`."""
        f = self.f
        first = f.urem(self.geometry.row(f, tile.batch, tile.m0), self.lines.along)
        return f.at(self.start, "i8", f.mul(f.add(first, begin), self.lie.row)), 0

    def finish(self, tile: RowTile, begin: Int, count: Int, sums: Value, emit: Emit) -> None:
        """Emit the epilogue of the real rows of a group, line by line."""
        f, lines, geometry = self.f, self.lines, self.geometry
        first_row = geometry.row(f, tile.batch, 0)
        line, first, _ = self._range(tile.batch, tile.m0, tile.rows)
        begin = f.add(first, begin)
        end = f.add(begin, count)
        last = f.udiv(f.sub(end, 1), lines.pitch)
        with f.loop(f.udiv(begin, lines.pitch), f.add(last, 1)) as at:
            start = f.mul(at.index, lines.pitch)
            low = f.maximum(f.sub(begin, start), 0)
            high = f.minimum(f.sub(end, start), lines.along)
            here = f.add(line, at.index)
            image, down = f.udiv(here, lines.apart), f.urem(here, lines.apart)
            high = f.select(f.less(down, lines.down), high, 0)
            with f.when(f.less(low, high)):
                row = f.add(f.mul(f.add(f.mul(image, lines.down), down), lines.along), low)
                there = f.at(sums, "i8", f.mul(f.sub(f.add(start, low), begin), ROW_BYTES))
                emit(tile._replace(m0=f.sub(row, first_row), rows=f.sub(high, low)), there)
