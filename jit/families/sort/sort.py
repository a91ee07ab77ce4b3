"""The Sort family: the first elements of every row in order, with their places, equal ones in theirs.

An element becomes an unsigned key that orders as PyTorch does (a NaN is above all, -0 equals 0; all bits
turned for a descending order). A stable order is one order, so the way to it is free: a row of at most SHORT
elements counts for each how many come before it; the first few of a long row are kept sorted while all go by;
else digits of 8 bits are sorted from the lowest up, those that are equal in all keys left out. Keys of up to
32 bits travel in one word with the element's place, those of 64 bits beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule
from ...llvm.constants import splat_int
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ..family import Variant
from .problem import FEW, VALUES_OF_DIGIT, Problem, Row, ScratchLayout, problem_of
from .spec import Sort, accesses

SHORT = 64  # elements of a row that are ranked one against all
FEW_OF = 4  # times FEW: in longer rows the first FEW are kept sorted
WORD = 8  # bytes
WORDS = f"<{LANES} x i64>"


@dataclass(frozen=True)
class RowVariant(Variant[Problem, Callable[[Row], None]]):
    """A way to sort a row. `takes(f, problem)`: whether it is for rows of these sizes."""

    takes: Callable[[Function, Problem], bool | Value] = lambda f, problem: True


def emit(f: Function, spec: Sort, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Sort; see `abi.Generator`. The one schedule is "rows"."""
    check_schedule("sort", schedule, ["rows"])
    problem = problem_of(spec, sizes)
    touched = accesses(spec)
    operands = [Operand.of(f, spec, access, sizes) for access in (touched.x, touched.values, touched.indices)]
    scratch = ScratchLayout.of(f, problem)
    with f.loop(f.params[3], f.params[4]) as row:
        _emit_row(Row(f, problem, scratch, *(operand.at([row.index]) for operand in operands)))
    terms = ((WORD * problem.n_arrays, (spec.length,)), (WORD * problem.fixed_words, ()))
    cost = (WORD * (problem.n_digits + 1), (spec.length,))
    return Generated(Work(((spec.rows, 1),), terms, (cost,)), "rows")


def _emit_row(row: Row) -> None:
    """Emit a row by the first of the fitting VARIANTS that takes it."""
    before: list[tuple[bool | Value, bool]] = []
    for variant in (v for v in VARIANTS if v.fits(row.problem)):
        takes = variant.takes(row.f, row.problem)

        def run(variant: RowVariant = variant) -> None:
            row.f.takes(variant.name)
            variant.emit(row)

        _when(row.f, [*before, (takes, True)], run)
        before.append((takes, False))


# Conditions that are known or not -------------------------------------------------------------------------


def _for_all(problem: Problem) -> bool:
    return True


def _is_short(f: Function, problem: Problem) -> bool | Value:
    return _at_most(f, problem.length, SHORT)


def _has_few(f: Function, problem: Problem) -> bool | Value:
    few = _at_most(f, problem.keep, FEW)
    return _both(f, few, _at_most(f, f.mul(problem.keep, FEW_OF), problem.length))


def _at_most(f: Function, a: Int, b: Int) -> bool | Value:
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    return f.op("i1", f"icmp sle i64 {f.i64(a).name}, {f.i64(b).name}")


def _both(f: Function, a: bool | Value, b: bool | Value) -> bool | Value:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return f.op("i1", f"and i1 {a.name}, {b.name}")


def _when(f: Function, conditions: Sequence[tuple[bool | Value, bool]], run: Callable[[], None]) -> None:
    """Emit `run` under all conditions."""
    if not conditions:
        run()
        return
    (condition, wanted), *rest = conditions
    if isinstance(condition, bool):
        if condition == wanted:
            _when(f, rest, run)
        return
    if not wanted:
        condition = f.op("i1", f"xor i1 {condition.name}, true")
    with f.when(condition):
        _when(f, rest, run)


# Short rows ------------------------------------------------------------------------------------------


def _rank(row: Row) -> None:
    """An element's rank is the number of those before it."""
    f, words = row.f, row.scratch.arrays[0]

    def store(index: Int, mask: Value | None, state: State) -> State:
        f.store(row.keys(index, mask).value, f.at(words, "i64", index), align=8)
        return state

    strip(f, Range(0, row.problem.length), 1, store)
    with f.loop(0, row.problem.length) as loop:
        own = Vec(f, f.splat(f.load("i64", f.at(words, "i64", loop.index), align=8), LANES))
        with f.loop(0, row.problem.length, LANES, [Value("i64", "0")]) as inner:
            other = Vec(f, f.load(WORDS, f.at(words, "i64", inner.index), align=8))
            before = other.compare("ult", own)
            if row.problem.is_wide:
                place = Vec(f, f.splat(loop.index, LANES))
                earlier = Vec(f, splat_int(f, inner.index, step=1)).compare("ult", place)
                before = before | (other.eq(own) & earlier)
            inner.next(f.i64(f.add(inner.carried[0], _count(row, before))))
        rank = inner.results[0]
        with f.when(f.less(rank, row.problem.keep)):
            row.put(rank, loop.index)


def _count(row: Row, lanes: Vec) -> Value:
    """Return how many lanes hold."""
    f = row.f
    bits = f.op(f"i{LANES}", f"bitcast {lanes.value.type} {lanes.value.name} to i{LANES}")
    count = f.call(f"i{LANES}", f"llvm.ctpop.i{LANES}", bits)
    return f.op("i64", f"zext i{LANES} {count.name} to i64")


# The first few ---------------------------------------------------------------------------------------


def _select(row: Row) -> None:
    """Keep the first words sorted while all go by: one that comes before the last of them is inserted."""
    f = row.f
    f.store(Value("i64", "0"), f.at(row.scratch.few, "i64", -1), align=8)
    for i in range(0, FEW, LANES):
        f.store(Value(WORDS, "splat (i64 -1)"), f.at(row.scratch.few, "i64", i), align=8)
    last = f.at(row.scratch.few, "i64", f.sub(row.problem.keep, 1))

    def chunk(index: Int, mask: Value | None, state: State) -> State:
        words = row.keys(index, mask)
        bound = f.splat(f.load("i64", last, align=8), LANES)
        with f.when(words.compare("ult", Vec(f, bound)).any()):
            f.store(words.value, row.scratch.chunk, align=8)
            with f.loop(0, LANES) as lane:
                word = f.load("i64", f.at(row.scratch.chunk, "i64", lane.index), align=8)
                now = f.load("i64", last, align=8)
                with f.when(f.op("i1", f"icmp ult i64 {word.name}, {now.name}")):
                    _insert(row, Vec(f, f.splat(word, LANES)))
        return state

    with f.when(f.less(0, row.problem.keep)):
        strip(f, Range(0, row.problem.length), 1, chunk)
        row.put_words(row.scratch.few, row.problem.keep)


def _insert(row: Row, word: Vec) -> None:
    """From the top down, each word becomes the middle one of itself, the one below it and the new one."""
    f = row.f
    count = f.ceildiv(row.problem.keep, LANES)
    with f.loop(0, count) as loop:
        at = f.mul(f.sub(f.sub(count, 1), loop.index), LANES)
        own, below = (
            Vec(f, f.load(WORDS, f.at(row.scratch.few, "i64", f.add(at, shift)), align=8))
            for shift in (0, -1)
        )
        f.store(
            own.intrinsic("umin", below.intrinsic("umax", word)).value,
            f.at(row.scratch.few, "i64", at),
            align=8,
        )


# Digit by digit --------------------------------------------------------------------------------------


def _radix(row: Row) -> None:
    f = row.f
    for i in range(0, row.problem.n_counts, LANES):
        f.store(Value(WORDS, "zeroinitializer"), f.at(row.scratch.counts, "i64", i), align=8)

    def store(index: Int, mask: Value | None, state: State) -> State:
        f.store(row.keys(index, mask).value, f.at(row.scratch.arrays[0], "i64", index), align=8)
        if row.problem.is_wide:
            f.store(splat_int(f, index, step=1), f.at(row.scratch.arrays[1], "i64", index), align=8)
        return state

    strip(f, Range(0, row.problem.length), 1, store)
    _count_digits(row)
    with f.loop(0, row.problem.n_digits, 1, row.scratch.arrays) as loop:
        loop.next(*_pass(row, loop.index, loop.carried))
    row.put_words(loop.results[row.problem.is_wide], row.problem.keep)


def _shift(row: Row, digit: Int) -> Value:
    """Return how far to the right a word goes to have a digit last."""
    return row.f.i64(row.f.add(row.f.mul(digit, 8), 0 if row.problem.is_wide else 32))


def _slot(row: Row, counts: Value, word: Value, shift: Value) -> Value:
    """Return the address of the count of a word's digit."""
    f = row.f
    digit = f.op("i64", f"lshr i64 {word.name}, {shift.name}")
    return f.at(counts, "i64", f.op("i64", f"and i64 {digit.name}, {VALUES_OF_DIGIT - 1}"))


def _count_digits(row: Row) -> None:
    f = row.f
    tables = [f.at(row.scratch.counts, "i64", d * VALUES_OF_DIGIT) for d in range(row.problem.n_digits)]
    with f.loop(0, row.problem.length) as loop:
        word = f.load("i64", f.at(row.scratch.arrays[0], "i64", loop.index), align=8)
        for d, table in enumerate(tables):
            slot = _slot(row, table, word, _shift(row, d))
            f.store(f.i64(f.add(f.load("i64", slot, align=8), 1)), slot, align=8)


def _pass(row: Row, digit: Int, arrays: Sequence[Value]) -> list[Value]:
    """Order the words by one digit; return the arrays, the sorted ones first."""
    f, half = row.f, len(arrays) // 2
    table = f.at(row.scratch.counts, "i64", f.mul(digit, VALUES_OF_DIGIT))
    shift = _shift(row, digit)
    first = f.load("i64", arrays[0], align=8)
    of_first = f.load("i64", _slot(row, table, first, shift), align=8)
    differ = f.op("i1", f"icmp ne i64 {of_first.name}, {f.i64(row.problem.length).name}")
    with f.when(differ):
        with f.loop(0, VALUES_OF_DIGIT, 1, [Value("i64", "0")]) as loop:
            slot = f.at(table, "i64", loop.index)
            count = f.load("i64", slot, align=8)
            f.store(loop.carried[0], slot, align=8)
            loop.next(f.i64(f.add(loop.carried[0], count)))
        with f.loop(0, row.problem.length) as loop:
            words = [f.load("i64", f.at(a, "i64", loop.index), align=8) for a in arrays[:half]]
            slot = _slot(row, table, words[0], shift)
            to = f.load("i64", slot, align=8)
            f.store(f.i64(f.add(to, 1)), slot, align=8)
            for word, array in zip(words, arrays[half:], strict=True):
                f.store(word, f.at(array, "i64", to), align=8)
    turned = [*arrays[half:], *arrays[:half]]
    return [f.select(differ, new, old) for new, old in zip(turned, arrays, strict=True)]


#: The first one that takes a row sorts it.
VARIANTS = (
    RowVariant("ranks", _for_all, _rank, _is_short),
    RowVariant("first-few", lambda problem: not problem.is_wide, _select, _has_few),
    RowVariant("radix", _for_all, _radix),
)
