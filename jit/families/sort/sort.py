"""The Sort family: the first elements of every row in order, with their places, equal ones in theirs.

An element becomes an unsigned key that orders as PyTorch does (a NaN is above all, -0 equals 0; all bits
turned for a descending order). A stable order is one order, so the way to it is free: a row of at most SHORT
elements counts for each how many come before it; the first few of a long row are kept sorted while all go by;
else digits of 8 bits are sorted from the lowest up, those that are equal in all keys left out. Keys of up to
32 bits travel in one word with the element's place, those of 64 bits beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...llvm.abi import RT_SCRATCH, Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat_int
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from .spec import Sort

SHORT = 64  # elements of a row that are ranked one against all
FEW = 64  # elements kept sorted while a long row goes by, at most ...
FEW_OF = 4  # ... of a row that has so many times as many
VALUES_OF_DIGIT = 256
WORD = 8  # bytes
WORDS = f"<{LANES} x i64>"
LOW_HALF = (1 << 32) - 1
X, VALUES, INDICES = range(3)


def emit(f: Function, spec: Sort, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Sort; see `abi.Generator`. The one schedule is "rows"."""
    check_schedule("sort", schedule, ["rows"])
    sorter = _Sorter(f, spec, sizes)
    with f.loop(f.params[3], f.params[4]) as row:
        sorter.emit(row.index)
    scratch = ((WORD * sorter.n_arrays, (spec.length,)), (WORD * sorter.fixed_words, ()))
    cost = (WORD * (sorter.n_digits + 1), (spec.length,))
    return Generated(((spec.rows, 1),), scratch, (cost,), "rows")


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


class _Sorter:
    """Emits rows; construct it in the entry block."""

    def __init__(self, f: Function, spec: Sort, sizes: Sequence[Int]) -> None:
        self.f, self.descending, self.dtype = f, spec.descending, spec.buffers[X].dtype
        self.length, self.keep = resolve(spec.length, sizes), resolve(spec.keep, sizes)
        row = DTYPES[self.dtype]
        self.is_wide = row.register in ("double", "i64")
        self.n_digits = row.bytes if self.is_wide or row.kind != "float" else 4
        self.element = "i16" if row.memory == "half" else row.memory
        self.buffers = [f.load("ptr", f.at(f.params[0], "ptr", i), align=8) for i in range(3)]
        scratch = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        n_counts = self.n_digits * VALUES_OF_DIGIT
        self.n_arrays = 4 if self.is_wide else 2
        self.fixed_words = n_counts + FEW + (3 + self.n_arrays) * LANES
        self.counts = scratch
        self.few = f.at(scratch, "i64", n_counts + LANES)  # the word below it is 0
        self.chunk = f.at(self.few, "i64", FEW + LANES)
        padded = f.add(self.length, LANES)  # a chunk is stored whole
        first = f.at(self.chunk, "i64", LANES)
        self.arrays = [f.at(first, "i64", f.mul(padded, i)) for i in range(self.n_arrays)]

    def emit(self, row: Int) -> None:
        """Emit the row of that number."""
        f = self.f
        self.x = f.at(self.buffers[X], self.element, f.mul(row, self.length))
        self.values, self.indices = (
            f.at(self.buffers[b], t, f.mul(row, self.keep))
            for b, t in ((VALUES, self.element), (INDICES, "i64"))
        )
        is_short = self._at_most(self.length, SHORT)
        self._when([(is_short, True)], self._rank)
        has_few: bool | Value = False
        if not self.is_wide:
            has_few = self._both(
                self._at_most(self.keep, FEW), self._at_most(f.mul(self.keep, FEW_OF), self.length)
            )
        self._when([(is_short, False), (has_few, True)], self._select)
        self._when([(is_short, False), (has_few, False)], self._radix)

    # conditions that are known or not
    def _at_most(self, a: Int, b: Int) -> bool | Value:
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        f = self.f
        return f.op("i1", f"icmp sle i64 {f.i64(a).name}, {f.i64(b).name}")

    def _both(self, a: bool | Value, b: bool | Value) -> bool | Value:
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.f.op("i1", f"and i1 {a.name}, {b.name}")

    def _when(self, conditions: Sequence[tuple[bool | Value, bool]], run: Callable[[], None]) -> None:
        """Emit `run` where every condition is what is asked."""
        if not conditions:
            run()
            return
        (condition, wanted), *rest = conditions
        if isinstance(condition, bool):
            if condition == wanted:
                self._when(rest, run)
            return
        if not wanted:
            condition = self.f.op("i1", f"xor i1 {condition.name}, true")
        with self.f.when(condition):
            self._when(rest, run)

    # elements
    def _keys(self, index: Int, mask: Value | None) -> Vec:
        """Return the words (wide: the keys) of LANES elements; those that are not there are greatest."""
        x = Accessor(self.f, self.x, self.dtype, mask).load(Access(index, 1))
        key = key_of(x, self.dtype, self.descending)
        if not self.is_wide:
            key = (key.convert("zext", "i64") << 32) | Vec(self.f, splat_int(self.f, index, step=1))
        return key if mask is None else select(Vec(self.f, mask), key, -1)

    def _put(self, rank: Int, place: Int) -> None:
        """Write element number `place` of the row as number `rank` of the result."""
        f = self.f
        value = f.load(self.element, f.at(self.x, self.element, place))
        f.store(value, f.at(self.values, self.element, rank))
        f.store(f.i64(place), f.at(self.indices, "i64", rank), align=8)

    def _place_in(self, word: Value) -> Value:
        return self.f.op("i64", f"and i64 {word.name}, {LOW_HALF}")

    def _put_words(self, words: Value, count: Int) -> None:
        """Write the elements that the first words (wide: places) name."""
        f = self.f
        with f.loop(0, count) as loop:
            word = f.load("i64", f.at(words, "i64", loop.index), align=8)
            self._put(loop.index, word if self.is_wide else self._place_in(word))

    # short rows
    def _rank(self) -> None:
        """An element's rank is the number of those before it."""
        self.f.takes("ranks")
        f, words = self.f, self.arrays[0]

        def store(index: Int, mask: Value | None, state: State) -> State:
            f.store(self._keys(index, mask).value, f.at(words, "i64", index), align=8)
            return state

        strip(f, Range(0, self.length), 1, store)
        with f.loop(0, self.length) as loop:
            own = Vec(f, f.splat(f.load("i64", f.at(words, "i64", loop.index), align=8), LANES))
            with f.loop(0, self.length, LANES, [Value("i64", "0")]) as inner:
                other = Vec(f, f.load(WORDS, f.at(words, "i64", inner.index), align=8))
                before = other.compare("ult", own)
                if self.is_wide:
                    place = Vec(f, f.splat(loop.index, LANES))
                    earlier = Vec(f, splat_int(f, inner.index, step=1)).compare("ult", place)
                    before = before | (other.eq(own) & earlier)
                inner.next(f.i64(f.add(inner.carried[0], self._count(before))))
            rank = inner.results[0]
            with f.when(f.less(rank, self.keep)):
                self._put(rank, loop.index)

    def _count(self, lanes: Vec) -> Value:
        """Return how many lanes hold."""
        f = self.f
        bits = f.op(f"i{LANES}", f"bitcast {lanes.value.type} {lanes.value.name} to i{LANES}")
        count = f.call(f"i{LANES}", f"llvm.ctpop.i{LANES}", bits)
        return f.op("i64", f"zext i{LANES} {count.name} to i64")

    # the first few
    def _select(self) -> None:
        """Keep the first words sorted while all go by: one that comes before the last of them is inserted."""
        self.f.takes("first-few")
        f = self.f
        f.store(Value("i64", "0"), f.at(self.few, "i64", -1), align=8)
        for i in range(0, FEW, LANES):
            f.store(Value(WORDS, "splat (i64 -1)"), f.at(self.few, "i64", i), align=8)
        last = f.at(self.few, "i64", f.sub(self.keep, 1))

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            words = self._keys(index, mask)
            bound = f.splat(f.load("i64", last, align=8), LANES)
            with f.when(words.compare("ult", Vec(f, bound)).any()):
                f.store(words.value, self.chunk, align=8)
                with f.loop(0, LANES) as lane:
                    word = f.load("i64", f.at(self.chunk, "i64", lane.index), align=8)
                    now = f.load("i64", last, align=8)
                    with f.when(f.op("i1", f"icmp ult i64 {word.name}, {now.name}")):
                        self._insert(Vec(f, f.splat(word, LANES)))
            return state

        with f.when(f.less(0, self.keep)):
            strip(f, Range(0, self.length), 1, chunk)
            self._put_words(self.few, self.keep)

    def _insert(self, word: Vec) -> None:
        """From the top down, each word becomes the middle one of itself, the one below it and the new one."""
        f = self.f
        count = f.ceildiv(self.keep, LANES)
        with f.loop(0, count) as loop:
            at = f.mul(f.sub(f.sub(count, 1), loop.index), LANES)
            own, below = (
                Vec(f, f.load(WORDS, f.at(self.few, "i64", f.add(at, shift)), align=8)) for shift in (0, -1)
            )
            f.store(
                own.intrinsic("umin", below.intrinsic("umax", word)).value, f.at(self.few, "i64", at), align=8
            )

    # digit by digit
    def _radix(self) -> None:
        f = self.f
        f.takes("radix")
        for i in range(0, self.n_digits * VALUES_OF_DIGIT, LANES):
            f.store(Value(WORDS, "zeroinitializer"), f.at(self.counts, "i64", i), align=8)

        def store(index: Int, mask: Value | None, state: State) -> State:
            f.store(self._keys(index, mask).value, f.at(self.arrays[0], "i64", index), align=8)
            if self.is_wide:
                f.store(splat_int(f, index, step=1), f.at(self.arrays[1], "i64", index), align=8)
            return state

        strip(f, Range(0, self.length), 1, store)
        self._count_digits()
        with f.loop(0, self.n_digits, 1, self.arrays) as loop:
            loop.next(*self._pass(loop.index, loop.carried))
        self._put_words(loop.results[self.is_wide], self.keep)

    def _shift(self, digit: Int) -> Value:
        """Return how far to the right a word goes to have a digit last."""
        return self.f.i64(self.f.add(self.f.mul(digit, 8), 0 if self.is_wide else 32))

    def _slot(self, counts: Value, word: Value, shift: Value) -> Value:
        """Return the address of the count of a word's digit."""
        f = self.f
        digit = f.op("i64", f"lshr i64 {word.name}, {shift.name}")
        return f.at(counts, "i64", f.op("i64", f"and i64 {digit.name}, {VALUES_OF_DIGIT - 1}"))

    def _count_digits(self) -> None:
        f = self.f
        tables = [f.at(self.counts, "i64", d * VALUES_OF_DIGIT) for d in range(self.n_digits)]
        with f.loop(0, self.length) as loop:
            word = f.load("i64", f.at(self.arrays[0], "i64", loop.index), align=8)
            for d, table in enumerate(tables):
                slot = self._slot(table, word, self._shift(d))
                f.store(f.i64(f.add(f.load("i64", slot, align=8), 1)), slot, align=8)

    def _pass(self, digit: Int, arrays: Sequence[Value]) -> list[Value]:
        """Order the words by one digit; return the arrays, the sorted ones first."""
        f, half = self.f, len(arrays) // 2
        table = f.at(self.counts, "i64", f.mul(digit, VALUES_OF_DIGIT))
        shift = self._shift(digit)
        first = f.load("i64", arrays[0], align=8)
        of_first = f.load("i64", self._slot(table, first, shift), align=8)
        differ = f.op("i1", f"icmp ne i64 {of_first.name}, {f.i64(self.length).name}")
        with f.when(differ):
            with f.loop(0, VALUES_OF_DIGIT, 1, [Value("i64", "0")]) as loop:
                slot = f.at(table, "i64", loop.index)
                count = f.load("i64", slot, align=8)
                f.store(loop.carried[0], slot, align=8)
                loop.next(f.i64(f.add(loop.carried[0], count)))
            with f.loop(0, self.length) as loop:
                words = [f.load("i64", f.at(a, "i64", loop.index), align=8) for a in arrays[:half]]
                slot = self._slot(table, words[0], shift)
                to = f.load("i64", slot, align=8)
                f.store(f.i64(f.add(to, 1)), slot, align=8)
                for word, array in zip(words, arrays[half:], strict=True):
                    f.store(word, f.at(array, "i64", to), align=8)
        turned = [*arrays[half:], *arrays[:half]]
        return [f.select(differ, new, old) for new, old in zip(turned, arrays, strict=True)]
