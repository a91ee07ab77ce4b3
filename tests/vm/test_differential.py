"""Python's definition against the C runtime: loading, verifying and running must agree."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ArtifactError, Error, KernelError, TargetError, VerifyError
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine
from shapevm.vm.program import MachineCode, Program, Work
from shapevm.vm.reference import Reference
from shapevm.vm.verify import static_flow, verify

from .kernels import ADD_ROW, ADD_TEXT, add_program, runner
from .kernels import with_code as compiled
from .programs import programs, sample, with_code
from .test_artifact import HEADER, covered, rehash

MUTANTS = 600  # per seed
#: Other seeds at every run; hypothesis says which one fails.
seeds = lambda test: settings(max_examples=5, deadline=None)(given(seed=st.integers(0, 1 << 32))(test))  # noqa: E731
OPTIONS = LoadOptions(strategy="generic", limits=CallLimits(fuel=100_000))


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in kind and bits."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def outcome(call: Any) -> tuple[Any, ...]:
    """Return ("ok", results) or the error's code and place."""
    try:
        return "ok", call()
    except Error as error:
        return type(error).__name__, error.function, error.pc, error.source


def assert_agree(program: Program, inputs: list[Any]) -> None:
    expected = outcome(lambda: Reference(program, runner(program)).call(inputs))
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        assert [f.is_static_flow for f in machine.functions] == list(static_flow(program))
        for attempt in range(3):
            got = outcome(lambda: machine.call(inputs))
            assert same(got, expected), (attempt, got, expected)


@settings(max_examples=400, deadline=None)
@given(programs())
def test_random_programs_run_alike(program: Program) -> None:
    assert_agree(program, [])


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ((-1, '"s"'), "ShapeError"),
        (('"s"', -1), "KindError"),
        ((1 << 40, 1 << 40), "ShapeError"),
        ((2, 3), "KindError"),
    ],
)
@pytest.mark.parametrize(
    "instruction",
    [
        'expect r0 dtype=f32 sizes=(r1, r2) "x"',
        "alloc d=r3 dtype=f32 sizes=(r1, r2)",
        "view d=r3 a=r4 sizes=(r1, r2)",
    ],
)
def test_sizes_are_checked_alike(instruction: str, sizes: tuple[Any, Any], error: str) -> None:
    program = assemble(f"""
output "y"
constant c0 bool = True
constant c1 {constant(sizes[0])}
constant c2 {constant(sizes[1])}
constant c3 f32[6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
function "main" (0 params, 1 results)
  const r0 c0
  const r1 c1
  const r2 c2
  const r4 c3
  {instruction}
  return (r0)
""")
    assert_agree(program, [])
    is_held = sizes == (2, 3) and not instruction.startswith("expect")
    assert outcome(lambda: Reference(program, runner(program)).call([]))[0] == ("ok" if is_held else error)


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ((0, 0), ""),
        ((1, 2), ""),
        ((2, 0), "IndexOutOfRange"),
        ((0, 3), "IndexOutOfRange"),
        ((0, -1), "IndexOutOfRange"),
        ((1 << 62, 1 << 62), "IndexOutOfRange"),
        ((0,), "IndexOutOfRange"),
        ((0, 0, 0), "IndexOutOfRange"),
        ((0, '"s"'), "KindError"),
        ((), "ShapeError"),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "f64", "bf16"])
def test_elements_are_read_alike(at: tuple[Any, ...], error: str, dtype: str) -> None:
    constants = "".join(f"constant c{i + 1} {constant(value)}\n" for i, value in enumerate(at))
    values = "[1, 2, 3, 4, 5, 16256]" if dtype in ("i32", "bf16") else "[1, 2, 3, 4, 5, 6]"
    program = assemble(f"""
output "y"
constant c0 {dtype}[2, 3] = {values}
{constants}function "main" (0 params, 1 results)
  const r0 c0
{"".join(f"  const r{i + 1} c{i + 1}" + chr(10) for i in range(len(at)))}\
  item d=r4 a=r0 at=({", ".join(f"r{i + 1}" for i in range(len(at)))})
  return (r4)
""")
    assert_agree(program, [])
    assert outcome(lambda: Reference(program, runner(program)).call([]))[0] == (error or "ok")


@pytest.mark.parametrize(
    ("begin", "error"),
    [
        (0, ""),
        (4, ""),
        (5, "IndexOutOfRange"),
        (-1, "IndexOutOfRange"),
        (1 << 62, "IndexOutOfRange"),
        ('"s"', "KindError"),
    ],
)
@pytest.mark.parametrize("of", ["r0", "r5", "r6"])
def test_parts_are_taken_alike(begin: Any, error: str, of: str) -> None:
    """Of a constant, of memory to which nothing was written, and of a part; they outlive what they are of."""
    program = assemble(f"""
output "y"
output "z"
constant c0 i32[8] = [1, 2, 3, 4, 5, 6, 7, 8]
constant c1 {constant(begin)}
function "main" (0 params, 2 results)
  const r0 c0
  const r1 c1
  int r2 2
  int r3 0
  int r4 6
  alloc d=r5 dtype=i32 sizes=(r4)
  part d=r6 a=r0 begin=r2 sizes=(r4)
  part d=r7 a={of} begin=r1 sizes=({"r2, r2" if of == "r0" else "r2"})
  free values=({of})
  item d=r8 a=r7 at=({"r3, r3" if of == "r0" else "r3"})
  return (r7, r8)
""")
    assert_agree(program, [])
    assert outcome(lambda: Reference(program, runner(program)).call([]))[0] == (error or "ok")


@pytest.mark.parametrize("of", ["r0", "r4"])
def test_parts_are_not_written(of: str) -> None:
    """Of an input, and of memory that is written otherwise."""
    other = f"part d=r3 a={of} begin=r5 sizes=(r2)\n  kernel k0 (r2) (r0, r1, r3)"
    text = ADD_TEXT.replace("alloc r3 f32 (r2)", "int r5 0\n  alloc r4 f32 (r2)")
    program = compiled(assemble(text.replace("kernel k0 (r2) (r0, r1, r3)", other)))
    assert_agree(program, [np.ones(3, np.float32)] * 2)
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine, pytest.raises(KernelError):
        machine.call([np.ones(3, np.float32)] * 2)


@pytest.mark.parametrize("n", [2, 5])
def test_plans_read_parts(n: int) -> None:
    """Of an input, of new memory and of a part, by a call that makes a plan and one that replays it."""
    program = compiled(
        assemble(f"""
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
input "z": f32[s0]
output "y"
output "w"
kernel k0 {ADD_ROW}
function "main" (3 params, 2 results)
  int r3 1
  sub d=r4 a=r2 b=r3
  part d=r5 a=r0 begin=r3 sizes=(r4)
  part d=r6 a=r1 begin=r3 sizes=(r4)
  alloc r7 f32 (r4)
  kernel k0 (r4) (r5, r6, r7)
  sub d=r8 a=r4 b=r3
  part d=r9 a=r7 begin=r3 sizes=(r8)
  part d=r6 a=r6 begin=r3 sizes=(r8)
  free (r7)
  alloc r10 f32 (r8)
  kernel k0 (r8) (r9, r6, r10)
  return (r10, {"r9" if n == 5 else "r10"})
""")
    )
    x, z = np.arange(n, dtype=np.float32), np.full(n, 2.5, np.float32)
    expected = Reference(program, runner(program)).call([x, z])
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        for _ in range(3):
            assert same(machine.call([x, z]), expected)
        assert machine.stats()["replays"] == (0 if n == 5 else 2)  # a result that is a part is copied


def constant(value: Any) -> str:
    """Return a constant's text from its kind on."""
    return f"{'int' if isinstance(value, int) else 'str'} = {value}"


@pytest.mark.parametrize("n", [1, 3, 100])
def test_kernels_run_alike(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((2, n), np.float32)
    assert_agree(add_program(), [x[0], x[1]])


LISTS = """
    output "y"
    constant c0 int = {index}
    constant c1 str = "ab"
    constant c2 str = "c"
    function "main" (0 params, 1 results)
      int d=r0 value=4
      int d=r1 value=5
      list d=r2 values=(r0, r1, r0)
      const r3 c0
      {change}
      return (r2)
"""


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "change",
    [
        "set d=r2 a=r2 index=r3 value=r1",
        "set d=r4 a=r2 index=r3 value=r1",
        "set d=r2 a=r2 index=r3 value=r2",
        "slice d=r2 a=r2 begin=r3 end=r3",
        "int d=r4 value=0\n      slice d=r2 a=r2 begin=r4 end=r3",
        "int d=r4 value=3\n      slice d=r2 a=r2 begin=r3 end=r4",
    ],
)
def test_lists_are_changed_alike(change: str, index: int) -> None:
    assert_agree(assemble(LISTS.format(change=change, index=index)), [])


def test_a_list_that_was_deep_may_grow_again() -> None:
    """The depth of a list is that of what is in it now, whether it was changed in place or not."""
    deepen = "\n      ".join("list d=r5 values=(r5)" for _ in range(62))
    change = f"""list d=r5 values=(r0)
      {deepen}
      set d=r2 a=r2 index=r3 value=r5
      set d=r2 a=r2 index=r3 value=r0
      list d=r2 values=(r2)"""
    assert_agree(assemble(LISTS.format(change=change, index=1)), [])


@pytest.mark.parametrize("index", [7, -(1 << 63), 0])
def test_strings_are_made_alike(index: int) -> None:
    change = """const r4 c1
      const r5 c2
      concat d=r6 a=r4 b=r5
      format d=r7 a=r3
      concat d=r7 a=r6 b=r7
      eq d=r8 a=r4 b=r5
      ne d=r9 a=r4 b=r5
      format d=r10 a=r9
      list d=r2 values=(r6, r7, r8, r9, r10)"""
    assert_agree(assemble(LISTS.format(change=change, index=index)), [])


@pytest.mark.parametrize("relation", ["eq", "ne"])
def test_a_message_that_is_computed(relation: str) -> None:
    change = f"""const r4 c1
      {relation} d=r5 a=r4 b=r4
      format d=r6 a=r3
      concat d=r6 a=r4 b=r6
      require cond=r5 message=r6"""
    program = assemble(LISTS.format(change=change, index=-3))
    assert_agree(program, [])
    if relation == "ne":
        with (
            pytest.raises(Error, match="ab-3"),
            Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine,
        ):
            machine.call([])


@pytest.mark.parametrize(
    "kind, values",
    [
        ("int", (3, -1, 2)),
        ("int", (3, -1, 3)),
        ("str", ('"a"', '"ab"', '""')),
        ("str", ('"a"', '"ab"', '"a"')),
        ("float", ("0.0", "-0.0", "1.5")),
        ("float", ("nan", "nan", "1.5")),
        ("bool", ("True", "False", "True")),
    ],
)
def test_distinct_elements(kind: str, values: tuple[Any, ...]) -> None:
    constants = "\n".join(f"        constant c{i} {kind} = {value}" for i, value in enumerate(values))
    program = assemble(f"""
        output "y"
        output "empty"
{constants}
        function "main" (0 params, 2 results)
          const r0 c0
          const r1 c1
          const r2 c2
          list d=r3 values=(r0, r1, r2)
          distinct d=r4 a=r3
          list d=r5 values=()
          distinct d=r6 a=r5
          return (r4, r6)
    """)
    assert_agree(program, [])


def test_distinct_elements_are_plain() -> None:
    change = """scalar d=r4 dtype=f32 a=r3
      list d=r5 values=(r3, r4)
      distinct d=r6 a=r5
      move d=r5 a=r4"""
    assert_agree(assemble(LISTS.format(change=change, index=1)), [])


@pytest.mark.parametrize("tag, rank", [(2, 0), (4, 0), (5, 0), (5, 1)])
def test_elements_are_checked_alike(tag: int, rank: int) -> None:
    change = f"""scalar d=r4 dtype=f32 a=r3
      list d=r5 values=(r4, r4)
      expect_items a=r5 tag={tag} dtype=f32 rank={rank} what="xs"
      expect_items a=r5 tag={tag} dtype=f64 rank={rank} what="xs"
      move d=r5 a=r4"""
    assert_agree(assemble(LISTS.format(change=change, index=1)), [])


def test_contract_errors_are_the_same_sentences() -> None:
    program = add_program()
    reference = Reference(program, runner(program))
    x = np.zeros(8, "f4")
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        for inputs in (
            [x], [], [x, x, x], [x, x[:3]], [x[:0], x[:0]], [np.zeros(2000, "f4"), x],
            [x.reshape(2, 4), x], [x.astype("f8"), x],
            [x, 1.5], [None, x], [x, 3], [x, "s"],
        ):  # fmt: skip
            with pytest.raises(Error) as expected:
                reference.call(inputs)
            with pytest.raises(Error) as got:
                machine.call(inputs)
            assert (type(got.value), str(got.value)) == (type(expected.value), str(expected.value))


def verdict(load: Any) -> Any:
    """Return None for a program that is accepted, else the kind of refusal and, from a verifier, its
    place.
    """
    try:
        load()
    except VerifyError as error:
        return "verify", error.function, error.pc
    except ArtifactError:
        return "artifact"
    return None


def refusal(load: Any) -> str:
    try:
        load()
    except Error as error:
        return str(error)
    return "accepted"


def verify_in_python(data: bytes) -> None:
    verify(artifact.from_bytes(data))


def open_in_c(data: bytes) -> None:
    with Machine.from_bytes(data, OPTIONS) as machine:
        machine.meta  # noqa: B018 (parsed on request)


def loadable() -> Program:
    """Return the sample program with machine code for this CPU, which C demands of all kernels."""
    program, add = sample(objects=False), add_program().kernels[0]
    nothing = program.kernels[1]
    code = MachineCode(b"\xc3")
    ret = replace(add.objects[0], spec_hash=nothing.spec_hash, n_dims=0, buffers=(), work=Work(), code=code)
    ret = replace(ret, bounds=())
    copy = program.kernels[0]
    return replace(
        program,
        kernels=(
            replace(copy, objects=(replace(ret, spec_hash=copy.spec_hash, n_dims=1, buffers=copy.buffers),)),
            replace(nothing, objects=(ret,)),
        ),
    )


@seeds
def test_verifiers_agree_on_mutants(seed: int) -> None:
    """The same verdict at the same place on words that were changed at random."""
    program, rng, accepted = loadable(), random.Random(seed), 0
    for _ in range(MUTANTS):
        code = list(program.functions[0].code)
        for _ in range(rng.choice((1, 1, 2, 3))):
            code[rng.randrange(len(code))] = rng.choice(
                (rng.randrange(12), rng.randrange(48), rng.getrandbits(32))
            )
        if rng.random() < 0.1:
            code = code[: rng.randrange(1, len(code))]
        data = artifact.to_bytes(with_code(program, tuple(code)))
        expected = verdict(partial(verify_in_python, data))
        assert verdict(partial(open_in_c, data)) == expected, code
        accepted += expected is None
    assert 0 < accepted < MUTANTS


@seeds
@example(seed=537)  # a constant of sizes [0, 2^60]
def test_loaders_agree_on_hostile_artifacts(seed: int) -> None:
    """Both refuse, or both accept, an artifact whose bytes were changed and whose hashes were made right."""
    data = artifact.to_bytes(loadable())
    rng, refused = random.Random(seed), 0
    places = covered(data)[HEADER:]
    for _ in range(MUTANTS):
        changed = bytearray(data)
        for at in rng.sample(places, rng.choice((1, 1, 2, 5))):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        hostile = rehash(bytes(changed))
        try:
            got = verdict(partial(open_in_c, hostile))
        except TargetError:
            continue  # without code for this CPU, C looks no further
        load = partial(verify_in_python, hostile)
        expected = verdict(load)
        refused += expected is not None
        assert (expected is None) == (got is None), (expected, got, refusal(load))
    assert refused > MUTANTS // 10
