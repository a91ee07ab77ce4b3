"""Forks and Ctrl-C come at any moment; `python -m tests.stress.signals` takes 1,000 of each."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.fork_lock import ForkLock
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine

import shapevm

from ..vm.kernels import HOST_TEXT
from . import signals

FOREVER = 'function "main" (0 params, 0 results)\nagain:\n  jump again\n'


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, though a job in the background ignores it from its start on."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_interrupts_come_through() -> None:
    with signals.model() as exe:
        report = signals.interrupt_loops(signals.interrupted_calls(exe), 40)
    assert report.done == 40 and not report.wrong


def test_children_of_a_busy_process_run() -> None:
    report = signals.fork_under_load(8)
    assert report.done == 8 and not report.wrong


def test_a_long_call_is_interrupted() -> None:
    program = artifact.to_bytes(assemble(FOREVER))
    with Machine.from_bytes(
        program, LoadOptions(strategy="generic", limits=CallLimits(timeout_ms=60_000))
    ) as m:
        start = time.monotonic()
        timer = after(0.2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            m.call([])
        timer.join()
        assert time.monotonic() - start < 50  # not only when the call's time is over


def test_a_long_kernel_is_interrupted() -> None:
    """A single launch of a product that takes many seconds stops between tiles, with one thread and two."""
    rows = torch.export.Dim("rows", min=1, max=1 << 20)
    model = torch.nn.Linear(2048, 2048, bias=False).eval()
    exe = shapevm.compile(model, (torch.randn(3, 2048),), dynamic_shapes=({0: rows},), strategy="generic")
    x, threads = torch.randn(60_000, 2048), shapevm.get_threads()
    try:
        for n in (1, 2):
            shapevm.set_threads(n)
            start = time.process_time()  # others may have the processors
            with pytest.raises(shapevm.DeadlineExceeded):
                exe.using(timeout=0.3)(x)
            assert time.process_time() - start < 3
            timer = after(0.3, interrupt)
            with pytest.raises(KeyboardInterrupt):
                while True:
                    exe(x)
            timer.join()
    finally:
        shapevm.set_threads(threads)
        exe.close()


def test_an_interrupted_host_function_is_interrupted() -> None:
    with Machine.from_bytes(artifact.to_bytes(assemble(HOST_TEXT)), LoadOptions(strategy="generic")) as m:

        def wait(x: object) -> list[object]:
            time.sleep(30)
            return [x]

        m.register_extern("host", wait)
        timer = after(0.2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            m.call([torch.ones(2)])
        timer.join()

        def leave(x: object) -> list[object]:
            raise SystemExit(3)

        m.register_extern("host", leave)
        with pytest.raises(SystemExit):
            m.call([torch.ones(2)])


def test_a_handler_that_raises_nothing_does_not_stop_a_call() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        with Machine.from_bytes(
            artifact.to_bytes(assemble(FOREVER)),
            LoadOptions(strategy="generic", limits=CallLimits(timeout_ms=600)),
        ) as m:
            timer = after(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            with pytest.raises(shapevm.DeadlineExceeded):
                m.call([])
            timer.join()
        assert seen == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_lock_is_free_in_a_child() -> None:
    lock, held, release = ForkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        with lock, lock:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    release.set()
    thread.join()
    with lock:
        pid = os.fork()
        if not pid:
            with lock:
                pass
            os._exit(0 if lock._depth == 1 else 1)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("n_calls", [0, 1, 3])
@pytest.mark.parametrize("library", [ctypes.PyDLL, ctypes.CDLL], ids=["with the GIL", "without the GIL"])
@pytest.mark.parametrize("strategy", ["jit", "auto"])
def test_a_child_forked_in_c_compiles(
    strategy: str, library: type[ctypes.CDLL], n_calls: int, tmp_path: Path
) -> None:
    """uWSGI and other hosts fork without Python's hooks: the fork waits until no compiler needs the GIL,
    and the first call repairs what the hooks would have."""
    rows = torch.export.Dim("rows", min=1, max=4096)
    example = (torch.randn(3, 16),)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Softmax(-1))
    shapevm.compile(model, example, dynamic_shapes=({0: rows},)).save(tmp_path / "m.svm")
    exe = shapevm.load(tmp_path / "m.svm", strategy=strategy)
    for k in range(n_calls):
        exe(torch.ones(9 + k, 16).numpy())
    pid = library(None).fork()
    if not pid:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.alarm(60)
            exe(torch.ones(9, 16).numpy()), exe(torch.ones(21, 16).numpy())
            tiers = {entry.tier for _, entry in exe.stats().entries}
            is_right = exe.specialisation.wait(300) and (strategy == "auto" or tiers == {"exact"})
            exe.close()
            code = 0 if is_right else 3
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    exe.close()
