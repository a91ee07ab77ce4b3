"""Threads and locks of the operating system."""

import threading
import time

from shapevm.vm.native import Thread


class Work:
    """What a thread runs, freed slowly."""

    def __init__(self, freed: list[str]) -> None:
        self.freed, self.may_end = freed, threading.Event()

    def run(self, other: object) -> None:
        self.may_end.wait()

    def __del__(self) -> None:
        time.sleep(0.05)
        self.freed.append(threading.current_thread().name)


def test_a_thread_that_has_ended_holds_nothing() -> None:
    """What it frees later would be freed while the interpreter ends: PyTorch ends the process then."""
    freed: list[str] = []
    work, other = Work(freed), Work(freed)
    thread, may_end = Thread(work.run, other), work.may_end
    del work, other
    may_end.set()
    thread.join()
    assert len(freed) == 2
