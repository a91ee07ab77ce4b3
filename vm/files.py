"""Files that appear whole or not at all.

Modules that a load does not need are imported on use: loading a small program takes some milliseconds."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from .errors import FileError

HUGE_PAGE = 2 << 20  # bytes, on most machines


MAX_FILE_BYTES = 1 << 31  # of a file that is read whole
MAX_TEXT_BYTES = 1 << 24  # of a signature, a profile, a table: files of JSON
MAX_LINKS = 40  # at the end of a path
MAX_PARTS = 512  # of one call to write; systems accept at least 1024

#: Writes consecutive parts at a position of a file.
WriteParts = Callable[[list[memoryview], int], object]


def write_by_huge_pages(
    pieces: Iterable[bytes | memoryview], write: WriteParts, begin: int
) -> Iterator[bytes | memoryview]:
    """Write pieces into a file from `begin` on, with one call for each huge page, and yield them: a system
    with huge pages for files then uses them."""
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
    """Write consecutive parts at a position of an operating-system file."""
    if len(parts) > MAX_PARTS:
        parts = [memoryview(b"".join(parts))]
    n = os.pwritev(descriptor, parts, at)
    rest = memoryview(b"".join(parts))[n:] if n < sum(map(len, parts)) else memoryview(b"")
    while len(rest):  # the system may write less than it was given
        at += n
        n = os.pwrite(descriptor, rest, at)
        rest = rest[n:]


def temporary_file() -> IO[bytes]:
    """Open a file without a name, in memory if no folder is writable. Raises OSError."""
    import tempfile

    try:
        return tempfile.TemporaryFile(prefix="shapevm-")
    except FileNotFoundError:  # tempfile finds no folder
        return os.fdopen(os.memfd_create("shapevm"), "w+b")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a temporary file, whose content is at `path` when the block ends. After an exception `path` is
    unchanged and the temporary file is removed.

    The temporary file is created beside `path`, gets the owner and mode of the existing file, is synced and
    renamed; links are followed. Paths that a file cannot be renamed to are written in place: devices, pipes,
    open files of this process (/dev/stdout), mounted files, and files whose folder is not writable or whose
    owner cannot be kept. Raises OSError.
    """
    check_writable(path)
    target, own = _followed(path)
    beside, file = (None, None) if own is not None else _beside(target)
    try:
        with file or temporary_file() as made:  # content written in place is completed first
            yield made
            made.flush()
            if beside is None:
                _copy(made, target, own)
            else:
                os.fsync(made.fileno())
                _put_in_place(beside, made, target)
    finally:
        if beside:
            with suppress(OSError):
                os.unlink(beside)


def system_path(path: str | os.PathLike[str]) -> str:
    """Return a path for the system. Raises OSError for a name that no file can have."""
    text = os.fsdecode(path)
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise OSError(errno.EINVAL, "no file can have that name", ascii(text))
    return text


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError if `replacing` could not write `path`."""
    target, own = _followed(path)
    if own is not None:
        os.fstat(own)
        return
    folder, is_there = os.path.dirname(target) or ".", os.path.exists(target)
    code = 0
    if os.path.isdir(target):
        code = errno.EISDIR
    elif not os.path.isdir(folder):
        code = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
    elif not any(os.access(place, os.W_OK) for place in [folder, target][: 1 + is_there]):
        code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
    if code:
        raise OSError(code, os.strerror(code), os.fspath(path))


def descriptor_of(path: str | os.PathLike[str]) -> int | None:
    """Return the open file of this process that a path denotes, such as 1 for /dev/stdout; None for other
    paths. Raises OSError."""
    return _followed(path)[1]


def _followed(path: str | os.PathLike[str]) -> tuple[str, int | None]:
    """Follow the links at the end of a path, whose target need not exist. Return the target, and the number
    of the open file of this process that it denotes. Raises OSError."""
    target = system_path(path)
    for _ in range(MAX_LINKS):
        folder, name = os.path.split(target)
        if name.isdecimal() and os.path.realpath(folder) == os.path.realpath("/proc/self/fd"):
            return target, int(name)
        if not os.path.islink(target):
            return target, None
        target = os.path.join(folder, os.readlink(target))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


def _beside(target: str) -> tuple[str, IO[bytes]] | tuple[None, None]:
    """Open a new file that can replace `target`; (None, None) if that must be written in place. Raises
    OSError if neither is possible."""
    import secrets

    there = os.stat(target) if os.path.exists(target) else None
    if there is not None and not stat.S_ISREG(there.st_mode):
        return None, None
    path = os.path.join(os.path.dirname(target), f".shapevm-{secrets.token_hex(8)}.part")
    try:
        file = open(path, "x+b")  # noqa: SIM115
    except OSError:
        if there is None or not os.access(target, os.W_OK):
            raise
        return None, None
    try:
        if there is not None:
            _make_alike(file.fileno(), there)
    except OSError:
        file.close()
        os.unlink(path)
        return None, None
    return path, file


def _make_alike(descriptor: int, other: os.stat_result) -> None:
    """Give a file the owner and mode of another. Raises OSError."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (other.st_uid, other.st_gid):
        os.fchown(descriptor, other.st_uid, other.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(other.st_mode))


def _copy(made: IO[bytes], target: str, own: int | None) -> None:
    """Write a file's bytes over `target`, or into the open file `own`."""
    import shutil

    made.seek(0)
    with os.fdopen(os.dup(own), "wb") if own is not None else open(target, "wb") as file:
        shutil.copyfileobj(made, file)


def _put_in_place(beside: str, made: IO[bytes], target: str) -> None:
    """Rename a whole file to `target`, or copy it there: a mounted file cannot be replaced."""
    try:
        os.replace(beside, target)
    except OSError:
        _copy(made, target, None)
    else:
        _sync_folder(os.path.dirname(target) or ".")


def _sync_folder(folder: str) -> None:
    with suppress(OSError):  # not every file system offers it
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_regular(path: str | os.PathLike[str], most: int = MAX_TEXT_BYTES) -> bytes:
    """Return a regular file's bytes. Raises OSError; also for more than `most` bytes, and for a pipe or a
    device, which may never end."""
    with open(system_path(path), "rb", buffering=0, opener=open_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        if status.st_size > most:
            sentence = f"it has {status.st_size} bytes; at most {most} are allowed"
            raise OSError(errno.EFBIG, sentence, os.fspath(path))
        try:
            return file.readall()
        except MemoryError:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), os.fspath(path)) from None


def content_of(path: str | os.PathLike[str], most: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a file that a caller names. Raises FileError if it cannot be read, or has more
    than `most` bytes."""
    try:
        return read_regular(path, most)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None


def open_without_waiting(path: str, flags: int) -> int:
    """Open for reading, without waiting for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path`, whole or not at all. Raises FileError if that fails."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, whole or not at all. Raises FileError if that fails."""
    with writing(path) as file:
        file.write(text.encode())
