"""Products of narrow operands on AMX tiles, four bytes of a row at a step: u8 by i8 in i32, exact, so rows,
columns and steps may be divided in any way; bf16 by bf16 in f32, in the order of the instruction: of each
STEP steps the odd and the even products separately, then both are added to the sum.

A block of 32 rows by 32 columns is four tiles of 16 x 16 sums. A step of the tiles is STEP of the product's,
64 bytes of a row. B's panels have the layout of the tiles and are read in place. A block of A's rows is
copied to scratch once for all panels: consecutive steps, each with its 32 rows. Patches of an image, which
are already in scratch, are read there if steps divide. If steps do not divide, the last one begins earlier,
with zeros in place of the bytes of A that another step has multiplied; so nothing after B is read. Missing
rows are 0.

Steps come in chunks: the first-level cache holds a panel's chunk while all rows of the block use it. Sums
wait in scratch between chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import prefetch, unread
from ...loops.bodies import LANES, tail_mask
from .amx import GROUP, Enough, tile_number
from .arithmetic import PAIRS, QUADS, VECTOR
from .lanes import load
from .schedules import PANEL

STEP = 16  # steps of the product, of 4 bytes, in one of the tiles
HALF = 16  # rows of a tile
LEAST_K = 4 * STEP  # bytes of a row: fewer do not fill the tiles
ENOUGH = Enough(9, STEP)  # fewer rows are faster by several panels at once
ENOUGH_OF_GROUPS = Enough(16, STEP // 2)  # the same if groups of steps have scales
BLOCK = GROUP * STEP * 4  # bytes of a step of GROUP rows
ROW_BYTES = 4 * PANEL  # of a panel, and of a row of sums
MAX_CHUNK = 8  # steps of the tiles
DOTS = {QUADS: "tdpbusd", PAIRS: "tdpbf16ps"}  # instructions by operand kind
ROWS_BYTES = 1024 * 1024  # of a block of A's rows: it should stay in the second-level cache beside a panel


def chunk_of(n_steps: int) -> int:
    """Return how many of `n_steps` steps of the tiles a chunk has; chunks are equally long."""
    return -(-n_steps // -(-n_steps // MAX_CHUNK))


def scratch_bytes(k: int, block: int) -> int:
    """Return the bytes of the sums and of the copy of a block of rows of `k` steps."""
    return block * ROW_BYTES + block // GROUP * -(-k // STEP) * BLOCK


def copy_rows(f: Function, source: Value, stride: Int, rows: Int, k: int, to: Value) -> None:
    """Copy `rows` rows of A of `k` steps, `stride` steps apart, in the order in which tiles read them."""
    f.call_part("copy_rows", _define_copy, source, f.i64(stride), f.i64(rows), f.i64(k), to)


#: Of rows that are read in place. Longer ones span too many pages: at 2,304 bytes a copy costs as
#: much as it gains, at 4,608 the copied ones are 1.3 times as fast.
MAX_ROW_BYTES = 2048


class Rows(NamedTuple):
    """The layout of rows of A: the bytes from one to the next, and from a step of the tiles to the next; or
    `offsets`: a table in scratch of each step's offset from the row. `length`: the product's steps in one of
    the tiles."""

    row: Int
    step: int
    offsets: Value | None = None
    length: int = STEP


COPIED = Rows(4 * STEP, BLOCK)


def add(
    f: Function,
    halves: int,
    lie: Rows,
    rows: Value,
    b: Value,
    first: Int,
    end: Int,
    k: int,
    sums: Value,
    group: Value,
    dtype: str,
) -> None:
    """Add the products of steps `first` to `end` of the tiles to the sums of `halves` times 16 rows, with
    layout `lie`. `dtype`: of the operands, QUADS or PAIRS."""
    arguments = [rows, b, f.i64(first), f.i64(end), f.i64(k - lie.length), sums, group]
    if lie.offsets is not None:
        arguments.append(lie.offsets)
    f.call_part(f"add_{dtype}_{halves}", lambda g: _define_add(g, halves, lie, DOTS[dtype]), *arguments)


def _define_copy(g: Function) -> None:
    source, stride, rows, k, to = g.params
    whole, n_steps = g.udiv(k, STEP), g.ceildiv(k, STEP)
    had = g.sub(g.mul(n_steps, STEP), k)  # steps of the last one that the previous one had

    def place(row: Value, step: Int) -> Value:
        block = g.add(g.mul(g.udiv(row, GROUP), n_steps), step)
        return g.at(to, "i8", g.add(g.mul(block, BLOCK), g.mul(g.urem(row, GROUP), 4 * STEP)))

    with g.loop(0, rows) as row:
        line = g.at(source, "float", g.mul(row.index, stride))
        with g.loop(0, whole) as step:
            value = g.load(VECTOR, g.at(line, "float", g.mul(step.index, STEP)), align=1)
            g.store(value, place(row.index, step.index), align=64)
        with g.loop(whole, n_steps) as last:
            lanes = tail_mask(g, had)
            new = g.op(lanes.type, f"xor {lanes.type} {lanes.name}, splat (i1 true)")
            value = load(g, g.at(line, "float", g.sub(k, STEP)), new)
            g.store(value, place(row.index, last.index), align=64)
    zero = Value(VECTOR, "zeroinitializer")
    with g.loop(rows, g.mul(g.ceildiv(rows, HALF), HALF)) as missing, g.loop(0, n_steps) as at:
        g.store(zero, place(missing.index, at.index), align=64)


def _define_add(g: Function, halves: int, lie: Rows, dot: str) -> None:
    rows, b, first, end, last, sums, group, *offsets = g.params
    numbers = range(2 * halves)
    places = [g.at(sums, "i8", n // 2 * LANES * ROW_BYTES + n % 2 * 4 * LANES) for n in numbers]
    row = Value("i64", str(ROW_BYTES))
    is_first = g.op("i1", f"icmp eq i64 {first.name}, 0")

    def begin() -> None:
        for n in numbers:
            g.call("void", "llvm.x86.tilezero", tile_number(n))

    def go_on() -> None:
        for n in numbers:
            g.call("void", "llvm.x86.tileloadd64", tile_number(n), places[n], row)

    g.either(is_first, begin, go_on)
    with g.loop(first, end) as step:
        place: Int = g.mul(step.index, lie.step)
        if offsets:
            place = g.load("i64", g.at(offsets[0], "i64", step.index), align=8)
        left = g.at(rows, "i8", place)
        here = g.minimum(g.mul(step.index, lie.length), last)
        right = g.at(b, "i8", g.mul(here, ROW_BYTES))
        _products(g, halves, left, lie.row, right, dot)
        with g.when(g.op("i1", f"icmp eq i64 {group.name}, 0")):
            for line in range(0, lie.length * ROW_BYTES, 64):
                prefetch(g, unread(g, right, MAX_CHUNK * lie.length * ROW_BYTES + line, "i8"), 2)
    for n in numbers:
        g.call("void", "llvm.x86.tilestored64", tile_number(n), places[n], row)


def _products(g: Function, halves: int, a: Value, row: Int, b: Value, dot: str) -> None:
    """One step: sums n are of A's tile n // 2, number 4 + n // 2, and of B's n % 2, number 6 + n % 2."""
    of_a, of_b = g.i64(row), Value("i64", str(ROW_BYTES))
    for n in range(2):
        g.call("void", "llvm.x86.tileloadd64", tile_number(6 + n), g.at(b, "i8", 4 * LANES * n), of_b)
    for half in range(halves):
        g.call(
            "void",
            "llvm.x86.tileloadd64",
            tile_number(4 + half),
            g.at(a, "i8", g.mul(half * LANES, row)),
            of_a,
        )
        for n in range(2):
            g.call("void", f"llvm.x86.{dot}", *map(tile_number, (2 * half + n, 4 + half, 6 + n)))
