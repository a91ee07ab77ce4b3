"""Asking for cache lines before they are read."""

from __future__ import annotations

from .function import Function, Int, Value

LINE_BYTES = 64  # of a cache line
_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"


def unread(f: Function, base: Value, index: Int, element: str = "float") -> Value:
    """Return an address that may lie outside the buffer: it is only prefetched."""
    if index == 0:
        return base
    return f.op("ptr", f"getelementptr {element}, ptr {base.name}, i64 {f.i64(index).name}")


def prefetch(g: Function, address: Value, level: int) -> None:
    """Ask for the cache line at `address`, for the first-level cache (3), the second (2) or the third (1)."""
    g.declarations["llvm.prefetch.p0"] = _PREFETCH
    g.do(f"call void @llvm.prefetch.p0(ptr {address.name}, i32 0, i32 {level}, i32 1)")
