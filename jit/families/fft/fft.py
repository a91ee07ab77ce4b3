"""The Fft family: discrete Fourier transforms of [outer, length, columns] along `length`, LANES columns at a
time.

A tile copies its columns to scratch memory as f64, transforms them there stage by stage (Stockham's order: no
element is moved for its own sake) and rounds the results once. A stage of factor p combines p transforms of
`done` elements to one of p * done; `step` of them are made. Factors are fours, a two, then odd primes,
rising; a stage of an odd prime p sums p products for each element, in order. Lanes never meet, so a column's
bits do not depend on its neighbours; the length alone decides the order of operations, in exact code and in
generic code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....vm.program import Work
from ...llvm.abi import RT_SCRATCH, Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import LANES, tail_mask
from ...llvm.conversion import cast
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, fma
from ...loops.affine import Operand
from .reference import factors
from .spec import TABLES, Fft, accesses

UNROLLED = 5  # the greatest prime of exact code whose sums are not loops
VECTOR = f"<{LANES} x double>"
N_ARRAYS, DOUBLE = 4, 8  # in scratch: real and imaginary parts before a stage, and after it; bytes
Complex = tuple[Vec, Vec]


def emit(f: Function, spec: Fft, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Fft; see `abi.Generator`. The one schedule is "columns"."""
    check_schedule("fft", schedule, ["columns"])
    transform = _Transform(f, spec, sizes)
    blocks = f.ceildiv(transform.columns, LANES)
    with f.loop(f.params[3], f.params[4]) as tile:
        row, block = f.udiv(tile.index, blocks), f.urem(tile.index, blocks)
        transform.emit(row, f.mul(block, LANES))
    tiles, scratch = ((spec.outer, 1), (spec.columns, LANES)), ((N_ARRAYS * LANES * DOUBLE, (spec.length,)),)
    return Generated(Work(tiles, scratch, ((LANES * 64, (spec.length,)),)), "columns")


class _Transform:
    """Emits tiles; construct it in the entry block."""

    def __init__(self, f: Function, spec: Fft, sizes: Sequence[Int]) -> None:
        self.f, self.dtype = f, spec.buffers[TABLES].dtype
        self.length, self.columns = resolve(spec.length, sizes), resolve(spec.columns, sizes)
        self.kept = f.minimum(resolve(spec.kept, sizes), self.length)
        operands = [Operand.of(f, spec, access, sizes) for access in accesses(spec)]
        self.cosines, self.sines = (operand.base for operand in operands[:TABLES])
        n_inputs = sum(not buffer.is_output for buffer in spec.buffers)
        self.inputs, self.outputs = operands[TABLES:n_inputs], operands[n_inputs:]
        self.scratch = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)

    def emit(self, row: Int, column: Int) -> None:
        """Emit the transforms of up to LANES columns from `column`; of no elements nothing, as the tables
        are empty then."""
        if isinstance(self.length, int):
            self._emit(row, column)
            return
        with self.f.loop(0, self.f.minimum(1, self.length)):
            self._emit(row, column)

    def _emit(self, row: Int, column: Int) -> None:
        f = self.f
        mask = tail_mask(f, f.minimum(LANES, f.sub(self.columns, column)))
        with f.loop(0, self.length) as loop:
            at = [x.offset([row, loop.index, column]) for x in self.inputs]
            parts = [self._load(x, place, mask) for x, place in zip(self.inputs, at, strict=True)]
            self._put(0, loop.index, (parts[0], parts[1] if len(parts) > 1 else parts[0].like(0.0)))
        made = self._stages()
        with f.loop(0, self.kept) as loop:
            for out, value in zip(self.outputs, self._get(made, loop.index), strict=False):
                place = out.offset([row, loop.index, column])
                narrow = cast(value, "f64", self.dtype)
                Accessor(f, out.base, self.dtype, mask).store(Access(place, 1), narrow)

    def _load(self, x: Operand, place: Int, mask: Value) -> Vec:
        found = Accessor(self.f, x.base, self.dtype, mask).load(Access(place, 1))
        return cast(found, self.dtype, "f64")

    # Elements in scratch memory: `first` is 0, or the place of the second pair of arrays

    def _get(self, first: Int, place: Int) -> Complex:
        return self._part(first, place, 0), self._part(first, place, 1)

    def _part(self, first: Int, place: Int, part: int) -> Vec:
        return Vec(self.f, self.f.load(VECTOR, self._address(first, place, part), align=64))

    def _put(self, first: Int, place: Int, value: Complex) -> None:
        for part in range(2):
            self.f.store(value[part].value, self._address(first, place, part), align=64)

    def _address(self, first: Int, place: Int, part: int) -> Value:
        f = self.f
        return f.at(self.scratch, VECTOR, f.add(f.add(first, f.mul(self.length, part)), place))

    def _turn(self, place: Int) -> Complex:
        """Return the cosine and the sine of an angle of the tables."""
        f = self.f
        places = (f.at(table, "double", place) for table in (self.cosines, self.sines))
        cosine, sine = (Vec(f, f.splat(f.load("double", at, align=8), LANES)) for at in places)
        return cosine, sine

    # Stages

    def _stages(self) -> Int:
        """Emit all stages; return where their results are."""
        f = self.f
        if isinstance(self.length, int):
            made, at = 1, 0
            for factor in factors(self.length):
                other = 2 * self.length - at
                _Stage(self, factor, made, self.length // (made * factor), at, other).emit()
                made, at = made * factor, other
            return at
        second = f.mul(self.length, 2)
        with f.repeat([f.i64(1), f.i64(self.length), f.i64(0)]) as stages:
            done, rest, start = stages.carried
            p = self._factor(rest)
            step, end = f.udiv(rest, p), f.sub(second, start)
            _Stage(self, p, done, step, start, end).emit()
            stages.next(f.i64(f.mul(done, p)), f.i64(step), f.i64(end))
            stages.again = f.less(1, step)
        return stages.results[2]

    def _factor(self, rest: Value) -> Int:
        """Return `reference.next_factor` of a run-time value; 1 of 1."""
        f = self.f
        with f.repeat([f.i64(3)]) as search:
            (odd,) = search.carried
            more = f.op("i1", f"icmp ne i64 {f.i64(f.urem(rest, odd)).name}, 0")
            below = f.op("i1", f"icmp ule i64 {f.i64(f.mul(odd, odd)).name}, {rest.name}")
            search.again = f.op("i1", f"and i1 {more.name}, {below.name}")
            search.next(f.i64(f.select(search.again, f.add(odd, 2), odd)))
        odd = search.results[0]
        found: Int = f.select(_is(f, f.urem(rest, odd), 0), odd, rest)
        for even in (2, 4):
            found = f.select(_is(f, f.urem(rest, even), 0), even, found)
        return found


class _Stage:
    """A stage of factor `p`, from the elements at `start` to those at `end`."""

    def __init__(self, whole: _Transform, p: Int, done: Int, step: Int, start: Int, end: Int) -> None:
        self.whole, self.f = whole, whole.f
        self.p, self.done, self.step = p, done, step
        self.start, self.end = start, end

    def emit(self) -> None:
        """Emit the stage, by its factor."""
        f, p = self.f, self.p
        if isinstance(p, int):
            (self._by_fours if p == 4 else self._by_twos if p == 2 else self._by_sums)()
            return
        is_four, is_two = _is(f, p, 4), _is(f, p, 2)
        f.either(is_four, self._by_fours, lambda: f.either(is_two, self._by_twos, self._by_sums))

    def _read(self, s: Int, k: Int, r: Int) -> Complex:
        """Return element k of transform number s of those with remainder r."""
        f = self.f
        place = f.add(f.mul(f.add(s, f.mul(self.step, r)), self.done), k)
        return self.whole._get(self.start, place)

    def _write(self, s: Int, k: Int, value: Complex) -> None:
        f = self.f
        self.whole._put(self.end, f.add(f.mul(s, f.mul(self.done, self.p)), k), value)

    def _by_butterflies(self, p: int, combine: Callable[[Sequence[Complex]], Sequence[Complex]]) -> None:
        """Emit a stage whose p inputs are turned, then combined without further products."""
        f = self.f
        with f.loop(0, self.done) as elements:
            k = elements.index
            turns = [self.whole._turn(f.mul(f.mul(k, self.step), r)) for r in range(1, p)]
            with f.loop(0, self.step) as transforms:
                s = transforms.index
                first, *others = (self._read(s, k, r) for r in range(p))
                turned = [_turned(x, turn) for x, turn in zip(others, turns, strict=True)]
                for c, made in enumerate(combine([first, *turned])):
                    self._write(s, f.add(k, f.mul(self.done, c)), made)

    def _by_fours(self) -> None:
        self._by_butterflies(4, _four)

    def _by_twos(self) -> None:
        self._by_butterflies(2, _two)

    def _by_sums(self) -> None:
        if isinstance(self.p, int) and self.p <= UNROLLED:
            self._by_unrolled_sums(self.p)
            return
        f = self.f
        with f.loop(0, self.done) as elements, f.loop(0, self.p) as results:
            k = f.add(elements.index, f.mul(self.done, results.index))
            with f.loop(0, self.step) as transforms:
                self._sum(transforms.index, elements.index, k)

    def _sum(self, s: Int, k: Int, result: Int) -> None:
        """Emit the sum of one element of one transform."""
        f = self.f
        angle = f.mul(result, self.step)
        first = self._read(s, k, 0)
        with f.loop(1, self.p, 1, [part.value for part in first] + [f.i64(angle)]) as loop:
            *sums, turn = loop.carried
            total = (Vec(f, sums[0]), Vec(f, sums[1]))
            total = _plus(total, self._read(s, k, loop.index), self.whole._turn(turn))
            loop.next(*(part.value for part in total), f.i64(self._wrapped(f.add(turn, angle))))
        made = loop.results
        self._write(s, result, (Vec(f, made[0]), Vec(f, made[1])))

    def _by_unrolled_sums(self, p: int) -> None:
        f = self.f
        with f.loop(0, self.done) as elements:
            k = elements.index
            results = [f.add(k, f.mul(self.done, c)) for c in range(p)]
            turns = [self._turns(p, result) for result in results]
            with f.loop(0, self.step) as transforms:
                s = transforms.index
                given = [self._read(s, k, r) for r in range(p)]
                for result, of_result in zip(results, turns, strict=True):
                    total = given[0]
                    for x, turn in zip(given[1:], of_result, strict=True):
                        total = _plus(total, x, turn)
                    self._write(s, result, total)

    def _turns(self, p: int, result: Int) -> list[Complex]:
        """Return the turns of the inputs 1 .. p - 1 for one element."""
        f = self.f
        angle = f.mul(result, self.step)
        found, turn = [], angle
        for _ in range(1, p):
            found.append(self.whole._turn(turn))
            turn = self._wrapped(f.add(turn, angle))
        return found

    def _wrapped(self, angle: Int) -> Int:
        """Return an angle below two turns as one below a turn."""
        f, length = self.f, self.whole.length
        return f.select(f.less(angle, length), angle, f.sub(angle, length))


def _is(f: Function, value: Int, number: int) -> Value:
    return f.op("i1", f"icmp eq i64 {f.i64(value).name}, {number}")


def _turned(x: Complex, turn: Complex) -> Complex:
    """x * (cos - i sin)."""
    (real, imaginary), (cosine, sine) = x, turn
    return fma(real, cosine, imaginary * sine), fma(imaginary, cosine, -(real * sine))


def _plus(total: Complex, x: Complex, turn: Complex) -> Complex:
    """total + x * (cos - i sin), one product after the other."""
    (real, imaginary), (cosine, sine) = x, turn
    return (
        fma(imaginary, sine, fma(real, cosine, total[0])),
        fma(-real, sine, fma(imaginary, cosine, total[1])),
    )


def _two(x: Sequence[Complex]) -> list[Complex]:
    (a, b), (c, d) = x
    return [(a + c, b + d), (a - c, b - d)]


def _four(x: Sequence[Complex]) -> list[Complex]:
    (even, odd), (other_even, other_odd) = _two([x[0], x[2]]), _two([x[1], x[3]])
    (a, b), (c, d) = odd, other_odd
    sums = _two([even, other_even])
    return [sums[0], (a + d, b - c), sums[1], (a - d, b + c)]
