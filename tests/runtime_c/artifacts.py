"""Artifacts for the C runtime's own tests: seeds for its fuzzer, chains of launches, what the runner runs."""

from __future__ import annotations

import json

import numpy as np
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.vm.assembler import assemble
from shapevm.vm.program import Constant, Kernel, Program

N = Dim(0)
AT = (Index(0),)
ADD = Nest(
    1,
    (Buffer("f32", (N,)), Buffer("f32", (N,)), Buffer("f32", (N,), True)),
    (N,),
    (
        Instr("load", "f32", buffer=0, index=AT),
        Instr("load", "f32", buffer=1, index=AT),
        Instr("add", "f32", (0, 1)),
        Instr("store", "f32", (2,), buffer=2, index=AT),
    ),
)
#: out[i] = table[index[i]], checked against the table's 4 rows.
GATHER = Nest(
    1,
    (Buffer("f32", (4,)), Buffer("i64", (N,)), Buffer("f32", (N,), True)),
    (N,),
    (
        Instr("load", "i64", buffer=1, index=AT),
        Instr("load", "f32", buffer=0, index=(Index(value=0),)),
        Instr("store", "f32", (1,), buffer=2, index=AT),
    ),
)
ADD_ROW = f'"add" (1 dims, f32[n0], f32[n0], out f32[n0]) source "model.py:5" = {json.dumps(to_json(ADD))}'
GATHER_ROW = (
    f'"gather" (1 dims, f32[4], i64[n0], out f32[n0]) source "model.py:7" = {json.dumps(to_json(GATHER))}'
)


LIST = """
input "ks": list
output "n": int
output "same": list
function "main" (1 params, 2 results)
  len d=r1 a=r0
  return values=(r1, r0)
"""


def with_code(text: str, exact: tuple[int, ...] = ()) -> Program:
    """Assemble; give every kernel generic code, and exact code for the sizes of `exact`, for this CPU."""
    program = assemble(text)
    return Program(
        **{**vars(program), "kernels": tuple(_compiled(kernel, exact) for kernel in program.kernels)}
    )


def _compiled(kernel: Kernel, exact: tuple[int, ...]) -> Kernel:
    spec = from_json(kernel.spec)
    objects = [compile_kernel(spec, dims) for dims in (None, *((n,) for n in exact))]
    return Kernel(**{**vars(kernel), "objects": tuple(objects)})


def chain(n: int, exact: tuple[int, ...] = ()) -> Program:
    """Return y = x + n * z in n launches, each with a tensor of its own."""
    lines = [
        'symbol "n" 1 .. 100000000 why "model.py:3"',
        'input "x": f32[s0]',
        'input "z": f32[s0]',
        'output "y": f32[s0]',
        f"kernel k0 {ADD_ROW}",
        'function "main" (3 params, 1 results)',
        '  line "model.py:5"',
        "  alloc r3 f32 (r2)",
        "  kernel k0 (r2) (r0, r1, r3)",
    ]
    for _ in range(n - 1):
        lines += ["  alloc r4 f32 (r2)", "  kernel k0 (r2) (r3, r1, r4)", "  move r3 r4", "  free (r4)"]
    return with_code("\n".join([*lines, "  return (r3)", ""]), exact)


def weighted(n: int) -> Program:
    """Return y = x + w with n weights, which are given back as z."""
    program = with_code(
        f"""
symbol "n" {n} .. {n}
input "x": f32[s0]
output "y"
output "z"
constant c0 "w" f32[1] = [0.0]
kernel k0 {ADD_ROW}
function "main" (2 params, 2 results)
  const r2 c0
  alloc r3 f32 (r1)
  kernel k0 (r1) (r0, r2, r3)
  return (r3, r2)
"""
    )
    weights = Constant.tensor(np.arange(n, dtype="<f4") + 1, "f32", "w")
    return Program(**{**vars(program), "constants": (weights,)})


#: Rows 0 .. 3 of a table, added up `times` over: a program whose flow depends on the sizes only.
LOOKUP = f"""
symbol "n" 0 .. 4096 why "model.py:3"
symbol "times" 1 .. 5
input "index": i64[s0]
input "times": int = s1
output "sum": f32[s0]
output "sizes": tuple
constant c0 "table" f32[4] = [1.0, 2.0, 4.0, 8.0]
constant c1 "key" str = "n"
kernel k0 {GATHER_ROW}
kernel k1 {ADD_ROW}
function "main" (4 params, 2 results)
  line "model.py:7"
  const r4 c0
  alloc r5 f32 (r2)
  kernel k0 (r2) (r4, r0, r5)
  move r6 r5
  int r7 1
again:
  lt r8 r7 r1
  branch r8 otherwise=done
  line "model.py:5"
  call "add" (r6) (r6, r5, r2)
  int r9 1
  add r7 r7 r9
  jump again
done:
  int r9 2
  mul r10 r2 r9
  const r11 c1
  dict r12 (r11, r10)
  tuple r13 (r12, r7)
  return (r6, r13)
function "add" (3 params, 1 results)
  alloc r3 f32 (r2)
  kernel k1 (r2) (r0, r1, r3)
  view r3 r3 (r2)
  return (r3)
"""

#: An input that is read as it lies in memory.
ROWS = """
symbol "n" 0 .. 4096
input "x": f32[2, s0] in_rows
output "y": f32[2, s0]
function "main" (2 params, 1 results)
  return (r0)
"""

#: Everything that only the interpreter does: elements, host functions, containers, recursion, all numbers.
DATA = f"""
symbol "n" 1 .. 64
input "x": f32[s0]
input "count": i64[]
input "name": str
input "eps": float
input "flag": bool
output "list": tuple
output "y"
output "number": float
constant c0 bf16[3] = [16256, 0, 65535]
constant c1 none = None
constant c2 float = 1.5
constant c3 "text" str = "grüße"
kernel k0 {ADD_ROW}
function "main" (6 params, 3 results)
  item r6 r1 ()
  int r7 0
  list r8 ()
again:
  lt r9 r7 r6
  branch r9 otherwise=done
  to_float r10 r7
  fadd r10 r10 r3
  scalar r11 f16 r10
  item r12 r11 ()
  list r13 (r11, r12, r2)
  append r8 r8 r13
  int r14 1
  add r7 r7 r14
  jump again
done:
  alloc r15 f32 (r5)
  kernel k0 (r5) (r0, r0, r15)
  call_packed "twice" (r16) (r15)
  alloc r31 f32 (r5)
  call_dps "fill" (r31) (r16, r15, r3)
  call "down" (r17) (r6)
  len r18 r2
  mod r19 r18 r5
  min r19 r19 r17
  max r19 r19 r18
  sub r19 r19 r17
  not r20 r4
  and r20 r20 r4
  or r20 r20 r9
  const r21 c2
  fmul r22 r21 r3
  fdiv r22 r22 r21
  fsub r22 r22 r3
  le r23 r22 r21
  guard r23 "eps is too large"
  to_int r24 r22
  const r25 c3
  dict r26 (r25, r8, r24, r16)
  get r27 r26 r25
  len r28 r27
  free (r26, r25)
  eq r29 r28 r6
  ne r30 r28 r6
  tuple r31 (r27, r29, r30, r19)
  return (r31, r16, r22)
function "down" (1 params, 1 results)
  int r1 0
  le r2 r0 r1
  branch r2 otherwise=more
  return (r1)
more:
  int r3 1
  sub r4 r0 r3
  call "down" (r5) (r4)
  add r5 r5 r3
  floordiv r6 r5 r3
  return (r6)
"""
