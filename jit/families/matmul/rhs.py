"""A matmul's B: a weight in panels, or rows of a buffer.

A tile of the kernel gets the address of its columns of B (`at`). `copy` copies them to scratch as rows of f32
if they are read more than once: narrow elements are widened, and rows of a buffer made contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.function import Function, Int, Value
from ...loops.affine import Affine, affine
from ...loops.bodies import LANES
from .epilogue import RowTile
from .lanes import load, tail
from .problem import Problem
from .schedules import PANEL


class KernelTile(NamedTuple):
    """A tile of the kernel: its position, and the number of its panel of B, within its group if there are
    any."""

    at: RowTile
    panel: Int
    group: Int | None = None


@dataclass(frozen=True)
class Panels:
    """A weight in panels at `base`."""

    f: Function
    problem: Problem
    base: Value

    def panel(self, number: Int) -> Value:
        """Return the address of the panels of a block of rows' tile number `number`."""
        f, problem = self.f, self.problem
        if problem.grouped is not None:
            n_bytes = problem.width // PANEL * problem.grouped.panel_bytes
            return f.at(self.base, "i8", f.mul(number, n_bytes))
        return f.at(self.base, problem.arithmetic.element, f.mul(number, f.mul(problem.k, problem.width)))

    def at(self, tile: KernelTile) -> Value:
        """Return the address of a tile's panels, which are whole for each group."""
        if tile.group is None:
            return self.panel(tile.panel)
        f, problem = self.f, self.problem
        columns = f.mul(f.ceildiv(problem.n, PANEL), PANEL)
        first = self.panel(tile.panel)
        place = f.mul(tile.group, f.mul(problem.k, columns))
        return f.at(first, problem.arithmetic.element, place)

    def copy(self, panels: Value, columns: Int | None, to: Value, steps: Int | None = None) -> Value:
        """Copy a tile's panels, or `steps` steps of them, to `to` in f32, `width` columns a row; return the
        address.
        """
        f, problem = self.f, self.problem
        kind, n_panels = problem.arithmetic, problem.width // PANEL
        if isinstance(columns, int):  # missing ones are not read
            n_panels = min(n_panels, -(-columns // PANEL))
        count = problem.k if steps is None else steps
        with f.loop(0, count) as k:
            row = f.at(to, "float", f.mul(k.index, problem.width))
            for at in range(0, n_panels * PANEL, PANEL):
                place = f.add(f.mul(problem.k, at), f.mul(k.index, PANEL))
                there = f.at(panels, kind.element, place)
                for i, wide in enumerate(kind.row(f, there, range(0, PANEL, LANES))):
                    f.store(wide, f.at(row, "float", at + LANES * i), align=4)
        return to


@dataclass(frozen=True)
class InRows:
    """Rows of a buffer at `base` whose n axis is its last; `access`: of its elements."""

    f: Function
    problem: Problem
    base: Value
    access: Affine

    @property
    def step(self) -> Int:
        """The elements from one row to the next."""
        return self.access.stride(self.problem.k_loop)

    def at(self, tile: KernelTile) -> Value:
        """Return the address of a tile's columns."""
        batch, n0 = tile.at.batch, tile.at.n0
        offset = self.access.offset(self.f, {**dict(enumerate(batch)), self.problem.n_loop: n0})
        return self.f.at(self.base, "float", offset)

    def copy(self, source: Value, columns: Int | None, to: Value) -> Value:
        """Copy k rows of `width` columns (`columns` real ones, the others 0) to `to`; return the address."""
        f, width = self.f, self.problem.width
        places = range(0, width, LANES)
        masks = [None if columns is None else tail(f, f.sub(columns, place)) for place in places]
        with f.loop(0, self.problem.k) as k:
            row = f.at(source, "float", f.mul(k.index, self.step))
            place = f.at(to, "float", f.mul(k.index, width))
            for at, mask in zip(places, masks, strict=True):
                f.store(load(f, f.at(row, "float", at), mask), f.at(place, "float", at), align=4)
        return to


def rhs_of(f: Function, problem: Problem, addresses: Sequence[Value]) -> Panels | InRows:
    """Return the B operand; call in the entry block. `addresses`: of the buffers."""
    spec = problem.spec
    base = addresses[spec.product.b]
    if problem.in_panels:
        return Panels(f, problem, base)
    access = affine(f, spec.buffers[spec.product.b], spec.product.b_index, problem.sizes)
    if access.stride(problem.n_loop) != 1:
        raise ValueError(
            "matmul kernel: B's n axis must be its last (stride 1) in layout 'rows'; copy B first"
        )
    return InRows(f, problem, base, access)
