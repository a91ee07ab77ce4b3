"""Which sequences take part in the next call of the program, and with how many tokens."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence as List
from dataclasses import dataclass, field

import numpy as np

from ..vm.errors import ArgumentError
from .pages import PAGE, ROOT, Pool, page_key


@dataclass(eq=False)
class Sequence:
    """A sequence: its `tokens` so far, of which `n_done` are in the cache, in `pages`. `keys`: those of its
    full pages. `number`: its place in the order of arrival."""

    number: int
    tokens: list[int]
    n_done: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    @property
    def n_left(self) -> int:
        """How many tokens are not in the cache yet."""
        return len(self.tokens) - self.n_done


Plan = list[tuple[Sequence, int]]  # sequences and how many of their tokens a call takes


class Scheduler:
    """Continuous batching: sequences join and leave at each call.

    A call takes at most `max_tokens` tokens of at most `max_sequences` sequences: the next token of each one
    that generates, then parts of prompts, the oldest first. If the pool is full, the youngest sequence gives
    its pages back and waits; it is computed again later, with the same bits. The oldest is never interrupted,
    so every sequence ends.
    """

    def __init__(self, pool: Pool, max_tokens: int, max_sequences: int) -> None:
        self.pool = pool
        self.max_tokens, self.max_sequences = max_tokens, min(max_sequences, max_tokens)
        self.running: list[Sequence] = []  # by number
        self.waiting: list[Sequence] = []  # by number

    def add(self, sequence: Sequence, longest: int) -> None:
        """Let a sequence wait for its turn. `longest`: the most tokens it may get.

        Raises ArgumentError if the whole pool cannot hold it.
        """
        most = self.pool.n_pages * PAGE
        if longest > most:
            raise ArgumentError(
                f"the sequence may get {longest} tokens; the cache holds {most}: raise cache_tokens, or "
                "lower max_new_tokens"
            )
        insort(self.waiting, sequence, key=_number)

    def remove(self, sequence: Sequence) -> None:
        """End a sequence, whether it runs or waits."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
            self._give_back(sequence)

    def plan(self) -> Plan:
        """Return the next call's sequences, by age; empty if there are none."""
        while len(self.running) < self.max_sequences and self.waiting and self._start(self.waiting[0]):
            insort(self.running, self.waiting.pop(0), key=_number)
        left = self.max_tokens - len(self.running)  # each takes one token at least
        planned: Plan = []
        for sequence in list(self.running):
            if sequence not in self.running:
                break  # it and all younger ones wait again
            n = min(sequence.n_left, left + 1)
            if self._hold(sequence, sequence.n_done + n):
                planned.append((sequence, n))
                left -= n - 1
        return planned

    def _start(self, sequence: Sequence) -> bool:
        """Hold the pages of a sequence's known beginning and of a first call; return if that is possible."""
        shared, keys = self.pool.find(sequence.tokens[:-1])  # the last one is computed, for its logits
        n = min(len(sequence.tokens) - len(shared) * PAGE, self.max_tokens)
        own = self.pool.take(-(-n // PAGE))
        if own is None:
            self.pool.give_back(shared)
            return False
        sequence.pages, sequence.keys, sequence.n_done = [*shared, *own], keys, len(shared) * PAGE
        return True

    def _hold(self, sequence: Sequence, n_tokens: int) -> bool:
        """Give a sequence pages for `n_tokens`, if need be those of the youngest; return if it has them."""
        n = -(-n_tokens // PAGE) - len(sequence.pages)
        while (taken := self.pool.take(max(n, 0))) is None:
            youngest = self.running.pop()
            self._give_back(youngest)
            insort(self.waiting, youngest, key=_number)
            if youngest is sequence:
                return False
        sequence.pages += taken
        return True

    def _give_back(self, sequence: Sequence) -> None:
        self.pool.give_back(sequence.pages)
        sequence.pages, sequence.keys, sequence.n_done = [], [], 0

    def done(self, plan: Plan) -> None:
        """Note that a call has computed the tokens of a plan; their full pages can be shared from now on."""
        for sequence, n in plan:
            sequence.n_done += n
            for index in range(len(sequence.keys), sequence.n_done // PAGE):
                parent = sequence.keys[-1] if sequence.keys else ROOT
                sequence.keys.append(page_key(parent, sequence.tokens[index * PAGE : (index + 1) * PAGE]))
                self.pool.keep(sequence.pages[index], sequence.keys[-1])

    def forget(self) -> None:
        """Compute every sequence again and share no page, since a failed call has left them unknown."""
        for sequence in self.running:
            self._give_back(sequence)
            insort(self.waiting, sequence, key=_number)
        self.running.clear()
        self.pool.forget()


def _number(sequence: Sequence) -> int:
    return sequence.number


def inputs_of(plan: Plan) -> dict[str, np.ndarray]:
    """Return the inputs of `Decoder.forward` for a plan."""
    counts = [n for _, n in plan]
    ends = np.cumsum([0, *counts], dtype=np.int64)
    table = np.zeros((len(plan), max(len(each.pages) for each, _ in plan)), np.int32)
    for row, (each, _) in zip(table, plan, strict=True):
        row[: len(each.pages)] = each.pages
    spans: List[range] = [range(each.n_done, each.n_done + n) for each, n in plan]
    ids = [each.tokens[i] for (each, _), span in zip(plan, spans, strict=True) for i in span]
    positions = np.array([i for span in spans for i in span], np.int64)
    rows = np.repeat(np.arange(len(plan)), counts)
    return {
        "ids": np.array(ids, np.int64),
        "positions": positions,
        "slots": table[rows, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE,
        "offsets": ends,
        "lengths": np.array([span.stop for span in spans], np.int64),
        "table": table,
        "last": ends[1:] - 1,
    }
