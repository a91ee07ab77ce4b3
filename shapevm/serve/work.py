"""What a protocol's functions take and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from .batches import Batcher


@dataclass(frozen=True)
class Request:
    """A request to read: its headers, the parts of its path by name, and its body."""

    headers: Mapping[str, str]
    path: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """The body of an answer with status 200."""

    body: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any) -> Answer:
        """Return a value as JSON; numpy arrays become lists."""
        return cls(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


@dataclass(frozen=True)
class Work:
    """A request that was read: its items, the batcher that runs them, and the function from their results, in
    order, to the answer. `costs`: the tokens of each item; 1 for an item that is no text."""

    batcher: Batcher
    payloads: Sequence[Any]
    costs: Sequence[int]
    answer: Callable[[Sequence[Any]], Answer]
