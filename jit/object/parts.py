"""Compiled functions that kernels have in common, by target and text: in memory, and beside the kernels on
disk, where other processes find them.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from struct import Struct

from ...vm.fork_lock import ForkLock
from ..llvm.function import Function
from .cache import DiskCache, generator_version
from .link import Blob

MAX_BYTES = 8 << 20  # of compiled functions that are remembered: 1-4 KB each part, 60 KB a generic kernel
#: Entry, alignment, constant pool and how many numbers a blob on disk has; those and its code follow.
_HEADER, _NUMBER = Struct("<QQQQ"), Struct("<IIi")


class Parts:
    """Compiled functions: kernels for other shapes mostly have the same parts, and often differ only in their
    constant pool.

    A new part is compiled with its kernel in one run of LLVM: a separate run costs 1 to 2 ms more, most of a
    small part's time.
    """

    def __init__(self) -> None:
        self._blobs: dict[tuple[str, bytes], Blob] = {}
        self._n_bytes = 0
        self._lock = ForkLock()

    def known(
        self, f: Function, target: str, folder: Path | None = None, is_kept: bool = False
    ) -> dict[str, Blob]:
        """Return a kernel's code by name, if it was compiled before, else that of those of its parts that
        were, here or by a process with the same cache: its folder. `is_kept`: the kernel itself may be there,
        too."""
        blob = self._remembered(f, target) or (self._read(f, target, folder) if is_kept else None)
        return {f.name: blob} if blob is not None else self._of_parts(f, target, folder)

    def _of_parts(self, f: Function, target: str, folder: Path | None) -> dict[str, Blob]:
        found: dict[str, Blob] = {}
        for part in f.parts.values():
            blob = self._remembered(part, target) or self._read(part, target, folder)
            found |= {part.name: blob} if blob is not None else self._of_parts(part, target, folder)
        return found

    def _remembered(self, f: Function, target: str) -> Blob | None:
        key = target, digest(f)
        with self._lock:
            blob = self._blobs.pop(key, None)
            if blob is not None:
                self._blobs[key] = blob  # used last, forgotten last
            return blob

    def _read(self, part: Function, target: str, folder: Path | None) -> Blob | None:
        record = _cache(folder).get(_name(part, target)) if folder is not None else None
        if record is None or len(record) < _HEADER.size:
            return None
        entry, alignment, pool, n_written = _HEADER.unpack_from(record)
        start = _HEADER.size + n_written * _NUMBER.size
        numbers = tuple(_NUMBER.iter_unpack(record[_HEADER.size : start]))
        blob = Blob(record[start:], entry, alignment, pool, numbers)
        self._remember(part, target, blob)
        return blob

    def add(self, f: Function, target: str, blob: Blob, folder: Path | None = None) -> None:
        """Remember a function's code, in the cache too if there is one."""
        self._remember(f, target, blob)
        if folder is not None:
            header = _HEADER.pack(blob.entry, blob.alignment, blob.pool, len(blob.numbers))
            numbers = b"".join(_NUMBER.pack(*number) for number in blob.numbers)
            _cache(folder).put(_name(f, target), header + numbers + blob.code)

    def _remember(self, f: Function, target: str, blob: Blob) -> None:
        """Remember a function's code, and forget those used longest ago if there are many."""
        key = target, digest(f)
        with self._lock:
            self._n_bytes += len(blob.code) - self._bytes_of(self._blobs.pop(key, None))
            self._blobs[key] = blob
            while self._n_bytes > MAX_BYTES and len(self._blobs) > 1:
                self._n_bytes -= self._bytes_of(self._blobs.pop(next(iter(self._blobs))))

    @staticmethod
    def _bytes_of(blob: Blob | None) -> int:
        return 0 if blob is None else len(blob.code)


@cache
def _cache(folder: Path) -> DiskCache:
    """Return the cache in a folder; who keeps kernels there keeps it from growing too large."""
    return DiskCache(folder, None)


def digest(f: Function) -> bytes:
    """Return the digest of a finished function and its parts, 20 to 100 KB of text; cached with it."""
    if not f.digest:
        own = blake2b(f.text().encode(), digest_size=32)
        for part in f.parts.values():
            own.update(digest(part))
        f.digest = own.digest()
    return f.digest


def _name(part: Function, target: str) -> str:
    """Return the key of a part on disk."""
    text = f"part {target} {generator_version()} ".encode()
    return blake2b(text + digest(part), digest_size=32).hexdigest()
