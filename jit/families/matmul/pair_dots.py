"""Sums of two products of bf16 in each lane: the instructions by the feature of the target that has them.

The products are exact; the odd one is added to the f32 by a fused multiply-add, then the even one. The
instructions treat subnormal factors and sums as 0; multiply-adds of f32 keep them.
"""

from __future__ import annotations

from collections.abc import Callable

from ...llvm.conversion import to_memory
from ...llvm.dtypes import vector
from ...llvm.function import Function, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES

FLOATS = vector("float", LANES)
BITS = vector("i32", LANES)
PAIRS = vector("bfloat", 2 * LANES)

#: (function, sums, left, right) -> sums plus the products of each lane's bf16; all in f32 registers.
Emit = Callable[[Function, Value, Value, Value], Value]


def dot(f: Function, sums: Value, left: Value, right: Value) -> Value:
    """Return `sums`, LANES of f32, plus the products of the pairs of bf16 in `left` and `right`."""
    return DOTS[f.pairs](f, sums, left, right)


def rounded(f: Function, x: Value) -> Value:
    """Return LANES of f32 rounded to the nearest bf16, as i16; if the target multiplies bf16, subnormal
    numbers become 0, as its instructions treat them."""
    if not f.pairs:
        return to_memory(Vec(f, x), "bf16").value
    narrow = vector("bfloat", LANES)
    found = f.call(narrow, f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * LANES}", x)
    return f.op(vector("i16", LANES), f"bitcast {narrow} {found.name} to {vector('i16', LANES)}")


def _avx512(f: Function, sums: Value, left: Value, right: Value) -> Value:
    pairs = [f.op(PAIRS, f"bitcast {FLOATS} {x.name} to {PAIRS}") for x in (left, right)]
    return f.call(FLOATS, f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}", sums, *pairs)


def _by_fmas(f: Function, sums: Value, left: Value, right: Value) -> Value:
    for part in (_odd, _even):
        sums = f.call(FLOATS, f"llvm.fma.v{LANES}f32", part(f, left), part(f, right), sums)
    return sums


def _odd(f: Function, x: Value) -> Value:
    return _masked(f, x, "and", "-65536")


def _even(f: Function, x: Value) -> Value:
    return _masked(f, x, "shl", "16")


def _masked(f: Function, x: Value, op: str, number: str) -> Value:
    bits = f.op(BITS, f"bitcast {FLOATS} {x.name} to {BITS}")
    part = f.op(BITS, f"{op} {BITS} {bits.name}, splat (i32 {number})")
    return f.op(FLOATS, f"bitcast {BITS} {part.name} to {FLOATS}")


#: By the feature of the target (`Target.pairs`), "" for targets without one.
DOTS: dict[str, Emit] = {"avx512bf16": _avx512, "": _by_fmas}
