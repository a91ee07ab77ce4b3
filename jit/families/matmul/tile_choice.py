"""Choice of register tiles by measurement: on some machines the built-in one is not the fastest.

Which one depends on how many FMAs and loads a core starts in a cycle and on the size of its caches. So a
machine's own products are timed once with every tile (`jit.measure.tiles`). A tile replaces the built-in
choice if it takes at most WORTH_OF_TILES of its time in most of several rounds, and no more in any: when
others use the memory, all tiles wait for it alike. All tiles sum in the same order, so results keep their
bits.

If A's rows are a page or more apart, those of a row tile may share sets of the first-level cache and are read
from the second one: then the best tile with no more rows than a set has lines is chosen.

Whether gemv prefetches the weight (`gemv`), and layout changes their lines (`nest.asking`), is measured in
the same way (`jit.measure.streams`), and so is whether several row tiles widen a narrow weight as they read
it, instead of reading a copy in f32 (`jit.measure.narrow`): that is free if multiply-adds and conversions
start in parallel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import NamedTuple

from ....vm.errors import ArtifactError
from ....vm.schema import ListOf, MapOf, Number, Object, Text, decode
from ...llvm.target import bases, find_target
from ..nest.asking import LAYOUTS

WORTH = 0.95  # of the default's time, in most rounds: least times have less noise from neighbours
WORTH_OF_TILES = 0.985  # least times of equal tiles differ by less than 1 % in most rounds
LINES_OF_SET = 8  # of a first-level cache; a page has a line of each set
PAGE = 1024  # f32
Turn = Mapping[str, float]  # least times by tile
#: The output of `TileChoice.record`.
RECORD = Object(
    {
        "tiles": MapOf(Text(256)),
        "measured": MapOf(Object({"own": Text(256), "turns": ListOf(MapOf(Number()))})),
    }
)


class RowClass(NamedTuple):
    """Products of up to `most` rows (None: any number), represented by one of `probe` rows."""

    probe: int
    most: int | None


CLASSES = {"few": RowClass(16, 32), "some": RowClass(64, 128), "many": RowClass(256, None)}
ANY = "any"  # products of a run-time number of rows
STREAMS = "streams"  # of a weight that few rows read
ASKED, UNASKED = "asked", "unasked"
NARROW = ("bf16", "i8", "i4")  # dtypes of weights that are widened as they are read, or in a copy
COPIED, IN_PLACE, ALWAYS_IN_PLACE = "copied", "in_place", "always_in_place"


def target_of_products(target: str) -> str:
    """Return the target that products of f32 are compiled for when `target` is requested: measurements there
    apply to all targets that share it."""
    return next(name for name in bases(target) if not find_target(name).extension)


def class_of(rows: int | None) -> str:
    """Return the name of the class of products of at most `rows` rows (None: no known bound)."""
    if rows is None:
        return ANY
    return next(name for name, of in CLASSES.items() if of.most is None or rows <= of.most)


def name_of_class(rows: int | None, steps: int) -> str:
    """Return the name in a choice of products of at most `rows` rows of `steps` steps."""
    name = class_of(rows)
    return name_of_long(name) if name != ANY and steps >= PAGE else name


def name_of_long(name: str) -> str:
    """Return the name of those products of a class whose rows are a page or longer."""
    return f"{name}, a page or more"


@dataclass(frozen=True)
class Measured:
    """The measurements of a class: `own`: the built-in tile; `turns`: all tiles' least times by round."""

    own: str
    turns: Sequence[Turn]

    def shares(self, tile: str) -> list[float]:
        """Return the time of `tile` relative to the built-in one's, by round."""
        return [turn[tile] / turn[self.own] for turn in self.turns]


@dataclass(frozen=True)
class TileChoice:
    """The tiles that replace built-in ones, by class, and the measurements. The "tile" of STREAMS and of
    LAYOUTS is UNASKED if that is faster, those of narrow weights IN_PLACE or ALWAYS_IN_PLACE
    (`name_of_weights`)."""

    tiles: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)

    def record(self) -> bytes:
        """Return the text that `parse` reads."""
        measured = {name: {"own": of.own, "turns": [*of.turns]} for name, of in self.measured.items()}
        return json.dumps({"tiles": dict(self.tiles), "measured": measured}).encode()

    def items(self) -> list[str]:
        """Return a text for each tile, in order: equal choices have equal ones."""
        return sorted(f"{name}={tile}" for name, tile in self.tiles.items())

    def beside(self, other: TileChoice | None) -> TileChoice:
        """Return the union of this choice and another one."""
        if other is None:
            return self
        return TileChoice({**other.tiles, **self.tiles}, {**other.measured, **self.measured})

    @staticmethod
    def parse(record: bytes) -> TileChoice | None:
        """Return the choice in a record, None if it is invalid."""
        try:
            found = decode(record, RECORD, "the choice of tiles")
        except ArtifactError:
            return None
        measured = {name: Measured(of["own"], of["turns"]) for name, of in found["measured"].items()}
        return TileChoice(found["tiles"], measured)


def choose(measured: Mapping[str, Measured], own_of_any: str, for_any: Sequence[str]) -> TileChoice:
    """Return the choice from measurements of classes. `own_of_any`, `for_any`: the built-in tile of code for
    any rows, and the possible ones; it changes only if no class loses by that."""
    tiles = {}
    for name, of in measured.items():
        every = list(of.turns[0])
        low = [tile for tile in every if int(tile.split("x")[0]) <= LINES_OF_SET]
        for what, among in ((name, every), (name_of_long(name), low)):
            if best := _best([of], of.own, among, WORTH_OF_TILES):
                tiles[what] = best
    alike = [Measured(own_of_any, of.turns) for of in measured.values() if own_of_any in of.turns[0]]
    if alike and (best := _best(alike, own_of_any, for_any, WORTH_OF_TILES)):
        tiles[ANY] = best
    return TileChoice(tiles, measured)


def choose_streams(measured: Mapping[str, Measured]) -> TileChoice:
    """Return the choice from measurements of few rows, by their numbers."""
    return _of_two(STREAMS, measured, UNASKED)


def choose_layouts(measured: Mapping[str, Measured]) -> TileChoice:
    """Return the choice from measurements of layout changes."""
    return _of_two(LAYOUTS, measured, UNASKED)


def choose_narrow(dtype: str, measured: Mapping[int, Measured]) -> TileChoice:
    """Return the choice from measurements of weights of `dtype`, by the numbers of rows: in place for any
    number of rows if the largest of these was faster that way, since a copy costs about 7 % of its time, and
    no more for others."""
    name, most = name_of_weights(dtype), measured[max(measured)]
    choice = _of_two(name, {f"{name}, {rows} rows": of for rows, of in measured.items()}, IN_PLACE)
    if choice.tiles and _best([most], most.own, (IN_PLACE,), WORTH):
        return replace(choice, tiles={name: ALWAYS_IN_PLACE})
    return choice


def name_of_weights(dtype: str) -> str:
    """Return the name of narrow weights of `dtype` in a choice."""
    return f"{dtype} weights"


def _of_two(name: str, measured: Mapping[str, Measured], other: str) -> TileChoice:
    """Return the choice of `other` for `name` if it is faster than the default."""
    own = {of.own for of in measured.values()}
    best = _best([*measured.values()], own.pop(), (other,), WORTH) if own else ""
    return TileChoice({name: best} if best else {}, measured)


def _best(classes: Sequence[Measured], own: str, among: Sequence[str], worth: float) -> str:
    """Return the fastest tile that takes at most `worth` of the built-in one's time, "" if there is none."""
    means = {tile: mean for tile in among if tile != own and (mean := _mean_share(classes, tile)) <= worth}
    return min(means, key=means.__getitem__, default="")


def _mean_share(classes: Sequence[Measured], tile: str) -> float:
    """Return the median over rounds of a tile's mean share over `classes`; 1 if one of them loses."""
    if any(tile not in of.turns[0] or max(of.shares(tile)) > 1 for of in classes):
        return 1.0
    by_turn = zip(*(of.shares(tile) for of in classes), strict=True)
    means = sorted(exp(sum(map(log, turn)) / len(turn)) for turn in by_turn)
    return means[len(means) // 2]
