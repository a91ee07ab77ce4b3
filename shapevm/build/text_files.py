"""Graphs and programs as text files. Small arrays are part of the text; large ones are in FILE.npz beside
FILE, each under its hash, which is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from ..program.files import read_arrays, write_arrays
from ..program.trust import digest
from ..vm.errors import ArtifactError, Error, FileError
from ..vm.files import content_of, write_text
from ..vm.literals import array_hash
from ..vm.tokens import AssemblyError

if TYPE_CHECKING:
    from ..compiler.ir.graph import Graph
    from ..vm.program import Program

Arrays = Mapping[str, np.ndarray]


def arrays_path(path: Path) -> Path:
    """Return the path of the large arrays of the text at `path`."""
    return path.with_name(f"{path.name}.npz")


def _read(path: Path) -> tuple[str, Arrays]:
    """Return a text and the arrays beside it, none if that file is missing. Raises FileError, and
    ArtifactError for an array whose name is not its hash."""
    try:
        text = content_of(path).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is no text: byte {error.start} is not UTF-8") from None
    beside = arrays_path(path)
    arrays = read_arrays(beside) if beside.exists() else {}
    for name, array in arrays.items():
        if array_hash(array) != name:
            raise ArtifactError(f"{beside}: array {name!r} does not have that hash: it was changed")
    return text, arrays


def write_files(path: Path, text: str, arrays: Arrays) -> list[Path]:
    """Write a text and its arrays, if any; return the paths. Raises FileError."""
    if arrays:
        write_arrays(arrays_path(path), arrays)
    write_text(path, text)
    return [path, arrays_path(path)] if arrays else [path]


# Graphs ---------------------------------------------------------------------------------------------


def read_graph(path: Path) -> Graph:
    """Parse the text at `path` and return its graph, as frontends make them.

    Raises FileError for files that cannot be read, TextError for text that is not a graph, or not a
    compilable one.
    """
    from ..compiler.ir.errors import TextError
    from ..compiler.ir.text import parse
    from ..compiler.verify import UNDECLARED, verify

    text, arrays = _read(path)
    try:
        graph = parse(text, arrays)
        made = next((node for node in graph.nodes() if node.op in UNDECLARED), None)
        if made is not None:
            raise TextError(
                f"the graph has {made.op} nodes, which the compiler adds; give the graph before its passes, "
                "as shapevm compile MODEL -o FILE.svmir writes it"
            )
        verify(graph, "imported")
    except Error as error:
        raise TextError(f"{path}: {error}") from None
    return graph


# Programs -------------------------------------------------------------------------------------------


class _Hashed:
    """A file that keeps only the hash of the bytes written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Take bytes."""
        self.sha256.update(data)
        return len(data)

    def seekable(self) -> bool:
        """Bytes arrive in order."""
        return False


def program_text(path: Path) -> tuple[str, Arrays]:
    """Return the full text of the artifact at `path` and its large arrays. The text assembles to the same
    bytes, which is checked here.

    Raises ArtifactError or VerifyError for an invalid artifact, and for one whose bytes differ from those
    that this version writes for its program.
    """
    from ..vm.artifact import read_verified, write_to
    from ..vm.assembler import assemble
    from ..vm.disassembler import disassemble, large_arrays
    from ..vm.verify import verify

    program = read_verified(path)
    verify(program)
    text, arrays = disassemble(program, full=True), large_arrays(program)
    written = _Hashed()
    write_to(assemble(text, arrays), cast(IO[bytes], written))
    if written.sha256.hexdigest() != digest(path):
        raise ArtifactError(
            f"{path} holds its program in other bytes than this version writes, which text cannot say; "
            "compile the model again"
        )
    return text, arrays


def read_program(path: Path) -> Program:
    """Parse the text at `path` and return its program.

    Raises FileError for files that cannot be read, AssemblyError, VerifyError or ArtifactError for text that
    is not a program.
    """
    from ..vm.assembler import assemble

    text, arrays = _read(path)
    try:
        return assemble(text, arrays)
    except AssemblyError as error:
        raise AssemblyError(f"{path}: {error}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None
