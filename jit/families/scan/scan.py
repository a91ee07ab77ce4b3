"""The Scan family: running sums, products, extrema along one axis of [rows, length, columns].

With columns, lanes are columns and every step takes the next position, in order. Along a row (`columns`
is 1) lanes are positions: a vector is scanned by combining it with itself moved by 1, 2, 4 and 8 lanes,
then with what came before it. Which of both it is stands in the spec, so it is the same for every tier.
Sums and products of f32 and bf16 are kept in f64, where sums of a few lanes do not overflow if those of
all do not, those of f16 in f32, and rounded at every position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.constants import splat_int
from ...llvm.conversion import cast
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.bodies import LANES, BodyEmitter, Position, splat
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ...math.table import apply
from ...spec import Body, Index, Instr, Size
from ..family import Variant, first_fitting
from ..nest.reduce import Reduction
from .spec import Scan

BLOCK = 128  # columns in a tile
ROWS = 4  # rows in a tile, along rows
X, OUT, PLACES = range(3)
Tiles = tuple[tuple[tuple[Size, int], ...], int]


@dataclass(frozen=True)
class Rule:
    """How a scan combines its state with the next element, its initial state, and its dtype."""

    combine: Callable[[Function, str, State, State], State]
    start: Reduction
    has_places: bool = False  # of what it found; else floats are kept in the next wider dtype


def _by(op: str) -> Callable[[Function, str, State, State], State]:
    return lambda f, dtype, old, new: [apply(f, op, dtype, old[0], new[0])]


def _latest(op: str) -> Callable[[Function, str, State, State], State]:
    """Combine (value, place) pairs: the later one wins where `op`(new, old) holds or it is NaN."""

    def combine(f: Function, dtype: str, old: State, new: State) -> State:
        wins = Vec(f, apply(f, op, dtype, new[0], old[0]))
        if DTYPES[dtype].kind == "float":
            wins = (wins & ~Vec(f, old[0]).isnan()) | Vec(f, new[0]).isnan()
        return [select(wins, Vec(f, b), Vec(f, a)).value for a, b in zip(old, new, strict=True)]

    return combine


def _add_exponentials(f: Function, dtype: str, old: State, new: State) -> State:
    """log(exp(old) + exp(new)); equal infinities are unchanged."""

    def do(op: str, *args: Value) -> Value:
        return apply(f, op, dtype, *args)

    high, low = do("maximum", old[0], new[0]), do("minimum", old[0], new[0])
    total = do("add", do("log1p", do("exp", do("sub", low, high))), high)
    stays = Vec(f, do("eq", low, high)) & Vec(f, do("isinf", low))
    return [select(stays, Vec(f, high), Vec(f, total)).value]


RULES: dict[str, Rule] = {
    "sum": Rule(_by("add"), Reduction("add", 0)),
    "prod": Rule(_by("mul"), Reduction("mul", 1)),
    "max": Rule(_latest("ge"), Reduction("maximum", "lowest"), has_places=True),
    "min": Rule(_latest("le"), Reduction("minimum", "highest"), has_places=True),
    "logsumexp": Rule(_add_exponentials, Reduction("maximum", "lowest")),
}


def emit(f: Function, spec: Scan, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Scan; see `abi.Generator`. The schedule is "rows" or "columns", as the spec is."""
    variant = first_fitting(VARIANTS, spec)
    check_schedule("scan", schedule, [variant.name])
    tiles, at_once = variant.emit(_Scan(f, spec, sizes))
    n_bytes = 2 * DTYPES[spec.buffers[X].dtype].bytes + 8
    return Generated(Work(tiles, (), ((n_bytes * at_once, (spec.length,)),)), variant.name)


def _emit_rows(scan: _Scan) -> Tiles:
    f = scan.f
    first = f.mul(f.params[3], ROWS)
    last = f.minimum(f.mul(f.params[4], ROWS), scan.rows)
    with f.loop(first, last) as row:
        scan.along(row.index)
    return ((scan.spec.rows, ROWS),), ROWS


def _emit_columns(scan: _Scan) -> Tiles:
    f = scan.f
    blocks = f.ceildiv(scan.columns, BLOCK)
    with f.loop(f.params[3], f.params[4]) as tile:
        block = f.urem(tile.index, blocks)
        scan.across(f.udiv(tile.index, blocks), f.mul(block, BLOCK))
    return ((scan.spec.rows, 1), (scan.spec.columns, BLOCK)), BLOCK


#: The first one that fits is taken. `emit` returns the kernel's tiles, and how many of its sums a tile has.
VARIANTS: tuple[Variant[Scan, Callable[[_Scan], Tiles]], ...] = (
    Variant("rows", lambda spec: spec.columns == 1, _emit_rows),
    Variant("columns", lambda spec: True, _emit_columns),
)


def body_of(spec: Scan) -> Body:
    """Return one step as a body over the axes: the load, then a value and its store for each output."""
    at = tuple(Index(loop=i) for i in range(3))
    body = [Instr("load", spec.buffers[X].dtype, buffer=X, index=at)]
    for out in range(OUT, len(spec.buffers)):
        dtype = spec.buffers[out].dtype
        body += [Instr("acc", dtype), Instr("store", dtype, (len(body),), buffer=out, index=at)]
    return tuple(body)


class _Scan:
    """Construct it in the entry block."""

    def __init__(self, f: Function, spec: Scan, sizes: Sequence[Int]) -> None:
        self.f, self.spec = f, spec
        self.rule = RULES[spec.op]
        self.rows, self.length, self.columns = (
            resolve(size, sizes) for size in (spec.rows, spec.length, spec.columns)
        )
        self.outputs = [buffer.dtype for buffer in spec.buffers[OUT:]]
        source = spec.buffers[X].dtype
        self.source = source
        wide = {"f32": "f64", "f16": "f32", "bf16": "f64"}
        self.dtype = wide.get(source, source) if not self.rule.has_places else source
        self.dtype = "f32" if self.dtype in ("f16", "bf16") else self.dtype
        self.bodies = BodyEmitter(f, body_of(spec), spec.buffers, sizes, 1 if spec.columns == 1 else 2)
        self.start = [splat(f, self.dtype, self.rule.start.start(self.dtype))]
        self.start += [splat(f, "i64", 0)] * (len(self.outputs) - 1)

    def _combine(self, old: State, new: State) -> State:
        return self.rule.combine(self.f, self.dtype, old, new)

    def _read(self, at: Position) -> State:
        """Return the element at a place, and its position."""
        (value,) = self.bodies.emit([0], at).values()
        found = [cast(Vec(self.f, value), self.source, self.dtype).value]
        if len(self.outputs) > 1:
            along = self.bodies.vector_loop == 1
            found.append(splat_int(self.f, at.loops[1], step=int(along)))
        return found

    def _write(self, at: Position, state: State) -> None:
        f = self.f
        given = {1: cast(Vec(f, state[0]), self.dtype, self.outputs[0]).value}
        given |= {3: state[1]} if len(state) > 1 else {}
        self.bodies.emit([2 * i + 2 for i in range(len(state))], at, {0: given[1], **given})

    def across(self, row: Int, first: Int) -> None:
        """Emit the scan of up to BLOCK columns of a row from `first`."""
        f = self.f

        def chunk(column: Int, mask: Value | None, state: State) -> State:
            with f.loop(0, self.length, 1, self.start) as loop:
                at = Position((row, loop.index, column), mask)
                after = self._combine(loop.carried, self._read(at))
                self._write(at, after)
                loop.next(*after)
            return state

        strip(f, Range(first, f.minimum(BLOCK, f.sub(self.columns, first))), 1, chunk)

    def along(self, row: Int) -> None:
        """Emit the scan of one row."""
        f = self.f

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            at = Position((row, index, 0), mask)
            values, distance = self._read(at), 1
            while distance < LANES:
                values = self._combine(self._moved(values, distance), values)
                distance *= 2
            values = self._combine(state, values)
            self._write(at, values)
            return [_last_lane(f, value) for value in values]

        strip(f, Range(0, self.length), 1, chunk, self.start)

    def _moved(self, state: State, distance: int) -> State:
        """Return vectors moved up by `distance` lanes, the lowest ones being the start's."""
        order = ", ".join(f"i32 {LANES - distance + lane}" for lane in range(LANES))
        moved = []
        for start, value in zip(self.start, state, strict=True):
            pair = f"{value.type} {start.name}, {value.type} {value.name}"
            moved.append(self.f.op(value.type, f"shufflevector {pair}, <{LANES} x i32> <{order}>"))
        return moved


def _last_lane(f: Function, value: Value) -> Value:
    picks = ", ".join([f"i32 {LANES - 1}"] * LANES)
    return f.op(
        value.type,
        f"shufflevector {value.type} {value.name}, {value.type} poison, <{LANES} x i32> <{picks}>",
    )
