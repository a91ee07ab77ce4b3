"""Parts of attention kernels: packing, exponentials, prefetching, each compiled once for all lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import prefetch, unread
from ...llvm.transpose import fold, transpose
from ...llvm.values import f32_bits
from ...llvm.vector import Vec, at_most, fma, select
from ...loops.bodies import LANES, splat
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ...math.exponentials import WEIGHT, weight
from ..matmul.arithmetic import VECTOR
from ..matmul.lanes import load, store, tail
from ..matmul.microkernel import Ending

MAX_UNROLLED = 8  # vectors of a row that are prefetched by straight-line code
BLOCK_KEYS = 64  # of a row that one iteration masks, or turns into weights
LIMIT = 32.0  # scores of a row are not shifted if the greatest, as a power of two, is within this
ScoreChunk = Callable[[Int, Value, Value | None, State], State]


def call_part(f: Function, name: str, emit: Callable[..., None], *arguments: Int | float | None) -> Value:
    """Call the part that `emit(g, *arguments)` makes, and return its result: numbers are compiled in, Values
    become its parameters."""

    def define(part: Function) -> None:
        given = iter(part.params)
        emit(part, *(next(given) if isinstance(x, Value) else x for x in arguments))

    key = tuple(replace(x, name="") if isinstance(x, Value) else x for x in arguments)
    return f.call_part(name, define, *(x for x in arguments if isinstance(x, Value)), key=key)


def over_keys(
    f: Function, row: Value, keys: Range, most: int, width: int, chunk: ScoreChunk, state: Sequence[Value]
) -> State:
    """Emit `chunk(j, place, mask, state)` for each vector of `keys`; `place`: of its scores in a row.

    The row is in panels of `most` rows and `width` keys. An iteration does BLOCK_KEYS keys.
    """

    def at(panels: Value, key: Int) -> Value:
        return f.at(panels, "float", f.add(f.mul(f.udiv(key, width), most * width), f.urem(key, width)))

    whole, values = f.mul(f.udiv(keys.count, BLOCK_KEYS), BLOCK_KEYS), list(state)
    if whole != 0:
        with f.loop(0, whole, BLOCK_KEYS, state) as block:
            values, panels = block.carried, f.at(row, "float", f.mul(block.index, most))
            for key in range(0, BLOCK_KEYS, LANES):
                values = chunk(f.add(block.index, key), at(panels, key), None, values)
            block.next(*values)
        values = block.results
    panels = f.at(row, "float", f.mul(whole, most))

    def rest(key: Int, mask: Value | None, inside: State) -> State:
        return chunk(f.add(whole, key), at(panels, key), mask, inside)

    return strip(f, Range(0, f.urem(keys.count, BLOCK_KEYS), keys.multiple), 1, rest, values)


def greater(f: Function, a: Value, b: Value) -> Value:
    """Return the greater of each lane; b where a is NaN."""
    return select(Vec(f, a).gt(Vec(f, b)), Vec(f, a), Vec(f, b)).value


def _fold(f: Function, lanes: Value, most: int, combine: Callable[[Vec, Vec], Vec]) -> Vec:
    """Return the vector with row r's reduction in lane r; `lanes`: a vector of each of `most` rows."""
    rows = [f.load(VECTOR, f.at(lanes, "float", LANES * r), align=4) for r in range(most)]
    return Vec(f, fold(f, rows, lambda a, b: combine(Vec(f, a), Vec(f, b)).value))


def _top(f: Function, tops: Value, most: int, running: Value | None) -> Vec:
    """Return each row's greatest score so far."""
    top = _fold(f, tops, most, lambda a, b: Vec(f, greater(f, a.value, b.value)))
    return top if running is None else Vec(f, greater(f, top.value, f.load(VECTOR, running, align=4)))


def _base(top: Vec, unit: float) -> Vec:
    """Return the number that is subtracted from the scores of rows whose greatest is `top`."""
    return select(top.abs().le(LIMIT / unit) | top.eq(float("-inf")), 0.0, top)


def _weight(score: Vec, unit: float, constants: Sequence[Vec | float] = WEIGHT) -> Vec:
    """Return 2^(unit * score)."""
    return weight(score if unit == 1.0 else score * unit, constants)


def write_constants(f: Function, to: Value, scale: float) -> None:
    """Write the constants of `weights_of_sums`: constants in mutable memory stay in registers."""
    for i, number in enumerate((scale, *WEIGHT)):
        f.store(Value("float", f32_bits(number)), f.at(to, "float", i), align=4)


def clear(f: Function, tops: Value, totals: Value, most: int) -> None:
    """Start the maxima and the sums by lane of `most` rows."""
    for r in range(most):
        f.store(splat(f, "f32", "-inf"), f.at(tops, "float", LANES * r), align=4)
        f.store(splat(f, "f32", 0.0), f.at(totals, "float", LANES * r), align=4)


def weights_of_sums(arguments: Sequence[Value], width: int, stride: int, unit: float) -> Ending:
    """Return the function from sums q . k to weights 2^(unit * (scale * sum + bias)).

    `arguments`: addresses of the constants, a panel's weights, the biases of its keys (those of the next row
    `stride` further), rows' maxima and rows' sums by lane.
    """

    def emit(g: Function, given: Sequence[Value], sums: list[list[Value]]) -> None:
        numbers, weights, biases, tops, totals = given
        scale, *constants = (
            Vec(g, g.splat(g.load("float", g.at(numbers, "float", i), align=4), LANES))
            for i in range(1 + len(WEIGHT))
        )
        for r, row in enumerate(sums):
            top, total = (g.at(lanes, "float", LANES * r) for lanes in (tops, totals))
            greatest, so_far = g.load(VECTOR, top, align=4), Vec(g, g.load(VECTOR, total, align=4))
            for v, acc in enumerate(row):
                bias = g.load(VECTOR, g.at(biases, "float", stride * r + LANES * v), align=4)
                score = fma(Vec(g, acc), scale, Vec(g, bias))
                greatest = greater(g, score.value, greatest)
                one = _weight(score, unit, constants)
                so_far = so_far + one
                g.store(one.value, g.at(weights, "float", width * r + LANES * v), align=4)
            g.store(greatest, top, align=4)
            g.store(so_far.value, total, align=4)

    return Ending(list(arguments), emit, (width, stride, unit))


def exponentiate(
    f: Function,
    scores: Value,
    tops: Value,
    totals: Value,
    factors: Value,
    rows: Value,
    k_len: Value,
    most: int,
    width: int,
    unit: float,
    running: Value | None = None,
) -> None:
    """Replace masked scores by 2^(unit * (score - base)), row by row; write their sums by lane to `totals`.

    `tops`: each row's maxima by lane. `factors`: room for the rows' bases.
    """
    f.store(_base(_top(f, tops, most, running), unit).value, factors, align=4)
    with f.loop(0, rows) as r:
        row = f.at(scores, "float", f.mul(r.index, width))
        base = Vec(f, f.splat(f.load("float", f.at(factors, "float", r.index), align=4), LANES))
        total = _exponentiate_row(f, row, base, k_len, most, width, unit)
        f.store(total, f.at(totals, "float", f.mul(r.index, LANES)), align=4)


def _exponentiate_row(
    f: Function, row: Value, base: Vec, k_len: Value, most: int, width: int, unit: float
) -> Value:
    """Replace masked scores by 2^(unit * (score - base)); return their sum by lane."""

    def chunk(j: Int, place: Value, mask: Value | None, state: State) -> State:
        one = _weight(Vec(f, f.load(VECTOR, place, align=4)) - base, unit)
        f.store(one.value, place, align=4)
        return [(Vec(f, state[0]) + one).value]

    # Lanes past the end are -inf: their weights are 0.
    keys = Range(0, f.mul(f.ceildiv(k_len, LANES), LANES), LANES)
    return over_keys(f, row, keys, most, width, chunk, [splat(f, "f32", 0.0)])[0]


def finish(
    f: Function,
    tops: Value,
    totals: Value,
    factors: Value,
    k_len: Value,
    most: int,
    is_safe: bool,
    unless_shifted: bool,
    unit: float,
    running: Value | None = None,
    is_last: Value | None = None,
) -> None:
    """Write 1 / the sum of each row's weights to `factors`; from block to block: 1 until `is_last`.

    `tops`, `totals`: each row's maxima and sums by lane. `is_safe`: a row that is masked everywhere gets the
    factor 1, else NaN. `running`, if given: see `RowTile`. `unless_shifted`: only return true if scores of a
    row must be shifted.
    """
    top = _top(f, tops, most, running)
    base = _base(top, unit)
    if unless_shifted:
        f.result = base.ne(0.0).any()
        with f.when(f.op("i1", f"xor i1 {f.result.name}, true")):
            _finish(f, top, base, totals, factors, k_len, most, is_safe, unit, running, is_last)
    else:
        _finish(f, top, base, totals, factors, k_len, most, is_safe, unit, running, is_last)


def _finish(
    f: Function,
    top: Vec,
    base: Vec,
    totals: Value,
    factors: Value,
    k_len: Value,
    most: int,
    is_safe: bool,
    unit: float,
    running: Value | None,
    is_last: Value | None,
) -> None:
    total = _fold(f, totals, most, lambda a, b: a + b)
    if running is not None:
        total = _keep(f, running, top, base, total, unit)
    factor = select(top.eq(float("-inf")), factor_of_none(f, total, k_len, is_safe), 1.0 / total)
    if is_last is not None:
        factor = select(Vec(f, f.splat(f.less(0, is_last), LANES)), factor, 1.0)
    f.store(factor.value, factors, align=4)


def factor_of_none(f: Function, like: Vec, k_len: Value, is_safe: bool) -> Vec:
    """Return the factor of a row that sees no key: there are none, or all are masked."""
    one = like.like(1.0)
    return one if is_safe else select(Vec(f, f.splat(f.less(k_len, 1), LANES)), one, nan)


def _keep(f: Function, running: Value, top: Vec, base: Vec, total: Vec, unit: float) -> Vec:
    """Write the rows' state after this block; return their total sums."""
    sums, scales = (f.at(running, "float", i * LANES) for i in (1, 2))
    before = _base(Vec(f, f.load(VECTOR, running, align=4)), unit)
    scale = _weight(at_most(before - base, 0.0), unit)
    total = fma(Vec(f, f.load(VECTOR, sums, align=4)), scale, total)
    for value, place in ((top, running), (total, sums), (scale, scales)):
        f.store(value.value, place, align=4)
    return total


def rescale(f: Function, c: Value, scales: Value, rows: Value, ldc: Int, width: int) -> None:
    """Multiply `rows` rows of `width` elements by their scales."""
    with f.loop(0, rows) as r:
        row = f.at(c, "float", f.mul(r.index, ldc))
        scale = Vec(f, f.splat(f.load("float", f.at(scales, "float", r.index), align=4), LANES))
        for first in range(0, width, LANES):
            place = f.at(row, "float", first)
            f.store((Vec(f, f.load(VECTOR, place, align=4)) * scale).value, place, align=4)


def clear_rows(f: Function, first: Value, rows: Value, stride: Value, dim: Int) -> None:
    """Write zeros to `dim` elements of rows `stride` elements apart."""
    with f.loop(0, rows) as r:
        row = f.at(first, "float", f.mul(r.index, stride))

        def chunk(column: Int, mask: Value | None, state: State) -> State:
            store(f, splat(f, "f32", 0.0), f.at(row, "float", column), mask)
            return state

        strip(f, Range(0, dim), 1, chunk)


def prefetch_rows(f: Function, first: Value, rows: Int, stride: Int, dim: Int, level: int) -> None:
    """Prefetch `dim` elements of rows `stride` elements apart; they may lie outside the buffer."""
    name = f"prefetch_{dim if isinstance(dim, int) else 'rows'}_{level}"
    call_part(f, name, _prefetch_rows, first, f.i64(rows), f.i64(stride), dim, level)


def _prefetch_rows(f: Function, first: Value, rows: Value, stride: Value, dim: Int, level: int) -> None:
    with f.loop(0, rows) as r:
        row = unread(f, first, f.mul(r.index, stride))
        if isinstance(dim, int) and dim <= MAX_UNROLLED * LANES:
            for column in range(0, dim, LANES):
                prefetch(f, unread(f, row, column), level)
        else:
            with f.loop(0, dim, LANES) as d:
                prefetch(f, unread(f, row, d.index), level)


def pack_keys(f: Function, k: Value, to: Value, k_len: Value, head_dim: Int, stride: Int, width: int) -> None:
    """Write keys as [ceil(k_len / width), head_dim rounded up to LANES, width].

    Positions past the end repeat the last key.
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
