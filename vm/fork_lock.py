"""Repairs in a forked child: locks that threads of its parent held, and other state they left.

Python's own hooks do not run if a program forks in C (uWSGI, other hosts that embed Python). So the process
id is also compared whenever a lock is taken, and when a call finds that the process was forked.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .native import RLock, get_ident


class ForkLock:
    """A lock for a `with` statement, reentrant, that is renewed in a forked child if another thread of the
    parent held it: that thread does not exist in the child and would never release it.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._owner = 0  # the thread that holds it, 0: none
        self._depth = 0
        _LOCKS.add(self)

    def __enter__(self) -> None:
        notice_fork()
        self._lock.acquire()
        self._owner = get_ident()
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
        if self._owner != get_ident():
            self._lock, self._owner, self._depth = RLock(), 0, 0


#: All that exist.
_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
_HOOKS: list[Callable[[], None]] = []
_repaired = os.getpid()  # the process that is repaired
_REPAIRING: dict[int, Any] = {}  # by process: a lock that the repairing thread holds


def after_fork(hook: Callable[[], None]) -> None:
    """Call `hook` once in each forked child, after its locks are free: at once if Python forks, otherwise
    before the first call or lock."""
    _HOOKS.append(hook)


def notice_fork() -> None:
    """Repair this process if it is a forked child that is not repaired yet."""
    global _repaired
    process = os.getpid()
    if process == _repaired:
        return
    with _REPAIRING.setdefault(process, RLock()):
        if process != _repaired:
            for lock in list(_LOCKS):
                lock.renew()
            _repaired = process
            for hook in _HOOKS:
                hook()


os.register_at_fork(after_in_child=notice_fork)
