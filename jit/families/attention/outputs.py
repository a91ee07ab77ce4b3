"""The second step of a row tile of attention: its weights times the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...llvm.function import Int, Value
from ...loops.bodies import LANES
from ..matmul.arithmetic import VECTOR
from ..matmul.lanes import store
from ..matmul.microkernel import Into, MicroKernels
from ..matmul.row_shares import dispatch
from ..matmul.strides import Panels, Strides
from .emission import Emission, Keys, RowTile
from .parts import call_part, panel_vectors, rescale


@dataclass(frozen=True)
class Outputs:
    """Emits the results of row tiles from a block of `keys`, whose values begin at `values`. `kernels`: the
    micro-kernels for the first block, and for others."""

    emission: Emission
    keys: Keys
    values: Value
    kernels: Sequence[MicroKernels]

    @staticmethod
    def of(emission: Emission, keys: Keys, values: Value) -> Outputs:
        """Return the emitter of results from a block of keys."""
        problem = emission.problem
        kernels = [_kernels(emission, keys, adds) for adds in ((False,) if problem.is_one else (False, True))]
        return Outputs(emission, keys, values, kernels)

    def emit(self, tile: RowTile, out: Value) -> None:
        """out[i, :] = factors[i] * sum over j of weights[i, j] * v[j, :], panel by panel of columns."""
        f, problem = self.emission.f, self.emission.problem
        with f.loop(0, problem.v_dim, problem.panel) as panel:
            first = panel.index if problem.in_place else f.mul(panel.index, self.keys.count)
            here = f.at(self.values, "float", first)
            columns = f.at(out, "float", panel.index)
            there = columns if problem.is_whole else self._results(tile, panel.index)

            def more(here: Value = here, there: Value = there) -> None:
                scales = f.at(tile.running, "float", 2 * LANES)
                given = (there, scales, f.i64(tile.rows), _ldc(self.emission), problem.panel)
                call_part(f, "rescale", rescale, *given)
                self._weigh(self.kernels[1], tile, here, there)

            def whole(here: Value = here, there: Value = there) -> None:
                self._weigh(self.kernels[0], tile, here, there)

            f.either(self.keys.is_first, whole, more)
            if not problem.is_whole:
                self._store_results(tile, there, columns, panel.index)

    def _results(self, tile: RowTile, column: Int) -> Value:
        """Return the address in scratch of a row tile's results in the panel from `column`."""
        f, problem, results = self.emission.f, self.emission.problem, self.emission.scratch.results
        if problem.is_one:
            return results
        rows = f.add(f.mul(column, problem.block), f.mul(tile.begin, problem.panel))
        return f.at(results, "float", rows)

    def _store_results(self, tile: RowTile, results: Value, out: Value, column: Int) -> None:
        """Copy a row tile's results to the columns from `column` that `out` has."""
        f, problem = self.emission.f, self.emission.problem
        vectors = panel_vectors(f, problem.v_dim, column, problem.panel)
        with f.loop(0, tile.rows) as r:
            apart = self.emission.operands.out.stride(problem.row_loop)
            row = f.at(out, "float", f.mul(r.index, apart))
            sums = f.at(results, "float", f.mul(r.index, problem.panel))
            for first, mask in vectors:
                value = f.load(VECTOR, f.at(sums, "float", first), align=4)
                store(f, value, f.at(row, "float", first), mask)

    def _weigh(self, kernels: MicroKernels, tile: RowTile, values: Value, out: Value) -> None:
        """Multiply a row tile's weights by a panel of values."""
        f, problem = self.emission.f, self.emission.problem

        def weigh(rows: int) -> None:
            for first in range(0, problem.panel, LANES * kernels.vectors):
                there = f.at(values, "float", first)
                to = f.at(out, "float", first)
                kernels.call(rows, tile.scores, there, to, values, factors=tile.factors)

        dispatch(f, tile.rows, problem.row_counts, weigh)


def _ldc(emission: Emission) -> Int:
    """Return the elements from one row of results to the next, in `out` or in scratch."""
    problem = emission.problem
    return emission.operands.out.stride(problem.row_loop) if problem.is_whole else problem.panel


def _kernels(emission: Emission, keys: Keys, adds: bool) -> MicroKernels:
    """Return the micro-kernels that weigh the values of `keys`; `adds`: they add to the results so far."""
    # The count and the stride are arguments even if they are known, so kernels of all lengths, and of values
    # in place and in panels, share their parts.
    f, problem = emission.f, emission.problem
    width = problem.key_panel
    group, count = problem.tile.rows * width, f.i64(keys.count)
    ldb = f.i64(emission.operands.v.stride(problem.key_loop) if problem.in_place else problem.panel)
    strides = Strides(width, ldb, _ldc(emission), count, Panels(group, width))
    into, name = (Into.ADDED, "weigh_more") if adds else (Into.CHAIN, "weigh")
    return MicroKernels(f, name, strides, problem.tile.vectors, into)
