"""Sums of four products of bytes in each lane: the instructions by the feature of the target that has them.

u8 of A times i8 of B, added to an i32 modulo 2^32: exact, so all of them have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...llvm.dtypes import vector
from ...llvm.function import Function, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES

WHOLE = "avx512vnni"  # the feature that multiplies all lanes at once
INTEGERS = vector("i32", LANES)
BYTES = vector("i8", 4 * LANES)
SHORTS = vector("i16", 2 * LANES)

#: (function, sums, left, right) -> sums plus the products of each lane's bytes, in the instruction's lanes.
Emit = Callable[[Function, Value, Value, Value], Value]


@dataclass(frozen=True)
class ByteDot:
    """An instruction that multiplies bytes: its 32-bit lanes, and its emitter."""

    lanes: int
    emit: Emit


def dot(f: Function, sums: Value, left: Value, right: Value) -> Value:
    """Return `sums`, LANES of i32, plus the products of the u8 of `left` and the i8 of `right`."""
    row = DOTS[f.dot]
    if row.lanes == LANES:
        return row.emit(f, sums, left, right)
    pieces = []
    for at in range(0, LANES, row.lanes):
        operands = [_piece(f, x, at, row.lanes) for x in (sums, left, right)]
        pieces.append(row.emit(f, *operands))
    return _joined(f, pieces)


def dot_of_shorts(f: Function, sums: Value, left: Value, right: Value) -> Value:
    """Return `sums`, LANES of i32, plus the products of the pairs of i16 of `left` and `right`. A fence keeps
    LLVM from adding the products of several steps first, for which there are no registers."""
    if f.dot == WHOLE:
        return f.call(INTEGERS, f"llvm.x86.avx512.vpdpwssd.{32 * LANES}", sums, left, right)
    pair, floats = _pairwise(f, left, right), vector("float", LANES)
    total = f.op(INTEGERS, f"add {INTEGERS} {sums.name}, {pair.name}")
    bits = f.op(floats, f"bitcast {INTEGERS} {total.name} to {floats}")
    return f.call(floats, f"llvm.arithmetic.fence.v{LANES}f32", bits)


def _x86(name: str) -> Emit:
    """Return the emission of `vpdpbusd` in the width given by `name`."""

    def emit(f: Function, sums: Value, left: Value, right: Value) -> Value:
        return f.call(sums.type, f"llvm.x86.avx512.vpdpbusd.{name}", sums, left, right)

    return emit


def _arm(f: Function, name: str, sums: Value, left: Value, right: Value) -> Value:
    return f.call(sums.type, f"llvm.aarch64.neon.{name}.v4i32.v16i8", sums, left, right)


def _usdot(f: Function, sums: Value, left: Value, right: Value) -> Value:
    return _arm(f, "usdot", sums, left, right)


def _sdot(f: Function, sums: Value, left: Value, right: Value) -> Value:
    """`sdot` takes signed bytes: x = (x - 128) + 128. The contribution of 128 depends only on `right`, so the
    back end computes it once for all rows."""
    kind = left.type
    signed = f.op(kind, f"xor {kind} {left.name}, splat (i8 -128)")
    least, zero = Value(kind, "splat (i8 -128)"), Value(sums.type, "zeroinitializer")
    low = _arm(f, "sdot", sums, signed, right)
    correction = _arm(f, "sdot", zero, least, right)
    return f.op(sums.type, f"sub {sums.type} {low.name}, {correction.name}")


def _by_shorts(f: Function, sums: Value, left: Value, right: Value) -> Value:
    """The even and the odd bytes as 16-bit numbers, neighbours added: at most twice 255 * 128."""
    x, y = (f.op(SHORTS, f"bitcast {BYTES} {value.name} to {SHORTS}") for value in (left, right))
    even = f.op(SHORTS, f"and {SHORTS} {x.name}, splat (i16 255)")
    odd = f.op(SHORTS, f"lshr {SHORTS} {x.name}, splat (i16 8)")
    shifted = f.op(SHORTS, f"shl {SHORTS} {y.name}, splat (i16 8)")
    for factor, other in ((even, shifted), (odd, y)):
        signed = f.op(SHORTS, f"ashr {SHORTS} {other.name}, splat (i16 8)")
        pair = _pairwise(f, factor, signed)
        sums = f.op(INTEGERS, f"add {INTEGERS} {sums.name}, {pair.name}")
    return sums


def _pairwise(f: Function, x: Value, y: Value) -> Value:
    """Return the products of 16-bit numbers, neighbours added: a form for which x86 has one instruction."""
    wide = vector("i32", 2 * LANES)
    factors = [f.op(wide, f"sext {SHORTS} {value.name} to {wide}") for value in (x, y)]
    product = f.op(wide, f"mul {wide} {factors[0].name}, {factors[1].name}")
    halves = []
    for first in (0, 1):
        mask = _indices(range(first, 2 * LANES, 2))
        text = f"shufflevector {wide} {product.name}, {wide} poison, {mask}"
        halves.append(f.op(INTEGERS, text))
    return f.op(INTEGERS, f"add {INTEGERS} {halves[0].name}, {halves[1].name}")


def _indices(places: range) -> str:
    return f"<{len(places)} x i32> <{', '.join(f'i32 {i}' for i in places)}>"


def by_plane(f: Function, x: Vec) -> Value:
    """Return the bytes of LANES i32, of each four the lowest bytes first, then the next ones."""
    quarter = [4 * j + plane for plane in range(4) for j in range(4)]
    places = [first + i for first in range(0, 4 * LANES, len(quarter)) for i in quarter]
    bytes = f.op(BYTES, f"bitcast {INTEGERS} {x.value.name} to {BYTES}")
    order = ", ".join(f"i32 {i}" for i in places)
    mask = f"<{len(places)} x i32> <{order}>"
    return f.op(BYTES, f"shufflevector {BYTES} {bytes.name}, {BYTES} poison, {mask}")


def lanes_of(f: Function, x: Value, places: range) -> Value:
    """Return the lanes of `x`, a vector of i32, at `places`."""
    text = f"shufflevector {x.type} {x.name}, {x.type} poison, {_indices(places)}"
    return f.op(vector("i32", len(places)), text)


def _piece(f: Function, x: Value, lane: int, lanes: int) -> Value:
    """Return `lanes` lanes of 32 bits of `x` from `lane` on."""
    element, per_lane = ("i8", 4) if x.type == BYTES else ("i32", 1)
    places = range(per_lane * lane, per_lane * (lane + lanes))
    text = f"shufflevector {x.type} {x.name}, {x.type} poison, {_indices(places)}"
    return f.op(vector(element, len(places)), text)


def _joined(f: Function, pieces: list[Value]) -> Value:
    """Return vectors of i32, a power of two of them, as one."""
    while len(pieces) > 1:
        both = 2 * LANES // len(pieces)
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [
            f.op(
                vector("i32", both),
                f"shufflevector {x.type} {x.name}, {y.type} {y.name}, {_indices(range(both))}",
            )
            for x, y in pairs
        ]
    return pieces[0]


#: By the feature of the target (`Target.dot`), "" for targets without one.
DOTS: dict[str, ByteDot] = {
    WHOLE: ByteDot(16, _x86("512")),
    "avxvnni": ByteDot(8, _x86("256")),
    "i8mm": ByteDot(4, _usdot),
    "dotprod": ByteDot(4, _sdot),
    "": ByteDot(LANES, _by_shorts),
}
