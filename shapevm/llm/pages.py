"""The pool of a cache's pages: references, and full pages that sequences with equal beginnings share."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..jit.families.paged_attention.spec import PAGE
from ..vm.errors import ArgumentError

DTYPES = {"f32": "f32", "bf16": "bf16", "int8": "i8"}  # of keys and values in a cache, by their names
ROOT = b""  # the key of the page before the first


class Room(NamedTuple):
    """A cache's pages, and the dtype of the keys and values in them."""

    n_pages: int
    dtype: str = "f32"


def room_of(cache_tokens: int, cache: str = "f32") -> Room:
    """Return the size of a cache of these positions, kept in "f32", "bf16", or "int8" with a scale for each
    position and head. Raises ArgumentError for another number or name."""
    if isinstance(cache_tokens, bool) or not isinstance(cache_tokens, int) or not 1 <= cache_tokens < 1 << 24:
        raise ArgumentError(f"cache_tokens is {cache_tokens!r}; it must be a whole number from 1 to 16777215")
    if cache not in DTYPES:
        raise ArgumentError(f"cache is {cache!r}; it must be one of {', '.join(DTYPES)}")
    return Room(-(-cache_tokens // PAGE), DTYPES[cache])


def page_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Return the key of a full page: a hash of its tokens and of the key of the page before."""
    return hashlib.blake2b(parent + np.asarray(tokens, "<i8").tobytes(), digest_size=24).digest()


class Pool:
    """Pages 0 to n - 1. A page is free, held by sequences (counted), or kept: full, held by none, and found
    by its key until the page is needed, the least recently used first."""

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self._free = list(range(n_pages - 1, -1, -1))
        self._holders = [0] * n_pages
        self._keys: dict[int, bytes] = {}
        self._pages: dict[bytes, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def n_available(self) -> int:
        """How many pages `take` can give."""
        return len(self._free) + len(self._kept)

    def take(self, n: int) -> list[int] | None:
        """Return n pages, held once; None, and no change, if fewer are available."""
        if n > self.n_available:
            return None
        taken = [self._free.pop() if self._free else self._evicted() for _ in range(n)]
        for page in taken:
            self._holders[page] = 1
        return taken

    def _evicted(self) -> int:
        page, _ = self._kept.popitem(last=False)
        del self._pages[self._keys.pop(page)]
        return page

    def find(self, tokens: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """Return the pages of the longest known beginning of `tokens`, in full pages, each held once more,
        and their keys."""
        pages: list[int] = []
        keys: list[bytes] = []
        for start in range(0, len(tokens) - PAGE + 1, PAGE):
            key = page_key(keys[-1] if keys else ROOT, tokens[start : start + PAGE])
            page = self._pages.get(key)
            if page is None:
                break
            pages.append(page)
            keys.append(key)
        for page in pages:
            self._holders[page] += 1
            self._kept.pop(page, None)
        return pages, keys

    def keep(self, page: int, key: bytes) -> None:
        """Let a full page that is held be found by its key, unless another page is."""
        if key not in self._pages and page not in self._keys:
            self._pages[key], self._keys[page] = page, key

    def give_back(self, pages: Sequence[int]) -> None:
        """End a hold of each page; the last one of a sequence is forgotten first."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if page in self._keys:
                self._kept[page] = None
            else:
                self._free.append(page)

    def forget(self) -> None:
        """Let no page be found any more, because what they hold is unknown."""
        self._free.extend(self._kept)
        for each in (self._kept, self._keys, self._pages):
            each.clear()
