"""One function in which tiles of attention are emitted: its operands, its mask, and its scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.abi import RT_SCRATCH
from ...llvm.function import Function, Int, Value
from ...loops.affine import Operand
from ...loops.bodies import LANES, BodyEmitter
from ...spec import Term, Terms
from .mask import Mask
from .problem import KEY_BLOCK, Problem
from .spec import accesses

GROUP_SCORES = 16384  # of a group of row tiles, which read the same panels from the first-level cache
RUNNING = 3 * LANES  # floats that a row tile keeps from block to block
F32 = 4  # bytes


@dataclass(frozen=True)
class Head:
    """One turn of the batch loops, at `batch`: `q_len` queries and `k_len` keys from row `first` on."""

    batch: Sequence[Int]
    first: Int
    q_len: Int
    k_len: Int


@dataclass(frozen=True)
class Queries:
    """A tile's `rows` rows of q of a head, from `i0` on, which begin at `q`, and their results, at `out`.
    `following`: the next tile's head."""

    head: Head
    following: Head
    i0: Int
    rows: Int
    q: Value
    out: Value


@dataclass(frozen=True)
class RowTile:
    """Rows `begin` .. `begin` + `rows` - 1 of a tile, and the addresses of its scores and factors.

    `running`: its rows' greatest scores so far, their sums, and this block's scale of results.
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


class Operands(NamedTuple):
    """The buffers of an attention."""

    q: Operand
    k: Operand
    v: Operand
    out: Operand


class Shape(NamedTuple):
    """Sizes in scratch: `width` of a row of scores, `depth` (rows) of a panel of keys, `tile_scores` of a row
    tile of scores, `group`: the number of row tiles that do each step together."""

    width: Int
    depth: Int
    tile_scores: Int
    group: Int


def _shape(f: Function, problem: Problem) -> Shape:
    """Return the shape; call in the entry block. A group has as many row tiles as fit GROUP_SCORES scores."""
    n_keys, width = f.minimum(problem.k_len, KEY_BLOCK), problem.key_panel
    row = f.mul(f.ceildiv(n_keys, width), width)
    depth = f.mul(f.ceildiv(problem.head_dim, LANES), LANES)
    scores, least = f.mul(row, problem.tile.rows), problem.tile.rows * width
    if isinstance(scores, int):
        return Shape(row, depth, scores, max(GROUP_SCORES // max(scores, least), 1))
    return Shape(row, depth, scores, f.maximum(f.udiv(GROUP_SCORES, f.maximum(scores, least)), 1))


def _max_tiles(problem: Problem) -> int:
    """Return the greatest number of row tiles of a group."""
    return max(GROUP_SCORES // (problem.tile.rows * problem.key_panel), 1)


def n_running(problem: Problem) -> int:
    """Return the floats that rows keep from block to block."""
    return 0 if problem.is_one else (-(-problem.block // problem.tile.rows) + 1) * RUNNING


@dataclass(frozen=True)
class ScratchLayout:
    """The layout of a thread's scratch: results of a row tile (of all, if there are several blocks of keys);
    factors, constants, maxima, sums, biases and scores of a group of them; data that rows keep from block to
    block; panels of keys, of values."""

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
    """Return the bytes of a ScratchLayout, with every length rounded up."""
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
    """One emission of a problem. `offsets`: the address of the segments' offsets, if there are segments."""

    f: Function
    problem: Problem
    operands: Operands
    mask: Mask
    scratch: ScratchLayout
    offsets: Value | None

    @staticmethod
    def open(f: Function, problem: Problem) -> Emission:
        """Emit the addresses, strides and scratch of a kernel; call in the entry block."""
        spec = problem.spec
        bodies = BodyEmitter(f, spec.softmax.body, spec.buffers, problem.sizes, vector_loop=problem.key_loop)
        touched = [(access, bodies.addresses[access.buffer]) for access in accesses(spec)]
        operands = Operands(*(Operand.of(f, spec, access, problem.sizes, base) for access, base in touched))
        for role, operand in operands._asdict().items():
            if operand.stride(problem.feature_loop) != 1:
                raise ValueError(
                    f"attention kernel: {role}'s head dimension must be its last axis (stride 1); copy {role}"
                )
        mask, scratch = Mask(f, spec, bodies), ScratchLayout.of(f, problem)
        offsets = bodies.addresses[spec.segments.offsets] if spec.is_segmented else None
        return Emission(f, problem, operands, mask, scratch, offsets)

    def place(self, tile: Int) -> tuple[list[Int], Int]:
        """Return the values of the batch loops and the block of rows of tile number `tile`."""
        f, problem = self.f, self.problem
        *batch, block = f.unravel(tile, [*problem.batch[1:], f.ceildiv(problem.q_len, problem.block)])
        return batch if problem.batch else [], block

    def places(self, tile: Int) -> tuple[list[Int], list[Int], Int]:
        """Return the values of the batch loops of tile number `tile` and of the next one, and its block."""
        f = self.f
        batch, block = self.place(tile)
        following, _ = self.place(f.minimum(f.add(tile, 1), f.sub(f.params[4], 1)))
        return batch, following, block
