"""The shared cache: read-through, verified, and no failure of it stops anybody."""

import hashlib

import pytest
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.object.seal import Seal
from shapevm.jit.object.shared_cache import LayeredCache, RemoteCache, shared_cache

import shapevm
from shapevm.kernel_store import open_store

from ..nests import softmax

KEY = hashlib.sha256(b"key").hexdigest()


def layered(tmp_path, name, url):
    return LayeredCache(DiskCache(tmp_path / name, 1 << 20), shared_cache(url))


@pytest.fixture(params=["directory", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "shared") if request.param == "directory" else f"memory://{tmp_path.name}"


def test_one_machine_fills_it_for_all(tmp_path, url):
    one, other = layered(tmp_path, "one", url), layered(tmp_path, "other", url)
    assert one.get(KEY) is None
    one.put(KEY, b"payload")
    assert other.local.get(KEY) is None and other.get(KEY) == b"payload"
    assert other.local.get(KEY) == b"payload"
    one.put(KEY, b"again")
    assert one.shared.get(KEY) == b"again" and other.get(KEY) == b"payload"


def test_a_changed_entry_is_not_used(tmp_path):
    import fsspec

    url = f"memory://{tmp_path.name}"
    shared = RemoteCache(url, Seal(b""))
    shared.put(KEY, b"payload")
    files = fsspec.filesystem("memory")
    (path,) = files.find(f"/{tmp_path.name}")
    entry = bytearray(files.cat_file(path))
    entry[-1] ^= 1
    files.pipe_file(path, bytes(entry))
    assert shared.get(KEY) is None
    shared.put(KEY, b"payload")
    assert shared.get(KEY) == b"payload"


def test_failures_count_as_absent(tmp_path, monkeypatch):
    shared = RemoteCache(f"memory://{tmp_path.name}", Seal(b""))
    calls = []

    def broken(path, *rest):
        calls.append(path)
        raise RuntimeError("the network is down")

    monkeypatch.setattr(shared._files, "cat_file", broken)
    cache = LayeredCache(DiskCache(tmp_path, 1 << 20), shared)
    assert cache.get(KEY) is None and cache.get(KEY) is None
    assert len(calls) == 1  # it is left alone for a while
    cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"


def test_a_second_machine_compiles_nothing(tmp_path, url):
    class Machine:
        def __init__(self, name):
            self.scope = shapevm.settings.scope(cache_dir=str(tmp_path / name), cache_url=url)

        def stats(self, spec):
            with self.scope:
                store = open_store()
                store.record(spec, (7, 9))
                return store.stats.compiled, store.stats.from_cache

    spec = softmax()
    assert Machine("a").stats(spec) == (1, 0)
    assert Machine("b").stats(spec) == (0, 1)


def test_what_cannot_be_opened_is_said():
    with shapevm.settings.scope(cache_url="nosuch://x"), pytest.raises(shapevm.Error, match="'nosuch://x'"):
        open_store()


def test_entries_of_another_secret_are_not_used(url):
    ours, others, anybody = shared_cache(url, b"s" * 16), shared_cache(url, b"t" * 16), shared_cache(url)
    for forger in (others, anybody):
        forger.put(KEY, b"forged")
        assert ours.get(KEY) is None
    ours.put(KEY, b"payload")
    assert ours.get(KEY) == b"payload" and others.get(KEY) is None


def test_a_directory_that_everybody_may_write_to_needs_a_secret(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    plain, keyed = shared_cache(str(folder)), shared_cache(str(folder), b"s" * 16)
    for cache in (plain, keyed):
        cache.put(KEY, b"payload")
    assert plain.get(KEY) is None and plain.n_failures == 2
    assert keyed.get(KEY) == b"payload"


def test_the_secret_is_a_setting(tmp_path):
    place = tmp_path / "fleet"
    place.write_bytes(b"short")
    common = {"cache_dir": str(tmp_path / "own"), "cache_url": str(tmp_path / "shared")}
    with shapevm.settings.scope(**common, cache_secret_file=str(place)):
        with pytest.raises(shapevm.ArgumentError, match="has 5 bytes; give at least 16"):
            open_store()
        place.write_bytes(b"s" * 16 + b"\n")
        open_store().cache.put(KEY, b"payload")
    assert shared_cache(str(tmp_path / "shared"), b"s" * 16).get(KEY) == b"payload"
    missing = str(tmp_path / "no")
    with (
        shapevm.settings.scope(**common, cache_secret_file=missing),
        pytest.raises(shapevm.ArgumentError, match="cannot be read: No such file"),
    ):
        open_store()
