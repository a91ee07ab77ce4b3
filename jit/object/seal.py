"""Authentication of entries of a kernel cache: an HMAC with a secret, and the owner of the folder.

The user's own cache is keyed by a private secret inside it; a cache shared by a fleet by the fleet's secret,
or by none: then everyone who may write to it is trusted.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

SECRET_FILE: Final = "secret"
SECRET_BYTES: Final = 32
TAG_BYTES: Final = 32
MAX_ENTRY_BYTES: Final = 64 << 20  # of a file that is read: no kernel has more than a few MiB


class Seal:
    """Entries under one secret (b"": anybody can make them): the HMAC-SHA256 of name and payload, then the
    payload."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @property
    def is_keyed(self) -> bool:
        """Whether only those who know a secret can make entries."""
        return bool(self._secret)

    def _tag(self, key: str, payload: bytes) -> bytes:
        return hmac.digest(self._secret, key.encode() + b"\0" + payload, hashlib.sha256)

    def seal(self, key: str, payload: bytes) -> bytes:
        """Return the entry of a payload under its name."""
        return self._tag(key, payload) + payload

    def open(self, key: str, entry: bytes) -> bytes | None:
        """Return the payload of an entry, None where it was not made under this name and secret."""
        payload = entry[TAG_BYTES:]
        return payload if hmac.compare_digest(self._tag(key, payload), entry[:TAG_BYTES]) else None


def read_regular(path: Path, max_mode: int = 0o777, owner: int | None = None) -> bytes:
    """Return a regular file's bytes; symbolic links are not followed, pipes not waited for.

    Raises PermissionError where the file's owner is not `owner`, or its mode allows more than `max_mode`;
    OSError where it cannot be read or has more than MAX_ENTRY_BYTES.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is no regular file")
        if owner is not None and status.st_uid != owner:
            raise PermissionError(f"{path} belongs to user {status.st_uid}, not to {owner}")
        if status.st_mode & 0o777 & ~max_mode:
            raise PermissionError(f"{path} has mode {stat.S_IMODE(status.st_mode):o}: chmod {max_mode:o} it")
        return bounded(file.read(MAX_ENTRY_BYTES + 1), str(path))


def bounded(entry: bytes, place: str) -> bytes:
    """Return an entry. Raises OSError if it has more than MAX_ENTRY_BYTES."""
    if len(entry) > MAX_ENTRY_BYTES:
        raise OSError(errno.EFBIG, f"has more than {MAX_ENTRY_BYTES} bytes", place)
    return entry


def check_folder(folder: Path, others: int, owner: int | None = None) -> None:
    """Raise PermissionError if `folder` is not a folder, not owned by `owner`, or its mode has a bit of
    `others`; FileNotFoundError if it does not exist."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{folder} is no folder")
    if owner is not None and status.st_uid != owner:
        raise PermissionError(f"{folder} belongs to user {status.st_uid}, not to {owner}")
    if status.st_mode & others:
        raise PermissionError(f"others may write to {folder}: chmod go-w it, or delete it")


def private_seal(folder: Path) -> Seal:
    """Return the seal of the user's own cache in `folder`, which exists; its secret is made on first use.

    Raises PermissionError where the folder or the secret could be another user's work, OSError where the
    secret can neither be read nor made.
    """
    check_folder(folder, 0o022, os.geteuid())
    place = folder / SECRET_FILE
    if not os.path.lexists(place):
        _make_secret(place)
    secret = read_regular(place, 0o600, os.geteuid())
    if len(secret) != SECRET_BYTES:
        raise PermissionError(f"{place} is no secret of {SECRET_BYTES} bytes: delete it")
    return Seal(secret)


def _make_secret(place: Path) -> None:
    """Make the file, whole from the first moment on; that of a process which is quicker stays."""
    beside = place.with_name(f".{SECRET_FILE}-{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
        try:
            os.link(beside, place)
        except FileExistsError:
            return
    finally:
        os.unlink(beside)
