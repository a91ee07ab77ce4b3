"""All errors of loading and running programs, UnsupportedOp of `compile`, and errors of text files.

Each is an `Error` and, where one fits, a built-in exception: a ShapeError is a ValueError. The message is one
sentence. docs/artifact.md lists them with their codes in C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .vm.errors import (
    ArchiveError,
    ArgumentError,
    ArtifactError,
    Cancelled,
    CompileError,
    DeadlineExceeded,
    DeviceError,
    DivisionByZero,
    DtypeError,
    Error,
    ExternError,
    FileError,
    GuardError,
    IndexOutOfRange,
    InputError,
    IntegerOverflow,
    InternalError,
    KernelError,
    KeyMissing,
    KindError,
    LimitExceeded,
    OutOfMemory,
    ShapeError,
    TargetError,
    VerifyError,
)
from .vm.tokens import AssemblyError

if TYPE_CHECKING:
    from .compiler.ir.errors import TextError, UnsupportedOp

__all__ = [
    "ArchiveError", "ArgumentError", "ArtifactError", "AssemblyError", "Cancelled", "CompileError",
    "DeadlineExceeded", "DeviceError", "DivisionByZero", "DtypeError", "Error", "ExternError", "FileError",
    "GuardError", "IndexOutOfRange", "InputError", "IntegerOverflow", "InternalError", "KernelError",
    "KeyMissing", "KindError", "LimitExceeded", "OutOfMemory", "ShapeError", "TargetError", "TextError",
    "UnsupportedOp", "VerifyError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import TextError and UnsupportedOp on first use: they belong to the compiler."""
    if name not in ("TextError", "UnsupportedOp"):
        raise AttributeError(f"module 'shapevm.errors' has no attribute {name!r}")
    from .compiler.ir import errors

    return getattr(errors, name)
