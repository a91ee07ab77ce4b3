"""The file of a program, made while its model is exported, on another CPU.

Finding memory for the pages of a file takes the system longer than copying weights into them, on a virtual
machine up to ten times as long. So the pages are filled with zeros before it is known what they will hold.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .vm.files import HUGE_PAGE

MIN_BYTES = 16 << 20  # of weights: fewer are written in a few milliseconds
MAX_BYTES = 1 << 30  # an export takes no longer than filling so many
PAGES_AT_ONCE = 8  # huge pages of one call to write: Python's lock is wanted after each
#: The part of a weight's f32 that the file has of it, by the dtype that weights are rounded to.
SHARES = {"f32": 1.0, "bf16": 0.5, "f16": 0.5, "int8": 0.25, "int4": 0.125}


class EarlyFile:
    """A temporary file that a thread fills with up to `n_bytes`, until it is taken."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes
        self._is_wanted = False
        self._file: IO[bytes] | None = tempfile.TemporaryFile(prefix="shapevm-")  # noqa: SIM115
        self._thread = threading.Thread(target=self._fill, args=(self._file.fileno(),), daemon=True)
        self._thread.start()

    def _fill(self, descriptor: int) -> None:
        zeros = [bytes(HUGE_PAGE)] * PAGES_AT_ONCE
        try:
            for at in range(0, self._n_bytes, HUGE_PAGE * PAGES_AT_ONCE):
                if self._is_wanted:
                    return
                os.pwritev(descriptor, zeros, at)
        except OSError:  # whoever writes the program meets it again
            os.ftruncate(descriptor, 0)

    def taken(self) -> IO[bytes]:
        """Return the file, once and for all, when the thread has done what it is at: it stands at 0 and is to
        be cut where the writing ends."""
        assert self._file is not None
        file, self._file = self._file, None
        self._stop()
        return file

    def _stop(self) -> None:
        self._is_wanted = True
        self._thread.join()

    def close(self) -> None:
        """Give the file up, if nobody has taken it."""
        if self._file is not None:
            self._stop()
            self._file.close()


@contextmanager
def early_file(model: Any, weights: str) -> Iterator[EarlyFile | None]:
    """Have a file ready for the program of `model`, whose weights are rounded to `weights`, where there is a
    CPU for it and it is worth that; else None."""
    n_bytes = min(int(n_bytes_of(model) * SHARES[weights]), MAX_BYTES)
    early = EarlyFile(n_bytes) if n_bytes >= MIN_BYTES and len(os.sched_getaffinity(0)) > 1 else None
    try:
        yield early
    finally:
        if early is not None:
            early.close()


def n_bytes_of(model: Any) -> int:
    """Return the bytes of a module's parameters, 0 for whatever is no nn.Module."""
    try:
        return sum(x.numel() * x.element_size() for x in model.parameters() if not x.is_meta)
    except Exception:  # it is no module, or one of its own kind: whatever is wrong, others say so
        return 0
