"""Memory that was freed goes back to the system: calls of ever new sizes leave gaps between what stays, which
the C library keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..vm.heap import trim

SECONDS = 20.0


@contextmanager
def trimming(seconds: float = SECONDS) -> Iterator[None]:
    """Trim every so many seconds within the block."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(seconds):
            trim()

    thread = threading.Thread(target=run, name="shapevm-memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
