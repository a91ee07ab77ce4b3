"""`shapevm bake`: which kernels are worth their bytes, from a profile of the sizes that a program meets.

Groups of calls are ordered by the symbol with the most values. Each group runs exact code, code of a range,
or generic code; a range covers any number of neighbours. Dynamic programming over groups and bytes finds the
choice with the least expected time. cost_model.py estimates bytes and times of kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calls.profiles import Profile, Sizes, check_program
from ..vm.errors import ArgumentError
from ..vm.objects import serialise_object
from ..vm.program import Program, SizeRange
from ..vm.sizes import launches
from .buckets import Cell, add_cells
from .cost_model import BUCKET, EXACT, GENERIC, KernelModel, models_of

if TYPE_CHECKING:
    from ..jit.store import KernelStore

N_SAMPLES = 3  # sizes at which each kernel is measured
MAX_GROUPS = 512  # beyond that, neighbours share a group
N_BINS = 512  # of the budget
MAX_ROUNDS = 6  # until the bytes, which are estimated at first, fit the budget


def identity(program: Program) -> str:
    """Return the identity of the program in profiles, as `svm_profile` in C does."""
    return hashlib.sha256(b"".join(bytes.fromhex(k.spec_hash) for k in program.kernels)).hexdigest()


# The choice ---------------------------------------------------------------------------------------------


@dataclass
class Group:
    """Neighbouring calls: tuples of sizes with their counts; their total nanoseconds by tier."""

    counts: dict[Sizes, int]
    ns: dict[str, float]

    @property
    def is_point(self) -> bool:
        """Whether exact code can serve it."""
        return len(self.counts) == 1


def groups_of(
    program: Program, profile: Profile, axis: int, models: Mapping[int, KernelModel]
) -> list[Group]:
    """Return the profile's calls in order of symbol `axis`, at most MAX_GROUPS groups."""
    rows = sorted(profile.sizes.items(), key=lambda row: (row[0][axis], row[0]))
    per_group = -(-len(rows) // MAX_GROUPS)
    names = [s.name for s in program.symbols]
    groups = []
    for first in range(0, len(rows), per_group):
        counts = {values: calls.count for values, calls in rows[first : first + per_group]}
        ns = dict.fromkeys((EXACT, BUCKET, GENERIC), 0.0)
        for values, count in counts.items():
            for kernel, dims in launches(program, dict(zip(names, values, strict=True))):
                for tier in ns:
                    ns[tier] += count * models[kernel].ns(tier, dims) if kernel in models else 0.0
        groups.append(Group(counts, ns))
    return groups


def choose(
    groups: Sequence[Group], exact_bytes: int, range_bytes: int, budget: int
) -> list[tuple[str, bool]]:
    """Return for each group its tier, and whether a range continues over it: the choice with the least total
    time within `budget` bytes.

    Opening a range costs `range_bytes` once; exact code costs `exact_bytes` a group, in a range or not.
    """
    unit = max(1, -(-budget // N_BINS))
    n_bins = budget // unit + 1
    one, opening = -(-exact_bytes // unit), -(-range_bytes // unit)
    best = np.full((2, n_bins), np.inf)  # closed and open, by bytes spent
    best[0, :] = 0.0
    steps: list[np.ndarray] = []
    moves = [  # from open?, to open?, tier, bins
        (0, 0, GENERIC, 0), (0, 0, EXACT, one), (0, 1, BUCKET, opening), (0, 1, EXACT, opening + one),
        (1, 1, BUCKET, 0), (1, 1, EXACT, one), (1, 0, GENERIC, 0), (1, 0, EXACT, one),
    ]  # fmt: skip
    for group in groups:
        after, chosen = np.full((2, n_bins), np.inf), np.full((2, n_bins), -1)
        for number, (source, target, tier, bins) in enumerate(moves):
            if bins >= n_bins or (tier == EXACT and not group.is_point):
                continue
            times = np.full(n_bins, np.inf)
            times[bins:] = best[source, : n_bins - bins] + group.ns[tier]
            is_better = times < after[target]
            after[target][is_better], chosen[target][is_better] = times[is_better], number
        best = after
        steps.append(chosen)
    found: list[tuple[str, bool]] = []
    state, at = int(best[1, -1] < best[0, -1]), n_bins - 1
    for chosen in reversed(steps):
        source, target, tier, bins = moves[int(chosen[state, at])]
        found.append((tier, bool(target)))
        state, at = source, at - bins
    return found[::-1]


def cells_of(program: Program, groups: Sequence[Group], choice: Sequence[tuple[str, bool]]) -> list[Cell]:
    """Return the cells of a choice: exact tuples, then ranges from their first to their last user."""
    names = [s.name for s in program.symbols]
    exact: list[Cell] = []
    ranges: list[list[Sizes]] = []
    was_open = False
    for group, (tier, is_open) in zip(groups, choice, strict=True):
        if tier == EXACT:
            exact.append(dict(zip(names, next(iter(group.counts)), strict=True)))
        if is_open and not was_open:
            ranges.append([])
        if tier == BUCKET:
            ranges[-1].extend(group.counts)
        was_open = is_open
    return exact + [_hull(program, values) for values in ranges if values]


def _hull(program: Program, values: Iterable[Sizes]) -> Cell:
    """Return the smallest cell that contains all these tuples."""
    columns = list(zip(*values, strict=True))
    return {
        s.name: min(c) if min(c) == max(c) else SizeRange(min(c), max(c), s.multiple_of)
        for s, c in zip(program.symbols, columns, strict=True)
    }


# Baking -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Baked:
    """A program with the kernels chosen for it, and the expectations: shares of calls by tier, time relative
    to all exact and to only generic code, bytes added, whether times were measured.
    """

    program: Program
    cells: tuple[Cell, ...]
    shares: Mapping[str, float]
    slowdown: float
    generic_slowdown: float
    n_bytes: int
    budget: int
    is_measured: bool

    def data(self) -> dict[str, Any]:
        """Return the expectations as data."""
        kept = ("slowdown", "generic_slowdown", "n_bytes", "budget", "is_measured")
        values = {name: getattr(self, name) for name in kept}
        return {"kernels": [format_cell(cell) for cell in self.cells], "shares": dict(self.shares), **values}

    def text(self) -> str:
        """Return the expectations in a few lines."""
        hit = self.shares[EXACT] + self.shares[BUCKET]
        how = "measured on this machine" if self.is_measured else "by a cost model, nothing measured"
        shown = "; ".join(format_cell(cell) for cell in self.cells) or "none"
        return (
            f"kernels for: {shown}\n"
            f"expected hit rate {hit:.1%} (exact {self.shares[EXACT]:.1%}, "
            f"buckets {self.shares[BUCKET]:.1%})\n"
            f"expected time {self.slowdown:.3f} of all-exact, "
            f"generic code alone {self.generic_slowdown:.3f} ({how})\n"
            f"{self.n_bytes:,} bytes of a budget of {self.budget:,}"
        )


def format_cell(cell: Cell) -> str:
    """Format a cell for the command line: "batch=1,length=17..64"."""
    return ",".join(f"{name}={size}" for name, size in cell.items())


def check_profile(program: Program, profile: Profile) -> None:
    """Raise ArgumentError for a profile of another program, without calls, or of a program without sizes."""
    if not profile.symbols:
        raise ArgumentError("the program has no sizes to choose kernels for")
    check_calls(program, profile)


def check_calls(program: Program, profile: Profile) -> None:
    """Raise ArgumentError for a profile of another program, or without calls."""
    check_program(profile, identity(program))
    if not profile.sizes:
        raise ArgumentError("the profile has no calls")
    known = {symbol.name: symbol for symbol in program.symbols}
    if profile.symbols != tuple(known):
        raise ArgumentError(
            f"the profile counts {', '.join(profile.symbols)[:200]}; the program's sizes are "
            f"{', '.join(known)}"
        )
    for symbol, values in zip(program.symbols, zip(*profile.sizes, strict=True), strict=True):
        for value in values:
            if value not in SizeRange(symbol.min, symbol.max, symbol.multiple_of):
                bounds = SizeRange(symbol.min, symbol.max, symbol.multiple_of)
                raise ArgumentError(
                    f"the profile has calls with {symbol.name} = {value}; the program takes {bounds}"
                )


def bake(program: Program, profile: Profile, store: KernelStore, budget: int, measure: bool = True) -> Baked:
    """Return the program with the kernels that lower the expected time most within `budget` bytes.

    Raises ArgumentError for a profile of another program.
    """
    check_profile(program, profile)
    columns = list(zip(*profile.sizes, strict=True))
    axis = max(range(len(columns)), key=lambda i: len(set(columns[i])))
    samples = _samples(profile, axis)
    models = models_of(program, store, samples, _wide(_hull(program, profile.sizes), program), measure)
    groups = groups_of(program, profile, axis, models)
    exact_bytes, range_bytes = (sum(m.n_bytes[tier] for m in models.values()) for tier in (EXACT, BUCKET))
    allowed = budget
    for _ in range(MAX_ROUNDS):
        choice = choose(groups, exact_bytes, range_bytes, allowed)
        cells = cells_of(program, groups, choice)
        made = add_cells(program, store, cells)
        n_bytes = _added_bytes(program, made)
        if n_bytes <= budget:
            break
        allowed = int(allowed * budget / n_bytes * 0.98)
    else:
        cells, made, n_bytes, choice = [], program, 0, [(GENERIC, False)] * len(groups)
    return _result(made, cells, groups, choice, n_bytes, budget, measure)


def _result(
    program: Program, cells: Sequence[Cell], groups: Sequence[Group], choice: Sequence[tuple[str, bool]],
    n_bytes: int, budget: int, measure: bool,
) -> Baked:  # fmt: skip
    counts = dict.fromkeys((EXACT, BUCKET, GENERIC), 0)
    time = dict.fromkeys(("chosen", EXACT, GENERIC), 0.0)
    for group, (tier, _) in zip(groups, choice, strict=True):
        counts[tier] += sum(group.counts.values())
        for name, own in (("chosen", tier), (EXACT, EXACT), (GENERIC, GENERIC)):
            time[name] += group.ns[own]
    total = sum(counts.values())
    least = time[EXACT] or 1.0
    shares = {tier: n / total for tier, n in counts.items()}
    rest = (time["chosen"] / least, time[GENERIC] / least, n_bytes, budget, measure)
    return Baked(program, tuple(cells), shares, *rest)


def _wide(hull: Cell, program: Program) -> Cell:
    """Return a cell with a range for every symbol: a bucket may also hold a single value."""
    whole = {s.name: SizeRange(s.min, s.max, s.multiple_of) for s in program.symbols}
    return {name: whole[name] if isinstance(size, int) else size for name, size in hull.items()}


def _samples(profile: Profile, axis: int) -> list[Sizes]:
    """Return tuples of sizes at quantiles of the calls."""
    rows = sorted(profile.sizes.items(), key=lambda row: row[0][axis])
    ends = np.cumsum([calls.count for _, calls in rows])
    wanted = [ends[-1] * (i + 0.5) / N_SAMPLES for i in range(N_SAMPLES)]
    return list(dict.fromkeys(rows[int(np.searchsorted(ends, x))][0] for x in wanted))


def _added_bytes(before: Program, after: Program) -> int:
    pairs = zip(before.kernels, after.kernels, strict=True)
    return sum(len(serialise_object(o)) for a, b in pairs for o in b.objects[len(a.objects) :])


def all_exact(program: Program, store: KernelStore, profile: Profile) -> Program:
    """Return the program with exact code for every tuple of sizes of a profile (`shapevm freeze`)."""
    check_profile(program, profile)
    cells: list[Cell] = [dict(zip(profile.symbols, values, strict=True)) for values in profile.sizes]
    return add_cells(program, store, cells)
