"""A matmul's rows of A: in a buffer, or in scratch, computed there by the prologue.

See `Lhs` for the interface. A computed block is read by every panel of B, so it is computed once per run of
tiles; it stays in the second-level cache, so a pass over memory becomes one more write and read of a cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from ...llvm.abi import resolve
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec
from ...loops.affine import affine
from ...loops.bodies import LANES, BodyEmitter, Position
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ...spec import Terms
from .grouped import Groups
from .layouts import layout_of
from .pair_dots import rounded
from .problem import Problem
from .spec import ProductSpec
from .strides import Strides


class Lhs(Protocol):
    """A's rows, of a buffer, computed, or patches of an image."""

    #: Whether rows are in scratch, with room for a whole block.
    has_whole_groups: bool

    @property
    def stride(self) -> Int:
        """The elements from one row to the next."""

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the preparation of `rows` rows from `m0` on before the first tile that reads them; `outer`:
        the group, if there are any, and the batch loops."""

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the address of row `m0`."""

    def of(self, strides: Strides) -> Strides:
        """Return the strides of a micro-kernel that reads its rows here."""

    def scratch(self) -> Terms:
        """Return the scratch (see `CodeObject`) of the rows."""


class InPlace:
    """Rows of a buffer whose k axis is its last: f32, or narrow elements, several per step.
    Construct it in the entry block."""

    has_whole_groups = False

    def __init__(self, f: Function, problem: Problem, addresses: Sequence[Value]) -> None:
        spec = problem.spec
        self.f, self.m_loop = f, problem.m_loop
        self.base = addresses[spec.product.a]
        self.access = affine(f, spec.buffers[spec.product.a], spec.product.a_index, problem.sizes)
        if self.access.stride(self.m_loop + 2) != 1:
            raise ValueError("matmul kernel: A's k axis must be its last (stride 1); copy A first")
        self.element, self.stride = "float", self.access.stride(self.m_loop)
        if (together := layout_of(spec).together) > 1:
            self.element = DTYPES[spec.buffers[spec.product.a].dtype].memory
            self.stride = f.udiv(self.stride, together)
            if not isinstance(self.stride, int) or self.access.stride(self.m_loop) != together * self.stride:
                raise ValueError("matmul kernel: A's rows must be multiples of 4 bytes apart; copy A first")

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Nothing: the rows are already there."""

    def of(self, strides: Strides) -> Strides:
        """See `Lhs`."""
        return replace(strides, lda=self.stride)

    def scratch(self) -> Terms:
        """None."""
        return ()

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the address of row `m0`."""
        loops = {**dict(enumerate(batch)), self.m_loop: m0}
        return self.f.at(self.base, self.element, self.access.offset(self.f, loops))


class Computed:
    """Rows that the prologue computes into scratch at `place`, each padded to whole vectors: f32, or bf16 if
    products multiply pairs of them.

    Construct it in the entry block.
    """

    has_whole_groups = True

    def __init__(self, f: Function, problem: Problem, place: Value) -> None:
        spec = problem.spec
        self.f, self.problem = f, problem
        self.place = place
        self.k = resolve(spec.product.k, problem.sizes)
        self.bodies = BodyEmitter(
            f, spec.product.prologue, spec.buffers, problem.sizes, vector_loop=problem.k_loop
        )
        _check(spec, self.bodies)
        self.together = layout_of(spec).together
        self.stride = f.mul(f.ceildiv(self.k, self.together * LANES), LANES)

    def of(self, strides: Strides) -> Strides:
        """See `Lhs`."""
        return replace(strides, lda=self.stride)

    def scratch(self) -> Terms:
        """Return the scratch of a block of rows."""
        row = 4 * self.problem.block
        return (row // self.together, (self.problem.spec.product.k,)), (row * LANES, ())

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the prologue for `rows` rows from `m0` on."""
        f, bodies, k_loop = self.f, self.bodies, self.problem.k_loop
        fixed = bodies.hoistable(k_loop, bodies.hoistable(self.problem.m_loop))
        known = bodies.emit(fixed, Position((*outer, 0, 0, 0)))
        with f.loop(0, rows) as r:
            m = f.add(m0, r.index)
            row = f.at(self.place, "float", f.mul(r.index, self.stride))
            given = bodies.emit(bodies.hoistable(k_loop), Position((*outer, m, 0, 0)), known)

            def chunk(k: Int, mask: Value | None, state: State) -> State:
                values = bodies.emit(bodies.ids, Position((*outer, m, 0, k), mask), given)
                self._store(values[bodies.ids[-1]], row, k)
                return state

            strip(f, Range(0, self.k), 2, chunk)

    def _store(self, values: Value, row: Value, k: Int) -> None:
        """Emit the store of a vector of a row, from step `k` on."""
        f = self.f
        if self.together == 1:
            f.store(values, f.at(row, "float", k), align=4)
        else:
            f.store(rounded(f, values), f.at(row, "i16", k), align=2)

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the address of row `m0`, the first of the block."""
        return self.place


class Represented(ABC):
    """Rows of another left operand, of f32, as integers in scratch at `place`, those for each group of steps
    of B followed by what belongs to all of them. Subclasses emit them. Construct it in the entry block."""

    has_whole_groups = True

    def __init__(self, f: Function, problem: Problem, rows: Lhs, place: Value) -> None:
        assert problem.grouped is not None
        self.f, self.problem, self.rows = f, problem, rows
        self.groups: Groups = problem.grouped
        before = f.mul(problem.block, rows.stride) if rows.has_whole_groups else 0
        self.place = f.at(place, "float", before)
        self.stride: Int = self.groups.count * self.groups.left

    @property
    def floats(self) -> int:
        """The elements of a block of rows, of 4 bytes each."""
        return self.problem.block * self.groups.count * self.groups.left

    def scratch(self) -> Terms:
        """See `Lhs`."""
        return (*self.rows.scratch(), (4 * self.floats, ()))

    def of(self, strides: Strides) -> Strides:
        """See `Lhs`."""
        return replace(strides, lda=self.stride)

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """See `Lhs`: the integers of row `m0`, the first of the block."""
        return self.place

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """See `Lhs`."""
        f = self.f
        self.rows.prepare(outer, m0, rows)
        first = self.rows.at(outer, m0)
        with f.loop(0, rows) as r:
            row = f.at(first, "float", f.mul(r.index, self.rows.stride))
            to = f.at(self.place, "float", f.mul(r.index, self.stride))
            given = self.measured(row, r.index)
            with f.loop(0, self.groups.count) as group:
                source = f.at(row, "float", f.mul(group.index, self.groups.steps))
                self.represent(source, f.at(to, "float", f.mul(group.index, self.groups.left)), given)

    def measured(self, row: Value, number: Int) -> Vec | None:
        """Emit what is needed of the whole row at `row`, the block's row `number`; return what `represent`
        takes."""
        return None

    @abstractmethod
    def represent(self, source: Value, to: Value, given: Vec | None) -> None:
        """Emit the integers of a group of steps at `source`, and what follows them, to `to`."""


def _check(spec: ProductSpec, bodies: BodyEmitter) -> None:
    """Refuse instructions that a prologue may not hold."""
    dtype = spec.product.prologue[-1].dtype
    takes = ("f32", "bf16") if layout_of(spec).a == "bf16" else ("f32",)
    if dtype not in takes:
        raise ValueError(
            f"matmul kernel: its prologue gives {dtype}; it must give {' or '.join(takes)} (cast it)"
        )
    for i, instr in enumerate(spec.product.prologue):
        where = f"matmul kernel: instruction {i} of the prologue"
        if instr.op in ("store", "acc") or instr.op.startswith("reduce."):
            raise ValueError(f"{where} is {instr.op!r}; it must be pointwise (make it a kernel before)")
        if len(spec.product.batch) + 1 in bodies.depends[i]:
            raise ValueError(f"{where} depends on the n loop; A has only batch, m and k")
