"""The Attention family: softmax(q k^T) v for a few query rows at a time, without the length x length
matrix.

A tile is one place of the batch loops and a block of query rows. It copies the head's keys, transposed,
and values into panels in scratch; then for each row tile (at most `Schedule.rows` rows) it computes the
scores with keys along the lanes, turns them into exp(score - max) in place and multiplies v, all in the
first- and second-level cache. All three sums have a fixed order: over the head dimension and over keys
by ascending fused multiply-adds (`microkernel`), the softmax's as `reduce` does. The division by the
row's sum is a multiplication by its reciprocal, after the sum over keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .abi import RT_SCRATCH, Generated, check_schedule, resolve
from .affine import affine
from .bodies import LANES, BodyEmitter, Position, splat
from .exponentials import F32 as EXP
from .llvm import Function, Int, Value, most
from .math import apply
from .microkernel import (
    PANEL,
    SCHEDULES,
    VECTOR,
    MicroKernels,
    Strides,
    default_schedule,
    dispatch,
    each_tile,
    load,
    row_counts,
    store,
    tail,
)
from .reduce import Accumulators
from .spec import Attention, Size
from .strip import State, strip
from .tiling import Range
from .transpose import rotate, transpose
from .vector import Vec, fma, polynomial, select

BLOCK = 224  # query rows of a tile at most: they share one copy of the keys and values
F32 = 4  # bytes
LOWEST_EXPONENT = -87.0  # e^x of less is taken as 0: 1e-38 of the row's largest weight


def exp_of_nonpositive(x: Vec) -> Vec:
    """e^x for x <= 0: within 1 ulp down to LOWEST_EXPONENT, 0 below it, NaN for NaN.

    Half the instructions of `exponentials.exp`: no result is subnormal or infinite, so 2^n is one shift.
    """
    shifter = EXP.shifter + EXP.bias  # the sum's low bits are n + bias
    shifted = fma(x, EXP.log2e, shifter)
    n = shifted - shifter
    r = fma(n, -EXP.ln2[1], fma(n, -EXP.ln2[0], x))
    power = (shifted.bits() << EXP.mantissa).floats()
    keep = x.compare("uge", LOWEST_EXPONENT)
    return select(keep, polynomial(r, EXP.exp) * power, 0.0)


def choose_schedule(f: Function, v_dim: Int) -> str:
    """Return the name of the register tile: the widest whose panels the values fill, at least by half."""
    name = default_schedule(f)
    is_full = isinstance(v_dim, int) and -v_dim % (2 * PANEL) < PANEL
    return "6x64" if name == "14x32" and is_full else name


def emit(f: Function, spec: Attention, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Attention; see `abi.Generator`. Schedules: those of `microkernel`."""
    name = schedule or choose_schedule(f, resolve(spec.v_dim, sizes))
    check_schedule("attention", name, list(SCHEDULES))
    for role, buffer in (("q", spec.q), ("k", spec.k), ("v", spec.v), ("out", spec.out)):
        if spec.buffers[buffer].dtype != "f32":
            raise ValueError(
                f"attention kernel: {role} is {spec.buffers[buffer].dtype}; it must be f32 (cast it first)"
            )
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
                raise ValueError(
                    f"attention kernel: {role}'s head dimension must be its last axis (stride 1); copy {role}"
                )
        self.most, self.vectors = SCHEDULES[schedule].rows, SCHEDULES[schedule].vectors
        self.panel = max(PANEL, LANES * self.vectors)  # columns of the panels of keys, values and scores
        self.block = BLOCK // self.most * self.most
        if isinstance(self.q_len, int):
            self.block = -(-self.q_len // max(-(-self.q_len // self.block), 1)) or 1
        self._place_scratch()
        lda, group = self.q.stride(self.row_loop), self.most * self.panel
        score = Strides(lda, self.panel, self.panel, self.head_dim)
        self.score = {n: MicroKernels(f, "score", score, n) for n in range(1, self.vectors + 1)}
        # k_len is passed, also where it is known: so kernels of all lengths share their parts.
        k_len = f.i64(self.k_len)
        weigh = Strides(self.panel, self.panel, self.panel, k_len, group, a_width=self.panel)
        self.weigh = MicroKernels(f, "weigh", weigh, self.vectors)

    def _place_scratch(self) -> None:
        """Lay out scratch: a row tile of results, factors, maxima, scores, panels of keys and values."""
        f = self.f
        self.width = f.mul(f.ceildiv(self.k_len, self.panel), self.panel)  # of a row of scores
        self.depth = f.mul(f.ceildiv(self.head_dim, LANES), LANES)  # rows of a panel of keys
        self.results = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        self.factors = f.at(self.results, "float", self.most * self.panel)
        self.tops = f.at(self.factors, "float", LANES)
        self.scores = f.at(self.tops, "float", LANES)
        self.keys = f.at(self.scores, "float", f.mul(self.width, self.most))
        self.values = f.at(self.keys, "float", f.mul(self.width, self.depth))

    def _scratch(self) -> tuple[tuple[int, tuple[Size, ...]], ...]:
        """Return bytes that hold what `_place_scratch` laid out, with every length rounded up."""
        k_len, d, v = self.spec.k_len, self.spec.head_dim, self.spec.v_dim
        fixed = self.most * self.panel + 2 * LANES + self.most * self.panel + self.panel * LANES
        terms = [
            (fixed, ()),
            (self.most + LANES + self.panel, (k_len,)),
            (self.panel, (d,)),
            (1, (k_len, d)),
            (1, (k_len, v)),
        ]
        return tuple((F32 * factor, sizes) for factor, sizes in terms)

    def emit(self) -> Generated:
        """Emit the tiles; return what the code object says of them."""
        f, spec = self.f, self.spec
        with f.loop(f.params[3], f.params[4]) as tile:
            *batch, block = self._decode(tile.index)
            i0 = f.mul(block, self.block)
            top = most(self.q_len)
            one = top is not None and top <= self.block
            rows = self.q_len if one else f.minimum(self.block, f.sub(self.q_len, i0))
            self._tile(batch, i0, rows)
        tiles: list[tuple[Size, int]] = [*((size, 1) for size in spec.batch), (spec.q_len, self.block)]
        products = tuple((2 * self.block, (spec.k_len, size)) for size in (spec.head_dim, spec.v_dim))
        return Generated(
            tuple(tiles), self._scratch(), (*products, (20 * self.block, (spec.k_len,))), self.schedule
        )

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
        return row_counts(self.q_len, self.block, self.most)

    def _tile(self, batch: list[Int], i0: Int, rows: Int) -> None:
        """Emit the work of `rows` query rows from i0."""
        f = self.f
        outer = dict(enumerate(batch))
        first = {**outer, self.row_loop: i0}
        q = f.at(self.bodies.addresses[self.spec.q], "float", self.q.offset(f, first))
        out = f.at(self.bodies.addresses[self.spec.out], "float", self.out.offset(f, first))
        keys = f.at(self.bodies.addresses[self.spec.k], "float", self.k.offset(f, outer))
        values = f.at(self.bodies.addresses[self.spec.v], "float", self.v.offset(f, outer))
        k_len, step = f.i64(self.k_len), self.key_loop
        call_part(
            f, "pack_keys", pack_keys, keys, self.keys, k_len, self.head_dim, self.k.stride(step), self.panel
        )
        call_part(
            f,
            "pack_values",
            pack_values,
            values,
            self.values,
            k_len,
            self.v_dim,
            self.v.stride(step),
            self.panel,
        )

        def row_tile(number: Int, begin: Int, count: Int) -> None:
            left = f.at(q, "float", f.mul(begin, self.q.stride(self.row_loop)))
            dispatch(f, count, self._row_counts(), lambda n: self._scores(n, left))
            self._softmax(batch, f.add(i0, begin), count)
            self._outputs(f.at(out, "float", f.mul(begin, self.out.stride(self.row_loop))), count)

        each_tile(f, rows, self.most, row_tile)

    # one row tile
    def _multiply(self, kernels: MicroKernels, rows: int, a: Value, b: Value, c: Value, columns: int) -> None:
        """c = a @ the first `columns` of the panel b."""
        f = self.f
        for first in range(0, columns, LANES * kernels.vectors):
            kernels.call(rows, a, f.at(b, "float", first), f.at(c, "float", first), b, 0)

    def _scores(self, rows: int, q: Value) -> None:
        """scores[i, j] = q[i] . k[j], unscaled; of a last panel only the vectors that have keys."""
        f, most = self.f, self.panel // LANES

        def panel(j: Int, vectors: int) -> None:
            keys = f.at(self.keys, "float", f.mul(j, self.depth))
            scores = f.at(self.scores, "float", f.mul(j, self.most))
            kernels = self.score[min(vectors, self.vectors)]
            self._multiply(kernels, rows, q, keys, scores, vectors * LANES)

        with f.loop(0, f.sub(self.k_len, (most - 1) * LANES), self.panel) as j:
            panel(j.index, most)
        # index in its panel of the last key; none: panel - 1
        in_last = f.urem(f.add(self.k_len, self.panel - 1), self.panel)
        begin = f.mul(f.udiv(self.k_len, self.panel), self.panel)
        vectors = f.add(f.udiv(in_last, LANES), 1)
        is_partial = f.is_less(in_last, (most - 1) * LANES)

        def rest() -> None:
            dispatch(f, vectors, range(1, most), lambda n: panel(begin, n))

        f.either(is_partial, rest, lambda: None)

    def _outputs(self, out: Value, rows: Int) -> None:
        """out[i, :] = factors[i] * sum over j of scores[i, j] * v[j, :], panel by panel of columns."""
        f = self.f
        with f.loop(0, self.v_dim, self.panel) as panel:
            values = f.at(self.values, "float", f.mul(panel.index, self.k_len))
            counts = self._row_counts()
            dispatch(f, rows, counts, lambda n: self._weigh(n, values))
            vectors = panel_vectors(f, self.v_dim, panel.index, self.panel)
            with f.loop(0, rows) as r:
                factor = f.splat(f.load("float", f.at(self.factors, "float", r.index), align=4), LANES)
                row = f.at(
                    f.at(out, "float", panel.index), "float", f.mul(r.index, self.out.stride(self.row_loop))
                )
                sums = f.at(self.results, "float", f.mul(r.index, self.panel))
                for first, mask in vectors:
                    total = f.load(VECTOR, f.at(sums, "float", first), align=4)
                    store(f, apply(f, "mul", "f32", total, factor), f.at(row, "float", first), mask)

    def _weigh(self, rows: int, values: Value) -> None:
        self._multiply(self.weigh, rows, self.scores, values, self.results, self.panel)

    # softmax
    def _softmax(self, batch: list[Int], i0: Int, rows: Int) -> None:
        """Turn scores into exp(masked score - row max); keep 1 / their sum in `factors`.

        Every row's maximum first: the rows' chains of dependent instructions then overlap.
        """
        f = self.f
        with f.loop(0, rows) as r:
            row = f.at(self.scores, "float", f.mul(r.index, self.panel))
            top = self._mask_row(row, (*batch, f.add(i0, r.index)))
            keep_first(f, top, f.at(self.tops, "float", r.index))
        given = (self.scores, self.tops, self.factors, f.i64(rows), f.i64(self.k_len))
        call_part(f, "exponentiate", exponentiate, *given, self.most, self.panel, self.spec.safe_softmax)

    def _score(self, row: Value, j: Int) -> Value:
        return score_at(self.f, row, j, self.most, self.panel)

    def _mask_row(self, row: Value, outer: tuple[Int, ...]) -> Vec:
        """Scale and mask a row of scores; return the greatest, -inf if all are, in every lane.

        A NaN is no maximum: it reaches the result through its weight.
        """
        f, bodies = self.f, self.bodies
        scale = splat(f, "f32", self.spec.scale)
        known = bodies.emit(bodies.hoistable(self.key_loop), Position((*outer, 0)))
        lowest = splat(f, "f32", "-inf")

        def chunk(j: Int, mask: Value | None, state: State) -> State:
            score = apply(f, "mul", "f32", f.load(VECTOR, self._score(row, j), align=4), scale)
            if bodies.ids:
                score = bodies.emit(bodies.ids, Position((*outer, j), mask), known, score)[bodies.ids[-1]]
            if mask is not None:
                score = select(Vec(f, mask), Vec(f, score), Vec(f, lowest)).value
            f.store(score, self._score(row, j), align=4)
            top = Vec(f, state[0])
            return [*state[1:], select(Vec(f, score).gt(top), Vec(f, score), top).value]

        maxima = [Vec(f, v) for v in strip(f, Range(0, self.k_len), 2, chunk, [lowest, lowest])]
        top = select(maxima[0].gt(maxima[1]), maxima[0], maxima[1])
        for step in (8, 4, 2, 1):
            other = Vec(f, rotate(f, top.value, step))
            top = select(other.gt(top), other, top)
        return top


# Parts, each compiled once for all lengths --------------------------------------------------------------


def call_part(f: Function, name: str, emit: Callable[..., None], *arguments: Int) -> None:
    """Call the part that `emit(g, *arguments)` makes: ints are compiled in, Values become its parameters."""

    def define(part: Function) -> None:
        given = iter(part.params)
        emit(part, *(next(given) if isinstance(x, Value) else x for x in arguments))

    key = tuple(replace(x, name="") if isinstance(x, Value) else x for x in arguments)
    f.call_part(name, define, *(x for x in arguments if isinstance(x, Value)), key=key)


def score_at(f: Function, row: Value, j: Int, most: int, width: int) -> Value:
    """Return the address of the scores of keys j .. j + 15 in a row: in panels of `most` rows and `width`
    keys."""
    panel = f.mul(f.udiv(j, width), most * width)
    return f.at(row, "float", f.add(panel, f.urem(j, width)))


def keep_first(f: Function, value: Vec, place: Value) -> None:
    """Store the first lane."""
    f.store(f.op("float", f"extractelement {VECTOR} {value.value.name}, i32 0"), place, align=4)


def exponentiate(
    f: Function,
    scores: Value,
    tops: Value,
    factors: Value,
    rows: Value,
    k_len: Value,
    most: int,
    width: int,
    is_safe: bool,
) -> None:
    """Replace masked scores by exp(score - top) and write 1 / their sum to `factors`, row by row.

    `is_safe`: a row that is masked everywhere gets weights 0 and the factor 1.
    """
    with f.loop(0, rows) as r:
        row = f.at(scores, "float", f.mul(r.index, width))
        top = Vec(f, f.splat(f.load("float", f.at(tops, "float", r.index), align=4), LANES))
        empty = top.eq(Vec(f, splat(f, "f32", "-inf")))
        factor = _exponentiate_row(f, row, select(empty, 0.0, top) if is_safe else top, k_len, most, width)
        if is_safe:
            factor = select(empty, 1.0, factor)
        else:
            factor = select(Vec(f, f.splat(f.less(0, k_len), LANES)), factor, 1.0)
        keep_first(f, factor, f.at(factors, "float", r.index))


def _exponentiate_row(f: Function, row: Value, top: Vec, k_len: Value, most: int, width: int) -> Vec:
    """Replace masked scores by exp(score - top); return 1 / their sum in every lane."""
    sums = Accumulators(f, "reduce.sum", "f32")

    def chunk(j: Int, mask: Value | None, state: State) -> State:
        place = score_at(f, row, j, most, width)
        weight = exp_of_nonpositive(Vec(f, f.load(VECTOR, place, align=4)) - top).value
        f.store(weight, place, align=4)
        return sums.add(state, weight, mask)

    end = strip(f, Range(0, k_len), 2, chunk, sums.start)
    return 1.0 / Vec(f, sums.finish(end, f.ceildiv(k_len, LANES)))


def pack_keys(f: Function, k: Value, to: Value, k_len: Value, head_dim: Int, stride: Int, width: int) -> None:
    """Write keys as [ceil(k_len / width), head_dim rounded up to LANES, width].

    The last key stands in for those past the end.
    """
    depth = f.mul(f.ceildiv(head_dim, LANES), LANES)
    whole = isinstance(head_dim, int) and head_dim % LANES == 0
    last = f.sub(k_len, 1)
    with f.loop(0, k_len, LANES) as j0:
        panel, column = f.udiv(j0.index, width), f.urem(j0.index, width)
        place = f.at(to, "float", f.add(f.mul(panel, f.mul(depth, width)), column))
        keys = [f.minimum(f.add(j0.index, lane), last) for lane in range(LANES)]
        rows = [f.at(k, "float", f.mul(key, stride)) for key in keys]
        with f.loop(0, head_dim, LANES) as d:
            mask = None if whole else tail(f, f.sub(head_dim, d.index))
            columns = transpose(f, [load(f, f.at(row, "float", d.index), mask) for row in rows])
            for i, column_values in enumerate(columns):
                f.store(column_values, f.at(place, "float", f.mul(f.add(d.index, i), width)), align=4)


def panel_vectors(f: Function, v_dim: Int, panel: Int, width: int) -> list[tuple[int, Value | None]]:
    """Return (first column, mask) of each vector of the panel of `v_dim` columns that begins at `panel`."""
    if isinstance(v_dim, int) and v_dim % width == 0:
        return [(first, None) for first in range(0, width, LANES)]
    columns = f.sub(v_dim, panel)
    return [(first, tail(f, f.sub(columns, first))) for first in range(0, width, LANES)]


def pack_values(f: Function, v: Value, to: Value, k_len: Value, v_dim: Int, stride: Int, width: int) -> None:
    """Write values as [ceil(v_dim / width), k_len, width], padded with zeros."""
    with f.loop(0, v_dim, width) as panel:
        vectors = panel_vectors(f, v_dim, panel.index, width)
        source = f.at(v, "float", panel.index)
        target = f.at(to, "float", f.mul(panel.index, k_len))
        with f.loop(0, k_len) as j:
            row = f.at(source, "float", f.mul(j.index, stride))
            place = f.at(target, "float", f.mul(j.index, width))
            for first, mask in vectors:
                f.store(load(f, f.at(row, "float", first), mask), f.at(place, "float", first), align=4)
