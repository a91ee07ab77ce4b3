"""The Search family: where values would go in sorted rows, by halving, LANES values at a time.

A search of n elements takes the same steps whatever it finds, so the lanes of a vector stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat_int
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from .spec import Search, accesses

BLOCK = 1024  # values in a tile


def emit(f: Function, spec: Search, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Search; see `abi.Generator`. The one schedule is "lanes"."""
    check_schedule("search", schedule, ["lanes"])
    search = _Search(f, spec, sizes)
    with f.loop(f.params[3], f.params[4]) as tile:
        search.emit(tile.index)
    cost = ((BLOCK * 100, ()),)
    return Generated(Work(((spec.rows, 1), (spec.count, BLOCK)), (), cost), "lanes")


class _Search:
    """Emits tiles; construct it in the entry block."""

    def __init__(self, f: Function, spec: Search, sizes: Sequence[Int]) -> None:
        touched = accesses(spec)
        self.f, self.dtype, self.right = f, spec.buffers[touched.values.buffer].dtype, spec.right
        self.length, self.count = resolve(spec.length, sizes), resolve(spec.count, sizes)
        self.sorted, self.values, self.places = (Operand.of(f, spec, access, sizes) for access in touched)
        self.n_steps = self._steps()

    def _steps(self) -> Int:
        """Return how often the length can be halved, rounding up, until 1 is left."""
        f, below = self.f, self.f.sub(self.length, 1)
        if isinstance(below, int):
            return max(below, 0).bit_length()
        positive = f.i64(f.maximum(below, 0))
        zeros = f.call("i64", "llvm.ctlz.i64", positive, Value("i1", "false"))
        return f.sub(64, zeros)

    def emit(self, tile: Int) -> None:
        """Emit the tile of that number: a block of one row's values."""
        f = self.f
        n_blocks = f.ceildiv(self.count, BLOCK)
        row, block = f.udiv(tile, n_blocks), f.urem(tile, n_blocks)
        begin = f.mul(block, BLOCK)
        part = Range(begin, f.minimum(BLOCK, f.sub(self.count, begin)))
        values, out, first = self.values.at([row]), self.places.at([row]), self.sorted.offset([row])

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            value = Accessor(f, values, self.dtype, mask).load(Access(index, 1))
            place = self._find(value, first)
            Accessor(f, out, "i64", mask).store(Access(index, 1), place)
            return state

        strip(f, part, 1, chunk)

    def _find(self, value: Vec, first: Int) -> Vec:
        """Return how many elements of the row at `first` come before the values."""
        f = self.f
        zero = splat_int(f, 0)
        with f.loop(0, self.n_steps, 1, [zero, f.i64(self.length)]) as loop:
            low, length = Vec(f, loop.carried[0]), loop.carried[1]
            half = f.udiv(length, 2)
            middle = low + Vec(f, splat_int(f, half))
            before = self._is_before(first, middle + -1, value)
            loop.next(select(before, middle, low).value, f.i64(f.sub(length, half)))
        low = Vec(f, loop.results[0])
        some = Vec(f, f.splat(f.less(0, self.length), LANES))
        return select(some & self._is_before(first, low, value, some.value), low + 1, low)

    def _is_before(self, first: Int, place: Vec, value: Vec, mask: Value | None = None) -> Vec:
        """Whether elements of the row come before the values, as PyTorch has it with NaNs."""
        access = Access(first, 0, place)
        element = Accessor(self.f, self.sorted.base, self.dtype, mask).load(access)
        is_signed = DTYPES[self.dtype].kind == "int"
        predicate = "le" if self.right else "lt"
        return element.compare(("s" if is_signed else "u") + predicate, value)
