"""Profiles: which sizes programs were called with, how often and how long. Sizes only, never data.

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
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .argument_check import check_programs
from .vm.errors import ArgumentError, FileError
from .vm.files import read_regular, replacing
from .vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from .executable import Executable

FORMAT, VERSION = "shapevm-profile", 1

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Calls:
    """Calls at one tuple of sizes: how many, their nanoseconds in all, those of the quickest."""

    count: int
    total_ns: int = 0
    least_ns: int = 0

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            self.count + other.count, self.total_ns + other.total_ns, min(self.least_ns, other.least_ns)
        )


@dataclass(frozen=True)
class Profile:
    """The calls of one program by the values of `symbols`; `dropped`: calls that found no room.

    `program` identifies it whatever code it carries: the hash of its kernels' specs, in hex.
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
        """Return what was counted after `before`; the least times are those of all calls."""
        sizes = {}
        for values, calls in self.sizes.items():
            old = before.sizes.get(values, Calls(0))
            if calls.count > old.count:
                rest = (calls.count - old.count, calls.total_ns - old.total_ns, calls.least_ns)
                sizes[values] = Calls(*rest)
        return Profile(self.program, self.symbols, sizes, self.dropped - before.dropped)


def merge(profiles: Iterable[Profile]) -> Profile:
    """Return the sum of profiles of one program. Raises ArgumentError for none, or of several programs."""
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
    """Raise ArgumentError for a profile of another program than the one of this identity."""
    if profile.program != program:
        raise ArgumentError(
            f"{what} is of program {profile.program[:16]}, the artifact is {program[:16]}; "
            "record this program"
        )


def _short(value: Any) -> str:
    """Return how a message writes a value from outside."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def from_json(data: Any, what: str = "profile") -> Profile:
    """Return the profile that JSON data says. Raises ArgumentError for data that is none."""

    def number(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise ValueError(f"{_short(value)} is no whole number from 0 to 2**63 - 1")
        return value

    try:
        if data["format"] != FORMAT or data["version"] != VERSION:
            raise ValueError(
                f"it is {_short(data['format'])} version {_short(data['version'])}, not {FORMAT!r} {VERSION}"
            )
        symbols = tuple(str(name) for name in data["symbols"])
        if len(set(symbols)) < len(symbols):
            raise ValueError(f"the symbols {_short(symbols)} are not all different")
        sizes: dict[Sizes, Calls] = {}
        for row in data["sizes"]:
            values = tuple(map(number, row["values"]))
            if len(values) != len(symbols) or values in sizes or not number(row["count"]):
                raise ValueError(
                    f"the row {_short(row)} does not fit {len(symbols)} symbols, is empty or there twice"
                )
            sizes[values] = Calls(row["count"], number(row["total_ns"]), number(row["least_ns"]))
        return Profile(str(data["program"]), symbols, sizes, number(data["dropped"]))
    except KeyError as error:
        raise ArgumentError(f"{what} is no profile that this version reads: it has no {error}") from None
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{what} is no profile that this version reads: {error}") from None


def read(path: str | os.PathLike[str]) -> Profile:
    """Return a file's profile. Raises FileError where it cannot be read, ArgumentError where it is none."""
    try:
        data = json.loads(read_regular(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is no profile: {error}") from None
    return from_json(data, str(path))


def write(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile. Raises FileError where that cannot be."""
    try:
        with replacing(path) as file:
            file.write(profile.json().encode())
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


def profile_of(exe: Executable) -> Profile:
    """Return all that was recorded of a program."""
    return from_json(exe.machine.profile())


class Recording:
    """Records calls within a `with` block: of `executables`, or of all that there are and will be."""

    def __init__(self, executables: Iterable[Executable]) -> None:
        self._only = list(executables)
        self._before: dict[Executable, Profile] = {}
        self._found: list[Profile] = []

    def __enter__(self) -> Recording:
        from .executable import OPEN

        with _LOCK:
            _ACTIVE.append(self)
            for exe in self._only or list(OPEN):
                self._begin(exe)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with _LOCK:
            _ACTIVE.remove(self)
            for exe in list(self._before):
                self._end(exe)

    def _begin(self, exe: Executable) -> None:
        if exe.machine.is_open:
            self._before[exe] = profile_of(exe)
            exe.machine.record(True)

    def _end(self, exe: Executable) -> None:
        before = self._before.pop(exe, None)
        if before is None or not exe.machine.is_open:
            return
        self._found.append(profile_of(exe).since(before))
        if not any(exe in other._before for other in _ACTIVE):
            exe.machine.record(False)

    @property
    def profiles(self) -> list[Profile]:
        """The profiles of the programs that were called, one for each."""
        found = [p for p in self._found if p.sizes or p.dropped]
        found += [p for exe, before in self._before.items() if (p := profile_of(exe).since(before)).sizes]
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


def opened(exe: Executable) -> None:
    """Let recordings that want all programs know of a new one."""
    with _LOCK:
        for recording in _ACTIVE:
            if not recording._only:
                recording._begin(exe)


def closing(exe: Executable) -> None:
    """Let recordings take what they need of a program that is about to close."""
    with _LOCK:
        for recording in _ACTIVE:
            recording._end(exe)


def record(*executables: Executable) -> Recording:
    """Return a context that records calls: of these programs, or of all, those loaded within it too.

    It gives a `Recording`: `profiles`, `save(path)`. Raises ArgumentError for what is no program.
    """
    check_programs(executables)
    return Recording(executables)
