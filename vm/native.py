"""Threads, locks and calls of the operating system itself, even if the program has replaced Python's.

gevent and eventlet replace threads by coroutines and locks by ones that coroutines wait for. Code that waits
in C or that runs beside the program needs the real ones. A module that is loaded again from its specification
has its original functions and types.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


def _anew(name: str) -> ModuleType:
    spec = find_spec(name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_THREAD: Any = _anew("_thread")
posix: Any = _anew("posix")
select: Any = _anew("select")

Lock: Any = _THREAD.allocate_lock
RLock: Any = _THREAD.RLock
get_ident: Callable[[], int] = _THREAD.get_ident


class Thread:
    """A thread of the operating system, started on construction; the interpreter does not wait for it."""

    def __init__(self, target: Callable[..., object], *args: object) -> None:
        self._ended = Lock()
        self._ended.acquire()
        self._ident = 0
        _THREAD.start_new_thread(self._run, ([target, args],))

    def _run(self, call: list[Any]) -> None:
        """Make a call, and release its function and arguments before `join` returns: objects that a thread
        frees during interpreter shutdown may crash the process."""
        self._ident = get_ident()
        sys.settrace(threading.gettrace())
        target, args = call
        call.clear()
        try:
            target(*args)
        finally:
            del target, args
            self._ended.release()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return self._ident == get_ident()

    def join(self) -> None:
        """Wait until it has ended."""
        with self._ended:
            pass
