"""Products with a weight so small that vector registers hold all of it: rows of few features.

A row tile's sums never leave their registers: the epilogue follows at once, where a micro-kernel's sums would
cost as much to store and read back as they take to compute. k ascends by fused multiply-adds from 0, so the
bits are those of any other tile.
"""

from __future__ import annotations

from .bodies import LANES, BodyEmitter, Position, tail_mask
from .epilogue import RowTile
from .llvm import Function, Int, Value
from .microkernel import PANEL, VECTOR
from .spec import Matmul
from .vector import AVX512_BYTES

HELD = 16  # registers of the weight at most
ROWS = 8  # of a row tile: the next one's sums overlap with its own


def is_shallow(f: Function, spec: Matmul, n: int, k: int) -> bool:
    """Whether registers hold the weight of `spec`, [k, n], beside the sums and the epilogue's values."""
    if type(spec) is not Matmul or spec.b_layout != "panels" or spec.buffers[spec.b].dtype != "f32":
        return False
    has_room = f.register_bytes >= AVX512_BYTES and k * -(-n // LANES) <= HELD
    return has_room and 0 < n <= PANEL and k > 0


class Shallow:
    """Tiles of a product with a weight of `k` rows of `n` columns; `lda`: from one row of A to the next."""

    def __init__(self, f: Function, spec: Matmul, bodies: BodyEmitter, n: int, k: int, lda: Int) -> None:
        self.f, self.bodies, self.n, self.k, self.lda = f, bodies, n, k, lda
        self.m_loop = len(spec.batch)
        self.columns = range(0, n, LANES)

    def emit(self, tile: RowTile, a: Value, panel: Value) -> None:
        """Emit a tile of A's rows at `a` and the weight at `panel`."""
        f, rows = self.f, tile.rows
        places = [[f.at(panel, "float", k * PANEL + n) for n in self.columns] for k in range(self.k)]
        weight = [[f.load(VECTOR, place, align=4) for place in row] for row in places]
        hoisted = self.bodies.hoistable(self.m_loop)
        known = [
            self.bodies.emit(hoisted, Position((*tile.batch, 0, n), self._missing(n))) for n in self.columns
        ]

        def row_tile(begin: Int, count: int) -> None:
            sums = self._sums(f.at(a, "float", f.mul(begin, self.lda)), count, weight)
            for r, row in enumerate(sums):
                self._finish(tile, f.add(begin, r), row, known)

        whole = f.mul(f.udiv(rows, ROWS), ROWS)
        with f.loop(0, whole, ROWS) as loop:
            row_tile(loop.index, ROWS)
        if isinstance(rows, int) and isinstance(whole, int):
            row_tile(whole, rows - whole)
        else:
            with f.loop(whole, rows) as loop:
                row_tile(loop.index, 1)

    def _sums(self, a: Value, count: int, weight: list[list[Value]]) -> list[list[Value]]:
        """Return the sums of `count` rows at `a`, by row and vector."""
        f, zero = self.f, Value(VECTOR, "zeroinitializer")
        sums = [[zero for _ in self.columns] for _ in range(count)]
        for k, right in enumerate(weight):
            for r, row in enumerate(sums):
                place = f.at(a, "float", f.add(f.mul(self.lda, r), k))
                left = f.splat(f.load("float", place, align=4), LANES)
                sums[r] = [
                    f.call(VECTOR, f"llvm.fma.v{LANES}f32", left, b, s)
                    for b, s in zip(right, row, strict=True)
                ]
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
