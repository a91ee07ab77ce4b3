"""Reductions over a row, in one order for every tier.

Where lanes lie along the row (`rows`), element j goes to lane j % 16 of accumulator (j // 16) % 4, in
ascending order from the neutral element; the accumulators combine as (a0 + a1) + (a2 + a3), their lanes by
halves (l + (l + 8), + 4, + 2, + 1). f16 and bf16 accumulate in f32 and round once. The number of threads, of
tiles or the unrolling has no part in it.

Where lanes are columns (`columns`), each column adds up blocks of BLOCK elements in ascending order, each
from the neutral element, and then the blocks' sums, in f64 where they are floats: one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .bodies import LANES, splat
from .conversion import cast, round_to
from .dtypes import DTYPES, vector
from .llvm import Function, Int, Value
from .math import apply
from .vector import Vec

N_ACCUMULATORS = 4
BLOCK = 64


@dataclass(frozen=True)
class Reduction:
    """How one `reduce.*` combines (an op of `math.OPS`), and from what: a number, "lowest" or "highest"."""

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


# max and min give NaN where an element is NaN, as torch.amax and amin do.
REDUCTIONS: dict[str, Reduction] = {
    "reduce.sum": Reduction("add", 0),
    "reduce.prod": Reduction("mul", 1),
    "reduce.max": Reduction("maximum", "lowest"),
    "reduce.min": Reduction("minimum", "highest"),
    "reduce.any": Reduction("or", 0),
    "reduce.all": Reduction("and", 1),
}


class Accumulators:
    """The accumulators of one reduce instruction, as the carried state of a `strip`.

    The next chunk always goes to the first one, which then moves to the end: one code for every chunk.
    """

    def __init__(self, f: Function, op: str, dtype: str) -> None:
        self.f = f
        self.reduction = REDUCTIONS[op]
        self.result_dtype = dtype
        self.dtype = "f32" if dtype in ("f16", "bf16") else dtype
        self.start = [splat(f, self.dtype, self.reduction.start(dtype))] * N_ACCUMULATORS

    def _combine(self, a: Value, b: Value) -> Value:
        return apply(self.f, self.reduction.op, self.dtype, a, b)

    def add(self, state: Sequence[Value], value: Value, mask: Value | None) -> list[Value]:
        """Return the state after one more chunk; lanes outside `mask` stay."""
        old = state[0]
        new = self._combine(old, value)
        if mask is not None:
            new = self.f.op(
                new.type, f"select {mask.type} {mask.name}, {new.type} {new.name}, {new.type} {old.name}"
            )
        return [*state[1:], new]

    def by_lane(self, state: Sequence[Value], n_chunks: Int) -> Value:
        """Return the accumulators' reduction, still one of each lane."""
        a = self._rotated_back(list(state), n_chunks)
        return self._combine(self._combine(a[0], a[1]), self._combine(a[2], a[3]))

    def finish(self, state: Sequence[Value], n_chunks: Int) -> Value:
        """Return the reduction of the row, in every lane."""
        f = self.f
        total = self.by_lane(state, n_chunks)
        lanes = LANES
        while lanes > 1:
            half = lanes // 2
            low, high = (_lanes(f, total, first, half, lanes) for first in (0, half))
            total, lanes = self._combine(low, high), half
        total = round_to(Vec(f, total), self.result_dtype).value
        scalar = f.op(DTYPES[self.dtype].register, f"extractelement {total.type} {total.name}, i32 0")
        return f.splat(scalar, LANES)

    def _rotated_back(self, state: list[Value], n_chunks: Int) -> list[Value]:
        """Undo the n_chunks % 4 moves to the end."""
        if isinstance(n_chunks, int):
            moves = -n_chunks % N_ACCUMULATORS
            return state[moves:] + state[:moves]
        f = self.f
        negative = f.i64(f.sub(0, n_chunks))
        for move in (1, 2):
            bit = f.op("i64", f"and i64 {negative.name}, {move}")
            wanted = f.op("i1", f"icmp ne i64 {bit.name}, 0")
            moved = state[move:] + state[:move]
            state = [
                f.op(a.type, f"select i1 {wanted.name}, {b.type} {b.name}, {a.type} {a.name}")
                for a, b in zip(state, moved, strict=True)
            ]
        return state


class ColumnAccumulator:
    """The accumulator of one reduce instruction in each of LANES columns: of a block, and of all blocks.

    `start`, `total`: the neutral elements of both.
    """

    def __init__(self, f: Function, op: str, dtype: str) -> None:
        self.f = f
        self.reduction = REDUCTIONS[op]
        self.result_dtype = dtype
        self.dtype = "f32" if dtype in ("f16", "bf16") else dtype
        rounds = self.reduction.op in ("add", "mul") and DTYPES[dtype].kind == "float"
        self.total_dtype = "f64" if rounds else self.dtype
        self.start = splat(f, self.dtype, self.reduction.start(dtype))
        self.total = splat(f, self.total_dtype, self.reduction.start(self.total_dtype))

    def add(self, state: Value, value: Value) -> Value:
        """Return the block's state after one more row."""
        return apply(self.f, self.reduction.op, self.dtype, state, value)

    def fold(self, total: Value, block: Value) -> Value:
        """Return the state of all blocks after one more of them."""
        wide = cast(Vec(self.f, block), self.dtype, self.total_dtype).value
        return apply(self.f, self.reduction.op, self.total_dtype, total, wide)

    def finish(self, total: Value) -> Value:
        """Return the reduction of each column."""
        return cast(Vec(self.f, total), self.total_dtype, self.result_dtype).value


def _lanes(f: Function, value: Value, first: int, count: int, lanes: int) -> Value:
    """Return lanes first .. first + count - 1 of a vector of `lanes`."""
    element = value.type.split(" x ")[1][:-1]
    picks = ", ".join(f"i32 {first + i}" for i in range(count))
    return f.op(
        vector(element, count),
        f"shufflevector {value.type} {value.name}, {value.type} poison, <{count} x i32> <{picks}>",
    )
