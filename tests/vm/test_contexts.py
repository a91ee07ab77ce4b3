"""The arenas of calls: they shrink to what recent calls have used."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import LimitExceeded
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine

from .kernels import ADD_ROW, ADD_TEXT, with_code

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


#: Two tensors between kernels, then an element of the second, so that each call is interpreted.
INTERPRETED = f"""
symbol "n" 1 .. {16 * MIB} why "model.py:3"
input "x": f32[s0]
output "last": float
output "y"
kernel k0 {ADD_ROW}
function "main" (2 params, 2 results)
  alloc r2 f32 (r1)
  kernel k0 (r1) (r0, r0, r2)
  alloc r3 f32 (r1)
  kernel k0 (r1) (r2, r0, r3)
  free (r2)
  int r4 1
  sub r4 r1 r4
  item r5 r3 (r4)
  int r7 1
  part r6 r3 r4 (r7)
  return (r5, r6)
"""


fenced = pytest.mark.skipif(
    "SVM_TENSORS_APART" in os.environ, reason="tests/fence.c takes tensors out of arenas"
)


def interpreted(**limits: int) -> Machine:
    options = LoadOptions(strategy="generic", limits=CallLimits(**limits))
    return Machine.from_bytes(artifact.to_bytes(with_code(assemble(INTERPRETED))), options)


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@fenced
def test_interpreted_calls_of_other_sizes_take_no_new_pages() -> None:
    with interpreted() as m:
        before = faults()
        for n in (4 * MIB, 3 * MIB, 3 * MIB + 7, 2 * MIB, 100, 4 * MIB - 5):
            x = np.full(n, 5, "f4")
            started = faults()
            last, y = m.call([x])
            assert last == 15 and y.tolist() == [15]
            assert n == 4 * MIB or faults() - started < 40
        assert faults() > before
        assert m.stats()["interpreted"] == 6 and 32 * MIB <= arena(m) < 40 * MIB


def test_arenas_of_interpreted_calls_shrink() -> None:
    with interpreted() as m:
        m.call([LARGE])
        for _ in range(3 * WINDOW):
            m.call([SMALL])
        assert arena(m) <= MIB
        assert m.call([LARGE])[0] == 3


@fenced
def test_memory_max_counts_tensors_in_the_arena() -> None:
    with interpreted(memory_max=30 * MIB) as m:
        for _ in range(3):
            with pytest.raises(LimitExceeded, match="memory_max"):
                m.call([LARGE])
            assert m.call([LARGE[: 3 * MIB]])[0] == 3
