"""Hashes of the sections that are too large for SHA-256: XXH3-128 of every 1 MiB, as in the C runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ._runtime import ffi, lib
from .layout import BY_NAME, CHUNK


def hash_rows(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the record `chunk` of every CHUNK bytes of a section that comes in pieces. The section's size is
    a multiple of CHUNKED_ALIGN."""
    buffer, filled = bytearray(CHUNK), 0
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            n = min(len(rest), CHUNK - filled)
            if n == CHUNK:  # a whole chunk is hashed in place
                yield _hash_row(rest[:n])
                rest = rest[n:]
                continue
            buffer[filled : filled + n] = rest[:n]
            filled, rest = filled + n, rest[n:]
            if filled == CHUNK:
                yield _hash_row(buffer)
                filled = 0
    if filled:
        yield _hash_row(buffer[:filled])


def _hash_row(data: bytearray | memoryview) -> bytes:
    halves = ffi.new("uint64_t[2]")
    lib.svm_hash_chunk(ffi.from_buffer(data), len(data), halves)
    return BY_NAME["chunk"].pack(low=halves[0], high=halves[1])
