"""Open artifacts that must not change, to be read again."""

from __future__ import annotations

import hashlib
import os
import stat
import time
import weakref
from collections.abc import Iterator
from typing import IO, Any

from .errors import Error, FileError
from .files import open_without_waiting, system_path, temporary_file

PIECE_BYTES = 1 << 24  # of a file that is read in pieces
HEAD_BYTES = 4096  # of an artifact: at least its header and section table
CLOCK_SECONDS = 0.01  # upper bound of the resolution of file-system clocks


class HeldFile:
    """An open artifact, to be read again later; it is closed when nothing refers to it.

    `name` is for messages. Raises FileError if the file was changed since it was opened.
    """

    def __init__(self, file: IO[bytes], name: str, path: str = "") -> None:
        """Take over an open file. `path`: its path, "" for a file without a name."""
        self.name, self.path_when_opened = name, path
        self.url = ""  # from which it was fetched
        self._file = file
        weakref.finalize(self, file.close)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileError(f"{name}: it is no regular file")
        self._known = self._now()
        self._head = os.pread(file.fileno(), HEAD_BYTES, 0)  # contains a hash of all hashes
        self._sha256 = b""  # until it is requested

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HeldFile:
        """Open a file for reading. Raises FileError if that fails."""
        name = os.fspath(path)
        try:
            place = system_path(path)
            file: IO[bytes] = open(place, "rb", buffering=0, opener=open_without_waiting)  # noqa: SIM115
        except OSError as error:
            raise FileError(f"{name} cannot be opened: {error.strerror or error}") from None
        return cls(file, name, os.path.abspath(name))

    @classmethod
    def temporary(cls, write: Any, name: str, file: IO[bytes] | None = None) -> HeldFile:
        """Return a file without a name, after write(file). `file`: the caller's, which is truncated where the
        writing ends; None: a new one."""
        made = file or temporary_file()
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
        """A path by which the open file can be read, whatever its name is now."""
        return f"/dev/fd/{self.descriptor}"

    def check(self) -> None:
        """Raise FileError if the file was changed since it was opened."""
        if self._now() != self._known and not self._is_as_opened():
            raise FileError(
                f"{self.name}: the file was changed while its program was loaded, so it cannot be "
                "read again; load it again, and replace it by renaming another file over it"
            )

    def _now(self) -> tuple[int, int]:
        """Return the file's size and time."""
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def _is_as_opened(self) -> bool:
        """Whether the file, whose time has changed, still has the same bytes: the same head, and content that
        matches its hashes. If so, the new time is recorded."""
        from .artifact import read  # a load does not need this

        time.sleep(CLOCK_SECONDS)  # a later change gives the file another time
        now = self._now()
        try:
            if now[0] != self.size or os.pread(self.descriptor, HEAD_BYTES, 0) != self._head:
                return False
            read(self.path)
        except (Error, OSError):
            return False
        if self._now() != now:
            return False
        self._known = now
        return True

    @property
    def size(self) -> int:
        """The file's bytes."""
        return self._known[0]

    def is_at_its_path(self) -> bool:
        """Whether this very file is still at the path where it was opened."""
        try:
            found = os.stat(self.path_when_opened)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.descriptor))

    def sha256(self) -> bytes:
        """Return the file's SHA-256. Raises FileError like `check`."""
        if not self._sha256:
            found = hashlib.sha256()
            for piece in self.pieces():
                found.update(piece)
            self._sha256 = found.digest()
        self.check()
        return self._sha256

    def pieces(self) -> Iterator[bytes]:
        """Yield the file's bytes, then check it. Raises FileError like `check`."""
        self.check()
        at = 0
        while piece := os.pread(self.descriptor, PIECE_BYTES, at):
            yield piece
            at += len(piece)
        self.check()
