"""A Conv of 3 x 3 taps and stride 1 by Winograd's F(4 x 4, 3 x 3), in layout `winograd`.

The outputs of an image are divided into tiles of 4 x 4, counted through all images. A block of tiles is
transformed to points: 36 matrices [tiles, C] in scratch. For the columns of one micro-kernel the weights,
packed like any convolution's, are also transformed to points, one line of points at a time, and multiplied;
then each tile's sums are transformed back to outputs, and the epilogue runs over them, row by row of the
image. Weights at their points would take 4 times as many bytes to store and read; transforming them costs a
tenth to a fifth of the products of a block. Every transform is a fixed sequence of FMAs; at a point, blocks
of up to 32 channels are each a chain of FMAs and are summed in order: the bits are the same on every tier.
The layout belongs to the spec; images that are too small for points go by taps (`conv`), which depends on the
size of one image if the spec leaves their number open.

An element that is not finite would affect all outputs of its tile. Such a tile is recomputed tap by tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import unread
from ...loops.bodies import LANES, splat
from ...spec import Size
from ..matmul.arithmetic import VECTOR, fill
from ..matmul.epilogue import RowTile
from ..matmul.matmul import choose_schedule
from ..matmul.microkernel import Into, MicroKernels
from ..matmul.problem import problem_of
from ..matmul.product import Emission
from ..matmul.row_shares import each_tile
from ..matmul.row_tiles import RowTiles
from ..matmul.schedules import PANEL, SCHEDULES, Schedule
from ..matmul.strides import UNROLL, Strides
from .pixels import Geometry, geometry_of
from .spec import Conv, Window
from .winograd_parts import GAP, define_by_taps, define_to_outputs, define_to_points, define_weights, line_of
from .winograd_points import SIDE, TAPS, TILE, transforms

POINT_BYTES = 1024 * 1024  # of a block of tiles at their points
MAX_TILES, LEAST_TILES = 48, 24  # of a block
TILES_OF_BLOCK = (6, 8)  # of a block in a kernel for any size: tile rows, tiles of a row
CHANNELS = 64  # of weights at a line of points, which the second-level cache should hold
FEW_TILES = 14  # in a block: its products are short, so weights stay in the first-level cache
CHANNELS_OF_FEW = 16
CHAIN = 32  # at most, channels that a point sums in one chain: at 64 errors are 1.3 times as large
POINTS = SIDE**2
PIXELS_OF_TILE, PIXELS_OF_WEIGHTS = (
    7,
    28,
)  # by taps, equal in cost to a tile's products, to weights' transform
USUAL_IMAGES = 4  # assumed for the choice if a batch may have any number
SHARING = 2  # row tiles that prefetch the weights of the next channels


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of such a Conv; see `abi.Generator`. Schedules: those of `schedules`."""
    name = schedule or choose_schedule(f, spec, n_tiles(f, spec, sizes))
    check_schedule("conv", name, list(SCHEDULES))
    kernel = at_points(f, spec, sizes, SCHEDULES[name])
    kernel.emit_tiles()
    return kernel.generated(name)


def is_small(f: Function, spec: Conv, sizes: Sequence[Int]) -> Value | bool:
    """Whether images are so small that products by taps are faster: weights at their points serve few tiles,
    of which some are partly outside. Measured with 128 to 512 channels, 4 to 16 tiles.

    The number of images counts only if the spec fixes it. Otherwise an image would have different bits in
    another batch, so the choice for any number is that for USUAL_IMAGES.
    """
    n_images = spec.buffers[spec.product.a].shape[0]
    images = n_images if isinstance(n_images, int) else USUAL_IMAGES
    out = [resolve(size, sizes) for size in spec.window.out]
    down = [f.ceildiv(size, TILE) for size in out]
    pixels, tiles = (reduce(f.mul, factors, f.mul(images, 1)) for factors in (out, down))
    limit = f.add(f.mul(tiles, PIXELS_OF_TILE), PIXELS_OF_WEIGHTS)
    if isinstance(pixels, int) and isinstance(limit, int):
        return pixels < limit
    return f.less(pixels, limit)


def is_plain(window: Window) -> bool:
    """Whether taps and outputs are adjacent, as Winograd's algorithm requires. Other windows go by taps."""
    return {*window.stride, *window.dilation} == {1}


def check(spec: Conv) -> None:
    """Refuse specs that cannot have this layout."""
    given = spec.product
    window, channels = spec.window, spec.buffers[given.a].shape[-1]
    if window.kernel != (TAPS, TAPS) or {*window.expansion, window.groups} != {1}:
        raise ValueError("conv kernel: winograd is for 3 x 3 taps in one group")
    if not isinstance(channels, int) or channels % LANES or not channels:
        raise ValueError(f"conv kernel: winograd is for channels in multiples of {LANES}")
    weight = spec.buffers[given.b]
    if weight.dtype != "f32" or weight.shape[1:] != (TAPS * TAPS * channels, PANEL):
        raise ValueError("conv kernel: winograd is for weights in f32, in panels of all taps")


def block_of_channels(channels: int) -> int:
    """Return how many channels are summed in one chain at a point; such blocks are summed in f32."""
    at_once = _channels_at_once(channels)
    return _greatest_part(at_once, CHAIN)


def _channels_at_once(channels: int) -> int:
    """Return how many channels' weights are at points at a time: few blocks, whose parts are not small."""
    parts = (n for n in range(1, CHANNELS + 1) if channels % n == 0)
    return max(n for n in parts if 2 * _greatest_part(n, CHANNELS_OF_FEW) >= min(n, CHANNELS_OF_FEW))


def _greatest_part(whole: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if whole % n == 0)


def n_tiles(f: Function, spec: Conv, sizes: Sequence[Int]) -> Int:
    """Return the tiles of all images."""
    count = resolve(spec.buffers[spec.product.a].shape[0], sizes)
    for size in spec.window.out:
        count = f.mul(count, f.ceildiv(resolve(size, sizes), TILE))
    return count


class _Products(RowTiles):
    """The products of one point: row tiles like a matmul's, each into its part of the point's sums."""

    def multiply(
        self, kernels: MicroKernels, a: Value, b: Value, rows: Int, sums: Value, ahead: Value, size: int
    ) -> None:
        """Leave the products of `rows` rows in `sums`; meanwhile prefetch `size` cache lines from `ahead` on.

        Up to SHARING row tiles prefetch evenly; the others prefetch near data.
        """
        f = self.f
        n = -(-self.block // self.most) if isinstance(self.m, int) else 1
        share = -(-size // min(n, SHARING))
        steps = kernels.strides.k
        assert isinstance(steps, int)
        lines = -(-share // max(steps // UNROLL, 1))

        def place_of(number: Int) -> Value:
            here = unread(f, ahead, f.mul(number, share * kernels.line))
            is_asking = f.is_less(number, min(n, SHARING))
            return f.select(is_asking, here, b) if isinstance(is_asking, Value) else here

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = f.at(a, "float", f.mul(begin, kernels.strides.lda))
            place = f.at(sums, "float", f.mul(begin, self.width))
            self._call(kernels, count, left, b, place, lambda _: place_of(number), lines)

        each_tile(f, rows, self.most, row_tile)


@dataclass(frozen=True)
class Plan:
    """The division of tiles: blocks of `block` of them, `width` columns; sums over `channels` in chains of
    `chain`, of which `chunk` have their weights at points at a time."""

    block: int
    width: int
    channels: int
    chain: int
    chunk: int

    @staticmethod
    def of(n_tiles: Int, width: int, channels: int) -> Plan:
        """Return the plan for `n_tiles` tiles of all images, from the sizes alone."""
        block, chain = _tiles_of_block(n_tiles, channels), block_of_channels(channels)
        chunk = _greatest_part(chain, CHANNELS_OF_FEW) if block <= FEW_TILES else _channels_at_once(channels)
        return Plan(block, width, channels, chain, chunk)

    @property
    def panel(self) -> int:
        """The elements of a panel of weights."""
        return TAPS * TAPS * self.channels * PANEL

    @property
    def point_sums(self) -> int:
        """The floats from one point's sums to the next's."""
        return self.block * self.width + GAP

    @property
    def point_weights(self) -> int:
        """The floats from one point's weights to the next's."""
        return self.chunk * self.width + GAP

    @property
    def point_rows(self) -> int:
        """The floats from one point's rows to the next's."""
        return self.block * self.channels + GAP

    @property
    def n_chains(self) -> int:
        """The floats of chains that are not yet added to the sums."""
        is_cut = self.chunk < self.chain < self.channels
        return POINTS * self.point_sums if is_cut else 0

    @property
    def floats(self) -> int:
        """The floats of scratch: see `Scratch`."""
        lines = LANES * (2 + SIDE * TAPS + POINTS) + TILE**2 * self.width
        points = SIDE * self.point_weights + POINTS * (self.point_sums + self.point_rows)
        return lines + points + self.n_chains


def _tiles_of_block(n_tiles: Int, channels: int) -> int:
    """Return the tiles of a block, from the sizes alone: evenly split if their number is known."""
    if not isinstance(n_tiles, int):
        return TILES_OF_BLOCK[0] * TILES_OF_BLOCK[1]
    limit = max(LEAST_TILES, min(MAX_TILES, POINT_BYTES // (4 * POINTS * channels)))
    return -(-n_tiles // max(-(-n_tiles // limit), 1)) or 1


@dataclass(frozen=True)
class Scratch:
    """The layout of scratch: zeros, the flag of an output that is not finite, the factors of the weights'
    transform, a tile between two passes, its outputs, weights at a line of points, chains that are not yet
    added, all sums, all points."""

    zeros: Value
    flag: Value
    factors: Value
    passed: Value
    outputs: Value
    weights: Value
    chains: Value
    sums: Value
    points: Value

    @staticmethod
    def of(f: Function, place: Value, plan: Plan) -> Scratch:
        """Return the layout that begins at `place`; call in the entry block."""
        places = [place]
        for floats in (
            LANES, LANES, SIDE * TAPS * LANES, POINTS * LANES, TILE**2 * plan.width,
            SIDE * plan.point_weights, plan.n_chains, POINTS * plan.point_sums,
        ):  # fmt: skip
            places.append(f.at(places[-1], "float", floats))
        return Scratch(*places)


def at_points(f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule) -> AtPoints:
    """Return the emission of a kernel at points; call in the entry block."""
    f.takes("winograd")
    geometry = geometry_of(f, spec, sizes)
    assert isinstance(geometry.channels, int)
    down, along = (f.ceildiv(size, TILE) for size in geometry.out)
    problem = replace(problem_of(f, spec, sizes, schedule), groups=spec.window.groups)
    emission = Emission.open(f, problem)
    count = n_tiles(f, spec, sizes)
    plan = Plan.of(count, problem.width, geometry.channels)
    row_tiles = _Products(f, count, plan.block, geometry.channels, problem.width, schedule)
    scratch = Scratch.of(f, emission.scratch.sums, plan)
    return AtPoints(emission, spec, geometry, Tiles(count, down, along), plan, row_tiles, scratch)


Place = tuple[Int, Int, Int]  # of a tile's outputs: image, first row, first column


class Tiles(NamedTuple):
    """The numbers of tiles: in all images, down an image, along a line of it."""

    total: Int
    down: Int
    along: Int

    def place(self, f: Function, tile: Int) -> Place:
        """Return (image, first row, first column) of a tile's outputs."""
        line = f.udiv(tile, self.along)
        row, column = f.urem(line, self.down), f.urem(tile, self.along)
        return f.udiv(line, self.down), f.mul(row, TILE), f.mul(column, TILE)


@dataclass(frozen=True)
class AtPoints:
    """The state of one emission: a product's tiles, whose rows are tiles of outputs."""

    emission: Emission
    spec: Conv
    geometry: Geometry
    tiles: Tiles
    plan: Plan
    row_tiles: _Products
    scratch: Scratch

    @property
    def f(self) -> Function:
        """The kernel's function."""
        return self.emission.f

    def emit_tiles(self) -> None:
        """Emit the loop over the kernel's tiles: blocks, and the columns of one micro-kernel in each."""
        f = self.f
        f.store(Value(VECTOR, "zeroinitializer"), self.scratch.zeros, align=4)
        for i, factor in enumerate(transforms().taps.ravel()):
            f.store(splat(f, "f32", factor), line_of(f, self.scratch.factors, i), align=4)
        with f.loop(f.params[3], f.params[4]) as tile:
            panels = f.ceildiv(self.emission.problem.n, self.plan.width)
            block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
            first, rows = self._range(block)
            f.either(
                self.emission.starts_block(tile.index, panel),
                lambda: self._to_points(first, rows),
                lambda: None,
            )
            n0 = f.mul(panel, self.plan.width)
            self.emission.by_columns(n0, partial(self._tile, first, rows, n0))

    def generated(self, name: str) -> Generated:
        """Return the generator's description of the kernel."""
        spec, plan = self.spec, self.plan
        work = 2 * POINTS * plan.block * plan.width * plan.channels
        epilogue = 8 * plan.block * TILE**2 * plan.width * len(spec.product.epilogue)
        return Generated(Work(self._blocks(), ((4 * plan.floats, ()),), ((work + epilogue, ()),)), name)

    def _blocks(self) -> tuple[tuple[Size, int], ...]:
        """Return the kernel's tiles. For any size: as many blocks as rectangles of TILES_OF_BLOCK that cover
        the images, at least as many as blocks of that many tiles, each with an even share."""
        columns = (self.spec.product.n, self.plan.width)
        if isinstance(self.tiles.total, int):
            return ((self.tiles.total, self.plan.block), columns)
        height, width = (tiles * TILE for tiles in TILES_OF_BLOCK)
        out = self.spec.window.out
        return (
            (self.spec.buffers[self.spec.product.a].shape[0], 1),
            (out[0], height),
            (out[1], width),
            columns,
        )

    def _range(self, block: Int) -> tuple[Int, Int]:
        """Return (first tile, tiles) of a block."""
        f = self.f
        if isinstance(self.tiles.total, int):
            if self.tiles.total <= self.plan.block:
                return 0, self.tiles.total
            first = f.mul(block, self.plan.block)
            return first, f.minimum(self.plan.block, f.sub(self.tiles.total, first))
        sides = (self.tiles.down, self.tiles.along)
        high, wide = (f.ceildiv(x, n) for x, n in zip(sides, TILES_OF_BLOCK, strict=True))
        count = f.mul(self.geometry.n_images, f.mul(high, wide))
        first, end = (f.udiv(f.mul(self.tiles.total, at), count) for at in (block, f.add(block, 1)))
        return first, f.sub(end, first)

    def _source(self, tile: Int) -> tuple[Value, list[Value], Place]:
        """Return (the image, the start of the tile's window and the image's sizes, the tile's position)."""
        place = self.tiles.place(self.f, tile)
        return *window_of(self.emission, self.geometry, self.plan.channels, place), place

    def _to_points(self, first: Int, rows: Int) -> None:
        """Emit the transform of a block of tiles to their points."""
        f, scratch = self.f, self.scratch
        with f.loop(0, rows) as r:
            start, shape, _ = self._source(f.add(first, r.index))
            to = f.at(scratch.points, "float", f.mul(r.index, self.plan.channels))
            part = "winograd_to_points"
            given = (start, *shape, scratch.zeros, scratch.passed, to, f.i64(self.plan.point_rows))
            f.call_part(part, define_to_points, *given)

    def _tile(self, m0: Int, rows: Int, n0: Int, columns: Int | None) -> None:
        """Emit one tile of the kernel: the products of every point, then the outputs of every tile."""
        f, plan = self.f, self.plan
        b = f.at(self.emission.bodies.addresses[self.spec.product.b], "float", f.mul(n0, plan.panel // PANEL))
        block, chunk = plan.chain, plan.chunk
        if chunk < plan.channels:
            start = 0.0 if block == plan.channels else -0.0
            fill(f, self.scratch.sums, POINTS * plan.point_sums, start)

        def lines(channel: Int, into: Into) -> None:
            with f.loop(0, SIDE) as line:
                after = self._weights_to_points(b, channel, line.index, columns)
                self._products(channel, line.index, rows, columns, after, into)

        with f.loop(0, plan.channels, max(block, chunk)) as first:
            if chunk >= block:
                lines(first.index, Into.CHAIN if chunk == plan.channels else Into.ADDED)
            elif block == plan.channels:
                with f.loop(0, block, chunk) as part:
                    lines(part.index, Into.GOES_ON)
            else:
                lines(first.index, Into.CHAIN)
                with f.loop(chunk, block - chunk, chunk) as part:
                    lines(f.add(first.index, part.index), Into.GOES_ON)
                lines(f.add(first.index, block - chunk), Into.ENDS)
        with f.loop(0, rows) as r:
            sums = f.at(self.scratch.sums, "float", f.mul(r.index, plan.width))
            self._to_outputs(f.add(m0, r.index), sums, b, n0, columns)

    def _products(
        self, channel: Int, line: Int, rows: Int, columns: Int | None, after: Value, into: Into
    ) -> None:
        """Emit the products of a line of points, of a chunk of channels.

        All points together prefetch the next weights, at `after`: each its part of a panel's.
        """
        f, plan, scratch = self.f, self.plan, self.scratch
        sharing = POINTS * PANEL // plan.width  # points to a panel
        part = plan.chunk * TAPS * TAPS * PANEL // sharing
        block = plan.chain if plan.chain < plan.chunk else 0
        strides = Strides(plan.channels, plan.width, plan.width, plan.chunk, block=block, is_shared=True)
        name, n_chains = f"point_{into.name.lower()}", plan.n_chains
        row_tiles = self.row_tiles.for_columns(columns)
        used = row_tiles.used_vectors(columns)
        kernels = MicroKernels(f, name, strides, used, into, totals=n_chains)
        with f.loop(0, SIDE) as place:
            point = f.add(f.mul(line, SIDE), place.index)
            weights = f.at(scratch.weights, "float", f.mul(place.index, plan.point_weights))
            a = f.at(scratch.points, "float", f.add(f.mul(point, plan.point_rows), channel))
            chains = scratch.chains if n_chains else scratch.sums
            sums = f.at(chains, "float", f.mul(point, plan.point_sums))
            panel, number = f.udiv(point, sharing), f.urem(point, sharing)
            ahead = unread(f, after, f.add(f.mul(panel, plan.panel), f.mul(number, part)))
            row_tiles.multiply(kernels, a, weights, rows, sums, ahead, -(-part // kernels.line))

    def _weights_to_points(self, b: Value, channel: Int, line: Int, columns: Int | None) -> Value:
        """Emit the transform of a tile's weights, a chunk of channels, to one line of points; return the
        address of the next ones."""
        f, plan, row = self.f, self.plan, TAPS * TAPS * PANEL
        vectors = -(-(columns if isinstance(columns, int) else plan.width) // LANES)
        ends = f.less(f.add(channel, plan.chunk), plan.channels)
        to_tile = f.sub(plan.panel * (plan.width // PANEL), f.mul(channel, row))
        after = f.select(ends, row * plan.chunk, to_tile)
        here = f.at(b, "float", f.mul(channel, row))
        given = (here, f.i64(line), self.scratch.factors, self.scratch.weights, f.i64(plan.panel))
        key = (plan.chunk, plan.width, vectors)
        name = "winograd_weights_{}_{}_{}".format(*key)
        f.call_part(name, lambda g: define_weights(g, *key), *given)
        return unread(f, here, after)

    def _to_outputs(self, tile: Int, sums: Value, b: Value, n0: Int, columns: Int | None) -> None:
        """Emit the outputs of one tile and their epilogue."""
        f, plan, scratch, width = self.f, self.plan, self.scratch, self.plan.width
        start, shape, place = self._source(tile)
        outputs = (scratch.outputs, f.i64(width), f.i64(width if columns is None else columns))
        given = (sums, f.i64(plan.point_sums), scratch.passed, *outputs, scratch.flag)
        f.call_part("winograd_to_outputs", define_to_outputs, *given)
        flag = f.load("i64", scratch.flag, align=8)
        with f.when(f.op("i1", f"icmp ne i64 {flag.name}, 0")):
            again = (start, *shape, b, f.i64(plan.panel), *outputs)
            f.call_part("winograd_by_taps", define_by_taps, *again)
        emit_outputs(self.emission, self.geometry, place, scratch.outputs, n0, columns)


def window_of(
    emission: Emission, geometry: Geometry, channels: int, place: Place
) -> tuple[Value, list[Value]]:
    """Return (the image, the start of the window of the tile at `place` and the image's sizes)."""
    f, spec = emission.f, emission.problem.spec
    image, *corner = place
    shape = (*geometry.extent, channels)
    element = DTYPES[spec.buffers[spec.product.a].dtype].memory
    pixels = f.mul(shape[0], f.mul(*shape[1:]))
    start = f.at(emission.bodies.addresses[spec.product.a], element, f.mul(image, pixels))
    first = (f.sub(at, low) for at, low in zip(corner, geometry.window.low, strict=True))
    return start, [f.i64(v) for v in (*first, *shape)]


def emit_outputs(
    emission: Emission, geometry: Geometry, place: Place, outputs: Value, n0: Int, columns: Int | None,
    down: int = 1, along: int = 1,
) -> None:  # fmt: skip
    """Emit the epilogue of the outputs of the tile at `place`, those that are in the image. Of TILE x TILE
    outputs each `down`th, `along`th one counts."""
    f, width = emission.f, emission.problem.width
    (image, y, x), (height, across) = place, geometry.out
    count = f.minimum(TILE, f.sub(across, x))
    with f.loop(0, f.minimum(TILE, f.sub(height, y)), nonempty=True) as line:
        first = f.add(f.mul(f.add(f.mul(image, height), f.add(y, line.index)), across), x)
        at = f.at(outputs, "float", f.mul(line.index, down * TILE * width))
        *batch, m0 = geometry.loops_at(f, first)
        emission.epilogue.emit(RowTile(batch, m0, count, n0, columns), at, along * width)
