"""The limits of a server: a field for each, which is also an option of `shapevm serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _limit(default: float, least: float, meaning: str) -> Any:
    return field(default=default, metadata={"least": least, "meaning": meaning})


@dataclass(frozen=True)
class Limits:
    """What a server accepts and how it batches. Times are in seconds, but for `max_wait`."""

    max_body: int = _limit(32 << 20, 1, "bytes of a request's body")
    max_texts: int = _limit(2048, 1, "texts of a request")
    max_tokens: int = _limit(1 << 19, 1, "tokens of a request")
    max_requests: int = _limit(512, 1, "requests at once, waiting or running; others get status 429")
    batch_tokens: int = _limit(512, 1, "most tokens of a batch; a longer text is a batch by itself")
    max_wait: float = _limit(0.0, 0, "milliseconds that a batch which is not full waits for further texts")
    timeout: float = _limit(60.0, 0.001, "seconds for a request, from its first byte to its answer")
    drain: int = _limit(30, 0, "seconds that running requests have to end after SIGTERM")
    workers: int = _limit(0, 0, "threads that run batches; 0: one for each CPU")

    @property
    def max_held(self) -> int:
        """Bytes of all bodies that are held at once."""
        return 8 * self.max_body
