"""Batches of the requests' items, formed by tokens and run by threads."""

from __future__ import annotations

import asyncio
import bisect
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ..vm.cancel import CancelFlag

#: Tokens from which on longer batches are hardly faster. A batch has more only where many tokens wait.
SHORT = 64
#: A request of n tokens is passed by later ones of at most this many times n tokens.
PATIENCE = 4


class Job:
    """One request's items in a batcher. Its results belong to the event loop's thread; `begun`, the number of
    items that batches have taken, and `rank`, its place in the queue, to whoever holds the batcher's lock."""

    def __init__(self, payloads: Sequence[Any], costs: Sequence[int]) -> None:
        self.payloads, self.costs = payloads, costs
        self.n_tokens = sum(costs)
        self.begun, self.rank = 0, 0
        self.entered = time.monotonic()
        self.waited = 0.0  # seconds before its first item ran
        self.cancel = CancelFlag()
        self._loop = asyncio.get_running_loop()
        self.results: asyncio.Future[list[Any]] = self._loop.create_future()
        self._found: dict[int, Any] = {}
        if not payloads:
            self.results.set_result([])

    def deliver(self, outcomes: Sequence[tuple[int, Any]]) -> None:
        """Give results, or exceptions, by the items' indices, from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it the request
            self._loop.call_soon_threadsafe(self._take, outcomes)

    def _take(self, outcomes: Sequence[tuple[int, Any]]) -> None:
        self._found.update(outcomes)
        if self.results.done():
            return
        failed = next((found for _, found in outcomes if isinstance(found, Exception)), None)
        if failed is not None:
            self.results.set_exception(failed)
        elif len(self._found) == len(self.payloads):
            self.results.set_result([self._found[index] for index in range(len(self.payloads))])


#: Runs a batch: (payloads, the flag that stops it) -> a result for each. The flag is None for a batch with
#: items of several requests.
Run = Callable[[Sequence[Any], CancelFlag | None], Sequence[Any]]
Batch = list[tuple[Job, int]]


@dataclass(frozen=True)
class Rules:
    """How batches are closed. `tokens`: a batch's most, unless one item has more. `max_wait`: seconds that
    the oldest request waits for others. `threads`: how many batches run at once."""

    tokens: int
    max_wait: float
    threads: int


class Batcher:
    """A queue of requests and the threads that take batches from it.

    A batch takes items in the order of their requests' ranks until it is full. A rank is the number of tokens
    that were taken before the request came, and PATIENCE times its own: short requests pass long ones, but
    only until those have waited in proportion to their length. A batch that fails is run again in halves, so
    that an item that cannot be run fails alone.
    """

    def __init__(
        self, run: Run, rules: Rules, observe: Callable[[int, int], None] = lambda items, tokens: None
    ) -> None:
        """Start the threads. `observe(items, tokens)` is called for each batch."""
        self._run, self._rules, self._observe = run, rules, observe
        self._waiting: list[Job] = []  # by rank
        self._tokens = 0  # of the waiting items
        self._taken_tokens = 0  # of all items that batches have taken
        self._ready = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"shapevm-serve-{index}", daemon=True)
            for index in range(rules.threads)
        ]
        for thread in self._threads:
            thread.start()

    async def results(self, job: Job) -> list[Any]:
        """Run a job's items and return their results in order. If the task that awaits them is cancelled,
        items that wait are dropped, and a batch of this request alone is stopped. Raises the error of an
        item."""
        with self._ready:
            if job.payloads:
                job.rank = self._taken_tokens + PATIENCE * job.n_tokens
                bisect.insort(self._waiting, job, key=attrgetter("rank"))
                self._tokens += job.n_tokens
                self._ready.notify()
        try:
            return await job.results
        finally:
            job.cancel.set()
            with self._ready:
                if job in self._waiting:
                    self._waiting.remove(job)
                    self._tokens -= sum(job.costs[job.begun :])

    def close(self, seconds: float = 1.0) -> None:
        """End the threads after the batches that wait, at most that many seconds later."""
        with self._ready:
            self._is_closed = True
            self._ready.notify_all()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self) -> None:
        while batch := self._next():
            with suppress(Exception):  # nothing may end this thread
                self._observe(len(batch), sum(job.costs[index] for job, index in batch))
            self._run_batch(batch)

    def _next(self) -> Batch:
        """Wait for a batch that is full or old enough; [] once the batcher is closed."""
        with self._ready:
            while True:
                if not self._waiting:
                    if self._is_closed:
                        return []
                    self._ready.wait()
                    continue
                oldest = min(job.entered for job in self._waiting)
                rest = self._rules.max_wait - (time.monotonic() - oldest)
                if rest <= 0 or self._is_closed or self._tokens >= self._rules.tokens:
                    return self._taken()
                self._ready.wait(rest)

    def _taken(self) -> Batch:
        """Take the items of a batch. The lock is held."""
        batch: Batch = []
        room, now = self._room(), time.monotonic()
        while self._waiting:
            job = self._waiting[0]
            if not job.begun:
                job.waited = now - job.entered
            while job.begun < len(job.costs):
                cost = job.costs[job.begun]
                if batch and cost > room:
                    self._ready.notify()  # of what is left
                    return batch
                batch.append((job, job.begun))
                job.begun += 1
                self._tokens -= cost
                self._taken_tokens += cost
                room -= cost
            del self._waiting[0]
        return batch

    def _room(self) -> int:
        """Return the most tokens of the next batch: half of a thread's share of those that wait, so that a
        text waits for few others of its batch, and the last batches end together. The lock is held."""
        return min(self._rules.tokens, max(SHORT, self._tokens // (2 * max(1, self._rules.threads))))

    def _run_batch(self, batch: Batch) -> None:
        """Run a batch and deliver its results; in halves if it fails."""
        batch = [(job, index) for job, index in batch if not job.cancel.is_set]
        jobs = {job for job, _ in batch}
        if not jobs:
            return
        flag = next(iter(jobs)).cancel if len(jobs) == 1 else None
        outcomes: Sequence[Any]
        try:
            outcomes = self._run([job.payloads[index] for job, index in batch], flag)
            if len(outcomes) != len(batch):
                raise RuntimeError(f"a batch of {len(batch)} gave {len(outcomes)} results")
        except BaseException as error:  # nothing may end this thread
            if len(batch) > 1:
                for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                    self._run_batch(half)
                return
            outcomes = [error if isinstance(error, Exception) else RuntimeError(repr(error))]
        by_job: dict[Job, list[tuple[int, Any]]] = {}
        for (job, index), outcome in zip(batch, outcomes, strict=True):
            by_job.setdefault(job, []).append((index, outcome))
        for job, found in by_job.items():
            job.deliver(found)
