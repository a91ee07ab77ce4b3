"""Locks that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any


class ForkLock:
    """A lock for a `with` statement, reentrant, that is made anew in a forked child if another thread of the
    parent held it: that thread does not exist in the child and would never release it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = 0  # the thread that holds it, 0: none
        self._depth = 0
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
        self._lock.release()

    def renew(self) -> None:
        """Free the lock unless this thread holds it. Only for a forked child, which has one thread."""
        if self._owner != threading.get_ident():
            self._lock, self._owner, self._depth = threading.RLock(), 0, 0


#: All that exist.
_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
