from __future__ import annotations

import hashlib
import itertools
import json
import platform
import random
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json
from shapevm.vm import artifact, host, machine, values
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.arrays import NUMPY, library_of
from shapevm.vm.assembler import assemble
from shapevm.vm.contract import Contract
from shapevm.vm.errors import (
    ArgumentError,
    ArtifactError,
    CompileError,
    DeviceError,
    DtypeError,
    Error,
    ExternError,
    FileError,
    GuardError,
    IndexOutOfRange,
    KindError,
    ShapeError,
    TargetError,
    VerifyError,
)
from shapevm.vm.isa import OPCODES
from shapevm.vm.layout import BY_NAME
from shapevm.vm.load_options import LoadOptions
from shapevm.vm.machine import Machine, Price, Request
from shapevm.vm.program import KernelKey, KernelObject, MachineCode, Program, SizeRange, Work
from shapevm.vm.reference import Reference
from shapevm.vm.verify import verify
from shapevm.vm.work import work_of

from .kernels import ADD, ADD_TEXT, GATHER, GATHER_TEXT, add_program, code, runner, with_code
from .programs import sample

GENERIC = LoadOptions(strategy="generic")


def load(program: Program, options: LoadOptions = GENERIC) -> Machine:
    return Machine.from_bytes(artifact.to_bytes(program), options)


@pytest.fixture
def add() -> Iterator[Machine]:
    with load(add_program()) as made:
        yield made


def pair(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n)
    return rng.standard_normal(n, np.float32), rng.standard_normal(n, np.float32)


# Arrays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000])
def test_numpy_and_torch(add: Machine, n: int) -> None:
    x, z = pair(n)
    for _ in range(3):
        (got,) = add.call([x, z])
        assert type(got) is np.ndarray and got.dtype == np.float32
        np.testing.assert_array_equal(got, x + z + z)
        (got,) = add.call([torch.from_numpy(x), torch.from_numpy(z)])
        assert type(got) is torch.Tensor and torch.equal(got, torch.from_numpy(x + z + z))
        (got,) = add.call([x, torch.from_numpy(z)])
        assert type(got) is torch.Tensor and torch.equal(got, torch.from_numpy(x + z + z))


def test_results_are_the_callers(add: Machine) -> None:
    x, z = pair(64)
    results = [add.call([x, z])[0] for _ in range(5)]
    for result in results[1:]:
        assert not np.shares_memory(results[0], result)
        np.testing.assert_array_equal(result, results[0])


class Dlpack:
    """An array of a library that only speaks DLPack."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def odd_numpy(x: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield arrays equal to `x` that are not plain in one way or another."""
    yield np.repeat(x, 2)[::2]
    yield x[::-1].copy()[::-1]
    read_only = x.copy()
    read_only.flags.writeable = False
    yield read_only
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = x.view(np.uint8)
    yield raw[1:].view(x.dtype)  # misaligned
    yield x.astype(">f4")
    yield x.view(np.memmap)


def test_odd_numpy_arrays(add: Machine) -> None:
    x, z = pair(64)
    for _ in range(2):
        for array in (*odd_numpy(x), Dlpack(x)):
            np.testing.assert_array_equal(add.call([array, z])[0], x + z + z)


def test_odd_torch_tensors(add: Machine) -> None:
    x, z = map(torch.from_numpy, pair(64))
    raw = torch.zeros(257, dtype=torch.uint8)
    raw[1:] = x.view(torch.uint8)
    odd = [
        x.repeat_interleave(2)[::2],
        x.clone().requires_grad_(),
        torch.nn.Parameter(x.clone()),
        torch.frombuffer(bytearray(raw.numpy().tobytes()), dtype=torch.float32, offset=1),  # misaligned
        torch.complex(x, -x).conj().imag,  # lazily negated
        torch._neg_view(-x),  # and contiguous
    ]
    for _ in range(3):
        for tensor in odd:
            (got,) = add.call([tensor, z])
            assert torch.equal(got, x + z + z) and not got.requires_grad
        assert torch.equal(add.call([x[:1].expand(64), z])[0], x[:1] + z + z)
    for _ in range(3):
        one = torch.complex(x[:1], -x[:1]).conj().imag  # contiguous by its strides, and yet not plain
        assert torch.equal(add.call([one, z[:1]])[0], x[:1] + z[:1] + z[:1])
    with torch.inference_mode():
        assert torch.equal(add.call([x, z])[0], x + z + z)


@pytest.mark.parametrize("is_warm", [False, True])
def test_unfit_arrays(add: Machine, is_warm: bool) -> None:
    x, z = pair(8)
    t = torch.from_numpy(x)
    if is_warm:
        for xs in ([x, z], [t, z]):
            add.call(xs)
    for bad, error, message in (
        (t.to("meta"), DeviceError, 'input "x" is on meta; the program runs on the CPU: pass .cpu()'),
        (t.to_sparse(), KindError, 'input "x" has layout torch.sparse_coo; pass .to_dense()'),
        (t.to_mkldnn(), KindError, 'input "x" has layout torch._mkldnn; pass .to_dense()'),
        (t.to(torch.complex64), DtypeError, 'input "x" is torch.complex64; no program takes that'),
        (x.astype("c8"), DtypeError, 'input "x" is complex64; no program takes that'),
        (x.astype("f8"), DtypeError, 'input "x" is f64; the program takes f32: convert it first'),
        (Dlpack(x, 2), DeviceError, 'input "x" is on DLPack device (2, 0); the program runs on the CPU'),
        ([x], KindError, 'input "x" is a list; the program takes a tensor'),
        ([[1.0], [2.0, 3.0]], KindError, 'input "x" is a list of lists of different lengths'),
        (1.5, KindError, 'input "x" is a float; the program takes a tensor'),
        (None, KindError, 'input "x" is None; the program takes a tensor'),
        (object(), KindError, 'input "x" is of type object; pass an array'),
    ):
        for _ in range(2):
            with pytest.raises(error) as caught:
                add.call([bad, z])
            assert message in str(caught.value)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(t)
    with pytest.raises(KindError, match="no memory"):
        add.call([fake, z])


# The contract ---------------------------------------------------------------------------------------


def test_contract_is_what_was_written(add: Machine) -> None:
    program = add_program()
    assert (add.inputs, add.symbols, add.outputs) == (program.inputs, program.symbols, program.outputs)
    with load(with_code(assemble(TEXT_OF_KINDS))) as kinds:
        assert kinds.inputs == assemble(TEXT_OF_KINDS).inputs
    with Machine.from_bytes(artifact.to_bytes(sample()), LoadOptions(has_compiler=True)) as declared:
        assert declared.outputs == sample().outputs
    assert (
        add.kernels[0].label == "add"
        and add.kernels[0].source == "model.py:5"
        and add.kernels[0].n_objects == 1
    )
    assert add.functions == (machine.FunctionInfo("main", 3, 1, 5, True),)


def test_contract_errors(add: Machine) -> None:
    x, z = pair(8)
    for xs, error, message in (
        ([x], ArgumentError, "the program takes 2 inputs (x, z), 1 given"),
        (
            [x.reshape(2, 4), z],
            ShapeError,
            'input "x" has rank 2, sizes [2, 4]; the program takes rank 1: [n]',
        ),
        (
            [x, z[:5]],
            ShapeError,
            'axis 0 has size 5, so n is 5; but input "x": axis 0 has size 8, so n is 8 (model.py:3)',
        ),
        ([x[:0], z[:0]], ShapeError, "axis 0 has size 0, so n is 0; it must be at least 1 (model.py:3)"),
        ([*pair(1001)], ShapeError, "so n is 1001; it must be at most 1000 (model.py:3)"),
    ):
        for call in (add.call, add.bind):
            with pytest.raises(error) as caught:
                call(xs)
            assert message in str(caught.value)
    assert add.bind([x, z]) == {"n": 8}


TEXT_OF_KINDS = """
symbol "n" 0 ..
input "t": i64[s0, 3]
input "k": int
input "scale": float
input "flag": bool
input "name": str
output "all"
function "main" (6 params, 1 results)
  tuple r6 (r0, r1, r2, r3, r4, r5)
  list r7 (r6, r6)
  dict r8 (r4, r7, r1, r6)
  return (r8)
"""


def test_values_of_all_kinds() -> None:
    with load(assemble(TEXT_OF_KINDS)) as m:
        t = np.arange(6).reshape(2, 3)
        for args in (
            [t, 5, 2.5, True, "ß\n"],
            [t, 5, 2, False, ""],
            [t[:0], -(1 << 63), float("inf"), True, "x" * 5000],
        ):
            (got,) = m.call(args)
            inner = got[args[4]][0]
            assert list(got) == [args[4], args[1]] and type(got[args[4]]) is list and type(inner) is tuple
            np.testing.assert_array_equal(inner[0], args[0])
            assert inner[1:] == (args[1], float(args[2]), args[3], args[4], len(args[0]))
            assert [type(v) for v in inner[1:]] == [int, float, bool, str, int]
            assert not np.shares_memory(inner[0], args[0])  # an input that is a result is copied
        for bad, message in (
            ([t, 1 << 63, 1.0, True, ""], 'input "k" is 9223372036854775808; it must fit 64 bits'),
            ([t, 1.0, 1.0, True, ""], 'input "k" is a float; the program takes an int'),
            ([t, True, 1.0, True, ""], 'input "k" is a bool; the program takes an int'),
            ([t, 1, 1.0, 1, ""], 'input "flag" is an int; the program takes a bool'),
        ):
            with pytest.raises(Error) as caught:
                m.call(bad)
            assert message in str(caught.value)


def test_floats_change_between_warm_calls() -> None:
    text = """
input "x": f32[2]
input "s": float
output "y"
output "t"
function "main" (2 params, 2 results)
  return (r1, r0)
"""
    with load(assemble(text)) as m:
        for s in (1.0, 2.0, -0.5):
            got = m.call([torch.ones(2), s])
            assert got[0] == s and torch.equal(got[1], torch.ones(2))


def test_ints_make_shapes() -> None:
    text = """
input "k": int
output "y"
function "main" (1 params, 1 results)
  alloc r1 i32 (r0)
  return (r1)
"""
    with load(assemble(text)) as m:
        for k in (3, 1, 3, 0, 2, 1):
            assert m.call([k])[0].shape == (k,)
        with pytest.raises(ShapeError):
            m.call([-1])


def test_constants_are_copied() -> None:
    text = """
output "y"
constant c0 f32[2] = [1.0, 2.0]
function "main" (0 params, 1 results)
  const r0 c0
  return (r0)
"""
    with load(assemble(text)) as m:
        first = m.call([])[0]
        first[:] = 9
        np.testing.assert_array_equal(m.call([])[0], np.array([1, 2], "f4"))


def test_dtypes() -> None:
    names = {
        "bool": "bool",
        "u8": "uint8",
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "i64": "int64",
        "f16": "float16",
    }
    names |= {"bf16": "bfloat16", "f32": "float32", "f64": "float64"}
    for name, full in names.items():
        text = f'input "x": {name}[3]\noutput "y"\nfunction "main" (1 params, 1 results)\n  return (r0)'
        with load(assemble(text)) as m:
            x = torch.tensor([0, 1, 2]).to(getattr(torch, full))
            (got,) = m.call([x])
            assert got.dtype == x.dtype and torch.equal(got, x)
            array = x.view(torch.uint16).numpy() if name == "bf16" else x.numpy()
            (back,) = m.call([array])
            assert back.dtype == array.dtype
            np.testing.assert_array_equal(back, array)


# Errors while running -------------------------------------------------------------------------------


def test_errors_carry_their_place() -> None:
    text = """
input "k": int
function "main" (1 params, 0 results)
  line "model.py:7"
  eq r1 r0 r0
  not r1 r1
  guard r1 "never"
  return ()
"""
    with load(assemble(text)) as m:
        with pytest.raises(GuardError) as caught:
            m.call([1])
        error = caught.value
        assert (error.args[0], error.function, error.pc, error.source) == ("never", 0, 7, "model.py:7")
        assert str(error) == "never (model.py:7)"


def test_index_out_of_range_in_a_kernel() -> None:
    with load(with_code(assemble(GATHER_TEXT))) as m:
        table = np.arange(4, dtype="f4")
        for index in ([1, 3, 0], [2, 2, 2]):
            np.testing.assert_array_equal(m.call([table, np.array(index)])[0], table[index])
        for _ in range(3):
            with pytest.raises(
                IndexOutOfRange, match="index 4 is out of range for an axis of size 4"
            ) as caught:
                m.call([table, np.array([1, 4, 0])])
            assert caught.value.source == "model.py:8"
        np.testing.assert_array_equal(m.call([table, np.array([3, 3, 3])])[0], table[[3, 3, 3]])


def test_externs() -> None:
    text = """
input "x": f32[2]
output "y"
function "main" (1 params, 1 results)
  int r1 3
  call_packed "twice" (r2) (r0, r1)
  return (r2)
"""
    with load(assemble(text)) as m:
        x = np.array([1, 2], "f4")
        assert m.externs == ("twice",)
        with pytest.raises(ExternError, match="twice"):
            m.call([x])
        with pytest.raises(Error, match="thrice"):
            m.register_extern("thrice", lambda *_: [])
        m.register_extern("twice", lambda a, n: [a * n])
        for _ in range(3):
            np.testing.assert_array_equal(m.call([x])[0], x * 3)
    for answer, message in (
        (lambda *_: [], "gave 0 results"),
        (lambda *_: 1 / 0, "ZeroDivisionError"),
        (lambda *_: [object()], "object"),
    ):
        with load(assemble(text)) as m:
            m.register_extern("twice", answer)
            with pytest.raises(Error, match=message):
                m.call([x])
    for value in ("text", 5, None, True, (1, [2.5, "a"]), {"k": 1}):
        with load(assemble(text)) as m:
            m.register_extern("twice", lambda *_, v=value: [v])
            assert m.call([x]) == [value]


def test_externs_without_copies() -> None:
    text = """
input "x": f32[2]
output "y"
function "main" (1 params, 1 results)
  line "model.py:3"
  call_packed "ns::twice" (r1) (r0)
  call_packed "ns::twice" (r2) (r1)
  return (r2)
"""
    seen: list[int] = []

    def twice(a: np.ndarray) -> list[np.ndarray]:
        made = a * 2
        seen.extend((a.ctypes.data, made.ctypes.data))
        return [made]

    with load(assemble(text)) as m:
        assert m.extern_sources == {"ns::twice": "model.py:3"}
        with pytest.raises(ExternError, match=r"missing.*\(model.py:3\)"):
            m.call([np.ones(2, "f4")])
        m.register_extern("ns::twice", twice, NUMPY)
        x = np.array([1, 2], "f4")
        (y,) = m.call([x])
        np.testing.assert_array_equal(y, x * 4)
        assert seen[0] == x.ctypes.data and seen[2] == seen[1]  # memory of the caller's, then its own result
        assert not values._GIVEN


EXPECT = """
input "x": f32[2, 3]
output "y"
function "main" (1 params, 1 results)
  int r1 {rows}
  int r2 3
  line "model.py:7"
  expect r0 {dtype} ({sizes}) "aten::f"
  return (r0)
"""


@pytest.mark.parametrize(
    ("rows", "dtype", "sizes", "message"),
    [
        (2, "f32", "r1, r2", ""),
        (4, "f32", "r1, r2", "aten::f gave f32[2, 3]; the program was compiled for f32[4, 3]"),
        (2, "i64", "r1, r2", "aten::f gave f32[2, 3]; the program was compiled for i64[2, 3]"),
        (2, "f32", "r1", "aten::f gave f32[2, 3]; the program was compiled for f32[2]"),
    ],
)
def test_expect(rows: int, dtype: str, sizes: str, message: str) -> None:
    program = assemble(EXPECT.format(rows=rows, dtype=dtype, sizes=sizes))
    x = np.arange(6, dtype="f4").reshape(2, 3)
    with load(program) as m:
        for call in (m.call, Reference(program, runner(program)).call):
            if not message:
                np.testing.assert_array_equal(call([x])[0], x)
                continue
            with pytest.raises((DtypeError, ShapeError)) as caught:
                call([x])
            assert str(caught.value) == f"{message} (model.py:7)"


def test_call_function() -> None:
    with load(assemble(PAIR)) as m:
        assert m.call_function("pair", [1, "a"]) == [[1, "a", None]]
        with pytest.raises(ArgumentError, match="no function 'none'; it has main, pair"):
            m.call_function("none", [])
        with pytest.raises(ArgumentError):
            m.call_function("pair", [1])


PAIR = """
function "main" (0 params, 0 results)
  return ()
function "pair" (2 params, 1 results)
  none r2
  list r3 (r0, r1, r2)
  return (r3)
"""


# Loading --------------------------------------------------------------------------------------------


def test_open(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    artifact.write(replace(add_program(), meta={"name": "ä"}), path)
    with Machine.open(path, GENERIC) as m:
        x, z = pair(5)
        np.testing.assert_array_equal(m.call([x, z])[0], x + z + z)
        assert m.meta == {"name": "ä"}
    m.close()
    with pytest.raises(ArgumentError, match="closed"):
        m.call([x, z])
    with pytest.raises(FileError, match="none.svm"):
        Machine.open(tmp_path / "none.svm")
    (tmp_path / "bad.svm").write_bytes(b"no artifact")
    with pytest.raises(ArtifactError):
        Machine.open(tmp_path / "bad.svm")


def test_verified_when_loaded() -> None:
    broken = replace(add_program().functions[0], code=(99,))
    with pytest.raises(VerifyError) as caught:
        load(replace(add_program(), functions=(broken,)))
    assert (caught.value.function, caught.value.pc) == (0, 0)


def test_kernel_without_code() -> None:
    bare = assemble(ADD_TEXT)
    with pytest.raises(TargetError, match="add"), load(bare) as m:
        m.call([*pair(4)])


def test_unknown_strategy(add: Machine) -> None:
    with pytest.raises(ArgumentError, match="'fast' is unknown; known are auto, jit, bucket, generic"):
        load(add_program(), LoadOptions(strategy="fast"))
    with pytest.raises(ArgumentError):
        add.set_strategy("fast")


# Compilation ----------------------------------------------------------------------------------------


def test_a_function_has_a_strategy_of_its_own() -> None:
    def tier(n: int, strategy: str | None = None) -> str:
        x, z = pair(n)
        found = m.call([x, z]) if strategy is None else m.call_as(strategy, [x, z])
        np.testing.assert_array_equal(found[0], x + z + z)
        return {e.dims: e.tier for e in m.site(0).entries}[n,]

    with load(add_program(), LoadOptions(strategy="bucket")) as m:
        compiler = Compiler(m)
        try:
            assert tier(5) == "generic"
            m.set_function_strategy("main", "jit")
            assert (tier(6), tier(7, "bucket")) == ("exact", "generic")  # a call's own comes first
            m.set_function_strategy("main", None)
            assert tier(8) == "generic"
        finally:
            compiler.stop()
        assert [request.dims for request in compiler.seen] == [(6,)]
        with pytest.raises(ArgumentError, match="no function 'other'; it has main"):
            m.set_function_strategy("other", "jit")
        with pytest.raises(ArgumentError, match="'fast' is unknown"):
            m.set_function_strategy("main", "fast")


class Compiler(threading.Thread):
    """Answers a machine's requests; `failure` answers all of them with it."""

    def __init__(self, m: Machine, failure: str | None = None) -> None:
        super().__init__()
        self.machine, self.failure, self.seen = m, failure, list[Request]()
        m.attach_compiler()
        self.start()

    def run(self) -> None:
        while True:
            try:
                request = self.machine.wait_request(1.0)
            except ArgumentError:
                return
            if request is None:
                continue
            self.seen.append(request)
            if self.failure:
                self.machine.compile_failed(request.kernel, request.dims, self.failure)
            else:
                self.machine.install(request.kernel, code(ADD, request.dims))

    def stop(self) -> None:
        self.machine.attach_compiler(False)
        self.join()


def test_jit_compiles_before_the_first_run() -> None:
    with load(add_program(), LoadOptions(strategy="jit")) as m:
        compiler = Compiler(m)
        try:
            for n in (5, 9, 5, 9):
                x, z = pair(n)
                np.testing.assert_array_equal(m.call([x, z])[0], x + z + z)
        finally:
            compiler.stop()
        assert [request.dims for request in compiler.seen] == [(5,), (9,)]
        assert {(e.dims, e.tier) for e in m.site(0).entries} == {((5,), "exact"), ((9,), "exact")}
        assert m.stats()["code_installed"] == 2


def test_auto_compiles_what_is_hot() -> None:
    with load(add_program(), LoadOptions(strategy="auto", hot_calls=3)) as m:
        x, z = pair(6)
        compiler = Compiler(m)
        try:
            for _ in range(6000):
                np.testing.assert_array_equal(m.call([x, z])[0], x + z + z)
                if m.site(0).entries[0].tier == "exact":
                    break
                threading.Event().wait(0.01)
            assert m.site(0).entries[0].tier == "exact"
            np.testing.assert_array_equal(m.call([x, z])[0], x + z + z)
        finally:
            compiler.stop()
        assert [request.dims for request in compiler.seen] == [(6,)]


@pytest.mark.failing_kernels
def test_failed_compilation() -> None:
    x, z = pair(6)
    with load(add_program(), LoadOptions(strategy="jit")) as m:
        compiler = Compiler(m, "no registers left")
        try:
            with pytest.raises(CompileError, match="no registers left"):
                m.call([x, z])
        finally:
            compiler.stop()
    with load(add_program(), LoadOptions(strategy="auto", hot_calls=1)) as m:
        compiler = Compiler(m, "no registers left")
        try:
            for _ in range(5):
                np.testing.assert_array_equal(m.call([x, z])[0], x + z + z)
        finally:
            compiler.stop()


#: Code that writes its own address into buffers[0][0].
HERE = {
    "x86_64": "488d05f9ffffff 488b0f 488901 c3",  # lea rax, [rip - 7]; mov rcx, [rdi]; mov [rcx], rax; ret
    "aarch64": "080040f9 e9ffff10 090100f9 c0035fd6",  # ldr x8, [x0]; adr x9, . - 4; str x9, [x8]; ret
}


def located(spec: str, alignment: int, guard: KernelKey = None) -> KernelObject:
    """Return code of a kernel that writes where it lies, and ten bytes more."""
    machine_code = bytes.fromhex(HERE[platform.machine()]) + bytes(10)
    buffers = (Buffer("i64", (1,), True),)
    hash_of_spec = hashlib.sha256(spec.encode()).hexdigest()
    return KernelObject(
        hash_of_spec, host.host_target(), 1, buffers, Work(), (),
        MachineCode(machine_code, alignment=alignment), guard,
    )  # fmt: skip


def test_code_lies_at_multiples_of_its_alignment() -> None:
    alignments = (64, 4096, 64, 128, 4096, 2048, 64, 256, 1024, 512)
    rows = [f'kernel k{i} "here" (1 dims, out i64[1]) = "{i}"' for i in range(len(alignments))]
    outputs = [f'output "y{i}"' for i in range(len(alignments))]
    body = [f"  alloc r{i + 2} i64 (r1)\n  kernel k{i} (r0) (r{i + 2})" for i in range(len(alignments))]
    results = ", ".join(f"r{i + 2}" for i in range(len(alignments)))
    head = ['symbol "n" 1 ..', 'input "n": int = s0', *outputs, *rows]
    main = ['function "main" (2 params, 10 results)', "  int r1 1", *body, f"  return ({results})", ""]
    program = assemble("\n".join([*head, *main]))
    kernels = tuple(
        replace(k, objects=(located(k.spec, alignment),))
        for k, alignment in zip(program.kernels, alignments, strict=True)
    )
    with load(replace(program, kernels=kernels), LoadOptions(strategy="bucket")) as m:
        places = [int(x[0]) for x in m.call([5])]
        assert len(set(places)) == len(alignments)
        assert all(place % alignment == 0 for place, alignment in zip(places, alignments, strict=True))
        for i, alignment in enumerate(alignments):
            m.install(i, artifact.serialise_object(located(kernels[i].spec, alignment, (6,))))
        again = [int(x[0]) for x in m.call([6])]
        assert not set(places) & set(again)
        assert all(place % alignment == 0 for place, alignment in zip(again, alignments, strict=True))


@pytest.mark.parametrize("alignment", [0, 32, 96, 4095, 8192, 1 << 31])
def test_other_alignments_are_refused(add: Machine, alignment: int) -> None:
    good = code(ADD, (4,))
    bad = replace(good, code=replace(good.code, alignment=alignment))
    with pytest.raises(ArtifactError, match="alignment"):
        add.install(0, artifact.serialise_object(bad))
    with pytest.raises(ArtifactError, match="alignment"):
        artifact.parse_object(artifact.serialise_object(bad))
    program = add_program()
    whole = replace(program, kernels=(replace(program.kernels[0], objects=(bad,)),))
    for read in (artifact.from_bytes, Machine.from_bytes):
        with pytest.raises(ArtifactError, match="alignment"):
            read(artifact.to_bytes(whole))


def run(m: Machine, n: int, times: int, strategy: str | None = None) -> None:
    for _ in range(times):
        m.call(list(pair(n))) if strategy is None else m.call_as(strategy, list(pair(n)))


def asked(m: Machine) -> list[tuple[tuple[int, ...], int]]:
    """Return the dims and runs of all requests that wait; they stay unanswered."""
    found = []
    while (request := m.wait_request(0)) is not None:
        found.append((request.dims, request.runs))
    return found


def wide_program() -> Program:
    """Return the program of `add_program` for more sizes."""
    return with_code(assemble(ADD_TEXT.replace("1 .. 1000 ", "1 .. 100000 ")))


def test_entries_ask_once_they_have_done_the_work_that_pays() -> None:
    work = work_of(code(ADD))
    with load(wide_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        m.set_price(0, Price(20 * work((100,)), 0, 0))
        run(m, 100, 19)
        assert asked(m) == []
        run(m, 100, 20)
        ((dims, runs),) = asked(m)
        assert dims == (100,) and 20 <= runs <= 39  # a plan looks again at twice as many runs, at the latest
        assert work((50_000,)) > 10 * work((100,))
        run(m, 50_000, 3)  # hot, and that much work
        ((dims, runs),) = asked(m)
        assert dims == (50_000,) and runs in (2, 3)
        m.set_price(0, Price(20 * work((100,)), 9 * work((100,)), 0))
        run(m, 1, 3)  # a launch costs more than its work
        assert [dims for dims, _ in asked(m)] == [(1,)]


def test_a_declined_request_comes_again_when_it_was_said_to() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        run(m, 7, 2)
        assert asked(m) == [((7,), 2)]
        m.decline(0, (7,), again_after=10)
        run(m, 7, 7)
        assert asked(m) == []
        run(m, 7, 12)
        ((_, runs),) = asked(m)
        assert 10 <= runs <= 20
        m.decline(0, (7,))
        run(m, 7, 100)
        assert asked(m) == [] and m.site(0).entries[0].state == "declined"


def test_launches_from_some_work_on_are_declined_before_they_ask() -> None:
    work = work_of(code(ADD))
    with load(wide_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        run(m, 90, 1)
        run(m, 30_000, 1)
        m.set_price(0, Price(0, 0, work((20_000,))))
        for n in (90, 20_000, 30_000, 99):
            run(m, n, 5)
        assert {dims for dims, _ in asked(m)} == {(90,), (99,)}
        states = {e.dims[0]: e.state for e in m.site(0).entries}
        assert states == {90: "compiling", 99: "compiling", 20_000: "declined", 30_000: "declined"}
        m.set_strategy("jit")  # under which all is exact
        run(m, 30_000, 1)
        assert asked(m)[0][0] == (30_000,)
    with pytest.raises(ArgumentError, match="kernel 1 of 1"), load(add_program()) as m:
        m.set_price(1, Price())


def test_a_hurry_asks_for_what_is_hot_whatever_its_price() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        m.set_price(0, Price(2**60, 0, 0))
        run(m, 5, 3)
        run(m, 6, 1)
        assert asked(m) == []
        m.hurry()
        m.hurry()
        assert asked(m) == [((5,), 3)] and m.is_hurried
        run(m, 6, 1)
        assert [dims for dims, _ in asked(m)] == [(6,)]
        m.hurry(False)
        assert m.is_hurried
        m.hurry(False)
        m.hurry(False)  # one too many
        assert not m.is_hurried
        run(m, 8, 5)
        assert asked(m) == []


def test_a_hurry_between_a_request_and_its_answer_asks_again() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        run(m, 5, 2)
        assert asked(m) == [((5,), 2)]
        m.hurry()
        assert asked(m) == []
        m.decline(0, (5,), again_after=1000)
        assert asked(m) == [((5,), 2)] and m.stats()["n_pending"] == 1
        m.decline(0, (5,))
        assert asked(m) == [] and m.stats()["n_pending"] == 0


def test_a_hurry_wakes_a_compiler_that_waits() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        is_woken = threading.Event()

        def hurry() -> None:
            while not is_woken.wait(0.05):  # the first one may come before the wait
                m.hurry()

        thread = threading.Thread(target=hurry)
        thread.start()
        begin = time.monotonic()
        found = m.wait_request(600)
        is_woken.set()
        thread.join()
        assert found is None and time.monotonic() - begin < 300


def test_a_compiler_is_busy_until_it_waits() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        assert not m.compiler_is_busy  # there is none
        m.attach_compiler()
        assert m.compiler_is_busy
        thread = threading.Thread(target=m.wait_request, args=(600,))
        thread.start()
        end = time.monotonic() + 120
        while m.compiler_is_busy and time.monotonic() < end:
            time.sleep(0.001)
        m.hurry(False)  # which does not wake it
        assert not m.compiler_is_busy and thread.is_alive()
        m.hurry()
        thread.join()
        assert m.compiler_is_busy


def test_generic_code_is_what_the_artifact_carries(add: Machine) -> None:
    assert add.generic_code(0) == artifact.serialise_object(code(ADD)) and add.generic_code(1) == b""


def test_requests_that_were_not_made_cannot_be_declined() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        run(m, 7, 1)
        m.decline(0, (7,))
        assert m.site(0).entries[0].state == "idle"
        m.decline(0, (8,))  # a size that no call had


def call_without_signals(m: Machine, n: int) -> int:
    """Call main as a C host does that gives nothing to look at while the call waits; return the code."""
    inputs, error = m._fill(pair(n), m.inputs, keep := []), ffi.new("svm_error *")
    outputs, options = ffi.new("svm_value[1]"), ffi.new("svm_call_options *", (-1,))
    found = lib.svm_call_with(m._handle.pointer, options, 0, inputs, 2, ffi.NULL, outputs, 1, error)
    lib.svm_value_release(outputs)
    keep.clear()
    return int(found)


def test_a_call_that_waits_for_a_declined_request_asks_again() -> None:
    with load(add_program(), LoadOptions(strategy="jit")) as m:
        m.attach_compiler()
        caller = threading.Thread(target=call_without_signals, args=(m, 7))
        caller.start()
        try:
            assert m.wait_request(60) is not None
            while not m.is_awaited(0, (7,)):
                time.sleep(0.001)
            m.decline(0, (7,))
            again = m.wait_request(60) or m.wait_request(60)  # the one in work may have woken us
            assert again is not None and again.dims == (7,)
            m.install(0, code(ADD, (7,)))
        finally:
            m.attach_compiler(False)
            caller.join(60)


def test_calls_count_before_a_compiler_is_attached() -> None:
    with load(add_program(), LoadOptions(strategy="auto", hot_calls=10)) as m:
        run(m, 7, 20)
        m.attach_compiler()
        run(m, 7, 1)
        assert asked(m) == [((7,), 20)]


def test_waiting_for_a_request_takes_the_time_that_was_given() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        begin = time.monotonic()
        assert m.wait_request(0.2) is None and time.monotonic() - begin >= 0.19


def test_a_call_that_waits_for_a_request_in_work_is_told_of() -> None:
    with load(add_program(), LoadOptions(strategy="auto")) as m:
        m.attach_compiler()
        run(m, 7, 2)
        assert asked(m) == [((7,), 2)] and not m.is_awaited(0, (7,))
        caller = threading.Thread(target=run, args=(m, 7, 1, "jit"))
        caller.start()
        while not m.is_awaited(0, (7,)):
            assert m.wait_request(60) is None  # woken, though nothing is asked for
        assert m.stats()["n_waiting"] == 1
        m.install(0, code(ADD, (7,)))
        caller.join(60)
        assert not m.is_awaited(0, (7,)) and m.stats()["n_waiting"] == 0


def test_install_refuses_what_is_not_sound(add: Machine) -> None:
    record = artifact.serialise_object(code(ADD, (4,)))
    changed = bytearray(record)
    changed[-40] ^= 1
    for bad in (record[:-1], record[:100], b"", bytes(changed), record + b"\0"):
        with pytest.raises(ArtifactError):
            add.install(0, bad)
    with pytest.raises(Error):
        add.install(0, code(GATHER, (4,)))
    with pytest.raises(Error):
        add.install(1, record)
    add.install(0, record)
    x, z = pair(4)
    np.testing.assert_array_equal(add.call([x, z])[0], x + z + z)


# Buckets --------------------------------------------------------------------------------------------


def tiers(m: Machine) -> dict[int, str]:
    return {e.dims[0]: e.tier for e in m.site(0).entries}


def test_installed_buckets_serve_their_sizes(add: Machine) -> None:
    add.set_strategy("bucket")
    results = {n: add.call(list(pair(n)))[0].tobytes() for n in (3, 8, 12, 40)}
    add.install(0, code(ADD, (SizeRange(8, 32, 4),)))
    assert tiers(add) == {3: "generic", 8: "bucket", 12: "bucket", 40: "generic"}
    add.install(0, code(ADD, (SizeRange(0, None),)))  # the earlier one stays where both are for a size
    assert tiers(add) == dict.fromkeys((3, 8, 12, 40), "bucket")
    for n, expected in results.items():
        x = list(pair(n))
        assert add.call(x)[0].tobytes() == expected
        assert all(add.call_as(s, x)[0].tobytes() == expected for s in ("generic", "bucket"))
    add.call(list(pair(16)))
    assert tiers(add)[16] == "bucket" and add.site(0).outside == 0


def test_misses_outside_of_all_buckets_are_counted() -> None:
    program = add_program()
    kernel = program.kernels[0]
    objects = (*kernel.objects, code(ADD, (5,)), code(ADD, (SizeRange(8, 16),)))
    with load(replace(program, kernels=(replace(kernel, objects=objects),))) as m:
        for n in (5, 8, 16, 17, 17, 4):
            m.call(list(pair(n)))
        m.set_strategy("bucket")
        assert tiers(m) == {5: "exact", 8: "bucket", 16: "bucket", 17: "generic", 4: "generic"}
        assert (m.site(0).misses, m.site(0).outside) == (5, 2)


TWICE = Nest(
    2,
    (Buffer("f32", (Dim(0), Dim(1))), Buffer("f32", (Dim(0), Dim(1)), True)),
    (Dim(0), Dim(1)),
    (
        Instr("load", "f32", buffer=0, index=(Index(0), Index(1))),
        Instr("add", "f32", (0, 0)),
        Instr("store", "f32", (1,), buffer=1, index=(Index(0), Index(1))),
    ),
)
TWICE_TEXT = f"""
symbol "n" 0 .. 40
symbol "m" 0 .. 40
input "x": f32[s0, s1]
output "y"
kernel k0 "twice" (2 dims, f32[n0, n1], out f32[n0, n1]) = {json.dumps(to_json(TWICE))}
function "main" (3 params, 1 results)
  alloc r3 f32 (r1, r2)
  kernel k0 (r1, r2) (r0, r3)
  return (r3)
"""


def tables(rng: random.Random) -> Iterator[tuple[KernelKey, ...]]:
    """Yield keys of objects: random ones that overlap, classes of one dim, and products of classes."""
    span = lambda: sorted(rng.choices(range(41), k=2))  # noqa: E731
    size = lambda: rng.choice([rng.randrange(41), SizeRange(*span(), rng.choice([1, 1, 4]))])  # noqa: E731
    for n in (0, 1, 7, 60):
        yield tuple((size(), rng.choice([size(), SizeRange(0, None)])) for _ in range(n))
    classes = [SizeRange(8 * n + 1, 8 * n + 8) for n in range(5)]
    yield tuple((c, SizeRange(0, None)) for c in classes)
    yield tuple((SizeRange(2, 30), c) for c in reversed(classes))
    yield (*itertools.product(classes, classes), (SizeRange(5, 35), SizeRange(5, 35)), (3, 4), (7, 7))


@pytest.mark.parametrize("seed", range(6))
def test_the_first_that_fits_is_found(seed: int) -> None:
    """Exact code, then the first bucket, as going through all of them would find it."""
    rng, program, generic = random.Random(seed), assemble(TWICE_TEXT), code(TWICE)
    for table in tables(rng):
        objects = [generic]
        for i, key in enumerate(table):
            assert key is not None
            exact = tuple(s for s in key if isinstance(s, int))
            ranges = tuple(SizeRange(s, s) if isinstance(s, int) else s for s in key)
            own = {"exact_dims": exact} if len(exact) == len(key) else {"ranges": ranges}
            objects.append(replace(generic, schedule=f"object {i}", **own))  # type: ignore[arg-type]
        rng.shuffle(objects)
        kernel = replace(program.kernels[0], objects=tuple(objects))
        with load(replace(program, kernels=(kernel,)), LoadOptions(strategy="bucket")) as m:
            for _ in range(150):
                dims = rng.randrange(41), rng.randrange(41)
                (y,) = m.call([np.ones(dims, "f")])
                assert (y == 2).all()
            found = {e.dims: e.schedule for e in m.site(0).entries}
        fits = lambda o, dims: all(n in r for n, r in zip(dims, o.ranges, strict=True))  # noqa: E731
        for dims, schedule in found.items():
            fitting = [o for o in objects if o.exact_dims == dims]
            fitting += [o for o in objects if o.ranges and fits(o, dims)]
            assert schedule == [*fitting, generic][0].schedule, (dims, table)


@pytest.mark.parametrize("wrong", [(-1, 5, 1), (5, 4, 1), (0, -2, 1), (0, 5, 0), (0, 5, -3)])
def test_a_range_that_cannot_be_is_refused_in_c_and_python(add: Machine, wrong: tuple[int, ...]) -> None:
    record = bytearray(artifact.serialise_object(code(ADD, (SizeRange(1, 9),))))
    at = BY_NAME["object"].size
    record[at : at + 24] = struct.pack("<3q", *wrong)
    size = BY_NAME["object"].unpack(record)["record_size"]
    record[:32] = hashlib.sha256(record[48:size] + record[size:]).digest()
    with pytest.raises(ArtifactError, match="range"):
        add.install(0, bytes(record))
    with pytest.raises(ArtifactError, match="range"):
        artifact.parse_object(bytes(record))


def test_an_unknown_guard_is_refused_in_c_and_python(add: Machine) -> None:
    record = bytearray(artifact.serialise_object(code(ADD, (4,))))
    at = 48 + 32 + 16 + 64 + 16
    assert record[at] == 1
    record[at] = 3
    size = BY_NAME["object"].unpack(record)["record_size"]
    record[:32] = hashlib.sha256(record[48:size] + record[size:]).digest()
    for read in (lambda: add.install(0, bytes(record)), lambda: artifact.parse_object(bytes(record))):
        with pytest.raises(ArtifactError, match="guard"):
            read()


# Threads --------------------------------------------------------------------------------------------


def test_many_threads(add: Machine) -> None:
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(200):
                x, z = pair(1 + (seed * 7 + i) % 23)
                if i % 2:
                    got = add.call([torch.from_numpy(x), torch.from_numpy(z)])[0].numpy()
                else:
                    got = add.call([x, z])[0]
                np.testing.assert_array_equal(got, x + z + z)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert add.stats()["calls"] == 8 * 200


def test_number_of_threads() -> None:
    before = host.get_threads()
    try:
        host.set_threads(1)
        assert host.get_threads() == 1
        host.set_threads(0)
        assert host.get_threads() >= 1
        with pytest.raises(ArgumentError):
            host.set_threads(-1)
    finally:
        host.set_threads(before)


def test_ints_below_zero_are_bound_alike_by_both_interpreters() -> None:
    text = """
symbol "k" -8 .. -2 step 3
symbol "j" -9223372036854775807 ..
input "k": int = s0
input "again": int = s0
input "j": int = s1
output "y"

function "main" (5 params, 1 results, 6 registers)
  add r5 r0 r2
  return (r5)
"""
    program = assemble(text)
    machine, reference = load(program), Contract(program, program.entry_points[0])
    assert machine.symbols == program.symbols
    for given, message in (
        ([-6, -6, -(2**63) + 1], None),
        ([-3, -3, 2**63 - 1], None),
        ([-9, -9, 0], 'input "k" is -9, so k is -9; it must be at least -8'),
        ([-1, -1, 0], 'input "k" is -1, so k is -1; it must be at most -2'),
        ([-4, -4, 0], 'input "k" is -4, so k is -4; it must be a multiple of 3'),
        ([-3, -6, 0], 'input "again" is -6, so k is -6; but input "k" is -3, so k is -3'),
        ([-3, -3, -(2**63)], "so j is -9223372036854775808; it must be at least -9223372036854775807"),
    ):
        if message is None:
            assert list(machine.bind(given).values()) == reference.bind(given) == [given[0], given[2]]
            continue
        for bind in (machine.bind, reference.bind):
            with pytest.raises(ShapeError) as caught:
                bind(given)
            assert message in str(caught.value)


DPS = """
input "x": f32[2]
output "y"
constant c0 f32[2] = [1.0, 2.0]
function "main" (1 params, 1 results)
  int r1 2
  alloc r2 f32 (r1)
  {}
  return (r2)
"""


def test_call_dps() -> None:
    def add(args: list[Any], outputs: list[Any]) -> None:
        (a, n), (out,) = args, outputs
        assert not out.any()
        out += a + n

    with load(assemble(DPS.format('call_dps "add" (r2) (r0, r1)'))) as m:
        with pytest.raises(ExternError, match=r"\(call_dps\) is missing"):
            m.call([np.ones(2, "f4")])
        with pytest.raises(Error, match="calls no host function"):
            m.register_extern("add", lambda *_: [])
        m.register_dps("add", add)
        for _ in range(3):
            np.testing.assert_array_equal(m.call([np.ones(2, "f4")])[0], [3, 3])
        m.register_dps("add", lambda *_: 1 / 0)
        with pytest.raises(ExternError, match="ZeroDivisionError"):
            m.call([np.ones(2, "f4")])


def test_call_dps_refuses_memory_that_others_use() -> None:
    for lines in (
        'call_dps "f" (r0) ()',
        'const r3 c0\n  call_dps "f" (r3) ()',
        'move r3 r2\n  call_dps "f" (r2) ()',
        'view r3 r2 (r1)\n  call_dps "f" (r2) ()',
        'view r3 r2 (r1)\n  call_dps "f" (r2, r3) ()',
        'list r3 (r2)\n  call_dps "f" (r2) ()',
    ):
        program = assemble(DPS.format(lines))
        reference = Reference(program, lambda *_: None, {"f": lambda *_: None})
        with pytest.raises(ExternError, match="shares its memory"):
            reference.call([np.ones(2, "f4")])
        with load(program) as m:
            m.register_dps("f", lambda *_: None)
            with pytest.raises(ExternError, match="shares its memory"):
                m.call([np.ones(2, "f4")])
    with load(assemble(DPS.format('call_dps "f" (r1) ()'))) as m:
        m.register_dps("f", lambda *_: None)
        with pytest.raises(Error, match="operand outputs is an int; it takes a tensor"):
            m.call([np.ones(2, "f4")])


@pytest.mark.parametrize("wrong", [[2, 2, 2, 1, 0], [1, 2, 2, 0, 2]])
def test_call_dps_takes_a_register_once(wrong: list[int]) -> None:
    operands = "(r2, r1) (r0)" if wrong[0] == 2 else "(r2) (r0, r1)"
    program = assemble(DPS.format(f'call_dps "f" {operands}'))
    code, op = list(program.functions[0].code), OPCODES["call_dps"]
    at = code.index(op, 8) + 2
    code[at : at + 5] = wrong
    main = replace(program.functions[0], code=tuple(code))
    program = replace(program, functions=(main,))
    with pytest.raises(VerifyError, match="a register is an output and another operand"):
        verify(program)
    with pytest.raises(VerifyError, match="is a result twice|is an output and an argument"):
        load(program)


# Scalars and lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scalars_are_rounded_to_the_nearest(dtype: str) -> None:
    rng = np.random.default_rng(1)
    drawn = [float(x) for e in range(-28, 18) for x in rng.uniform(1, 2, 4) * 2.0**e]
    ties = [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2.0**-25, 3 * 2.0**-25, 65519.9, 65520.0]
    text = f'input "x": float\noutput "y"\nfunction "main" (1 params, 1 results)\n  scalar r1 {dtype} r0\n'
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    with load(assemble(text + "  return (r1)\n")) as m:
        m.default_library = library_of(torch.zeros(1))
        for x in [0.0, 1.0, *drawn, *ties, float("inf")]:
            for signed in (x, -x):
                (got,) = m.call([signed])
                wanted = torch.tensor(signed, dtype=torch.float64).to(kind)
                assert got.dtype == kind and torch.equal(got, wanted), (signed, got, wanted)


def test_append() -> None:
    text = """
    output "y"
    function "main" (0 params, 1 results)
      int r0 10
      int r1 11
      int r2 12
      list r3 (r0)
      append r3 r3 r2
      append r3 r3 r1
      append r4 r3 r0
      int r5 0
      list r6 (r3, r4)
      return (r6)
    """
    with load(assemble(text)) as m:
        assert m.call([]) == [[[10, 12, 11], [10, 12, 11, 10]]]
