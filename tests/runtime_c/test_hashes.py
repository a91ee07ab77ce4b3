"""SHA-256 and XXH3 of the runtime: what this machine's instructions compute, and the code for machines
without them."""

from __future__ import annotations

import ctypes
import hashlib
import random
import subprocess
from pathlib import Path

import pytest
import xxhash

from .conftest import INCLUDE, RUNTIME, source

MIN_OF_XXH3 = 241
SIZES = [*range(260), 511, 512, 513, 1023, 1024, 1025, 1 << 14, (1 << 14) + 1, 100_003]
#: Headers come before these macros are taken away: they need them.
HOW = {"with instructions": "", "portable": "#undef __x86_64__\n#undef __SSE2__\n"}


class Hash(ctypes.Structure):
    """What xxh3_128 returns."""

    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


@pytest.fixture(params=HOW)
def library(request: pytest.FixtureRequest, tmp_path: Path) -> ctypes.CDLL:
    text = "#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n" + HOW[request.param]
    for name in ("sha256", "xxh3"):
        text += f'#include "{source(RUNTIME / "base" / f"{name}.c")}"\n'
    (tmp_path / "hashes.c").write_text(text)
    files = [str(tmp_path / "hashes.c"), source(RUNTIME / "base" / "cpu.c")]
    command = ["cc", "-shared", "-fPIC", "-O1", *INCLUDE, f"-I{RUNTIME / 'base'}", *files]
    subprocess.run([*command, "-o", str(tmp_path / "hashes.so")], check=True)
    found = ctypes.CDLL(str(tmp_path / "hashes.so"))
    found.xxh3_128.restype = Hash
    return found


def bytes_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def sha256(library: ctypes.CDLL, parts: list[bytes]) -> bytes:
    state, digest = ctypes.create_string_buffer(32 + 8 + 64), ctypes.create_string_buffer(32)
    library.sha256_init(state)
    for part in parts:
        library.sha256_update(state, part, ctypes.c_size_t(len(part)))
    library.sha256_final(state, digest)
    return digest.raw


def test_sha256(library: ctypes.CDLL) -> None:
    for size in SIZES:
        data = bytes_of(size)
        assert sha256(library, [data]) == hashlib.sha256(data).digest(), size


def test_sha256_of_parts(library: ctypes.CDLL) -> None:
    data = bytes_of(1000)
    for cut in (0, 1, 7, 55, 56, 63, 64, 65, 128, 999):
        parts = [data[:cut], data[cut : cut + 64], data[cut + 64 :]]
        assert sha256(library, parts) == hashlib.sha256(data).digest(), cut


def test_a_digest_that_differs_in_one_bit_does_not_match(library: ctypes.CDLL) -> None:
    data = bytes_of(100)
    digest = hashlib.sha256(data).digest()
    size = ctypes.c_size_t(len(data))
    assert library.sha256_matches(data, size, digest) == 1
    for bit in range(256):
        other = bytearray(digest)
        other[bit // 8] ^= 1 << bit % 8
        assert library.sha256_matches(data, size, bytes(other)) == 0


def test_xxh3(library: ctypes.CDLL) -> None:
    for size in SIZES:
        if size >= MIN_OF_XXH3:
            data = bytes_of(size)
            found = library.xxh3_128(data, ctypes.c_size_t(size))
            assert found.high << 64 | found.low == xxhash.xxh3_128_intdigest(data), size
