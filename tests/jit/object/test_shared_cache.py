"""The shared cache: read-through, verified, and no failure of it stops anybody."""

import fcntl
import hashlib
import os
import random
import stat
import tempfile
from pathlib import Path

import pytest
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.object.seal import MAX_ENTRY_BYTES, Seal
from shapevm.jit.object.shared_cache import LayeredCache, RemoteCache, local_folder, shared_cache
from shapevm.vm.layout import BY_NAME
from shapevm.vm.objects import HASHED_FROM, parse_object

import shapevm
from shapevm.specialise.kernel_store import open_store

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

    def broken(path, **range):
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


@pytest.mark.parametrize("secret", [b"", b"s" * 16])
def test_no_more_of_an_entry_is_read_than_a_kernel_may_have(tmp_path, url, secret, monkeypatch):
    cache = shared_cache(url, secret)
    cache.put(KEY, b"payload")
    if isinstance(cache, RemoteCache):
        read = []
        monkeypatch.setattr(cache._files, "cat_file", lambda path, start, end: read.append(end) or bytes(end))
        assert cache.get(KEY) is None and read == [MAX_ENTRY_BYTES + 1]
    else:
        os.truncate(tmp_path / "shared" / KEY[:2] / KEY[2:], 1 << 42)  # sparse: more than any memory
        assert cache.get(KEY) is None
    assert cache.n_failures == 1


def hostile_records(record, rng, n):
    """Yield a kernel's record with one field changed and its hash made right again, or cut, or longer."""
    layout = BY_NAME["object"]
    for _ in range(n):
        fields = layout.unpack(record)
        name = rng.choice([name for name in fields if name != "sha256"])
        if isinstance(fields[name], bytes):
            fields[name] = rng.randbytes(len(fields[name]))
        elif isinstance(fields[name], str):
            fields[name] = "x"
        else:
            fields[name] = rng.choice((0, 1, fields[name] + 1, 255, 63))
        body = bytearray(layout.pack(**fields) + record[layout.size :])
        if rng.random() < 0.5:
            body[rng.randrange(HASHED_FROM, len(body))] ^= 1 << rng.randrange(8)
        body[:32] = hashlib.sha256(body[HASHED_FROM:]).digest()
        yield bytes(body)
        yield bytes(body[: rng.randrange(len(body))])
        yield bytes(body) + rng.randbytes(rng.randrange(1, 99))


def test_a_hostile_record_is_no_entry_or_has_the_kernel_s_identity(tmp_path):
    """Also where nobody has a secret: what is used was parsed whole, hash and sections, and is of the spec,
    sizes and target that were requested."""
    with shapevm.settings.scope(cache_dir=str(tmp_path / "own"), cache_url=str(tmp_path / "shared")):
        store, spec = open_store(), softmax()
        good = store.record(spec, (7, 9))
        store.cache = store.cache.shared
        (path,) = (path for path in (tmp_path / "shared").glob("??/*") if "claims" not in path.parts)
        key, n_refused = path.parent.name + path.name, 0
        wanted = parse_object(good)
        for record in hostile_records(good, random.Random(3), 300):
            store.cache.put(key, record)
            found = store.cached(spec, (7, 9))
            n_refused += found is None
            if found is not None:
                made = parse_object(found)
                assert (made.spec_hash, made.target) == (wanted.spec_hash, wanted.target)
                assert made.key == wanted.key
        assert n_refused > 600
        store.cache.put(key, good[:-1])
        assert store.record(spec, (7, 9)) == good


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


# Several users --------------------------------------------------------------------------------------

TEAM, ONE, OTHER, STRANGER = 5000, 50001, 50002, 50003
SECOND = KEY[:2] + hashlib.sha256(b"second").hexdigest()[2:]  # in the same folder
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")


@pytest.fixture
def folder():
    """A folder of the team in one that all users may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        path = Path(above, "shared")
        path.mkdir()
        yield path


def open_to(folder, mode, group=0):
    os.chown(folder, 0, group)
    folder.chmod(mode)


def as_user(uid, work):
    """Return what `work` returns, bytes, in a process of this user, who is in the team unless a stranger and
    keeps files to himself."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([] if uid == STRANGER else [TEAM])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.umask(0o077)
            os.write(write, work())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with open(read, "rb") as file:
        found = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return found


def put(folder, key, secret=b""):
    def work():
        cache = shared_cache(str(folder), secret)
        cache.put(key, key.encode())
        return b"%d" % cache.n_failures

    return work


def get(folder, key, secret=b""):
    return lambda: shared_cache(str(folder), secret).get(key) or b""


@needs_root
@pytest.mark.parametrize(
    ("mode", "secret", "entry_mode", "is_for_strangers"),
    [(0o2770, b"", 0o640, False), (0o775, b"", 0o644, True), (0o1777, b"s" * 16, 0o644, True)],
)
def test_a_folder_serves_all_whom_it_is_open_to(folder, mode, secret, entry_mode, is_for_strangers):
    open_to(folder, mode, TEAM)
    for user, key in ((ONE, KEY), (OTHER, SECOND)):  # the second finds the folder that the first made
        assert as_user(user, put(folder, key, secret)) == b"0"
    for path in folder.glob("??/*"):
        status = path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (entry_mode, TEAM)
    for key in (KEY, SECOND):
        for user in (ONE, OTHER, STRANGER):
            expected = key.encode() if user != STRANGER or is_for_strangers else b""
            assert as_user(user, get(folder, key, secret)) == expected
    assert as_user(STRANGER, put(folder, KEY, secret)) == b"1"  # there the entry is another's
    assert as_user(ONE, get(folder, KEY, secret)) == KEY.encode()


@needs_root
def test_all_users_of_a_folder_wait_for_each_other(folder):
    open_to(folder, 0o2770, TEAM)

    def claim():
        cache = shared_cache(str(folder))
        handle = cache._claim_file(KEY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return b"claimed"

    for user in (ONE, OTHER):
        assert as_user(user, claim) == b"claimed"


@pytest.mark.parametrize("place", ["entry", "folder"])
def test_what_everybody_may_change_is_not_used(folder, place):
    cache = shared_cache(f"file://{folder}")
    cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"
    path = folder / KEY[:2] / KEY[2:]
    (path if place == "entry" else path.parent).chmod(0o666 if place == "entry" else 0o777)
    assert cache.get(KEY) is None and cache.n_failures == 1


def test_parts_of_kernels_do_not_go_to_a_shared_folder(folder):
    assert local_folder(shared_cache(str(folder))) is None
