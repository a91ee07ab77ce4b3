"""Work on large arrays divided among the CPUs: numpy and C release the GIL meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

MAX_SHARES = 8  # more do not move memory faster


def in_shares(n: int, work: Callable[[int, int], None], least: int = 1) -> None:
    """Call `work(begin, end)` in parallel for parts of range(n), of at least `least` each, which cover it.
    Raises the error of the first part that fails, once all have ended."""
    n_shares = max(1, min(len(os.sched_getaffinity(0)), MAX_SHARES, n // least))
    ends = [n * i // n_shares for i in range(n_shares + 1)]
    errors: dict[int, BaseException] = {}

    def run(i: int) -> None:
        try:
            work(ends[i], ends[i + 1])
        except BaseException as error:  # it is raised in the waiting thread
            errors[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(1, n_shares)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
