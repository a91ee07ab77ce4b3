"""f32 matrix products on AMX tiles: three bf16 for every f32, six products, f32 sums.

An f32 is exactly the sum of three bf16 of 8 significant bits each (truncated): x = x1 + x2 + x3. Of the nine
products of two such sums the six largest, x1y1 x1y2 x2y1 x2y2 x1y3 x3y1, are accumulated; the others are
2^-24 of a product, as small as the rounding error of f32. Source: Henry, Tang, Heinecke, "Leveraging the
bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019. Six products at
AMX's rate are 2.3 times the rate of f32 FMAs. Elements of a narrow B are sums of fewer bf16 (`PLANES`), with
fewer products. They would pay from 16 rows on, but one number of rows decides for all dtypes: below it a row
has the same bits in any batch.

A block of 32 rows by 32 columns is four tiles of 16 x 16 sums, four tiles more hold operands. Operands lie in
scratch as planes (all x1, all x2, all x3) in steps of STEP = 32 k. A block of A's rows is split once for
all panels; a panel of B chunk by chunk of k, small enough for the first-level cache, each used for all rows
of the block at once. If rows are so long that a block has few of them, exact code does several blocks
together, a slab of k at a time (`Slabs`). Sums go to scratch between chunks and for the epilogue, which is
lossless in f32. Those of more than SUM steps are cut into blocks of SUM steps (from MANY steps on,
LARGE_SUM), whose totals are summed in f32.

Infinities and NaNs cannot be split: their x3 is NaN, and so are their sums. A row of a panel's sums that is
not all finite is recomputed by FMAs. Few rows and short sums, for which splitting does not pay, also use
FMAs. These choices depend on M, K, the row and the panel alone: all tiers and partitions agree. Tiles flush
denormals: factors below 1e-38, and the low parts of factors below 1e-33, count as 0. So a row of a panel
whose sums are all less than TINY is also recomputed, unless its row of A is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from ...llvm.function import Function, Int, Value, least, most
from ...llvm.prefetch import LINE_BYTES, prefetch, unread
from ...llvm.vector import Vec
from ...loops.bodies import LANES, splat
from ...spec import Size, Terms
from .arithmetic import F32, VECTOR, Arithmetic
from .lanes import load, tail
from .row_tiles import copy_to
from .schedules import PANEL
from .spec import ProductSpec
from .sums import BLOCK as BLOCK_STEPS
from .sums import LONG

MIN_ROWS = 96  # fewer rows use the FMA kernels,
MIN_K = 64  # and so do shorter sums, which are more exact
GROUP = 32  # rows of a block of tiles
STEP = 32  # values of k in a tile
PLANE = 2 * GROUP * STEP  # bytes of one plane of one step, of A or B
BLOCK = 3 * PLANE  # bytes of a step: x1, x2, x3
PLANES_OF_ELEMENT = 6  # bytes of all planes for an f32
TILE = PLANE // 2
CHUNK = 3 * STEP  # values of k of a panel that are split at a time
SUM, LARGE_SUM = 4 * CHUNK, 16 * CHUNK  # values of k of a block of a sum; blocks are summed in f32
MANY = 1 << 15  # values of k from which blocks are large: their number matters more than their length
PLANES_BYTES = 1280 * 1024  # of a block of A's rows: it should stay in the second-level cache beside a panel
MAX_ROWS = 256

TINY = 2.0**-96

_BITS = f"<{LANES} x i32>"
_HALVES = f"<{2 * LANES} x i16>"
_HIGH = "splat (i32 -65536)"
_CONFIG = "tile_shapes"
#: The number of bf16 whose sum is an element of B, by its dtype.
PLANES = {"f32": 3, "f16": 2, "bf16": 1, "i8": 1, "i4": 1}
_TWO_PLANES = (
    "a20", "b00", "b01", "a21", "0", "1", "a10", "2", "3", "a11", "0", "2", "b10", "1", "3", "b11",
    "0", "1", "a00", "2", "3", "a01", "0", "2", "b00", "1", "3", "b01", "0", "2", "1", "3",
)  # fmt: skip
#: One step of k, by B's planes. a21: load plane 2 of A's lower 16 rows (b21: of B's right 16 columns) into
#: tile 5 (7; upper and left ones into 4 and 6). A number n: add the product of A's tile n // 2 and B's tile
#: n % 2 to sums n. Small products come first; a load follows the last use of the tile that it replaces.
_PROGRAMS = {
    1: (
        "a20", "b00", "b01", "a21", "0", "1", "a10", "2", "3", "a11", "0", "1", "a00", "2", "3", "a01",
        "0", "1", "2", "3",
    ),
    2: _TWO_PLANES,
    3: (*_TWO_PLANES[:-2], "b20", *_TWO_PLANES[-2:], "b21", "0", "2", "1", "3"),
}  # fmt: skip
OF_LOWER_ROWS = ("a01", "a11", "a21", "2", "3")  # the operations that a block of 16 rows or fewer skips

Again = Callable[..., None]


class Enough(NamedTuple):
    """The least rows and steps for which tiles pay."""

    rows: int
    steps: int

    def few(self, m: Int, k: Int) -> bool:
        """Return True if the product is known to use other kernels."""
        return any(top is not None and top < few for top, few in zip(map(most, (m, k)), self, strict=True))

    def is_much(self, f: Function, m: Int, k: Int) -> Value | bool:
        """Return whether the tiles pay, as a Value if that is known only at run time."""
        if self.few(m, k):
            return False
        if least(m) >= self.rows and least(k) >= self.steps:
            return True
        rows, depth = f.less(self.rows - 1, m), f.less(self.steps - 1, k)
        return f.op("i1", f"and i1 {rows.name}, {depth.name}")


ENOUGH = Enough(MIN_ROWS, MIN_K)


def block_rows(m: Int, row_bytes: int, limit_bytes: int = PLANES_BYTES) -> int:
    """Return the rows of a tile of the kernel, a multiple of GROUP: evenly split if M is known. A row of A
    takes `row_bytes` in scratch."""
    limit = max(GROUP, min(MAX_ROWS, limit_bytes // max(row_bytes, 1) // GROUP * GROUP))
    if not isinstance(m, int):
        return limit
    n = max(-(-m // limit), 1)
    return -(-m // n // GROUP) * GROUP or GROUP


class Slabs(NamedTuple):
    """The unit of multiplication for long rows of A: `blocks` blocks, of at most `rows` rows, `steps` values
    of k at a time."""

    blocks: int
    rows: int
    steps: int


def slabs_of(m: int, k: int, block: int) -> Slabs | None:
    """Return the slabs of `m` rows in blocks of `block`, None if one block has the maximal number of rows.

    So each panel of B is read and split once for all these rows rather than once a block. Sums keep their
    order: slabs are whole blocks of a sum, whose totals are kept for every panel.
    """
    blocks = min(-(-m // block), MAX_ROWS // block)
    rows = min(blocks * block, -(-m // GROUP) * GROUP)
    steps = PLANES_BYTES // (PLANES_OF_ELEMENT * max(rows, 1)) // SUM * SUM
    return Slabs(blocks, rows, steps) if blocks > 1 and 0 < steps < k < MANY else None


def scratch_of(spec: ProductSpec, block: int, slabs: Slabs | None) -> Terms:
    """Return the scratch of the tiles: sums, flags, planes of a chunk and of a block of rows."""
    fixed = sums_bytes(spec.product.k, block) + CHUNK // STEP * BLOCK + block // GROUP * BLOCK
    terms: Terms = ((fixed, ()), (block // GROUP * BLOCK // STEP, (spec.product.k,)))
    if slabs is None:
        return terms
    row, width = 4 * slabs.rows, (spec.product.n,)
    return (*terms, (slab_bytes(slabs) + 2 * row * PANEL, ()), (row, width))


def slab_bytes(slabs: Slabs) -> int:
    """Return the bytes of the planes of a slab."""
    return slabs.rows * slabs.steps * PLANES_OF_ELEMENT


def block_of(f: Function, k: Int) -> Int:
    """Return the values of k of a block of a sum of `k`."""
    if isinstance(k, int):
        return SUM if k < MANY else LARGE_SUM
    return f.select(f.less(k, MANY), SUM, LARGE_SUM)


def sums_bytes(k: Size | Int, block: int) -> int:
    """Return the bytes of the sums of a block of rows, and of their totals if there are several blocks."""
    return block * PANEL * 4 * (1 if isinstance(k, int) and k <= SUM else 2)


def configure(f: Function, rows: int = LANES) -> None:
    """Give the tiles of sums 16 rows of 64 bytes, those of B `rows` rows of 64 bytes, and those of A 16 rows
    of as many steps as B's."""
    of_a, lines = 4 * rows, [LANES] * 6 + [rows] * 2
    widths = b"".join(width.to_bytes(2, "little") for width in (*[64] * 4, of_a, of_a, 64, 64))
    data = bytes([1, *[0] * 15]) + widths + bytes([*[0] * 16, *lines, *[0] * 8])
    text = "".join(f"\\{byte:02X}" for byte in data)
    f.declarations[_CONFIG] = (
        f'@{_CONFIG} = private unnamed_addr constant [64 x i8] c"{text}", section ".rodata.tiles", align 64'
    )
    f.call("void", "llvm.x86.ldtilecfg", Value("ptr", f"@{_CONFIG}"))


def release(f: Function) -> None:
    """Release the tiles, so that a context switch need not save them."""
    f.call("void", "llvm.x86.tilerelease")


# Splitting ----------------------------------------------------------------------------------------------


def _split(g: Function, x: Value, planes: int = 3) -> list[Value]:
    """Return the bf16 of each lane, in the high halves of i32."""
    parts, rest = [], x
    for i in range(planes):
        high = g.op(_BITS, f"and {_BITS} {_bits(g, rest).name}, {_HIGH}")
        parts.append(high)
        if i < planes - 1:
            value = g.op(VECTOR, f"bitcast {_BITS} {high.name} to {VECTOR}")
            rest = g.op(VECTOR, f"fsub {VECTOR} {rest.name}, {value.name}")
    return parts


def _bits(g: Function, x: Value) -> Value:
    return g.op(_BITS, f"bitcast {VECTOR} {x.name} to {_BITS}")


def split_rows(f: Function, source: Value, stride: Int, rows: Int, k: Int, planes: Value) -> None:
    """Split `rows` x `k` of A (`stride` elements from row to row) into planes; rows up to whole groups are
    0."""
    arguments = [source, f.i64(stride), f.i64(rows), f.i64(k), planes]
    f.call_part("split_rows", _define_split_rows, *arguments)


def _define_split_rows(g: Function) -> None:
    source, stride, rows, k, planes = g.params
    steps, whole = g.ceildiv(k, STEP), g.udiv(k, STEP)
    picks = ", ".join(f"i32 {2 * i + 1}" for i in range(2 * LANES))

    def put(place: Value, pair: list[Value]) -> None:
        for plane, (x, y) in enumerate(zip(_split(g, pair[0]), _split(g, pair[1]), strict=True)):
            halves = [g.op(_HALVES, f"bitcast {_BITS} {v.name} to {_HALVES}") for v in (x, y)]
            packed = g.op(
                _HALVES,
                f"shufflevector {_HALVES} {halves[0].name}, {_HALVES} {halves[1].name}, "
                f"<{2 * LANES} x i32> <{picks}>",
            )
            g.store(packed, g.at(place, "i8", plane * PLANE), align=64)

    def place_of(row: Int, step: Int) -> Value:
        block = g.add(g.mul(g.udiv(row, GROUP), steps), step)
        return g.at(planes, "i8", g.add(g.mul(block, BLOCK), g.mul(g.urem(row, GROUP), 2 * STEP)))

    with g.loop(0, rows) as row:
        line = g.at(source, "float", g.mul(row.index, stride))
        with g.loop(0, whole) as step:
            here = g.at(line, "float", g.mul(step.index, STEP))
            pair = [g.load(VECTOR, g.at(here, "float", LANES * i), align=4) for i in range(2)]
            put(place_of(row.index, step.index), pair)
        with g.loop(whole, steps) as last:
            here = g.at(line, "float", g.mul(last.index, STEP))
            left = g.sub(k, g.mul(last.index, STEP))
            pair = [
                load(g, g.at(here, "float", LANES * i), tail(g, g.sub(left, LANES * i))) for i in range(2)
            ]
            put(place_of(row.index, last.index), pair)
    zero = Value(VECTOR, "zeroinitializer")
    with g.loop(rows, g.mul(g.ceildiv(rows, GROUP), GROUP)) as row0, g.loop(0, steps) as step0:
        put(place_of(row0.index, step0.index), [zero, zero])


def split_panel(
    f: Function, source: Value, k: Int, planes: Value, arithmetic: Arithmetic = F32, row_bytes: int = 0
) -> None:
    """Split a panel of B, [k, PANEL], into planes whose rows hold pairs of k, in the layout of the tiles.

    `row_bytes`: of a row of the panel (0: those of PANEL elements).
    """
    arguments = [source, f.i64(k), planes]
    step = row_bytes or PANEL * arithmetic.bytes
    name = f"split_panel{arithmetic.suffix}"
    f.call_part(name, lambda g: _define_split_panel(g, arithmetic, step), *arguments)


def _define_split_panel(g: Function, arithmetic: Arithmetic, row_bytes: int) -> None:
    source, k, planes = g.params
    count = PLANES[arithmetic.dtype]

    def put(pair: Int, low: list[Value], high: list[Value]) -> None:
        block, row = g.udiv(pair, STEP // 2), g.urem(pair, STEP // 2)
        place = g.at(planes, "i8", g.add(g.mul(block, count * PLANE), g.mul(row, 2 * STEP)))
        for column, (x, y) in enumerate(zip(low, high, strict=True)):
            for plane, (a, b) in enumerate(zip(_split(g, x, count), _split(g, y, count), strict=True)):
                lower = g.op(_BITS, f"lshr {_BITS} {a.name}, splat (i32 16)")
                both = g.op(_BITS, f"or {_BITS} {lower.name}, {b.name}")
                g.store(both, g.at(place, "i8", plane * PLANE + column * TILE), align=64)

    def read(row: Int) -> list[Value]:
        line = g.at(source, "i8", g.mul(row, row_bytes))
        return arithmetic.row(g, line, [LANES * i for i in range(2)])

    nothing = [Value(VECTOR, "zeroinitializer")] * 2
    pairs = g.udiv(k, 2)
    with g.loop(0, pairs) as pair:
        low, high = read(g.mul(pair.index, 2)), read(g.add(g.mul(pair.index, 2), 1))
        put(pair.index, low, high)
    with g.loop(pairs, g.ceildiv(k, 2)) as odd:
        low = read(g.mul(odd.index, 2))
        put(odd.index, low, nothing)
    with g.loop(g.ceildiv(k, 2), g.mul(g.ceildiv(k, STEP), STEP // 2)) as rest:
        put(rest.index, nothing, nothing)


# Multiplying --------------------------------------------------------------------------------------------


def multiply(
    f: Function,
    halves: int,
    a: Value,
    b: Value,
    done: Int,
    k: Int,
    sums: Value,
    ahead: Value,
    arithmetic: Arithmetic = F32,
    lines: int | None = None,
) -> None:
    """Add the products of `halves` times 16 rows with 32 columns of the next `k` values of k, from the planes
    `a`, `b`, to `sums` (rows of PANEL f32).

    `done`: values of k added before; 0: the sums start here. Prefetches `lines` cache lines a step from
    `ahead` on, by default half as many bytes as a step of B.
    """
    arguments = [a, b, f.i64(done), f.i64(f.ceildiv(k, STEP)), sums, ahead]
    planes = PLANES[arithmetic.dtype]
    if lines is None:
        lines = STEP * PANEL * arithmetic.bytes // 2 // LINE_BYTES
    name = f"multiply_tiles{arithmetic.suffix}_{halves}_{lines}"
    f.call_part(name, lambda g: _define_multiply(g, halves, planes, lines), *arguments)


def add_block(f: Function, k: Int, done: Int, sums: Value, totals: Value) -> None:
    """If a chunk that begins at step `done` of `k` ends a block of a group's sums, add them to `totals`; if
    it ends the last of several blocks, leave the whole sums in `sums`."""
    if isinstance(k, int) and k <= SUM:
        return
    end, size, count = f.add(done, CHUNK), block_of(f, k), GROUP * PANEL
    is_last = f.less(f.sub(k, 1), end)
    with f.when(_both(f, f.less(size, end), is_last)):
        F32.add_to(f, sums, totals, count)
    is_inner = f.op("i1", f"xor i1 {is_last.name}, true")
    ends = f.less(f.i64(f.urem(end, size)), 1)
    with f.when(_both(f, ends, is_inner)):
        f.either(
            f.less(end, f.add(size, 1)),
            lambda: copy_to(f, totals, sums, count),
            lambda: F32.add_to(f, totals, sums, count),
        )


def _both(f: Function, a: Value, b: Value) -> Value:
    return f.op("i1", f"and i1 {a.name}, {b.name}")


def tile_number(number: int) -> Value:
    """Return the number of a tile as an operand."""
    return Value("i8", str(number))


def _define_multiply(g: Function, halves: int, planes: int, lines: int) -> None:
    a, b, done, steps, sums, ahead = g.params
    numbers = range(2 * halves)
    places = [g.at(sums, "float", n // 2 * LANES * PANEL + n % 2 * LANES) for n in numbers]
    row = Value("i64", str(4 * PANEL))
    is_first = g.op("i1", f"icmp eq i64 {done.name}, 0")
    with g.when(is_first):
        for number in numbers:
            g.call("void", "llvm.x86.tilezero", tile_number(number))
    with g.when(g.op("i1", f"xor i1 {is_first.name}, true")):
        for number in numbers:
            g.call("void", "llvm.x86.tileloadd64", tile_number(number), places[number], row)
    with g.loop(0, steps) as step:
        left = g.at(a, "i8", g.mul(step.index, BLOCK))
        right = g.at(b, "i8", g.mul(step.index, planes * PLANE))
        near = unread(g, ahead, g.mul(step.index, lines * LINE_BYTES), "i8")
        places_ahead = [unread(g, near, i * LINE_BYTES, "i8") for i in range(lines)]
        _products(g, halves, planes, left, right, places_ahead)
    for number in numbers:
        g.call("void", "llvm.x86.tilestored64", tile_number(number), places[number], row)


def _products(g: Function, halves: int, planes: int, a: Value, b: Value, near: Sequence[Value]) -> None:
    """One step of k, prefetching the lines `near`."""
    stride, program = Value("i64", str(2 * STEP)), _PROGRAMS[planes]
    if halves == 1:
        program = tuple(word for word in program if word not in OF_LOWER_ROWS)
    lines, n_products = iter(near), sum(word.isdigit() for word in program)
    each = -(-len(near) // n_products)
    for word in program:
        if word.isdigit():
            number = int(word)
            g.call("void", "llvm.x86.tdpbf16ps", *map(tile_number, (number, 4 + number // 2, 6 + number % 2)))
            for address in islice(lines, each):
                prefetch(g, address, 2)
        else:
            base, first = (a, 4) if word[0] == "a" else (b, 6)
            plane, half = int(word[1]), int(word[2])
            place = g.at(base, "i8", plane * PLANE + half * TILE)
            g.call("void", "llvm.x86.tileloadd64", tile_number(first + half), place, stride)


def mend(
    f: Function,
    name: str,
    rows: Int,
    a: Value,
    stride: Int,
    b: Value,
    k: Int,
    sums: Value,
    again: Again,
    *more: Value,
) -> None:
    """Recompute, by `again`, the doubtful ones of `rows` rows of sums.

    Whether a row is recomputed depends only on that row and the panel, not on the partition of the rows.
    `again(g, row of A, b, k, its sums, *more)` emits it in a separate part called `name`.
    """

    def define(g: Function) -> None:
        rows, a, stride, b, k, sums, *rest = g.params
        with g.loop(0, rows) as row:
            place = g.at(sums, "float", g.mul(row.index, PANEL))
            with g.when(_is_doubtful(g, place)):
                line = g.at(a, "float", g.mul(row.index, stride))
                # Of a row of zeros the sums are right: 0, or NaN where B is not finite.
                with g.when(_has_more_than_zeros(g, line, k)):
                    again(g, line, b, k, place, *rest)

    f.call_part(name, define, f.i64(rows), a, f.i64(stride), b, f.i64(k), sums, *more)


def by_fmas(arithmetic: Arithmetic) -> Again:
    """Return the emission of sums by FMAs, in blocks of BLOCK steps, for `mend`."""

    def again(g: Function, line: Value, b: Value, k: Value, sums: Value) -> None:
        _add_exactly(g, line, b, k, sums, arithmetic)

    return again


def _add_exactly(g: Function, line: Value, b: Value, k: Value, sums: Value, arithmetic: Arithmetic) -> None:
    """Leave the products of a row at `line` with a panel in `sums`."""
    size, nothing = g.select(g.less(k, LONG), k, BLOCK_STEPS), Value(VECTOR, "zeroinitializer")
    with g.loop(0, k, size, [splat(g, "f32", -0.0)] * 2, nonempty=True) as block:
        behind = g.minimum(g.add(block.index, size), k)
        with g.loop(block.index, behind, carried=[nothing] * 2) as step:
            left = g.splat(g.load("float", g.at(line, "float", step.index), align=4), LANES)
            right = g.at(b, arithmetic.element, g.mul(step.index, PANEL))
            vectors = arithmetic.row(g, right, [LANES * i for i in range(2)])
            pairs = zip(vectors, step.carried, strict=True)
            step.next(*[g.call(VECTOR, f"llvm.fma.v{LANES}f32", left, v, x) for v, x in pairs])
        pairs = zip(block.carried, step.results, strict=True)
        block.next(*[g.op(VECTOR, f"fadd {VECTOR} {x.name}, {y.name}") for x, y in pairs])
    for i, total in enumerate(block.results):
        g.store(total, g.at(sums, "float", LANES * i), align=4)


def _is_doubtful(g: Function, sums: Value) -> Value:
    """Return whether some of a row's PANEL sums is infinite or NaN (x - x is 0 only for finite x), or all are
    less than TINY."""
    total, is_large = Value(VECTOR, "zeroinitializer"), Vec(g, g.splat(Value("i1", "false"), LANES))
    for i in range(2):
        x = Vec(g, g.load(VECTOR, g.at(sums, "float", LANES * i), align=4))
        total = (Vec(g, total) + (x - x)).value
        is_large = is_large | ~x.abs().lt(TINY)
    lanes = g.op(f"<{LANES} x i1>", f"fcmp uno {VECTOR} {total.name}, zeroinitializer")
    is_tiny = g.op("i1", f"xor i1 {is_large.any().name}, true")
    return g.op("i1", f"or i1 {Vec(g, lanes).any().name}, {is_tiny.name}")


def _has_more_than_zeros(g: Function, line: Value, k: Value) -> Value:
    """Return whether one of `k` numbers is not 0."""
    with g.loop(0, k, LANES, [Value(_BITS, "zeroinitializer")]) as at:
        x = _bits(g, load(g, g.at(line, "float", at.index), tail(g, g.sub(k, at.index))))
        at.next(g.op(_BITS, f"or {_BITS} {at.carried[0].name}, {x.name}"))
    twice = g.op(_BITS, f"shl {_BITS} {at.results[0].name}, splat (i32 1)")  # without the signs
    return Vec(g, g.op(f"<{LANES} x i1>", f"icmp ne {_BITS} {twice.name}, zeroinitializer")).any()
