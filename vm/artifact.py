"""The artifact: one file with a program's contract, bytecode, kernels, machine code and weights
(docs/artifact.md).
"""

from __future__ import annotations

import io
import os

from .objects import parse_object, serialise_object
from .program import Program
from .reader import from_bytes, read, read_constants
from .verify import verify
from .writer import write, write_to

__all__ = [
    "from_bytes", "parse_object", "read", "read_constants", "read_verified", "serialise_object", "to_bytes",
    "write", "write_to",
]  # fmt: skip


def to_bytes(program: Program) -> bytes:
    """Return the artifact of `program`. Raises ValueError like `write_to`."""
    file = io.BytesIO()
    write_to(program, file)
    return file.getvalue()


def read_verified(path: str | os.PathLike[str]) -> Program:
    """Return a file's program. Raises the errors of `read`, and VerifyError for code that breaks a rule."""
    program = read(path)
    verify(program)
    return program
