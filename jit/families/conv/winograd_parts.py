"""The transforms of Winograd's convolutions: parts that are the same for all kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from ...llvm.dtypes import vector
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, splat
from ..matmul.arithmetic import VECTOR
from ..matmul.schedules import PANEL
from .winograd_points import SIDE, TAPS, TILE, transforms

GAP = LANES  # floats between two points' matrices, which would otherwise map to the same cache sets
Vectors = list[Value]


def _to_points_along(g: Function, matrix: np.ndarray, given: Sequence[Value]) -> Vectors:
    """Return the points of `given` pixels or taps along an axis; points +-p share their even and odd
    terms."""
    found = [_sum(g, matrix[0], given)]
    for row in matrix[1:-1:2]:
        even, odd = (_sum(g, np.where(np.arange(len(row)) % 2 == rest, row, 0), given) for rest in (0, 1))
        found += [_binary(g, "fadd", even, odd), _binary(g, "fsub", even, odd)]
    return [*found, _sum(g, matrix[-1], given)]


def _to_outputs_along(g: Function, given: Sequence[Value]) -> Vectors:
    """Return the outputs of `given` points along an axis; +-p are taken together first."""
    matrix, joined = transforms().outputs.copy(), list(given)
    for i in range(1, len(given) - 1, 2):
        joined[i : i + 2] = [_binary(g, op, given[i], given[i + 1]) for op in ("fadd", "fsub")]
        plus, minus = matrix[:, i].copy(), matrix[:, i + 1]
        matrix[:, i], matrix[:, i + 1] = (plus + minus) / 2, (plus - minus) / 2
    return [_sum(g, row, joined) for row in matrix]


def _sum(g: Function, row: np.ndarray, given: Sequence[Value]) -> Value:
    """Return the sum of row[i] * given[i] by FMAs; a factor of 1 comes first."""
    first, *rest = sorted(map(int, np.flatnonzero(row)), key=lambda i: bool(row[i] != 1))
    total = given[first] if row[first] == 1 else _binary(g, "fmul", given[first], splat(g, "f32", row[first]))
    for i in rest:
        total = _fma(g, given[i], splat(g, "f32", row[i]), total)
    return total


def _binary(g: Function, opcode: str, a: Value, b: Value) -> Value:
    return g.op(VECTOR, f"{opcode} {VECTOR} {a.name}, {b.name}")


def _fma(g: Function, a: Value, b: Value, c: Value) -> Value:
    return g.call(VECTOR, f"llvm.fma.v{LANES}f32", a, b, c)


def line_of(g: Function, base: Value, number: Int) -> Value:
    """Return the address of a vector in an array of vectors."""
    return g.at(base, "float", g.mul(number, LANES))


def inside(g: Function, place: Int, size: Value) -> Value:
    """Return whether a position along an axis is inside of an image of this many pixels."""
    return g.op("i1", f"icmp ult i64 {g.i64(place).name}, {size.name}")


def _both(g: Function, a: Value, b: Value) -> Value:
    return g.op("i1", f"and i1 {a.name}, {b.name}")


def pixels_of_line(
    g: Function, line: Value, channel: Value, columns: Sequence[Value], element: str
) -> Iterator[Value]:
    """Emit the addresses of the pixels of a line of a tile's window, from `channel` on: of zeros outside
    of the image. Each is computed on demand. `g`: a part with the parameters of `define_to_points`.
    `columns`: whether the window's columns are inside of the image."""
    image, y, x, height, across, channels, zeros, *_ = g.params
    row = g.add(y, line)
    is_there = inside(g, row, height)
    first = g.add(g.mul(row, across), x)
    for j, column in enumerate(columns):
        place = g.add(g.mul(g.add(first, j), channels), channel)
        is_pixel = _both(g, is_there, column).name
        at = f"getelementptr {element}, ptr {image.name}, i64 {g.i64(place).name}"
        yield g.op("ptr", f"select i1 {is_pixel}, ptr {g.op('ptr', at).name}, ptr {zeros.name}")


def define_to_points(g: Function) -> None:
    """The channels of one tile's window, zeros outside of the image, to their points, `apart` elements from
    one another."""
    _, _, x, _, across, channels, _, passed, to, apart = g.params
    matrix = transforms().pixels
    columns = [inside(g, g.add(x, j), across) for j in range(SIDE)]
    with g.loop(0, channels, LANES) as c:
        with g.loop(0, SIDE) as line:
            addresses = pixels_of_line(g, line.index, c.index, columns, "float")
            given = [g.load(VECTOR, address, align=4) for address in addresses]
            for j, value in enumerate(_to_points_along(g, matrix, given)):
                g.store(value, line_of(g, passed, g.add(g.mul(line.index, SIDE), j)), align=4)
        with g.loop(0, SIDE) as pixel:
            places = [g.add(pixel.index, i * SIDE) for i in range(SIDE)]
            given = [g.load(VECTOR, line_of(g, passed, place), align=4) for place in places]
            for place, value in zip(places, _to_points_along(g, matrix, given), strict=True):
                g.store(value, g.at(to, "float", g.add(g.mul(place, apart), c.index)), align=4)


def define_weights(g: Function, chunk: int, width: int, vectors: int) -> None:
    """The weights of `chunk` channels and `vectors` vectors of columns to line `line` of points, of `factors`
    down the taps: rows of `width` elements. Panels of weights are `apart` elements apart."""
    b, line, factors, to, apart = g.params
    matrix, taps = transforms().taps, TAPS * TAPS
    down = [g.load(VECTOR, line_of(g, factors, g.add(g.mul(line, TAPS), i)), align=4) for i in range(TAPS)]
    with g.loop(0, chunk) as c:
        for v in range(vectors):
            panel, column = divmod(v * LANES, PANEL)
            place = g.add(g.add(g.mul(c.index, taps * PANEL), g.mul(apart, panel)), column)
            first = g.at(b, "float", place)
            along = []
            for x in range(TAPS):
                rows = [g.at(first, "float", (y * TAPS + x) * PANEL) for y in range(TAPS)]
                given = [g.load(VECTOR, row, align=4) for row in rows]
                total = _binary(g, "fmul", given[0], down[0])
                for weight, factor in zip(given[1:], down[1:], strict=True):
                    total = _fma(g, weight, factor, total)
                along.append(total)
            place = g.add(g.mul(c.index, width), v * LANES)
            for i, value in enumerate(_to_points_along(g, matrix, along)):
                g.store(value, g.at(to, "float", g.add(place, i * (chunk * width + GAP))), align=4)


def define_to_outputs(g: Function) -> None:
    """The sums of one tile, points `apart` elements from one another, to its outputs, `wide` elements from
    one another; `used` columns. `flag` is not 0 where one of them, or a sum of a row, is not finite."""
    sums, apart, passed, outputs, wide, used, flag = g.params
    zero = Value(VECTOR, "zeroinitializer")
    with g.loop(0, used, LANES, carried=[zero]) as v:
        with g.loop(0, SIDE) as point:
            places = [g.add(g.mul(g.add(point.index, i * SIDE), apart), v.index) for i in range(SIDE)]
            given = [g.load(VECTOR, g.at(sums, "float", place), align=4) for place in places]
            for i, value in enumerate(_to_outputs_along(g, given)):
                g.store(value, line_of(g, passed, g.add(point.index, i * SIDE)), align=4)
        with g.loop(0, TILE, carried=v.carried) as row:
            first = g.mul(row.index, SIDE)
            given = [g.load(VECTOR, line_of(g, passed, g.add(first, j)), align=4) for j in range(SIDE)]
            found = _to_outputs_along(g, given)
            for j, value in enumerate(found):
                place = g.add(g.mul(g.add(g.mul(row.index, TILE), j), wide), v.index)
                g.store(value, g.at(outputs, "float", place), align=4)
            total = reduce(lambda a, b: _binary(g, "fadd", a, b), found)
            row.next(_fma(g, total, zero, row.carried[0]))
        v.next(*row.results)
    bad = g.op(vector("i1", LANES), f"fcmp uno {VECTOR} {v.results[0].name}, zeroinitializer")
    bits = g.op(f"i{LANES}", f"bitcast {bad.type} {bad.name} to i{LANES}")
    g.store(g.op("i64", f"zext i{LANES} {bits.name} to i64"), flag, align=8)


def define_by_taps(g: Function) -> None:
    """The outputs of one tile, tap by tap, `panel` elements from one panel of weights to the next."""
    image, y, x, height, across, channels, b, panel, outputs, wide, used = g.params
    with g.loop(0, TILE * TILE) as q, g.loop(0, used, LANES) as v:
        row, column = g.add(y, g.udiv(q.index, TILE)), g.add(x, g.urem(q.index, TILE))
        weights = g.at(b, "float", g.mul(g.udiv(v.index, PANEL), panel))
        weights = g.at(weights, "float", g.urem(v.index, PANEL))
        total = Value(VECTOR, "zeroinitializer")
        for down, along in np.ndindex(TAPS, TAPS):
            line, place = g.add(row, down), g.add(column, along)
            is_pixel = _both(g, inside(g, line, height), inside(g, place, across))
            count = g.select(is_pixel, channels, 0)
            pixel = g.mul(g.add(g.mul(line, across), place), channels)
            with g.loop(0, count, carried=[total]) as c:
                left = g.load("float", g.at(image, "float", g.add(pixel, c.index)), align=4)
                k = g.add(g.mul(c.index, TAPS * TAPS), down * TAPS + along)
                right = g.load(VECTOR, g.at(weights, "float", g.mul(k, PANEL)), align=4)
                c.next(_fma(g, g.splat(left, LANES), right, c.carried[0]))
            (total,) = c.results
        g.store(total, g.at(outputs, "float", g.add(g.mul(q.index, wide), v.index)), align=4)
