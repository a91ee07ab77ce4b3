"""Artifacts at URLs: fetched once into a folder of the user's own, where each lies under its SHA-256, so that
all processes of a machine map the same file.

A file of this folder is opened only where the folder belongs to the user, nobody else may write to it, and
the file's SHA-256 is its name. Where the digest is known beforehand, as in pickles, a sound file is not
fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from .settings import settings
from .vm.errors import ArgumentError, ArtifactError, FileError
from .vm.files import PIECE_BYTES, HeldFile

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")


def is_url(path: Any) -> bool:
    """Whether `path` is a URL: text that begins as `s3://` does."""
    return isinstance(path, str) and _URL.match(path) is not None


def open_artifact(path: str | os.PathLike[str], digest: bytes | None = None) -> HeldFile:
    """Open an artifact at a path or a URL. `digest`: the SHA-256 that a URL's file must have.

    Raises FileError where it cannot be read, ArtifactError for a URL's file with another digest,
    ArgumentError for a URL of an unknown protocol.
    """
    if not isinstance(path, str) or not is_url(path):
        return HeldFile.open(path)
    if path.startswith("file://"):
        return HeldFile.open(unquote(urlsplit(path).path))
    folder = settings.artifact_path()
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
    """Return the file of `folder` with the bytes that `url` has, fetched where need be."""
    from .jit.object.seal import check_folder

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder, 0o022, os.geteuid())
    with _locked(folder / ".lock"):  # processes that start together fetch once
        held = _sound(folder, digest, url) if digest is not None else None
        return held or _fetched(url, digest, folder)


def _fetched(url: str, digest: bytes | None, folder: Path) -> HeldFile:
    """Fetch `url` into `folder` and open it there; what is there with the same bytes stays."""
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
            _trim(folder, settings.artifacts_mib << 20, _name(found))
            held = _sound(folder, found, url)
    finally:
        part.unlink(missing_ok=True)
    if held is None:
        raise FileError(f"{url}: {folder} does not hold what is written to it")
    return held


def _sound(folder: Path, digest: bytes, url: str) -> HeldFile | None:
    """Open the file with this digest; None where there is none or it has other bytes."""
    path = folder / _name(digest)
    try:
        os.utime(path)  # the youngest are kept
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
    """Copy what is at `url` to a file and return its SHA-256."""
    from .compiler_packages import MissingPackage

    found = hashlib.sha256()
    try:
        import fsspec

        with fsspec.open(url, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                found.update(piece)
                to.write(piece)
    except ImportError as error:
        raise MissingPackage(
            f"{url} needs fsspec and its package for that protocol ({error}): install shapevm[fleet]"
        ) from None
    except ValueError as error:
        raise ArgumentError(f"{url} cannot be opened: {error}") from None
    except Exception as error:  # whatever a file system of a third party raises
        raise FileError(f"{url} cannot be read: {type(error).__name__}: {error}") from None
    return found.digest()


def _name(digest: bytes) -> str:
    return f"{digest.hex()}.svm"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _trim(folder: Path, max_bytes: int, keep: str) -> None:
    """Delete the artifacts that were not opened for longest, beyond `max_bytes`; `keep` stays. Programs that
    have a deleted file mapped keep it."""
    found = []
    for path in folder.glob("*.svm"):
        with suppress(OSError):
            found.append((path.name == keep, path.stat().st_mtime_ns, path.stat().st_size, path))
    left = sum(size for _, _, size, _ in found) - max_bytes
    for is_kept, _, size, path in sorted(found):
        if left <= 0 or is_kept:
            return
        path.unlink(missing_ok=True)
        left -= size
