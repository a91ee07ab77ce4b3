"""The Attention family: softmax(q k^T) v for a block of query rows at a time, without the length x length matrix.

A tile is one place of the batch loops and a block of query rows. Its scores (rows x k_len) stay in scratch: panels
of PANEL keys are transposed there so that scores are computed with keys along the lanes, then each row becomes
exp(score - max) in place, then the rows multiply v, panel by panel. All three sums have a fixed order: over the
head dimension and over keys by ascending fused multiply-adds (`microkernel`), the softmax's as `reduce` does.
The division by the row's sum is a multiplication by its reciprocal, after the sum over keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from .abi import RT_SCRATCH, Generated, resolve
from .affine import affine
from .bodies import LANES, BodyEmitter, Position, splat
from .llvm import Function, Int, Value
from .math import apply
from .microkernel import PANEL, SCHEDULES, VECTOR, MicroKernels, Strides, dispatch, each_tile, load, shares, store, tail
from .reduce import N_ACCUMULATORS, Accumulators
from .spec import Attention, Size
from .strip import State, strip
from .tiling import Range
from .transpose import transpose

BLOCK = 112  # query rows of a tile at most: their scores share the second-level cache with a head's k and v
F32 = 4  # bytes


def emit(f: Function, spec: Attention, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Attention; see `abi.Generator`. Schedules: "14x32" (the default), "6x16"."""
    name = schedule or "14x32"
    if name not in SCHEDULES:
        raise ValueError(f"attention kernel: schedule {name!r} is unknown; known are {', '.join(SCHEDULES)}")
    for role, buffer in (("q", spec.q), ("k", spec.k), ("v", spec.v), ("out", spec.out)):
        if spec.buffers[buffer].dtype != "f32":
            raise ValueError(f"attention kernel: {role} is {spec.buffers[buffer].dtype}; it must be f32 (cast it first)")
    return _Attention(f, spec, sizes, name).emit()


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
        for role, place in (("q", self.q), ("k", self.k), ("v", self.v), ("out", self.out)):
            if place.stride(self.feature_loop) != 1:
                raise ValueError(f"attention kernel: {role}'s head dimension must be its last axis (stride 1); copy {role}")
        self.most, self.vectors = SCHEDULES[schedule].rows, SCHEDULES[schedule].vectors
        self.block = BLOCK // self.most * self.most
        if isinstance(self.q_len, int):
            self.block = -(-self.q_len // max(-(-self.q_len // self.block), 1)) or 1
        self._place_scratch()
        lda, features = self.q.stride(self.row_loop), self.head_dim
        self.score = MicroKernels(f, "score", Strides(lda, PANEL, self.width, features), self.vectors)
        self.weigh = MicroKernels(f, "weigh", Strides(self.width, PANEL, PANEL, self.k_len), self.vectors)

    def _place_scratch(self) -> None:
        """Lay out scratch: row factors, a row tile of results, a panel of keys, scores, panels of values."""
        f = self.f
        n_factors = -(-self.block // LANES) * LANES
        self.width = f.mul(f.ceildiv(self.k_len, PANEL), PANEL)  # of a row of scores
        self.factors = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        self.results = f.at(self.factors, "float", n_factors)
        self.keys = f.at(self.results, "float", self.most * PANEL)
        self.scores = f.at(self.keys, "float", f.mul(f.mul(f.ceildiv(self.head_dim, LANES), LANES), PANEL))
        self.values = f.at(self.scores, "float", f.mul(self.width, self.block))
        self.fixed_scratch = n_factors + (self.most + LANES) * PANEL + self.block * PANEL

    def emit(self) -> Generated:
        """Emit the tiles; return what the code object says of them."""
        f, spec = self.f, self.spec
        with f.loop(f.params[3], f.params[4]) as tile:
            *batch, block = self._decode(tile.index)
            i0 = f.mul(block, self.block)
            one = isinstance(self.q_len, int) and self.q_len <= self.block
            rows = self.q_len if one else f.minimum(self.block, f.sub(self.q_len, i0))
            self._scores(batch, i0, rows)
            self._softmax(batch, i0, rows)
            self._outputs(batch, i0, rows)
        tiles: list[tuple[Size, int]] = [*((size, 1) for size in spec.batch), (spec.q_len, self.block)]
        scratch = (
            (self.fixed_scratch * F32, ()),
            (PANEL * F32, (spec.head_dim,)),
            (self.block * F32, (spec.k_len,)),
            (F32, (spec.k_len, spec.v_dim)),
            (PANEL * F32, (spec.k_len,)),
        )
        flops = 2 * self.block
        cost = tuple((flops, (spec.k_len, size)) for size in (spec.head_dim, spec.v_dim))
        return Generated(tuple(tiles), scratch, (*cost, (20 * self.block, (spec.k_len,))), self.schedule)

    def _decode(self, tile: Value) -> list[Int]:
        """Return each batch loop's value and the block of rows of tile number `tile`."""
        f = self.f
        found: list[Int] = []
        rest: Int = tile
        for count in reversed([*self.batch[1:], f.ceildiv(self.q_len, self.block)]):
            found.append(f.urem(rest, count))
            rest = f.udiv(rest, count)
        return [rest, *found[::-1]] if self.batch else found[::-1]

    def _row_counts(self) -> list[int]:
        """Return the numbers of rows that a row tile may have."""
        if not isinstance(self.q_len, int):
            return list(range(1, self.most + 1))
        whole = shares(self.block, self.most) if self.q_len >= self.block else set()
        return sorted(whole | shares(self.q_len % self.block, self.most))

    # scores
    def _scores(self, batch: list[Int], i0: Int, rows: Int) -> None:
        """scores[i, j] = q[i] . k[j], unscaled."""
        f = self.f
        outer = dict(enumerate(batch))
        q = f.at(self.bodies.addresses[self.spec.q], "float", self.q.offset(f, {**outer, self.row_loop: i0}))
        k = f.at(self.bodies.addresses[self.spec.k], "float", self.k.offset(f, outer))
        with f.loop(0, self.k_len, PANEL) as panel:
            for first in range(0, PANEL, LANES):
                self._pack_keys(k, f.add(panel.index, first), f.at(self.keys, "float", first))
            target = f.at(self.scores, "float", panel.index)

            def row_tile(number: Int, begin: Int, count: Int) -> None:
                a = f.at(q, "float", f.mul(begin, self.q.stride(self.row_loop)))
                c = f.at(target, "float", f.mul(begin, self.width))
                self._multiply(self.score, count, a, self.keys, c)

            each_tile(f, rows, self.most, row_tile)

    def _multiply(self, kernels: MicroKernels, count: Int, a: Value, b: Value, c: Value) -> None:
        f = self.f

        def multiply(rows: int) -> None:
            for first in range(0, PANEL, LANES * self.vectors):
                kernels.call(rows, a, f.at(b, "float", first), f.at(c, "float", first), b, 0)

        dispatch(f, count, self._row_counts(), multiply)

    def _pack_keys(self, k: Value, j0: Int, place: Value) -> None:
        """Write keys j0 .. j0 + 15 as columns at `place`; the last key stands in for those past the end."""
        f = self.f
        last = f.sub(self.k_len, 1)
        starts = []
        for lane in range(LANES):
            j = f.minimum(f.add(j0, lane), last)
            starts.append(f.at(k, "float", f.mul(j, self.k.stride(self.key_loop))))

        def block(d: Int, mask: Value | None, state: State) -> State:
            columns = transpose(f, [load(f, f.at(start, "float", d), mask) for start in starts])
            for i, column in enumerate(columns):
                f.store(column, f.at(place, "float", f.mul(f.add(d, i), PANEL)), align=4)
            return state

        strip(f, Range(0, self.head_dim), 1, block)

    # softmax
    def _softmax(self, batch: list[Int], i0: Int, rows: Int) -> None:
        """Turn scores into exp(masked score - row max); keep 1 / their sum in `factors`."""
        f = self.f
        with f.loop(0, rows) as r:
            row = f.at(self.scores, "float", f.mul(r.index, self.width))
            factor = self._softmax_row(row, (*batch, f.add(i0, r.index)))
            f.store(factor, f.at(self.factors, "float", r.index), align=4)

    def _softmax_row(self, row: Value, outer: tuple[Int, ...]) -> Value:
        f, bodies = self.f, self.bodies
        scale = splat(f, "f32", self.spec.scale)
        known = bodies.emit(bodies.hoistable(self.key_loop), Position((*outer, 0)))
        maxima, sums = Accumulators(f, "reduce.max", "f32"), Accumulators(f, "reduce.sum", "f32")

        def mask_scores(j: Int, mask: Value | None, state: State) -> State:
            score = apply(f, "mul", "f32", f.load(VECTOR, f.at(row, "float", j), align=4), scale)
            if bodies.ids:
                values = bodies.emit(bodies.ids, Position((*outer, j), mask), known, score)
                score = values[bodies.ids[-1]]
            f.store(score, f.at(row, "float", j), align=4)
            return maxima.add(state, score, mask)

        chunks = f.ceildiv(self.k_len, LANES)
        part = Range(0, self.k_len)
        top = maxima.finish(strip(f, part, N_ACCUMULATORS, mask_scores, maxima.start), chunks)
        lowest = splat(f, "f32", "-inf")
        empty = f.op(f"<{LANES} x i1>", f"fcmp oeq {VECTOR} {top.name}, {lowest.name}")
        if self.spec.safe_softmax:
            top = self._select(empty, splat(f, "f32", 0.0), top)

        def weights(j: Int, mask: Value | None, state: State) -> State:
            score = f.load(VECTOR, f.at(row, "float", j), align=4)
            weight = apply(f, "exp", "f32", apply(f, "sub", "f32", score, top))
            f.store(weight, f.at(row, "float", j), align=4)
            return sums.add(state, weight, mask)

        total = sums.finish(strip(f, part, N_ACCUMULATORS, weights, sums.start), chunks)
        factor = apply(f, "div", "f32", splat(f, "f32", 1.0), total)
        if self.spec.safe_softmax:  # a row without keys, or all masked: 0 * 1
            factor = self._select(empty, splat(f, "f32", 1.0), factor)
        elif self.k_len == 0:
            factor = splat(f, "f32", 1.0)
        elif not isinstance(self.k_len, int):
            some = f.splat(f.less(0, self.k_len), LANES)
            factor = self._select(some, factor, splat(f, "f32", 1.0))
        return f.op("float", f"extractelement {VECTOR} {factor.name}, i32 0")

    def _select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.f.op(a.type, f"select {condition.type} {condition.name}, {a.type} {a.name}, {b.type} {b.name}")

    # results
    def _outputs(self, batch: list[Int], i0: Int, rows: Int) -> None:
        """out[i, :] = factors[i] * sum over j of scores[i, j] * v[j, :], one panel of columns after the other."""
        f = self.f
        outer = dict(enumerate(batch))
        out = f.at(self.bodies.addresses[self.spec.out], "float", self.out.offset(f, {**outer, self.row_loop: i0}))
        v = f.at(self.bodies.addresses[self.spec.v], "float", self.v.offset(f, outer))
        with f.loop(0, self.v_dim, PANEL) as panel:
            columns = PANEL if isinstance(self.v_dim, int) and self.v_dim % PANEL == 0 else f.sub(self.v_dim, panel.index)
            self._pack_values(f.at(v, "float", panel.index), columns)
            target = f.at(out, "float", panel.index)

            def row_tile(number: Int, begin: Int, count: Int) -> None:
                a = f.at(self.scores, "float", f.mul(begin, self.width))
                self._multiply(self.weigh, count, a, self.values, self.results)
                self._store(target, begin, count, columns)

            each_tile(f, rows, self.most, row_tile)

    def _vectors(self, columns: Int) -> list[tuple[int, Value | None]]:
        """Return (first column, mask) of the vectors in a panel of `columns`, which may exceed PANEL."""
        f = self.f
        if columns == PANEL:
            return [(first, None) for first in range(0, PANEL, LANES)]
        return [(first, tail(f, f.sub(columns, first))) for first in range(0, PANEL, LANES)]

    def _pack_values(self, v: Value, columns: Int) -> None:
        f = self.f
        vectors = self._vectors(columns)
        with f.loop(0, self.k_len) as j:
            row = f.at(v, "float", f.mul(j.index, self.v.stride(self.key_loop)))
            place = f.at(self.values, "float", f.mul(j.index, PANEL))
            for first, mask in vectors:
                f.store(load(f, f.at(row, "float", first), mask), f.at(place, "float", first), align=4)

    def _store(self, out: Value, begin: Int, count: Int, columns: Int) -> None:
        """Write a row tile's results, each row times its factor."""
        f = self.f
        vectors = self._vectors(columns)
        with f.loop(0, count) as r:
            i = f.add(begin, r.index)
            factor = f.splat(f.load("float", f.at(self.factors, "float", i), align=4), LANES)
            row = f.at(out, "float", f.mul(i, self.out.stride(self.row_loop)))
            sums = f.at(self.results, "float", f.mul(r.index, PANEL))
            for first, mask in vectors:
                value = apply(f, "mul", "f32", f.load(VECTOR, f.at(sums, "float", first), align=4), factor)
                store(f, value, f.at(row, "float", first), mask)
