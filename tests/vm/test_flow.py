"""Plans of programs whose flow depends on elements: of inputs without axes, whose values are in the key; or
of what kernels compute, so that every call is interpreted."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine

from .kernels import ADD_ROW, with_code

#: y = 2 * x or 3 * x, as the input tells; and the next value of the input, as a tensor.
CHOOSE = """
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
input "way": DTYPE[]
output "y"
output "next"
kernel k0 ADD_ROW
constant c0 KIND = ONE
constant c1 KIND = TWO
function "main" (3 params, 2 results)
  item r3 r1 ()
  const r4 c0
  const r8 c1
  alloc r5 f32 (r2)
  kernel k0 (r2) (r0, r0, r5)
  move r6 r5
  ne r7 r3 r4
  branch r7 done
  alloc r6 f32 (r2)
  kernel k0 (r2) (r5, r0, r6)
  move r8 r4
done:
  scalar r8 DTYPE r8
  return (r6, r8)
"""
KINDS = {
    "i64": ("int", "1", "2", np.int64),
    "i8": ("int", "-1", "-2", np.int8),
    "f32": ("float", "1.5", "-0.5", np.float32),
    "f64": ("float", "1.5", "0.1", np.float64),
}


def choose(dtype: str) -> str:
    kind, one, two, _ = KINDS[dtype]
    pairs = {"DTYPE": dtype, "KIND": kind, "ONE": one, "TWO": two}
    return reduce(lambda text, pair: text.replace(*pair), pairs.items(), CHOOSE)


def load(text: str, **limits: int) -> Machine:
    text = text.replace("ADD_ROW", ADD_ROW)
    options = LoadOptions("generic", limits=CallLimits(**limits))
    return Machine.from_bytes(artifact.to_bytes(with_code(assemble(text))), options)


@pytest.mark.parametrize("dtype", KINDS)
def test_values_without_axes_are_part_of_the_key(dtype: str) -> None:
    _, *texts, to = KINDS[dtype]
    first, second = (np.array(eval(text), to) for text in texts)
    way = first
    x = np.arange(5, dtype=np.float32)
    with load(choose(dtype)) as m:
        for _ in range(10):
            y, after = m.call([x, way])
            is_one = way == first
            assert np.array_equal(y, (2 if is_one else 3) * x)
            assert after.dtype == way.dtype and after.shape == () and after == (second if is_one else first)
            way = after
        stats = m.stats()
        assert stats["traces"] == 2 and stats["interpreted"] == 2 and stats["replays"] == 6


def test_values_that_come_once_get_no_plan() -> None:
    with load(choose("i64")) as m:
        for way in range(2, 200):
            m.call([np.ones(3, np.float32), np.array(way)])
        assert m.stats()["traces"] == 0 and m.stats()["interpreted"] == 198


def test_plans_are_chosen_by_sizes_too() -> None:
    with load(choose("i64")) as m:
        for n in (1, 2, 1, 2, 1, 2):
            for way in (1, 2):
                y, _ = m.call([np.ones(n, np.float32), np.array(way)])
                assert y.tolist() == [way + 1.0] * n
        assert m.stats()["traces"] == 4


COMPUTED = """
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
output "y"
kernel k0 ADD_ROW
function "main" (2 params, 1 results)
  int r2 1
  alloc r3 f32 (r2)
  kernel k0 (r2) (r0, r0, r3)
  item r4 r3 ()
  return (r4)
"""


@pytest.mark.parametrize("text", [COMPUTED, COMPUTED.replace("item r4 r3 ()", "item r4 r0 ()")])
def test_what_the_key_does_not_hold_is_read_in_every_call(text: str) -> None:
    """A kernel's result, and the element of an input that has an axis."""
    with load(text) as m:
        for value in (1, 2, 3, 1, 1, 1):
            (y,) = m.call([np.array([value], np.float32)])
            assert y == (2 * value if "item r4 r3 ()" in text else value)
        assert m.stats()["traces"] == 0 and m.stats()["interpreted"] == 6


def test_fuel_of_a_trace_that_is_given_up_is_not_lost() -> None:
    """Seven instructions and a result."""
    with load(COMPUTED, fuel=9) as m:
        for _ in range(3):
            assert m.call([np.array([2], np.float32)]) == [4.0]


def test_inputs_that_are_written_are_interpreted() -> None:
    text = """
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
input "n": f32[] written
output "y"
kernel k0 ADD_ROW
function "main" (3 params, 1 results)
  int r3 1
  view r4 r1 (r3)
  kernel k0 (r3) (r4, r4, r4)
  item r5 r1 ()
  return (r5)
"""
    values: Any = np.array(1, np.float32)
    with load(text) as m:
        found = [m.call([np.ones(2, np.float32), values])[0] for _ in range(4)]
        assert found == [2.0, 4.0, 8.0, 16.0] and m.stats()["traces"] == 0


#: Twice a tensor of a number, from the size or from an input.
SCALARS = """
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
input "k": int
output "y"
kernel k0 ADD_ROW
function "main" (3 params, 1 results)
  int r3 1
  scalar r4 f32 NUMBER
  view r4 r4 (r3)
  alloc r5 f32 (r3)
  kernel k0 (r3) (r4, r4, r5)
  return (r5)
"""


def test_tensors_of_sizes_are_planned_at_the_first_call() -> None:
    text = SCALARS.replace('input "k": int\n', "").replace("NUMBER", "r1").replace("3 params", "2 params")
    with load(text) as m:
        for n in (3, 5, 3, 5, 7):
            assert m.call([np.ones(n, np.float32)])[0] == [2.0 * n]
        stats = m.stats()
        assert (stats["traces"], stats["replays"], stats["interpreted"]) == (3, 2, 0)


def test_tensors_of_numbers_are_planned_once_these_came_before() -> None:
    with load(SCALARS.replace("NUMBER", "r1")) as m:
        for k in (*range(9), 3, 3):
            assert m.call([np.ones(4, np.float32), k])[0] == [2.0 * k]
        stats = m.stats()
        assert (stats["traces"], stats["replays"], stats["interpreted"]) == (1, 1, 9)
