"""Inputs and results as numpy files, in the forms of `shapevm-run`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..vm.errors import ArgumentError, FileError, InputError
from ..vm.files import writing
from ..vm.program import Input

_NUMBERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}

#: The errors of numpy for a file of another format.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    MemoryError,
    NotImplementedError,
)


def read_inputs(texts: Sequence[str], rows: Sequence[Input]) -> dict[str, Any]:
    """Return values by name from NAME=FILE.npy, FILE.npz (every array in it) and, for inputs that are not
    tensors, NAME=NUMBER.

    Raises InputError for an unknown name, FileError for a file that cannot be read.
    """
    kinds = {row.name: row.kind for row in rows}
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals:
            given.update(read_arrays(name, f"; write NAME={name}"))
        elif kinds.get(name, "tensor") == "tensor" or place.endswith(".npy"):
            given[name] = _load(place)
        else:
            given[name] = _number(name, kinds[name], place)
    for name in given:
        if name not in kinds:
            raise InputError(
                f"input {name!r} is unknown; the program takes {', '.join(kinds) or 'no inputs'}"
            )
    return {name: _scalar(value) if kinds[name] != "tensor" else value for name, value in given.items()}


def _load(place: str | Path) -> Any:
    try:
        return np.load(place, allow_pickle=False)
    except _UNREADABLE as error:
        reason = (
            error.strerror if isinstance(error, OSError) and error.strerror else str(error).split(". ")[0]
        )
        if "pickle" in reason:  # numpy takes all other files for pickles
            reason = "it is no .npy or .npz file, or holds Python objects"
        raise FileError(f"{place} cannot be read as a numpy file: {reason}") from None


def read_arrays(place: str | Path, fix: str = "; it must be an .npz file") -> Mapping[str, Any]:
    """Return the arrays of an .npz file by name. Raises FileError for an unreadable file, and InputError,
    which ends with `fix`, for a single array."""
    archive = _load(place)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InputError(f"{place} is one array without a name{fix}")
    try:
        return dict(archive)
    except _UNREADABLE as error:
        raise FileError(f"{place} cannot be read as a numpy file: {error}") from None


def _number(name: str, kind: str, text: str) -> Any:
    try:
        return _NUMBERS[kind](text)
    except (KeyError, ValueError):
        raise ArgumentError(
            f"input {name!r} is {text!r}; the program takes one {kind}: a number or a .npy file"
        ) from None


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write results by name to FILE.npz, or a single one to FILE.npy. Raises FileError if that fails."""
    arrays = {name: np.asarray(value) for name, value in results.items()}
    if path.suffix == ".npy" and len(arrays) != 1:
        raise ArgumentError(
            f"{path}: a .npy file holds one result, the program has {len(arrays)}; write an .npz file"
        )
    if path.suffix != ".npy":
        write_arrays(path, arrays)
        return
    with writing(path) as file:
        np.lib.format.write_array(file, next(iter(arrays.values())), allow_pickle=False)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name to an .npz file; the same arrays give the same bytes. Raises FileError."""
    with writing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
