"""Protection of pages of this process's memory."""

from __future__ import annotations

import ctypes

NOBODY = 0  # PROT_NONE: every access ends the process
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def protect(address: int, n_bytes: int, access: int) -> None:
    """Allow only `access`, NOBODY or the sum of `mmap`'s PROT_ constants, to whole pages. Raises OSError if
    the system forbids it."""
    if _libc.mprotect(address, n_bytes, access) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
