"""The Conv family: a matmul whose rows of A are patches of an image.

A block of rows is an output range of any images and output rows joined, so narrow images fill register tiles
as wide ones do. Patches are read in place (`indirection`) or, where an image is expanded or rows must be
whole, copied into scratch a block at a time. The copy is contiguous along the channels, and along the last
axis' taps too where those lie side by side; it costs one load and store per vector of K against F / 16
multiply-adds per element of K. Nothing is padded in memory: what lies outside of the image is written as
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import numpy as np

from ...llvm.abi import Generated, Generator, check_schedule, resolve
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, tail_mask
from ...spec import Size, Terms
from ..matmul.arithmetic import F32, VECTOR
from ..matmul.matmul import _check, _Matmul, choose_schedule, fitting_schedules, pack_panels
from ..matmul.microkernel import PANEL, SCHEDULES, Schedule, load, tail
from ..matmul.row_tiles import Pieces, RowTiles
from . import depthwise, planes, winograd
from .depthwise import is_depthwise
from .indirection import Indirection, fits_indirection
from .spec import Conv
from .winograd_points import LAYOUT

UNROLL = 4  # vectors in one trip of a copy
SHORT = 2 * LANES  # elements that are copied without a loop
Tile = Callable[..., None]


def pack_groups(weight: np.ndarray, groups: int) -> np.ndarray:
    """Return a [K, N] weight as `pack_panels` does, each group's columns by themselves, one after another."""
    parts = [pack_panels(part) for part in np.split(weight, groups, axis=1)]
    return np.concatenate(parts) if groups > 1 else parts[0]


def emit(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv; see `abi.Generator`. Schedules: those of `microkernel`."""
    _check_window(spec)
    variant = next(variant for variant in VARIANTS if variant.fits(spec))
    return variant.emit(f, spec, sizes, schedule)


def _emit_product(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv as a product of its patches and the weights."""
    name = schedule or choose_schedule(f, spec, resolve(spec.m, sizes))
    check_schedule("conv", name, fitting_schedules(spec, f.has_tiles))
    _check(spec)
    return _Conv(f, spec, sizes, SCHEDULES[name]).emit(name)


def _emit_for_points(f: Function, spec: Conv, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Conv whose weights are packed for Winograd's: by taps where images are small. Code
    of any size has both ways."""
    winograd.check(spec)
    is_small = winograd.is_small(f, spec, sizes)
    if is_small is False:
        return winograd.emit(f, spec, sizes, schedule)
    rows = resolve(spec.m, sizes) if is_small is True else winograd.n_tiles(f, spec, sizes)
    name = schedule or choose_schedule(f, spec, rows)
    check_schedule("conv", name, fitting_schedules(spec, f.has_tiles))
    by_taps = _ByTaps(f, spec, sizes, SCHEDULES[name], is_alone=is_small is True)
    if is_small is True:
        return by_taps.emit(name)
    at_points = winograd.AtPoints(f, spec, sizes, SCHEDULES[name])
    generated, least = at_points.generated(name), (by_taps.scratch_bytes, ())
    f.either(is_small, lambda: by_taps.emit_shares(generated), at_points.emit_tiles)
    assert generated.scratch[0] >= least  # they lie in the same place
    return generated


@dataclass(frozen=True)
class Variant:
    """A way to compute a Conv: for which specs it is, and its generator."""

    fits: Callable[[Conv], bool]
    emit: Generator


#: The first one that fits is taken.
VARIANTS = (
    Variant(lambda spec: spec.planes, planes.emit),
    Variant(lambda spec: spec.b_layout == LAYOUT, _emit_for_points),
    Variant(is_depthwise, depthwise.emit),
    Variant(lambda spec: True, _emit_product),
)


def _check_window(spec: Conv) -> None:
    window, groups = spec.window, spec.window.groups
    axes = (window.out, window.kernel, window.stride, window.dilation, window.expansion, window.low)
    if {len(axis) for axis in axes} != {len(spec.buffers[spec.a].shape) - 2}:
        raise ValueError("conv kernel: its window must have an axis for each one of the image but N and C")
    if groups < 1 or (groups > 1 and not (isinstance(spec.n, int) and spec.n % groups == 0)):
        raise ValueError(f"conv kernel: {spec.n} output channels do not divide into {groups} groups")


def piece_of(spec: Conv) -> int:
    """Return the steps under each tap where the spec knows them, else 0: its sums are cut between taps."""
    channels = spec.buffers[spec.a].shape[-1]
    return channels // spec.window.groups if isinstance(channels, int) else 0


def _group_columns(spec: Conv) -> Size:
    """Return the columns of one group."""
    return spec.n // spec.window.groups if isinstance(spec.n, int) else spec.n


class _Conv(_Matmul):
    """The state of one emission: a group's tiles are those of a matmul, and groups are the outer loop."""

    lhs: Patches | Indirection  # type: ignore[assignment]
    together: int = 0

    def __init__(self, f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule) -> None:
        self.conv = spec
        self.taps = prod(spec.window.kernel) if fits_indirection(f, spec) else 0
        self.pieces = Pieces(piece_of(spec), self.taps, self.together)
        super().__init__(f, spec, sizes, schedule)
        self.group: Int = 0
        self.n = resolve(_group_columns(spec), sizes)
        self.batch = [spec.window.groups, *self.batch]
        if isinstance(self.lhs, Indirection):
            self.strides, self.row_strides = map(self.lhs.of, (self.strides, self.row_strides))
            if self.b is not None:
                self.in_place = self.lhs.of(self.in_place)

    def _lhs(self, sizes: Sequence[Int]) -> Patches | Indirection:  # type: ignore[override]
        f, spec = self.f, self.conv
        panel = f.mul(self.k, self.width) if self.has_copy else 0
        place = f.at(self.packed, "float", panel)
        image = self.bodies.addresses[spec.a]
        if self.taps:
            f.takes("indirection")
            return Indirection(f, spec, sizes, image, place, self.block)
        f.takes("patches")
        return Patches(f, spec, sizes, image, place, self.block)

    def _block(self, most: int) -> int:
        """Return the rows of a tile: where they are in the image, all that they are spread over counts."""
        channels = self.conv.buffers[self.conv.a].shape[-1]
        if not self.taps or not isinstance(channels, int):
            return super()._block(most)
        return self._even_block(channels * prod(self.conv.window.stride), most)

    def emit(self, name: str) -> Generated:
        spec = self.conv
        if isinstance(self.lhs, Indirection):
            self.lhs.clear()
        generated = super().emit(name)
        scratch = (*generated.scratch, *self.lhs.scratch())
        columns = (_group_columns(spec), self.width)
        tiles = ((spec.window.groups, 1), *generated.tiles[:-1], columns)
        return replace(generated, scratch=scratch, tiles=tiles)

    def _is_new_block(self, tile: Value, panel: Int) -> Value | bool:
        return self._starts_block(tile, panel)

    def _columns(self, batch: list[Int], m0: Int, rows: Int, panel: Int, n0: Int, tile: Tile) -> None:
        """Emit a tile of one group; its columns are counted through all groups."""
        f = self.f
        first, *outer = batch
        self.group = first if self.conv.window.groups > 1 else 0
        column = f.add(n0, f.mul(self.group, self.n))

        def shifted(batch: list[Int], m0: Int, rows: Int, panel: Int, n0: Int, columns: Int | None) -> None:
            tile(outer, m0, rows, panel, column, columns)

        super()._columns(batch, m0, rows, panel, n0, shifted)

    def _panels(self, panel: Int) -> Value:
        """Return the address of a group's panels, which are whole for each group."""
        f = self.f
        columns = f.mul(f.ceildiv(self.n, PANEL), PANEL)
        return f.at(super()._panels(panel), self.element, f.mul(self.group, f.mul(self.k, columns)))


class _ByTaps(_Conv):
    """The same with weights that are packed for Winograd's: all taps of a channel side by side.

    `is_alone`: the kernel has no other way, so its tiles are those of any matmul.
    """

    together = LANES
    lhs: Indirection

    def __init__(
        self, f: Function, spec: Conv, sizes: Sequence[Int], schedule: Schedule, is_alone: bool
    ) -> None:
        self.is_alone = is_alone
        super().__init__(f, spec, sizes, schedule)
        if not is_alone:  # shares have any number of rows
            given = (self.block, self.k, self.width, schedule, F32, self.pieces)
            self.rows = RowTiles(f, f.i64(self.m), *given)
        self.strides = self.rows.all_taps(self.strides, self.lhs.width, 0)

    @property
    def scratch_bytes(self) -> int:
        """The bytes of scratch, in a kernel for any size."""
        return self.sums_bytes + sum(count for count, _ in self.lhs.scratch())

    def _block(self, most: int) -> int:
        """Return the rows of a tile, or the most that small images have to another kernel's."""
        if self.is_alone:
            return super()._block(most)
        return winograd.PIXELS_OF_TILE * winograd.MAX_TILES + winograd.PIXELS_OF_WEIGHTS + 1

    def emit_shares(self, generated: Generated) -> None:
        """Emit the loop over another kernel's tiles, the last of which are the same columns: each block has
        its even share of all rows, cut where a batch loop goes on."""
        f = self.f
        self.lhs.clear()
        counts = [f.ceildiv(resolve(size, self.sizes), divisor) for size, divisor in generated.tiles[:-1]]
        n_blocks, total = (reduce(f.mul, factors) for factors in (counts, [*self.batch, self.m]))
        with f.loop(f.params[3], f.params[4]) as tile:
            panels = f.ceildiv(self.n, self.width)
            block, panel = f.udiv(tile.index, panels), f.urem(tile.index, panels)
            first, end = (f.udiv(f.mul(total, at), n_blocks) for at in (block, f.add(block, 1)))
            last = f.udiv(f.add(end, f.sub(self.m, 1)), self.m)
            with f.when(f.less(first, end)), f.loop(f.udiv(first, self.m), last) as at:
                start = f.mul(at.index, self.m)
                m0 = f.maximum(f.sub(first, start), 0)
                rows = f.sub(f.minimum(f.sub(end, start), self.m), m0)
                batch = f.unravel(at.index, self.batch[1:])
                self.lhs.prepare(batch, m0, rows)
                self._columns(batch, m0, rows, panel, f.mul(panel, self.width), self._tile)


class Patches:
    """A block of at most `block` rows of A in scratch at `place`: each one patch, `stride` elements apart.

    Construct it in the entry block.
    """

    def __init__(
        self, f: Function, spec: Conv, sizes: Sequence[Int], image: Value, place: Value, block: int
    ) -> None:
        self.f, self.spec, self.block = f, spec, block
        self.window = spec.window
        self.image = image
        self.place = place
        self.n_images, *self.extent, channels = (resolve(s, sizes) for s in spec.buffers[spec.a].shape)
        self.channels = channels
        self.width = f.udiv(channels, spec.window.groups)  # channels of a group
        self.out = [resolve(size, sizes) for size in spec.window.out]
        self.outer = [resolve(size, sizes) for size in spec.batch]
        self.m, self.k = resolve(spec.m, sizes), resolve(spec.k, sizes)
        self.stride = f.mul(f.ceildiv(self.k, LANES), LANES)
        dense = spec.window.groups == 1 and spec.window.dilation[-1] == spec.window.expansion[-1] == 1
        self.joins = dense and spec.window.kernel[-1] > 1  # the last axis' taps lie side by side

    def scratch(self) -> Terms:
        """Return the scratch (see `CodeObject`) that the rows take."""
        row = 4 * self.block
        return (row, (self.spec.k,)), (row * LANES + 4 * LANES, ())

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the address of row `m0`, the first of the block."""
        return self.place

    def prepare(self, batch: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the copy of `rows` rows from `m0` on; `batch`: the group and the batch loops."""
        f = self.f
        group, *outer = batch
        first = f.add(f.mul(f.ravel(outer, self.outer), self.m), m0)
        source = f.at(self.image, "float", f.mul(group, self.width))
        with f.loop(0, rows) as r:
            image, *position = f.unravel(f.add(first, r.index), self.out)
            row = f.at(self.place, "float", f.mul(r.index, self.stride))
            inside = f.op("i1", f"icmp ult i64 {f.i64(image).name}, {f.i64(self.n_images).name}")
            self._axis(0, position, source, row, image, inside)

    def _axis(
        self, axis: int, position: list[Int], source: Value, row: Value, before: Int, inside: Value
    ) -> None:
        """Emit the taps of `axis` and those after it.

        `before`: the image's row-major position over the axes so far; `inside`: it is within the image;
        `row`: where the taps' elements go.
        """
        f, window = self.f, self.window
        if axis == len(position):
            self._copy(source, row, before, inside, self.width)
            return
        start = f.sub(f.mul(position[axis], window.stride[axis]), window.low[axis])
        if axis == len(position) - 1 and self.joins:
            self._joined(start, source, row, before, inside)
            return
        taps = 1
        for size in window.kernel[axis + 1 :]:
            taps *= size
        step = f.mul(self.width, taps)
        with f.loop(0, window.kernel[axis]) as tap:
            place = f.add(start, f.mul(tap.index, window.dilation[axis]))
            at, within = self._place(axis, place)
            both = f.op("i1", f"and i1 {inside.name}, {within.name}")
            there = f.add(f.mul(before, self.extent[axis]), at)
            self._axis(axis + 1, position, source, f.at(row, "float", f.mul(tap.index, step)), there, both)

    def _place(self, axis: int, place: Int) -> tuple[Int, Value]:
        """Return (the element along `axis` that lies at `place`, whether there is one)."""
        f, expansion = self.f, self.window.expansion[axis]
        if expansion == 1:
            return place, self._within(axis, place)
        value = f.i64(place).name
        at = f.op("i64", f"sdiv i64 {value}, {expansion}")
        rest = f.op("i64", f"srem i64 {value}, {expansion}")
        whole = f.op("i1", f"icmp eq i64 {rest.name}, 0")
        return at, f.op("i1", f"and i1 {whole.name}, {self._within(axis, at).name}")

    def _within(self, axis: int, place: Int) -> Value:
        f = self.f
        return f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(self.extent[axis]).name}")

    def _joined(self, start: Int, source: Value, row: Value, before: Int, inside: Value) -> None:
        """Emit the taps of the last axis, one segment of the image where all of them are inside."""
        f, taps = self.f, self.window.kernel[-1]
        size = self.extent[-1]
        end = f.add(start, taps)
        low = f.op("i1", f"icmp sge i64 {f.i64(start).name}, 0")
        high = f.op("i1", f"icmp sle i64 {f.i64(end).name}, {f.i64(size).name}")
        whole = f.op("i1", f"and i1 {low.name}, {high.name}")
        apart = f.op("i1", f"xor i1 {whole.name}, true")
        line = f.mul(before, size)
        with f.when(whole):
            self._copy(source, row, f.add(line, start), inside, f.mul(self.width, taps))
        with f.when(apart), f.loop(0, taps) as tap:
            place = f.add(start, tap.index)
            both = f.op("i1", f"and i1 {inside.name}, {self._within(len(self.extent) - 1, place).name}")
            there = f.at(row, "float", f.mul(tap.index, self.width))
            self._copy(source, there, f.add(line, place), both, self.width)

    def _copy(self, source: Value, row: Value, element: Int, inside: Value, count: Int) -> None:
        """Emit the copy of `count` elements, from the pixel `element` on, or zeros if not `inside`.

        Up to LANES - 1 elements behind them are overwritten: of what is copied later, or of no account.
        """
        f = self.f
        address = f.at(source, "float", f.mul(element, self.channels))
        if isinstance(count, int) and count <= SHORT:
            self._copy_short(address, row, inside, count)
            return
        safe = f.select(inside, address, source)
        taken = f.select(inside, count, 0)
        f.call_part("copy_or_zero", _define_copy, row, safe, taken, f.i64(count))

    def _copy_short(self, address: Value, row: Value, inside: Value, count: int) -> None:
        """Emit the copy of a few vectors, in place of a call."""
        f = self.f
        bits = f.splat(inside, LANES)
        for place in range(0, count, LANES):
            there = tail_mask(f, min(count - place, LANES))
            mask = f.op(bits.type, f"and {bits.type} {bits.name}, {there.name}")
            value = load(f, f.at(address, "float", place), mask)
            f.store(value, f.at(row, "float", place), align=4)


def _define_copy(g: Function) -> None:
    """to[0 .. count rounded up to LANES) = from[0 .. taken), then zeros."""
    to, source, taken, count = g.params
    step = LANES * UNROLL
    many, whole = g.mul(g.udiv(taken, step), step), g.mul(g.udiv(taken, LANES), LANES)
    for begin, end, vectors in ((0, many, UNROLL), (many, whole, 1)):
        with g.loop(begin, end, LANES * vectors) as i:
            for v in range(vectors):
                at = g.add(i.index, LANES * v)
                value = g.load(VECTOR, g.at(source, "float", at), align=4)
                g.store(value, g.at(to, "float", at), align=4)
    with g.loop(whole, count, LANES) as i:
        value = load(g, g.at(source, "float", i.index), tail(g, g.sub(taken, i.index)))
        g.store(value, g.at(to, "float", i.index), align=4)
