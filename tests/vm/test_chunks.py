"""The hash of chunks: XXH3-128, bit for bit."""

from __future__ import annotations

import random

import pytest
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.chunks import hash_rows
from shapevm.vm.layout import CHUNK

#: Hashes of bytes (7 * i + (i >> 8)) & 255 as xxHash 0.8.3 gives them.
KNOWN = {
    241: "75f4da43f23cce5a541b19226f0052e8",
    1024: "a3da96fbd688736171bee625238addb4",
    1088: "23f3acd8ee6c4cf4b74e423e955e509d",
    CHUNK: "8791ce561b8e4239a7f4639f0ccbfda9",
}


def sample(n: int) -> bytes:
    return bytes((7 * i + (i >> 8)) & 255 for i in range(n))


def digest(data: bytes) -> str:
    halves = ffi.new("uint64_t[2]")
    lib.svm_hash_chunk(ffi.from_buffer(data), len(data), halves)
    return f"{halves[1]:016x}{halves[0]:016x}"


@pytest.mark.parametrize("n", KNOWN)
def test_known_hashes(n: int) -> None:
    assert digest(sample(n)) == KNOWN[n]


def test_like_the_xxhash_package() -> None:
    xxhash = pytest.importorskip("xxhash")
    rng = random.Random(3)
    for n in [*range(241, 2200, 17), CHUNK - 1, CHUNK, CHUNK + 1]:
        data = rng.randbytes(n)
        assert digest(data) == xxhash.xxh3_128_hexdigest(data), n


def test_pieces_make_no_difference() -> None:
    rng = random.Random(4)
    data = rng.randbytes(2 * CHUNK + 512)
    whole = list(hash_rows([data]))
    cuts = sorted(rng.sample(range(len(data)), 9))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert list(hash_rows([b"", *pieces])) == whole and len(whole) == 3
    assert list(hash_rows([data[:CHUNK]])) == whole[:1] and list(hash_rows([])) == []
