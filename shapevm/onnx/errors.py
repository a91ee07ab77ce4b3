"""The exceptions of ONNX Runtime, by its names. What a session raises is one of these and shapevm's own error
as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..compiler.ir.errors import ArchiveError, UnsupportedOp
from ..vm.errors import (
    ArgumentError,
    ArtifactError,
    DtypeError,
    Error,
    FileError,
    KindError,
    ShapeError,
)


class Fail(Exception):
    """A failure of another kind."""


class InvalidArgument(Exception):
    """An input's name, rank, size or dtype is not the model's."""


class NoSuchFile(Exception):
    """The model's file does not exist."""


class NoModel(Exception):
    """There is no model."""


class EngineError(Exception):
    """A failure of an execution engine; no session raises it."""


class RuntimeException(Exception):
    """A call failed."""


class InvalidProtobuf(Exception):
    """The file is no model, or it is damaged."""


class ModelLoaded(Exception):
    """A model is loaded already; no session raises it."""


class NotImplemented(Exception):
    """The model has an operator that cannot be compiled."""


class InvalidGraph(Exception):
    """The nodes of the model do not fit together."""


class EPFail(Exception):
    """A failure of an execution provider; no session raises it."""


#: Which exception of ONNX Runtime an error of ours is, the first that fits.
_THEIRS: tuple[tuple[type[Error], type[Exception]], ...] = (
    (UnsupportedOp, NotImplemented),
    (ArchiveError, InvalidProtobuf),
    (FileError, NoSuchFile),
    (ArtifactError, InvalidProtobuf),
    (ShapeError, InvalidArgument),
    (DtypeError, InvalidArgument),
    (KindError, InvalidArgument),
    (ArgumentError, InvalidArgument),
    (Error, RuntimeException),
)


_BOTH: dict[tuple[str, str], type[Error]] = {}


def _both(ours: type[Error], theirs: type[Exception]) -> type[Error]:
    """Return the class of errors that are of both kinds."""
    key = ours.__name__, theirs.__name__
    if key not in _BOTH:
        content = {"__module__": __name__, "__doc__": theirs.__doc__}
        _BOTH[key] = type(theirs.__name__, (ours, theirs), content)
    return _BOTH[key]


@contextmanager
def as_theirs(loading: bool = False) -> Iterator[None]:
    """Raise the errors of a block as ONNX Runtime's too. `loading`: a model that does not fit together is
    no invalid argument."""
    try:
        yield
    except Error as error:
        if isinstance(error, tuple(theirs for _, theirs in _THEIRS)):
            raise
        theirs = next(theirs for kind, theirs in _THEIRS if isinstance(error, kind))
        if loading and theirs is InvalidArgument and not isinstance(error, ArgumentError):
            theirs = InvalidGraph
        made = _both(type(error), theirs)(str(error))
        raise made.with_traceback(error.__traceback__) from error.__cause__
