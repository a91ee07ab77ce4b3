"""Damaged records of code objects, hashes made right: C and Python take the same ones, and none is run."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest
from shapevm.vm.errors import ArtifactError, Error
from shapevm.vm.load_options import LoadOptions
from shapevm.vm.machine import Machine
from shapevm.vm.objects import HASHED_FROM, pack_object, parse_object
from shapevm.vm.program import Dim, KernelObject, Lines, SizeRange, Work

from .kernels import ADD, add_program, code
from .test_machine import load

NUMBERS = (0, 1, 2, 3, 63, 64, 65, 1 << 16, (1 << 16) + 1, -1, 1 << 31, 1 << 32, (1 << 62) + 1, -(1 << 63))
N_RECORDS = 3000


def rich(dims: tuple[int, ...] | None, ranges: tuple[SizeRange, ...] | None) -> KernelObject:
    """Code with rows of each kind."""
    n = Dim(0)
    work = Work(
        tiles=((n, 4), (3, 1)), scratch=((64, (n, n)), (8, ())), cost=((1, (n,)),),
        lines=(Lines(0, 0, n, 2, 1, 3), Lines(2, 0, n)),
    )  # fmt: skip
    return replace(code(ADD, None), work=work, bounds=((n, 1, 0, n),), exact_dims=dims, ranges=ranges)


def damaged(record: bytes, rng: random.Random) -> bytes:
    """Return a record and its code with one to three numbers changed, and the hash made right."""
    data = bytearray(record)
    for _ in range(rng.choice((1, 1, 2, 3))):
        width = rng.choice((4, 8))
        at = rng.randrange(HASHED_FROM, len(data) - 8) // width * width
        old = int.from_bytes(data[at : at + width], "little")
        new = rng.choice((*NUMBERS, old + 1, old - 1, old ^ 1 << rng.randrange(8 * width)))
        data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")
    data[:32] = hashlib.sha256(data[HASHED_FROM:]).digest()
    return bytes(data)


def refusal_of_python(data: bytes, kernel: KernelObject) -> str:
    try:
        found = parse_object(data)
    except ArtifactError as error:
        return str(error)
    same = (found.spec_hash, found.n_dims, found.buffers) == (kernel.spec_hash, kernel.n_dims, kernel.buffers)
    return "" if same else "it is another kernel's"


def refusal_of_c(data: bytes, machine: Machine) -> str:
    try:
        machine.install(0, data)
    except ArtifactError as error:
        assert len(str(error)) > 20
        return str(error)
    except Error as error:  # it was read, and does not fit here: sizes, a target, generic code that is there
        assert len(str(error)) > 20
    return ""


@pytest.mark.parametrize("guard", ["generic", "exact", "bucket"])
def test_both_readers_take_the_same_records(guard: str, request: pytest.FixtureRequest) -> None:
    rng = random.Random(f"{request.config.option.seed} {guard}")
    own = rich((5,) if guard == "exact" else None, (SizeRange(3, 9),) if guard == "bucket" else None)
    whole, n_taken = pack_object(own) + own.code.data, 0
    with load(add_program(), LoadOptions(strategy="auto")) as machine:
        machine.attach_compiler()
        for _ in range(N_RECORDS):
            data = damaged(whole, rng)
            found, wanted = refusal_of_c(data, machine), refusal_of_python(data, own)
            assert bool(found) == bool(wanted), (found, wanted, data.hex())
            n_taken += not found
    assert 0.02 * N_RECORDS < n_taken < 0.98 * N_RECORDS
