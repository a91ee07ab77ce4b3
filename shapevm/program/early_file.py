"""The file of a program, created on another CPU while its model is exported.

Allocating the pages of a file takes longer than copying weights into them, on a virtual machine up to ten
times as long. So the pages are filled with zeros before their content is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ..vm.files import HUGE_PAGE, temporary_file
from ..vm.native import Thread

MIN_BYTES = 16 << 20  # of weights: fewer are written in a few milliseconds
MAX_BYTES = 1 << 30  # an export takes no longer than filling this many
PAGES_AT_ONCE = 8  # huge pages per call of write: the thread takes the GIL after each
#: The size of a weight in the file as a share of its f32 size, by the dtype to which weights are rounded.
SHARES = {"f32": 1.0, "bf16": 0.5, "f16": 0.5, "int8": 0.25, "int4": 0.125}


class EarlyFile:
    """A temporary file that a thread fills with up to `n_bytes`, until it is taken."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes
        self._is_wanted = False
        self._file: IO[bytes] | None = temporary_file()
        self._thread = Thread(self._fill, self._file.fileno())

    def _fill(self, descriptor: int) -> None:
        zeros = [bytes(HUGE_PAGE)] * PAGES_AT_ONCE
        try:
            for at in range(0, self._n_bytes, HUGE_PAGE * PAGES_AT_ONCE):
                if self._is_wanted:
                    return
                os.pwritev(descriptor, zeros, at)
        except OSError:  # writing the program meets the error again
            os.ftruncate(descriptor, 0)

    def taken(self) -> IO[bytes]:
        """Return the file, which can be taken once, when the thread has finished its current step. Its
        position is 0; truncate it where the writing ends."""
        assert self._file is not None
        file, self._file = self._file, None
        self._stop()
        return file

    def _stop(self) -> None:
        self._is_wanted = True
        self._thread.join()

    def close(self) -> None:
        """Discard the file, if it was not taken."""
        if self._file is not None:
            self._stop()
            self._file.close()


@contextmanager
def early_file(model: Any, weights: str) -> Iterator[EarlyFile | None]:
    """Start a file for the program of `model`, whose weights are rounded to `weights`; None if there is no
    spare CPU or it does not pay."""
    n_bytes = min(int(n_bytes_of(model) * SHARES[weights]), MAX_BYTES)
    early = EarlyFile(n_bytes) if n_bytes >= MIN_BYTES and len(os.sched_getaffinity(0)) > 1 else None
    try:
        yield early
    finally:
        if early is not None:
            early.close()


def n_bytes_of(model: Any) -> int:
    """Return the bytes of a module's parameters, 0 unless it is an nn.Module."""
    try:
        return sum(x.numel() * x.element_size() for x in model.parameters() if not x.is_meta)
    except Exception:  # not a module, or an unusual one: others report the problem
        return 0
