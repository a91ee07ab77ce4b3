"""From tokens to pieces of text, as they come: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what part of a character decodes to


class Decodes(Protocol):
    """What has a tokenizer's `decode`."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""


class Pieces:
    """The text of a sequence that grows."""

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._first = 0  # a token's text depends on those before: these are decoded with it
        self._sent = 0  # the number of tokens whose texts were returned

    def add(self, token: int) -> str:
        """Return the text that a token adds; "" if its last character is not complete."""
        self._tokens.append(token)
        return self._new(is_end=False)

    def end(self) -> str:
        """Return the text that is left."""
        return self._new(is_end=True)

    def _new(self, is_end: bool) -> str:
        before = self._tokenizer.decode(self._tokens[self._first : self._sent])
        now = self._tokenizer.decode(self._tokens[self._first :])
        if not is_end and now.endswith(UNFINISHED):
            return ""
        self._first, self._sent = self._sent, len(self._tokens)
        return now[len(before) :]


class Stops:
    """Ends a text, given in pieces, before the first of some strings. What may begin one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held, self.is_found = stops, "", False

    def add(self, piece: str) -> str:
        """Return the text that is certain after one more piece; "" once a string was found."""
        if self.is_found:
            return ""
        self._held += piece
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        self.is_found = bool(found)
        n = min(found) if found else len(self._held) - self._n_uncertain()
        sent, self._held = self._held[:n], self._held[n:]
        return sent

    def end(self) -> str:
        """Return what was held back of a text that has ended."""
        return "" if self.is_found else self._held

    def _n_uncertain(self) -> int:
        return max((_overlap(self._held, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    """Return how many last characters of `text` begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
