"""A Conv of bytes with 3 x 3 taps and stride 1 by Winograd's F(4 x 4, 3 x 3), in integers.

As `winograd`, with 36 products of i16 for 144 of bytes (`winograd_bytes_parts`); a step multiplies two of the
ones, four of the others. The sums are exact, so they are those of a product of patches: code of any size,
small images and other targets have that one, from the same weights. A block of tiles is taken to its points;
for the columns of one micro-kernel the weights are taken to a few lines of points at a time and multiplied,
and at last the epilogue runs over each tile's outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ....vm.program import Work
from ...llvm.abi import Generated, resolve
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES
from ..matmul.arithmetic import SHORT_PAIRS, VECTOR, arithmetic_of
from ..matmul.matmul import NARROW
from ..matmul.microkernel import MicroKernels
from ..matmul.problem import QUADS_LAYOUT, TOGETHER, problem_of
from ..matmul.product import Emission
from ..matmul.row_tiles import RowTiles
from ..matmul.schedules import PANEL, SCHEDULES, default_schedule, fits_registers
from ..matmul.strides import Strides
from .pixels import Geometry, geometry_of
from .spec import Conv
from .winograd import POINTS, Tiles, emit_outputs, is_plain, n_tiles, window_of
from .winograd_bytes_parts import (
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

QUAD = TOGETHER[QUADS_LAYOUT]
MOST_CHANNELS = 1024  # of which sums, 9 * 255 * 128 for each, are below 2^29 and hence exact
MAX_TILES, LEAST_TILES = 49, 24  # of a block
POINT_BYTES = 1024 * 1024  # of a block of tiles at their points
#: What takes as long as the products of so many pixels by bytes, if these cost as much: those of a tile; its
#: pixels to points, shared by all columns; its outputs, shared by all channels; the weights of a block.
PIXELS_OF_TILE, PIXELS_OF_INPUTS, PIXELS_OF_OUTPUTS, PIXELS_OF_WEIGHTS = 8, 46, 96, 28
GAIN = 1.05  # at least, as times are expected to be


def fits(f: Function, spec: Conv, sizes: Sequence[Int]) -> bool:
    """Whether a convolution goes by points: its sizes are known, and it is sooner done so on the target."""
    given, window = spec.product, spec.window
    is_3x3 = window.kernel == (TAPS, TAPS) and is_plain(window) and {*window.expansion, window.groups} == {1}
    if given.b_layout != QUADS_LAYOUT or not is_3x3 or spec.planes:
        return False
    channels, n = spec.buffers[given.a].shape[-1], resolve(given.n, sizes)
    tiles = n_tiles(f, spec, sizes)
    pixels = resolve(spec.buffers[given.a].shape[0], sizes)
    for size in window.out:
        pixels = f.mul(pixels, resolve(size, sizes))
    if not (isinstance(channels, int) and isinstance(n, int)):
        return False
    if not (isinstance(tiles, int) and isinstance(pixels, int)):
        return False
    if not n or channels % LEAST_CHANNELS or not 0 < channels <= MOST_CHANNELS:
        return False
    return f.quad_cost * pixels > GAIN * _cost(tiles, channels, n)


def _cost(tiles: int, channels: int, n: int) -> float:
    """Return how many pixels' products of bytes take as long."""
    around = PIXELS_OF_INPUTS / n + PIXELS_OF_OUTPUTS / channels
    return (PIXELS_OF_TILE + around) * tiles + PIXELS_OF_WEIGHTS * _blocks(tiles, channels)


def _blocks(tiles: int, channels: int) -> int:
    """Return into how many blocks tiles are split evenly."""
    limit = POINT_BYTES // (2 * POINTS * channels)
    return -(-tiles // max(LEAST_TILES, min(MAX_TILES, limit)))


@dataclass(frozen=True)
class Plan:
    """How `tiles` of all images are cut: blocks of `block`, `width` columns. Lengths are in elements of 32
    bits."""

    tiles: int
    block: int
    width: int
    channels: int

    @staticmethod
    def of(tiles: int, width: int, channels: int) -> Plan:
        """Return the plan for `tiles` tiles of all images."""
        return Plan(tiles, -(-tiles // _blocks(tiles, channels)), width, channels)

    @property
    def quads(self) -> int:
        """The quads of bytes of a pixel."""
        return self.channels // QUAD

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
        """The lengths of what `Scratch` has, in its order."""
        passed, outputs = PAIRS * POINTS * LANES, TILE**2 * self.width
        weights, sums = LINES * SIDE * self.point_weights, POINTS * self.point_sums
        return LANES, passed, outputs, weights, sums, POINTS * self.point_rows


@dataclass(frozen=True)
class Scratch:
    """Where scratch holds what: zeros, a tile between two passes, its outputs, weights at LINES lines of
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
    geometry, total = geometry_of(f, spec, sizes), n_tiles(f, spec, sizes)
    assert isinstance(geometry.channels, int) and isinstance(total, int)
    emission = Emission.open(f, replace(problem_of(f, spec, sizes, tile), groups=spec.window.groups))
    down, along = (f.ceildiv(size, TILE) for size in geometry.out)
    plan = Plan.of(total, emission.problem.width, QUAD * geometry.channels)
    row_tiles = RowTiles(f, total, plan.block, plan.steps, plan.width, tile, arithmetic_of(SHORT_PAIRS))
    scratch = Scratch.of(f, emission.scratch.sums, plan)
    kernel = BytesAtPoints(emission, spec, geometry, Tiles(total, down, along), plan, row_tiles, scratch)
    kernel.emit_tiles()
    return kernel.generated(name)


@dataclass(frozen=True)
class BytesAtPoints:
    """The state of one emission: a product's tiles, whose rows are tiles of outputs."""

    emission: Emission
    spec: Conv
    geometry: Geometry
    tiles: Tiles
    plan: Plan
    row_tiles: RowTiles
    scratch: Scratch

    @property
    def f(self) -> Function:
        """The kernel's function."""
        return self.emission.f

    def emit_tiles(self) -> None:
        """Emit the loop over the kernel's tiles: blocks, and the columns of one micro-kernel in each."""
        f, plan, emission = self.f, self.plan, self.emission
        f.store(Value(VECTOR, "zeroinitializer"), self.scratch.zeros, align=4)
        with f.loop(f.params[3], f.params[4]) as tile:
            panels = f.ceildiv(emission.problem.n, plan.width)
            block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
            first, n0 = f.mul(block, plan.block), f.mul(panel, plan.width)
            rows = f.minimum(plan.block, f.sub(plan.tiles, first))
            starts = emission.starts_block(tile.index, panel)
            f.either(starts, partial(self._to_points, first, rows), lambda: None)
            emission.by_columns(n0, partial(self._tile, first, rows, n0))

    def generated(self, name: str) -> Generated:
        """Return what the generator tells of the kernel."""
        product, plan = self.spec.product, self.plan
        work = 2 * POINTS * plan.block * plan.width * plan.steps
        epilogue = 8 * plan.block * TILE**2 * plan.width * len(product.epilogue)
        tiles = ((plan.tiles, plan.block), (product.n, plan.width))
        return Generated(Work(tiles, ((4 * sum(plan.lengths), ()),), ((work + epilogue, ()),)), name)

    def _to_points(self, first: Int, rows: Int) -> None:
        """Emit the transform of a block of tiles to their points."""
        f, plan, scratch = self.f, self.plan, self.scratch
        at_once = channels_at_once(plan.channels)
        name = f"winograd_bytes_to_points_{at_once}"
        with f.loop(0, rows) as r:
            place = self.tiles.place(f, f.add(first, r.index))
            start, shape = window_of(self.emission, self.geometry, plan.channels, place)
            to = f.at(scratch.points, "float", f.mul(r.index, plan.steps))
            given = (start, *shape, scratch.zeros, scratch.passed, to, f.i64(plan.point_rows))
            f.call_part(name, lambda g: define_bytes_to_points(g, at_once), *given)

    def _tile(self, m0: Int, rows: Int, n0: Int, columns: Int | None) -> None:
        """Emit one tile of the kernel: the products of every point, then the outputs of every tile."""
        f, plan = self.f, self.plan
        b = f.at(self.emission.bodies.addresses[self.spec.product.b], "float", f.mul(n0, plan.panel // PANEL))
        for line in range(0, SIDE, LINES):
            self._weights_to_points(b, line, columns)
            self._products(line, rows, columns)
        with f.loop(0, rows) as r:
            sums = f.at(self.scratch.sums, "float", f.mul(r.index, plan.width))
            self._to_outputs(f.add(m0, r.index), sums, n0, columns)

    def _weights_to_points(self, b: Value, line: int, columns: Int | None) -> None:
        """Emit the transform of a tile's weights to LINES lines of points."""
        f, plan = self.f, self.plan
        vectors = -(-(columns if isinstance(columns, int) else plan.width) // LANES)
        key = (plan.quads, plan.width, vectors, channels_at_once(plan.channels), line)
        name = "winograd_bytes_weights_{}_{}_{}_{}_{}".format(*key)
        given = (b, self.scratch.weights, f.i64(plan.panel))
        f.call_part(name, lambda g: define_weights_to_points(g, *key), *given)

    def _products(self, line: int, rows: Int, columns: Int | None) -> None:
        """Emit the products of LINES lines of points."""
        f, plan, scratch = self.f, self.plan, self.scratch
        row_tiles = self.row_tiles.for_columns(columns)
        strides = Strides(plan.steps, plan.width, plan.width, plan.steps, is_shared=True)
        vectors, arithmetic = row_tiles.used_vectors(columns), row_tiles.arithmetic
        kernels = MicroKernels(f, "point", strides, vectors, arithmetic=arithmetic)
        with f.loop(0, LINES * SIDE) as place:
            point = f.add(line * SIDE, place.index)
            weights = f.at(scratch.weights, "float", f.mul(place.index, plan.point_weights))
            a = f.at(scratch.points, "float", f.mul(point, plan.point_rows))
            sums = f.at(scratch.sums, "float", f.mul(point, plan.point_sums))
            row_tiles.from_cache(kernels, a, weights, rows, sums)

    def _to_outputs(self, tile: Int, sums: Value, n0: Int, columns: Int | None) -> None:
        """Emit the outputs of one tile and their epilogue."""
        f, plan, scratch, width = self.f, self.plan, self.scratch, self.plan.width
        used = f.i64(width if columns is None else columns)
        given = (sums, f.i64(plan.point_sums), scratch.passed, scratch.outputs, f.i64(width), used)
        f.call_part("winograd_bytes_to_outputs", define_points_to_outputs, *given)
        place = self.tiles.place(f, tile)
        emit_outputs(self.emission, self.geometry, place, scratch.outputs, n0, columns)
