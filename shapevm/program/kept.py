"""The user's private folders of artifacts that are kept between processes, of bounded size."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..settings import settings, warn_once
from ..vm.files import check_writable


def kept_folder(name: str = "") -> Path | None:
    """Return the folder of artifacts, or the one of that name in it; None if nothing can be kept, which is
    logged once."""
    folder = settings.artifact_path()
    if folder is None:
        return None
    folder = folder / name if name else folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_writable(folder / ".lock")
    except OSError as error:
        warn_once("artifacts cannot be kept in %s (%s): they are made anew", folder, error.strerror)
        return None
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: no other process does. Raises PermissionError if the folder is another
    user's, or others may write to it."""
    from ..jit.object.seal import check_folder

    check_folder(folder, 0o022, os.geteuid())
    with open(folder / ".lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def trim(folder: Path, max_bytes: int, keep: str) -> None:
    """Delete the least recently opened artifacts beyond `max_bytes`, except `keep`. Programs that have a
    deleted file mapped keep it."""
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
