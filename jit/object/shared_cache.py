"""A cache of compiled kernels that a fleet shares: a directory, or any URL of fsspec.

Entries are those of `DiskCache`, sealed with the fleet's secret; without one, everyone who may write to the
cache is trusted with the code that runs (a world-writable directory is then not used). Failures of it
(network, permissions) never stop a call: the entry counts as absent, and the shared cache is not used for a
while.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from .cache import DiskCache, report_unusable
from .seal import MAX_ENTRY_BYTES, Seal, bounded

REST_SECONDS = 60.0  # after a failure


class Cache(Protocol):
    """Bytes by key."""

    @property
    def n_failures(self) -> int:
        """Reads and writes that failed."""

    def get(self, key: str) -> bytes | None:
        """Return the payload of `key`, None if there is no valid entry."""

    def put(self, key: str, payload: bytes) -> None:
        """Keep `payload`, if that can be done."""

    def claimed(self, key: str) -> AbstractContextManager[None]:
        """Let one at a time make the entry of `key`, where processes can tell each other."""


class RemoteCache:
    """Entries under a URL of fsspec. Raises ImportError without fsspec, ValueError for an unknown
    protocol."""

    def __init__(self, url: str, seal: Seal) -> None:
        import fsspec

        self._seal = seal

        self._files, self._root = fsspec.core.url_to_fs(url)
        self._url = url
        self._rests_until = 0.0
        self.n_failures = 0

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key[:2]}/{key[2:]}"

    def get(self, key: str) -> bytes | None:
        """Return the payload of `key`, None if there is no valid entry."""
        try:
            if not self._is_awake():
                return None
            path = self._path(key)
            entry = self._files.cat_file(path, start=0, end=MAX_ENTRY_BYTES + 1)
            return self._seal.open(key, bounded(entry, path))
        except FileNotFoundError:
            return None
        except Exception as error:
            self._fail(error)
            return None

    def put(self, key: str, payload: bytes) -> None:
        """Write aside, then rename."""
        path = self._path(key)
        beside = f"{path}.{secrets.token_hex(4)}"
        try:
            if self._is_awake():
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(beside, self._seal.seal(key, payload))
                self._files.mv(beside, path)
        except Exception as error:  # whatever a file system of a third party raises
            self._fail(error)

    def claimed(self, key: str) -> AbstractContextManager[None]:
        """Let everybody make the entry: a URL has no locks."""
        return nullcontext()

    def _is_awake(self) -> bool:
        return time.monotonic() >= self._rests_until

    def _fail(self, error: Exception) -> None:
        self.n_failures += 1
        report_unusable(self._url, error)
        self._rests_until = time.monotonic() + REST_SECONDS


class LayeredCache:
    """A local cache in front of a shared one: entries of the shared one are copied, new ones go into both."""

    def __init__(self, local: Cache, shared: Cache) -> None:
        self.local, self.shared = local, shared

    @property
    def n_failures(self) -> int:
        """Reads and writes that failed, of both."""
        return self.local.n_failures + self.shared.n_failures

    def get(self, key: str) -> bytes | None:
        """Return the payload of `key`, None if there is no valid entry."""
        found = self.local.get(key)
        if found is None:
            found = self.shared.get(key)
            if found is not None:
                self.local.put(key, found)
        return found

    def put(self, key: str, payload: bytes) -> None:
        """Keep `payload` in both."""
        self.local.put(key, payload)
        self.shared.put(key, payload)

    @contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Let one at a time make the entry of `key`, of the processes of either cache."""
        with self.local.claimed(key), self.shared.claimed(key):
            yield


def local_folder(cache: Cache | None) -> Path | None:
    """Return the folder of this machine that a cache is or begins with."""
    if isinstance(cache, LayeredCache):
        return local_folder(cache.local)
    return cache.directory if isinstance(cache, DiskCache) and not cache.is_shared else None


def shared_cache(url: str, secret: bytes = b"") -> Cache:
    """Return the shared cache at `url`, a directory's path or a URL, under the fleet's secret. Raises as
    RemoteCache does."""
    seal, path = Seal(secret), unquote(urlsplit(url).path) if url.startswith("file://") else url
    return RemoteCache(url, seal) if "://" in path else DiskCache(Path(path), None, seal)
