"""The exceptions of ONNX Runtime, by its names. What a session raises is one of these and shapevm's own error
as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..compiler.ir.errors import ArchiveError, UnsupportedOp
from ..vm import errors as own


class Fail(Exception):
    """A failure of another kind."""


class InvalidArgument(Exception):
    """An input's name, rank, size or dtype is not the model's."""


class NoSuchFile(Exception):
    """The model's file does not exist."""


class RuntimeException(Exception):
    """A call failed."""


class InvalidProtobuf(Exception):
    """The file is no model, or it is damaged."""


class NotImplemented(Exception):
    """The model has an operator that cannot be compiled."""


class InvalidGraph(Exception):
    """The nodes of the model do not fit together."""


class EPFail(Exception):
    """A failure that no session here has, under each of its names."""


EngineError = ModelLoaded = NoModel = EPFail
#: Which exception of ONNX Runtime an error of ours is, the first that fits.
_THEIRS: tuple[tuple[type[own.Error], type[Exception]], ...] = (
    (UnsupportedOp, NotImplemented),
    (ArchiveError, InvalidProtobuf),
    (own.FileError, NoSuchFile),
    (own.ArtifactError, InvalidProtobuf),
    (own.ShapeError, InvalidArgument),
    (own.DtypeError, InvalidArgument),
    (own.KindError, InvalidArgument),
    (own.ArgumentError, InvalidArgument),
    (own.Error, RuntimeException),
)


_BOTH: dict[tuple[type, type], type[own.Error]] = {}


def _both(ours: type[own.Error], theirs: type[Exception]) -> type[own.Error]:
    """Return the class of errors that are of both kinds."""
    content = {"__module__": __name__, "__doc__": theirs.__doc__}
    return _BOTH.setdefault((ours, theirs), type(theirs.__name__, (ours, theirs), content))


@contextmanager
def as_theirs(loading: bool = False) -> Iterator[None]:
    """Raise the errors of a block as ONNX Runtime's too. `loading`: a model that does not fit together is
    no invalid argument."""
    try:
        yield
    except own.Error as error:
        if isinstance(error, tuple(theirs for _, theirs in _THEIRS)):
            raise
        theirs = next(theirs for kind, theirs in _THEIRS if isinstance(error, kind))
        if loading and theirs is InvalidArgument and not isinstance(error, own.ArgumentError):
            theirs = InvalidGraph
        made = _both(type(error), theirs)(str(error))
        raise made.with_traceback(error.__traceback__) from error.__cause__
