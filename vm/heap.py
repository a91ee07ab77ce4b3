"""Memory of the C library's heap."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Return free pages to the system (a few ms). Does nothing if the C library has no such function (glibc
    has)."""
    if (found := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        found(ctypes.c_size_t(0))
