"""Files that appear whole or not at all, and open files that must stay as they are.

What a load does not need is imported where it is used: `load` of a small program takes some milliseconds."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import FileError

PIECE_BYTES = 1 << 24  # of a file that is read piece by piece
HUGE_PAGE = 2 << 20  # bytes: of most machines


MAX_PARTS = 512  # of one call to write; systems take at least 1024

#: Writes parts, which lie one behind another, at a place of a file.
WriteParts = Callable[[list[memoryview], int], object]


def write_by_huge_pages(
    pieces: Iterable[bytes | memoryview], write: WriteParts, begin: int
) -> Iterator[bytes | memoryview]:
    """Write pieces into a file from `begin` on, all that lies in one huge page by one call, and yield them: a
    system that has huge pages for files then keeps it on one."""
    parts: list[memoryview] = []
    at = filled = begin
    for piece in pieces:
        rest = memoryview(piece)
        while len(rest):
            n = min(len(rest), HUGE_PAGE - filled % HUGE_PAGE)
            parts.append(rest[:n])
            filled, rest = filled + n, rest[n:]
            if filled % HUGE_PAGE == 0:
                write(parts, at)
                parts, at = [], filled
        yield piece
    if parts:
        write(parts, at)


def write_parts(descriptor: int, parts: list[memoryview], at: int) -> None:
    """Write parts, which lie one behind another, at a place of a system's file."""
    if len(parts) > MAX_PARTS:
        parts = [memoryview(b"".join(parts))]
    n = os.pwritev(descriptor, parts, at)
    rest = memoryview(b"".join(parts))[n:] if n < sum(map(len, parts)) else memoryview(b"")
    while len(rest):  # the system may write less than it was given
        at += n
        n = os.pwrite(descriptor, rest, at)
        rest = rest[n:]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file in the folder of `path`; when the block ends, it is synced and renamed to `path`,
    never written over what is there. After an exception `path` is as it was and the temporary file is gone.

    A pipe or a device is written as it is.
    """
    import secrets

    target = Path(path)
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            yield file
        return
    beside = target.with_name(f".shapevm-{secrets.token_hex(8)}.part")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every file system offers it
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return a regular file's bytes. Raises OSError; also for a pipe or a device, which may never end."""
    with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return file.readall()


class HeldFile:
    """An open regular file, to be read again later; it is closed when nothing refers to it any more.

    `name` is for messages. Raises FileError where the file was changed since it was opened.
    """

    def __init__(self, file: IO[bytes], name: str, path: str = "") -> None:
        """Take over an open file. `path`: where it lies, "" for a file without a name."""
        self.name, self.path_when_opened = name, path
        self.url = ""  # that it was fetched from
        self._file = file
        weakref.finalize(self, file.close)
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{name}: it is no regular file")
        self._known = (status.st_size, status.st_mtime_ns)
        self._sha256 = b""  # until it is asked for

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HeldFile:
        """Open a file for reading. Raises FileError where that cannot be done."""
        name = os.fspath(path)
        try:
            file: IO[bytes] = open(path, "rb", buffering=0, opener=_open_without_waiting)  # noqa: SIM115
        except OSError as error:
            raise FileError(f"{name} cannot be opened: {error.strerror or error}") from None
        return cls(file, name, os.path.abspath(name))

    @classmethod
    def temporary(cls, write: Any, name: str, file: IO[bytes] | None = None) -> HeldFile:
        """Return a file without a name in any folder, after write(file). `file`: one that the caller has
        made, which is cut where the writing ends; None: a new one."""
        import tempfile

        made = file or tempfile.TemporaryFile(prefix="shapevm-")  # noqa: SIM115
        try:
            write(made)
            if file is not None:
                made.truncate()
            made.flush()
        except BaseException:
            made.close()
            raise
        return cls(made, name)

    @property
    def descriptor(self) -> int:
        """The open file's number."""
        return self._file.fileno()

    @property
    def path(self) -> str:
        """A path under which the open file can be read, whatever its name is now."""
        return f"/dev/fd/{self.descriptor}"

    def check(self) -> None:
        """Raise FileError where the file was changed since it was opened."""
        status = os.fstat(self.descriptor)
        if (status.st_size, status.st_mtime_ns) != self._known:
            raise FileError(
                f"{self.name}: the file was changed while its program was loaded, so it cannot be "
                "read again; load it again, and replace it by renaming another file over it"
            )

    @property
    def size(self) -> int:
        """The file's bytes."""
        return self._known[0]

    def is_at_its_path(self) -> bool:
        """Whether this very file still lies where it was opened."""
        try:
            found = os.stat(self.path_when_opened)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.descriptor))

    def sha256(self) -> bytes:
        """Return the file's SHA-256. Raises FileError as `check` does."""
        if not self._sha256:
            found = hashlib.sha256()
            for piece in self.pieces():
                found.update(piece)
            self._sha256 = found.digest()
        self.check()
        return self._sha256

    def pieces(self) -> Iterator[bytes]:
        """Yield the file's bytes, then check it. Raises FileError as `check` does."""
        self.check()
        at = 0
        while piece := os.pread(self.descriptor, PIECE_BYTES, at):
            yield piece
            at += len(piece)
        self.check()


def _open_without_waiting(path: str, flags: int) -> int:
    """Open for reading; a FIFO is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
