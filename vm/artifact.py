"""The artifact: one file with a program's contract, bytecode, kernels, machine code and weights
(docs/artifact.md).
"""

from __future__ import annotations

import io

from .objects import parse_object, serialise_object
from .program import Program
from .reader import from_bytes, read
from .writer import write, write_to

__all__ = ["from_bytes", "parse_object", "read", "serialise_object", "to_bytes", "write", "write_to"]


def to_bytes(program: Program) -> bytes:
    """Return the artifact of `program`. Raises ValueError as `write_to` does."""
    file = io.BytesIO()
    write_to(program, file)
    return file.getvalue()
