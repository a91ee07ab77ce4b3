"""The disk cache of compiled kernels: content-addressed, atomic, capped, and sealed (see `seal`).

A key is the SHA-256 over everything that decides the machine code: spec, sizes, target, schedule, and the
code generator (see `generator`). An entry whose HMAC does not match is deleted and counts as absent. Writers
write aside and rename, so readers and other processes never see half an entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import stat
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...vm.program import KernelKey, format_key
from .generator import generator_sources, llvm_version
from .seal import TAG_BYTES, Seal, check_folder, private_seal, read_regular

_FOLDERS = 256  # entries are in folders by the first two digits of their keys: evenly
_CLAIM_DIGITS = 3  # of a key: keys that begin alike wait for each other
CLAIM_SECONDS = 20.0
_LOG = logging.getLogger("shapevm")
_REPORTED: set[str] = set()  # caches of which the log has said that they cannot be used
_LOOKS = 16  # the directory is scanned when this fraction of `max_bytes` was added since the last time


@functools.cache
def generator_version() -> str:
    """Return a hash of the code generator: its code and llvmlite's version."""
    digest = hashlib.sha256(llvm_version())
    for name, code in generator_sources().items():
        digest.update(name.encode() + b"\0" + code)
    return digest.hexdigest()


def cache_key(spec_hash: str, key: KernelKey, target: str, schedule: str | None = None) -> str:
    """Return the name under which the kernel that is compiled for `key` is kept."""
    text = "\n".join([spec_hash, format_key(key), target, schedule or "", generator_version()])
    return hashlib.sha256(text.encode()).hexdigest()


def report_unusable(cache: str, error: Exception) -> None:
    """Log, once in a process, that a cache cannot be used: kernels are compiled that it may have."""
    if cache not in _REPORTED:
        _REPORTED.add(cache)
        _LOG.warning("the kernel cache %s cannot be used (%s): kernels are compiled anew", cache, error)


class DiskCache:
    """Bytes by key under `directory` (made on first use), at most about `max_bytes` (None: any number), the
    least recently used are deleted first. `n_failures`: reads and writes that the system refused, and those
    that were skipped because the directory could be another user's.

    `seal`: that of a cache shared by several users; None: the cache is private. Files in a shared one have
    the directory's group and are readable by all who can read the directory.
    """

    def __init__(self, directory: Path, max_bytes: int | None, seal: Seal | None = None) -> None:
        self.directory = directory
        self._shared_seal = seal
        self._known_seal: Seal | None = None
        self.max_bytes = max_bytes
        self.n_failures = 0
        self._put_bytes: int | None = None  # since the last look; None: there was none

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key[2:]

    def _seal(self) -> Seal:
        """Return the seal of the directory. Raises OSError if there is none, or if others may have made
        it."""
        if self._known_seal is None:
            shared = self._shared_seal
            if shared is not None:
                self._check_shared(self.directory)
            self._known_seal = shared or private_seal(self.directory)
        return self._known_seal

    @property
    def is_shared(self) -> bool:
        """Whether several users have it."""
        return self._shared_seal is not None

    def _check_shared(self, folder: Path) -> None:
        """Raise PermissionError for a world-writable folder, unless a secret authenticates entries."""
        if self._shared_seal is not None and not self._shared_seal.is_keyed:
            check_folder(folder, 0o002)

    def get(self, key: str) -> bytes | None:
        """Return the payload of `key`, None if there is no valid entry."""
        path = self._path(key)
        try:
            seal = self._seal()
            if self.is_shared:
                self._check_shared(path.parent)
            entry = read_regular(path, 0o777 if seal.is_keyed else 0o775)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fail(error)
            return None
        payload = seal.open(key, entry)
        if payload is None:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep `payload`. A cache that cannot be written (full or read-only disk) is unchanged."""
        path = self._path(key)
        try:
            self._make_folder()
            entry = self._seal().seal(key, payload)
            self._make_inner(path.parent)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(entry)
                    self._share(handle, 0o444)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            self._fail(error)
            return
        if self.max_bytes is None:
            return
        if self._put_bytes is None:  # their number, up to 200,000, is estimated from one folder
            self._put_bytes = 0
            is_full = _FOLDERS * _bytes_in(path.parent) > self.max_bytes + self.max_bytes // _LOOKS
        else:
            self._put_bytes += len(payload) + TAG_BYTES
            is_full = self._put_bytes > self.max_bytes // _LOOKS
        if is_full:
            self.trim()

    @contextlib.contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Let one process at a time make the entry of `key`: others wait at most CLAIM_SECONDS.

        A process that dies releases it. Without locks, nobody waits.
        """
        try:
            handle = self._claim_file(key)
        except OSError:
            yield
            return
        try:
            _lock(handle)
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked since has the file open, too
            os.close(handle)

    def _claim_file(self, key: str) -> int:
        """Return the open lock file for `key` and others with the same prefix."""
        self._make_folder()
        self._seal()
        place = self._make_inner(self.directory / "claims") / key[:_CLAIM_DIGITS]
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            handle = os.open(place, flags | os.O_CREAT | os.O_EXCL, 0o600)
            self._share(handle, 0o444)
            return handle
        return os.open(place, flags)

    def _make_folder(self) -> None:
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o777 if self.is_shared else 0o700, exist_ok=True)

    def _make_inner(self, folder: Path) -> Path:
        """Return a folder of the directory, made where it is missing: others see it when it is shared."""
        if folder.is_dir():
            return folder
        made = tempfile.mkdtemp(dir=self.directory, prefix=".")
        handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._share(handle, 0o7777)
            os.rename(made, folder)
        except OSError:
            os.rmdir(made)
            if not folder.is_dir():  # else another process was quicker
                raise
        finally:
            os.close(handle)
        return folder

    def _share(self, handle: int, bits: int) -> None:
        """Give what was made in a shared directory the directory's group and those `bits` of its mode."""
        if not self.is_shared:
            return
        status = os.stat(self.directory)
        if os.fstat(handle).st_gid != status.st_gid:
            with contextlib.suppress(PermissionError):  # of a group that the user is not in
                os.fchown(handle, -1, status.st_gid)
        os.fchmod(handle, 0o600 | stat.S_IMODE(status.st_mode) & bits)

    def _fail(self, error: OSError) -> None:
        self.n_failures += 1
        report_unusable(str(self.directory), error)

    def trim(self) -> None:
        """Delete the least recently used entries beyond `max_bytes`.

        The directory is scanned twice, so only the age and size of each entry are kept in memory.
        """
        if self.max_bytes is None:
            return
        self._put_bytes = 0
        ages, sizes = array("q"), array("q")
        for _, status in self._entries():
            ages.append(status.st_mtime_ns)
            sizes.append(status.st_size)
        if sum(sizes) <= self.max_bytes:
            return
        left = sum(sizes) - self.max_bytes
        order = np.argsort(ages)
        gone = int(np.searchsorted(np.cumsum(np.asarray(sizes)[order]), left))
        youngest = ages[order[min(gone, len(order) - 1)]]
        for path, status in self._entries():
            if left > 0 and status.st_mtime_ns <= youngest:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    left -= status.st_size

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path and the state of each entry."""
        for folder in self.directory.glob("??"):
            yield from _entries_of(folder)


def _lock(handle: int) -> None:
    """Lock a file; give up after CLAIM_SECONDS, because its owner may be stopped, and if a file system has no
    locks."""
    end, pause = time.monotonic() + CLAIM_SECONDS, 0.0005
    while time.monotonic() < end:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        except OSError:
            return


def _entries_of(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield entry.path, entry.stat()


def _bytes_in(folder: Path) -> int:
    return sum(status.st_size for _, status in _entries_of(folder))
