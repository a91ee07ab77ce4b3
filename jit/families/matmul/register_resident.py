"""Products with a weight that fits in vector registers: rows of few features.

A row tile's sums never leave their registers: the epilogue follows at once, because storing and reloading
sums would cost as much as computing them. k ascends by fused multiply-adds from 0, so the bits are those of
any other tile.

An epilogue with a function such as tanh is a long chain of dependent instructions, and needs registers for
its constants. Then the weight is reread for each row tile, and a row tile's epilogue is interleaved with the
steps of the next one's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...llvm.function import Function, Int, Value
from ...llvm.vector import AVX512_BYTES
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...math.table import OPS
from .arithmetic import VECTOR
from .epilogue import RowTile
from .problem import Problem, is_f32_panels
from .schedules import PANEL
from .sums import block_of_short

HELD = 16  # at most, registers of the weight
ROWS = 8  # of a row tile: the next one's sums overlap with its own

Sums = list[list[Value]]  # by row and vector


def fits(problem: Problem) -> bool:
    """Whether registers hold the weight, [k, n], beside the sums and the epilogue's values."""
    spec, n, k = problem.spec, problem.n, problem.k
    if problem.groups or not (is_f32_panels(spec) and isinstance(n, int) and isinstance(k, int)):
        return False
    if block_of_short(k, spec.product.chain):
        return False
    has_room = problem.register_bytes >= AVX512_BYTES and k * -(-n // LANES) <= HELD
    return has_room and 0 < n <= PANEL and k > 0


class RegisterResident:
    """Tiles of a product with a weight that `fits`; `lda`: from one row of A to the next."""

    def __init__(self, f: Function, problem: Problem, bodies: BodyEmitter, lda: Int) -> None:
        assert isinstance(problem.n, int) and isinstance(problem.k, int)
        self.f, self.bodies, self.n, self.k, self.lda = f, bodies, problem.n, problem.k, lda
        self.m_loop = problem.m_loop
        self.columns = range(0, self.n, LANES)
        self.is_long = any(i.op in OPS and OPS[i.op].ulp != (0, 0) for i in problem.spec.product.epilogue)

    def emit(self, tile: RowTile, a: Value, panel: Value) -> None:
        """Emit a tile of A's rows at `a` and the weight at `panel`."""
        f, rows, bodies = self.f, tile.rows, self.bodies
        hoisted = bodies.hoistable(self.m_loop)
        known = [bodies.emit(hoisted, Position((*tile.batch, 0, n), self._missing(n))) for n in self.columns]
        read = partial(self._read, panel)
        step = read if self.is_long else [read(k) for k in range(self.k)].__getitem__

        def sums(begin: Int, count: int, between: Callable[[int], None] = lambda k: None) -> Sums:
            return self._sums(f.at(a, "float", f.mul(begin, self.lda)), count, step, between)

        def finish(begin: Int, found: Sums, r: int) -> None:
            self._finish(tile, f.add(begin, r), found[r], known)

        def row_tile(begin: Int, count: int) -> None:
            found = sums(begin, count)
            for r in range(count):
                finish(begin, found, r)

        whole = f.mul(f.udiv(rows, ROWS), ROWS)
        if not self.is_long:
            with f.loop(0, whole, ROWS) as loop:
                row_tile(loop.index, ROWS)
        elif isinstance(whole, Value):
            with f.when(f.less(0, whole)):
                self._overlapped(whole, sums, finish)
        elif whole > 0:
            self._overlapped(whole, sums, finish)
        if isinstance(rows, int) and isinstance(whole, int):
            row_tile(whole, rows - whole)
        else:
            with f.loop(whole, rows) as loop:
                row_tile(loop.index, 1)

    def _overlapped(
        self, rows: Int, sums: Callable[..., Sums], finish: Callable[[Int, Sums, int], None]
    ) -> None:
        """Emit whole row tiles, at least one: each one's epilogue is emitted with the sums of the next."""
        f, width = self.f, len(self.columns)

        def by_row(values: Sequence[Value]) -> Sums:
            return [list(values[i : i + width]) for i in range(0, len(values), width)]

        def flat(found: Sums) -> list[Value]:
            return [x for row in found for x in row]

        last = sums(0, ROWS)
        if not isinstance(rows, int) or rows > ROWS:
            with f.loop(ROWS, rows, ROWS, flat(last)) as loop:
                before, begin = by_row(loop.carried), f.sub(loop.index, ROWS)

                def between(k: int) -> None:
                    for r in range(ROWS * k // self.k, ROWS * (k + 1) // self.k):
                        here = f.label("row")  # blocks: LLVM would put all of a block's arithmetic first
                        f.do(f"br label %{here}")
                        f.start(here)
                        finish(begin, before, r)

                loop.next(*flat(sums(loop.index, ROWS, between)))
            last = by_row(loop.results)
        for r in range(ROWS):
            finish(f.sub(rows, ROWS), last, r)

    def _read(self, panel: Value, k: int) -> list[Value]:
        """Load row k of the weight."""
        f = self.f
        return [f.load(VECTOR, f.at(panel, "float", k * PANEL + n), align=4) for n in self.columns]

    def _sums(
        self, a: Value, count: int, weight: Callable[[int], list[Value]], between: Callable[[int], None]
    ) -> Sums:
        """Return the sums of `count` rows at `a`, by row and vector; `between(k)` comes after each step."""
        f, zero = self.f, Value(VECTOR, "zeroinitializer")
        sums = [[zero for _ in self.columns] for _ in range(count)]
        for k in range(self.k):
            right = weight(k)
            for r, row in enumerate(sums):
                place = f.at(a, "float", f.add(f.mul(self.lda, r), k))
                left = f.splat(f.load("float", place, align=4), LANES)
                sums[r] = [
                    f.call(VECTOR, f"llvm.fma.v{LANES}f32", left, b, s)
                    for b, s in zip(right, row, strict=True)
                ]
            between(k)
        return sums

    def _finish(self, tile: RowTile, row: Int, sums: list[Value], known: list[dict[int, Value]]) -> None:
        """Emit the epilogue of one row."""
        f, bodies = self.f, self.bodies
        for n, total, given in zip(self.columns, sums, known, strict=True):
            at = Position((*tile.batch, f.add(tile.m0, row), n), self._missing(n))
            bodies.emit([i for i in bodies.ids if i not in given], at, given, total)

    def _missing(self, n: int) -> Value | None:
        """Return the mask of the vector of columns from `n` on, None if it is whole."""
        return tail_mask(self.f, self.n - n) if self.n - n < LANES else None
