"""Reductions over a row, in one order for every tier.

If lanes are along the row (`rows`), a row is divided into blocks of CHAIN elements for each lane of each
accumulator. In a block, element j goes to lane j % 16 of accumulator (j // 16) % n, in ascending order from
the neutral element; four accumulators combine as (a0 + a2) + (a1 + a3), two as a0 + a1. Sums and products of
floats continue from block to block in f64, lane by lane; then the lanes combine by halves (l + (l + 8), + 4,
+ 2, + 1). The result is rounded once, or not at all if the instruction's dtype is f64. f16 and bf16 are added
in f32. A sum of `mul`s of f32 or f64 adds the products unrounded, by fused multiply-adds. The order depends
neither on threads nor on tiles or unrolling.

If lanes are columns (`columns`), each column sums groups of GROUP elements in ascending order, each from the
neutral element, the groups of a block of BLOCK elements likewise, and then the blocks, in f64 for floats.

Sums of f32 with an intermediate overflow are recomputed from elements times a power of two (`SCALES`), which
changes only the range; so are sums of products whose result is f64, and sums of squares also if they are so
small that squares were below the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ...llvm.conversion import cast
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Value
from ...llvm.vector import Vec, fma, literal, select
from ...loops.bodies import LANES, splat
from ...math.table import apply
from ...spec import Body, Instr

MAX_ACCUMULATORS = 4
CHAIN = 16  # elements that one lane of an accumulator adds in f32; eager's sums have equally long chains
GROUP, BLOCK = 4, 64  # elements of a column
# Factors of the elements, by attempt: unscaled; after overflow of a sum of f32; after possible underflow of
# squares, which is assumed for sums below TINY.
SCALES = (1.0, 2.0**-80, 2.0**100)
TINY = 2.0**-80
AT_MOST_ONE = ("exp_nonpositive", "sigmoid", "tanh", "erf")


@dataclass(frozen=True)
class Reduction:
    """How one `reduce.*` combines (an op of `math.OPS`), and its neutral element: a number, "lowest" or
    "highest"."""

    op: str
    neutral: int | str

    def start(self, dtype: str) -> int | float | str | bool:
        """Return the neutral element of `dtype`."""
        row = DTYPES[dtype]
        if isinstance(self.neutral, int):
            return bool(self.neutral) if row.kind == "bool" else self.neutral
        highest = self.neutral == "highest"
        if row.kind == "float":
            return "inf" if highest else "-inf"
        if row.kind == "bool":
            return highest
        bits = 8 * row.bytes - (row.kind == "int")
        return 2**bits - 1 if highest else -(2**bits) * (row.kind == "int")


# max and min are NaN if an element is NaN, as in torch.amax and amin.
REDUCTIONS: dict[str, Reduction] = {
    "reduce.sum": Reduction("add", 0),
    "reduce.prod": Reduction("mul", 1),
    "reduce.max": Reduction("maximum", "lowest"),
    "reduce.min": Reduction("minimum", "highest"),
    "reduce.any": Reduction("or", 0),
    "reduce.all": Reduction("and", 1),
}


class Accumulator:
    """The steps of one reduce instruction from elements to blocks, to totals and to its result.

    `start`, `total`: the neutral elements of a block and of all blocks, in every lane. `rounds`: whether the
    result depends on the order. `factors`: of a sum of products, the ids of both factors. `is_scaled`:
    whether it is recomputed with other factors of SCALES if it leaves f32's range; `is_square`: also if
    squares may have left it.
    """

    def __init__(self, f: Function, instr: Instr, body: Body, varies: bool) -> None:
        self.f = f
        self.reduction = REDUCTIONS[instr.op]
        (self.argument,) = instr.args
        argument = body[self.argument]
        self.result_dtype = instr.dtype
        self.dtype = "f32" if argument.dtype in ("f16", "bf16") else argument.dtype
        is_float, adds = DTYPES[self.dtype].kind == "float", self.reduction.op == "add"
        self.rounds = is_float and self.reduction.op in ("add", "mul")
        is_product = adds and argument.op == "mul" and argument.dtype in ("f32", "f64") and varies
        self.factors = argument.args if is_product else None
        self.total_dtype = "f64" if self.rounds else self.dtype
        wants_range = adds and self.dtype == "f32" and not _is_small(argument, body)
        self.is_scaled = wants_range and (not is_product or self.result_dtype == "f64")
        self.is_square = self.is_scaled and is_product and len(set(argument.args)) == 1
        self.start = splat(f, self.dtype, self.reduction.start(self.dtype))
        self.total = splat(f, self.total_dtype, self.reduction.start(self.total_dtype))

    def combine(self, a: Value, b: Value) -> Value:
        """Combine two accumulators of a block."""
        return apply(self.f, self.reduction.op, self.dtype, a, b)

    def join(self, state: Sequence[Value]) -> Value:
        """Return the combination of the accumulators of a block, independent of which is the first."""
        half = len(state) // 2
        pairs = [self.combine(a, b) for a, b in zip(state[:half], state[half:], strict=True)]
        return pairs[0] if half == 1 else self.combine(*pairs)

    def add(
        self, state: Value, values: Mapping[int, Value], scale: Value | None, mask: Value | None = None
    ) -> Value:
        """Return a block's state after one more element in each lane, times `scale` if given; lanes outside
        `mask` are unchanged. `values`: those of the body."""
        new = self._added(state, values, scale)
        if mask is None:
            return new
        text = f"select {mask.type} {mask.name}, {new.type} {new.name}, {new.type} {state.name}"
        return self.f.op(new.type, text)

    def element(self, values: Mapping[int, Value]) -> Value:
        """Return the state of elements alone: equal to adding them to the neutral element, except for a
        zero's sign."""
        if self.factors is None:
            return values[self.argument]
        a, b = (Vec(self.f, values[i]) for i in self.factors)
        return (a * b).value

    def _added(self, state: Value, values: Mapping[int, Value], scale: Value | None) -> Value:
        factor = Vec(self.f, scale) if scale is not None and self.is_scaled else None
        if self.factors is not None:
            a, b = (Vec(self.f, values[i]) for i in self.factors)
            pair = (a, b) if factor is None else (a * factor, b * factor)
            return fma(*pair, Vec(self.f, state)).value
        value = values[self.argument]
        if factor is None:
            return self.combine(state, value)
        return fma(Vec(self.f, value), factor, Vec(self.f, state)).value

    def fold(self, total: Value, block: Value) -> Value:
        """Return the state of all blocks after one more."""
        return apply(self.f, self.reduction.op, self.total_dtype, total, self.widened(block))

    def widened(self, block: Value) -> Value:
        """Return the state of the first block as that of all blocks."""
        return cast(Vec(self.f, block), self.dtype, self.total_dtype).value

    def by_halves(self, total: Value) -> Value:
        """Return the reduction of all lanes, as a vector of one."""
        lanes = LANES
        while lanes > 1:
            half = lanes // 2
            low, high = (_lanes(self.f, total, first, half, lanes) for first in (0, half))
            total, lanes = apply(self.f, self.reduction.op, self.total_dtype, low, high), half
        return total

    def finish(self, total: Value) -> Value:
        """Return `total` in the result's dtype."""
        return cast(Vec(self.f, total), self.total_dtype, self.result_dtype).value


def repaired(
    f: Function,
    accumulators: Sequence[Accumulator],
    totals: Sequence[Value],
    mask: Value | None,
    again: Callable[[Value], Sequence[Value]],
) -> list[Value]:
    """Return the totals of a pass, recomputed if they left f32's range in a lane of `mask`.

    `again(scale)` emits the pass with its elements times `scale` and returns its totals. Each lane keeps its
    value unless it needs another attempt, so no lane's result depends on another's.
    """
    wants, attempt = _next(f, Value("i64", "0"), accumulators, totals, mask)
    wants = f.call("i1", "llvm.expect.i1", wants, Value("i1", "false"))
    with f.loop(0, f.op("i64", f"zext i1 {wants.name} to i64"), 1, totals) as once:
        with f.repeat([attempt, *once.carried]) as loop:
            number, *before = loop.carried
            factors = _Factors(f, number, any(a.is_square for a in accumulators))
            found = again(f.splat(factors.power("float", 1), LANES))
            better = [
                _better(factors, a, old, new) for a, old, new in zip(accumulators, before, found, strict=True)
            ]
            loop.again, following = _next(f, number, accumulators, better, mask)
            loop.next(following, *better)
        once.next(*loop.results[1:])
    return once.results


@dataclass(frozen=True)
class _Factors:
    """The factor of an attempt after the first (`number`: an i64); with squares there are two."""

    f: Function
    number: Value
    has_squares: bool

    @property
    def is_last(self) -> Value:
        return self.f.op("i1", f"icmp eq i64 {self.number.name}, 2")

    def power(self, element: str, exponent: int) -> Value:
        """Return a power of the factor as a number of LLVM type `element`."""
        second, last = (literal(element, factor**exponent) for factor in SCALES[1:])
        if not self.has_squares:
            return Value(element, second)
        return self.f.op(element, f"select i1 {self.is_last.name}, {element} {last}, {element} {second}")


def _better(factors: _Factors, accumulator: Accumulator, old: Value, total: Value) -> Value:
    """Return an attempt's total in the lanes that need it, the old one in others."""
    if not accumulator.is_scaled:
        return total
    f, before, new = factors.f, Vec(factors.f, old), Vec(factors.f, total)
    unscaled = factors.power("double", -1 if accumulator.factors is None else -2)
    new = new * Vec(f, f.splat(unscaled, new.lanes))
    wanted = _overflowed(before)
    if factors.has_squares:
        is_last = Vec(f, f.splat(factors.is_last, new.lanes))
        tiny = before.lt(TINY) if accumulator.is_square else is_last ^ is_last
        wanted = select(is_last, tiny, wanted)
    return select(wanted, new, before).value


def _next(
    f: Function,
    number: Value,
    accumulators: Sequence[Accumulator],
    totals: Sequence[Value],
    mask: Value | None,
) -> tuple[Value, Value]:
    """Return whether there must be another attempt after this `number`, and its number."""
    scaled = [(a, Vec(f, t)) for a, t in zip(accumulators, totals, strict=True) if a.is_scaled]
    is_first = f.op("i1", f"icmp eq i64 {number.name}, 0")
    overflow = _both(f, is_first, _any([_overflowed(t) for _, t in scaled], mask))
    squares = [t.lt(TINY) for a, t in scaled if a.is_square]
    if not squares:
        return overflow, Value("i64", "1")
    tiny = _both(f, f.op("i1", f"icmp ne i64 {number.name}, 2"), _any(squares, mask))
    wants = f.op("i1", f"or i1 {overflow.name}, {tiny.name}")
    return wants, f.op("i64", f"select i1 {overflow.name}, i64 1, i64 2")


def _any(flags: Sequence[Vec], mask: Value | None) -> Value:
    """Return whether a flag holds in a lane of `mask`."""
    found = flags[0]
    for flag in flags[1:]:
        found = found | flag
    return (found if mask is None else found & Vec(found.f, mask)).any()


def _is_small(instr: Instr, body: Body) -> bool:
    """Whether elements are known to be so small that a block's sum cannot overflow."""
    source = body[instr.args[0]] if instr.op == "cast" else instr
    return source.op in AT_MOST_ONE or source.dtype not in ("f32", "f64", "bf16")


def _overflowed(total: Vec) -> Vec:
    """Return where a total is an infinity or a NaN."""
    return total.abs().compare("ueq", inf)


def _both(f: Function, a: Value, b: Value) -> Value:
    return f.op("i1", f"and i1 {a.name}, {b.name}")


def _lanes(f: Function, value: Value, first: int, count: int, lanes: int) -> Value:
    """Return lanes first .. first + count - 1 of a vector of `lanes`."""
    element = value.type.split(" x ")[1][:-1]
    picks = ", ".join(f"i32 {first + i}" for i in range(count))
    return f.op(
        vector(element, count),
        f"shufflevector {value.type} {value.name}, {value.type} poison, <{count} x i32> <{picks}>",
    )
