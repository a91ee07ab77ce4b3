"""Limits of one call: fuel, memory and time bind whatever a program does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.spec import to_json
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ArgumentError, DeadlineExceeded, Error, LimitExceeded
from shapevm.vm.load_options import CacheLimits, CallLimits, DepthLimits, LoadOptions
from shapevm.vm.machine import Machine

import shapevm

from .kernels import ADD, ADD_TEXT, add_program, code, with_code
from .programs import RECURSION, forever_at_0

ROOT = Path(__file__).parents[2]

#: 64 lists, each of which holds the one before twice: 2**64 leaves, 64 objects.
SHARED = "output 'y'\nfunction 'main' (0 params, 1 results)\n  int r0 7\n".replace("'", '"') + (
    "  list r0 (r0, r0)\n" * 64 + "  return (r0)\n"
)
#: The same with a tensor in the middle, planned.
SHARED_TENSOR = SHARED.replace("int r0 7", "int r1 3\n  alloc r0 f32 (r1)")
FOREVER = 'function "main" (0 params, 0 results)\nagain:\n  jump again\n'
MAIN = 'output "y"\nfunction "main" (0 params, 1 results)\n'
NUMBERS = MAIN + "  int r0 {n}\n  alloc r1 f32 (r0)\n  return (r1)\n"


#: Makes n + 1 tuples within each other.
NESTED = """input "n": int
output "y"
function "main" (1 params, 1 results)
  int r1 0
  int r2 1
  tuple r3 (r1)
again:
  lt r4 r1 r0
  branch r4 otherwise=done
  tuple r3 (r3)
  add r1 r1 r2
  jump again
done:
  return (r3)
"""


def load_deep(text: str, **depths: int) -> Machine:
    return Machine.from_bytes(artifact.to_bytes(assemble(text)), LoadOptions(depths=DepthLimits(**depths)))


def depth_of(x: Any) -> int:
    n = 0
    while isinstance(x, tuple):
        x, n = x[0], n + 1
    return n


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
        start = time.thread_time()
        with pytest.raises(LimitExceeded, match="fuel"):
            m.call([])
        assert time.thread_time() - start < 5  # a million instructions of it took hours


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
  item r4 r3 ()
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
        assert 0.04 < time.monotonic() - start < 60
    with load(FOREVER) as m:
        with pytest.raises(TimeoutError, match="80 ms"):
            m.call_as(None, [], timeout_ms=80)
        with pytest.raises(Error, match="negative"):
            m.call_as(None, [], timeout_ms=-1)


def test_other_calls_go_on_while_one_times_out() -> None:
    with load(forever_at_0("return (r0)"), timeout_ms=300) as m:
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


@pytest.mark.parametrize("limit", [1, 7, 1000, 100_000])
def test_recursion_goes_as_deep_as_its_limit(limit: int) -> None:
    with load_deep(RECURSION, calls=limit) as m:
        for _ in range(2):
            assert m.call([limit - 1]) == [limit - 1]
            with pytest.raises(
                LimitExceeded, match=f"call_depth: .* over the limit of {limit}; raise call_depth"
            ):
                m.call([limit])


def test_limits_of_depth_have_defaults() -> None:
    with load(RECURSION) as m:
        assert m.call([999]) == [999]
        with pytest.raises(LimitExceeded, match="1001 deep, over the limit of 1000"):
            m.call([1000])
    with load(NESTED) as m:
        assert depth_of(m.call([199])[0]) == 200
        with pytest.raises(LimitExceeded, match="nesting: .* 201 deep, over the limit of 200; raise nesting"):
            m.call([200])


@pytest.mark.parametrize("wrong", [{"calls": -1}, {"calls": (1 << 20) + 1}, {"nesting": 1001}])
def test_a_depth_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong.values()))} must be 0 .the greatest. to"):
        load_deep(RECURSION, **wrong)


def test_frames_count_as_memory() -> None:
    options = LoadOptions(limits=CallLimits(memory_max=50_000), depths=DepthLimits(calls=0))
    with Machine.from_bytes(artifact.to_bytes(assemble(RECURSION)), options) as m:
        with pytest.raises(LimitExceeded, match="memory_max: .* are over the limit of 50000 bytes"):
            m.call([1_000_000])
        assert m.call([100]) == [100]


def test_the_greatest_depths_fit_a_small_stack() -> None:
    """Calls and containers within each other take no C stack to speak of: 256 KiB are enough. In a process of
    its own: where Dynamo has been used, each call of a Python function takes C stack."""
    places = os.pathsep.join([str(Path(shapevm.__file__).parents[1]), str(ROOT)])
    command = [sys.executable, "-P", "-m", "tests.vm.test_limits"]
    environment = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{[(1 << 20) - 1, 1000]}\n"), done.stderr


def go_deep(found: list[Any]) -> None:
    """Append the greatest depths of calls and of containers; check what is said beyond them."""
    limit = sys.getrecursionlimit()
    with load_deep(RECURSION, calls=0) as m:
        found.extend(m.call([(1 << 20) - 1]))
        with pytest.raises(LimitExceeded, match="over the limit of 1048576"):
            m.call([1 << 20])
    with load_deep(NESTED, nesting=0) as m:
        with pytest.raises(LimitExceeded, match="1001 deep, over the limit of 1000; flatten it"):
            m.call([1000])
        sys.setrecursionlimit(5000)
        try:
            found.append(depth_of(m.call([999])[0]))
        finally:
            sys.setrecursionlimit(limit)
        with pytest.raises(LimitExceeded, match="nesting: .* Python's recursion limit of"):
            m.call([999])


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_inputs_nest_as_deep_as_the_limit(kind: type) -> None:
    def deep(n: int) -> Any:
        x: Any = 1
        for _ in range(n - 1):
            x = {"a": x} if kind is dict else kind([x])
        return [x]

    text = 'input "x": list\noutput "y"\nfunction "main" (1 params, 1 results)\n  return (r0)\n'
    with load_deep(text, nesting=50) as m:
        assert m.call([deep(50)]) == [deep(50)]
        with pytest.raises(LimitExceeded, match="51 deep, over the limit of 50; raise nesting"):
            m.call([deep(51)])


if __name__ == "__main__":
    depths: list[Any] = []
    threading.stack_size(256 << 10)
    thread = threading.Thread(target=go_deep, args=(depths,))
    thread.start()
    thread.join()
    print(depths)
