"""The disk cache: what is read back is what was written, or nothing."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from shapevm.jit.object.cache import DiskCache, cache_key
from shapevm.jit.object.seal import Seal
from shapevm.jit.spec import to_json

from ..nests import bias_add


def entry_path(cache: DiskCache) -> Path:
    (path,) = cache.directory.glob("??/*")
    return path


def test_round_trip_and_absence(tmp_path):
    cache = DiskCache(tmp_path / "kernels", 1 << 20)
    key = cache_key("a" * 64, (1, 2), "x86-64-v3")
    assert cache.get(key) is None
    cache.put(key, b"code")
    assert cache.get(key) == b"code"
    assert DiskCache(tmp_path / "kernels", 1 << 20).get(key) == b"code"


def test_every_part_of_the_key_counts():
    keys = {
        cache_key(spec, dims, target, schedule)
        for spec in ("a", "b")
        for dims in (None, (), (1,), (1, 2), (12,))
        for target in ("x86-64-v3", "x86-64-v4")
        for schedule in (None, "wide")
    }
    assert len(keys) == 2 * 5 * 2 * 2


def test_every_flipped_bit_and_every_truncation_is_refused(tmp_path):
    payload = bytes(range(20))
    for position in range((32 + len(payload)) * 8):
        cache = DiskCache(tmp_path / str(position), 1 << 20)
        cache.put("k" * 64, payload)
        path = entry_path(cache)
        damaged = bytearray(path.read_bytes())
        damaged[position // 8] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        assert cache.get("k" * 64) is None
        assert not path.exists()
    for length in range(32 + len(payload)):
        cache = DiskCache(tmp_path / f"cut{length}", 1 << 20)
        cache.put("k" * 64, payload)
        path = entry_path(cache)
        path.write_bytes(path.read_bytes()[:length])
        assert cache.get("k" * 64) is None


def test_least_recently_used_goes_first(tmp_path):
    cache = DiskCache(tmp_path, None)
    keys = [cache_key(str(i), None, "t") for i in range(5)]
    for i, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(cache._path(key), (i, i))
    assert cache.get(keys[0]) is not None  # now the most recent
    DiskCache(tmp_path, 3 * 1032).trim()
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True, True]


def test_the_cap_holds_while_entries_are_put(tmp_path):
    """By one part in sixteen; what a look at the directory keeps of each entry is its age and its size."""
    cache = DiskCache(tmp_path, 32 * 1032)
    for i in range(100):
        cache.put(cache_key(str(i), None, "t"), bytes(1000))
        assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 35 * 1032
    assert all(cache.get(cache_key(str(i), None, "t")) for i in range(70, 100))


@pytest.mark.parametrize(("max_bytes", "looks"), [(1 << 30, 0), (100 * 1032, 1)])
def test_a_new_cache_looks_at_all_folders_only_where_one_of_them_is_full(
    tmp_path, monkeypatch, max_bytes, looks
):
    """Every executable has a cache of its own; a walk through a full one takes seconds."""
    filled = DiskCache(tmp_path, None)
    for i in range(300):
        filled.put(cache_key(str(i), None, "t"), bytes(1000))
    seen = []
    monkeypatch.setattr(DiskCache, "trim", lambda self: seen.append(self))
    cache = DiskCache(tmp_path, max_bytes)
    cache.put(cache_key("new", None, "t"), bytes(1000))
    assert len(seen) == looks and cache.get(cache_key("new", None, "t")) == bytes(1000)


def test_unwritable_directory_is_no_error(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = DiskCache(blocked / "kernels", 1 << 20)
    with caplog.at_level("WARNING", "shapevm"):
        cache.put("k" * 64, b"code")
        assert cache.get("k" * 64) is None
    assert cache.n_failures == 2
    (record,) = caplog.records  # one in a process
    assert str(blocked / "kernels") in record.getMessage() and "cannot be used" in record.getMessage()


def test_a_missing_entry_is_no_failure(tmp_path, caplog):
    cache = DiskCache(tmp_path / "kernels", 1 << 20)
    assert cache.get("k" * 64) is None
    cache.put("k" * 64, b"code")
    assert cache.n_failures == 0 and not caplog.records


def test_many_writers_of_one_key(tmp_path):
    cache = DiskCache(tmp_path, 1 << 20)
    seen = []

    def work(value):
        for _ in range(50):
            cache.put("k" * 64, value * 1000)
            seen.append(cache.get("k" * 64))

    threads = [threading.Thread(target=work, args=(bytes([i]),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value is not None and len(set(value)) == 1 and len(value) == 1000 for value in seen)


KEY = cache_key("a" * 64, None, "x86-64-v3")


def test_the_cache_is_private_and_keyed(tmp_path):
    mine = DiskCache(tmp_path / "mine", 1 << 20)
    mine.put(KEY, b"code")
    secret = tmp_path / "mine" / "secret"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o600 and len(secret.read_bytes()) == 32
    other = DiskCache(tmp_path / "other", 1 << 20)
    other.put(KEY, b"forged")
    plain = hashlib.sha256(b"forged").digest() + b"forged"
    for forged in (entry_path(other).read_bytes(), Seal(b"").seal(KEY, b"forged"), plain):
        mine.put(KEY, b"code")
        entry_path(mine).write_bytes(forged)
        assert mine.get(KEY) is None and not list((tmp_path / "mine").glob("??/*"))


def test_an_entry_under_another_name_is_refused(tmp_path):
    cache, other = DiskCache(tmp_path, 1 << 20), cache_key("b" * 64, None, "x86-64-v3")
    cache.put(KEY, b"code")
    cache._path(other).parent.mkdir(exist_ok=True)
    cache._path(other).write_bytes(cache._path(KEY).read_bytes())
    assert cache.get(other) is None and cache.get(KEY) == b"code"


@pytest.mark.parametrize(
    "change", ["group writes", "others write", "owner", "readable secret", "linked secret", "short"]
)
def test_a_cache_that_others_may_have_made_is_not_used(tmp_path, monkeypatch, caplog, change):
    DiskCache(tmp_path, 1 << 20).put(KEY, b"code")
    secret = tmp_path / "secret"
    if change == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    elif change == "linked secret":
        secret.rename(tmp_path / "elsewhere")
        secret.symlink_to(tmp_path / "elsewhere")
    elif change == "short":
        secret.write_bytes(b"short")
    else:
        place, mode = {
            "group writes": (tmp_path, 0o770), "others write": (tmp_path, 0o702),
            "readable secret": (secret, 0o644),
        }[change]  # fmt: skip
        place.chmod(mode)
    cache = DiskCache(tmp_path, 1 << 20)
    with caplog.at_level("WARNING", "shapevm"):
        assert cache.get(KEY) is None
        cache.put(KEY, b"new")
        assert cache.get(KEY) is None
    assert cache.n_failures == 3 and len(caplog.records) == 1
    assert f"the kernel cache {tmp_path} cannot be used" in caplog.text


def test_a_pipe_and_a_link_are_no_entries(tmp_path):
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"code")
    path = entry_path(cache)
    entry = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    assert cache.get(KEY) is None
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(entry)
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get(KEY) is None and cache.n_failures == 2


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put(KEY, b"code")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put(KEY, b"other")
    assert cache.get(KEY) == b"code" and len(list(tmp_path.glob("??/*"))) == 1


# One process compiles, the others wait -----------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from shapevm.jit.object.cache import DiskCache
with DiskCache(Path(sys.argv[1]), None).claimed("a" * 64):
    print("held", flush=True)
    time.sleep(600)
"""
COMPILE = """
import sys
from pathlib import Path
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.spec_reader import from_json
from shapevm.jit.object import cache
from shapevm.jit.store import KernelStore
cache.CLAIM_SECONDS = 600.0  # a busy machine compiles slowly
store = KernelStore(DiskCache(Path(sys.argv[1]), None))
spec = from_json(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for size in range(1, 25):
    store.record(spec, (size, 8))
print(store.stats.compiled, store.stats.from_cache)
"""


def test_one_at_a_time_makes_an_entry(tmp_path, monkeypatch):
    monkeypatch.setattr("shapevm.jit.object.cache.CLAIM_SECONDS", 600.0)
    order = []

    def make(name):
        with DiskCache(tmp_path / "kernels", None).claimed("a" * 64):
            order.append(name)
            time.sleep(0.05)
            order.append(name)

    threads = [threading.Thread(target=make, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order[::2] == order[1::2] and len(order) == 12
    assert not list((tmp_path / "kernels").glob("??"))  # a claim is no entry


def test_who_dies_gives_its_claim_up(tmp_path, monkeypatch):
    monkeypatch.setattr("shapevm.jit.object.cache.CLAIM_SECONDS", 600.0)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    is_killed = threading.Event()

    def kill():
        is_killed.set()
        holder.kill()

    threading.Timer(0.3, kill).start()
    start = time.monotonic()
    with DiskCache(tmp_path, None).claimed("a" * 64):
        assert is_killed.is_set() and time.monotonic() - start < 300
    holder.wait()
    holder.stdout.close()


def test_nobody_waits_for_ever_or_where_there_can_be_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("shapevm.jit.object.cache.CLAIM_SECONDS", 0.1)
    cache = DiskCache(tmp_path / "kernels", None)
    with cache.claimed("a" * 64), cache.claimed("a" * 64):
        pass
    (tmp_path / "file").touch()
    with DiskCache(tmp_path / "file" / "kernels", None).claimed("a" * 64):
        pass


def test_a_file_system_without_locks_lets_nobody_wait(tmp_path, monkeypatch):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("shapevm.jit.object.cache.fcntl.flock", refuse)
    with DiskCache(tmp_path / "kernels", None).claimed("a" * 64):
        pass


def test_processes_that_meet_a_kernel_at_once_compile_it_once(tmp_path):
    spec = to_json(bias_add())
    command = [sys.executable, "-c", COMPILE, str(tmp_path / "kernels"), spec]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    counts = [tuple(map(int, worker.communicate(timeout=120)[0].split())) for worker in workers]
    assert [sum(count) for count in counts] == [24, 24, 24]
    assert sum(compiled for compiled, _ in counts) == 24
