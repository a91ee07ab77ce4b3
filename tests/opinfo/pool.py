"""Processes that each judge one cell at a time: a crash or a hang costs one case, never the run."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from .cases import Cell, calls, samples
from .verdicts import Verdict, judge_group, judge_one, prepare

#: One unit of work: cells that are tried together, how they are compiled ("static", "dynamic"), and with how
#: many samples each at most.
Task = tuple[tuple[Cell, ...], str, int]
#: Imported before the processes start, which then all run the same code and start at once.
LOADED = (
    "build.boundary",
    "build.build",
    "program.executable",
    "specialise.kernel_requests",
    "specialise.kernel_store",
    "jit.store",
    "jit.compiler",
    "compiler.frontends.exported_program",
    "compiler.frontends.fx",
    "program.torch_host",
)
PATIENCE = 5
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Suite:
    """What is judged. `prepare()`: once in each process. `samples(cell)`: all of a cell's. `cases(cell,
    samples, limit)`: at most so many of them. `judge_one(op, case, mode)`: a case's verdict.
    `judge_group(cells, cases, mode)`: the verdicts of several cells at once; None: each case is judged alone.
    """

    prepare: Callable[[], None]
    samples: Callable[[Cell], Sequence[Any]]
    cases: Callable[[Cell, Sequence[Any], int], Sequence[Any]]
    judge_one: Callable[[str, Any, str], Verdict]
    judge_group: Callable[..., list[list[Verdict]]] | None = None


def operators(infos: dict[str, Any]) -> Suite:
    """Return the suite of PyTorch's operators, `infos` being their entries."""
    return Suite(
        prepare=prepare,
        samples=lambda cell: samples(infos[cell.op], cell.dtype),
        cases=lambda cell, made, limit: calls(infos[cell.op], made, limit),
        judge_one=judge_one,
        judge_group=judge_group,
    )


def _work(pipe: Connection, suite: Suite) -> None:
    """Judge what comes through the pipe; `apart`: announce every case, so that a crash is that case's."""
    suite.prepare()
    while True:
        (cells, mode, limit), apart = pipe.recv()
        made = [suite.samples(cell) for cell in cells]
        pipe.send([len(some) for some in made])
        cases = [suite.cases(cell, some, limit) for cell, some in zip(cells, made, strict=True)]
        if not apart and suite.judge_group is not None:
            pipe.send(suite.judge_group(cells, cases, mode))
            continue
        for case in cases[0][apart - 1 :]:
            pipe.send(suite.judge_one(cells[0].op, case, mode))
        pipe.send(None)


class _Worker:
    """One process and what it is at."""

    def __init__(self, suite: Suite, seconds: float) -> None:
        self.suite, self.seconds = suite, seconds
        self.process: Any = None
        self.start_process()

    def start_process(self) -> None:
        """Start the process, in the place of an earlier one."""
        self.stop()
        self.pipe, other = _FORK.Pipe()
        self.process = _FORK.Process(target=_work, args=(other, self.suite), daemon=True)
        self.process.start()
        other.close()

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def give(self, task: Task, apart: int = 0) -> None:
        """Start a task; `apart`: case by case, from this one on (counted from 1)."""
        apart = apart or int(self.suite.judge_group is None)
        self.task, self.apart, self.found = task, apart, self.found if apart > 1 else []
        self.totals: list[int] = []
        self.end = time.monotonic() + self.seconds
        self.pipe.send((task, apart))

    def receive(self) -> list[list[Verdict]] | None:
        """Return the verdicts of the task's cells once all are there."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionError):
            return self.lose("the process ended")
        if not self.totals:
            self.totals = message
            return None
        if not self.apart:
            return message
        if message is None:
            return [self.found]
        self.found.append(message)
        self.end = time.monotonic() + self.seconds
        return None

    def lose(self, why: str, verdict: str = "crash") -> list[list[Verdict]] | None:
        """Go on after a crash or a hang: [] where the cells must be tried one by one; of a single one, the
        cases apart, then without the guilty one."""
        self.start_process()
        if len(self.task[0]) > 1:
            return []
        if self.apart:
            self.found.append(Verdict(verdict, why))
        self.give(self.task, len(self.found) + 1)
        return None


def run(tasks: Sequence[Task], suite: Suite, jobs: int, seconds: float) -> Iterator[Any]:
    """Yield (cell, mode, n_samples, verdicts) as they come, with how many samples there are. `seconds`: what
    a task, then each of its cases, may take; what had no answer is tried again at the end, one at a time,
    with `PATIENCE` times as long."""
    late = []
    for cell, mode, n_samples, verdicts in _run(tasks, suite, jobs, seconds):
        if any(verdict.verdict == "slow" for verdict in verdicts):
            late.append(((cell,), mode, max(len(verdicts), 1)))
        yield cell, mode, n_samples, verdicts
    yield from _run(late, suite, 1, PATIENCE * seconds)


def _run(tasks: Sequence[Task], suite: Suite, jobs: int, seconds: float) -> Iterator[Any]:
    for name in LOADED:
        importlib.import_module(f"shapevm.{name}")
    pending = list(reversed(tasks))
    busy: list[_Worker] = []
    try:
        for _ in range(min(jobs, len(tasks))):
            busy.append(_Worker(suite, seconds))
            busy[-1].give(pending.pop())
        while busy:
            ready = wait([worker.pipe for worker in busy], timeout=1)
            for worker in list(busy):
                if worker.pipe in ready:
                    found = worker.receive()
                elif time.monotonic() > worker.end:
                    found = worker.lose(f"no answer within {seconds:g} s", "slow")
                else:
                    continue
                if found is None:
                    continue
                cells, mode, limit = worker.task
                if not found:
                    pending.extend(((cell,), mode, limit) for cell in cells)
                for cell, n_samples, verdicts in zip(cells, worker.totals, found, strict=False):
                    yield cell, mode, n_samples, verdicts
                if pending:
                    worker.give(pending.pop())
                else:
                    worker.stop()
                    busy.remove(worker)
    finally:
        for worker in busy:
            worker.stop()
