"""A Conv that reads channels-first images of few planes, such as a network's first convolution.

A patch of so few channels is too short to copy. Instead the lines that a block of output lines reads are
copied whole into scratch, with zeros around them, each split into `stride` phases: the elements whose columns
have the same remainder. Under one tap, adjacent outputs then have adjacent elements. A table has the offset
of each step of k from the first output's position in scratch, and row tiles of a matmul read A through it: k
runs over taps and channels as everywhere, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES
from ..matmul.arithmetic import VECTOR
from ..matmul.epilogue import RowTile
from ..matmul.lanes import load
from ..matmul.lines import lines_of_results
from ..matmul.matmul import check_operands, widest_schedule
from ..matmul.microkernel import Ending
from ..matmul.problem import problem_of
from ..matmul.product import Emission
from ..matmul.rhs import KernelTile
from ..matmul.row_tiles import Finish, RowTiles
from ..matmul.schedules import PANEL, SCHEDULES, Schedule
from ..matmul.strides import Strides
from .pixels import AXES, flat, geometry_of
from .spec import Conv, Window

LINES = 8  # of outputs in a block
STRIDES = (1, 2, 4)  # along a line: phases are split from vectors by halves
MAX_CHANNELS, MAX_STEPS = 4, 512  # of k; more channels fill vectors


def is_fit(channels: object, attrs: Mapping[str, tuple[int, ...]], groups: int) -> bool:
    """Return True for the window (its fields by name) of a conv that may read planes."""
    kernel, stride, dilation = attrs["kernel"], attrs["stride"], attrs["dilation"]
    is_plain = len(kernel) <= AXES and set(attrs["expansion"]) == {1} and min(dilation) > 0 and groups == 1
    is_few = isinstance(channels, int) and 0 < channels <= MAX_CHANNELS
    return is_plain and is_few and stride[-1] in STRIDES and prod(kernel) * channels <= MAX_STEPS  # type: ignore[operator]


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of such a Conv; see `abi.Generator`. Schedules: those of `schedules`."""
    name = schedule or widest_schedule(f, spec)
    check_schedule("conv", name, list(SCHEDULES))
    check_operands(spec)
    f.takes("planes")
    window = spec.window
    axes = {name: getattr(window, name) for name in ("kernel", "stride", "dilation", "expansion")}
    if not is_fit(spec.buffers[spec.product.a].shape[1], axes, window.groups):
        raise ValueError(
            f"conv kernel: planes are for at most {MAX_CHANNELS} channels in one group, on {AXES} axes, "
            f"strides of {STRIDES} along lines and at most {MAX_STEPS} taps of channels"
        )
    return _Planes(f, spec, sizes, SCHEDULES[name]).emit(name)


@dataclass(frozen=True)
class Phases:
    """The layout in scratch of the lines that a block of outputs reads: `lines` of them, of `line` elements,
    each as `count` phases of `size` elements for each channel. `reach`: elements of a phase after the last
    output.
    """

    count: int
    reach: int
    lines: int
    size: Int
    line: Int


def _phases(f: Function, window: Window, channels: int, along: Int) -> Phases:
    """Return the phases for outputs of `along` pixels a line; call in the entry block."""
    taps, step, count = window.kernel, window.dilation, window.stride[1]
    reach = (taps[1] - 1) * step[1] // count
    lines = (LINES - 1) * window.stride[0] + (taps[0] - 1) * step[0] + 1
    size = f.mul(f.ceildiv(f.add(along, reach), LANES), LANES)
    return Phases(count, reach, lines, size, f.mul(size, channels * count))


class _Planes:
    """The state of one emission: a matmul's row tiles, along each line of outputs."""

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule) -> None:
        problem = replace(problem_of(f, spec, sizes, schedule), groups=spec.window.groups)
        self.f, self.spec, self.emission = f, spec, Emission.open(f, problem)
        self.geometry = geometry = geometry_of(f, spec, sizes)
        self.window = flat(spec.window)
        self.sides = geometry.sides
        along = self.sides.along
        assert isinstance(geometry.channels, int) and isinstance(problem.k, int)
        self.channels, self.steps = geometry.channels, problem.k
        self.phases = _phases(f, self.window, self.channels, along)
        line = along if isinstance(along, int) else schedule.rows
        self.tiles = RowTiles(f, along, line or 1, self.steps, problem.width, schedule)
        self.table = self.emission.scratch.behind_copy(f, problem)
        self.image = f.at(self.table, "i64", self.steps)

    def emit(self, name: str) -> Generated:
        """Emit the loop over the kernel's tiles: blocks of lines, and the columns of one micro-kernel in
        each."""
        f, emission, width, down = self.f, self.emission, self.emission.problem.width, self.sides.down
        self._fill_table()
        with f.loop(f.params[3], f.params[4]) as tile:
            panels, blocks = f.ceildiv(emission.problem.n, width), f.ceildiv(down, LINES)
            block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
            image, y = f.udiv(block, blocks), f.mul(f.urem(block, blocks), LINES)
            lines = f.minimum(LINES, f.sub(down, y))
            is_new = emission.starts_block(tile.index, panel)
            f.either(is_new, partial(self._copy, image, y, lines), lambda: None)
            n0 = f.mul(panel, width)
            emission.by_columns(n0, partial(self._tile, image, y, lines, panel, n0))
        return self._generated(name)

    def _generated(self, name: str) -> Generated:
        """Return the generator's description of the kernel."""
        spec, phases, problem = self.spec, self.phases, self.emission.problem
        out, vectors = spec.window.out, 4 * phases.lines * self.channels * phases.count
        copy = 4 * self.steps * problem.width if problem.has_copy else 0
        fixed = self.emission.scratch.sums_bytes + copy + 8 * self.steps + vectors * (phases.reach + LANES)
        scratch = ((fixed, ()), (vectors, (out[-1],)))
        down = ((out[0], LINES),) if len(out) == AXES else ()
        tiles = ((spec.buffers[spec.product.a].shape[0], 1), *down, (spec.product.n, problem.width))
        work = LINES * problem.width * (2 * self.steps + 8 * len(spec.product.epilogue))
        lines = lines_of_results(spec, 1, out[0]) if down else ()
        return Generated(Work(tiles, scratch, ((work, (out[-1],)),), lines), name)

    def _fill_table(self) -> None:
        """Emit the table of the offsets in scratch of the steps of k."""
        f, (down, along), step, phases = self.f, self.window.kernel, self.window.dilation, self.phases
        with f.loop(0, down) as row:
            line = f.mul(f.mul(row.index, step[0]), phases.line)
            for tap in range(along):
                rest, place = tap * step[1] % phases.count, tap * step[1] // phases.count
                for c in range(self.channels):
                    there = f.add(line, f.add(f.mul(phases.size, c * phases.count + rest), place))
                    k = f.add(f.mul(row.index, along * self.channels), tap * self.channels + c)
                    f.store(f.i64(there), f.at(self.table, "i64", k), align=8)

    def _copy(self, image: Int, y: Int, lines: Int) -> None:
        """Emit the copy of the lines that `lines` lines of outputs read, from line y on."""
        f, window, phases, sides = self.f, self.window, self.phases, self.sides
        top = f.sub(f.mul(y, window.stride[0]), window.low[0])
        seen = f.sub(phases.lines, f.mul(f.sub(LINES, lines), window.stride[0]))
        base = self.emission.bodies.addresses[self.spec.product.a]
        first = f.mul(image, self.channels)
        with f.loop(0, seen) as line, f.loop(0, self.channels) as c:
            place = f.add(top, line.index)
            inside = f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(sides.height).name}")
            row = f.add(f.mul(f.add(first, c.index), sides.height), place)
            at = f.select(inside, f.mul(row, sides.across), 0)
            count = f.select(inside, sides.across, 0)
            to = f.add(f.mul(line.index, phases.line), f.mul(c.index, f.mul(phases.size, phases.count)))
            place = f.at(self.image, "float", to)
            given = (f.at(base, "float", at), count, place, f.i64(phases.size), f.i64(window.low[1]))
            f.call_part(f"phases_{phases.count}", lambda g: _define_phases(g, phases.count), *given)

    def _right(self, panel: Int, n0: Int, columns: Int | None) -> tuple[Value, Strides]:
        """Return the address of a tile's columns of B, its panels or their copy, and strides."""
        emission, problem, steps = self.emission, self.emission.problem, self.steps
        b = emission.rhs.at(KernelTile(RowTile([], 0, 0, n0, columns), panel))
        if problem.has_copy:
            strides = Strides(1, problem.width, problem.width, steps, table=self.table)
            return emission.copy(b, columns), strides
        b_panel = steps * PANEL if problem.width > PANEL else 0
        return b, Strides(1, PANEL, problem.width, steps, b_panel=b_panel, table=self.table)

    def _tile(self, image: Int, y: Int, lines: Int, panel: Int, n0: Int, columns: Int | None) -> None:
        """Emit one tile of the kernel: row tiles along each of `lines` lines from y on."""
        f, emission, sides = self.f, self.emission, self.sides
        b, strides = self._right(panel, n0, columns)
        with f.loop(0, lines) as line:
            a = f.at(self.image, "float", f.mul(f.mul(line.index, self.window.stride[0]), self.phases.line))
            pixel = f.mul(f.add(f.mul(image, sides.down), f.add(y, line.index)), sides.along)

            def place(begin: Int, count: Int, pixel: Int = pixel) -> RowTile:
                *outer, m0 = self.geometry.loops_at(f, f.add(pixel, begin))
                return RowTile(outer, m0, count, n0, columns)

            def done(begin: Int, count: Int, sums: Value) -> None:
                emission.epilogue.emit(place(begin, count), sums)

            def soon(begin: Int, count: Int) -> None:
                if columns is None:
                    emission.epilogue.prefetch(place(begin, count))

            def ending(begin: Int, count: Int, first: int, columns: int | None) -> Ending:
                return emission.epilogue.ending(place(begin, count).part(f, first, columns))

            finish = Finish(done, soon, ending if emission.ends_in_registers(columns) else None)
            self.tiles.from_rows(strides, a, b, sides.along, columns, emission.scratch.sums, finish)


def _define_phases(g: Function, phases: int) -> None:
    """to[p, i] = source[i * phases + p - low] for p < phases, i < `size`, or 0 where that is not in
    0 .. count - 1."""
    source, count, to, size, low = g.params
    with g.loop(0, size, LANES) as i:
        first = g.sub(g.mul(i.index, phases), low)
        given = [_load_inside(g, source, g.add(first, LANES * v), count) for v in range(phases)]
        for p, value in enumerate(_cut(g, given)):
            g.store(value, g.at(to, "float", g.add(g.mul(size, p), i.index)), align=4)


def _load_inside(g: Function, source: Value, first: Int, count: Value) -> Value:
    """Return the vector at `first`, 0 for lanes outside of 0 .. count - 1."""
    lanes = ", ".join(f"i64 {lane}" for lane in range(LANES))
    wide = f"<{LANES} x i64>"
    places = g.op(wide, f"add {wide} {g.splat(g.i64(first), LANES).name}, <{lanes}>")
    inside = g.op(f"<{LANES} x i1>", f"icmp ult {wide} {places.name}, {g.splat(count, LANES).name}")
    address = g.op("ptr", f"getelementptr float, ptr {source.name}, i64 {g.i64(first).name}")
    return load(g, address, inside)


def _cut(g: Function, given: Sequence[Value]) -> list[Value]:
    """Return the phases of adjacent vectors, as many as there are vectors."""
    if len(given) == 1:
        return list(given)
    halves = []
    for rest in (0, 1):
        lanes = ", ".join(f"i32 {2 * lane + rest}" for lane in range(LANES))
        mask = f"<{LANES} x i32> <{lanes}>"
        pairs = zip(given[::2], given[1::2], strict=True)
        chosen = [
            g.op(VECTOR, f"shufflevector {VECTOR} {a.name}, {VECTOR} {b.name}, {mask}") for a, b in pairs
        ]
        halves.append(_cut(g, chosen))
    return [value for pair in zip(*halves, strict=True) for value in pair]
