"""Python's garbage collector, paused while a program is compiled.

The objects of a trace live until the program is done. A collection in between traverses all of them and the
libraries' objects in vain, which costs 0.2 to 0.4 s of a compilation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ..vm.fork_lock import ForkLock, after_fork

_lock = ForkLock()
_n_paused = 0  # number of threads that pause it
_was_enabled = False  # before the first pause


@contextmanager
def paused() -> Iterator[None]:
    """Prevent automatic collections. If several threads pause them, the last one resumes them."""
    global _n_paused, _was_enabled
    with _lock:
        if not _n_paused:
            _was_enabled = gc.isenabled()
            gc.disable()
        _n_paused += 1
    try:
        yield
    finally:
        with _lock:
            _n_paused = max(0, _n_paused - 1)  # a forked child may also leave the block
            if not _n_paused:
                _go_on()


def _go_on() -> None:
    if _was_enabled:
        gc.enable()


def _forked() -> None:
    """Resume in a forked child: the threads that paused do not exist there."""
    global _n_paused
    if _n_paused:
        _n_paused = 0
        _go_on()


after_fork(_forked)
