"""Errors of the compiler. Errors that the runtime can also report (shapes, dtypes) have the runtime's
classes.

Every message is one full sentence; `source` is the model's line ("model.py:31"), "" if unknown.
"""

from __future__ import annotations

from ...vm.errors import PUBLIC, ArchiveError, DtypeError, Error, GuardError, ShapeError


class UnsupportedOp(Error, NotImplementedError):
    """The program uses an operator, or a form of one, that the compiler does not know."""


class VerifyError(Error, AssertionError):
    """A graph breaks a rule of `compiler.verify`: a defect of the compiler, not of the user's program."""


class TextError(Error, ValueError):
    """Text is not a graph, type or kernel spec, or a graph holds data that text cannot represent."""


for _class in (UnsupportedOp, TextError):
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
