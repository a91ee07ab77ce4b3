"""Profiles: the sizes of a program's calls, their counts and times. Sizes only, never data.

    with shapevm.record() as recording:
        serve()
    recording.save("prof.json")

Profiles of one program add up (`merge`); `shapevm bake` chooses kernels by them. docs/profile.md has the
schema.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ..vm.errors import ArgumentError, FileError
from ..vm.files import MAX_TEXT_BYTES, content_of, replacing
from ..vm.fork_lock import ForkLock
from ..vm.handle import ProgramClosed
from ..vm.layout import LIMITS
from ..vm.schema import Exactly, Integer, ListOf, Made, Object, Text, decode
from .checks import check_programs
from .opened import Opened, opened_programs

FORMAT, VERSION = "shapevm-profile", 1
MAX_SYMBOLS = LIMITS["SYMBOLS"][0]

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """Calls at one tuple of sizes: their number, total nanoseconds, and those of the fastest."""

    count: int
    total_ns: int = 0
    least_ns: int = 0

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            self.count + other.count, self.total_ns + other.total_ns, min(self.least_ns, other.least_ns)
        )


@dataclass(frozen=True)
class Profile:
    """The calls of one program by the values of `symbols`; `dropped`: calls that exceeded the capacity.

    `program` identifies it regardless of its code: the hash of its kernels' specs, in hex.
    """

    program: str
    symbols: tuple[str, ...]
    sizes: Mapping[Sizes, Calls] = field(default_factory=dict)
    dropped: int = 0

    @property
    def n_calls(self) -> int:
        """Number of calls whose sizes are known."""
        return sum(calls.count for calls in self.sizes.values())

    def json(self) -> str:
        """Return the profile as JSON."""
        rows = [
            {"values": list(values), "count": c.count, "total_ns": c.total_ns, "least_ns": c.least_ns}
            for values, c in sorted(self.sizes.items())
        ]
        data = {
            "format": FORMAT, "version": VERSION, "program": self.program, "symbols": list(self.symbols),
            "dropped": self.dropped, "sizes": rows,
        }  # fmt: skip
        return json.dumps(data, indent=1) + "\n"

    def since(self, before: Profile) -> Profile:
        """Return the counts since `before`; the least times are those of all calls."""
        sizes = {}
        for values, calls in self.sizes.items():
            old = before.sizes.get(values, Calls(0))
            if calls.count > old.count:
                rest = (calls.count - old.count, calls.total_ns - old.total_ns, calls.least_ns)
                sizes[values] = Calls(*rest)
        return Profile(self.program, self.symbols, sizes, self.dropped - before.dropped)


def merge(profiles: Iterable[Profile]) -> Profile:
    """Return the sum of profiles of one program. Raises ArgumentError for no profiles, or for profiles of
    several programs."""
    found = list(profiles)
    if not found:
        raise ArgumentError("profiles: none is given to merge")
    first = found[0]
    sizes: dict[Sizes, Calls] = {}
    for profile in found:
        if (profile.program, profile.symbols) != (first.program, first.symbols):
            raise ArgumentError(
                f"profiles: one is of program {profile.program[:16]}, another of {first.program[:16]}; "
                "merge those of one program"
            )
        for values, calls in profile.sizes.items():
            sizes[values] = sizes[values] + calls if values in sizes else calls
    return Profile(first.program, first.symbols, sizes, sum(p.dropped for p in found))


def check_program(profile: Profile, program: str, what: str = "the profile") -> None:
    """Raise ArgumentError for a profile of a program with another identity."""
    if profile.program != program:
        raise ArgumentError(
            f"{what} is of program {profile.program[:16]}, the artifact is {program[:16]}; "
            "record this program"
        )


def from_json(text: str | bytes, what: str = "profile") -> Profile:
    """Return the profile in a JSON text. Raises ArgumentError for an invalid text."""
    found: Profile = decode(text, PROFILE, f"{what} is no profile that this version reads", ArgumentError)
    return found


def _profile(data: dict[str, Any]) -> Profile:
    symbols, sizes = tuple(data["symbols"]), {}
    if len(set(symbols)) < len(symbols):
        raise ValueError("the symbols are not all different")
    for i, row in enumerate(data["sizes"]):
        values = tuple(row["values"])
        if len(values) != len(symbols) or values in sizes:
            raise ValueError(f"row {i} of sizes does not fit {len(symbols)} symbols, or is there twice")
        sizes[values] = Calls(row["count"], row["total_ns"], row["least_ns"])
    return Profile(data["program"], symbols, sizes, data["dropped"])


_COUNT = Integer(0)
_SIZES = Object(
    {"values": ListOf(_COUNT, most=MAX_SYMBOLS), "count": Integer(1), "total_ns": _COUNT, "least_ns": _COUNT}
)
PROFILE = Made(
    Object(
        {
            "format": Exactly((FORMAT,)), "version": Exactly((VERSION,)), "program": Text(),
            "symbols": ListOf(Text(), most=MAX_SYMBOLS), "dropped": _COUNT,
            "sizes": ListOf(_SIZES, most=1 << 20),
        }
    ),
    _profile,
)  # fmt: skip


def read(path: str | os.PathLike[str]) -> Profile:
    """Return a file's profile. Raises FileError if it cannot be read, ArgumentError if it is invalid."""
    return from_json(content_of(path, MAX_TEXT_BYTES), str(path))


def write(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile. Raises FileError if that fails."""
    try:
        with replacing(path) as file:
            file.write(profile.json().encode())
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


def profile_of(exe: Opened) -> Profile:
    """Return the whole record of a program."""
    return from_json(exe.machine.profile())


class Recording:
    """Records calls within a `with` block: of `executables`, or of all existing and future ones."""

    def __init__(self, executables: Iterable[Opened]) -> None:
        self._only = list(executables)
        self._before: dict[Opened, Profile] = {}
        self._found: list[Profile] = []

    def __enter__(self) -> Recording:
        with _LOCK:
            _ACTIVE.append(self)
            for exe in self._only or opened_programs():
                self._begin(exe)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with _LOCK:
            _ACTIVE.remove(self)
            for exe in list(self._before):
                self._end(exe)

    def _begin(self, exe: Opened) -> None:
        with suppress(ProgramClosed):
            self._before[exe] = profile_of(exe)
            exe.machine.record(True)

    def _end(self, exe: Opened) -> None:
        before = self._before.pop(exe, None)
        if before is None:
            return
        with suppress(ProgramClosed):
            self._found.append(profile_of(exe).since(before))
            if not any(exe in other._before for other in _ACTIVE):
                exe.machine.record(False)

    @property
    def profiles(self) -> list[Profile]:
        """The profiles of the programs that were called, one for each."""
        with _LOCK:
            found = [p for p in self._found if p.sizes or p.dropped]
            for exe, before in self._before.items():
                with suppress(ProgramClosed):
                    found.append(profile_of(exe).since(before))
        found = [p for p in found if p.sizes or p.dropped]
        by_program: dict[str, list[Profile]] = {}
        for profile in found:
            by_program.setdefault(profile.program, []).append(profile)
        return [merge(each) for each in by_program.values()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile of the only program that was called. Raises ArgumentError for none or several."""
        found = self.profiles
        if len(found) != 1:
            raise ArgumentError(
                f"recording: {len(found)} programs were called; record one: shapevm.record(exe)"
            )
        write(found[0], path)


_ACTIVE: list[Recording] = []
_LOCK = ForkLock()


def opened(exe: Opened) -> None:
    """Add a new program to recordings of all programs."""
    with _LOCK:
        for recording in _ACTIVE:
            if not recording._only:
                recording._begin(exe)


def closing(exe: Opened) -> None:
    """Let recordings read their data from a program that is about to close."""
    with _LOCK:
        for recording in _ACTIVE:
            recording._end(exe)


def record(*executables: Opened) -> Recording:
    """Return a context manager that records calls: of these programs, or of all, including those loaded
    within it.

    It gives a `Recording`: `profiles`, `save(path)`. Raises ArgumentError if an argument is not a program.
    """
    check_programs(executables)
    return Recording(executables)
