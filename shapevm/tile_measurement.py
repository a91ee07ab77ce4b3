"""Has this machine's register tiles measured, once, in the background: see `jit.measure.tiles`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a load imports no more than it needs
    from .compile_process import CompileProcess
    from .jit.store import KernelStore

AFTER_SECONDS = 10.0  # of this process: a short-lived one measures nothing


class TileMeasurement:
    """The measurement, by the process that compiles when it has nothing else to do. Stores that are made
    later use what it finds: no program changes its code for it."""

    def __init__(self, process: CompileProcess) -> None:
        self._process = process
        self._not_before = time.monotonic() + AFTER_SECONDS
        self.is_running = False

    def go_on(self, store: KernelStore | None) -> None:
        """Give the job to the process where nobody has done it, or take the answer if it is there. `store`:
        of a program, None where it has needed none."""
        if store is None:
            return
        if self.is_running:
            answer = self._process.answer(self)
            self.is_running = answer is None
            if answer is not None and not answer.failure:
                store.remember_tiles(answer.record)
        elif time.monotonic() >= self._not_before and store.wants_tiles:
            from .jit.compile_job import TilesJob

            self._not_before = math.inf
            self.is_running = self._process.submit(self, TilesJob(store.target))
