"""Arrays between pages that may not be touched end the process that touches what is beside them."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest

from .guarded import guarded, is_untouched_beside


def _signal_of(touch: Callable[[], object]) -> int:
    """Return the signal by which a process ends that calls `touch`, 0 for none."""
    child = os.fork()
    if not child:
        faulthandler.disable()
        touch()
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def _read(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def _write(address: int) -> None:
    ctypes.c_uint8.from_address(address).value = 1


@pytest.mark.parametrize("n", [1, 3, 1024, 1500])
def test_bytes_beside_an_array_cannot_be_touched_unseen(n: int) -> None:
    behind, before = guarded(np.arange(n, dtype=np.int32)), guarded(np.arange(n, dtype=np.int32), False)
    assert np.array_equal(behind, np.arange(n)) and np.array_equal(before, np.arange(n))
    assert _signal_of(lambda: _read(behind.ctypes.data + behind.nbytes)) == signal.SIGSEGV
    assert _signal_of(lambda: _read(before.ctypes.data - 1)) == signal.SIGSEGV
    assert is_untouched_beside(behind) and is_untouched_beside(before)
    if n * 4 % 4096:
        _write(behind.ctypes.data - 1)
        _write(before.ctypes.data + before.nbytes)
        assert not is_untouched_beside(behind) and not is_untouched_beside(before)


def test_read_only_and_empty_arrays() -> None:
    fixed = guarded(np.arange(3), is_read_only=True)
    assert _signal_of(lambda: _write(fixed.ctypes.data)) == signal.SIGSEGV and fixed.sum() == 3
    for at_end in (True, False):
        assert is_untouched_beside(guarded(np.zeros((0, 5)), at_end))
