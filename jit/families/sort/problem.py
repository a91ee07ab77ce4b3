"""The common part of the ways to sort a row: resolved sizes, scratch, and the conversion of elements to
keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...llvm.abi import RT_SCRATCH, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat_int
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.bodies import LANES
from .spec import Sort

FEW = 64  # elements kept sorted while a long row goes by, at most
VALUES_OF_DIGIT = 256
LOW_HALF = (1 << 32) - 1


@dataclass(frozen=True)
class Problem:
    """The first `keep` of rows of `length` elements in order."""

    descending: bool
    dtype: str
    length: Int
    keep: Int

    @property
    def is_wide(self) -> bool:
        """Whether keys have 64 bits, with separate indices."""
        return DTYPES[self.dtype].register in ("double", "i64")

    @property
    def n_digits(self) -> int:
        """The digits of a key."""
        row = DTYPES[self.dtype]
        return row.bytes if self.is_wide or row.kind != "float" else 4

    @property
    def element(self) -> str:
        """The LLVM type by which elements are copied."""
        memory = DTYPES[self.dtype].memory
        return "i16" if memory == "half" else memory

    @property
    def n_counts(self) -> int:
        """The counts of all digits' values."""
        return self.n_digits * VALUES_OF_DIGIT

    @property
    def n_arrays(self) -> int:
        """The arrays of words in scratch, from which and to which they are sorted."""
        return 4 if self.is_wide else 2

    @property
    def fixed_words(self) -> int:
        """The words of scratch beside `length` for each array."""
        return self.n_counts + FEW + (3 + self.n_arrays) * LANES


def problem_of(spec: Sort, sizes: Sequence[Int]) -> Problem:
    """Return the problem of `spec`."""
    return Problem(
        spec.descending, spec.buffers[0].dtype, resolve(spec.length, sizes), resolve(spec.keep, sizes)
    )


@dataclass(frozen=True)
class ScratchLayout:
    """Where a thread's scratch holds what: counts of digits, the first few words, of which the one below is
    0, a chunk of words, and arrays of all words."""

    counts: Value
    few: Value
    chunk: Value
    arrays: Sequence[Value]

    @staticmethod
    def of(f: Function, problem: Problem) -> ScratchLayout:
        """Return the layout for `problem`; call in the entry block."""
        counts = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        few = f.at(counts, "i64", problem.n_counts + LANES)
        chunk = f.at(few, "i64", FEW + LANES)
        padded = f.add(problem.length, LANES)  # a chunk is stored whole
        first = f.at(chunk, "i64", LANES)
        arrays = [f.at(first, "i64", f.mul(padded, i)) for i in range(problem.n_arrays)]
        return ScratchLayout(counts, few, chunk, arrays)


@dataclass(frozen=True)
class Row:
    """A row at `x`, and where its results go."""

    f: Function
    problem: Problem
    scratch: ScratchLayout
    x: Value
    values: Value
    indices: Value

    def keys(self, index: Int, mask: Value | None) -> Vec:
        """Return the words (wide: the keys) of LANES elements; those that are not there are greatest."""
        f, problem = self.f, self.problem
        x = Accessor(f, self.x, problem.dtype, mask).load(Access(index, 1))
        key = key_of(x, problem.dtype, problem.descending)
        if not problem.is_wide:
            key = (key.convert("zext", "i64") << 32) | Vec(f, splat_int(f, index, step=1))
        return key if mask is None else select(Vec(f, mask), key, -1)

    def put(self, rank: Int, place: Int) -> None:
        """Write element number `place` of the row as number `rank` of the result."""
        f, element = self.f, self.problem.element
        value = f.load(element, f.at(self.x, element, place))
        f.store(value, f.at(self.values, element, rank))
        f.store(f.i64(place), f.at(self.indices, "i64", rank), align=8)

    def put_words(self, words: Value, count: Int) -> None:
        """Write the elements that the first words (wide: places) name."""
        f = self.f
        with f.loop(0, count) as loop:
            word = f.load("i64", f.at(words, "i64", loop.index), align=8)
            if not self.problem.is_wide:
                word = f.op("i64", f"and i64 {word.name}, {LOW_HALF}")
            self.put(loop.index, word)


def key_of(x: Vec, dtype: str, descending: bool) -> Vec:
    """Return unsigned keys (i32, of wide dtypes i64) in the order of the registers `x`."""
    kind, width = DTYPES[dtype].kind, DTYPES[dtype].bytes * 8
    if kind == "float":
        bits = select(x.eq(0.0), 0, x.bits())
        width = 64 if bits.element == "i64" else 32
        key = bits ^ ((bits >> (width - 1)) | -(1 << (width - 1)))
        key = select(x.isnan(), -1, key)
    else:
        key = x ^ -(1 << (width - 1)) if kind == "int" else x
    key = ~key if descending else key
    return key if key.element in ("i64", "i32") else key.convert("zext", "i32")
