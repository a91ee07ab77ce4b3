"""The Attention family: softmax(q k^T) v for a few query rows at a time, without the length x length
matrix.

A tile is one place of the batch loops and a block of query rows. For each block of keys it copies them,
transposed, and their values (unless these are few, or few rows read them) into panels in scratch; then for
each row tile (see `Tile`) it computes the scores with keys along the lanes, turns them into weights and
multiplies v, all in the first- and second-level cache. A group of row tiles takes each of these two steps
together: the keys, then the values, stay near.

Weights are powers of two, 2^(unit * (score - base)), with the unit of `mask`. A row's base is 0 where its
greatest score is within +-`parts.LIMIT`: its weights and their sum can be numbers then without regard to the
maximum. So a row tile's scores become weights in the registers in which they were added up, their maxima
beside them; only if one of those is beyond the limit are the scores computed again, stored, and their maxima
taken first. A row's bits depend on its own scores alone, not on which of the two ways its row tile went.

All three sums have a fixed order: over the head dimension and over keys by ascending fused multiply-adds
(`microkernel`), the softmax's by ascending vectors of keys, then over the lanes. The division by the row's
sum is a multiplication by its reciprocal, after the sum over keys. Where there are more keys than a block
has, each row keeps its greatest score and its sum from block to block, and what it has so far is scaled where
its base changes (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018); so the panels of a
block stay in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.abi import RT_SCRATCH, Generated, check_schedule, resolve
from ...llvm.function import Function, Int, Value, most
from ...llvm.prefetch import unread
from ...llvm.vector import Vec
from ...loops.affine import Affine, affine
from ...loops.bodies import LANES, BodyEmitter, Position, splat
from ...loops.strip_mining import State
from ...loops.tiling import Range
from ...spec import Size, Term, Terms
from ..matmul.arithmetic import VECTOR
from ..matmul.microkernel import (
    PANEL,
    SCHEDULES,
    Into,
    MicroKernels,
    Schedule,
    Strides,
    default_schedule,
    dispatch,
    row_counts,
    store,
)
from .mask import Mask
from .parts import (
    call_part,
    clear,
    exponentiate,
    finish,
    greater,
    over_keys,
    pack_keys,
    pack_values,
    panel_vectors,
    prefetch_rows,
    rescale,
    weights_of_sums,
    write_constants,
)
from .spec import Attention

BLOCK = 546  # query rows of a tile at most: they share one copy of the keys and values
KEY_BLOCK = 512  # keys whose panels and values are in use together; the order of sums hangs on it
GROUP_SCORES = 16384  # of a group of row tiles, which read the same panels from the first-level cache
IN_PLACE = 128  # keys at most whose values are read where they are, not copied into panels
MAX_AHEAD = 16  # keys of the next head that a row tile asks for
RUNNING = 3 * LANES  # floats that a row tile keeps from block to block
F32 = 4  # bytes


def choose_schedule(f: Function, v_dim: Int) -> str:
    """Return the name of the register tile: the widest whose panels the values fill, at least by half."""
    name = default_schedule(f)
    is_full = isinstance(v_dim, int) and -v_dim % (2 * PANEL) < PANEL
    return "6x64" if name == "14x32" and is_full else name


def spread(count: int, most: int) -> list[tuple[int, int]]:
    """Return (first, number) of `count` rows in parts of at most `most`, as even as can be."""
    n = -(-count // most)
    begins = [count * i // n for i in range(n + 1)]
    return [(begin, end - begin) for begin, end in zip(begins[:-1], begins[1:], strict=True)]


def emit(f: Function, spec: Attention, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Attention; see `abi.Generator`. Schedules: those of `microkernel`."""
    name = schedule or choose_schedule(f, resolve(spec.v_dim, sizes))
    check_schedule("attention", name, list(TILES))
    for role, buffer in (("q", spec.q), ("k", spec.k), ("v", spec.v), ("out", spec.out)):
        if spec.buffers[buffer].dtype != "f32":
            raise ValueError(
                f"attention kernel: {role} is {spec.buffers[buffer].dtype}; it must be f32 (cast it first)"
            )
    return _Attention(f, spec, sizes, name).emit()


class Tile(NamedTuple):
    """The most rows of a row tile; the register tile of its scores; the vectors in a row of its results."""

    rows: int
    scores: Schedule
    vectors: int


# By the names of the results' register tiles. Scores take 6x64 wherever registers are many: 10 loads for 24
# FMAs reach 96 % of the peak, 16 for 28 reach 94 and 14 for 24 reach 90 %. So two tiles of 6 rows of scores
# make one of 12 rows of results.
TILES = {
    "6x64": Tile(6, SCHEDULES["6x64"], 4),
    "14x32": Tile(12, SCHEDULES["6x64"], 2),
    "6x16": Tile(6, SCHEDULES["6x16"], 1),
}


@dataclass(frozen=True)
class RowTile:
    """Rows `begin` .. `begin` + `rows` - 1 of a tile, and where its scores and factors are.

    `running`: its rows' greatest scores so far, their sums, and what this block scales results by.
    """

    number: Int
    begin: Int
    rows: Int
    scores: Value
    factors: Value
    running: Value


@dataclass(frozen=True)
class Keys:
    """Keys `begin` .. `begin` + `count` - 1, and whether they are the first and the last of all."""

    begin: Int
    count: Int
    is_first: Value | bool
    is_last: Value | bool


@dataclass(frozen=True)
class Ahead:
    """The next tile's keys and values, and how many of them each row tile prefetches."""

    keys: Value
    values: Value
    share: Int


class _Attention:
    """The state of one emission; constructed in the entry block."""

    def __init__(self, f: Function, spec: Attention, sizes: Sequence[Int], schedule: str) -> None:
        self.f, self.spec, self.schedule = f, spec, schedule
        self.q_len, self.k_len = resolve(spec.q_len, sizes), resolve(spec.k_len, sizes)
        self.head_dim, self.v_dim = resolve(spec.head_dim, sizes), resolve(spec.v_dim, sizes)
        self.batch = [resolve(size, sizes) for size in spec.batch]
        self.row_loop = len(spec.batch)
        self.key_loop, self.feature_loop = self.row_loop + 1, self.row_loop + 2
        self.bodies = BodyEmitter(f, spec.body, spec.buffers, sizes, vector_loop=self.key_loop)
        self.q, self.k, self.v, self.out = (
            affine(f, spec.buffers[buffer], index, sizes)
            for buffer, index in (
                (spec.q, spec.q_index),
                (spec.k, spec.k_index),
                (spec.v, spec.v_index),
                (spec.out, spec.out_index),
            )
        )
        self.mask = Mask(f, spec, self.bodies)
        for role, place in (("q", self.q), ("k", self.k), ("v", self.v), ("out", self.out)):
            if place.stride(self.feature_loop) != 1:
                raise ValueError(
                    f"attention kernel: {role}'s head dimension must be its last axis (stride 1); copy {role}"
                )
        self.most, self.score_tile, self.vectors = TILES[schedule]
        self.panel = max(PANEL, LANES * self.vectors)  # columns of the panels of values
        self.key_panel = max(PANEL, LANES * self.score_tile.vectors)  # of those of keys and scores
        self.block = BLOCK // self.most * self.most
        if isinstance(self.q_len, int):
            self.block = -(-self.q_len // max(-(-self.q_len // self.block), 1)) or 1
        top = most(self.k_len)
        self.is_one = top is not None and top <= KEY_BLOCK  # block of keys
        self.is_whole = isinstance(self.v_dim, int) and self.v_dim % self.panel == 0
        self.in_place = self.is_whole and self._reads_values_in_place(most(self.q_len), top)
        self._place_scratch()
        lda = self.q.stride(self.row_loop)
        score = Strides(lda, self.key_panel, self.key_panel, self.head_dim)
        self.score = {n: MicroKernels(f, "score", score, n) for n in range(1, self.score_tile.vectors + 1)}
        self.ldc = self.out.stride(self.row_loop) if self.is_whole else self.panel

    def _reads_values_in_place(self, rows: int | None, keys: int | None) -> bool:
        """Return whether copying values would not pay: one row tile reads them, or they are few."""
        return rows is not None and rows <= self.most or keys is not None and keys <= IN_PLACE

    def _weigh_kernels(self, keys: Keys, adds: bool) -> MicroKernels:
        """Return the micro-kernels that weigh the values of `keys`; `adds`: to what there is."""
        # The count and the stride are passed, also where they are known: so kernels of all lengths, and of
        # values in place and in panels, share their parts.
        width = self.key_panel
        group, count = self.most * width, self.f.i64(keys.count)
        ldb = self.f.i64(self.v.stride(self.key_loop) if self.in_place else self.panel)
        strides = Strides(width, ldb, self.ldc, count, group, a_width=width)
        into, name = (Into.ADDED, "weigh_more") if adds else (Into.CHAIN, "weigh")
        return MicroKernels(self.f, name, strides, self.vectors, into)

    def _place_scratch(self) -> None:
        """Lay out scratch: results of a row tile (of all, where there are several blocks of keys); factors,
        maxima, scores of a group of them; what rows keep from block to block; panels of keys, of values."""
        f = self.f
        n_keys = f.minimum(self.k_len, KEY_BLOCK)
        self.width = f.mul(f.ceildiv(n_keys, self.key_panel), self.key_panel)  # of a row of scores
        self.depth = f.mul(f.ceildiv(self.head_dim, LANES), LANES)  # rows of a panel of keys
        self.tile_scores = f.mul(self.width, self.most)
        self.group = self._group()
        self.results = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        rows: Int = self.most if self.is_one else self.block
        padded = f.mul(f.ceildiv(self.v_dim, self.panel), self.panel)
        n_results = f.mul(rows, self.panel if self.is_one else padded)
        self.factors = f.at(self.results, "float", n_results)
        self.constants = f.at(self.factors, "float", self.most_tiles * LANES)
        self.must_shift = f.at(self.constants, "float", LANES)
        self.tops = f.at(self.must_shift, "float", LANES)
        self.totals = f.at(self.tops, "float", self.most * LANES)
        self.biases = f.at(self.totals, "float", self.most * LANES)
        self.scores = f.at(self.biases, "float", self.width)
        self.running = f.at(self.scores, "float", f.mul(self.tile_scores, self.group))
        self.keys = f.at(self.running, "float", self.n_running)
        self.values = f.at(self.keys, "float", f.mul(self.width, self.depth))

    @property
    def most_tiles(self) -> int:
        """The row tiles of a group at most."""
        return max(GROUP_SCORES // (self.most * self.key_panel), 1)

    @property
    def n_running(self) -> int:
        """The floats that rows keep from block to block."""
        return 0 if self.is_one else (-(-self.block // self.most) + 1) * RUNNING

    def _group(self) -> Int:
        """Return how many row tiles take each step together: as many as have GROUP_SCORES scores."""
        f = self.f
        if isinstance(self.tile_scores, int):
            return max(GROUP_SCORES // max(self.tile_scores, self.most * self.key_panel), 1)
        return f.maximum(f.udiv(GROUP_SCORES, f.maximum(self.tile_scores, self.most * self.key_panel)), 1)

    def _scratch(self) -> Terms:
        """Return bytes that hold what `_place_scratch` laid out, with every length rounded up."""
        d, v = self.spec.head_dim, self.spec.v_dim
        k_len = min(self.k_len, KEY_BLOCK) if isinstance(self.k_len, int) else self.spec.k_len
        panels = self.most * (self.panel + self.key_panel) + self.key_panel * (LANES + 1)
        fixed = panels + GROUP_SCORES + (self.most_tiles + 2 * self.most + 2) * LANES + self.n_running
        terms: list[Term] = [
            (fixed, ()),
            (self.most + LANES + self.panel + 1, (k_len,)),
            (self.key_panel, (d,)),
            (1, (k_len, d)),
        ]
        if not self.in_place:
            terms.append((1, (k_len, v)))
        if not self.is_one:
            terms += [(self.block, (v,)), (self.block * self.panel, ())]
        return tuple((F32 * factor, sizes) for factor, sizes in terms)

    def emit(self) -> Generated:
        """Emit the tiles; return what the code object says of them."""
        f, spec = self.f, self.spec
        write_constants(f, self.constants, self.mask.scale)
        with f.loop(f.params[3], f.params[4]) as tile:
            *batch, block = self._decode(tile.index)
            *following, _ = self._decode(f.minimum(f.add(tile.index, 1), f.sub(f.params[4], 1)))
            i0 = f.mul(block, self.block)
            top = most(self.q_len)
            one = top is not None and top <= self.block
            rows = self.q_len if one else f.minimum(self.block, f.sub(self.q_len, i0))
            self._tile(batch, i0, rows, following)
        tiles: list[tuple[Size, int]] = [*((size, 1) for size in spec.batch), (spec.q_len, self.block)]
        products = tuple((2 * self.block, (spec.k_len, size)) for size in (spec.head_dim, spec.v_dim))
        return Generated(
            tuple(tiles), self._scratch(), (*products, (20 * self.block, (spec.k_len,))), self.schedule
        )

    def _decode(self, tile: Int) -> list[Int]:
        """Return each batch loop's value and the block of rows of tile number `tile`."""
        f = self.f
        place = f.unravel(tile, [*self.batch[1:], f.ceildiv(self.q_len, self.block)])
        return place if self.batch else place[1:]

    def _row_counts(self) -> list[int]:
        """Return the numbers of rows that a row tile may have."""
        return row_counts(self.q_len, self.block, self.most)

    def _address(self, buffer: int, place: Affine, loops: Sequence[Int]) -> Value:
        """Return the address of an operand where the outer loops are `loops`."""
        f = self.f
        return f.at(self.bodies.addresses[buffer], "float", place.offset(f, dict(enumerate(loops))))

    def _tile(self, batch: list[Int], i0: Int, rows: Int, following: list[Int]) -> None:
        """Emit the work of `rows` query rows from i0; `following`: the next tile's batch loops."""
        f, spec = self.f, self.spec
        q = self._address(spec.q, self.q, [*batch, i0])
        out = self._address(spec.out, self.out, [*batch, i0])
        if self.is_one:
            self._block(Keys(0, self.k_len, True, True), batch, i0, rows, following, q, out)
            return
        with f.loop(0, self.n_running, RUNNING) as place:
            top = f.at(self.running, "float", place.index)
            f.store(splat(f, "f32", "-inf"), top, align=4)
            f.store(splat(f, "f32", 0.0), f.at(top, "float", LANES), align=4)
        with f.loop(0, f.maximum(self.k_len, 1), KEY_BLOCK) as block:
            rest = f.sub(self.k_len, block.index)
            is_first, is_last = f.less(block.index, 1), f.less(rest, KEY_BLOCK + 1)
            keys = Keys(block.index, f.minimum(rest, KEY_BLOCK), is_first, is_last)
            self._block(keys, batch, i0, rows, following, q, out)

    def _block(
        self, keys: Keys, batch: list[Int], i0: Int, rows: Int, following: list[Int], q: Value, out: Value
    ) -> None:
        """Emit what a block of keys adds to `rows` query rows from i0, which begin at `q`."""
        f = self.f
        values = self._pack(batch, keys)
        f.store(f.i64(0), self.must_shift, align=8)
        if self.mask.is_same_in_rows:
            self._write_biases(self.biases, (*batch, 0), keys, 1)
        ahead = self._ahead(rows, batch, following, keys)
        kernels = [self._weigh_kernels(keys, adds) for adds in ((False,) if self.is_one else (False, True))]

        def weights(tile: RowTile) -> None:
            lda = self.q.stride(self.row_loop)
            left = f.at(q, "float", f.mul(tile.begin, lda))
            self._read_ahead(tile, ahead)
            after = unread(f, left, f.mul(tile.rows, lda))
            prefetch_rows(f, after, tile.rows, lda, self.head_dim, 3)
            self._weights(tile, left, (*batch, f.add(i0, tile.begin)), keys)

        def outputs(tile: RowTile) -> None:
            ldc = self.out.stride(self.row_loop)
            there = f.at(out, "float", f.mul(tile.begin, ldc))
            prefetch_rows(f, there, tile.rows, ldc, self.v_dim, 3)
            self._outputs(tile, there, keys, values, kernels)

        self._row_tiles(rows, (weights, outputs))

    def _pack(self, batch: list[Int], at: Keys) -> Value:
        """Copy a block of the head's keys into their panels, and its values unless they are read in place;
        return where the values are."""
        f, spec, step = self.f, self.spec, self.key_loop
        count = f.i64(at.count)
        firsts = []
        for buffer, place in ((spec.k, self.k), (spec.v, self.v)):
            begin = f.mul(at.begin, place.stride(step))
            firsts.append(f.at(self._address(buffer, place, batch), "float", begin))
        k, v = firsts
        given = (self.keys, count, self.head_dim, self.k.stride(step), self.key_panel)
        call_part(f, "pack_keys", pack_keys, k, *given)
        if self.in_place:
            return v
        given = (self.values, count, self.v_dim, self.v.stride(step), self.panel)
        call_part(f, "pack_values", pack_values, v, *given)
        return self.values

    def _row_tiles(self, rows: Int, steps: Sequence[Callable[[RowTile], None]]) -> None:
        """Emit all steps of the row tiles of `rows` rows, of sizes as even as can be, group by group."""
        f = self.f
        if rows == 0:
            return
        n = f.ceildiv(rows, self.most)
        base, extra = f.udiv(rows, n), f.urem(rows, n)
        with f.loop(0, n, self.group) as group:
            end = f.minimum(f.add(group.index, self.group), n)
            for step in steps:
                with f.loop(group.index, end, nonempty=True) as tile:
                    begin = f.add(f.mul(tile.index, base), f.minimum(tile.index, extra))
                    count = base
                    if extra != 0:
                        is_larger = f.less(tile.index, extra)
                        count = f.add(base, f.op("i64", f"zext i1 {is_larger.name} to i64"))
                    step(self._row_tile(tile.index, begin, count, f.sub(tile.index, group.index)))

    def _row_tile(self, number: Int, begin: Int, rows: Int, place: Int) -> RowTile:
        """Return the row tile that is number `place` in its group."""
        f = self.f
        return RowTile(
            number,
            begin,
            rows,
            f.at(self.scores, "float", f.mul(place, self.tile_scores)),
            f.at(self.factors, "float", f.mul(place, LANES)),
            self.running if self.is_one else f.at(self.running, "float", f.mul(number, RUNNING)),
        )

    def _ahead(self, rows: Int, batch: list[Int], following: list[Int], keys: Keys) -> Ahead:
        """Return what the row tiles of `rows` rows prefetch: the next block of keys, or the next tile's first
        (nothing where that is the same)."""
        f, spec = self.f, self.spec
        nexts: list[Value] = []
        for buffer, place in ((spec.k, self.k), (spec.v, self.v)):
            there = self._address(buffer, place, following)
            if not isinstance(keys.is_last, bool):
                here = self._address(buffer, place, batch)
                after = unread(f, here, f.mul(f.add(keys.begin, KEY_BLOCK), place.stride(self.key_loop)))
                there = f.select(keys.is_last, there, after)
            nexts.append(there)
        if self.is_one and isinstance(self.q_len, int) and self.q_len > self.block:
            return Ahead(nexts[0], nexts[1], 0)
        wanted = f.add(f.udiv(f.mul(keys.count, self.most), f.maximum(rows, 1)), 1)
        share = f.minimum(wanted, MAX_AHEAD)
        if self.is_one and not isinstance(self.q_len, int):
            is_one = f.less(self.q_len, self.block + 1)
            share = f.select(is_one, share, 0)
        return Ahead(nexts[0], nexts[1], share)

    def _read_ahead(self, tile: RowTile, ahead: Ahead) -> None:
        """Prefetch a row tile's share of the next tile's keys and values."""
        f, step = self.f, self.key_loop
        if ahead.share == 0:
            return
        begin = f.mul(tile.number, ahead.share)
        count = f.minimum(ahead.share, f.sub(f.minimum(self.k_len, KEY_BLOCK), begin))
        for first, place, dim in (
            (ahead.keys, self.k, self.head_dim),
            (ahead.values, self.v, self.v_dim),
        ):
            stride = place.stride(step)
            prefetch_rows(f, unread(f, first, f.mul(begin, stride)), count, stride, dim, 2)

    # one row tile
    def _weights(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors.

        First as if no score had to be shifted, straight from the registers; where one has to, again, and so
        all row tiles after it.
        """
        f = self.f
        if not self.mask.is_bias:
            self._weights_of_scores(tile, q, outer, keys)
            return
        with f.when(f.less(f.load("i64", self.must_shift, align=8), 1)):
            self._weights_of_sums(tile, q, outer, keys)
        with f.when(f.less(0, f.load("i64", self.must_shift, align=8))):
            self._weights_of_scores(tile, q, outer, keys)

    def _weights_of_sums(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors where no score has to be shifted; else note that."""
        f = self.f
        if not self.mask.is_same_in_rows:
            with f.loop(0, tile.rows) as r:
                row = f.at(tile.scores, "float", f.mul(r.index, self.key_panel))
                self._write_biases(row, (*outer[:-1], f.add(outer[-1], r.index)), keys, self.most)
        call_part(f, "clear", clear, self.tops, self.totals, self.most)
        dispatch(f, tile.rows, self._row_counts(), lambda n: self._scores(tile, n, q, keys.count, True))
        is_shifted = self._finish(tile, keys, True)
        f.store(f.op("i64", f"zext i1 {is_shifted.name} to i64"), self.must_shift, align=8)

    def _weights_of_scores(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors: scores, maxima, then exponentials."""
        f = self.f
        dispatch(f, tile.rows, self._row_counts(), lambda n: self._scores(tile, n, q, keys.count, False))
        self._mask(tile, outer, keys)
        given = (tile.scores, self.tops, self.totals, tile.factors, f.i64(tile.rows), f.i64(keys.count))
        running = () if self.is_one else (tile.running,)
        shape = (self.most, self.key_panel, self.mask.unit)
        call_part(f, "exponentiate", exponentiate, *given, *shape, *running)
        self._finish(tile, keys, False)

    def _finish(self, tile: RowTile, keys: Keys, unless_shifted: bool) -> Value:
        """Write a row tile's factors; return whether scores must be shifted first."""
        f = self.f
        given = (self.tops, self.totals, tile.factors, f.i64(keys.count), self.most, self.spec.safe_softmax)
        name = "finish_unless_shifted" if unless_shifted else "finish"
        if self.is_one:
            return call_part(f, name, finish, *given, unless_shifted, self.mask.unit)
        assert isinstance(keys.is_last, Value)
        last = f.select(keys.is_last, 1, 0)
        return call_part(f, name, finish, *given, unless_shifted, self.mask.unit, tile.running, last)

    def _scores(self, tile: RowTile, rows: int, q: Value, k_len: Int, are_weights: bool) -> None:
        """scores[i, j] = q[i] . k[j], unscaled, of whole panels; or the weights that they are if none has to
        be shifted, of a last panel only the vectors that have keys."""
        f, width = self.f, self.key_panel
        most = width // LANES

        def panel(j: Int, vectors: int) -> None:
            keys = f.at(self.keys, "float", f.mul(j, self.depth))
            scores = f.at(tile.scores, "float", f.mul(j, self.most))
            biases = f.at(self.biases, "float", j) if self.mask.is_same_in_rows else scores
            kernels = self.score[min(vectors, self.score_tile.vectors)]
            for first, count in spread(rows, self.score_tile.rows):
                left = f.at(q, "float", f.mul(first, self.q.stride(self.row_loop)))
                for column in range(0, vectors * LANES, LANES * kernels.vectors):
                    there = f.at(scores, "float", first * width + column)
                    called = self._weighing(kernels, first, column, there, biases) if are_weights else kernels
                    called.call(count, left, f.at(keys, "float", column), there, keys)

        with f.loop(0, f.sub(k_len, (most - 1) * LANES), width) as j:
            panel(j.index, most)
        # index in its panel of the last key; none: panel - 1
        in_last = f.urem(f.add(k_len, width - 1), width)
        begin = f.mul(f.udiv(k_len, width), width)
        vectors = f.add(f.udiv(in_last, LANES), 1)
        is_partial = f.is_less(in_last, (most - 1) * LANES)

        def rest() -> None:
            if are_weights:
                dispatch(f, vectors, range(1, most), lambda n: panel(begin, n))
            else:
                panel(begin, most)

        f.either(is_partial, rest, lambda: None)

    def _weighing(
        self, kernels: MicroKernels, first: int, column: int, weights: Value, biases: Value
    ) -> MicroKernels:
        """Return `kernels` that write the weights, not the scores, of rows from `first` and keys from
        `column` of a panel; `biases`: of the panel."""
        f, stride = self.f, 0 if self.mask.is_same_in_rows else self.key_panel
        bias = f.at(biases, "float", first * stride + column)
        lanes = [f.at(lanes, "float", first * LANES) for lanes in (self.tops, self.totals)]
        given = (self.constants, weights, bias, *lanes)
        return kernels.ended_by(weights_of_sums(given, self.key_panel, stride, self.mask.unit))

    def _outputs(
        self, tile: RowTile, out: Value, keys: Keys, values: Value, kernels: Sequence[MicroKernels]
    ) -> None:
        """out[i, :] = factors[i] * sum over j of weights[i, j] * v[j, :], panel by panel of columns.

        `values`: of the block of keys. `kernels`: those for the first block, and for others.
        """
        f = self.f
        with f.loop(0, self.v_dim, self.panel) as panel:
            first = panel.index if self.in_place else f.mul(panel.index, keys.count)
            here = f.at(values, "float", first)
            columns = f.at(out, "float", panel.index)
            there = columns if self.is_whole else self._results(tile, panel.index)

            def weigh(kernels: MicroKernels, here: Value = here, there: Value = there) -> None:
                dispatch(
                    f, tile.rows, self._row_counts(), lambda n: self._weigh(kernels, tile, n, here, there)
                )

            def more(there: Value = there) -> None:
                scales = f.at(tile.running, "float", 2 * LANES)
                given = (there, scales, f.i64(tile.rows), self.ldc, self.panel)
                call_part(f, "rescale", rescale, *given)
                weigh(kernels[1])

            f.either(keys.is_first, lambda: weigh(kernels[0]), more)
            if not self.is_whole:
                self._store_results(tile, there, columns, panel.index)

    def _results(self, tile: RowTile, column: Int) -> Value:
        """Return where scratch has a row tile's results in the panel from `column`."""
        f = self.f
        if self.is_one:
            return self.results
        rows = f.add(f.mul(column, self.block), f.mul(tile.begin, self.panel))
        return f.at(self.results, "float", rows)

    def _store_results(self, tile: RowTile, results: Value, out: Value, column: Int) -> None:
        """Copy a row tile's results to the columns from `column` that `out` has."""
        f = self.f
        vectors = panel_vectors(f, self.v_dim, column, self.panel)
        with f.loop(0, tile.rows) as r:
            row = f.at(out, "float", f.mul(r.index, self.out.stride(self.row_loop)))
            sums = f.at(results, "float", f.mul(r.index, self.panel))
            for first, mask in vectors:
                value = f.load(VECTOR, f.at(sums, "float", first), align=4)
                store(f, value, f.at(row, "float", first), mask)

    def _weigh(self, kernels: MicroKernels, tile: RowTile, rows: int, values: Value, out: Value) -> None:
        """Multiply a row tile's weights by a panel of values."""
        f = self.f
        for first in range(0, self.panel, LANES * kernels.vectors):
            there = f.at(values, "float", first)
            kernels.call(rows, tile.scores, there, f.at(out, "float", first), values, factors=tile.factors)

    # masks
    def _write_biases(self, to: Value, outer: tuple[Int, ...], keys: Keys, most: int) -> None:
        """Write what a block's keys add to scores, in panels of `most` rows; -inf past the last key."""
        f = self.f
        known = self.mask.known(outer)

        def chunk(j: Int, place: Value, mask: Value | None, state: State) -> State:
            at = Position((*outer, f.add(keys.begin, j)), mask)
            f.store(self.mask.biases(at, known).value, place, align=4)
            return state

        over_keys(f, to, Range(0, keys.count), most, self.key_panel, chunk, [])

    def _mask(self, tile: RowTile, outer: tuple[Int, ...], keys: Keys) -> None:
        """Scale and mask the scores; keep every row's maxima by lane in `tops`."""
        f = self.f
        with f.loop(0, tile.rows) as r:
            row = f.at(tile.scores, "float", f.mul(r.index, self.key_panel))
            top = self._mask_row(row, (*outer[:-1], f.add(outer[-1], r.index)), keys)
            f.store(top, f.at(self.tops, "float", f.mul(r.index, LANES)), align=4)

    def _mask_row(self, row: Value, outer: tuple[Int, ...], keys: Keys) -> Value:
        """Scale and mask a row of scores; return the greatest of each lane, -inf if all are.

        A NaN is no maximum: it reaches the result through its weight.
        """
        f = self.f
        known = self.mask.known(outer)

        def chunk(j: Int, place: Value, mask: Value | None, state: State) -> State:
            at = Position((*outer, f.add(keys.begin, j)), mask)
            score = self.mask.scores(Vec(f, f.load(VECTOR, place, align=4)), at, known).value
            f.store(score, place, align=4)
            return [greater(f, score, state[0])]

        lowest = splat(f, "f32", "-inf")
        return over_keys(f, row, Range(0, keys.count), self.most, self.key_panel, chunk, [lowest])[0]
