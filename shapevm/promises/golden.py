"""Golden vectors: calls with their exact results, in a file that other machines and versions check.

The file is an .npz archive. Its member "golden" is JSON: the format's number, the writer, and the names of
each call's inputs and results, which are the members "0.input.NAME", "0.result.NAME" and so on. bf16 is held
as the u16 of its bits. Inputs are stored rather than regenerated from a seed, because a random generator may
change. The file is untrusted: whatever it holds, reading it at worst raises an error.
"""

from __future__ import annotations

import json
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..program.files import read_arrays, write_arrays
from ..vm.errors import FileError

FORMAT = 1
HEAD = "golden"
MAX_BYTES = 1 << 32  # of all arrays
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Call:
    """A call's inputs and results by name."""

    inputs: Arrays
    results: Arrays


@dataclass(frozen=True)
class Golden:
    """Calls and their writer: `written_by`, such as "shapevm 0.1.0 on x86_64"."""

    written_by: str
    calls: Sequence[Call]


def here() -> str:
    """Return this version and the machine's architecture."""
    from .. import __version__

    return f"shapevm {__version__} on {platform.machine()}"


def write_golden(path: Path, calls: Sequence[Call]) -> None:
    """Write calls to a file. Raises FileError if that fails."""
    names = [{"inputs": [*call.inputs], "results": [*call.results]} for call in calls]
    head = json.dumps({"format": FORMAT, "written_by": here(), "calls": names}).encode()
    arrays = {HEAD: np.frombuffer(head, np.uint8)}
    for number, call in enumerate(calls):
        arrays |= {f"{number}.input.{name}": x for name, x in call.inputs.items()}
        arrays |= {f"{number}.result.{name}": x for name, x in call.results.items()}
    write_arrays(path, arrays)


def read_golden(path: Path) -> Golden:
    """Read a file of `write_golden`. Raises FileError for an invalid or unreadable file."""
    _check_sizes(path)
    arrays = read_arrays(path)
    try:
        head = json.loads(arrays[HEAD].astype(np.uint8).tobytes())
        if head["format"] != FORMAT:
            raise FileError(f"{path} has format {head['format']!r}; it must be {FORMAT}: write it again")
        calls = [
            Call(
                {str(name): arrays[f"{i}.input.{name}"] for name in names["inputs"]},
                {str(name): arrays[f"{i}.result.{name}"] for name in names["results"]},
            )
            for i, names in enumerate(head["calls"])
        ]
        return Golden(str(head["written_by"])[:100], calls)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(
            f"{path} holds no golden vectors ({type(error).__name__}: {str(error)[:100]}); write it by "
            "shapevm prove --golden, where it does not exist"
        ) from None


def _check_sizes(path: Path) -> None:
    """Raise FileError for an archive whose members claim impossible sizes."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            is_plain = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            size = path.stat().st_size
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise FileError(f"{path} cannot be read as golden vectors: {error}") from None
    if not is_plain or total > min(size, MAX_BYTES):
        raise FileError(
            f"{path} has members of {total:,} bytes in {size:,}; golden vectors have at most {MAX_BYTES:,}, "
            "not compressed"
        )


__all__: Sequence[str] = ["Call", "Golden", "here", "read_golden", "write_golden"]
