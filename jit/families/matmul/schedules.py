"""The register tiles of micro-kernels by name, with options for prefetching a weight and for holding rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...llvm.function import Function
from ...loops.bodies import LANES
from .tile_choice import ALWAYS_IN_PLACE, IN_PLACE, UNASKED

PANEL = 32  # columns of a packed panel of B; a micro-kernel reads one or two adjacent ones


@dataclass(frozen=True)
class Schedule:
    """A register tile: at most `rows` rows of `vectors` vectors. `asks`: whether gemv prefetches the weight.
    `tiles_in_place`: the number of row tiles up to which each widens a narrow weight as it reads it; more of
    them read a copy in f32. `keeps_totals`: whether a row tile reads its rows of A from front to back, with
    the totals of blocks in registers beside the sums of one, instead of leaving them in scratch from chunk to
    chunk."""

    rows: int
    vectors: int
    asks: bool = True
    tiles_in_place: int = 1
    keeps_totals: bool = False

    @property
    def rows_in_place(self) -> int:
        """The rows up to which a narrow weight is widened as it is read."""
        return self.rows * self.tiles_in_place


# 24 or 28 accumulators for targets with 32 registers of 16 lanes; 12 for those with 16 of 8 (2 per vector of
# 16). 6x64 takes 10 loads for 24 FMAs, 14x32 takes 16 for 28; 12x32 takes 14 for 24, and half the bytes of B.
# 12x16 takes 13 loads for 12, of which FMAs do 12, and stores nothing before its sums are complete.
SCHEDULES = {
    "6x64": Schedule(6, 4),
    "14x32": Schedule(14, 2),
    "12x32": Schedule(12, 2),
    "12x16": Schedule(12, 1, keeps_totals=True),
    "6x16": Schedule(6, 1),
}
IN_PLACE_ENDING, ALWAYS_ENDING = f"-{IN_PLACE}", f"-{ALWAYS_IN_PLACE}"
#: By the ending of a schedule's name: the copy costs the same for any number of rows, so it may pay from some
#: number on. A tile of the kernel has fewer rows than the last one's.
TILES_IN_PLACE = {IN_PLACE_ENDING: 6, ALWAYS_ENDING: 40}
WITHOUT_ASKING = f"-{UNASKED}"  # the suffix of schedules that leave prefetching to the hardware


def schedule_of(name: str) -> Schedule:
    """Return the schedule of a name."""
    tile = tile_of(name)
    ends = name.removeprefix(tile)
    n_tiles = TILES_IN_PLACE.get(ends.removesuffix(WITHOUT_ASKING), 1)
    return replace(SCHEDULES[tile], asks=not ends.endswith(WITHOUT_ASKING), tiles_in_place=n_tiles)


def tile_of(name: str) -> str:
    """Return the name of the register tile of a schedule, "" if it leaves that to the generator."""
    return name.removesuffix(WITHOUT_ASKING).removesuffix(IN_PLACE_ENDING).removesuffix(ALWAYS_ENDING)


def default_schedule(f: Function) -> str:
    """Return the name of the schedule whose tile fits the vector registers of the function's target."""
    return "14x32" if f.register_bytes >= 32 * 4 * LANES else "6x16"


def fits_registers(f: Function, name: str) -> bool:
    """Whether the vector registers of the function's target hold the sums of a schedule's tile."""
    tile = SCHEDULES[name]
    return tile.rows * tile.vectors * 4 * LANES < f.register_bytes


def narrow_schedules() -> tuple[str, ...]:
    """Return the names of the register tiles that are no wider than one panel."""
    return tuple(name for name, tile in SCHEDULES.items() if LANES * tile.vectors <= PANEL)
