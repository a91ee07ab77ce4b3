"""A Conv of bytes with 3 x 3 taps and stride 1 by Winograd's F(4 x 4, 3 x 3), in integers.

Like `winograd`, with 36 products of i16 instead of 144 of bytes (`winograd_bytes_parts`); a step multiplies
two i16 or four bytes. The sums are exact, hence equal to those of a product of patches, which generic code,
small images and other targets use with the same weights. A block of tiles is transformed to points; for the
columns of one micro-kernel the weights are transformed to a few lines of points at a time and multiplied, and
finally the epilogue runs over each tile's outputs.

Tiles at the lower and right edge of an image of few tiles may have at most 2 outputs along an axis. For these
4 of the points suffice, so products skip them at the others, where their sums stay 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import NamedTuple

from ....vm.program import Work
from ...llvm.abi import Generated, resolve
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES
from ..matmul.arithmetic import SHORT_PAIRS, VECTOR, arithmetic_of, fill
from ..matmul.grouped import FOUR
from ..matmul.layouts import layout_of
from ..matmul.matmul import NARROW
from ..matmul.microkernel import MicroKernels
from ..matmul.problem import problem_of
from ..matmul.product import Emission
from ..matmul.row_tiles import RowTiles
from ..matmul.schedules import PANEL, SCHEDULES, Schedule, default_schedule, fits_registers
from ..matmul.strides import Strides
from .pixels import Geometry, geometry_of
from .spec import Conv
from .winograd import POINTS, Place, Tiles, emit_outputs, is_plain, window_of
from .winograd_bytes_parts import (
    EDGE,
    EDGE_APART,
    EDGE_SIDE,
    LEAST_CHANNELS,
    LINES,
    PAIRS,
    channels_at_once,
    define_bytes_to_points,
    define_points_to_outputs,
    define_weights_to_points,
)
from .winograd_parts import GAP
from .winograd_points import SIDE, TAPS, TILE

MAX_CHANNELS = 1024  # of which sums, 9 * 255 * 128 for each, are below 2^29 and hence exact
MAX_TILES, LEAST_TILES = 49, 24  # of a block
POINT_BYTES = 1024 * 1024  # of a block of tiles at their points
#: Costs in units of one pixel's products by bytes: a tile's products; its transform to points, shared by all
#: columns; its outputs, shared by all channels; the weights of a block.
PIXELS_OF_TILE, PIXELS_OF_INPUTS, PIXELS_OF_OUTPUTS, PIXELS_OF_WEIGHTS = 8, 46, 96, 28
GAIN = 1.05  # least expected speed-up


def fits(f: Function, spec: Conv, sizes: Sequence[Int]) -> bool:
    """Whether a convolution goes by points: its sizes are known, and that is faster on the target."""
    given, window = spec.product, spec.window
    is_3x3 = window.kernel == (TAPS, TAPS) and is_plain(window) and {*window.expansion, window.groups} == {1}
    if layout_of(spec).sums != "i32" or not is_3x3 or spec.planes:
        return False
    channels, n = spec.buffers[given.a].shape[-1], resolve(given.n, sizes)
    images, *out = (resolve(size, sizes) for size in (spec.buffers[given.a].shape[0], *window.out))
    known = [x for x in (images, *out) if isinstance(x, int)]
    if not (isinstance(channels, int) and isinstance(n, int) and len(known) == len(out) + 1):
        return False
    if not prod(known) * n or channels % LEAST_CHANNELS or not 0 < channels <= MAX_CHANNELS:
        return False
    return f.quad_cost * prod(known) > GAIN * _cost(Grid.of(known, channels), channels, n)


def _cost(grid: Grid, channels: int, n: int) -> float:
    """Return the cost as a number of pixels' byte products."""
    around = (PIXELS_OF_INPUTS / n + PIXELS_OF_OUTPUTS / channels) * grid.total
    return PIXELS_OF_TILE * grid.products + around + PIXELS_OF_WEIGHTS * _blocks(grid.total, channels)


class Grid(NamedTuple):
    """The tiles of all images, those down an image and along a line of it. `is_low`, `is_right`: whether the
    last ones have at most EDGE outputs, and fewer points: in one image whose tiles are one block."""

    total: int
    down: int
    along: int
    is_low: bool
    is_right: bool

    @staticmethod
    def of(outputs: Sequence[int], channels: int) -> Grid:
        """Return the tiles of outputs [images, height, across]."""
        images, height, across = outputs
        down, along = (-(-size // TILE) for size in (height, across))
        total = images * down * along
        may = images == 1 and _blocks(total, channels) == 1
        is_low, is_right = (may and size > TILE and 1 <= size % TILE <= EDGE for size in (height, across))
        return Grid(total, down, along, is_low, is_right)

    @property
    def products(self) -> float:
        """The number of tiles with the same products, if all tiles had all points."""
        if not (self.is_low or self.is_right):
            return self.total
        less = (SIDE - EDGE_SIDE) / SIDE
        return (self.down - less * self.is_low) * (self.along - less * self.is_right)

    def shares(self) -> list[Share]:
        """Return the tiles by their points, in an order in which those with a common point are adjacent."""
        down, along = self.down - self.is_low, self.along - self.is_right
        inner = (range(down), range(along), False, False)
        right, low = (range(down), range(along, self.along)), (range(down, self.down), range(along))
        corner = (range(down, self.down), range(along, self.along), True, True)
        found: list[Share] = []
        for rows, columns, is_low, is_right in ((*right, False, True), inner, (*low, True, False), corner):
            begin = found[-1].end if found else 0
            if rows and columns:
                found.append(Share(begin, rows, columns, is_low, is_right))
        return found


class Share(NamedTuple):
    """Tiles of an image that have the same points, from the one numbered `begin` on: see `Grid`."""

    begin: int
    rows: range
    columns: range
    is_low: bool
    is_right: bool

    @property
    def end(self) -> int:
        """The number after its last tile."""
        return self.begin + len(self.rows) * len(self.columns)

    def has(self, line: int, column: int) -> bool:
        """Whether its tiles have a point."""
        return not (self.is_low and line >= EDGE_SIDE) and not (self.is_right and column >= EDGE_SIDE)

    def place(self, f: Function, tile: Int) -> Place:
        """Return the place of one of its tiles."""
        row, column = f.udiv(tile, len(self.columns)), f.urem(tile, len(self.columns))
        return 0, f.mul(f.add(row, self.rows.start), TILE), f.mul(f.add(column, self.columns.start), TILE)


def _blocks(tiles: int, channels: int) -> int:
    """Return the number of blocks into which tiles are split evenly."""
    limit = POINT_BYTES // (2 * POINTS * channels)
    return -(-tiles // max(LEAST_TILES, min(MAX_TILES, limit)))


@dataclass(frozen=True)
class Plan:
    """The division of the tiles of all images: blocks of `block`, `width` columns. Lengths are in elements of
    32 bits."""

    grid: Grid
    block: int
    width: int
    channels: int

    @staticmethod
    def of(grid: Grid, width: int, channels: int) -> Plan:
        """Return the plan for the tiles of `grid`."""
        return Plan(grid, -(-grid.total // _blocks(grid.total, channels)), width, channels)

    @property
    def quads(self) -> int:
        """The quads of bytes of a pixel."""
        return self.channels // FOUR

    @property
    def steps(self) -> int:
        """The pairs of a row of points."""
        return PAIRS * self.quads

    @property
    def panel(self) -> int:
        """From one panel of weights to the next."""
        return TAPS * TAPS * self.quads * PANEL

    @property
    def point_sums(self) -> int:
        """From one point's sums to the next's."""
        return self.block * self.width + GAP

    @property
    def point_weights(self) -> int:
        """From one point's weights to the next's."""
        return self.steps * self.width + GAP

    @property
    def point_rows(self) -> int:
        """From one point's rows to the next's."""
        return self.block * self.steps + GAP

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the parts of `Scratch`, in order."""
        passed, outputs = PAIRS * POINTS * LANES, TILE**2 * self.width
        weights, sums = LINES * SIDE * self.point_weights, POINTS * self.point_sums
        return LANES, passed, outputs, weights, sums, POINTS * self.point_rows


@dataclass(frozen=True)
class Scratch:
    """The layout of scratch: zeros, a tile between two passes, its outputs, weights at LINES lines of
    points, all sums, all points."""

    zeros: Value
    passed: Value
    outputs: Value
    weights: Value
    sums: Value
    points: Value

    @staticmethod
    def of(f: Function, place: Value, plan: Plan) -> Scratch:
        """Return the layout that begins at `place`; call in the entry block."""
        places = [place]
        for length in plan.lengths[:-1]:
            places.append(f.at(places[-1], "float", length))
        return Scratch(*places)


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of such a Conv; see `abi.Generator`."""
    f.takes("winograd-bytes")
    name = schedule or (NARROW if fits_registers(f, NARROW) else default_schedule(f))
    tile = SCHEDULES[name]
    geometry = geometry_of(f, spec, sizes)
    emission = Emission.open(f, replace(problem_of(f, spec, sizes, tile), groups=spec.window.groups))
    outputs = [x for x in (geometry.n_images, *geometry.out) if isinstance(x, int)]
    assert isinstance(geometry.channels, int)
    channels = FOUR * geometry.channels
    plan = Plan.of(Grid.of(outputs, channels), emission.problem.width, channels)
    scratch = Scratch.of(f, emission.scratch.sums, plan)
    kernel = BytesAtPoints(emission, geometry, plan, tile, scratch)
    kernel.emit_tiles()
    return kernel.generated(name)


@dataclass(frozen=True)
class BytesAtPoints:
    """The state of one emission: a product's tiles, whose rows are tiles of outputs."""

    emission: Emission
    geometry: Geometry
    plan: Plan
    tile: Schedule
    scratch: Scratch

    @property
    def f(self) -> Function:
        """The kernel's function."""
        return self.emission.f

    @property
    def has_edges(self) -> bool:
        """Whether some tiles have fewer points."""
        return self.plan.grid.is_low or self.plan.grid.is_right

    def emit_tiles(self) -> None:
        """Emit the loop over the kernel's tiles: blocks, and the columns of one micro-kernel in each."""
        f, plan, emission = self.f, self.plan, self.emission
        f.store(Value(VECTOR, "zeroinitializer"), self.scratch.zeros, align=4)
        if self.has_edges:
            fill(f, self.scratch.sums, POINTS * plan.point_sums, 0.0)
        with f.loop(f.params[3], f.params[4]) as tile:
            panels = f.ceildiv(emission.problem.n, plan.width)
            block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
            first, n0 = f.mul(block, plan.block), f.mul(panel, plan.width)
            rows = f.minimum(plan.block, f.sub(plan.grid.total, first))
            starts = emission.starts_block(tile.index, panel)
            f.either(starts, partial(self._to_points, first, rows), lambda: None)
            emission.by_columns(n0, partial(self._tile, first, rows, n0))

    def generated(self, name: str) -> Generated:
        """Return the generator's description of the kernel."""
        product, plan = self.emission.problem.spec.product, self.plan
        work = 2 * POINTS * plan.block * plan.width * plan.steps
        epilogue = 8 * plan.block * TILE**2 * plan.width * len(product.epilogue)
        tiles = ((plan.grid.total, plan.block), (product.n, plan.width))
        return Generated(Work(tiles, ((4 * sum(plan.lengths), ()),), ((work + epilogue, ()),)), name)

    def _each(self, first: Int, rows: Int, tile: Callable[[Int, Place, bool, bool], None]) -> None:
        """Emit `tile(number in the block, place, is_low, is_right)` for a block of tiles."""
        f, grid = self.f, self.plan.grid
        if not self.has_edges:
            with f.loop(0, rows) as r:
                place = Tiles(grid.total, grid.down, grid.along).place(f, f.add(first, r.index))
                tile(r.index, place, False, False)
            return
        for share in grid.shares():
            with f.loop(0, share.end - share.begin) as r:
                number = f.add(r.index, share.begin)
                tile(number, share.place(f, r.index), share.is_low, share.is_right)

    def _to_points(self, first: Int, rows: Int) -> None:
        """Emit the transform of a block of tiles to their points."""
        f, plan, scratch = self.f, self.plan, self.scratch
        at_once = channels_at_once(plan.channels)

        def tile(number: Int, place: Place, is_low: bool, is_right: bool) -> None:
            start, shape = window_of(self.emission, self.geometry, plan.channels, place)
            to = f.at(scratch.points, "float", f.mul(number, plan.steps))
            given = (start, *shape, scratch.zeros, scratch.passed, to, f.i64(plan.point_rows))
            key = (at_once, is_low, is_right)
            name = "winograd_bytes_to_points_{}_{:d}_{:d}".format(*key)
            f.call_part(name, lambda g: define_bytes_to_points(g, *key), *given)

        self._each(first, rows, tile)

    def _tile(self, m0: Int, rows: Int, n0: Int, columns: Int | None) -> None:
        """Emit one tile of the kernel: the products of every point, then the outputs of every tile."""
        f, plan = self.f, self.plan
        weights = self.emission.bodies.addresses[self.emission.problem.spec.product.b]
        b = f.at(weights, "float", f.mul(n0, plan.panel // PANEL))
        for line in range(0, SIDE, LINES):
            self._weights_to_points(b, line, columns)
            if not self.has_edges:
                self._products(line, range(SIDE), 0, rows, columns)
                continue
            for points in (range(EDGE_SIDE), range(EDGE_SIDE, SIDE)):
                have = [x for x in plan.grid.shares() if x.has(line, points.start)]
                begin, end = have[0].begin, have[-1].end
                self._products(line, points, begin, end - begin, columns)

        def outputs(number: Int, place: Place, is_low: bool, is_right: bool) -> None:
            sums = f.at(self.scratch.sums, "float", f.mul(number, plan.width))
            self._to_outputs(place, sums, n0, columns, is_low, is_right)

        self._each(m0, rows, outputs)

    def _weights_to_points(self, b: Value, line: int, columns: Int | None) -> None:
        """Emit the transform of a tile's weights to LINES lines of points."""
        f, plan = self.f, self.plan
        vectors = -(-(columns if isinstance(columns, int) else plan.width) // LANES)
        key = (plan.quads, plan.width, vectors, channels_at_once(plan.channels), line)
        name = "winograd_bytes_weights_{}_{}_{}_{}_{}".format(*key)
        given = (b, self.scratch.weights, f.i64(plan.panel))
        f.call_part(name, lambda g: define_weights_to_points(g, *key), *given)

    def _products(self, line: int, points: range, begin: int, rows: Int, columns: Int | None) -> None:
        """Emit the products of `rows` tiles from `begin` on at `points` of LINES lines."""
        f, plan, scratch = self.f, self.plan, self.scratch
        m, block = (rows, rows) if self.has_edges and isinstance(rows, int) else (plan.grid.total, plan.block)
        row_tiles = RowTiles(f, m, block, plan.steps, plan.width, self.tile, arithmetic_of(SHORT_PAIRS))
        row_tiles = row_tiles.for_columns(columns)
        strides = Strides(plan.steps, plan.width, plan.width, plan.steps, is_shared=True)
        vectors, arithmetic = row_tiles.used_vectors(columns), row_tiles.arithmetic
        kernels = MicroKernels(f, "point", strides, vectors, arithmetic=arithmetic)
        with f.loop(0, LINES) as i, f.loop(points.start, points.stop) as column:
            place = f.add(f.mul(i.index, SIDE), column.index)
            point = f.add(line * SIDE, place)
            weights = f.at(scratch.weights, "float", f.mul(place, plan.point_weights))
            first_row, first_sum = begin * plan.steps, begin * plan.width
            a = f.at(scratch.points, "float", f.add(f.mul(point, plan.point_rows), first_row))
            sums = f.at(scratch.sums, "float", f.add(f.mul(point, plan.point_sums), first_sum))
            row_tiles.from_cache(kernels, a, weights, rows, sums)

    def _to_outputs(
        self, place: Place, sums: Value, n0: Int, columns: Int | None, is_low: bool, is_right: bool
    ) -> None:
        """Emit the outputs of one tile and their epilogue."""
        f, plan, scratch, width = self.f, self.plan, self.scratch, self.plan.width
        used = f.i64(width if columns is None else columns)
        given = (sums, f.i64(plan.point_sums), scratch.passed, scratch.outputs, f.i64(width), used)
        f.call_part("winograd_bytes_to_outputs", define_points_to_outputs, *given)
        down, along = (EDGE_APART if is_edge else 1 for is_edge in (is_low, is_right))
        emit_outputs(self.emission, self.geometry, place, scratch.outputs, n0, columns, down, along)
