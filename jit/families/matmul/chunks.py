"""The steps of a sum of a row tile: their layout, and the chunks in which they are computed.

Sums of many steps are computed by chunks, the blocks of `sums`, each for all row tiles of a block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ...llvm.function import Function, Int, Value, most
from .schedules import PANEL
from .strides import Strides
from .sums import BLOCK, GROUP, LONG, SHORTEST_CHAIN, block_of_pieces, block_of_short


def is_chunked(k: Int) -> bool:
    """Return True if sums of `k` steps are computed in chunks."""
    return isinstance(k, int) and k >= LONG


class Pieces(NamedTuple):
    """The layout of the steps of a sum: in pieces of `piece` steps, 0: without pieces.

    `taps`: of rows whose pieces lie at addresses (`Strides.taps`), else 0. `together`: steps under each tap
    that make a chunk; all taps of a step are then adjacent in B (0: taps are consecutive).
    """

    piece: int = 0
    taps: int = 0
    together: int = 0


WHOLE = Pieces()


@dataclass(frozen=True)
class Steps:
    """The `k` steps of a sum, in blocks of `chain` steps if there are few (see `sums`)."""

    f: Function
    k: Int
    pieces: Pieces = WHOLE
    chain: int = 0

    @property
    def is_chunked(self) -> bool:
        """Whether sums are computed in chunks."""
        return is_chunked(self.k)

    @property
    def in_pieces(self) -> bool:
        """Whether chunks are made of pieces."""
        return bool(self.pieces.piece) and self.is_chunked

    @property
    def chunk(self) -> int:
        """The steps of a chunk."""
        if self.pieces.together:
            return self.pieces.together * self.pieces.taps
        return block_of_pieces(self.pieces.piece) if self.pieces.piece else BLOCK

    @property
    def may_have_groups(self) -> bool:
        """Whether sums may have several groups of blocks, whose totals are kept separately."""
        if self.in_pieces:
            return self.n_chunks > GROUP
        top = most(self.k)
        return top is None or top > GROUP * BLOCK

    @property
    def n_chunks(self) -> int:
        """The chunks of a row."""
        assert isinstance(self.k, int)
        if not self.pieces.piece or self.pieces.together or self.chunk >= self.pieces.piece:
            return -(-self.k // self.chunk)
        return self.k // self.pieces.piece * -(-self.pieces.piece // self.chunk)

    def of_chunk(self, strides: Strides, a: Value, number: Value) -> tuple[Int, Value, Strides]:
        """Return (first step, A's rows there, strides) of chunk `number`: some steps, or taps, or a part of a
        piece."""
        f, size, pieces = self.f, self.chunk, self.pieces
        piece = pieces.piece
        if pieces.together:
            chunk = self.all_taps(strides, pieces.together, f.mul(number, pieces.together))
            return f.mul(number, size), a, chunk
        if piece and size < piece:
            parts = -(-piece // size)
            place, offset = f.udiv(number, parts), f.mul(f.urem(number, parts), size)
            begin = f.add(f.mul(place, piece), offset)
            steps: Int = size if piece % size == 0 else f.minimum(size, f.sub(piece, offset))
            if pieces.taps:
                there = f.at(a, "ptr", f.mul(place, strides.taps.apart))
                return begin, there, replace(strides.of_taps(n=1, offset=offset), k=steps)
            return begin, f.at(a, "float", begin), replace(strides, k=steps)
        begin = f.mul(number, size)
        if pieces.taps:
            taps = size // piece
            tap = f.mul(number, taps)
            count: Int = taps if pieces.taps % taps == 0 else f.minimum(taps, f.sub(pieces.taps, tap))
            return begin, f.at(a, "ptr", f.mul(tap, strides.taps.apart)), strides.of_taps(n=count)
        steps = size if f.urem(self.k, size) == 0 else f.minimum(size, f.sub(self.k, begin))
        return begin, f.at(a, "float", begin), replace(strides, k=steps)

    def all_taps(self, strides: Strides, steps: int, offset: Int) -> Strides:
        """Return the strides of `steps` steps under each tap, with all taps of a step adjacent in B."""
        row = self.pieces.taps * PANEL
        return replace(strides.of_taps(offset=offset, b_skip=PANEL - steps * row), k=steps, ldb=row)

    def in_blocks(self, strides: Strides) -> Strides:
        """Return the strides of sums whose blocks a micro-kernel sums. If there may be groups of them, the
        number of steps is an argument, because the last group has fewer."""
        f, k = self.f, self.k
        if isinstance(k, int) and k < LONG:
            return replace(strides, block=block_of_short(k, self.chain))
        if isinstance(k, int) and self.pieces.piece:
            return strides
        if isinstance(k, int):
            return replace(strides, k=f.i64(k) if self.may_have_groups else k, block=BLOCK)
        short: Int = k
        if self.chain:
            short = f.select(f.less(k, 2 * SHORTEST_CHAIN + 1), min(self.chain, SHORTEST_CHAIN), self.chain)
        return replace(strides, block=f.select(f.less(k, LONG), short, BLOCK))
