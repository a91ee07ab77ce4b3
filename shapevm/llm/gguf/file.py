"""GGUF files: metadata and tensors. A file is untrusted: every count is checked against its bytes before
anything is read or made.

The package `gguf` also reads such files; it trusts their counts, and a small file can keep it busy forever.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...nn.quantised import Quantised
from ...vm.errors import ArgumentError
from .blocks import FORMATS, Format, array_of

MAGIC, VERSIONS = b"GGUF", (2, 3)
MAX_AXES, MAX_NAME = 4, 1 << 16  # axes of a tensor, bytes of a name
MAX_ENTRIES = 1 << 16  # of metadata, and tensors
ALIGNMENT = 32  # of tensors, unless the metadata say otherwise
KINDS: Mapping[int, str] = {  # numbers, as `struct` names them
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
TEXT, LIST = 8, 9
LEAST_BYTES = {TEXT: 8, LIST: 12}  # of a value that is no number


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the file."""

    format: Format
    shape: tuple[int, ...]
    begin: int

    @property
    def n_bytes(self) -> int:
        """The bytes of its blocks."""
        return prod(self.shape) // self.format.elements * self.format.n_bytes


@dataclass(frozen=True)
class GgufFile:
    """The `metadata` of a file, and the places of its tensors by name. `data`: its bytes, which stay in the
    file until a tensor is read."""

    path: str
    metadata: Mapping[str, Any]
    places: Mapping[str, Place]
    data: np.ndarray[Any, Any]

    def tensor(self, name: str) -> np.ndarray[Any, Any] | Quantised:
        """Return the values of a tensor. Raises ArgumentError for an unknown one."""
        if name not in self.places:
            raise ArgumentError(f'{self.path} has no tensor "{name}"')
        place = self.places[name]
        return array_of(place.format, self.data[place.begin : place.begin + place.n_bytes], place.shape)


def read_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Return a file's metadata and the places of its tensors.

    Raises ArgumentError, with the path, for a file that cannot be read or is no whole GGUF file.
    """
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{where} cannot be read as a GGUF file: {error}") from None
    try:
        return _Reader(data).whole(where)
    except _Broken as error:
        raise ArgumentError(f"{where} is no whole GGUF file: {error}") from None


class _Broken(ValueError):
    """Bytes that are no GGUF file."""


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def whole(self, where: str) -> GgufFile:
        """Return the whole file."""
        if self._bytes(4) != MAGIC:
            raise _Broken("it does not begin with GGUF")
        version = self._number("I")
        if version not in VERSIONS:
            raise _Broken(f"its version is {version}; versions 2 and 3, with low bytes first, are read")
        n_tensors, n_entries = self._count(24, MAX_ENTRIES), self._count(12, MAX_ENTRIES)
        metadata = dict(self._entries(n_entries))
        found = dict(self._tensor() for _ in range(n_tensors))
        if (len(metadata), len(found)) != (n_entries, n_tensors):
            raise _Broken("two of its names are equal")
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & alignment - 1:
            raise _Broken(f"its alignment is {alignment!r:.40}; it must be a power of two")
        begin = self.at + -self.at % alignment
        places = {name: self._placed(name, place, begin) for name, place in found.items()}
        return GgufFile(where, metadata, places, np.frombuffer(self.data, np.uint8))

    def _placed(self, name: str, place: Place, begin: int) -> Place:
        moved = Place(place.format, place.shape, begin + place.begin)
        if moved.begin + moved.n_bytes > len(self.data):
            raise _Broken(
                f'tensor "{name:.80}" ends at byte {moved.begin + moved.n_bytes}; the file has '
                f"{len(self.data)} bytes"
            )
        return moved

    def _bytes(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise _Broken(f"{n} bytes should follow byte {self.at}; the file has {len(self.data)} bytes")
        self.at += n
        return self.data[self.at - n : self.at]

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._bytes(struct.calcsize(f"<{kind}")))[0]

    def _count(self, least: int, most: int | None = None) -> int:
        """Return a count of items of at least `least` bytes each."""
        count: int = self._number("Q")
        room = (len(self.data) - self.at) // least
        if count > (room if most is None else min(room, most)):
            raise _Broken(f"a count before byte {self.at} is {count}, more than the file can hold")
        return count

    def _text(self, most: int | None = None) -> str:
        data = self._bytes(self._count(1, most))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _Broken(f"the text before byte {self.at} is no UTF-8") from None

    def _entries(self, n: int) -> Iterator[tuple[str, Any]]:
        for _ in range(n):
            yield self._text(MAX_NAME), self._value(self._number("I"), may_be_list=True)

    def _value(self, kind: int, may_be_list: bool = False) -> Any:
        if kind in KINDS:
            return self._number(KINDS[kind])
        if kind == TEXT:
            return self._text()
        if kind != LIST or not may_be_list:
            raise _Broken(f"a value before byte {self.at} has the unknown type {kind}")
        inner = self._number("I")
        if inner in KINDS:
            size = struct.calcsize(f"<{KINDS[inner]}")
            count = self._count(size)
            return list(struct.unpack(f"<{count}{KINDS[inner]}", self._bytes(size * count)))
        return [self._value(inner) for _ in range(self._count(LEAST_BYTES.get(inner, 1)))]

    def _tensor(self) -> tuple[str, Place]:
        name, n_axes = self._text(MAX_NAME), self._number("I")
        if n_axes > MAX_AXES:
            raise _Broken(f'tensor "{name:.80}" has {n_axes} axes; at most {MAX_AXES} are read')
        shape = tuple(self._number("Q") for _ in range(n_axes))[::-1]
        number, begin = self._number("I"), self._number("Q")
        if number not in FORMATS:
            known = ", ".join(each.name for each in FORMATS.values())
            raise _Broken(f'tensor "{name:.80}" has the type {number}; the known formats are {known}')
        row = FORMATS[number]
        if prod(shape) * row.n_bytes > len(self.data) * row.elements or (shape or (1,))[-1] % row.elements:
            raise _Broken(
                f'tensor "{name:.80}" has the shape {list(shape)}; the file does not hold as many blocks of '
                f"{row.elements}"
            )
        return name, Place(row, shape, begin)
