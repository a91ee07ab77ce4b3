"""Accesses with missing lanes touch nothing else: for every dtype, number of lanes and target as machine
code, and on the targets of this machine between pages that nobody may touch."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import numpy as np
import pytest
from shapevm.jit.evaluation import from_memory, to_memory
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.abi import PARAMS, CodeObject
from shapevm.jit.llvm.access import Access, Accessor
from shapevm.jit.llvm.constants import LANES, tail_mask
from shapevm.jit.llvm.dtypes import DTYPES, vector
from shapevm.jit.llvm.function import Function, Value, module_text
from shapevm.jit.llvm.target import TARGETS, find_target, target_machine
from shapevm.jit.llvm.vector import Vec
from shapevm.jit.object import link
from shapevm.vm.program import MachineCode, Work

from ...fenced import fenced
from ..object.test_link import compile_object
from ..operations import HOST_TARGETS

CASES = [(kind, stride) for kind in ("load", "store") for stride in (1, -1)]
each_case = pytest.mark.parametrize(("kind", "stride"), CASES)


def emit(f: Function, kind: str, dtype: str, stride: int, lanes: int, places: list[Value]) -> None:
    """Load or store the first `lanes` lanes at places[0] under the condition places[1]; what is loaded goes
    to places[2] and what is stored comes from there, wide integers or floats that are truncated before."""
    row, (memory, condition, other) = DTYPES[dtype], places
    accessor = Accessor(f, memory, dtype, tail_mask(f, lanes))
    is_allowed = f.op("i1", f"icmp ne i64 {condition.name}, 0")
    access = Access(0 if stride == 1 else lanes - 1, stride, allowed=[is_allowed])
    if kind == "load":
        value = accessor.load(access)
        if row.kind == "bool":
            value = value.convert("zext", "i8")
        f.store(value.value, other)
        return
    wide = "double" if row.kind == "float" else "i64"
    value = Vec(f, f.load(vector(wide, LANES), other))
    if value.element != row.register:
        value = value.convert("fptrunc" if row.kind == "float" else "trunc", row.register)
    accessor.store(access, value)


# as text -------------------------------------------------------------------------------------------------

BY_NAME = {  # bytes of x86-64's instructions that access less than their register holds
    r"v?mov(b|zbl|sbl|zbw|zbq)|vpinsrb|vpextrb|vpbroadcastb": 1,
    r"v?mov(w|zwl|swl|zwq|sh)|vpinsrw|vpextrw|vpbroadcastw": 2,
    r"v?mov(l|d|ss|slq)|vpinsrd|vpextrd|v(extract|insert)ps|vp?broadcasts?[sd]|cmovn?el": 4,
    r"v?mov(q|sd|[lh]p[sd])|vpinsrq|vpextrq|vpbroadcastq|vbroadcastsd|vmovddup": 8,
    r"v.*128": 16,
}
WIDENS = r"vcvtph2ps|vpmov[sz]x(bw|wd|dq)"  # what is half as wide as the register
REGISTER = {"x": 16, "y": 32, "z": 64}
ARM = {"b": 1, "h": 2, "w": 4, "s": 4, "x": 8, "d": 8, "q": 16}


def x86_access(line: str) -> int:
    """Return how many bytes an instruction of x86-64 accesses for sure in memory, 0 for one with a mask."""
    name = line.split()[0]
    if "{%k" in line or re.match(r"vp?maskmov|vp(scatter|gather)|vgather|lea|call|v?prefetch", name):
        return 0
    for pattern, n_bytes in BY_NAME.items():
        if re.fullmatch(pattern, name):
            return n_bytes
    register = max(REGISTER[letter] for letter in re.findall(r"%([xyz])mm", line))
    return register // 2 if re.fullmatch(WIDENS, name) else register


def arm_access(line: str) -> int:
    """Return how many bytes an instruction of AArch64 accesses in memory."""
    name, first = line.split()[:2]
    lane = re.match(r"\{ ?v\d+\.([bhsd]) ?\}", line.split(None, 1)[1])
    if lane or name == "ld1r":
        return ARM[re.search(r"\.\d*([bhsd])", line)[1]]  # type: ignore[index]
    if name in ("ld1", "st1"):
        return 16 * len(re.findall(r"v\d+\.", line))
    by_name = {"b": 1, "h": 2}.get(name[-1]) if name not in ("stp", "ldp") else None
    return by_name or ARM[first[0]] * (2 if name in ("ldp", "stp") else 1)


def accesses(text: str, kind: str, is_arm: bool) -> list[tuple[int, str]]:
    """Return the bytes and lines of the accesses of a function's first argument."""
    found = []
    for line in map(str.strip, text.splitlines()):
        if is_arm:
            is_access = re.match(r"ldr|ldu?r|ldp|ld1" if kind == "load" else r"stu?r|stp|st1", line)
            is_other = re.search(r"\[sp|\[x2|lo12", line)
        else:
            memory = re.search(r"\(%\w+[^)]*\)", line)
            is_store = memory and line.rstrip().endswith(")")
            is_access = memory and bool(is_store) == (kind == "store") and not re.match(r"test|cmp", line)
            is_other = re.search(r"\(%r(ip|sp|bp|dx)", line)
        if is_access and not is_other:
            found.append((arm_access(line) if is_arm else x86_access(line), line))
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@each_case
def test_no_access_is_wider_than_its_mask(kind: str, stride: int, dtype: str, target: str) -> None:
    functions = []
    for lanes in range(1, LANES + 1):
        f = Function(f"lanes_{lanes}", [("ptr", "memory"), ("i64", "condition"), ("ptr", "other")])
        emit(f, kind, dtype, stride, lanes, f.params)
        functions.append(f)
    row = find_target(target)
    text = f'target triple = "{row.triple}"\n{module_text(functions)}attributes #0 = {{ {row.attributes} }}\n'
    machine = target_machine(target)
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        assembly = machine.emit_assembly(module)
    n_seen = 0
    for lanes, body in re.findall(r"^lanes_(\d+):(.*?)^\.Lfunc_end", assembly, re.S | re.M):
        for n_bytes, line in accesses(body, kind, target.startswith("aarch64")):
            assert n_bytes <= int(lanes) * DTYPES[dtype].bytes, f"{lanes} lanes: {line}"
            n_seen += 1
    assert n_seen >= LANES or "v4" in target or dtype in ("f32", "i32", "f64", "i64")  # others have masks


# as it runs ----------------------------------------------------------------------------------------------


def kernels(kind: str, dtype: str, stride: int, target: str) -> list[Kernel]:
    """Return kernels of the buffers memory and other, under the condition of their only size, for 1 lane and
    so on."""
    functions = []
    for lanes in range(1, LANES + 1):
        f = Function(f"lanes_{lanes}", PARAMS)
        memory, other = (f.load("ptr", f.at(f.params[0], "ptr", i), align=8) for i in range(2))
        emit(f, kind, dtype, stride, lanes, [memory, f.load("i64", f.params[1], align=8), other])
        functions.append(f)
    whole = link.Object(compile_object(module_text(functions), target))
    blobs = [whole.link(f.name) for f in functions]
    return [
        Kernel(CodeObject("", target, 1, (), Work(), (), MachineCode(blob.code, blob.entry)))
        for blob in blobs
    ]


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@each_case
def test_other_lanes_are_not_touched(kind: str, stride: int, dtype: str, target: str) -> None:
    row, numbers = DTYPES[dtype], np.arange(1, LANES + 1) % (2 if dtype == "bool" else 99)
    register = {"float": "f4", "double": "f8", "i1": "u1"}.get(row.register, row.numpy)
    for lanes, made in enumerate(kernels(kind, dtype, stride, target), 1):
        first = numbers[:lanes]
        for at_end, condition in ((False, 1), (True, 1), (True, 0)):
            memory = fenced(lanes * row.bytes, at_end)
            values = memory.view(row.numpy)
            if kind == "load":
                values[:] = to_memory(first, dtype)[::stride]
                other = np.full(LANES, 77, register)
            else:
                other = numbers.astype("f8" if row.kind == "float" else "i8")
            start = memory.ctypes.data if condition else memory.ctypes.data + memory.size  # out of reach
            pointers = np.array([start, other.ctypes.data], np.uintp)
            sizes, rt = np.array([condition]), np.zeros(8)
            made._call(pointers.ctypes.data, sizes.ctypes.data, rt.ctypes.data, 0, 1)
            if kind == "load":
                wanted = [*(first if condition else 0 * first), *[0] * (LANES - lanes)]
                assert other.tolist() == wanted
            else:
                wanted = first if condition else 0 * first
                assert from_memory(values, dtype)[::stride].tolist() == wanted.tolist()
