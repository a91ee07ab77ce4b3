"""An attention as its emitters see it: a spec with resolved sizes and a register tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...llvm.abi import resolve
from ...llvm.function import Function, Int, most
from ...loops.bodies import LANES
from ..matmul.row_shares import row_counts
from ..matmul.schedules import PANEL, SCHEDULES, Schedule, default_schedule
from .spec import Attention

BLOCK = 546  # at most, query rows of a tile, which share one copy of the keys and values
KEY_BLOCK = 512  # keys whose panels and values are in use together; the order of sums depends on it
IN_PLACE = 128  # at most, keys whose values are read in place, not copied into panels


class Tile(NamedTuple):
    """The most rows of a row tile; the register tile of its scores; the vectors in a row of its results."""

    rows: int
    scores: Schedule
    vectors: int


# By the names of the results' register tiles. Scores use 6x64 wherever there are many registers: 10 loads for
# 24 FMAs reach 96 % of the peak, 16 for 28 reach 94 and 14 for 24 reach 90 %. So two tiles of 6 rows of
# scores make one of 12 rows of results.
TILES = {
    "6x64": Tile(6, SCHEDULES["6x64"], 4),
    "14x32": Tile(12, SCHEDULES["6x64"], 2),
    "6x16": Tile(6, SCHEDULES["6x16"], 1),
}


def choose_schedule(f: Function, v_dim: Int) -> str:
    """Return the name of the register tile: the widest whose panels are at least half full of values."""
    name = default_schedule(f)
    is_full = isinstance(v_dim, int) and -v_dim % (2 * PANEL) < PANEL
    return "6x64" if name == "14x32" and is_full else name


@dataclass(frozen=True)
class Problem:
    """An attention whose sizes are resolved, with the register tile `tile`."""

    spec: Attention
    sizes: Sequence[Int]
    tile: Tile
    batch: Sequence[Int]
    q_len: Int
    k_len: Int
    head_dim: Int
    v_dim: Int
    tokens: Int

    @property
    def row_loop(self) -> int:
        """The number of the loop over queries; those before it are the batch loops."""
        return len(self.spec.extents.batch)

    @property
    def key_loop(self) -> int:
        """The number of the loop over keys."""
        return self.row_loop + 1

    @property
    def feature_loop(self) -> int:
        """The number of the loop over a head's features."""
        return self.row_loop + 2

    @property
    def n_offsets(self) -> Int:
        """The number of the segments' offsets."""
        (count,) = self.spec.buffers[self.spec.segments.offsets].shape
        return resolve(count, self.sizes)

    @property
    def panel(self) -> int:
        """The columns of the panels of values."""
        return max(PANEL, LANES * self.tile.vectors)

    @property
    def key_panel(self) -> int:
        """The columns of the panels of keys and scores."""
        return max(PANEL, LANES * self.tile.scores.vectors)

    @property
    def block(self) -> int:
        """The query rows of a tile of the kernel: evenly split if their number is known."""
        whole = BLOCK // self.tile.rows * self.tile.rows
        if not isinstance(self.q_len, int):
            return whole
        return -(-self.q_len // max(-(-self.q_len // whole), 1)) or 1

    @property
    def is_one(self) -> bool:
        """Whether there is one block of keys."""
        top = most(self.k_len)
        return top is not None and top <= KEY_BLOCK

    @property
    def is_whole(self) -> bool:
        """Whether values fill their panels."""
        return isinstance(self.v_dim, int) and self.v_dim % self.panel == 0

    @property
    def in_place(self) -> bool:
        """Whether values are read in place: copying does not pay if one row tile reads them, or they are
        few."""
        rows, keys = most(self.q_len), most(self.k_len)
        is_little = rows is not None and rows <= self.tile.rows or keys is not None and keys <= IN_PLACE
        return self.is_whole and is_little

    @property
    def row_counts(self) -> list[int]:
        """The numbers of rows that a row tile may have."""
        if self.spec.is_segmented:
            return list(range(1, self.tile.rows + 1))
        return row_counts(self.q_len, self.block, self.tile.rows)


def problem_of(spec: Attention, sizes: Sequence[Int], tile: Tile) -> Problem:
    """Return the problem of `spec`."""
    extents = spec.extents
    batch = [resolve(size, sizes) for size in extents.batch]
    lengths = extents.q_len, extents.k_len, extents.head_dim, extents.v_dim, spec.segments.tokens
    return Problem(spec, sizes, tile, batch, *(resolve(size, sizes) for size in lengths))
