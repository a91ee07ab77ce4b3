"""Memory between two pages that may not be touched: an access outside of it ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from shapevm.vm.protection import NOBODY, protect

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None)


def fenced(n_bytes: int, at_end: bool) -> np.ndarray:
    """Return `n_bytes` bytes of 0, which begin where a page does or end where one ends, between two pages
    that nobody may touch. They live as long as the array."""
    room = -(-n_bytes // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (start, start + PAGE + room):
        protect(page, PAGE, NOBODY)
    first = PAGE + (room - n_bytes if at_end else 0)
    return np.frombuffer(memory, np.uint8)[first : first + n_bytes]


def fenced_copy(array: np.ndarray, at_end: bool) -> np.ndarray:
    """Return a copy of a contiguous array in fenced memory."""
    copy = fenced(array.nbytes, at_end).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def is_fence_loaded() -> bool:
    """Whether this process allocates tensors by tests/fence.c (`make fenced`)."""
    return hasattr(_libc, "fence_numpy")


def fence_numpy() -> None:
    """Let numpy allocate arrays by tests/fence.c, in this thread."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    handler = ctypes.addressof(ctypes.c_char.in_dll(_libc, "fence_numpy"))
    table = api.PyCapsule_GetPointer(np._core._multiarray_umath._ARRAY_API, None)
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(
        ctypes.c_void_p.from_address(table + 304 * ctypes.sizeof(ctypes.c_void_p)).value
    )
    set_handler(api.PyCapsule_New(handler, b"mem_handler", None))
