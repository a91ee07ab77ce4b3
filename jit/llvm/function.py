"""LLVM IR as text, written instruction by instruction in SSA form.

`Function` appends instructions and hands out `Value`s. Integer arithmetic folds Python ints, so one generator
serves every tier: a size is an `int` (exact) or an i64 `Value` (generic), and the exact kernel's code falls
out constant. No LLVM mid-level pass runs afterwards: what is written here is what the back end sees.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

from .constant_pool import FromSize


@dataclass(frozen=True)
class Value:
    """An SSA value (or constant) with its LLVM type, e.g. Value("<16 x float>", "%12")."""

    type: str
    name: str


@dataclass(frozen=True)
class Bounded(Value):
    """A run-time i64 of which it is known that 0 <= least <= value <= most (None: no bound), and that it is a
    multiple of `multiple`."""

    least: int = 0
    most: int | None = None
    multiple: int = 1


Int = int | Value  # a folded i64 or a run-time one


def least(x: Int) -> int:
    """Return the least value >= 0 that a size is known to have."""
    return x if isinstance(x, int) else x.least if isinstance(x, Bounded) else 0


def _has_one_trip(begin: Int, end: Int, step: Int) -> bool:
    if not (isinstance(begin, int) and isinstance(end, int) and isinstance(step, int)):
        return False
    return begin < end <= begin + step


def _is_nonempty(begin: Int, end: Int) -> bool:
    """Return True where begin < end is known."""
    return isinstance(begin, int) and isinstance(end, int | Bounded) and begin < least(end)


def most(x: Int) -> int | None:
    """Return the greatest value that a size may have, None if unknown."""
    return x if isinstance(x, int) else x.most if isinstance(x, Bounded) else None


def multiple_of(x: Int) -> int:
    """Return a number that `x` is known to be a multiple of (0: of all)."""
    return x if isinstance(x, int) else x.multiple if isinstance(x, Bounded) else 1


def _known(value: Int, low: int, high: int | None, multiple: int) -> Int:
    """Return a run-time i64 with what is known of it: an int where bounds leave one value."""
    if isinstance(value, int) or low == high:
        return low if low == high else value
    return Bounded(value.type, value.name, low, high, multiple)


def _both(a: Int, b: Int) -> bool:
    """Whether something is known of both, and one is a run-time value."""
    facts = [isinstance(x, Bounded) or isinstance(x, int) and x >= 0 for x in (a, b)]
    return all(facts) and not (isinstance(a, int) and isinstance(b, int))


def _top(fold: Callable[[int, int], int], a: Int, b: Int) -> int | None:
    x, y = most(a), most(b)
    return None if x is None or y is None else fold(x, y)


def f32_bits(x: float) -> str:
    """Return LLVM's hexadecimal literal for the f32 value nearest to `x`."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<f', x))[0]))[0]:016X}"


def f64_bits(x: float) -> str:
    """Return LLVM's hexadecimal literal for the f64 value `x`."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"


class Loop:
    """A counted loop under construction: see `Function.loop`."""

    def __init__(self, carried: list[Value], index: Value) -> None:
        self.carried = carried  # the loop-carried values at the top of the body
        self.index = index
        self._next: list[Value] | None = None
        self.again: Value | None = None  # of `Function.repeat`: whether there is another trip
        self.results: list[Value] = []  # after the loop

    def next(self, *values: Value) -> None:
        """Give the carried values of the next iteration (once, at the end of the body)."""
        self._next = list(values)

    def values(self, count: int) -> list[Value]:
        """Return what `next` was given, which must be `count` values."""
        given = self._next or []
        if len(given) != count:
            raise AssertionError(f"Loop.next was given {len(given)} values for {count} carried ones")
        return given


POOL = "pool"  # the symbol of a kernel's constant pool
NUMBER = "number"  # begins the symbols of its numbers that are written into instructions
LEAST_WRITTEN, WRITTEN_BELOW = 1, 1 << 30  # such numbers: LLVM takes the symbols for addresses, not null
MAX_WRITTEN = 2048  # parts whose text is remembered, some 20 KB each
_WRITTEN: dict[tuple[Hashable, ...], Function] = {}


class Machine(NamedTuple):
    """What generators know of a target: the bytes of all its vector registers together, its extension, and
    the features that multiply bytes and bf16 (see `Target`)."""

    register_bytes: int
    extension: str
    dot: str
    pairs: str


class Pool(dict[tuple[str, int], Value]):
    """What stands for each number of a function's table. `is_patched`: numbers are written into the
    instructions when the code is linked, where they fit; else they are loaded."""

    def __init__(self, is_patched: bool = False) -> None:
        super().__init__()
        self.is_patched = is_patched


class Function:
    """Text of one LLVM function `define void @name(params)`, or of `result`'s type where it has one.

    `parts`: functions that it calls, by name. A part's code depends on its text alone, so it is compiled once
    and linked into every kernel that has the same part. `register_bytes`: of all the target's vector
    registers together. `extension`, `dot`, `pairs`: of the target (see `Target`). `pool`: what the function
    loads from a table instead of holding it (see `jit.llvm.constant_pool`), in the table's order; None: it
    has no table.
    `variants`: the names of a family's ways to compute that the kernel has code of (see `takes`).
    """

    def __init__(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        register_bytes: int = 2048,
        extension: str = "",
        dot: str = "",
        pairs: str = "",
    ) -> None:
        self.name = name
        self.machine = Machine(register_bytes, extension, dot, pairs)
        self.params = [Value(t, f"%{n}") for t, n in params]
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.parts: dict[str, Function] = {}
        self.result: Value | None = None
        self.pool: Pool | None = None
        self.variants: dict[str, None] = {}  # a part's are its kernel's
        self.digest = b""  # of the finished function, once it was asked for
        self._n = 0
        self.block = "entry"

    @property
    def register_bytes(self) -> int:
        """The bytes of all the target's vector registers together."""
        return self.machine.register_bytes

    @property
    def has_tiles(self) -> bool:
        """Whether the target has AMX."""
        return self.machine.extension == "amx"

    @property
    def dot(self) -> str:
        """The feature by which the target multiplies bytes, "" for none (see `Target`)."""
        return self.machine.dot

    @property
    def pairs(self) -> str:
        """The feature by which the target multiplies bf16, "" for none (see `Target`)."""
        return self.machine.pairs

    def takes(self, variant: str) -> None:
        """Note that the kernel has code of `variant`, which `inspect` and `explain` show and tests assert."""
        self.variants[variant] = None

    # text
    def op(self, type: str, text: str) -> Value:
        """Append `%new = text`; return it as a Value of `type`."""
        self._n += 1
        value = Value(type, f"%t{self._n}")
        self.lines.append(f"  {value.name} = {text}")
        return value

    def do(self, text: str) -> None:
        """Append an instruction without result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        """Return a new block name."""
        self._n += 1
        return f"{hint}.{self._n}"

    def start(self, block: str) -> None:
        """Begin block `block`; the previous one must have ended in a branch."""
        self.lines.append(f"{block}:")
        self.block = block

    def call(self, type: str, name: str, *args: Value, attrs: str = "") -> Value:
        """Call a function or intrinsic by name, declaring it."""
        self.declarations[name] = f"declare {type} @{name}({', '.join(a.type for a in args)})"
        text = f"call {type} @{name}({', '.join(f'{a.type} {a.name}' for a in args)}){attrs}"
        if type == "void":
            self.do(text)
            return Value("void", "")
        return self.op(type, text)

    def open_part(self, name: str, *args: Value) -> Function:
        """Return a new part, a function of parameters like `args`, whose body is still to be written."""
        part = Function(name, [], *self.machine)
        part.variants = self.variants
        for arg in args:
            part.parameter(arg)
        self.parts[name] = part
        return part

    def parameter(self, like: Value) -> Value:
        """Add a parameter and return it; what is known of `like` is known of it."""
        self.params.append(replace(like, name=f"%p{len(self.params)}"))
        return self.params[-1]

    def call_part(
        self,
        name: str,
        define: Callable[[Function], None] | None,
        *args: Value,
        key: tuple[Hashable, ...] | None = None,
    ) -> Value:
        """Call the part of that name and return its result; `define` (None: it is open) emits its body when
        it is first called.

        `key`, if given, says all that the body depends on: it is then written once for all functions.
        """
        if name not in self.parts:
            assert define is not None
            whole = (name, key, tuple(arg.type for arg in args), self.machine)
            written = None if key is None else _WRITTEN.get(whole)
            if written is not None:
                self.parts[name] = written
            else:
                define(self.open_part(name, *args))
                if key is not None and len(_WRITTEN) < MAX_WRITTEN:
                    _WRITTEN[whole] = self.parts[name]
        result = self.parts[name].result
        text = f"@{name}({', '.join(f'{a.type} {a.name}' for a in args)})"
        if result is not None:
            return self.op(result.type, f"call {result.type} {text}")
        self.do(f"call void {text}")
        return Value("void", "")

    def _signature(self) -> str:
        type = self.result.type if self.result else "void"
        return f"{type} @{self.name}({', '.join(f'{p.type} {p.name}' for p in self.params)})"

    def text(self) -> str:
        """Return the finished function with its declarations, its parts declared only."""
        return module_text([self])

    def whole_text(self) -> str:
        """Return the function with its declarations and its parts."""
        return module_text(list(self.functions().values()))

    def functions(self) -> dict[str, Function]:
        """Return the parts, those of parts before their callers, and the function itself, by name."""
        found: dict[str, Function] = {}
        for part in self.parts.values():
            for name, f in part.functions().items():
                assert found.setdefault(name, f).lines == f.lines, f"two parts named {name}"
        return {**found, self.name: self}

    def definition(self) -> list[str]:
        """Return the lines of the definition, in a section of its own: functions are linked one by one."""
        head = f'define {self._signature()} #0 section ".text.{self.name}" {{'
        result = f"{self.result.type} {self.result.name}" if self.result else "void"
        return [head, "entry:", *self._number_loads(), *self.lines, f"  ret {result}", "}"]

    def _number_loads(self) -> Iterator[str]:
        for i, value in enumerate((self.pool or {}).values()):
            if not value.name.startswith("%"):
                continue
            place = f"getelementptr ([{len(self.pool or {})} x i64], ptr @{POOL}, i64 0, i64 {i})"
            yield f"  {value.name} = load i64, ptr {place}, align 8, !invariant.load !1"

    # i64 arithmetic with folding
    def i64(self, x: Int) -> Value:
        """Return `x` as a Value."""
        if isinstance(x, FromSize) and self.pool is not None:
            return self._pooled(x, self.pool)
        return Value("i64", str(x)) if isinstance(x, int) else x

    def _pooled(self, x: FromSize, pool: Pool) -> Value:
        """Return the value that stands for `x`, a number of the table."""
        if not pool:
            self.declarations["!1"] = "!1 = !{}"
        name = f"%n{len(pool)}"
        if pool.is_patched and LEAST_WRITTEN <= x < WRITTEN_BELOW:
            name = f"ptrtoint (ptr @{NUMBER}{len(pool)} to i64)"
        return pool.setdefault((x.origin, int(x)), Value("i64", name))

    def written_numbers(self) -> Iterator[str]:
        """Yield the declarations of the numbers that are written into instructions: symbols whose addresses
        they are. Their type is empty, as LLVM takes the addresses of other variables for different ones."""
        for i, value in enumerate((self.pool or {}).values()):
            if not value.name.startswith("%"):
                yield f"@{NUMBER}{i} = external hidden global {{}}, !absolute_symbol !2"
                yield f"!2 = !{{i64 {LEAST_WRITTEN}, i64 {WRITTEN_BELOW}}}"

    def _int(self, opcode: str, fold: Callable[[int, int], int], a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self.op("i64", f"{opcode} i64 {self.i64(a).name}, {self.i64(b).name}")

    def add(self, a: Int, b: Int) -> Int:
        """a + b."""
        if a == 0:
            return b
        total = a if b == 0 else self._int("add nsw", operator.add, a, b)
        if b == 0 or not _both(a, b):
            return total
        multiple = gcd(multiple_of(a), multiple_of(b))
        return _known(total, least(a) + least(b), _top(operator.add, a, b), multiple)

    def sub(self, a: Int, b: Int) -> Int:
        """a - b."""
        if b == 0:
            return a
        rest = self._int("sub nsw", lambda x, y: x - y, a, b)
        if not isinstance(b, int) or b < 0 or least(a) < b:
            return rest
        return _known(rest, least(a) - b, _top(operator.sub, a, b), gcd(multiple_of(a), b))

    def mul(self, a: Int, b: Int) -> Int:
        """a * b."""
        if a == 1 or b == 0:
            return b
        if b == 1 or a == 0:
            return a
        product = self._int("mul nsw", operator.mul, a, b)
        if not _both(a, b):
            return product
        return _known(product, least(a) * least(b), _top(operator.mul, a, b), multiple_of(a) * multiple_of(b))

    def udiv(self, a: Int, b: Int) -> Int:
        """a // b for a >= 0, b > 0."""
        if b == 1:
            return a
        quotient = self._int("udiv", operator.floordiv, a, b)
        if not isinstance(b, int) or not b or not isinstance(a, Bounded):
            return quotient
        multiple = a.multiple // b if a.multiple % b == 0 else 1
        return _known(quotient, a.least // b, None if a.most is None else a.most // b, multiple)

    def urem(self, a: Int, b: Int) -> Int:
        """a % b for a >= 0, b > 0."""
        if isinstance(b, int) and b and multiple_of(a) % b == 0:
            return 0
        top = most(a)
        if isinstance(b, int) and b and top is not None and least(a) // b == top // b:
            return self.sub(a, top // b * b)
        return self._int("urem", operator.mod, a, b)

    def minimum(self, a: Int, b: Int) -> Int:
        """min(a, b), signed."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        for x, y in ((a, b), (b, a)):
            top = most(x)
            if top is not None and isinstance(y, int | Bounded) and top <= least(y):
                return x
        found = self.call("i64", "llvm.smin.i64", self.i64(a), self.i64(b))
        if not _both(a, b):
            return found
        tops = [top for x in (a, b) if (top := most(x)) is not None]
        multiple = gcd(multiple_of(a), multiple_of(b))
        return _known(found, min(least(a), least(b)), min(tops, default=None), multiple)

    def maximum(self, a: Int, b: Int) -> Int:
        """max(a, b), signed."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.call("i64", "llvm.smax.i64", self.i64(a), self.i64(b))

    def unravel(self, number: Int, sizes: Sequence[Int]) -> list[Int]:
        """Return the row-major place of number >= 0 along an axis of any size and those of `sizes` in it."""
        found: list[Int] = []
        for size in reversed(sizes):
            found.append(self.urem(number, size))
            number = self.udiv(number, size)
        return [number, *found[::-1]]

    def ravel(self, place: Sequence[Int], sizes: Sequence[Int]) -> Int:
        """Return the row-major number of a place along axes of `sizes`."""
        number: Int = 0
        for at, size in zip(place, sizes, strict=True):
            number = self.add(self.mul(number, size), at)
        return number

    def ceildiv(self, a: Int, b: int) -> Int:
        """ceil(a / b) for a >= 0."""
        return self.udiv(a if multiple_of(a) % b == 0 else self.add(a, b - 1), b)

    def less(self, a: Int, b: Int) -> Value:
        """a < b, signed, as i1."""
        return self.op("i1", f"icmp slt i64 {self.i64(a).name}, {self.i64(b).name}")

    def is_less(self, a: Int, b: int) -> Value | bool:
        """a < b for a >= 0, as i1 only where what is known of `a` does not decide."""
        top = most(a)
        if top is not None and top < b:
            return True
        return False if least(a) >= b else self.less(a, b)

    def select(self, condition: Value, then: Int, otherwise: Int) -> Value:
        """Return `then` where `condition` (i1) holds, else `otherwise`: two integers or two addresses."""
        a, b = self.i64(then), self.i64(otherwise)
        return self.op(a.type, f"select i1 {condition.name}, {a.type} {a.name}, {b.type} {b.name}")

    # memory
    def at(self, base: Value, element: str, index: Int) -> Value:
        """Return the address of `base[index]` for elements of LLVM type `element`."""
        if index == 0:
            return base
        return self.op(
            "ptr", f"getelementptr inbounds {element}, ptr {base.name}, i64 {self.i64(index).name}"
        )

    def load(self, type: str, address: Value, align: int = 1) -> Value:
        """Load a `type` from `address`."""
        return self.op(type, f"load {type}, ptr {address.name}, align {align}")

    def store(self, value: Value, address: Value, align: int = 1) -> None:
        """Store `value` at `address`."""
        self.do(f"store {value.type} {value.name}, ptr {address.name}, align {align}")

    def stream(self, value: Value, address: Value) -> None:
        """Store `value`, whole cache lines, past the caches; `fence` before others read it."""
        self.declarations["!0"] = "!0 = !{i32 1}"
        self.do(f"store {value.type} {value.name}, ptr {address.name}, align 64, !nontemporal !0")

    def fence(self) -> None:
        """Order nontemporal stores before all that follows."""
        self.do("fence seq_cst")

    def splat(self, value: Value, lanes: int) -> Value:
        """Return the vector with `value` in every lane."""
        vector = f"<{lanes} x {value.type}>"
        one = self.op(vector, f"insertelement {vector} poison, {value.type} {value.name}, i32 0")
        return self.op(
            vector, f"shufflevector {vector} {one.name}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    # control flow
    @contextmanager
    def loop(
        self, begin: Int, end: Int, step: Int = 1, carried: Sequence[Value] = (), nonempty: bool = False
    ) -> Iterator[Loop]:
        """for (i = begin; i < end; i += step), carrying values; `nonempty`: begin < end is known.

        In the body `loop.index` is i and `loop.carried` the carried values; finish with `loop.next(...)` if
        any are carried. After the `with`, `loop.results` holds their final values (the initial ones for no
        trip). A loop known to have one trip is its body alone. One known not to be empty (int bounds say so
        too) has its test at the end only: fewer blocks, which is what the back end's time goes by.
        `loop.index` is the counter behind llvm.expect, which costs nothing and keeps LLVM's loop strength
        reduction from seeing the addresses: on addresses of the form base + index it gains no speed and takes
        a third of the back end's time (layer norm: 5.9 -> 4.1 ms).
        """
        if _has_one_trip(begin, end, step):
            once = Loop(list(carried), self.i64(begin))
            yield once
            once.results = once.values(len(carried))
            return
        test_first = not (nonempty or _is_nonempty(begin, end))
        before, after, head = self.block, self.label("after"), self.label("head")
        self.do(f"br label %{head}")
        self.start(head)
        place = len(self.lines)  # the phis go here, once the latch is known
        index = self._fresh("i64", "i")
        phis = [self._fresh(c.type, "c") for c in carried]
        if test_first:
            body = self.label("body")
            self.do(f"br i1 {self.less(index, end).name}, label %{body}, label %{after}")
            self.start(body)
        state = Loop(list(phis), self.opaque(index))
        yield state
        values = state.values(len(phis))
        following = self.i64(self.add(index, step))
        latch = self.block
        if test_first:
            self.do(f"br label %{head}")
        else:
            self.do(f"br i1 {self.less(following, end).name}, label %{head}, label %{after}")
        initials, nexts = [self.i64(begin), *carried], [following, *values]
        self._put_phis(place, [index, *phis], (before, initials), (latch, nexts))
        self.start(after)
        state.results = phis if test_first else values

    def opaque(self, index: Value) -> Value:
        """Return an i64 of which LLVM's loop strength reduction does not see where it comes from."""
        return self.call("i64", "llvm.expect.i64", index, Value("i64", "0"))

    def _put_phis(
        self,
        place: int,
        phis: Sequence[Value],
        entry: tuple[str, list[Value]],
        latch: tuple[str, list[Value]],
    ) -> None:
        """Insert a loop's phis at `place`; `entry` and `latch` are blocks and what comes from there."""
        self.lines[place:place] = [
            f"  {phi.name} = phi {phi.type} [ {first.name}, %{entry[0]} ], [ {later.name}, %{latch[0]} ]"
            for phi, first, later in zip(phis, entry[1], latch[1], strict=True)
        ]

    @contextmanager
    def repeat(self, carried: Sequence[Value]) -> Iterator[Loop]:
        """do ... while, carrying values; finish with `loop.next(...)` and set `loop.again` (i1)."""
        before, head, after = self.block, self.label("head"), self.label("after")
        self.do(f"br label %{head}")
        self.start(head)
        place = len(self.lines)
        phis = [self._fresh(c.type, "c") for c in carried]
        state = Loop(list(phis), Value("i64", "0"))
        yield state
        state.results = state.values(len(phis))
        assert state.again is not None
        latch = self.block
        self.do(f"br i1 {state.again.name}, label %{head}, label %{after}")
        self.lines[place:place] = [
            f"  {phi.name} = phi {phi.type} [ {first.name}, %{before} ], [ {later.name}, %{latch} ]"
            for phi, first, later in zip(phis, carried, state.results, strict=True)
        ]
        self.start(after)

    def _fresh(self, type: str, letter: str) -> Value:
        self._n += 1
        return Value(type, f"%{letter}{self._n}")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body only where `condition` (i1) holds."""
        then, after = self.label("then"), self.label("after")
        self.do(f"br i1 {condition.name}, label %{then}, label %{after}")
        self.start(then)
        yield
        self.do(f"br label %{after}")
        self.start(after)

    def either(
        self, condition: Value | bool, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """Emit `then` where `condition` holds and `otherwise` where not; only one if that is known."""
        if isinstance(condition, bool):
            (then if condition else otherwise)()
            return
        with self.when(condition):
            then()
        with self.when(self.op("i1", f"xor i1 {condition.name}, true")):
            otherwise()


def module_text(functions: Sequence[Function]) -> str:
    """Return the text of a module of these functions; their parts that are not among them are declared.

    Constants of a vector's size may lie anywhere; the linker takes larger ones by their sections.
    """
    names = {f.name for f in functions}
    declared = {text for f in functions for text in f.declarations.values()}
    assert all("section" in text for text in declared if text.startswith("@")), "a table needs a section"
    declared |= {text for f in functions for text in f.written_numbers()}
    declared |= {f"@{POOL} = external hidden constant [{len(f.pool)} x i64]" for f in functions if f.pool}
    declared |= {
        f"declare {part._signature()}"
        for f in functions
        for part in f.parts.values()
        if part.name not in names
    }
    lines = sorted(declared)
    for f in functions:
        lines += f.definition()
    return "\n".join(lines) + "\n"
