"""Limits of one call: fuel, memory and time bind whatever a program does."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.spec import to_json
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import DeadlineExceeded, Error, LimitExceeded
from shapevm.vm.load_options import CacheLimits, CallLimits, LoadOptions
from shapevm.vm.machine import Machine

from .kernels import ADD, ADD_TEXT, add_program, code, with_code

#: 64 lists, each of which holds the one before twice: 2**64 leaves, 64 objects.
SHARED = "output 'y'\nfunction 'main' (0 params, 1 results)\n  int r0 7\n".replace("'", '"') + (
    "  list r0 (r0, r0)\n" * 64 + "  return (r0)\n"
)
#: The same with a tensor in the middle, planned.
SHARED_TENSOR = SHARED.replace("int r0 7", "int r1 3\n  alloc r0 f32 (r1)")
FOREVER = 'function "main" (0 params, 0 results)\nagain:\n  jump again\n'
MAIN = 'output "y"\nfunction "main" (0 params, 1 results)\n'
NUMBERS = MAIN + "  int r0 {n}\n  alloc r1 f32 (r0)\n  return (r1)\n"


def load(text: str, **limits: int) -> Machine:
    return Machine.from_bytes(
        artifact.to_bytes(assemble(text)), LoadOptions(strategy="generic", limits=CallLimits(**limits))
    )


def dict_of(n: int) -> str:
    """Return a program that makes a dict of n keys a thousand times."""
    keys = "".join(f"  int r{i + 2} {i}\n" for i in range(n))
    pairs = ", ".join(f"r{i + 2}, r0" for i in range(n))
    return (
        'output "y"\nfunction "main" (0 params, 1 results)\n  int r0 0\n'
        + keys
        + f"again:\n  dict r1 ({pairs})\n  jump again\n"
    )


@pytest.mark.parametrize("text", [SHARED, SHARED_TENSOR], ids=["ints", "a tensor"])
def test_containers_that_share_children_stay_small(text: str) -> None:
    with load(text, fuel=1000, memory_max=1 << 20) as m:
        for _ in range(2):
            (found,) = m.call([])
            n_lists = 0
            while isinstance(found, list):
                assert len(found) == 2 and (found[0] is found[1] or isinstance(found[0], np.ndarray))
                found, n_lists = found[0], n_lists + 1
            assert n_lists == 64


def test_results_spend_fuel() -> None:
    """100 values in a list: more work than the instructions that made it."""
    values = ", ".join(["r0"] * 100)
    text = f"{MAIN}  int r0 1\n  list r1 ({values})\n  return (r1)\n"
    with load(text, fuel=50) as m, pytest.raises(LimitExceeded, match="fuel"):
        m.call([])
    with load(text, fuel=200) as m:
        assert m.call([]) == [[1] * 100]


def test_a_dict_costs_its_comparisons() -> None:
    with load(dict_of(2000), fuel=1_000_000) as m:
        start = time.monotonic()
        with pytest.raises(LimitExceeded, match="fuel"):
            m.call([])
        assert time.monotonic() - start < 5  # a million instructions of it took hours


def test_fuel_is_exact() -> None:
    text = 'output "y"\nfunction "main" (0 params, 1 results)\n' + "  int r0 1\n" * 9 + "  return (r0)\n"
    with load(text, fuel=11) as m:  # ten instructions and a result
        assert m.call([]) == [1]
    with load(text, fuel=10) as m, pytest.raises(LimitExceeded, match="fuel"):
        m.call([])


@pytest.mark.parametrize("planned", [True, False])
def test_results_count_as_memory(planned: bool) -> None:
    flow = "" if planned else '  int r2 1\n  call_packed "nothing" () (r2)\n'
    text = NUMBERS.format(n=1000).replace("  return", flow + "  return")
    for limit, is_enough in ((3000, False), (20_000, True)):
        with load(text, memory_max=limit) as m:
            if not planned:
                m.register_extern("nothing", lambda _: [])
            if is_enough:
                assert m.call([])[0].shape == (1000,)
            else:
                with pytest.raises(LimitExceeded, match="memory_max"):
                    m.call([])


def test_copies_of_inputs_count_as_memory() -> None:
    options = LoadOptions(strategy="generic", limits=CallLimits(memory_max=50_000))
    with Machine.from_bytes(artifact.to_bytes(add_program()), options) as m:
        x = np.ones(1000, "f4")
        np.testing.assert_array_equal(m.call([x, x])[0], 3 * x)


def test_alloc_is_zeros_until_written() -> None:
    text = """
output "y"
output "z"
function "main" (0 params, 2 results)
  int r0 100000
  alloc r1 f32 (r0)
  int r2 1
  alloc r3 f32 (r2)
  item r4 r3
  return (r1, r4)
"""
    planned = NUMBERS.format(n=100_000)
    for _ in range(20):
        dirt = [torch.full((100_000,), 7.0) for _ in range(4)]
        del dirt
        for program in (text, planned):
            with load(program) as m:
                found: Any = m.call([])
                assert not found[0].any() and found[1:] in ([], [0.0])


@pytest.mark.parametrize("native_code", [True, False])
def test_what_is_read_first_is_zeros(native_code: bool) -> None:
    """A planned call whose kernel reads memory that nothing was written into."""
    text = ADD_TEXT.replace("  kernel k0 (r2) (r0, r1, r3)\n", "")
    program = assemble(text)
    assert to_json(ADD) in program.kernels[0].spec
    options = LoadOptions(strategy="generic", native_code=native_code, has_compiler=not native_code)
    with Machine.from_bytes(artifact.to_bytes(with_code(program)), options) as m:
        if not native_code:
            m.install(0, code(ADD))
        for n in (5, 5, 5, 900, 1):
            x = np.arange(n, dtype="f4")
            np.testing.assert_array_equal(m.call([x, x])[0], x)


def test_a_timeout_ends_a_call() -> None:
    with load(FOREVER, timeout_ms=50) as m:
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="50 ms"):
            m.call([])
        assert 0.04 < time.monotonic() - start < 5
    with load(FOREVER) as m:
        with pytest.raises(TimeoutError, match="80 ms"):
            m.call_as(None, [], timeout_ms=80)
        with pytest.raises(Error, match="negative"):
            m.call_as(None, [], timeout_ms=-1)


def test_other_calls_go_on_while_one_times_out() -> None:
    text = """
input "k": int
function "main" (1 params, 0 results)
  int r1 0
  eq r2 r0 r1
  branch r2 out
again:
  jump again
out:
  return ()
"""
    with load(text, timeout_ms=300) as m:
        errors: list[BaseException] = []

        def slow() -> None:
            try:
                m.call([0])
            except Error as error:
                errors.append(error)

        thread = threading.Thread(target=slow)
        thread.start()
        while thread.is_alive():
            m.call([1])
        thread.join()
        assert [type(e) for e in errors] == [DeadlineExceeded]


@pytest.mark.parametrize("change", ["set r2 r2 r4 r0", "append r7 r3 r0", "append r8 r8 r0"])
def test_copies_of_a_list_are_given_back(change: str) -> None:
    """A list that is shared is copied when it is changed, one that is full when it grows; the one that
    nothing holds any more is freed."""
    text = f"""
    output "y"
    function "main" (0 params, 1 results)
      int r0 0
      int r1 3000
      int r4 0
      int r5 1
      list r2 ({", ".join(["r0"] * 64)})
    again:
      move r3 r2
      list r8 ({", ".join(["r0"] * 64)})
      {change}
      add r0 r0 r5
      lt r6 r0 r1
      branch r6 otherwise=done
      jump again
    done:
      return (r0)
    """
    with load(text, memory_max=1 << 20) as m:
        assert m.call([]) == [3000]


def test_a_plan_that_is_too_long_is_tried_once() -> None:
    x = np.ones(8, np.float32)
    with Machine.from_bytes(
        artifact.to_bytes(add_program()), LoadOptions("generic", caches=CacheLimits(plan_bytes_max=16))
    ) as m:
        for _ in range(4):
            assert np.array_equal(m.call([x, x])[0], 3 * x)
        assert m.stats()["interpreted"] == 4 and m.stats()["traces"] == 0
