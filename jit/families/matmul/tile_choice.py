"""Register tiles by measurement: on some machines another tile than the built-in one is the fastest.

Which one depends on how many FMAs and loads a core starts in a cycle and on the size of its caches. So a
machine's own products are timed once with every tile (`jit.measure.tiles`). A tile replaces the built-in
choice where it takes at most WORTH_OF_TILES of its time in most of several turns, and no more in any: where
others use the memory, all tiles wait for it alike. All tiles sum in the same order, so results keep their
bits.

Where A's rows are a page or more apart, those of a row tile may share sets of the first-level cache, and are
read from the second one: tiles of more rows than a set has lines are not taken there, but the best of the
others.

Whether few rows ask for a weight's lines before they read them (`gemv`), and layout changes for theirs
(`nest.asking`), is measured alike (`jit.measure.streams`), and whether several row tiles widen a narrow
weight as they read it, instead of reading a copy in f32 (`jit.measure.narrow`): where multiply-adds and
conversions are started side by side, that is free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import median_high
from typing import NamedTuple

from ...llvm.target import bases, find_target
from ..nest.asking import LAYOUTS

WORTH = 0.95  # of the built-in way's time, in most turns: neighbours' noise is less in least times
WORTH_OF_TILES = 0.985  # least times of tiles alike differ by less than 1 % in most turns
LINES_OF_SET = 8  # of a first-level cache; a page has a line of each set
PAGE = 1024  # f32
Turn = Mapping[str, float]  # the least time by tile


class RowClass(NamedTuple):
    """Products of up to `most` rows (None: any number), for which one of `probe` rows stands."""

    probe: int
    most: int | None


CLASSES = {"few": RowClass(16, 32), "some": RowClass(64, 128), "many": RowClass(256, None)}
ANY = "any"  # products of a number of rows that only a call knows
STREAMS = "streams"  # of a weight that few rows read
ASKED, UNASKED = "asked", "unasked"
NARROW = ("bf16", "i8", "i4")  # dtypes of weights that are widened as they are read, or in a copy
COPIED, IN_PLACE, ALWAYS_IN_PLACE = "copied", "in_place", "always_in_place"


def target_of_products(target: str) -> str:
    """Return the target that products of f32 are compiled for when `target` is asked for: what is measured
    there holds for all targets that share it."""
    return next(name for name in bases(target) if find_target(name).extension in ("", "amx"))


def class_of(rows: int | None) -> str:
    """Return the name of the class of products of at most `rows` rows (None: no bound is known)."""
    if rows is None:
        return ANY
    return next(name for name, of in CLASSES.items() if of.most is None or rows <= of.most)


def name_of_class(rows: int | None, steps: int) -> str:
    """Return what stands in a choice for products of at most `rows` rows of `steps` steps."""
    name = class_of(rows)
    return name_of_long(name) if name != ANY and steps >= PAGE else name


def name_of_long(name: str) -> str:
    """Return what stands for those products of a class whose rows are a page or more."""
    return f"{name}, a page or more"


@dataclass(frozen=True)
class Measured:
    """What was measured of a class: `own`: the built-in tile; `turns`: all tiles' least times."""

    own: str
    turns: Sequence[Turn]

    def shares(self, tile: str) -> list[float]:
        """Return the time of `tile` as a share of the built-in one's, turn by turn."""
        return [turn[tile] / turn[self.own] for turn in self.turns]


@dataclass(frozen=True)
class TileChoice:
    """The tiles that replace built-in ones, by class, and the measurement that says so. The "tile" of STREAMS
    and of LAYOUTS is UNASKED where that is faster, those of narrow weights IN_PLACE or ALWAYS_IN_PLACE
    (`name_of_weights`)."""

    tiles: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)

    def record(self) -> bytes:
        """Return what `parse` reads."""
        measured = {name: {"own": of.own, "turns": [*of.turns]} for name, of in self.measured.items()}
        return json.dumps({"tiles": dict(self.tiles), "measured": measured}).encode()

    def beside(self, other: TileChoice | None) -> TileChoice:
        """Return this choice and another one together."""
        if other is None:
            return self
        return TileChoice({**other.tiles, **self.tiles}, {**other.measured, **self.measured})

    @staticmethod
    def parse(record: bytes) -> TileChoice | None:
        """Return the choice of a record, None for one that is none."""
        try:
            data = json.loads(record)
            measured = {name: Measured(of["own"], of["turns"]) for name, of in data["measured"].items()}
            return TileChoice(dict(data["tiles"]), measured)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def choose(measured: Mapping[str, Measured], own_of_any: str, for_any: Sequence[str]) -> TileChoice:
    """Return the choice that measurements of classes lead to. `own_of_any`, `for_any`: the built-in tile of
    code for any rows, and those that it can have; it changes where no class loses by that."""
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
    """Return the choice that measurements of few rows, by their numbers, lead to."""
    return _of_two(STREAMS, measured, UNASKED)


def choose_layouts(measured: Mapping[str, Measured]) -> TileChoice:
    """Return the choice that measurements of layout changes lead to."""
    return _of_two(LAYOUTS, measured, UNASKED)


def choose_narrow(dtype: str, measured: Mapping[int, Measured]) -> TileChoice:
    """Return the choice that measurements of weights of `dtype`, by the numbers of rows, lead to: in place
    for any number of rows where the most of these were faster so by themselves, since a copy costs about 7 %
    of their time, and for others no more."""
    name, most = name_of_weights(dtype), measured[max(measured)]
    choice = _of_two(name, {f"{name}, {rows} rows": of for rows, of in measured.items()}, IN_PLACE)
    if choice.tiles and _best([most], most.own, (IN_PLACE,), WORTH):
        return replace(choice, tiles={name: ALWAYS_IN_PLACE})
    return choice


def name_of_weights(dtype: str) -> str:
    """Return the name that stands for narrow weights of `dtype` in a choice."""
    return f"{dtype} weights"


def _of_two(name: str, measured: Mapping[str, Measured], other: str) -> TileChoice:
    """Return the choice of `other` for `name` where it is faster than the built-in way."""
    own = {of.own for of in measured.values()}
    best = _best([*measured.values()], own.pop(), (other,), WORTH) if own else ""
    return TileChoice({name: best} if best else {}, measured)


def _best(classes: Sequence[Measured], own: str, among: Sequence[str], worth: float) -> str:
    """Return the fastest tile that takes at most `worth` of the built-in one's time, "" where none does."""
    means = {tile: mean for tile in among if tile != own and (mean := _mean_share(classes, tile)) <= worth}
    return min(means, key=means.__getitem__, default="")


def _mean_share(classes: Sequence[Measured], tile: str) -> float:
    """Return the middle one of the turns' mean shares of a tile over `classes`; 1 where one of them loses."""
    if any(tile not in of.turns[0] or max(of.shares(tile)) > 1 for of in classes):
        return 1.0
    by_turn = zip(*(of.shares(tile) for of in classes), strict=True)
    return median_high(exp(sum(map(log, turn)) / len(turn)) for turn in by_turn)
