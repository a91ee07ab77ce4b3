"""Artifacts at URLs: fetched once into a private folder of the user, under their SHA-256, so that all
processes of a machine map the same file. What is no artifact, or longer than its header states, is not
fetched to its end.

A file of this folder is opened only if the folder belongs to the user, nobody else may write to it, and the
file's SHA-256 is its name. If the digest is known beforehand, as in pickles, a valid file is not fetched
again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from ..settings import settings
from ..vm.errors import ArgumentError, ArtifactError, Error, FileError
from ..vm.held_file import HEAD_BYTES, PIECE_BYTES, HeldFile
from .kept import kept_folder, locked, trim

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(path: Any) -> bool:
    """Whether `path` is a URL: text that starts like `s3://` or `simplecache::s3://`."""
    return isinstance(path, str) and _URL.match(path) is not None


def open_artifact(path: str | os.PathLike[str], digest: bytes | None = None) -> HeldFile:
    """Open an artifact at a path or a URL. `digest`: the SHA-256 that a URL's file must have.

    Raises FileError if it cannot be read, ArtifactError for a URL's file with another digest,
    ArgumentError for a URL of an unknown protocol.
    """
    if not isinstance(path, str) or not is_url(path):
        return HeldFile.open(path)
    if path.startswith("file://"):
        parts = urlsplit(path)
        host = (
            "" if parts.netloc == "localhost" else parts.netloc
        )  # for a relative path it is the first folder
        return HeldFile.open(unquote(host + parts.path))
    folder = kept_folder()
    if folder is None:
        held = HeldFile.temporary(lambda file: _fetch(path, file), path)
        held.url = path
        _check(held, path, digest)
        return held
    try:
        return _cached(path, digest, folder)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: the folder of fetched artifacts cannot be used: {error}") from None


def _cached(url: str, digest: bytes | None, folder: Path) -> HeldFile:
    """Return the file of `folder` with the content of `url`, fetched if necessary."""
    with locked(folder):  # processes that start together fetch only once
        held = _sound(folder, digest, url) if digest is not None else None
        return held or _fetched(url, digest, folder)


def _fetched(url: str, digest: bytes | None, folder: Path) -> HeldFile:
    """Fetch `url` into `folder` and open it there; an existing file with the same bytes is kept."""
    part = folder / f".{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            found = _fetch(url, file)
            file.flush()
            os.fsync(file.fileno())
        if digest is not None and found != digest:
            raise ArtifactError(f"{url}: its SHA-256 is {found.hex()}, not {digest.hex()}")
        held = _sound(folder, found, url)
        if held is None:
            os.replace(part, folder / _name(found))
            trim(folder, settings.artifacts_mib << 20, _name(found))
            held = _sound(folder, found, url)
    finally:
        part.unlink(missing_ok=True)
    if held is None:
        raise FileError(f"{url}: {folder} does not hold what is written to it")
    return held


def _sound(folder: Path, digest: bytes, url: str) -> HeldFile | None:
    """Open the file with this digest; None if it is missing or has other bytes."""
    path = folder / _name(digest)
    try:
        os.utime(path)  # the most recent are kept
        held = HeldFile.open(path)
    except OSError:
        return None
    if held.sha256() != digest:
        return None
    held.url, held.name = url, url
    return held


def _check(held: HeldFile, url: str, digest: bytes | None) -> None:
    if digest is not None and held.sha256() != digest:
        raise ArtifactError(f"{url}: its SHA-256 is {held.sha256().hex()}, not {digest.hex()}")


def _fetch(url: str, to: IO[bytes]) -> bytes:
    """Copy the content of `url` to a file and return its SHA-256."""
    from ..compiler.packages import MissingPackage

    found = hashlib.sha256()
    try:
        import fsspec

        with fsspec.open(url, "rb") as file:
            for piece in _pieces(file, url, _free_bytes(to)):
                found.update(piece)
                to.write(piece)
    except Error:
        raise
    except ImportError as error:
        raise MissingPackage(
            f"{url} needs fsspec and its package for that protocol ({error}): install shapevm[fleet]"
        ) from None
    except ValueError as error:
        raise ArgumentError(f"{url} cannot be opened: {error}") from None
    except Exception as error:  # third-party file systems may raise anything
        raise FileError(f"{url} cannot be read: {type(error).__name__}: {error}") from None
    return found.digest()


def _pieces(file: IO[bytes], url: str, free: int) -> Iterator[bytes]:
    """Yield the content of a file, at most as many bytes as its header states.

    Raises ArtifactError for other bytes than an artifact's, FileError if there are not `free` bytes for it.
    """
    head, n_read, size = b"", 0, 0
    while piece := file.read(PIECE_BYTES):
        n_read += len(piece)
        if not size:
            head += piece
            size = _stated_size(head, url) if len(head) >= HEAD_BYTES else 0
        if n_read > size > 0:
            raise ArtifactError(f"{url}: it has more than the {size} bytes that its header states")
        if size > free:
            raise FileError(f"{url}: its {size} bytes do not fit into the {free} that are free on this disk")
        yield piece


def _stated_size(head: bytes, url: str) -> int:
    from ..vm.reader import stated_size

    try:
        return stated_size(head)
    except ArtifactError as error:
        raise ArtifactError(f"{url}: {error}") from None


def _free_bytes(file: IO[bytes]) -> int:
    """Return how many bytes may still be written to the disk of an open file."""
    disk = os.fstatvfs(file.fileno())
    return disk.f_bavail * disk.f_frsize


def _name(digest: bytes) -> str:
    return f"{digest.hex()}.svm"
