"""The first step of a row tile of attention: scores, turned into weights."""

from __future__ import annotations

from dataclasses import dataclass

from ...llvm.function import Int, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES, Position, splat
from ...loops.strip_mining import State
from ...loops.tiling import Range
from ..matmul.arithmetic import VECTOR
from ..matmul.microkernel import MicroKernels
from ..matmul.row_shares import dispatch
from ..matmul.strides import Strides
from .emission import Emission, Keys, RowTile
from .parts import call_part, clear, exponentiate, finish, greater, over_keys, weights_of_sums


def spread(count: int, most: int) -> list[tuple[int, int]]:
    """Return (first, number) of `count` rows in parts of at most `most`, as even as can be."""
    n = -(-count // most)
    begins = [count * i // n for i in range(n + 1)]
    return [(begin, end - begin) for begin, end in zip(begins[:-1], begins[1:], strict=True)]


@dataclass(frozen=True)
class Weights:
    """Emits the weights of row tiles for a block of keys. `outer`, where needed: the batch loops and the
    first row of a tile."""

    emission: Emission

    def emit(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors; its queries begin at `q`.

        First without shifting scores, straight from the registers; if one must be shifted, again, and so for
        all later row tiles.
        """
        f, must_shift = self.emission.f, self.emission.scratch.must_shift
        if not self.emission.mask.is_bias:
            self._of_scores(tile, q, outer, keys)
            return
        with f.when(f.less(f.load("i64", must_shift, align=8), 1)):
            self._of_sums(tile, q, outer, keys)
        with f.when(f.less(0, f.load("i64", must_shift, align=8))):
            self._of_scores(tile, q, outer, keys)

    def write_biases(self, to: Value, outer: tuple[Int, ...], keys: Keys, most: int) -> None:
        """Write the biases of a block's keys, in panels of `most` rows; -inf past the last key."""
        f, mask_of = self.emission.f, self.emission.mask
        known = mask_of.known(outer)

        def chunk(j: Int, place: Value, mask: Value | None, state: State) -> State:
            at = Position((*outer, f.add(keys.begin, j)), mask)
            f.store(mask_of.biases(at, known).value, place, align=4)
            return state

        over_keys(f, to, Range(0, keys.count), most, self.emission.problem.key_panel, chunk, [])

    def _of_sums(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors if no score must be shifted; else note that."""
        f, problem, scratch = self.emission.f, self.emission.problem, self.emission.scratch
        if not self.emission.mask.is_same_in_rows:
            with f.loop(0, tile.rows) as r:
                row = f.at(tile.scores, "float", f.mul(r.index, problem.key_panel))
                place = (*outer[:-1], f.add(outer[-1], r.index))
                self.write_biases(row, place, keys, problem.tile.rows)
        call_part(f, "clear", clear, scratch.tops, scratch.totals, problem.tile.rows)
        dispatch(f, tile.rows, problem.row_counts, lambda n: self._scores(tile, n, q, keys.count, True))
        is_shifted = self._finish(tile, keys, True)
        f.store(f.op("i64", f"zext i1 {is_shifted.name} to i64"), scratch.must_shift, align=8)

    def _of_scores(self, tile: RowTile, q: Value, outer: tuple[Int, ...], keys: Keys) -> None:
        """Write a row tile's weights and factors: scores, maxima, then exponentials."""
        f, problem, scratch = self.emission.f, self.emission.problem, self.emission.scratch
        dispatch(f, tile.rows, problem.row_counts, lambda n: self._scores(tile, n, q, keys.count, False))
        self._mask(tile, outer, keys)
        given = (tile.scores, scratch.tops, scratch.totals, tile.factors, f.i64(tile.rows), f.i64(keys.count))
        running = () if problem.is_one else (tile.running,)
        shape = (problem.tile.rows, problem.key_panel, self.emission.mask.unit)
        call_part(f, "exponentiate", exponentiate, *given, *shape, *running)
        self._finish(tile, keys, False)

    def _finish(self, tile: RowTile, keys: Keys, unless_shifted: bool) -> Value:
        """Write a row tile's factors; return whether scores must be shifted first."""
        f, problem, scratch = self.emission.f, self.emission.problem, self.emission.scratch
        is_safe, unit = problem.spec.softmax.safe_softmax, self.emission.mask.unit
        rows = (scratch.tops, scratch.totals, tile.factors)
        given = (*rows, f.i64(keys.count), problem.tile.rows, is_safe, unless_shifted, unit)
        name = "finish_unless_shifted" if unless_shifted else "finish"
        if problem.is_one:
            return call_part(f, name, finish, *given)
        assert isinstance(keys.is_last, Value)
        return call_part(f, name, finish, *given, tile.running, f.select(keys.is_last, 1, 0))

    # scores
    def _scores(self, tile: RowTile, rows: int, q: Value, k_len: Int, are_weights: bool) -> None:
        """scores[i, j] = q[i] . k[j], unscaled, of whole panels; or weights, if none must be shifted, of a
        last panel only the vectors that have keys."""
        f, width = self.emission.f, self.emission.problem.key_panel
        most = width // LANES

        def panel(j: Int, vectors: int) -> None:
            self._panel(tile, rows, q, j, vectors, are_weights)

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

    def _panel(self, tile: RowTile, rows: int, q: Value, j: Int, vectors: int, are_weights: bool) -> None:
        """Emit `vectors` vectors of the panel of scores, or weights, of keys from `j` on."""
        f, problem, scratch = self.emission.f, self.emission.problem, self.emission.scratch
        keys = f.at(scratch.keys, "float", f.mul(j, scratch.shape.depth))
        scores = f.at(tile.scores, "float", f.mul(j, problem.tile.rows))
        biases = f.at(scratch.biases, "float", j) if self.emission.mask.is_same_in_rows else scores
        kernels = self._kernels(min(vectors, problem.tile.scores.vectors))
        for first, count in spread(rows, problem.tile.scores.rows):
            left = f.at(q, "float", f.mul(first, self.emission.operands.q.stride(problem.row_loop)))
            for column in range(0, vectors * LANES, LANES * kernels.vectors):
                there = f.at(scores, "float", first * problem.key_panel + column)
                called = self._weighing(kernels, first, column, there, biases) if are_weights else kernels
                called.call(count, left, f.at(keys, "float", column), there, keys)

    def _kernels(self, vectors: int) -> MicroKernels:
        """Return the micro-kernels for `vectors` vectors of scores."""
        problem, width = self.emission.problem, self.emission.problem.key_panel
        lda = self.emission.operands.q.stride(problem.row_loop)
        return MicroKernels(self.emission.f, "score", Strides(lda, width, width, problem.head_dim), vectors)

    def _weighing(
        self, kernels: MicroKernels, first: int, column: int, weights: Value, biases: Value
    ) -> MicroKernels:
        """Return `kernels` that write the weights, not the scores, of rows from `first` and keys from
        `column` of a panel; `biases`: of the panel."""
        f, scratch, mask = self.emission.f, self.emission.scratch, self.emission.mask
        width = self.emission.problem.key_panel
        stride = 0 if mask.is_same_in_rows else width
        bias = f.at(biases, "float", first * stride + column)
        lanes = [f.at(lanes, "float", first * LANES) for lanes in (scratch.tops, scratch.totals)]
        given = (scratch.constants, weights, bias, *lanes)
        return kernels.ended_by(weights_of_sums(given, width, stride, mask.unit))

    # masks
    def _mask(self, tile: RowTile, outer: tuple[Int, ...], keys: Keys) -> None:
        """Scale and mask the scores; keep every row's maxima by lane in `tops`."""
        f = self.emission.f
        with f.loop(0, tile.rows) as r:
            row = f.at(tile.scores, "float", f.mul(r.index, self.emission.problem.key_panel))
            top = self._mask_row(row, (*outer[:-1], f.add(outer[-1], r.index)), keys)
            f.store(top, f.at(self.emission.scratch.tops, "float", f.mul(r.index, LANES)), align=4)

    def _mask_row(self, row: Value, outer: tuple[Int, ...], keys: Keys) -> Value:
        """Scale and mask a row of scores; return the greatest of each lane, -inf if all are.

        A NaN is no maximum: it reaches the result through its weight.
        """
        f, problem, mask_of = self.emission.f, self.emission.problem, self.emission.mask
        known = mask_of.known(outer)

        def chunk(j: Int, place: Value, mask: Value | None, state: State) -> State:
            at = Position((*outer, f.add(keys.begin, j)), mask)
            score = mask_of.scores(Vec(f, f.load(VECTOR, place, align=4)), at, known).value
            f.store(score, place, align=4)
            return [greater(f, score, state[0])]

        lowest = splat(f, "f32", "-inf")
        width = problem.key_panel
        return over_keys(f, row, Range(0, keys.count), problem.tile.rows, width, chunk, [lowest])[0]
