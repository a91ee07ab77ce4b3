"""Python's collector of cycles, paused while a program is compiled.

What a trace makes lives until the program is done. A collection in between walks over all of it, and over
what the libraries have made, for nothing: 0.2 to 0.4 s of a compilation.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from .vm.fork_lock import ForkLock

_lock = ForkLock()
_n_paused = 0  # by as many threads
_was_enabled = False  # before the first of them


@contextmanager
def paused() -> Iterator[None]:
    """Let no collection begin by itself. Where several threads pause it, the last one lets it go on."""
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
            _n_paused = max(0, _n_paused - 1)  # a child may leave the block as well
            if not _n_paused:
                _go_on()


def _go_on() -> None:
    if _was_enabled:
        gc.enable()


def _forked() -> None:
    """Go on in a child of a process that compiles: the threads that do are not in it."""
    global _n_paused
    if _n_paused:
        _n_paused = 0
        _go_on()


os.register_at_fork(after_in_child=_forked)
