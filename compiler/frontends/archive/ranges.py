"""The source of the code of an archive: the model's files and lines, from torch's records of source ranges
(.debug_pkl)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.errors import ArchiveError
from .code import Code
from .container import Container
from .records import read_pickle

_WITH_TABLE = "FORMAT_WITH_STRING_TABLE"


def read_ranges(container: Container, code: Code) -> dict[str, Any]:
    """Return the records of source ranges by their members, every index in them checked. Raises
    ArchiveError."""
    found = {}
    for path in code.texts:
        name = f"{path}.debug_pkl"
        if name in container.members:
            found[name] = read_pickle(container.read(name), name, lambda function, args: None)
            _check(found[name], name)
    return found


def _check(records: Any, name: str) -> None:
    table: Sequence[Any] | None = None
    match records:
        case (str(form), tuple(table), tuple(records)) if form == _WITH_TABLE:
            pass
    if not isinstance(records, tuple) or not all(isinstance(text, str) for text in table or ()):
        raise ArchiveError(f"{name} is not a list of source ranges")
    lengths: dict[int, int | None] = {}  # of the sources, by identity
    for record in records:
        match record:
            case (int(), (tuple(source), int(start), int(end)), *rest) if all(type(x) is int for x in rest):
                if id(source) not in lengths:
                    lengths[id(source)] = _length(source, table)
                length = lengths[id(source)]
                if length is not None and 0 <= start <= end <= max(
                    length, 1
                ):  # torch's range of no text: 0 to 1
                    continue
        raise ArchiveError(f"{name} has a source range outside of its text")


def _length(source: Sequence[Any], table: Sequence[str] | None) -> int | None:
    """Return the number of bytes of a source's text, None if it is not text."""
    match source:
        case (list(parts), int(file), int()) if table is not None:
            if all(type(i) is int and 0 <= i < len(table) for i in (*parts, file)):
                return sum(len(table[i].encode()) for i in parts)
        case (str(text), (str() | None), int()) if table is None:
            return len(text.encode())
    return None
