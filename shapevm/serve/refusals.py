"""Requests that are refused, and errors in each protocol's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..vm import errors

#: Status for an invalid request; each protocol has its own: `Form.invalid`.
INVALID = 0
TOO_LARGE, TOO_MANY, CLIENT_LEFT, FAILED, UNAVAILABLE, TOO_LATE = 413, 429, 499, 500, 503, 504


class Refused(Exception):
    """A request gets no result. The message is one sentence for the client."""

    def __init__(self, message: str, status: int = INVALID, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


#: Errors of a call -> status. The first row that fits counts; those with FAILED are failures of the server.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.LimitExceeded, TOO_LARGE),
    (errors.OutOfMemory, UNAVAILABLE),
    (errors.DeadlineExceeded, TOO_LATE),
    (errors.Cancelled, UNAVAILABLE),
    (errors.ArtifactError, FAILED),
    (errors.FileError, FAILED),
    (errors.TargetError, FAILED),
    (errors.KernelError, FAILED),
    (errors.CompileError, FAILED),
    (errors.ExternError, FAILED),
    (errors.InternalError, FAILED),
    (errors.Error, INVALID),
)


def refusal_of(error: Exception) -> Refused | None:
    """Return what a client is told about an error of a call; None if it is a failure of the server."""
    if isinstance(error, Refused):
        return error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), FAILED)
    return None if status == FAILED else Refused(str(error), status)


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put what a refusal is about before its message."""
    try:
        yield
    except Refused as refused:
        raise Refused(f"{what}: {refused}", refused.status, refused.headers) from None


@dataclass(frozen=True)
class Form:
    """How a protocol reports errors: the status of an invalid request, and the body for (status, message)."""

    invalid: int
    body: Callable[[int, str], dict[str, Any]]


def _openai(status: int, message: str) -> dict[str, Any]:
    kind = "rate_limit_error" if status == TOO_MANY else "invalid_request_error"
    kind = "server_error" if status >= FAILED else kind
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _tei(status: int, message: str) -> dict[str, Any]:
    kinds = {TOO_MANY: "overloaded", TOO_LARGE: "validation", FAILED: "backend", UNAVAILABLE: "unhealthy"}
    kind = kinds.get(status, "validation" if status < FAILED else "backend")
    return {"error": message, "error_type": kind}


#: The forms by the name that rows of routes use. Cohere's clients read "message", Jina's "detail".
FORMS = {
    "plain": Form(400, lambda status, message: {"error": message}),
    "openai": Form(400, _openai),
    "tei": Form(422, _tei),
    "rerank": Form(
        422, lambda status, message: {"message": message, "detail": message, **_tei(status, message)}
    ),
}
