"""Kernels with machine code for the tests, and how the reference interpreter runs them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel as CompiledKernel
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.vm.assembler import assemble
from shapevm.vm.program import KernelKey, KernelObject, Program

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

#: The gather of one kernel, whose table and indices are inputs.
GATHER_TEXT = f"""
symbol "n" 1 ..
input "table": f32[4]
input "index": i64[s0]
output "y"
kernel k0 "gather" (1 dims, f32[4], i64[n0], out f32[n0]) = {json.dumps(to_json(GATHER))}
function "main" (3 params, 1 results)
  line "model.py:8"
  alloc r3 f32 (r2)
  kernel k0 (r2) (r0, r1, r3)
  return (r3)
"""

#: What the host's function "host" makes of an input.
HOST_TEXT = """
input "x": f32[2]
output "y"
function "main" (1 params, 1 results)
  call_packed "host" (r1) (r0)
  return (r1)
"""

ADD_ROW = f'"add" (1 dims, f32[n0], f32[n0], out f32[n0]) source "model.py:5" = {json.dumps(to_json(ADD))}'

#: (x + z) * 1 in two launches, and one result that only depends on the sizes.
ADD_TEXT = f"""
symbol "n" 1 .. 1000 why "model.py:3"
input "x": f32[s0]
input "z": f32[s0]
output "y"
kernel k0 {ADD_ROW}
function "main" (3 params, 1 results)
  line "model.py:5"
  alloc r3 f32 (r2)
  kernel k0 (r2) (r0, r1, r3)
  alloc r4 f32 (r2)
  kernel k0 (r2) (r3, r1, r4)
  free (r3)
  return (r4)
"""


def code(spec: Nest, dims: KernelKey = None) -> KernelObject:
    """Return machine code for this CPU."""
    return compile_kernel(spec, dims)


def with_code(program: Program) -> Program:
    """Return the program with generic machine code for all its kernels."""
    kernels = tuple(replace(k, objects=(code(from_json(k.spec)),)) for k in program.kernels)  # type: ignore[arg-type]
    return replace(program, kernels=kernels)


def add_program() -> Program:
    """Return the program of ADD_TEXT with code."""
    return with_code(assemble(ADD_TEXT))


def runner(program: Program) -> Any:
    """Return `run_kernel` for the reference interpreter: the same code, called from Python."""
    compiled = [CompiledKernel(compile_kernel(from_json(kernel.spec), None)) for kernel in program.kernels]
    return lambda index, dims, buffers: compiled[index].run(buffers, dims)
