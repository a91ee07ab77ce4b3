"""Errors of the compiler. Errors that the runtime can also report (shapes, dtypes) have the runtime's
classes.

Every message is one full sentence; `source` is the model's line ("model.py:31"), "" if unknown.
"""

from __future__ import annotations

from ...vm.errors import PUBLIC, DtypeError, Error, GuardError, ShapeError


class UnsupportedOp(Error, NotImplementedError):
    """The program uses an operator, or a form of one, that the compiler does not know."""


class VerifyError(Error, AssertionError):
    """A graph breaks a rule of `compiler.verify`: a defect of the compiler, not of the user's program."""


class TextError(Error, ValueError):
    """Text is not a graph, type or kernel spec, or a graph holds data that text cannot represent."""


class ArchiveError(Error, ValueError):
    """A file is no archive of torch.jit.save or torch.export.save, nor an ONNX model, or it is damaged."""


for _class in (UnsupportedOp, TextError, ArchiveError):
    _class.__module__ = PUBLIC

__all__ = [
    "ArchiveError",
    "DtypeError",
    "Error",
    "GuardError",
    "ShapeError",
    "TextError",
    "UnsupportedOp",
    "VerifyError",
]
