"""One function in which tiles of attention are emitted: its operands, its mask, and its scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.abi import RT_SCRATCH
from ...llvm.function import Function, Int, Value
from ...loops.affine import Affine, affine
from ...loops.bodies import LANES, BodyEmitter
from ...spec import Term, Terms
from .mask import Mask
from .problem import KEY_BLOCK, Problem

GROUP_SCORES = 16384  # of a group of row tiles, which read the same panels from the first-level cache
RUNNING = 3 * LANES  # floats that a row tile keeps from block to block
F32 = 4  # bytes


@dataclass(frozen=True)
class RowTile:
    """Rows `begin` .. `begin` + `rows` - 1 of a tile, and where its scores and factors are.

    `running`: its rows' greatest scores so far, their sums, and what this block scales results by.
    """

    number: Int
    begin: Int
    rows: Int
    scores: Value
    factors: Value
    running: Value


@dataclass(frozen=True)
class Keys:
    """Keys `begin` .. `begin` + `count` - 1, and whether they are the first and the last of all."""

    begin: Int
    count: Int
    is_first: Value | bool
    is_last: Value | bool


@dataclass(frozen=True)
class Operand:
    """q, k, v or out: the buffer at `base`, and where its elements lie."""

    f: Function
    base: Value
    access: Affine

    def at(self, loops: Sequence[Int]) -> Value:
        """Return the address where the outer loops are `loops`."""
        return self.f.at(self.base, "float", self.access.offset(self.f, dict(enumerate(loops))))

    def stride(self, loop: int) -> Int:
        """Return by how many elements one step of `loop` moves."""
        return self.access.stride(loop)


class Operands(NamedTuple):
    """The buffers of an attention."""

    q: Operand
    k: Operand
    v: Operand
    out: Operand


class Shape(NamedTuple):
    """Of scratch: `width` of a row of scores, `depth` (rows) of a panel of keys, `tile_scores` of a row tile
    of scores, `group`: how many row tiles take each step together."""

    width: Int
    depth: Int
    tile_scores: Int
    group: Int


def _shape(f: Function, problem: Problem) -> Shape:
    """Return the shape; call in the entry block. A group has as many row tiles as have GROUP_SCORES
    scores."""
    n_keys, width = f.minimum(problem.k_len, KEY_BLOCK), problem.key_panel
    row = f.mul(f.ceildiv(n_keys, width), width)
    depth = f.mul(f.ceildiv(problem.head_dim, LANES), LANES)
    scores, least = f.mul(row, problem.tile.rows), problem.tile.rows * width
    if isinstance(scores, int):
        return Shape(row, depth, scores, max(GROUP_SCORES // max(scores, least), 1))
    return Shape(row, depth, scores, f.maximum(f.udiv(GROUP_SCORES, f.maximum(scores, least)), 1))


def _max_tiles(problem: Problem) -> int:
    """Return the row tiles of a group at most."""
    return max(GROUP_SCORES // (problem.tile.rows * problem.key_panel), 1)


def n_running(problem: Problem) -> int:
    """Return the floats that rows keep from block to block."""
    return 0 if problem.is_one else (-(-problem.block // problem.tile.rows) + 1) * RUNNING


@dataclass(frozen=True)
class ScratchLayout:
    """Where a thread's scratch holds what: results of a row tile (of all, where there are several blocks of
    keys); factors, constants, maxima, sums, biases and scores of a group of them; what rows keep from block
    to block; panels of keys, of values."""

    shape: Shape
    results: Value
    factors: Value
    constants: Value
    must_shift: Value
    tops: Value
    totals: Value
    biases: Value
    scores: Value
    running: Value
    keys: Value
    values: Value

    @staticmethod
    def of(f: Function, problem: Problem) -> ScratchLayout:
        """Return the layout for `problem`; call in the entry block."""
        shape, rows = _shape(f, problem), problem.tile.rows
        places = [f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)]
        padded = f.mul(f.ceildiv(problem.v_dim, problem.panel), problem.panel)
        of_all = f.mul(problem.block, padded) if not problem.is_one else 0

        def behind(floats: Int) -> None:
            places.append(f.at(places[-1], "float", floats))

        behind(rows * problem.panel if problem.is_one else of_all)
        for floats in (_max_tiles(problem) * LANES, LANES, LANES, rows * LANES, rows * LANES, shape.width):
            behind(floats)
        behind(f.mul(shape.tile_scores, shape.group))
        behind(n_running(problem))
        behind(f.mul(shape.width, shape.depth))
        return ScratchLayout(shape, *places)


def scratch_terms(problem: Problem) -> Terms:
    """Return bytes that hold what a ScratchLayout has, with every length rounded up."""
    rows, panel, key_panel = problem.tile.rows, problem.panel, problem.key_panel
    extents = problem.spec.extents
    d, v = extents.head_dim, extents.v_dim
    k_len = min(problem.k_len, KEY_BLOCK) if isinstance(problem.k_len, int) else extents.k_len
    panels = rows * (panel + key_panel) + key_panel * (LANES + 1)
    fixed = panels + GROUP_SCORES + (_max_tiles(problem) + 2 * rows + 2) * LANES + n_running(problem)
    terms: list[Term] = [
        (fixed, ()),
        (rows + LANES + panel + 1, (k_len,)),
        (key_panel, (d,)),
        (1, (k_len, d)),
    ]
    if not problem.in_place:
        terms.append((1, (k_len, v)))
    if not problem.is_one:
        terms += [(problem.block, (v,)), (problem.block * panel, ())]
    return tuple((F32 * factor, sizes) for factor, sizes in terms)


@dataclass(frozen=True)
class Emission:
    """One emission of a problem."""

    f: Function
    problem: Problem
    operands: Operands
    mask: Mask
    scratch: ScratchLayout

    @staticmethod
    def open(f: Function, problem: Problem) -> Emission:
        """Emit the addresses, strides and scratch of a kernel; call in the entry block."""
        spec = problem.spec
        bodies = BodyEmitter(f, spec.softmax.body, spec.buffers, problem.sizes, vector_loop=problem.key_loop)
        layout = spec.layout
        indices = (layout.q_index, layout.k_index, layout.v_index, layout.out_index)
        operands = Operands(
            *(
                Operand(f, bodies.addresses[buffer], affine(f, spec.buffers[buffer], index, problem.sizes))
                for buffer, index in zip((layout.q, layout.k, layout.v, layout.out), indices, strict=True)
            )
        )
        for role, operand in operands._asdict().items():
            if operand.stride(problem.feature_loop) != 1:
                raise ValueError(
                    f"attention kernel: {role}'s head dimension must be its last axis (stride 1); copy {role}"
                )
        return Emission(f, problem, operands, Mask(f, spec, bodies), ScratchLayout.of(f, problem))
