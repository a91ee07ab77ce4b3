"""Lanes of vectors exchanged: a 16 x 16 block transposed in registers, one vector rotated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .constants import LANES
from .dtypes import vector
from .function import Function, Value
from .vector import Vec

HALF = vector("float", LANES // 2)


def transpose(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Return the 16 columns of 16 vectors: in 4 rounds, pairs of rows exchange their off-diagonal blocks.

    Bytes are interleaved instead, for which there are instructions: with row and column written as 8 bits,
    each round rotates them by one.
    """
    if rows[0].type == vector("i8", LANES):
        return _interleaved(f, rows)
    block = list(rows)
    step = LANES // 2
    while step:
        for i in range(LANES):
            if not i & step:
                a, b = block[i], block[i + step]
                lower = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
                upper = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
                block[i], block[i + step] = _shuffle(f, a, b, lower), _shuffle(f, a, b, upper)
        step //= 2
    return block


def _interleaved(f: Function, rows: Sequence[Value]) -> list[Value]:
    half = LANES // 2
    block = list(rows)
    for _ in range(half.bit_length()):
        pairs = list(zip(block[:half], block[half:], strict=True))
        block = [
            _shuffle(f, a, b, [first + lane // 2 + LANES * (lane % 2) for lane in range(LANES)])
            for a, b in pairs
            for first in (0, half)
        ]
    return block


def _shuffle(f: Function, a: Value, b: Value, picks: Sequence[int | None]) -> Value:
    lanes = ", ".join(f"i32 {'poison' if pick is None else pick}" for pick in picks)
    type = vector(Vec(f, a).element, len(picks))
    return f.op(type, f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(picks)} x i32> <{lanes}>")


def interleave(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Return the interleaving of vectors: lane 0 of each, lane 1 of each, and so on."""
    count = len(rows)
    places = [divmod(element, count)[::-1] for element in range(count * LANES)]
    return [_gathered(f, rows, places[i : i + LANES]) for i in range(0, len(places), LANES)]


def deinterleave(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Return the vectors that `interleave` would take for `rows`."""
    count = len(rows)
    places = [[divmod(lane * count + row, LANES) for lane in range(LANES)] for row in range(count)]
    return [_gathered(f, rows, each) for each in places]


def _gathered(f: Function, rows: Sequence[Value], picks: Sequence[tuple[int, int]]) -> Value:
    """Return the vector of the lanes at `picks`: (vector, lane)."""
    value = rows[0]
    for number, row in enumerate(rows[1:], 1):
        before = [lane if number == 1 else place for place, (_, lane) in enumerate(picks)]
        chosen = [
            LANES + lane if at == number else before[place] if at < number else None
            for place, (at, lane) in enumerate(picks)
        ]
        value = _shuffle(f, value, row, chosen)
    return value


def side_by_side(f: Function, a: Value, b: Value) -> Value:
    """Return the vector of the lanes of `a` and of those of `b`, which are as many."""
    return _shuffle(f, a, b, range(2 * Vec(f, a).lanes))


def part_of(f: Function, value: Value, first: int, count: int) -> Value:
    """Return the vector of `count` lanes of `value` from `first` on."""
    return _shuffle(f, value, value, range(first, first + count))


def exchange_in_fours(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Return the columns of the 4 x 4 blocks that four vectors have side by side, in two rounds."""
    lanes = Vec(f, rows[0]).lanes

    def both(a: Value, b: Value, picks: Sequence[int]) -> Value:
        """Take lanes 0 .. 3 of a block of `a` and 4 .. 7 of one of `b`, for every block."""
        places = [pick % 4 + pick // 4 * lanes for pick in picks]
        return _shuffle(f, a, b, [first + place for first in range(0, lanes, 4) for place in places])

    a, b, c, d = rows
    pairs = [(both(a, b, picks), both(c, d, picks)) for picks in ((0, 4, 1, 5), (2, 6, 3, 7))]
    return [both(*pair, picks) for pair in pairs for picks in ((0, 1, 4, 5), (2, 3, 6, 7))]


def fold(f: Function, rows: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Return the vector whose lane r is the reduction of the lanes of rows[r]; there are at most LANES rows.

    Lanes combine by halves (l and l + 8, then + 4, + 2, + 1), those of two vectors at once.
    """
    block, width = list(rows), LANES
    while width > 1:
        half = width // 2
        lower = [lane // half * width + lane % half for lane in range(LANES)]
        upper = [lane + half for lane in lower]
        pairs = [(block[i], block[min(i + 1, len(block) - 1)]) for i in range(0, len(block), 2)]
        block = [combine(_shuffle(f, a, b, lower), _shuffle(f, a, b, upper)) for a, b in pairs]
        width = half
    return block[0]


def lower_half(f: Function, value: Value) -> Value:
    """Return the first 8 lanes of a vector of f32."""
    if value.name == "zeroinitializer":
        return Value(HALF, value.name)
    lanes = ", ".join(f"i32 {lane}" for lane in range(LANES // 2))
    type = value.type
    return f.op(HALF, f"shufflevector {type} {value.name}, {type} poison, <{LANES // 2} x i32> <{lanes}>")


def with_zeros(f: Function, half: Value) -> Value:
    """Return the vector of 8 lanes of f32 and 8 zeros."""
    lanes = ", ".join(f"i32 {lane}" for lane in range(LANES))
    return f.op(
        vector("float", LANES),
        f"shufflevector {HALF} {half.name}, {HALF} zeroinitializer, <{LANES} x i32> <{lanes}>",
    )


def rotate(f: Function, value: Value, step: int) -> Value:
    """Return the vector whose lane l is lane (l + step) % 16 of `value`."""
    return _shuffle(f, value, value, [(lane + step) % LANES for lane in range(LANES)])
