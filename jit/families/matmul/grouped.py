"""Weights of small integers with a scale for each group of successive steps of a column.

B is stored in panels of PANEL columns. A panel is a sequence of groups: the rows of its steps, each of PANEL
4-bit or 8-bit integers, followed by the PANEL scales in f32. So a panel is read once, from front to back. For
4-bit integers, byte j of a row holds column j in its low half and column j + LANES in its high half. If A is
u8, or f32 in limbs (`digits`), a row has FOUR adjacent steps of each column, if it is f32 in i16 (`shorts`)
PAIR of them, and 4-bit integers are stored plus 8; for limbs 8-bit integers are u8, with 128 added.

If A is f32, halves of bytes are two's complements, and kernels multiply the integers times the powers of two
of UNITS, to which they convert in the fewest instructions: a low half is shifted to the top of 32 bits, a
high one is masked where it lies. Scales are stored divided by these. No bit changes, but a sum of low halves
overflows from 2^100 on; a weight with scales that would lose bits is stored in 8-bit integers.

A group's products are added by fused multiply-adds from 0, k rising, or exactly if A is bytes. Their sum
times the scale is added to the sum of the previous groups by one more multiply-add. Totals of GROUP groups
are summed like those of blocks (`sums`). Few rows multiply the integers as they are read; many read copies of
a few groups in f32, or in bytes, in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...llvm.dtypes import vector
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import unread
from ...llvm.vector import AVX512_BYTES, Vec
from ...loops.bodies import LANES
from .arithmetic import DIGITS, F32, QUADS, SHORT_PAIRS, VECTOR, Arithmetic, Digits, Quads, Shorts
from .byte_dots import BYTES
from .microkernel import Into, MicroKernels
from .row_shares import dispatch, each_tile
from .row_tiles import Finish
from .schedules import PANEL, Schedule
from .strides import ROOM_OF_PLANES, Strides
from .sums import GROUP

SIZES = (16, 32, 64, 128)  # steps of a group
NIBBLE, BYTE = "i4", "i8"
ROW_BYTES = {NIBBLE: PANEL // 2, BYTE: PANEL}
SCALES_BYTES = 4 * PANEL
COPIED_STEPS = 128  # of a panel that are widened at once: copies, of 4 bytes, fill half a first-level cache
AHEAD_BYTES = 4096  # of a panel that are prefetched, if at all: whole groups, at least one
PAIR = 2  # steps that are multiplied together if A is f32 in i16
FOUR = 4  # the same if A is u8, or limbs
MIDDLE = 8  # added to a 4-bit integer
MIDDLES = {NIBBLE: MIDDLE, BYTE: 128}  # and to others to make them u8
NIBBLES = range(-MIDDLE, MIDDLE)
UNITS = (1 << 28, 1 << 4)  # of integers in the low and the high halves of bytes that multiply f32
HIGH = 2**23  # as f32: bit 0 of its fraction has the value 1
HIGH_BITS = int(np.float32(HIGH).view(np.int32))
Emit = Callable[[Value, Value], None]


@dataclass(frozen=True)
class Groups:
    """The layout of a panel: `count` groups of `steps` steps of integers of `dtype`, each with scales.
    `together`: adjacent steps of a column, 1, PAIR or FOUR. `planes`: the rows of limbs that represent a row
    of A; 1: it is not split."""

    dtype: str
    steps: int
    count: int
    together: int = 1
    planes: int = 1

    @property
    def has_units(self) -> bool:
        """Whether integers are multiplied times UNITS."""
        return self.dtype == NIBBLE and self.together == 1

    @property
    def units(self) -> np.ndarray:
        """The units of the integers of a panel's columns, in f32."""
        units = np.repeat(np.array(UNITS, np.float32), LANES)
        return units if self.has_units else np.ones_like(units)

    @property
    def rows(self) -> int:
        """The rows of a group."""
        return self.steps // self.together

    @property
    def in_shorts(self) -> bool:
        """Whether a row of A is f32 that is represented by i16 (`shorts`)."""
        return self.together == PAIR

    @property
    def is_represented(self) -> bool:
        """Whether a row of A is represented by integers, in scratch."""
        return self.planes > 1 or self.in_shorts

    @property
    def left(self) -> int:
        """The 4-byte elements of a row of A, or of all of its limbs, for a group, including the initial
        values of sums, and their factor, after integers that represent it."""
        if self.in_shorts:
            return self.rows + 2
        return self.rows if self.planes == 1 else ROOM_OF_PLANES * (self.rows + 1)

    def most_rows(self, tile: Schedule, vectors: int) -> int:
        """Return the most rows of `vectors` vectors whose sums fit in the registers of a tile. In i16 a
        product needs a register before it is added, and so do the widened vectors of B."""
        sums = tile.rows * tile.vectors
        return max(1, (sums * 2 // 3 if self.in_shorts else sums) // (vectors * self.planes))

    def dots(self, rows: int) -> int:
        """Return the vectors of products of a line of B with `rows` rows of limbs; 0: without limbs."""
        return rows * self.planes * (2 if self.dtype == NIBBLE else 1) if self.planes > 1 else 0

    def ahead(self, f: Function, b: Value) -> tuple[Value, int, bool]:
        """Return a micro-kernel's prefetches while it reads a group at `b`, and their kind
        (`MicroKernels.call`): with limbs arithmetic is slower than memory, so prefetches cost nothing."""
        if self.planes == 1:
            return b, 0, False
        return unread(f, b, max(1, AHEAD_BYTES // self.bytes) * self.bytes, "i8"), 0, True

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return ROW_BYTES[self.dtype] * self.together

    @property
    def bytes(self) -> int:
        """The bytes of a group."""
        return self.rows * self.row_bytes + SCALES_BYTES

    @property
    def copied(self) -> int:
        """The most groups of which there are copies at once."""
        return max(1, min(self.count, COPIED_STEPS // self.rows))

    @property
    def panel_bytes(self) -> int:
        """The bytes of a panel."""
        return self.count * self.bytes

    @property
    def arithmetic(self) -> Arithmetic:
        """How the integers are multiplied as they are read."""
        if self.planes > 1:
            return NibbleDigits(DIGITS) if self.dtype == NIBBLE else Digits(DIGITS)
        if self.together == FOUR:
            return NibbleQuads(QUADS) if self.dtype == NIBBLE else Quads(QUADS)
        if self.in_shorts:
            return NibbleShorts(SHORT_PAIRS) if self.dtype == NIBBLE else ByteShorts(SHORT_PAIRS)
        return Nibbles(NIBBLE) if self.dtype == NIBBLE else Arithmetic(BYTE)

    @property
    def is_widened(self) -> bool:
        """Whether the integers are converted when they are read, which is free with limbs."""
        return self.planes == 1 and (self.dtype == NIBBLE or self.together < FOUR)

    @property
    def of_copies(self) -> Arithmetic:
        """How the integers of a copy are multiplied: f32, bytes by bytes, or i16 by i16."""
        if self.in_shorts:
            return Shorts(SHORT_PAIRS)
        return Quads(QUADS) if self.together == FOUR else F32


def groups_of(k: int, count: int, n_bytes: int, together: int = 1, planes: int = 1) -> Groups | None:
    """Return the layout of `count` groups of `n_bytes` bytes each for `k` steps, None if it is invalid."""
    steps = k // count if count else 0
    found = [Groups(dtype, steps, count, together, planes) for dtype in ROW_BYTES]
    fits = steps in SIZES and steps * count == k
    return next((groups for groups in found if fits and groups.bytes == n_bytes), None)


# Packing --------------------------------------------------------------------------------------------------


def dtype_for(integers: np.ndarray, scales: np.ndarray | None = None) -> str:
    """Return the narrowest dtype of a weight of byte integers. `scales`: if they are divided by UNITS."""
    has_few_bits = not integers.size or (integers.min() in NIBBLES and integers.max() in NIBBLES)
    unit = np.float32(UNITS[0])
    keeps_scales = scales is None or np.array_equal(scales.astype(np.float32) / unit * unit, scales)
    return NIBBLE if has_few_bits and keeps_scales else BYTE


def pack_grouped(integers: np.ndarray, scales: np.ndarray, together: int = 1, planes: int = 1) -> np.ndarray:
    """Return i8 [K, N] with f32 scales [groups, N] as u8 [ceil(N / PANEL), groups, bytes of a group]."""
    (k, n), count = integers.shape, scales.shape[0]
    dtype = dtype_for(integers, scales if together == 1 else None)
    groups = Groups(dtype, k // count, count, together, planes)
    missing, panels = ((0, 0), (0, -n % PANEL)), -(-n // PANEL)
    rows = np.pad(integers, missing).reshape(count, groups.rows, together, panels, PANEL)
    rows = rows.transpose(3, 0, 1, 4, 2)  # [panels, count, rows, PANEL, together]
    if groups.dtype == NIBBLE:
        halves = (rows if groups.has_units else rows + np.int8(MIDDLE)).astype(np.uint8) & np.uint8(15)
        rows = halves[..., :LANES, :] | halves[..., LANES:, :] << 4
    elif planes > 1:
        rows = rows ^ np.int8(-128)  # 128 added, as u8
    factors = np.pad(scales.astype("<f4"), missing).reshape(count, panels, PANEL).swapaxes(0, 1)
    factors = factors / groups.units
    packed = np.empty((panels, count, groups.bytes), np.uint8)
    cut = groups.bytes - SCALES_BYTES
    packed[..., :cut] = rows.reshape(panels, count, cut).view(np.uint8)
    packed[..., cut:] = np.ascontiguousarray(factors).view(np.uint8)
    return packed


def unpacked(
    packed: np.ndarray, k: int, n: int, together: int = 1, planes: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers [K, N] and the scales [groups, N] of a result of `pack_grouped`."""
    panels, count, n_bytes = packed.shape
    groups = groups_of(k, count, n_bytes, together, planes)
    assert groups is not None
    cut = groups.bytes - SCALES_BYTES
    rows = packed[..., :cut].reshape(panels, count, groups.rows, groups.row_bytes // together, together)
    if groups.dtype == NIBBLE:
        rows = np.concatenate([rows & 15, rows >> 4], axis=-2) ^ np.uint8(MIDDLE if groups.has_units else 0)
        rows = rows.astype(np.int8) - np.int8(MIDDLE)
    elif planes > 1:
        rows = rows ^ np.uint8(128)
    scales = np.ascontiguousarray(packed[..., cut:]).view("<f4") * groups.units
    integers = rows.view(np.int8).transpose(1, 2, 4, 0, 3).reshape(k, panels * PANEL)
    return integers[:, :n], scales.swapaxes(0, 1).reshape(count, panels * PANEL)[:, :n]


# Code -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nibbles(Arithmetic):
    """f32 times 4-bit integers in their UNITS, two vectors of which are in LANES bytes. An element of B is a
    byte."""

    @property
    def element(self) -> str:
        """A byte, which holds two integers."""
        return "i8"

    @property
    def bytes(self) -> int:
        """See `element`."""
        return 1

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """See Arithmetic: of whole panels, each of two vectors."""
        found = []
        for place in places[::2]:
            narrow = g.load(vector("i8", LANES), g.at(b, "i8", place), align=1)
            both = Vec(g, narrow).convert("sext", "i32")
            found += [_of_low_halves(both), _of_high_halves(both)]
        return found


@dataclass(frozen=True)
class NibbleQuads(Quads):
    """u8 times 4-bit integers, four a lane: two vectors of them are in the bytes of one vector."""

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """See Nibbles."""
        return _as_floats(g, (half - MIDDLE for half in _halves(g, b, self.element, places)))


@dataclass(frozen=True)
class NibbleDigits(Digits):
    """i8 times 4-bit integers as u8, stored plus MIDDLE, four a lane."""

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """See Nibbles."""
        return _as_floats(g, _halves(g, b, self.element, places))


@dataclass(frozen=True)
class NarrowShorts(Shorts):
    """The same, for integers of B that are widened as they are read: an element is a pair of bytes."""

    @property
    def element(self) -> str:
        """Two steps of a column."""
        return "i16"

    @property
    def bytes(self) -> int:
        """See `element`."""
        return 2


@dataclass(frozen=True)
class NibbleShorts(NarrowShorts):
    """i16 times 4-bit integers, stored plus MIDDLE, two a lane: two vectors of them are in as many bytes as
    half a vector has."""

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """See Nibbles."""
        found = []
        for place in places[::2]:
            both = Vec(g, _halved(g, b, place)).convert("zext", "i16")
            found += [_as_float(g, both & 15), _as_float(g, both.binary("lshr", 4))]
        return found


@dataclass(frozen=True)
class ByteShorts(NarrowShorts):
    """i16 times byte integers, two a lane."""

    def row(self, g: Function, b: Value, places: Sequence[Int]) -> list[Value]:
        """See Arithmetic."""
        return [_as_float(g, Vec(g, _halved(g, b, place)).convert("sext", "i16")) for place in places]


def _halved(g: Function, b: Value, place: Int) -> Value:
    """Return a pair of bytes for each lane, from `place` such pairs after `b` on."""
    return g.load(vector("i8", 2 * LANES), g.at(b, "i16", place), align=2)


def _halves(g: Function, b: Value, element: str, places: Sequence[Int]) -> Iterator[Vec]:
    """Yield the low and the high four bits of the bytes at every other of `places`."""
    for place in places[::2]:
        both = Vec(g, g.load(BYTES, g.at(b, element, place), align=4))
        yield from (both & 15, both.binary("lshr", 4))


def _as_floats(g: Function, quads: Iterable[Vec]) -> list[Value]:
    """Return vectors of bytes as the f32 vectors of micro-kernels."""
    return [_as_float(g, quad) for quad in quads]


def _as_float(g: Function, x: Vec) -> Value:
    return g.op(VECTOR, f"bitcast {x.value.type} {x.value.name} to {VECTOR}")


def _of_low_halves(x: Vec) -> Value:
    """Return the values of the lowest four bits of each of 16 lanes, in f32, in their unit."""
    if x.f.register_bytes == AVX512_BYTES:
        numbers = ", ".join(f"float {float(UNITS[0] * n)}" for n in (*NIBBLES[MIDDLE:], *NIBBLES[:MIDDLE]))
        return x.f.call(VECTOR, "llvm.x86.avx512.permvar.sf.512", Value(VECTOR, f"<{numbers}>"), x.value)
    return (x << 28).convert("sitofp", "float").value


def _of_high_halves(x: Vec) -> Value:
    """Return the values of the upper four of the lowest eight bits, in f32, in their unit; `x`: sign-extended
    bytes.

    With AVX-512 they are put into the fraction of HIGH, which is subtracted again: two instructions, like a
    mask and a conversion, but Zen 4 starts more of them beside the other half's lookup.
    """
    if x.f.register_bytes == AVX512_BYTES:
        middle = MIDDLE * UNITS[1]
        bits = (x & 0xF0) ^ (HIGH_BITS | middle)
        number = x.f.op(VECTOR, f"bitcast {bits.value.type} {bits.value.name} to {VECTOR}")
        return x.f.op(VECTOR, f"fsub {VECTOR} {number.name}, splat (float {HIGH + middle:.1f})")
    return (x & -UNITS[1]).convert("sitofp", "float").value


@dataclass(frozen=True)
class GroupSums:
    """Sums of rows of A with the columns of `n_panels` panels, `width` floats from one row to the next."""

    f: Function
    groups: Groups
    n_panels: int
    width: int

    @property
    def copied_floats(self) -> int:
        """The elements of a group's copy, of 4 bytes each."""
        return self.width * (self.groups.rows + 1)

    @property
    def strides(self) -> Strides:
        """The strides of one group of the panels, without A's."""
        groups, size = self.groups, self.groups.arithmetic.bytes
        apart = groups.panel_bytes // size if self.n_panels > 1 else 0
        lie = Strides(0, groups.row_bytes // size, self.width, groups.rows, b_panel=apart)
        return replace(lie, planes=groups.planes)

    def kernels(self, name: str, lda: Int, vectors: int) -> MicroKernels:
        """Return the micro-kernels that multiply the integers as they are read."""
        strides, arithmetic = replace(self.strides, lda=lda), self.groups.arithmetic
        return MicroKernels(self.f, name, strides, vectors, Into.SCALED, arithmetic)

    def kernels_of_copy(self, lda: Int, vectors: int) -> MicroKernels:
        """Return the micro-kernels that read a group's copy."""
        strides = Strides(lda, self.width, self.width, self.groups.rows)
        return MicroKernels(self.f, "group", strides, vectors, Into.SCALED, self.groups.of_copies)

    def copy(self, b: Value, to: Value) -> None:
        """Emit the copy of the group at `b`, its integers and its scales, to `to`, 4 bytes each."""
        f, groups, strides, arithmetic = self.f, self.groups, self.strides, self.groups.arithmetic
        places = [strides.vector(f, v) for v in range(2 * self.n_panels)]
        with f.loop(0, groups.rows) as row:
            here = f.at(b, "i8", f.mul(row.index, groups.row_bytes))
            there = f.at(to, "float", f.mul(row.index, self.width))
            for v, wide in enumerate(arithmetic.row(f, here, places)):
                f.store(wide, f.at(there, "float", LANES * v), align=4)
        for v in range(len(places)):
            scales = f.load(VECTOR, strides.scales(f, b, arithmetic.element, v), align=4)
            f.store(scales, f.at(to, "float", groups.rows * self.width + LANES * v), align=4)

    def totals(self, sums: Value, floats: Int) -> Value:
        """Return the address of the sums of all groups, `floats` of them, if those of some are at `sums`."""
        return self.f.at(sums, "float", floats) if self.groups.count > GROUP else sums

    def each(self, a: Value, b: Value, emit: Emit) -> Callable[[Int], None]:
        """Return the emission of `emit(a, b)` for the group of a number, at its own steps of A's rows and
        rows of B; `a`, `b`: the start of all groups."""
        f, groups = self.f, self.groups

        def at(number: Int) -> None:
            left, place = f.mul(number, groups.left), f.mul(number, groups.bytes)
            emit(f.at(a, "float", left), f.at(b, "i8", place))

        return at

    def add_up(self, sums: Value, totals: Value, floats: Int, emit: Callable[[Int], None]) -> None:
        """Emit `emit(number)`, which adds a group's part to `sums`, for all groups; leave their total in
        `totals`."""

        def each(begin: Int, end: Int) -> None:
            with self.f.loop(begin, end, nonempty=True) as at:
                emit(at.index)

        self.add_up_ranges(sums, totals, floats, each)

    def add_up_ranges(
        self, sums: Value, totals: Value, floats: Int, emit: Callable[[Int, Int], None]
    ) -> None:
        """The same by `emit(begin, end)`, which adds the parts of several groups in their order."""
        f, groups = self.f, self.groups

        def run(begin: Int, end: Int) -> None:
            F32.fill(f, sums, floats)
            emit(begin, end)

        if groups.count <= GROUP:
            run(0, groups.count)
            return
        F32.fill(f, totals, floats)
        with f.loop(0, groups.count, GROUP) as first:
            run(first.index, f.minimum(f.add(first.index, GROUP), groups.count))
            F32.add_to(f, totals, sums, floats)


def sums_bytes(groups: Groups, rows: int, width: int) -> int:
    """Return the bytes of the sums of `rows` rows of `width` columns, and of their totals."""
    return 4 * rows * width * (2 if groups.count > GROUP else 1)


def scratch_bytes(groups: Groups, rows: int, width: int) -> int:
    """Return the bytes of a tile's sums and the copies of groups after them."""
    return sums_bytes(groups, rows, width) + 4 * width * (groups.rows + 1) * groups.copied


@dataclass(frozen=True)
class GroupedTile:
    """A tile of `rows` rows whose sums and copies of groups are in scratch at `sums` and `copy`. `lda`: the
    floats from a row of A, or of its limbs, to the next. `counts(most)`: the numbers of rows that a row tile
    of at most `most` may have."""

    columns: GroupSums
    schedule: Schedule
    rows: Int
    lda: Int
    counts: Callable[[int], Sequence[int]]
    sums: Value
    copy: Value

    def multiply(self, a: Value, b: Value) -> Value:
        """Emit the sums of the rows at `a` and the panels at `b`; return their address."""
        f, columns, most = self.columns.f, self.columns, self._most
        floats = f.mul(self.rows, columns.width)
        totals = columns.totals(self.sums, floats)

        def few() -> None:
            each = columns.each(a, b, lambda a, b: self._row_tiles(self._in_place, most, 1, a, b))
            columns.add_up(self.sums, totals, floats, each)

        n_read = most * self.schedule.tiles_in_place
        is_read = f.is_less(self.rows, n_read + 1) if columns.groups.is_widened else True
        many = partial(columns.add_up_ranges, self.sums, totals, floats, partial(self._copied, a, b))
        f.either(is_read, few, many)
        return totals

    def _copied(self, a: Value, b: Value, begin: Int, end: Int) -> None:
        """Emit groups `begin` .. `end` - 1 of all rows, as many as have COPIED_STEPS at a time: each row tile
        then reads that many steps of its rows of A in turn, whose lines may share sets of the caches."""
        f, columns, groups = self.f, self.columns, self.columns.groups
        vectors = min(self.schedule.vectors, 2 * columns.n_panels)
        kernels = columns.kernels_of_copy(self.lda, vectors)
        with f.loop(begin, end, groups.copied, nonempty=True) as first:
            here, left = (f.mul(first.index, size) for size in (groups.bytes, groups.left))
            count = f.minimum(groups.copied, f.sub(end, first.index))
            with f.loop(0, count, nonempty=True) as at:
                source = f.at(b, "i8", f.add(here, f.mul(at.index, groups.bytes)))
                columns.copy(source, f.at(self.copy, "float", f.mul(at.index, columns.copied_floats)))
            self._row_tiles(kernels, self.schedule.rows, count, f.at(a, "float", left), self.copy)

    @property
    def f(self) -> Function:
        """The kernel's function."""
        return self.columns.f

    @property
    def _most(self) -> int:
        """The most rows of whole panels whose sums fit in registers."""
        return self.columns.groups.most_rows(self.schedule, 2 * self.columns.n_panels)

    @property
    def _in_place(self) -> MicroKernels:
        return self.columns.kernels("grouped", self.lda, 2 * self.columns.n_panels)

    def each_row_tile(self, a: Value, b: Value, finish: Finish) -> None:
        """Emit the sums of the rows at `a` and the panels at `b`, row tile by row tile, each passed to
        `finish`: all groups of one before the next, so sums stay in the first-level cache."""
        f, columns, most, kernels = self.columns.f, self.columns, self._most, self._in_place
        totals = columns.totals(self.sums, most * columns.width)

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            finish.soon(begin, count)
            left, floats = f.at(a, "float", f.mul(begin, self.lda)), f.mul(count, columns.width)

            def group(a: Value, b: Value) -> None:
                self._row_tile(kernels, count, self.counts(most), a, b, self.sums)

            columns.add_up(self.sums, totals, floats, columns.each(left, b, group))
            finish.done(begin, count, totals)

        each_tile(f, self.rows, most, row_tile)

    def _row_tiles(self, kernels: MicroKernels, most: int, n: Int, a: Value, b: Value) -> None:
        """Emit `n` groups of all rows, one at `b` or copies of several."""
        f, columns = self.f, self.columns

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = f.at(a, "float", f.mul(begin, self.lda))
            sums = f.at(self.sums, "float", f.mul(begin, columns.width))
            with f.loop(0, n, nonempty=True) as at:
                step = f.at(left, "float", f.mul(at.index, columns.groups.left))
                right = f.at(b, "float", f.mul(at.index, columns.copied_floats))
                self._row_tile(kernels, count, self.counts(most), step, right, sums)

        each_tile(f, self.rows, most, row_tile)

    def _row_tile(
        self, kernels: MicroKernels, count: Int, counts: Sequence[int], a: Value, b: Value, sums: Value
    ) -> None:
        """Emit one group of a row tile of `count` rows, one of `counts`."""
        f, columns = self.columns.f, LANES * 2 * self.columns.n_panels

        def call(n: int) -> None:
            for first in range(0, columns, LANES * kernels.vectors):
                right, to = f.at(b, kernels.element, first), f.at(sums, "float", first)
                kernels.call(n, a, right, to, *self.columns.groups.ahead(f, right))

        dispatch(f, count, counts, call)
