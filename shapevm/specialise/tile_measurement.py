"""The measurement of this machine's register tiles, once, in the background: see `jit.measure.tiles`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # keeps loading fast
    from ..jit.store import KernelStore
    from .compile_process import CompileProcess

AFTER_SECONDS = 10.0  # of process time: a short-lived process measures nothing


class TileMeasurement:
    """The measurement, by the compile process when it is idle. Later stores use its result; no existing
    program changes its code."""

    def __init__(self, process: CompileProcess) -> None:
        self._process = process
        self._not_before = time.monotonic() + AFTER_SECONDS
        self.is_running = False

    def go_on(self, store: KernelStore | None) -> None:
        """Give the job to the process unless it was done, or take the answer if it is there. `store`: a
        program's store, None if it has none yet."""
        if store is None:
            return
        if self.is_running:
            answer = self._process.answer(self)
            self.is_running = answer is None
            if answer is not None and not answer.failure:
                store.remember_tiles(answer.record)
        elif time.monotonic() >= self._not_before and store.wants_tiles:
            from ..jit.compile_job import TilesJob

            self._not_before = math.inf
            self.is_running = self._process.submit(self, TilesJob(store.target, cache=store.folder))
