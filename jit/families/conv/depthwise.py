"""A Conv of narrow groups, mainly depthwise: vectors are along the channels of several groups.

A group has as many outputs as channels, 1, 2, 4 or 8. A tile of the kernel is a few lines of outputs. A few
pixels of each line are done at a time, so that lines of the image are reread from the first-level cache; the
sums of these pixels stay in registers until the epilogue has stored them. Each pixel of the image is loaded
once for all taps of its line, not once for each output; in groups of several channels each channel in turn is
broadcast to its group's lanes. Lines outside of the image are skipped. Columns outside are zeros: blocks at
the ends of a line of known length have separate code, else a table has the address for every tap.

An image may be of bytes (u8), which are widened to f32 when they are loaded: with weights that are integers
of a byte and fewer than 500 taps the sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ....vm.layout import LIMITS
from ....vm.program import Lines, Work
from ...llvm import masked
from ...llvm.abi import RT_SCRATCH, Generated, check_schedule
from ...llvm.conversion import widened
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...spec import Index
from ..matmul.arithmetic import VECTOR
from ..matmul.lanes import load
from ..matmul.layouts import layout_of
from ..matmul.lines import is_read_again, lines_of_results
from ..matmul.problem import problem_of
from ..matmul.product import Emission
from ..matmul.schedules import SCHEDULES, default_schedule
from ..nest.plan import is_dear
from .pixels import AXES, flat, geometry_of
from .spec import Conv

PIXELS = 7  # at a time, of a line of unknown length
MAX_PIXELS = 8  # at a time; half as many if there are few vector registers
LINES = 4  # of outputs in a tile
STRIP_BYTES = 24 * 1024  # of weights and of a block's lines, which stay in the first-level cache
MAX_EDGES = 2  # edge blocks of a line that have separate code
NAME = "pixels"  # of the one schedule
IMAGE_DTYPES = ("f32", "u8")


def is_narrow(channels: object, columns: object, groups: int) -> bool:
    """Return True for groups that this file computes: as many outputs as channels, several to a vector."""
    if not (isinstance(channels, int) and channels and channels == columns and channels % groups == 0):
        return False
    return groups > 1 and channels // groups < LANES and LANES % (channels // groups) == 0


def is_depthwise(spec: Conv) -> bool:
    """Return True for a conv that this file computes."""
    given = spec.product
    window, channels = spec.window, spec.buffers[given.a].shape[-1]
    is_plain = len(window.kernel) <= AXES and set(window.expansion) == {1} and min(window.dilation) > 0
    has_element, k_loop = spec.buffers[given.a].dtype in IMAGE_DTYPES, len(given.batch) + 2
    has_rows = spec.buffers[given.b].shape == (given.k, given.n) and layout_of(spec).in_place
    has_weights = has_rows and given.b_index == (Index(loop=k_loop), Index(loop=k_loop - 1))
    return has_weights and is_plain and has_element and is_narrow(channels, given.n, window.groups)


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a depthwise Conv; see `abi.Generator`. It has one schedule."""
    check_schedule("depthwise conv", schedule or NAME, [NAME])
    f.takes("depthwise")
    return _Depthwise(f, spec, sizes).emit(NAME)


def _pixels(f: Function, along: Int) -> int:
    """Return how many outputs of a line of `along` are done at a time, with the smallest remainder."""
    most = MAX_PIXELS if default_schedule(f) == "14x32" else MAX_PIXELS // 2
    if not isinstance(along, int):
        return min(most, PIXELS)
    return min(range(most, most // 2, -1), key=lambda n: along % n)


class Block(NamedTuple):
    """`pixels` outputs side by side.

    `outside`: those of the columns they see that are padding; None: a table says where each column is.
    """

    pixels: int
    outside: frozenset[int] | None = frozenset()

    @property
    def name(self) -> str:
        """Its part's name."""
        places = ["table"] if self.outside is None else sorted(self.outside)
        return "_".join(map(str, ("pixels", self.pixels, *places)))


@dataclass(frozen=True)
class ImageElement:
    """An element of an image: f32, or u8 that is widened when it is loaded."""

    dtype: str

    @property
    def memory(self) -> str:
        """Its LLVM type in memory."""
        return DTYPES[self.dtype].memory

    def load(self, g: Function, address: Value, mask: Value | None) -> Value:
        """Return LANES of them in f32; lanes outside `mask` are 0 and not read."""
        if self.dtype == "f32":
            return load(g, address, mask)
        return widened(Vec(g, masked.load(g, self.memory, address, 1, mask)), self.dtype).value


class _Depthwise:
    """The state of one emission; of a product it has the loops of its epilogue."""

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int]) -> None:
        problem = replace(problem_of(f, spec, sizes, SCHEDULES["6x16"]), groups=spec.window.groups)
        self.f, self.spec, self.emission = f, spec, Emission.open(f, problem)
        self.geometry = geometry_of(f, spec, sizes)
        self.window, self.sides = flat(spec.window), self.geometry.sides
        assert isinstance(self.geometry.channels, int)
        self.channels = self.geometry.channels
        self.group = self.channels // spec.window.groups
        self.pixels = _pixels(f, self.sides.along)
        self.edges = self._edges()
        self.zeros = f.at(self.emission.scratch.sums, "float", MAX_PIXELS * LANES)
        self.table = f.at(self.zeros, "float", self.padded)

    @property
    def image(self) -> ImageElement:
        """An element of the image."""
        return ImageElement(self.spec.buffers[self.spec.product.a].dtype)

    @property
    def padded(self) -> int:
        """The channels, rounded up to whole vectors."""
        return -(-self.channels // LANES) * LANES

    @property
    def strip(self) -> int:
        """The channels of one strip: data that blocks of a tile's lines reread stays in a near cache."""
        kernel, window = self.window.kernel, self.window
        lines = (LINES - 1) * window.stride[0] + (kernel[0] - 1) * window.dilation[0] + 1
        image = lines * self.columns(self.pixels) * DTYPES[self.image.dtype].bytes
        of_channel = 4 * kernel[0] * kernel[1] * self.group + image
        return max(STRIP_BYTES // of_channel // LANES, 1) * LANES

    def columns(self, pixels: int) -> int:
        """Return how many columns of the image `pixels` adjacent outputs read."""
        window = self.window
        return (pixels - 1) * window.stride[1] + (window.kernel[1] - 1) * window.dilation[1] + 1

    def emit(self, name: str) -> Generated:
        """Emit the loop over tiles."""
        f, spec = self.f, self.spec
        if self.edges is None:
            with f.loop(0, self.padded, LANES) as c:
                f.store(Value(VECTOR, "zeroinitializer"), f.at(self.zeros, "float", c.index), align=4)
        with f.loop(f.params[3], f.params[4]) as tile:
            groups = f.ceildiv(self.sides.down, LINES)
            image, first = f.udiv(tile.index, groups), f.mul(f.urem(tile.index, groups), LINES)
            self._lines(image, first, f.minimum(f.add(first, LINES), self.sides.down))
        table = 8 * self.columns(self.pixels) * self.window.kernel[0]
        scratch = ((4 * (MAX_PIXELS * LANES + self.padded) + table, ()),)
        out = spec.window.out
        down = ((out[0], LINES),) if len(out) == AXES else ()
        taps = self.window.kernel[0] * self.window.kernel[1]
        work = LINES * self.padded * (2 * taps * self.group + 8 * len(spec.product.epilogue))
        tiles = (spec.buffers[spec.product.a].shape[0], 1), *down
        lines = self._image_lines() if down else ()
        return Generated(Work(tiles, scratch, ((work, (out[-1],)),), lines), name)

    def _image_lines(self) -> tuple[Lines, ...]:
        """Return the lines of the image and of the results of a tile."""
        spec, window, image = self.spec, self.window, self.spec.product.a
        height, reach = spec.buffers[image].shape[1], (window.kernel[0] - 1) * window.dilation[0] + 1
        results = lines_of_results(spec, 1, window.out[0])
        is_far = max(window.stride[0], abs(window.low[0]), reach) > LIMITS["LINES"][0]
        if not results or is_far or is_read_again(spec):
            return results
        return (Lines(image, 1, height, window.stride[0], window.low[0], reach), *results)

    def _lines(self, image: Int, first: Int, end: Int) -> None:
        """Emit lines `first` .. `end` - 1 of an image, a block of each in turn."""
        f = self.f
        with f.loop(0, self.channels, self.strip) as strip:
            channels = strip.index, f.minimum(f.add(strip.index, self.strip), self.channels)
            self._strip(image, (first, end), channels)

    def _strip(self, image: Int, lines: tuple[Int, Int], channels: tuple[Int, Int]) -> None:
        """Emit lines of some channels."""
        f = self.f

        def blocks(begin: Int, behind: Int, block: Block) -> None:
            with f.loop(begin, behind, block.pixels) as x, f.loop(*lines) as line:
                self._outputs(image, line.index, x.index, channels, block)

        if self.edges is None:
            self._by_table(blocks)
            return
        begin, behind = self._inside()
        if begin < behind:
            blocks(begin, behind, Block(self.pixels))
        for place, block in self.edges:
            blocks(place, place + block.pixels, block)

    def _by_table(self, blocks: Callable[[Int, Int, Block], None]) -> None:
        """Emit `blocks` of any line, by a table at padding; single outputs at the end."""
        f = self.f
        whole = f.mul(f.udiv(self.sides.along, self.pixels), self.pixels)
        with f.loop(0, whole, self.pixels) as x:
            left = self._left_of(x.index)
            low = f.op("i1", f"icmp sge i64 {f.i64(left).name}, 0")
            high = f.less(f.add(left, self.columns(self.pixels) - 1), self.sides.across)
            inside, behind = f.op("i1", f"and i1 {low.name}, {high.name}"), f.add(x.index, self.pixels)
            f.either(
                inside,
                lambda: blocks(x.index, behind, Block(self.pixels)),
                lambda: blocks(x.index, behind, Block(self.pixels, None)),
            )
        if whole != self.sides.along:
            blocks(whole, self.sides.along, Block(1, None))

    def _left_of(self, x: Int) -> Int:
        """Return the first column that output x of a line reads."""
        return self.f.sub(self.f.mul(x, self.window.stride[1]), self.window.low[1])

    def _inside(self) -> tuple[int, int]:
        """Return the range of a known line's outputs whose whole blocks read no padding."""
        assert isinstance(self.sides.along, int) and isinstance(self.sides.across, int)
        step, low, whole = (
            self.pixels * self.window.stride[1],
            self.window.low[1],
            self.sides.along // self.pixels,
        )
        begin = min(max(-(-low // step), 0), whole)
        end = min((self.sides.across - self.columns(self.pixels) + low) // step + 1, whole)
        return begin * self.pixels, max(begin, end) * self.pixels

    def _edges(self) -> list[tuple[int, Block]] | None:
        """Return a known line's other blocks and their starts; None: there are too many, or they are long."""
        along, across, pixels = self.sides.along, self.sides.across, self.pixels
        if self.group > 1 or not (isinstance(along, int) and isinstance(across, int)):
            return None
        begin, end = self._inside()
        if along - (end - begin) > MAX_EDGES * pixels:
            return None
        found = []
        for x in (*range(0, begin, pixels), *range(end, along, pixels)):
            n, left = min(pixels, along - x), self._left_of(x)
            assert isinstance(left, int)
            outside = (c for c in range(self.columns(n)) if not 0 <= left + c < across)
            found.append((x, Block(n, frozenset(outside))))
        return found

    def _outputs(self, image: Int, line: Int, x: Int, channels: tuple[Int, Int], block: Block) -> None:
        """Emit a block of outputs of one line, from x on, for a range of channels."""
        f, window = self.f, self.window
        step = window.dilation[0]
        top = f.sub(f.mul(line, window.stride[0]), window.low[0])
        lowest, highest = self._taps_inside(top, step)
        first = f.mul(
            f.add(f.mul(image, self.sides.height), f.add(top, f.mul(lowest, step))), self.sides.across
        )
        place = f.mul(first, self.channels)
        start = f.at(self.emission.bodies.addresses[self.spec.product.a], self.image.memory, place)
        taps = f.mul(lowest, window.kernel[1] * self.group * self.channels)
        weights = f.at(self.emission.bodies.addresses[self.spec.product.b], "float", taps)
        rows = f.i64(f.sub(highest, lowest))
        apart = f.i64(f.mul(f.mul(self.sides.across, self.channels), step))
        pixel = f.add(f.mul(f.add(f.mul(image, self.sides.down), line), self.sides.along), x)
        there = f.at(start, self.image.memory, f.mul(self._left_of(x), self.channels))
        if block.outside is None:
            self._fill(start, self._left_of(x), rows, apart, self.columns(block.pixels))
            there = self.table
        places = map(f.i64, (*channels, *self.geometry.loops_at(f, pixel)))
        self._call(block, [there, apart, weights, rows, *places])

    def _call(self, block: Block, given: list[Value]) -> None:
        """Emit the code of a block in place, or in an exact kernel the call of its part."""
        f = self.f
        problem = self.emission.problem
        if not problem.is_exact:
            _Outputs(f, self, self.emission.bodies, block, self.emission.scratch.sums).emit(given)
            return

        def define(g: Function) -> None:
            bodies = BodyEmitter(
                g, self.spec.product.epilogue, self.spec.buffers, problem.sizes, problem.n_loop
            )
            sums = g.load("ptr", g.at(g.params[2], "i8", RT_SCRATCH), align=8)
            _Outputs(g, self, bodies, block, sums).emit(g.params[3:])

        f.call_part(block.name, define, *f.params[:3], *given)

    def _taps_inside(self, top: Int, step: int) -> tuple[Int, Int]:
        """Return the range of taps whose lines exist; lines are `step` apart."""
        f, taps = self.f, self.window.kernel[0]

        def reached(place: Int) -> Value:
            """The number of taps before `place`."""
            n = f.udiv(f.maximum(f.add(f.sub(place, top), step - 1), 0), step)
            return f.i64(f.minimum(n, taps))

        lowest = reached(0)
        return lowest, f.maximum(reached(self.sides.height), lowest)

    def _fill(self, start: Value, left: Int, rows: Value, apart: Value, columns: int) -> None:
        """Emit the table of the addresses of columns: [rows, columns]; of zeros outside."""
        f = self.f
        with f.loop(0, rows) as row, f.loop(0, columns) as column:
            place = f.add(left, column.index)
            inside = f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(self.sides.across).name}")
            element = f.add(f.mul(row.index, apart), f.mul(place, self.channels))
            pixel = f"getelementptr {self.image.memory}, ptr {start.name}, i64 "
            at = f.op("ptr", pixel + f.i64(element).name)
            found = f.select(inside, at, self.zeros)
            f.store(found, f.at(self.table, "ptr", f.add(f.mul(row.index, columns), column.index)), align=8)


class _Outputs:
    """Emits the outputs of a block, sums and epilogue, into one function, the kernel's or a part's.

    `sums`: scratch for those that a long epilogue takes one after another.
    """

    def __init__(self, g: Function, conv: _Depthwise, bodies: BodyEmitter, block: Block, sums: Value) -> None:
        self.g, self.bodies, self.sums = g, bodies, sums
        self.pixels, self.outside = block
        self.columns, self.conv = conv.columns(self.pixels), conv
        self.m_loop = conv.emission.problem.m_loop
        self.kernel, self.stride, self.dilation = (
            axes[1] for axes in (conv.window.kernel, conv.window.stride, conv.window.dilation)
        )

    def emit(self, given: Sequence[Value]) -> None:
        """Emit the code.

        `given`: the address of lines or their table, their distance, the weights of the first one, their
        number, the range of channels, and the first output's position in the epilogue's loops.
        """
        g = self.g
        begin, end = given[4:6]
        has_rest = self.conv.channels % LANES > 0
        with g.loop(begin, end, LANES) as c:
            self._vector(given, c.index, tail_mask(g, g.sub(end, c.index)) if has_rest else None)

    def _vector(self, given: Sequence[Value], c: Int, mask: Value | None) -> None:
        """The outputs of LANES channels: one fused multiply-add for each channel of a group and tap."""
        g, bodies = self.g, self.bodies
        start, apart, weights, rows, _, _, *batch, m0 = given
        known = bodies.emit(bodies.hoistable(self.m_loop), Position((*batch, 0, c), mask))
        with g.loop(0, rows, carried=[Value(VECTOR, "zeroinitializer")] * self.pixels) as row:
            rows_of_tap = self.kernel * self.conv.group * self.conv.channels
            line = g.at(g.at(weights, "float", g.mul(row.index, rows_of_tap)), "float", c)
            totals, column_at = list(row.carried), self._line(start, apart, row.index, c, mask)
            for channel, tap in np.ndindex(self.conv.group, self.kernel):
                weight = load(
                    g, g.at(line, "float", (tap * self.conv.group + channel) * self.conv.channels), mask
                )
                for pixel in range(self.pixels):
                    left = column_at(pixel * self.stride + tap * self.dilation, channel)
                    totals[pixel] = g.call(VECTOR, f"llvm.fma.v{LANES}f32", left, weight, totals[pixel])
            row.next(*totals)
        ids = [i for i in bodies.ids if i not in known]

        def finish(pixel: Int, total: Value) -> None:
            bodies.emit(ids, Position((*batch, g.add(m0, pixel), c), mask), known, total)

        if not any(is_dear(bodies.body[i]) for i in ids):
            for pixel, total in enumerate(row.results):
                finish(pixel, total)
            return
        for pixel, total in enumerate(row.results):
            g.store(total, g.at(self.sums, "float", pixel * LANES), align=64)
        with g.loop(0, self.pixels) as p:
            finish(p.index, g.load(VECTOR, g.at(self.sums, "float", g.mul(p.index, LANES)), align=64))

    def _line(
        self, start: Value, apart: Value, row: Int, c: Int, mask: Value | None
    ) -> Callable[[int, int], Value]:
        """Return the loader of LANES channels of a column of line `row`, with one channel of each group
        broadcast over the group."""
        g, known = self.g, dict[int, Value]()
        first = (
            g.at(g.at(start, self.conv.image.memory, g.mul(row, apart)), self.conv.image.memory, c)
            if self.outside is not None
            else None
        )

        def loaded(column: int) -> Value:
            if self.outside is not None and column in self.outside:
                return Value(VECTOR, "zeroinitializer")
            if first is not None:
                return self.conv.image.load(
                    g, g.at(first, self.conv.image.memory, column * self.conv.channels), mask
                )
            place = g.at(start, "ptr", g.add(g.mul(row, self.columns), column))
            return self.conv.image.load(
                g, g.at(g.load("ptr", place, align=8), self.conv.image.memory, c), mask
            )

        def given(column: int, channel: int) -> Value:
            if column not in known:
                known[column] = loaded(column)
            return self._spread(known[column], channel)

        return given

    def _spread(self, value: Value, channel: int) -> Value:
        """Return channel number `channel` of each group in all of the group's lanes."""
        if self.conv.group == 1:
            return value
        lanes = ", ".join(
            f"i32 {lane // self.conv.group * self.conv.group + channel}" for lane in range(LANES)
        )
        return self.g.op(
            VECTOR, f"shufflevector {VECTOR} {value.name}, {VECTOR} poison, <{LANES} x i32> <{lanes}>"
        )
