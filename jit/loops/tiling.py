"""Sharing a nest's iterations out to tiles, and finding a tile's part of every loop from its number.

A tile moves about TILE_BYTES: enough to hide the cost of starting it, little enough to share among threads
and to stay in the first-level cache. Tiles depend on sizes only, never on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd, lcm

from ..llvm.abi import resolve
from ..llvm.function import Function, Int, Value, multiple_of
from ..spec import Dim, Size, Terms
from .bodies import LANES
from .loops import Loops

TILE_BYTES = 32 * 1024
CROSS_TILE = 64  # iterations of the transposed loop and of the last loop in a tile (16 KB of f32 read)
ROW_GUESS = 512  # iterations of a row whose length is known only at run time
WHOLE = 0  # a divisor: all iterations are in each tile

Divisors = tuple[int, ...]  # of the factors of one loop


@dataclass(frozen=True)
class Range:
    """Iterations begin .. begin + count - 1 of a loop; a count unknown now is a multiple of `multiple`."""

    begin: Int
    count: Int
    multiple: int = 1

    @property
    def known(self) -> int:
        """A known divisor of the count (0: of everything)."""
        count = multiple_of(self.count)
        return count if isinstance(self.count, int) else lcm(self.multiple, count)

    def is_multiple(self, step: int) -> bool:
        """Whether the count is known to be a multiple of `step`."""
        return self.known % step == 0

    def end(self, f: Function) -> Int:
        """Return begin + count."""
        return f.add(self.begin, self.count)


def divide(factors: Sequence[Size], budget: int, multiple: int = 1) -> tuple[Divisors, int]:
    """Return divisors that put at most about `budget` (>= 1) iterations of a loop into a tile, and the
    remaining budget.

    Inner factors are whole as long as they fit, one is split (evenly, into multiples of `multiple` if it is
    the innermost), the outer ones have a tile for each value. The remaining budget is 1 once a factor was
    split.
    """
    divisors: list[int] = []
    for i, size in enumerate(reversed(factors)):
        if isinstance(size, int) and size <= budget:
            divisors.append(WHOLE)
            budget //= max(size, 1)
            continue
        divisor = budget
        if isinstance(size, int):
            divisor = -(-size // -(-size // budget))
        divisors.append(-(-divisor // multiple) * multiple if i == 0 else divisor)
        budget = 1
    return tuple(reversed(divisors)), budget


def plan(
    loops: Loops,
    element_bytes: int,
    multiple: int,
    row: bool,
    tile_bytes: int = TILE_BYTES,
    columns: int = 1,
    cross: int = CROSS_TILE,
) -> list[Divisors]:
    """Return each loop's divisors for `element_bytes` of traffic per iteration of the innermost loop.

    `row`: the last loop is a row, whole in every tile. `multiple`: the divisor of the innermost factor's
    share; `columns`: the same for the loop before a row. `tile_bytes`: the traffic of a tile. `cross`:
    iterations of both loops in a tile where an access crosses the last loop.
    """
    transposed = None if row else transposed_loop(loops)
    if transposed is not None:
        return _transposed_plan(loops, transposed, multiple, cross)
    budget = max(tile_bytes // max(element_bytes, 1), multiple)
    plans: list[Divisors] = []
    for loop in reversed(range(len(loops.domain))):
        if row and not plans:
            length = loops.domain[loop]
            plans.append((WHOLE,) * len(loops.factors[loop]))
            budget = max(columns, budget // max(length if isinstance(length, int) else ROW_GUESS, 1))
            continue
        share = {0: multiple, 1: columns if row else 1}.get(len(plans), 1)
        divisors, budget = divide(loops.factors[loop], budget, share)
        plans.append(divisors)
    return plans[::-1]


def _transposed_plan(loops: Loops, transposed: int, multiple: int, cross: int) -> list[Divisors]:
    """Return the divisors where an access crosses the last loop, as in a transposition.

    A tile is a block of both loops: each cache line that it touches is used up before it leaves the cache.
    What one of them is too short for goes to the other, then to the loops around them.
    """
    last = len(loops.domain) - 1
    length = loops.domain[transposed]
    spare = cross // max(length, 1) if isinstance(length, int) else 1
    plans: dict[int, Divisors] = {}
    plans[last], left = divide(loops.factors[last], cross * max(spare, 1), multiple)
    plans[transposed], left = divide(loops.factors[transposed], max(cross * left, 1), LANES)
    for loop in reversed(range(last)):
        if loop != transposed:
            plans[loop], left = divide(loops.factors[loop], max(left, 1))
    return [plans[loop] for loop in range(last + 1)]


def transposed_loop(loops: Loops) -> int | None:
    """Return the loop along which a buffer is contiguous that the last loop strides through, or None."""
    last = len(loops.domain) - 1
    for instr in loops.body:
        if len(instr.index) > 1 and any(x.loop == last for x in instr.index[:-1]):
            loop = instr.index[-1].loop
            if loop is not None and loop != last:
                return loop
    return None


def tiles_of(loops: Loops, plans: Sequence[Divisors]) -> tuple[tuple[Size, int], ...]:
    """Return the code object's `tiles`."""
    pairs = [
        (size, divisor)
        for factors, divisors in zip(loops.factors, plans, strict=True)
        for size, divisor in zip(factors, divisors, strict=True)
        if divisor != WHOLE
    ]
    return tuple(pairs)


def tile_cost(loops: Loops, plans: Sequence[Divisors], weight: int) -> Terms:
    """Return the code object's `cost` for `weight` per iteration of the innermost loop."""
    dims: list[Size] = []
    for factors, divisors in zip(loops.factors, plans, strict=True):
        for size, divisor in zip(factors, divisors, strict=True):
            if divisor != WHOLE:
                weight *= divisor
            elif isinstance(size, Dim):
                dims.append(size)
            else:
                weight *= size
    return ((weight, tuple(dims)),)


def count_tiles(f: Function, loops: Loops, plans: Sequence[Divisors]) -> Int:
    """Return the number of tiles."""
    count: Int = 1
    for size, divisor in tiles_of(loops, plans):
        count = f.mul(count, f.ceildiv(resolve(size, loops.sizes), divisor))
    return count


@contextmanager
def shared(
    f: Function, loops: Loops, plans: Sequence[Divisors], begin: Int, end: Int
) -> Iterator[list[Range]]:
    """Emit the decoding of a share, tiles begin .. end - 1; yield its range of every loop.

    If only one factor is split, the tiles of a share are adjacent and are done as one. Otherwise the code
    inside runs once for each tile.
    """
    pairs = tiles_of(loops, plans)
    if not pairs:
        with f.when(f.less(begin, end)):
            yield _ranges(f, loops, plans, [])
    elif len(pairs) == 1:
        extent, divisor = resolve(pairs[0][0], loops.sizes), pairs[0][1]
        first = f.mul(begin, divisor)
        count = f.sub(f.minimum(f.mul(end, divisor), extent), first)
        multiple = gcd(divisor, multiple_of(extent))
        yield _ranges(f, loops, plans, [Range(first, count, multiple)])
    else:
        with f.loop(begin, end) as tile:
            yield _ranges(f, loops, plans, _decoded(f, loops, pairs, tile.index))


def _decoded(f: Function, loops: Loops, pairs: Sequence[tuple[Size, int]], tile: Value) -> list[Range]:
    """Return each split factor's range in tile number `tile`."""
    extents = [resolve(size, loops.sizes) for size, _ in pairs]
    divisors = [divisor for _, divisor in pairs]
    counts = [f.ceildiv(extent, divisor) for extent, divisor in zip(extents, divisors, strict=True)]
    numbers = f.unravel(tile, counts[1:]) if pairs else []
    return [_share(f, *of_pair) for of_pair in zip(numbers, extents, divisors, strict=True)]


def _share(f: Function, number: Int, extent: Int, divisor: int) -> Range:
    """Return part `number` of `extent` iterations, `divisor` to each but the last."""
    begin = f.mul(number, divisor)
    if multiple_of(extent) % divisor == 0:
        return Range(begin, divisor)
    return Range(begin, f.minimum(divisor, f.sub(extent, begin)), gcd(divisor, multiple_of(extent)))


def _ranges(f: Function, loops: Loops, plans: Sequence[Divisors], shares: Sequence[Range]) -> list[Range]:
    """Return every loop's range, `shares` being those of the split factors."""
    found = iter(shares)
    result = []
    for factors, divisors in zip(loops.factors, plans, strict=True):
        part = Range(0, 1)
        for size, divisor in zip(factors, divisors, strict=True):
            extent = resolve(size, loops.sizes)
            inner = Range(0, extent) if divisor == WHOLE else next(found)
            begin, count = f.add(f.mul(part.begin, extent), inner.begin), f.mul(part.count, inner.count)
            part = Range(begin, count, part.multiple * inner.known)
        result.append(part)
    return result
