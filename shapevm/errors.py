"""All errors that loading or running a program raises, and UnsupportedOp of `compile`.

Each is an `Error` and, where one fits, an exception of Python's: a ShapeError is a ValueError. The message is
one sentence. docs/artifact.md lists them with the codes that C has for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .vm.errors import (
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

if TYPE_CHECKING:
    from .compiler.ir.errors import UnsupportedOp

__all__ = [
    "ArgumentError", "ArtifactError", "Cancelled", "CompileError", "DeadlineExceeded", "DeviceError",
    "DivisionByZero", "DtypeError", "Error", "ExternError", "FileError", "GuardError", "IndexOutOfRange",
    "IntegerOverflow", "InternalError", "KernelError", "KeyMissing", "KindError", "LimitExceeded",
    "OutOfMemory", "ShapeError", "TargetError", "UnsupportedOp", "VerifyError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import UnsupportedOp on first use: it belongs to the compiler."""
    if name != "UnsupportedOp":
        raise AttributeError(f"module 'shapevm.errors' has no attribute {name!r}")
    from .compiler.ir.errors import UnsupportedOp

    return UnsupportedOp
