"""A Conv of narrow groups, the depthwise one foremost: vectors lie along the channels of several groups.

A group has as many outputs as channels, 1, 2, 4 or 8. A tile of the kernel is one line of outputs. It is done
a few pixels at a time, whose sums stay in registers: each pixel of the image is read once for all taps of its
line, not once for each output; in groups of more than one channel each channel in turn is spread over its
group's lanes. Lines of the image that do not exist are left out; where columns do not, a table says for every
tap where to read, zeros in scratch being there for those. The sums wait in scratch for the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .abi import Generated, check_schedule, resolve
from .bodies import LANES
from .epilogue import Epilogue, RowTile
from .llvm import Function, Int, Value
from .microkernel import PANEL, SCHEDULES, VECTOR, load, tail
from .pixels import AXES, OverPixels, flat, two
from .spec import Conv, Window

PIXELS = 7  # at a time, of a line of unknown length
LEAST_PIXELS, MOST_PIXELS = 5, 8
NAME = "pixels"  # of the one schedule


def is_narrow(channels: object, columns: object, groups: int) -> bool:
    """Return True for groups that this file computes: as many outputs as channels, several to a vector."""
    if not (isinstance(channels, int) and channels and channels == columns and channels % groups == 0):
        return False
    return groups > 1 and channels // groups < LANES and LANES % (channels // groups) == 0


def is_depthwise(spec: Conv) -> bool:
    """Return True for a conv that this file computes."""
    window, channels = spec.window, spec.buffers[spec.a].shape[-1]
    is_plain = len(window.kernel) <= AXES and set(window.expansion) == {1} and min(window.dilation) > 0
    return spec.b_layout == "rows" and is_plain and is_narrow(channels, spec.n, window.groups)


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a depthwise Conv; see `abi.Generator`. It has one schedule."""
    check_schedule("depthwise conv", schedule or NAME, [NAME])
    return _Depthwise(f, spec, sizes).emit(NAME)


def _pixels(across: Int) -> int:
    """Return how many outputs of a line of `across` are done at a time: the fewest to spare."""
    if not isinstance(across, int):
        return PIXELS
    return min(range(MOST_PIXELS, LEAST_PIXELS - 1, -1), key=lambda n: -(-across // n) * n)


class _Depthwise(OverPixels):
    """The state of one emission; of a matmul it has the epilogue."""

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int]) -> None:
        super().__init__(f, spec, sizes, SCHEDULES["6x16"])
        self.images, *extent, channels = [resolve(size, sizes) for size in spec.buffers[spec.a].shape]
        assert isinstance(channels, int)
        self.channels = channels
        self.padded = -(-channels // LANES) * LANES
        self.height, self.across = two(extent)
        self.down, self.along = two([resolve(size, sizes) for size in spec.window.out])
        self.window = flat(spec.window)
        self.pixels = _pixels(self.along)
        self.epilogue = Epilogue(f, spec, sizes, channels, self.bodies)
        self.group = channels // spec.window.groups
        self.taps = _Taps(self.window, channels, self.pixels)
        self.zeros = self.sums
        self.table = f.at(self.zeros, "float", self.padded)
        self.sums = f.at(self.table, "ptr", self.taps.columns * self.window.kernel[0])

    def emit(self, name: str) -> Generated:
        """Emit the loop over lines of outputs."""
        f, spec = self.f, self.conv
        with f.loop(0, self.padded, LANES) as c:
            f.store(Value(VECTOR, "zeroinitializer"), f.at(self.zeros, "float", c.index), align=4)
        with f.loop(f.params[3], f.params[4]) as tile:
            image, line = f.udiv(tile.index, self.down), f.urem(tile.index, self.down)
            with f.loop(0, self.along, self.pixels) as x:
                self._some_pixels(image, line, x.index)
        table = 8 * self.taps.columns * self.window.kernel[0]
        scratch = ((4 * self.padded * (1 + self.pixels) + table, ()),)
        out = spec.window.out
        tiles = ((spec.buffers[spec.a].shape[0], 1), *(((out[0], 1),) if len(out) == AXES else ()))
        taps = self.window.kernel[0] * self.window.kernel[1]
        work = self.padded * (2 * taps * self.group + 8 * len(spec.epilogue))
        return Generated(tiles, scratch, ((work, (out[-1],)),), name)

    def _some_pixels(self, image: Int, line: Int, x: Int) -> None:
        """Emit `pixels` outputs of one line, from x on, as far as there are any."""
        f, window = self.f, self.window
        step = window.dilation[0]
        top = f.sub(f.mul(line, window.stride[0]), window.low[0])
        left = f.sub(f.mul(x, window.stride[1]), window.low[1])
        lowest, highest = self._taps_inside(top, step)
        first = f.mul(f.add(f.mul(image, self.height), f.add(top, f.mul(lowest, step))), self.across)
        start = f.at(self.bodies.addresses[self.conv.a], "float", f.mul(first, self.channels))
        weights = f.at(
            self.bodies.addresses[self.conv.b],
            "float",
            f.mul(lowest, window.kernel[1] * self.group * self.channels),
        )
        rows = f.i64(f.sub(highest, lowest))
        apart = f.i64(f.mul(f.mul(self.across, self.channels), step))
        low = f.op("i1", f"icmp sge i64 {f.i64(left).name}, 0")
        high = f.less(f.add(left, self.taps.columns - 1), self.across)
        whole = f.op("i1", f"and i1 {low.name}, {high.name}")

        def inside() -> None:
            there = f.at(start, "float", f.mul(left, self.channels))
            self._call("depthwise", self.taps.inside, there, apart, weights, rows)

        def by_table() -> None:
            self._fill(start, left, rows, apart)
            self._call("depthwise_at_edge", self.taps.by_table, self.table, weights, rows)

        f.either(whole, inside, by_table)
        pixel = f.add(f.mul(f.add(f.mul(image, self.down), line), self.along), x)
        count = f.minimum(self.pixels, f.sub(self.along, x))
        columns = None if self.channels % PANEL == 0 else self.channels
        *batch, m0 = self.loops_at(pixel)
        self.epilogue.emit(RowTile(batch, m0, count, 0, columns), self.sums, self.padded)

    def _call(self, name: str, define: Callable[[Function], None], *args: Value) -> None:
        window = self.window
        kind = "_".join(map(str, (self.group, window.kernel[1], window.stride[1], window.dilation[1])))
        self.f.call_part(f"{name}_{self.channels}_{self.pixels}_{kind}", define, *args, self.sums)

    def _taps_inside(self, top: Int, step: int) -> tuple[Int, Int]:
        """Return the first tap whose line exists, and the one behind the last; lines are `step` apart."""
        f, taps = self.f, self.window.kernel[0]

        def reached(place: Int) -> Value:
            """How many taps lie before `place`."""
            n = f.udiv(f.maximum(f.add(f.sub(place, top), step - 1), 0), step)
            return f.i64(f.minimum(n, taps))

        lowest = reached(0)
        return lowest, f.maximum(reached(self.height), lowest)

    def _fill(self, start: Value, left: Int, rows: Value, apart: Value) -> None:
        """Emit the table of where the columns of each line begin: [rows, columns]; zeros outside."""
        f, columns = self.f, self.taps.columns
        with f.loop(0, rows) as row, f.loop(0, columns) as column:
            place = f.add(left, column.index)
            inside = f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(self.across).name}")
            element = f.add(f.mul(row.index, apart), f.mul(place, self.channels))
            at = f.op("ptr", f"getelementptr float, ptr {start.name}, i64 {f.i64(element).name}")
            found = f.op("ptr", f"select i1 {inside.name}, ptr {at.name}, ptr {self.zeros.name}")
            f.store(found, f.at(self.table, "ptr", f.add(f.mul(row.index, columns), column.index)), align=8)


class _Taps:
    """The sums of a few pixels of a line over taps: parts, which kernels with the same window share."""

    def __init__(self, window: Window, channels: int, pixels: int) -> None:
        self.channels, self.pixels, self.group = channels, pixels, channels // window.groups
        self.kernel, self.stride, self.dilation = window.kernel[1], window.stride[1], window.dilation[1]
        self.columns = (pixels - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def inside(self, g: Function) -> None:
        """Lines of the image at `start`, `apart` elements from one another."""
        start, apart, weights, rows, sums = g.params

        def at(row: Int, column: int, c: Int) -> Value:
            return g.at(
                g.at(g.at(start, "float", g.mul(row, apart)), "float", c), "float", column * self.channels
            )

        self._define(g, at, weights, rows, sums)

    def by_table(self, g: Function) -> None:
        """Columns of lines where `table` says."""
        table, weights, rows, sums = g.params

        def at(row: Int, column: int, c: Int) -> Value:
            place = g.at(table, "ptr", g.add(g.mul(row, self.columns), column))
            return g.at(g.load("ptr", place, align=8), "float", c)

        self._define(g, at, weights, rows, sums)

    def _define(
        self, g: Function, at: Callable[[Int, int, Int], Value], weights: Value, rows: Value, sums: Value
    ) -> None:
        whole = self.channels // LANES * LANES
        with g.loop(0, whole, LANES) as c:
            self._vector(g, at, weights, rows, sums, c.index, None)
        if whole < self.channels:
            self._vector(g, at, weights, rows, sums, whole, tail(g, self.channels - whole))

    def _vector(
        self,
        g: Function,
        at: Callable[[Int, int, Int], Value],
        weights: Value,
        rows: Value,
        sums: Value,
        c: Int,
        mask: Value | None,
    ) -> None:
        """The sums of LANES channels: taps in their order, one fused multiply-add each."""
        totals = [Value(VECTOR, "zeroinitializer")] * self.pixels
        with g.loop(0, rows, carried=totals) as row:
            rows_of_tap = self.kernel * self.group * self.channels
            line = g.at(g.at(weights, "float", g.mul(row.index, rows_of_tap)), "float", c)
            known: dict[int, Value] = {}
            totals = list(row.carried)
            for tap, channel in np.ndindex(self.kernel, self.group):
                weight = load(g, g.at(line, "float", (tap * self.group + channel) * self.channels), mask)
                for pixel in range(self.pixels):
                    column = pixel * self.stride + tap * self.dilation
                    if column not in known:
                        known[column] = load(g, at(row.index, column, c), mask)
                    left = self._spread(g, known[column], channel)
                    totals[pixel] = g.call(VECTOR, f"llvm.fma.v{LANES}f32", left, weight, totals[pixel])
            row.next(*totals)
        padded = -(-self.channels // LANES) * LANES
        for pixel, total in enumerate(row.results):
            g.store(total, g.at(g.at(sums, "float", c), "float", pixel * padded), align=4)

    def _spread(self, g: Function, value: Value, channel: int) -> Value:
        """Return channel number `channel` of each group in all of the group's lanes."""
        if self.group == 1:
            return value
        lanes = ", ".join(f"i32 {lane // self.group * self.group + channel}" for lane in range(LANES))
        return g.op(
            VECTOR, f"shufflevector {VECTOR} {value.name}, {VECTOR} poison, <{LANES} x i32> <{lanes}>"
        )
