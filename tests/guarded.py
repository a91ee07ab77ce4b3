"""Arrays between pages that may not be touched: an access outside of one ends the process at once."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np
from shapevm.vm.protection import NOBODY, protect

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE = mmap.PAGESIZE


def _mapped(n_pages: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place = _libc.mmap(None, n_pages * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if place in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"mmap of {n_pages} pages: errno {ctypes.get_errno()}")
    return int(place)


def guarded(array: np.ndarray[Any, Any], at_end: bool = True, is_read_only: bool = False) -> np.ndarray:
    """Return a contiguous copy of `array` in pages of its own between two of PROT_NONE.

    `at_end`: the copy ends where its last page ends, else it begins where its first one does. The bytes of
    its pages beside it are 0xA5. `is_read_only`: its pages cannot be written.
    """
    n_pages = max(-(-array.nbytes // PAGE), 1)
    place = _mapped(n_pages + 2)
    memory = (ctypes.c_uint8 * (n_pages * PAGE)).from_address(place + PAGE)
    weakref.finalize(memory, _libc.munmap, place, (n_pages + 2) * PAGE)
    pages = np.frombuffer(memory, np.uint8)
    pages[:] = 0xA5
    first = n_pages * PAGE - array.nbytes if at_end else 0
    made = pages[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    for guard in (place, place + (n_pages + 1) * PAGE):
        protect(guard, PAGE, NOBODY)
    if is_read_only:
        protect(place + PAGE, n_pages * PAGE, mmap.PROT_READ)
        made.flags.writeable = False
    return made


def is_untouched_beside(made: np.ndarray) -> bool:
    """Return whether the bytes beside what `guarded` returned, in its own pages, are still 0xA5."""
    pages = made
    while isinstance(pages.base, np.ndarray):
        pages = pages.base
    before = made.ctypes.data - pages.ctypes.data
    return bool(np.all(pages[:before] == 0xA5) and np.all(pages[before + made.nbytes :] == 0xA5))
