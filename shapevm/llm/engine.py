"""`Engine`: requests of any number of threads through one program, computed by one thread.

engine = Engine(program, Limits(n_pages=256, length=2048, vocabulary=32000))
request = engine.submit(tokens, Sampling(max_new_tokens=64))
for token in request:
    ...
engine.close()
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Literal, Protocol

import numpy as np

from ..vm.errors import ArgumentError
from .pages import Pool
from .sampling import Sampling
from .scheduler import Plan, Scheduler, inputs_of
from .scheduler import Sequence as Running

Array = np.ndarray[Any, Any]
Reason = Literal["stop", "length", "cancelled", "error"]


class Program(Protocol):
    """What an engine runs."""

    def compute(self, inputs: dict[str, Array]) -> tuple[Array, Array]:
        """Return the logits of the inputs of `inputs_of`, f32[sequences, vocabulary], and the greatest ones'
        tokens."""
        ...

    def draw(self, logits: Array, how: Sampling, tokens: Sequence[int], mask: Array | None) -> int:
        """Return the token after `tokens`, given its logits f32[vocabulary] and which tokens may come,
        bool[1, vocabulary]; None: all. The result depends on these arguments only."""
        ...


class Guide(Protocol):
    """What limits the tokens of one sequence."""

    def mask(self) -> Array:
        """Return which tokens may come next, bool[1, vocabulary]."""
        ...

    def take(self, token: int) -> bool:
        """Note the next token; return whether others may follow."""
        ...


@dataclass(frozen=True)
class Limits:
    """The pages of the cache, the most positions of a sequence, the number of token ids, and the most tokens
    and sequences of a call."""

    n_pages: int
    length: int
    vocabulary: int
    max_tokens: int = 256
    max_sequences: int = 32


class Request:
    """A submitted sequence: an iterator over its new tokens, as they are computed.

    One thread iterates; any thread may `cancel`. `finish_reason`: None until the last token is computed;
    "stop": a stop token came; "length": `max_new_tokens` or the most positions of a sequence are reached;
    "cancelled"; "error": the program failed, and the iterator raises its error. `logits`: with
    `submit(keep_logits=True)`, those of each new token.
    """

    def __init__(self, engine: Engine, running: Running, sampling: Sampling, most: int) -> None:
        self.sampling = sampling
        self.finish_reason: Reason | None = None
        self.logits: list[Array] | None = None
        self.guide: Guide | None = None
        self._engine, self._running, self._most = engine, running, most  # most: tokens in all
        self._results: SimpleQueue[int | BaseException | None] = SimpleQueue()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        found = self._results.get()
        if isinstance(found, int):
            return found
        self._results.put(found)  # the end is found again
        if found is not None:
            raise found
        raise StopIteration

    def cancel(self) -> None:
        """End the sequence; its pages are free after the current call. The iterator then ends, after the
        tokens that were computed. Has no effect on a finished request."""
        self._engine._cancel(self)

    def _finish(self, reason: Reason, error: BaseException | None = None) -> None:
        self.finish_reason = reason
        self._results.put(error)

    def _add(self, token: int, logits: Array) -> bool:
        """Take a computed token; return whether the sequence goes on."""
        if self.logits is not None:
            self.logits.append(logits.copy())
        if token in self.sampling.stop_tokens:
            self._finish("stop")
            return False
        self._running.tokens.append(token)
        self._results.put(token)
        if self.guide is not None and not self.guide.take(token):
            self._finish("stop")
            return False
        if len(self._running.tokens) < self._most:
            return True
        self._finish("length")
        return False


class Engine:
    """Runs requests together: they join and leave at each call of the program, and share the pages of equal
    beginnings. The tokens of a request depend on its tokens and its `Sampling` only.

    A thread of the engine calls the program; it starts with the first request and ends with `close`.
    """

    def __init__(self, program: Program, limits: Limits) -> None:
        self.limits = limits
        self._program = program
        self._scheduler = Scheduler(Pool(limits.n_pages), limits.max_tokens, limits.max_sequences)
        self._requests: dict[int, Request] = {}  # unfinished ones, by number
        self._changed = threading.Condition()  # guards all but the call of the program
        self._thread: threading.Thread | None = None
        self._n_submitted = 0
        self._is_closed = False

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        *,
        keep_logits: bool = False,
        guide: Guide | None = None,
    ) -> Request:
        """Add a sequence that begins with `tokens`; return at once. Any thread may call it.

        Raises ArgumentError for no tokens, for an unknown one, for more than a sequence may have, for a
        sequence that the whole cache cannot hold, and after `close`.
        """
        given, length = self._checked(tokens), self.limits.length
        most = min(len(given) + sampling.max_new_tokens, length)
        with self._changed:
            if self._is_closed:
                raise ArgumentError("the engine is closed; make another one")
            running = Running(self._n_submitted, given)
            request = Request(self, running, sampling, most)
            request.logits, request.guide = [] if keep_logits else None, guide
            if most <= len(given):
                request._finish("length")
                return request
            self._scheduler.add(running, most)
            self._n_submitted += 1
            self._requests[running.number] = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shapevm.llm", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return request

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        n, length = self.limits.vocabulary, self.limits.length
        if not 0 < len(tokens) <= length:
            raise ArgumentError(f"the prompt has {len(tokens)} tokens; it must have 1 to {length}")
        for one in tokens:
            if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < n:
                raise ArgumentError(f"the prompt has the token {one!r:.40}; token ids are 0 to {n - 1}")
        return [int(one) for one in tokens]

    @property
    def n_unfinished(self) -> int:
        """How many requests run or wait."""
        return len(self._requests)

    def close(self) -> None:
        """Cancel all requests and end the thread."""
        with self._changed:
            self._is_closed = True
            for request in list(self._requests.values()):
                self._end(request, "cancelled")
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cancel(self, request: Request) -> None:
        with self._changed:
            if request.finish_reason is None:
                self._end(request, "cancelled")

    def _end(self, request: Request, reason: Reason, error: BaseException | None = None) -> None:
        """Finish a request whose sequence is in the scheduler. The lock is held."""
        self._leave(request)
        request._finish(reason, error)

    def _leave(self, request: Request) -> None:
        del self._requests[request._running.number]
        self._scheduler.remove(request._running)

    # The thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._requests)
                if self._is_closed:
                    return
                plan = self._scheduler.plan()
                inputs = inputs_of(plan)
            try:
                logits, greatest = self._program.compute(inputs)
            except Exception as error:
                self._fail(plan, error)
                continue
            with self._changed:
                self._take(plan, logits, greatest)

    def _fail(self, plan: Plan, error: Exception) -> None:
        """End the requests of a call that failed."""
        with self._changed:
            for sequence, _ in plan:
                if request := self._requests.get(sequence.number):
                    self._end(request, "error", error)
            self._scheduler.forget()

    def _take(self, plan: Plan, logits: Array, greatest: Array) -> None:
        """Give each request of a call its token, if the call had its last tokens. Cancelled ones are gone."""
        present = [(each, n) for each, n in plan if each.number in self._requests]
        self._scheduler.done(present)
        rows = {each.number: row for row, (each, _) in enumerate(plan)}
        for sequence, _ in present:
            if sequence.n_left:
                continue
            request, row = self._requests[sequence.number], rows[sequence.number]
            try:
                token = self._next(request, logits[row], int(greatest[row]))
                goes_on = request._add(token, logits[row])
            except Exception as error:
                self._end(request, "error", error)
                continue
            if not goes_on:
                self._leave(request)

    def _next(self, request: Request, logits: Array, greatest: int) -> int:
        how, guide = request.sampling, request.guide
        if guide is None and how.temperature == 0 and how.repetition_penalty == 1:
            return greatest
        mask = None if guide is None else guide.mask()
        return self._program.draw(logits, how, request._running.tokens, mask)
