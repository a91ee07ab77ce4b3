"""Admission of requests: how many there are at once, and how many bytes they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from .limits import Limits
from .refusals import TOO_LARGE, TOO_MANY, Refused

_UNSUPPORTED = 415
#: Of a request that is refused before its body was read: the connection cannot be used again.
_CLOSE = {"Connection": "close"}
_LATER = {"Retry-After": "1", **_CLOSE}


class Admission:
    """Counts the requests of a server, which are all on its event loop's thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.running = 0
        self._held = 0  # bytes of bodies

    @contextmanager
    def admitted(self) -> Iterator[Place]:
        """Admit a request while the block runs. Raises Refused with status 429 if there are too many."""
        most = self._limits.max_requests
        if self.running >= most:
            raise Refused(f"the server has {most} requests, its limit; try again later", TOO_MANY, _LATER)
        self.running += 1
        place = Place(self, self._limits)
        try:
            yield place
        finally:
            self.running -= 1
            self._held -= place.held

    def hold(self, n_bytes: int) -> None:
        """Count bytes of a body. Raises Refused with status 429 if there are too many."""
        if self._held + n_bytes > self._limits.max_held:
            raise Refused(
                f"the server holds {self._held} bytes of requests; its limit is {self._limits.max_held}",
                TOO_MANY, _LATER,
            )  # fmt: skip
        self._held += n_bytes


class Place:
    """An admitted request, with the number of bytes that it holds."""

    def __init__(self, admission: Admission, limits: Limits) -> None:
        self._admission, self._most = admission, limits.max_body
        self.held = 0

    async def body(self, request: Request) -> bytes:
        """Read a request's body. Raises Refused if it is too long or compressed, ClientDisconnect if the
        client leaves."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Refused(
                f"content-encoding {encoding[:20]!r} is not supported; send the body as it is",
                _UNSUPPORTED,
                _CLOSE,
            )
        said = request.headers.get("content-length", "")
        self._check(int(said) if said.isascii() and said.isdigit() and len(said) < 20 else 0)
        pieces = []
        async for piece in request.stream():
            self._check(self.held + len(piece))
            self._admission.hold(len(piece))
            self.held += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._most:
            raise Refused(
                f"the body has {n_bytes} bytes or more; the limit is {self._most}", TOO_LARGE, _CLOSE
            )
