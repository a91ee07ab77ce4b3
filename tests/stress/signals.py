"""Forks and Ctrl-C at random moments of running programs.

    python -m tests.stress.signals [--forks N] [--interrupts N]

Forks: threads call a program, compile kernels for it and open and close others; each forked child calls the
program too, at a new shape, and must end in time with the right numbers. Interrupts: SIGINT comes at a random
moment of a loop of calls, each of which must end in KeyboardInterrupt and in nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import shapevm

CHILD_SECONDS = 60  # what a child may take; it is killed then


@dataclass
class Report:
    """What happened: `wrong` says what should not have."""

    done: int = 0
    wrong: list[str] = field(default_factory=list)
    name: str = ""  # prints progress under it

    def add(self) -> None:
        """Count one more."""
        self.done += 1
        if self.name and self.done % 50 == 0:
            print(f"{self.done} {self.name}, {len(self.wrong)} wrong", file=sys.stderr, flush=True)


def model() -> shapevm.Executable:
    """Return a small program for many shapes, under a strategy that compiles while it runs."""
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).eval()
    rows = torch.export.Dim("rows", min=1, max=4096)
    with shapevm.settings.scope(compile_budget=0):
        return shapevm.compile(net, (torch.randn(3, 16),), dynamic_shapes=({0: rows},), strategy="auto")


def fork_under_load(n: int, seed: int = 0, name: str = "") -> Report:
    """Fork n times while three threads keep the program and its compiler busy."""
    exe, report, stop = model(), Report(name=name), threading.Event()
    path = f"/tmp/signals-{os.getpid()}.svm"
    exe.save(path)

    def call(base: int) -> None:
        k = 0
        while not stop.is_set():
            k += 1
            exe(torch.randn(base + k % 400 + 1, 16))

    def reopen() -> None:
        while not stop.is_set():
            with shapevm.load(path, strategy="generic") as other:
                other(torch.randn(7, 16))

    threads = [threading.Thread(target=call, args=(base,)) for base in (0, 500)]
    threads.append(threading.Thread(target=reopen))
    for thread in threads:
        thread.start()
    rng = random.Random(seed)
    try:
        for k in range(n):
            time.sleep(rng.random() * 0.02)
            x = torch.randn(1000 + k % 3000, 16)
            expected = exe(x)
            _fork(lambda x=x, expected=expected: _child(exe, path, x, expected), k, report)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        exe.close()
        os.unlink(path)
    return report


def _child(exe: shapevm.Executable, path: str, x: torch.Tensor, expected: torch.Tensor) -> bool:
    """Call the inherited program at a known shape and at the largest, and load another. Random numbers would
    take the lock of PyTorch's generator, which another thread of the parent may hold for ever."""
    is_right = torch.equal(exe(x), expected) and exe(torch.zeros(4096, 16)).shape == (4096, 32)
    exe.stats(), exe.summary()
    with shapevm.load(path, strategy="generic") as other:
        return is_right and torch.equal(other(x), expected)


def _fork(child: Callable[[], bool], k: int, report: Report) -> None:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            faulthandler.dump_traceback_later(CHILD_SECONDS - 5, exit=True)
            torch.set_num_threads(1)
            code = 0 if child() else 3
        finally:
            os._exit(code)
    end = time.monotonic() + CHILD_SECONDS
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            ended = os.waitpid(pid, 0)
            report.wrong.append(f"fork {k}: the child hung")
            break
        time.sleep(0.001)
    else:
        if ended[1]:
            report.wrong.append(f"fork {k}: the child ended with status {ended[1]}")
    report.add()


def interrupt_loops(calls: list[Callable[[], Any]], n: int, seed: int = 0, name: str = "") -> Report:
    """Send SIGINT n times at random moments of loops of `calls`."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    hook = sys.unraisablehook
    swallowed: list[Any] = []  # Python drops what is raised in a destructor or in a weak reference's callback
    sys.unraisablehook = lambda u: (swallowed.append if u.exc_type is KeyboardInterrupt else hook)(u)
    try:
        return _interrupt_loops(calls, n, seed, name, swallowed)
    finally:
        signal.signal(signal.SIGINT, previous)
        sys.unraisablehook = hook


def _interrupt_loops(
    calls: list[Callable[[], Any]], n: int, seed: int, name: str, swallowed: list[Any]
) -> Report:
    rng, report = random.Random(seed), Report(name=name)
    main = threading.main_thread().ident
    assert main is not None
    for k in range(n):
        call = calls[k % len(calls)]
        delay = rng.random() * 0.004
        timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            end = time.monotonic() + CHILD_SECONDS
            while time.monotonic() < end and not swallowed:
                call()
            if not swallowed:
                report.wrong.append(f"interrupt {k}: lost")
            swallowed.clear()
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            report.wrong.append(f"interrupt {k}: {type(error).__name__}: {error}")
            with contextlib.suppress(KeyboardInterrupt):  # the signal may be still to come
                timer.join()
        report.add()
    return report


def interrupted_calls(exe: shapevm.Executable) -> list[Callable[[], Any]]:
    """Return calls of all ways in: warm, at a new shape, of numpy arrays, with a timeout."""
    x = torch.randn(64, 16)
    sizes = iter(range(1, 1 << 60))
    warm = x.numpy()
    return [
        lambda: exe(x),
        lambda: exe(x[: next(sizes) % 60 + 1]),
        lambda: exe(warm),
        lambda: exe.using("generic", timeout=30)(x),
        lambda: exe(x.T.contiguous().T),
    ]


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--interrupts", type=int, default=1000)
    options = parser.parse_args()
    with model() as exe:
        interrupts = interrupt_loops(interrupted_calls(exe), options.interrupts, name="interrupts")
    forks = fork_under_load(options.forks, name="forks")
    for name, report in (("interrupts", interrupts), ("forks", forks)):
        print(f"{report.done} {name}: {len(report.wrong)} wrong")
        for line in report.wrong[:20]:
            print(f"  {line}")
    return bool(interrupts.wrong or forks.wrong)


if __name__ == "__main__":
    sys.exit(main())
