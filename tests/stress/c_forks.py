"""Forks in C of a program whose threads wait for the GIL: `python tests/stress/c_forks.py [N] [hooks]`.

There is no shapevm in it. CPython asks the thread that has the GIL to hand it over, and waits until another
has it; a child of such a fork has no other thread, so it waits for ever. `hooks` has C call what Python's own
forks call (PyOS_BeforeFork and PyOS_AfterFork_*): then no child hangs. Prints how many of N did.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

SECONDS = 5  # that a child may take for nothing
THREADS = 3


def _spin() -> None:
    while True:
        pass


def hangs(fork: ctypes.PyDLL) -> bool:
    """Fork while the other threads wait, and say whether the child did not end well within SECONDS."""
    if not (pid := fork.fork()):
        for _ in range(1000):
            time.sleep(0)  # gives the GIL away and takes it again
        os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return bool(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def main() -> None:
    """Fork as often as the arguments say."""
    n = next((int(word) for word in sys.argv[1:] if word.isdigit()), 50)
    own = ctypes.PyDLL(None)  # whose calls keep the GIL, as a host's own code may
    if "hooks" in sys.argv:
        names = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
        hooks = [ctypes.cast(getattr(own, name), ctypes.c_void_p) for name in names]
        getattr(own, "__register_atfork")(*hooks, None)
    sys.setswitchinterval(1e-6)
    for _ in range(THREADS):
        threading.Thread(target=_spin, daemon=True).start()
    found = sum(hangs(own) for _ in range(n))
    print(f"Python {sys.version.split()[0]}: {found} of {n} children hung", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
