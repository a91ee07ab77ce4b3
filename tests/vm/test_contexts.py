"""The arenas of calls: they shrink to what recent calls have used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.load_options import LoadOptions
from shapevm.vm.machine import Machine

from .kernels import ADD_TEXT, with_code

MIB = 1 << 20
LARGE, SMALL = np.ones(4 * MIB, "f4"), np.ones(100, "f4")  # a large call's arena has 16 MiB
WINDOW = 64  # calls after which an arena may shrink first: as in runtime_c/run/context.c


@pytest.fixture
def machine() -> Iterator[Machine]:
    program = with_code(assemble(ADD_TEXT.replace("1 .. 1000", f"1 .. {16 * MIB}")))
    with Machine.from_bytes(artifact.to_bytes(program), LoadOptions(strategy="generic")) as made:
        yield made


def arena(machine: Machine) -> int:
    return machine.stats()["arena_bytes"]


def call(machine: Machine, x: np.ndarray, n: int = 1) -> None:
    for _ in range(n):
        assert machine.call([x, x])[0][-1] == 3


def test_an_arena_shrinks_after_a_burst(machine: Machine) -> None:
    call(machine, LARGE, 3)
    assert arena(machine) >= 16 * MIB
    call(machine, SMALL, 3 * WINDOW)
    assert arena(machine) <= MIB
    call(machine, LARGE)
    call(machine, SMALL)
    assert arena(machine) >= 16 * MIB


def test_arenas_of_calls_that_ran_at_once_go(machine: Machine) -> None:
    barrier = threading.Barrier(6)

    def work() -> None:
        barrier.wait()
        call(machine, LARGE, 20)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.stats()["n_contexts"] > 1 and arena(machine) > 16 * MIB
    call(machine, SMALL, 40 * WINDOW)
    assert arena(machine) <= MIB * machine.stats()["n_contexts"]


def test_alternating_sizes_keep_their_arena(machine: Machine) -> None:
    call(machine, LARGE)
    before = arena(machine)
    for _ in range(4 * WINDOW):
        call(machine, SMALL)
        call(machine, LARGE[: 3 * MIB])
        assert arena(machine) == before


def test_sizes_that_come_now_and_then_soon_keep_theirs(machine: Machine) -> None:
    call(machine, LARGE)
    n_shrunk = 0
    for _ in range(40):
        call(machine, SMALL, 3 * WINDOW)
        n_shrunk += arena(machine) <= MIB
        call(machine, LARGE)
    assert 1 <= n_shrunk <= 4


def test_what_stays_of_an_arena_is_used(machine: Machine) -> None:
    call(machine, LARGE)
    for n in (2 * MIB - 1, MIB + 7, 300_001, 5):
        x = np.arange(n, dtype="f4")
        for _ in range(2 * WINDOW):
            np.testing.assert_array_equal(machine.call([x, x])[0][-9:], (3 * x)[-9:])
