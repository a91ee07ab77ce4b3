"""Graphs and programs as text files. Small arrays stand in the text; large ones lie beside it, FILE.npz
beside FILE, each under its hash, which is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from .files import read_arrays, write_arrays, write_text
from .trust import digest
from .vm.errors import ArtifactError, Error, FileError
from .vm.files import read_regular
from .vm.literals import array_hash
from .vm.tokens import AssemblyError

if TYPE_CHECKING:
    from .build import Progress
    from .compiler.ir.graph import Graph
    from .options import Options
    from .vm.program import Program

Arrays = Mapping[str, np.ndarray]


def arrays_path(path: Path) -> Path:
    """Return where the large arrays of the text at `path` lie."""
    return path.with_name(f"{path.name}.npz")


def _read(path: Path) -> tuple[str, Arrays]:
    """Return a text and the arrays beside it, none where that file is missing. Raises FileError, and
    ArtifactError for an array whose name is not its hash."""
    try:
        text = read_regular(path).decode()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is no text: byte {error.start} is not UTF-8") from None
    beside = arrays_path(path)
    arrays = read_arrays(beside) if beside.exists() else {}
    for name, array in arrays.items():
        if array_hash(array) != name:
            raise ArtifactError(f"{beside}: array {name!r} does not have that hash: it was changed")
    return text, arrays


def write_files(path: Path, text: str, arrays: Arrays) -> list[Path]:
    """Write a text and, where there are any, its arrays; return the paths. Raises FileError."""
    if arrays:
        write_arrays(arrays_path(path), arrays)
    write_text(path, text)
    return [path, arrays_path(path)] if arrays else [path]


# Graphs ---------------------------------------------------------------------------------------------


def compiled_graph(arguments: Mapping[str, Any], options: Options, progress: Progress) -> tuple[str, Arrays]:
    """Return the text and the large arrays of the graph that compiling `arguments` (of `shapevm.compile`)
    begins with. Raises what compiling does before it makes kernels."""
    from .build import lower, open_source
    from .compiler.ir.text import constants, format_graph

    found: list[tuple[str, Arrays]] = []
    given = {"args": (), "kwargs": None, "dynamic_shapes": None, **arguments}
    source = open_source(**given, progress=progress)

    def watch(name: str, graph: Graph) -> None:
        if name == "import":
            found.append((format_graph(graph), constants(graph)))

    lower(source, options, progress, watch)
    return found[-1]


def read_graph(path: Path) -> Graph:
    """Return the graph, as frontends make them, that the text at `path` says.

    Raises FileError for files that cannot be read, TextError for text that is no graph, or none that can be
    compiled.
    """
    from .compiler.ir.errors import TextError
    from .compiler.ir.text import parse
    from .compiler.verify import UNDECLARED, verify

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
    """A file that keeps nothing but the hash of what is written."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Take bytes."""
        self.sha256.update(data)
        return len(data)

    def seekable(self) -> bool:
        """Bytes come in order."""
        return False


def program_text(path: Path) -> tuple[str, Arrays]:
    """Return the full text of the artifact at `path` and its large arrays. It assembles to the same bytes,
    which is checked here.

    Raises ArtifactError or VerifyError for an artifact that is not sound, and for one of other bytes than
    this version writes for its program.
    """
    from .vm.artifact import read, write_to
    from .vm.assembler import assemble
    from .vm.disassembler import disassemble, large_arrays
    from .vm.verify import verify

    program = read(path)
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
    """Return the program that the text at `path` says.

    Raises FileError for files that cannot be read, AssemblyError, VerifyError or ArtifactError for text that
    is no program.
    """
    from .vm.assembler import assemble

    text, arrays = _read(path)
    try:
        return assemble(text, arrays)
    except AssemblyError as error:
        raise AssemblyError(f"{path}: {error}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None
