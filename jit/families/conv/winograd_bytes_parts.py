"""The transforms of Winograd's convolution of bytes (`winograd_bytes`), in integers.

4 outputs x 6 pixels under 3 taps are 4 of the coefficients of a product of polynomials; it is evaluated at
the points 0, 1, -1, infinity, 2 and -1/2. At most two of them are equal modulo 2, so outputs are divided by
at most 2 along an axis, and by 15, which has an inverse modulo 2^32: from sums modulo 2^32, the outputs are
exact below 2^29. Pixels of 0 to 255 have points of at most 24,990, and weights, which are scaled by the
divisors of the points, of at most 28,800: all are 16-bit integers.

Of four adjacent bytes the even ones and the odd ones are pairs, which a step multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...llvm.dtypes import vector
from ...llvm.function import Function, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES
from ..matmul.byte_dots import INTEGERS
from ..matmul.schedules import PANEL
from .winograd_parts import GAP, inside, line_of, pixels_of_line
from .winograd_points import SIDE, TAPS, TILE

INVERSE, SHIFT = pow(15 * 15, -1, 1 << 32) - (1 << 32), 2  # of outputs times 30 * 30
PAIRS = 2  # of a quad
LEAST_CHANNELS = 2 * LANES  # that are taken to points at a time
LINES = 2  # of points to which weights are taken at a time
EDGE, EDGE_SIDE = 2, 4  # outputs along an axis of a tile at the edge that has no more, and their points
EDGE_APART = TILE - 1  # from one of its outputs to the next


def pixels_along(d: Sequence[Vec]) -> list[Vec]:
    """Return the points of 6 pixels along an axis."""
    apart = [d[i + 2] - d[i] for i in range(4)]
    twice = [x + x for x in apart]
    even = [twice[i] - (d[i + 1] + d[i + 1] + d[i + 1]) for i in range(4)]  # of 2 x^2 - 3 x - 2
    return [
        even[2] - even[0],
        even[2] + even[1],
        even[2] - even[1],
        even[3] - even[1],
        twice[2] + apart[1],
        apart[2] - twice[1],
    ]


def pixels_of_edge_along(d: Sequence[Vec]) -> list[Vec]:
    """Return the first EDGE_SIDE points of as many pixels along an axis for a tile with 2 outputs, scaled
    such that with the other points 0 these outputs are the first and the last of 4."""
    total, less = d[1] + d[2], d[2] - d[1]
    first, last = d[0] - d[2], d[3] - d[1]
    return [first + first, 0 - (total + total + total), less + less + less, last + last]


def taps_along(g: Sequence[Vec]) -> list[Vec]:
    """Return the points of 3 weights along an axis, times 30 over each point's divisor."""
    ends, twice = g[0] + g[2], g[1] + g[1]
    return [
        g[0] * 15,
        (ends + g[1]) * -5,
        (ends - g[1]) * 5,
        g[2] * 15,
        g[0] + twice + (g[2] << 2),
        twice - g[2] - (g[0] << 2),
    ]


def outputs_along(m: Sequence[Vec]) -> list[Vec]:
    """Return 30 times the outputs of 6 points along an axis."""
    plus, minus = m[1] + m[2], m[1] - m[2]
    less, more = m[4] - (m[5] + m[5]), m[4] + m[4] + m[5]
    return [
        m[0] + plus + (m[4] + (m[5] << 3)),
        minus + (less + less),
        plus + (more + more),
        minus + (m[4] << 3) + (m[3] - m[5]),
    ]


def channels_at_once(channels: int) -> int:
    """Return how many channels are transformed at a time: a vector of pairs, or half of one."""
    return next(n for n in (2 * LEAST_CHANNELS, LEAST_CHANNELS) if channels % n == 0)


def define_bytes_to_points(g: Function, at_once: int, is_low: bool, is_right: bool) -> None:
    """The channels of one tile's window, `at_once` at a time, zeros outside of the image, to their points,
    `apart` steps from one another: steps of the even bytes, then of the odd ones. `is_low`, `is_right`:
    whether the tile has EDGE outputs at most down and along."""
    _, _, x, _, across, channels, _, passed, to, apart = g.params
    (down, to_down), (along, to_along) = map(_axis, (is_low, is_right))
    kind, points, step = vector("i16", at_once // 2), SIDE * SIDE, at_once // 4
    columns = [inside(g, g.add(x, j), across) for j in range(along)]
    with g.loop(0, channels, at_once) as c:
        with g.loop(0, down) as line:
            addresses = pixels_of_line(g, line.index, c.index, columns, "i8")
            given = [Vec(g, g.load(kind, address, align=1)) for address in addresses]
            even = [value.binary("and", 255) for value in given]
            odd = [value.binary("lshr", 8) for value in given]
            for number, pixels in enumerate((even, odd)):
                for j, value in enumerate(to_along(pixels)):
                    place = g.add(g.mul(line.index, SIDE), number * points + j)
                    g.store(value.value, line_of(g, passed, place), align=4)
        with g.loop(0, along) as pixel, g.loop(0, PAIRS) as pair:
            begin = g.add(g.mul(pair.index, points), pixel.index)
            given = [_load(g, kind, line_of(g, passed, g.add(begin, i * SIDE))) for i in range(down)]
            there = g.add(g.udiv(c.index, 2), g.mul(pair.index, step))
            for i, value in enumerate(to_down(given)):
                place = g.mul(g.add(pixel.index, i * SIDE), apart)
                g.store(value.value, g.at(to, "float", g.add(place, there)), align=4)


def _axis(is_edge: bool) -> tuple[int, Callable[[Sequence[Vec]], list[Vec]]]:
    """Return how many pixels a tile reads along an axis, and the transform to as many points."""
    return (EDGE_SIDE, pixels_of_edge_along) if is_edge else (SIDE, pixels_along)


def define_weights_to_points(
    g: Function, quads: int, width: int, vectors: int, at_once: int, first_line: int
) -> None:
    """The weights of `quads` quads of channels and `vectors` vectors of columns to LINES lines of points.

    These are rows of `width` elements in the order of `define_bytes_to_points`. Panels of weights are `apart`
    elements apart.
    """
    b, to, apart = g.params
    kind, block = vector("i16", 2 * LANES), at_once // 4
    with g.loop(0, quads) as q:
        before, at = g.udiv(q.index, block), g.urem(q.index, block)
        step = g.add(g.mul(before, 2 * block), at)
        for v in range(vectors):
            panel, column = divmod(v * LANES, PANEL)
            place = g.add(g.add(g.mul(q.index, PANEL), g.mul(apart, panel)), column)
            first = g.at(b, "float", place)
            found = [_load(g, kind, g.at(first, "float", quads * PANEL * t)) for t in range(TAPS * TAPS)]
            for pair in range(PAIRS):
                signed = [(x if pair else x << 8) >> 8 for x in found]
                down = [taps_along(signed[x::TAPS]) for x in range(TAPS)]
                row = g.add(g.mul(g.add(step, pair * block), width), v * LANES)
                for line in range(LINES):
                    along = taps_along([points[first_line + line] for points in down])
                    for i, value in enumerate(along):
                        after = (line * SIDE + i) * (2 * quads * width + GAP)
                        g.store(value.value, g.at(to, "float", g.add(row, after)), align=4)


def define_points_to_outputs(g: Function) -> None:
    """The sums of one tile, points `apart` elements from one another, to its outputs in i32, `wide` elements
    from one another; `used` columns."""
    sums, apart, passed, outputs, wide, used = g.params
    with g.loop(0, used, LANES) as v:
        with g.loop(0, SIDE) as point:
            places = [g.add(g.mul(g.add(point.index, i * SIDE), apart), v.index) for i in range(SIDE)]
            given = [_load(g, INTEGERS, g.at(sums, "float", place)) for place in places]
            for i, value in enumerate(outputs_along(given)):
                g.store(value.value, line_of(g, passed, g.add(point.index, i * SIDE)), align=4)
        with g.loop(0, TILE) as row:
            first = g.mul(row.index, SIDE)
            given = [_load(g, INTEGERS, line_of(g, passed, g.add(first, j))) for j in range(SIDE)]
            for j, value in enumerate(outputs_along(given)):
                place = g.add(g.mul(g.add(g.mul(row.index, TILE), j), wide), v.index)
                exact = (value * INVERSE).binary("ashr", SHIFT)
                g.store(exact.value, g.at(outputs, "float", place), align=4)


def _load(g: Function, kind: str, address: Value) -> Vec:
    return Vec(g, g.load(kind, address, align=4))
