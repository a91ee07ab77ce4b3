"""Few rows that are all zeros against a weight of finite numbers, if a spec allows such rows: every sum is
+0, as by fused multiply-adds from 0, and the weight is not read.
"""

from __future__ import annotations

from ...llvm.access import Access, Accessor
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from . import gemv
from .arithmetic import fill
from .problem import Problem
from .product import Product
from .spec import Matmul

UNROLL = 4  # vectors of a row that are checked together
BITS = f"<{LANES} x i32>"


def fits(problem: Problem) -> bool:
    """Whether a kernel of `problem` may have such rows."""
    spec = problem.spec
    may_be = isinstance(spec, Matmul) and spec.skips_zeros and not spec.product.prologue
    return may_be and gemv.fits(problem)


def are_zeros(product: Product) -> Value:
    """Return whether there are few rows whose elements are all 0 (i1); many rows are not checked."""
    f, problem, lhs = product.emission.f, product.emission.problem, product.lhs
    is_few = f.is_less(problem.m, gemv.max_rows(problem) + 1)
    rows = f.select(is_few, problem.m, 0) if isinstance(is_few, Value) else problem.m
    first = lhs.at([], 0)
    with f.loop(0, rows, 1, [Value(BITS, "zeroinitializer")]) as row:
        address = f.at(first, "float", f.mul(row.index, lhs.stride))
        row.next(_bits(f, address, problem.k, row.carried))
    (bits,) = row.results
    magnitudes = Vec(f, bits) << 1  # -0 is a zero as well
    any_bit = f.call("i32", f"llvm.vector.reduce.or.v{LANES}i32", magnitudes.value)
    found = f.op("i1", f"icmp eq i32 {any_bit.name}, 0")
    return f.op("i1", f"and i1 {found.name}, {is_few.name}") if isinstance(is_few, Value) else found


def _bits(f: Function, address: Value, k: Int, state: State) -> Value:
    """Return the bits of `state` and those of the `k` elements of a row, by lane."""

    def chunk(index: Int, mask: Value | None, state: State) -> State:
        row = Accessor(f, address, "f32", mask).load(Access(index, 1))
        return [(Vec(f, state[0]) | row.bits()).value]

    return strip(f, Range(0, k), UNROLL, chunk, state)[0]


def multiply(product: Product, begin: Value) -> None:
    """Emit the tiles of the kernel from `begin` on, with all sums 0."""
    f, problem, sums = product.emission.f, product.emission.problem, product.emission.scratch.sums
    fill(f, sums, f.mul(problem.m, problem.width), 0.0)
    epilogue = product.emission.epilogue
    product.each_tile(begin, None, lambda tile: epilogue.emit(tile.at, sums))
