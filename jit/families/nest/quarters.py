"""Blocks of 16 x 16 elements of 4 bytes, and quarters of them, transposed.

An upright one is 4 columns of 16 rows, which become 4 rows, each a whole cache line; four elements of a row
are a separate load, which seldom spans two lines, wherever rows begin. A flat one is 4 rows, which become 16
rows of 4. Shuffles stay within 128 bits, where they are cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...llvm.constants import LANES
from ...llvm.dtypes import vector
from ...llvm.function import Function, Int, Value
from ...llvm.transpose import exchange_in_fours, part_of, side_by_side, transpose
from ...llvm.vector import AVX512_BYTES

SHORT = 4  # rows or columns of a quarter
N_BYTES = 4  # of an element


class Rows(NamedTuple):
    """The location of rows: the first one's address, their distance in elements, and the distance to those of
    the next quarter or block."""

    first: Value
    apart: Int
    step: Int = 0


def blocks(f: Function, element: str, source: Rows, target: Rows, count: Int) -> None:
    """Call the part that transposes `count` blocks; by quarters if registers do not hold 16 vectors."""
    if f.register_bytes >= AVX512_BYTES:
        _call(f, f"blocks_{element}", _block, element, source, target, count)
        return

    def define(part: Function) -> None:
        read, written, apart, pitch = part.params
        emit_block(part, element, Rows(read, apart), Rows(written, pitch))

    with f.loop(0, count) as block:
        places = [f.at(rows.first, element, f.mul(rows.step, block.index)) for rows in (source, target)]
        f.call_part(f"block_{element}", define, *places, f.i64(source.apart), f.i64(target.apart))


def upright(f: Function, element: str, source: Rows, target: Rows, count: Int) -> None:
    """Call the part that transposes `count` upright quarters."""
    _call(f, f"upright_{element}", emit_upright, element, source, target, count)


def flat(f: Function, element: str, source: Rows, target: Rows, count: Int) -> None:
    """Call the part that transposes `count` flat quarters."""
    _call(f, f"flat_{element}", _flat, element, source, target, count)


Emit = Callable[[Function, str, Rows, Rows], None]  # emits a quarter or a block


def _call(f: Function, name: str, emit: Emit, element: str, source: Rows, target: Rows, count: Int) -> None:
    def define(part: Function) -> None:
        read, written, n, *numbers = part.params
        with part.loop(0, n, carried=[Value("i64", "0")] * 2) as loop:
            places = zip((read, written), numbers[::2], numbers[1::2], loop.carried, strict=True)
            rows = [
                Rows(part.at(first, element, part.opaque(passed)), apart, step)
                for first, apart, step, passed in places
            ]
            emit(part, element, *rows)
            passed = [part.add(value, of.step) for value, of in zip(loop.carried, rows, strict=True)]
            loop.next(*map(part.i64, passed))

    numbers = [count, source.apart, source.step, target.apart, target.step]
    f.call_part(name, define, source.first, target.first, *map(f.i64, numbers))


def _block(f: Function, element: str, source: Rows, target: Rows) -> None:
    columns = transpose(f, [f.load(vector(element, LANES), place) for place in _places(f, element, source)])
    for column, place in zip(columns, _places(f, element, target), strict=True):
        f.store(column, place)


def _places(f: Function, element: str, rows: Rows) -> list[Value]:
    """Return the addresses of 16 rows: each is one of four and at most 3 rows more."""
    fours = [rows.first]
    for _ in range(SHORT, LANES, SHORT):
        fours.append(f.at(fours[-1], element, f.mul(rows.apart, SHORT)))
    return [f.at(four, element, f.mul(rows.apart, row)) for four in fours for row in range(SHORT)]


def emit_block(f: Function, element: str, source: Rows, target: Rows) -> None:
    """Emit the quarters of one block."""
    for first in range(0, LANES, SHORT):
        here = f.at(source.first, element, first)
        there = f.at(target.first, element, f.mul(target.apart, first))
        emit_upright(f, element, source._replace(first=here), target._replace(first=there))


def emit_upright(f: Function, element: str, source: Rows, target: Rows) -> None:
    """Emit one upright quarter."""
    fours = [f.at(source.first, element, f.mul(source.apart, row)) for row in range(0, LANES, SHORT)]
    halves = [_half(f, element, fours[i : i + 2], source.apart) for i in (0, 2)]
    for row, columns in enumerate(zip(*halves, strict=True)):
        line = f.at(target.first, element, f.mul(target.apart, row))
        for i, column in enumerate(columns):
            f.store(column, f.at(line, element, i * LANES // 2))


def _half(f: Function, element: str, fours: Sequence[Value], apart: Int) -> list[Value]:
    """Return the columns of twice four rows, which begin at `fours`."""
    rows = [
        [f.load(vector(element, SHORT), f.at(four, element, f.mul(apart, row))) for four in fours]
        for row in range(SHORT)
    ]
    return exchange_in_fours(f, [side_by_side(f, *pair) for pair in rows])


def _flat(f: Function, element: str, source: Rows, target: Rows) -> None:
    places = [f.at(source.first, element, f.mul(source.apart, row)) for row in range(SHORT)]
    columns = exchange_in_fours(f, [f.load(vector(element, LANES), place) for place in places])
    for four in range(0, LANES, SHORT):
        first = f.at(target.first, element, f.mul(target.apart, four))
        for row, column in enumerate(columns):
            place = f.at(first, element, f.mul(target.apart, row))
            f.store(part_of(f, column, four, SHORT), place)
