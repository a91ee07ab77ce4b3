"""The sizes of a program's kernel launches, computed from the sizes that its caller chooses.

Main's integer instructions are interpreted over ranges instead of numbers: at fixed symbols the result is the
launches' dims, at ranges of symbols the ranges of the dims. Nothing runs and no tensor is needed.
Data-dependent values are unknown, and kernels that depend on them are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from .instruction import Instruction, decode_all
from .program import Axis, KernelKey, Program, SizeRange

Bound = int | None
MAX_BITS = 128  # of a bound; ints of a program have 64
MAX_SYMBOLS = 128  # that a number may depend on; with more it counts as unknown


@dataclass(frozen=True)
class Span:
    """The integers low..high (None: no bound) that are multiples of `step` (0: only 0).

    `symbols`: the indices of the symbols that it depends on.
    """

    low: Bound
    high: Bound
    step: int = 1
    symbols: frozenset[int] = frozenset()

    @classmethod
    def of(cls, value: int) -> Span:
        """Return the span of one integer."""
        return cls(value, value, abs(value))

    @property
    def size(self) -> int | SizeRange:
        """The span as a size of a kernel's key."""
        if self.low is not None and self.low == self.high and self.low >= 0:
            return self.low
        low, step = max(self.low or 0, 0), max(self.step, 1)
        low = -(-low // step) * step
        return SizeRange(low, None if self.high is None else max(self.high // step * step, low), step)


def _add(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return low, high, gcd(a.step, b.step)


def _negative(a: Span) -> Span:
    return Span(None if a.high is None else -a.high, None if a.low is None else -a.low, a.step)


def _mul(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    step = a.step * b.step
    corners = [None if x is None or y is None else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    if None not in corners:
        known = [x for x in corners if x is not None]
        return min(known), max(known), step
    is_positive = a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0
    return corners[0] if is_positive else None, None, step


def _floordiv(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    if b.low is None or b.low != b.high or b.low <= 0:
        return None, None, 1
    low, high = (None if x is None else x // b.low for x in (a.low, a.high))
    return low, high, a.step // b.low if a.step % b.low == 0 else 1


def _mod(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    if b.low is None or b.low != b.high or b.low <= 0:
        return None, None, 1
    if a.low is not None and a.low == a.high:
        return a.low % b.low, a.low % b.low, gcd(a.step, b.low)
    return 0, b.low - 1, gcd(a.step, b.low)


def _min(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    highs = [x for x in (a.high, b.high) if x is not None]
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    return low, min(highs, default=None), gcd(a.step, b.step)


def _max(a: Span, b: Span) -> tuple[Bound, Bound, int]:
    lows = [x for x in (a.low, b.low) if x is not None]
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return max(lows, default=None), high, gcd(a.step, b.step)


_ARITHMETIC: dict[str, Callable[[Span, Span], tuple[Bound, Bound, int]]] = {
    "add": _add, "sub": lambda a, b: _add(a, _negative(b)), "mul": _mul, "floordiv": _floordiv, "mod": _mod,
    "min": _min, "max": _max,
}  # fmt: skip


def _less(a: Span, b: Span, by: int) -> Span | None:
    """Return whether a + by <= b as 0 or 1, None if it depends on the values."""
    if a.high is not None and b.low is not None and a.high + by <= b.low:
        return Span.of(1)
    return Span.of(0) if a.low is not None and b.high is not None and a.low + by > b.high else None


_COMPARISONS: dict[str, Callable[[Span, Span], Span | None]] = {
    "lt": lambda a, b: _less(a, b, 1), "le": lambda a, b: _less(a, b, 0),
}  # fmt: skip

Known = Span | tuple[Span | None, ...] | None  # an int; a tensor's sizes; anything else


class _Walk:
    """Main's registers during a walk over its instructions in order, both sides of branches, except code that
    a comparison of sizes skips at all of these sizes."""

    def __init__(self, program: Program, symbols: Sequence[SizeRange]) -> None:
        self.program = program
        self.symbols = [Span(r.min, r.max, r.multiple_of, frozenset({i})) for i, r in enumerate(symbols)]
        self.registers: dict[int, Known] = {}
        for i, row in enumerate(program.inputs):
            self.registers[i] = tuple(map(self._axis, row.axes)) if row.kind == "tensor" else None
            if row.symbol is not None:
                self.registers[i] = self.symbols[row.symbol]
        for i, span in enumerate(self.symbols):
            self.registers[len(program.inputs) + i] = span
        self.launches: list[tuple[int, tuple[Span, ...]]] = []
        self.equal: list[tuple[Span, Span]] = []  # operands of the guards before the first branch
        self._sides: dict[int, tuple[Span | None, ...]] = {}
        self._has_branched = False

    def _axis(self, axis: Axis) -> Span:
        if axis.symbol is None:
            return Span.of(axis.offset)
        scaled = self._apply("mul", Span.of(axis.scale), self.symbols[axis.symbol])
        return self._apply("add", scaled, Span.of(axis.offset))

    @staticmethod
    def _apply(op: str, a: Span, b: Span) -> Span:
        low, high, step = _ARITHMETIC[op](a, b)
        low, high = (None if x is None or x.bit_length() > MAX_BITS else x for x in (low, high))
        return Span(low, high, step if step.bit_length() <= MAX_BITS else 1, a.symbols | b.symbols)

    def is_symbol(self, span: Span) -> bool:
        """Return whether a span is that of a symbol itself."""
        return len(span.symbols) == 1 and span == self.symbols[min(span.symbols)]

    def spans(self, registers: Sequence[int]) -> tuple[Span | None, ...]:
        """Return the known spans of ints in registers."""
        found = (self.registers.get(r) for r in registers)
        return tuple(x if isinstance(x, Span) else None for x in found)

    def step(self, i: Instruction) -> None:
        """Interpret one instruction."""
        name = i.op.name
        if name == "kernel":
            dims = self.spans(i["dims"])
            if None not in dims:
                self.launches.append((i["kernel"], tuple(d for d in dims if d is not None)))
            return
        self._compare(i)
        for register in i.of_kind("dD"):
            self.registers[register] = self._result(i)

    def _compare(self, i: Instruction) -> None:
        """Note the equalities that the guards of every call state."""
        self._has_branched |= i.op.name == "branch"
        if i.op.name == "eq":
            self._sides[i["d"]] = self.spans((i["a"], i["b"]))
        elif i.op.name == "guard" and not self._has_branched:
            a, b = self._sides.get(i["cond"], (None, None))
            if a is not None and b is not None:
                self.equal.append((a, b))

    def _result(self, i: Instruction) -> Known:
        name = i.op.name
        if name == "int":
            return Span.of(i["value"])
        if name == "const":
            value = self.program.constants[i["value"]].value
            return (
                Span.of(value)
                if type(value) is int
                else getattr(value, "shape", None) and tuple(map(Span.of, value.shape))
            )
        if name == "move":
            return self.registers.get(i["a"])
        if name in ("alloc", "view"):
            return self.spans(i["sizes"])
        if name == "dim":
            sizes = self.registers.get(i["a"])
            return sizes[i["axis"]] if isinstance(sizes, tuple) and i["axis"] < len(sizes) else None
        if name in _COMPARISONS:
            a, b = self.spans((i["a"], i["b"]))
            return None if a is None or b is None else _COMPARISONS[name](a, b)
        if name in _ARITHMETIC:
            a, b = self.spans((i["a"], i["b"]))
            found = None if a is None or b is None else self._apply(name, a, b)
            return found if found is None or len(found.symbols) <= MAX_SYMBOLS else None
        return None


def whole_ranges(program: Program) -> dict[str, SizeRange]:
    """Return the range of each symbol that the contract allows."""
    return {s.name: SizeRange(s.min, s.max, s.multiple_of) for s in program.symbols}


def launches(program: Program, sizes: Mapping[str, int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the launches of a call of main at `sizes` (values of all symbols): kernel and dims, in order."""
    found = _walked(program, sizes).launches
    rows = [(kernel, tuple(d.size for d in dims)) for kernel, dims in found]
    return [(kernel, dims) for kernel, dims in rows if all(isinstance(d, int) for d in dims)]  # type: ignore[misc]


def derived_sizes(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the symbols that guards equate with expressions of other symbols, and their required values at
    `sizes` (values of all symbols)."""
    walk, found = _walked(program, sizes, to_last_guard=True), {}
    for a, b in walk.equal:
        for i, symbol in enumerate(walk.symbols):
            if a is symbol and i not in b.symbols and b.low is not None and b.low == b.high:
                found[program.symbols[i].name] = b.low
    return found


def dim_symbols(program: Program) -> dict[int, list[tuple[frozenset[str], bool]]]:
    """Return, for each kernel that main launches, which symbols each of its dims depends on, and whether the
    dim is that symbol itself.
    """
    walk = _walked(program, {})
    found: dict[int, list[tuple[frozenset[str], bool]]] = {}
    names = [s.name for s in program.symbols]
    for kernel, dims in walk.launches:
        rows = [(frozenset(names[i] for i in d.symbols), walk.is_symbol(d)) for d in dims]
        old = found.setdefault(kernel, rows)
        found[kernel] = [(a | b, x and y and a == b) for (a, x), (b, y) in zip(old, rows, strict=True)]
    return found


def _walked(program: Program, sizes: Mapping[str, int | SizeRange], to_last_guard: bool = False) -> _Walk:
    """Walk main at these sizes, to its end or, which is faster, to the last guard of every call."""
    whole = whole_ranges(program)
    ranges = [sizes.get(s.name, whole[s.name]) for s in program.symbols]
    walk = _Walk(program, [SizeRange(r, r, max(r, 1)) if isinstance(r, int) else r for r in ranges])
    skipped_to = 0
    instructions = list(decode_all(program.functions[0].code))
    if to_last_guard:
        instructions = instructions[: 1 + max(_guards(instructions), default=-1)]
    for instruction in instructions:
        if instruction.pc >= skipped_to:
            walk.step(instruction)
            if instruction.op.name == "branch" and walk.spans((instruction["cond"],)) == (Span.of(0),):
                skipped_to = instruction["otherwise"]
    return walk


def _guards(instructions: Sequence[Instruction]) -> Iterator[int]:
    """Yield the positions of the guards before the first branch."""
    for place, instruction in enumerate(instructions):
        if instruction.op.name == "branch":
            return
        if instruction.op.name == "guard":
            yield place


def kernel_keys(
    program: Program, sizes: Mapping[str, int | SizeRange], named: Sequence[str] | None = None
) -> list[tuple[int, KernelKey]]:
    """Return, in order, each kernel that main launches and the key of its dims at `sizes`.

    Symbols that are not given have the contract's whole range. `named`: leave out kernels whose dims depend
    on none of these symbols. Kernels without dims and those whose dims depend on data are left out.
    """
    walk = _walked(program, sizes)
    wanted = {i for i, s in enumerate(program.symbols) if named is None or s.name in named}
    found = {
        (kernel, tuple(d.size for d in dims)): None
        for kernel, dims in walk.launches
        if dims and (named is None or any(d.symbols & wanted for d in dims))
    }
    return list(found)
