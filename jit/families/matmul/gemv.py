"""Few rows against a weight in panels, read from memory: several panels at once.

A core asks for a stream's lines only so far ahead, whatever the code prefetches, so one panel after the other
leaves memory half idle. Here STREAMS panels are read side by side, STEPS steps of k of each in turn, as many
of them in registers at once as there are accumulators for. k still ascends in every sum, so the bits are
those of any other tile.
"""

from __future__ import annotations

from dataclasses import replace

from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value, least, most
from ...loops.bodies import LANES
from .microkernel import PANEL, VECTOR, MicroKernels, Schedule, Strides, dispatch, each_tile, shares

STREAMS = 6  # panels read side by side
STEP_BYTES = 1024  # of each panel in turn: a stream's next lines arrive while the others are read
NEAR_BYTES = 2048  # of a panel that are asked for ahead; twice that fills all ways of a cache set
LEAST_STEPS = 32  # of k; shorter sums are left to the row tiles
MOST_ROWS = 8  # with more, arithmetic hides the waiting as well


class Streams:
    """Products of few rows with STREAMS panels of `k` steps each, in `dtype`, for register tiles `tile`."""

    def __init__(self, f: Function, m: Int, k: Int, tile: Schedule, dtype: str) -> None:
        self.f, self.m, self.k, self.tile, self.dtype = f, m, k, tile, dtype
        self.row_bytes = PANEL * DTYPES[dtype].bytes

    @property
    def limit(self) -> int:
        """The most rows that are multiplied so; 0: none are."""
        if not isinstance(self.k, int) or self.k < LEAST_STEPS:
            return 0
        top = most(self.m)
        few = MOST_ROWS if top is None else min(MOST_ROWS, top)
        return few if least(self.m) <= few else 0

    def sums_bytes(self) -> int:
        """Return the bytes of scratch for sums."""
        return 4 * self.limit * STREAMS * PANEL

    def vectors(self, rows: int) -> int:
        """Return the vectors of a micro-kernel for `rows` rows: whole panels where registers hold them."""
        panels = self.tile.rows * self.tile.vectors * LANES // (rows * PANEL)
        fitting = [n for n in range(1, STREAMS + 1) if STREAMS % n == 0 and n <= panels]
        return fitting[-1] * PANEL // LANES if fitting else self.tile.vectors

    def multiply(self, strides: Strides, a: Value, b: Value, rows: Int, sums: Value) -> None:
        """Leave the sums of `rows` <= `limit` rows and the STREAMS panels at `b` in `sums`."""
        f = self.f
        place = replace(strides, ldc=STREAMS * PANEL, b_panel=f.mul(self.k, PANEL))
        counts = range(max(least(rows), 1), self.limit + 1) if not isinstance(rows, int) else [rows]
        dispatch(f, rows, list(counts), lambda n: self._multiply(place, a, b, n, sums))

    def _multiply(self, strides: Strides, a: Value, b: Value, rows: int, sums: Value) -> None:
        f, k = self.f, self.k
        assert isinstance(k, int)
        vectors = self.vectors(max(shares(rows, self.tile.rows)))
        if vectors * LANES == STREAMS * PANEL:
            self._panels(MicroKernels(f, "streams", strides, vectors, dtype=self.dtype), a, b, rows, sums)
            return
        with f.loop(0, rows * STREAMS * PANEL, LANES) as place:
            f.store(Value(VECTOR, "zeroinitializer"), f.at(sums, "float", place.index), align=4)
        in_turn = STEP_BYTES // self.row_bytes
        whole = k // in_turn * in_turn
        for begin, end, steps in ((0, whole, in_turn), (whole, k, k - whole)):
            if begin == end:
                continue
            part = replace(strides, k=steps)
            kernels = MicroKernels(f, f"streams{steps}", part, vectors, adds=True, dtype=self.dtype)
            with f.loop(begin, end, steps) as chunk:
                here = f.at(b, kernels.element, f.mul(chunk.index, PANEL))
                self._panels(kernels, f.at(a, "float", chunk.index), here, rows, sums)

    def _panels(self, kernels: MicroKernels, a: Value, b: Value, rows: int, sums: Value) -> None:
        """Multiply `kernels`' steps of all panels."""
        f, width = self.f, LANES * kernels.vectors
        with f.loop(0, STREAMS * PANEL, max(width, PANEL)) as panel:
            right = f.at(b, kernels.element, f.mul(panel.index, self.k))
            near = kernels.unread(f, right, NEAR_BYTES // self.row_bytes * PANEL)

            def row_tile(number: Int, begin: Int, count: Int) -> None:
                left = f.at(a, "float", f.mul(begin, kernels.strides.lda))
                line = f.at(sums, "float", f.add(f.mul(begin, STREAMS * PANEL), panel.index))

                def call(n: int) -> None:
                    for first in range(0, max(width, PANEL), width):
                        there = f.at(right, kernels.element, first)
                        kernels.call(n, left, there, f.at(line, "float", first), near, near=True)

                dispatch(f, count, sorted(shares(rows, self.tile.rows)), call)

            each_tile(f, rows, self.tile.rows, row_tile)
