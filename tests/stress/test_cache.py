"""The disk cache under damage: no altered or torn entry is used; a second process compiles nothing."""

import hashlib
import os
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.spec_reader import from_json
from shapevm.jit.store import KernelStore
from shapevm.vm.artifact import read

import shapevm

KEY = hashlib.sha256(b"key").hexdigest()
N_KILLS = 1000


def entry_path(cache, key=KEY):
    return cache.directory / key[:2] / key[2:]


def test_every_flipped_bit_of_an_entry_is_seen(tmp_path):
    cache, payload = DiskCache(tmp_path, 1 << 20), random.Random(0).randbytes(96)
    cache.put(KEY, payload)
    whole = entry_path(cache).read_bytes()
    assert cache.get(KEY) == payload
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        entry_path(cache).write_bytes(changed)
        assert cache.get(KEY) is None and not entry_path(cache).exists(), bit


def test_every_torn_write_is_seen(tmp_path):
    cache, payload = DiskCache(tmp_path, 1 << 20), random.Random(0).randbytes(96)
    cache.put(KEY, payload)
    whole = entry_path(cache).read_bytes()
    for n in range(len(whole)):
        for rest in (b"", bytes(len(whole) - n)):  # cut off, or blocks that never reached the disk
            entry_path(cache).write_bytes(whole[:n] + rest)
            assert (cache.get(KEY) is None) == (whole[:n] + rest != whole), n


@pytest.fixture
def filled(two_sizes, tmp_path):
    """A store with one kernel in its cache: store, spec, dims, record, the entry's path."""
    store = KernelStore(DiskCache(tmp_path, 1 << 24))
    kernel = next(k for k in read(two_sizes).kernels if k.n_dims == 2)
    spec, dims = from_json(kernel.spec), (7, 9)
    record = store.record(spec, dims)
    (path,) = tmp_path.glob("??/*")
    return store, spec, dims, record, path


def test_flipped_bits_of_a_kernel_make_it_compile_again(filled):
    store, spec, dims, record, path = filled
    whole, rng = path.read_bytes(), random.Random(1)
    for n, bit in enumerate(rng.sample(range(8 * 32, 8 * len(whole)), 40)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        if n % 2:  # with the container's hash made right: the code object has one of its own
            changed = store.cache._seal().seal(path.parent.name + path.name, bytes(changed[32:]))
        path.write_bytes(changed)
        before = store.stats.compiled
        assert store.record(spec, dims) == record
        assert store.stats.compiled == before + 1
        path.write_bytes(whole)
    assert store.stats.from_cache == 0


def test_an_entry_under_another_name_is_not_used(filled):
    store, spec, dims, record, path = filled
    other = store.record(spec, (8, 9))
    (moved,) = set(path.parent.parent.glob("??/*")) - {path}
    moved.write_bytes(path.read_bytes())
    compiled = store.stats.compiled
    assert store.record(spec, (8, 9)) == other != record
    assert (store.stats.compiled, store.stats.from_cache) == (compiled + 1, 0)
    assert store.record(spec, dims) == record and store.stats.from_cache == 1


WRITERS = textwrap.dedent("""
    import hashlib, os, random, signal, sys, time
    from pathlib import Path
    from shapevm.jit.object.cache import DiskCache
    directory, n_kills = Path(sys.argv[1]), int(sys.argv[2])
    keys = [hashlib.sha256(bytes([n])).hexdigest() for n in range(16)]
    payload = lambda key: hashlib.sha256(key.encode()).digest() * (64 + int(key[:3], 16))
    rng, torn, present = random.Random(0), 0, 0
    for number in range(n_kills):
        child = os.fork()
        if not child:
            cache, rng = DiskCache(directory, 1 << 20), random.Random(number)
            while True:
                key = rng.choice(keys)
                cache.put(key, payload(key))
                if rng.random() < 0.1:
                    cache.trim()
        time.sleep(rng.random() * 0.003)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cache, key = DiskCache(directory, 1 << 20), rng.choice(keys)
        found = cache.get(key)
        torn += found is not None and found != payload(key)
        present += found is not None
    for key in keys:
        torn += DiskCache(directory, 1 << 20).get(key) not in (None, payload(key))
    print(torn, present > n_kills // 10, len(list(directory.glob("??/tmp*"))) < n_kills)
""")


def test_a_thousand_kills_tear_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WRITERS, tmp_path, str(N_KILLS)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "0 True True\n", done.stdout + done.stderr[-1000:]


SECOND = textwrap.dedent("""
    import sys
    import numpy as np, shapevm
    with shapevm.load(sys.argv[1], strategy="jit") as exe:
        for n in range(1, 9):
            exe(np.full((n, n + 1), n, "f"))
        print(exe.stats().compiled, exe.stats().from_cache)
""")


def test_a_second_process_compiles_nothing(two_sizes, tmp_path):
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(tmp_path)}

    def run():
        command = [sys.executable, "-W", "ignore", "-c", SECOND, two_sizes]
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        return tuple(map(int, text.split()))

    compiled, from_cache = run()
    assert compiled > 0 and from_cache == 0
    assert run() == (0, compiled)


def test_damage_while_running_changes_no_bits(two_sizes, tmp_path):
    with (
        shapevm.settings.scope(cache_dir=str(tmp_path)),
        shapevm.load(two_sizes, strategy="generic") as plain,
    ):
        for turn in range(2):
            with shapevm.load(two_sizes, strategy="jit") as exe:
                for n in range(1, 7):
                    x = np.random.default_rng(n).random((n, 11), "f")
                    for found, expected in zip(exe(x), plain(x), strict=True):
                        assert found.tobytes() == expected.tobytes()
                assert exe.stats().compiled == exe.machine.stats()["code_installed"]
            for path in tmp_path.glob("??/*"):
                data = bytearray(path.read_bytes())
                data[random.Random(turn).randrange(len(data))] ^= 4
                path.write_bytes(data)
