"""Whether a program treats the rows of a batch one by one, decided from its bytecode and kernel specs.

For one symbol of the contract the program is followed without running it: every tensor has a layout
(`jit.dependence`) that says which row each of its elements depends on. What takes more than its row into
account is named by kernel and model line. Branches are followed both ways, loops until nothing changes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .jit.dependence import Alike, Launch, Layout, Mixed, Number, Positions, Rows, Shared, merged
from .jit.families.matmul.spec import Matmul
from .jit.families.table import family_of
from .jit.spec import Body, Index, KernelSpec
from .jit.spec_reader import from_json
from .vm.instruction import Instruction, decode, decode_all
from .vm.program import Function, Program

MAX_CALLS = 16  # nested calls that are followed
BATCH = 1_000_003  # the symbol under test; primes that nothing else has as a factor
FIRST_OTHER = 2_000_003
MAX_INTS = 1 << 16  # elements of a constant whose bounds are looked up
AMX = "x86-64-v4-amx"


def _primes(first: int) -> Iterator[int]:
    """Yield primes from `first` on."""
    number = first
    while True:
        if all(number % d for d in range(3, int(number**0.5) + 1, 2)):
            yield number
        number += 2


@dataclass(frozen=True)
class Tensor:
    """A tensor in a register: where its elements are, and its sizes."""

    storage: tuple[int, int]
    sizes: tuple[Number, ...]


@dataclass(frozen=True)
class Items:
    """A list, tuple or dict whose items are known; `keys` of a dict."""

    items: tuple[Known, ...]


@dataclass(frozen=True)
class Unknown:
    """A value of which nothing is known but what it depends on."""

    layout: Layout = field(default_factory=Shared)


Known = Number | Tensor | Items | Unknown


@dataclass(frozen=True)
class Verdict:
    """What one result of a program depends on: `layout`, of `sizes` at BATCH rows."""

    name: str
    layout: Layout
    sizes: tuple[Number, ...]
    order: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def causes(self) -> list[str]:
        """Why the result is not each row's own, in the program's order; empty where it is."""
        found = self.layout.causes if isinstance(self.layout, Mixed) else ()
        return sorted(found, key=lambda cause: (self.order.get(cause, -1), cause))

    @property
    def inner(self) -> int | None:
        """How many elements of one row lie side by side, in units of BATCH; None: it has no rows."""
        if isinstance(self.layout, Alike):
            return self.layout.inner * (self.layout.count // BATCH)
        return self.layout.inner if isinstance(self.layout, Rows) else None

    @property
    def place(self) -> tuple[int, bool] | None:
        """The axis that holds the rows, and whether a row's elements along it lie side by side (else they are
        as many apart as there are rows); None where no one axis does."""
        stride = 1
        for axis in reversed(range(len(self.sizes))):
            size = self.sizes[axis].value
            if size and size % BATCH == 0 and self.inner is not None and self.inner % stride == 0:
                if size // BATCH == self.inner // stride:
                    return axis, True
                if self.inner == stride:
                    return axis, False
            stride *= max(size, 1)
        return None


@dataclass
class _State:
    """Registers, and the layout of each storage, at one place of a function."""

    registers: dict[int, Known]
    storages: dict[tuple[int, int], Layout]

    def copy(self) -> _State:
        return _State(dict(self.registers), dict(self.storages))


class Walk:
    """Main followed for one symbol. `run()` gives the results and their layouts."""

    def __init__(self, program: Program, symbol: str) -> None:
        self.program = program
        self._primes = _primes(FIRST_OTHER)
        self._fresh: dict[object, int] = {}
        self._specs: dict[int, KernelSpec] = {}
        names = [s.name for s in program.symbols]
        self.symbols = [
            Number(BATCH, True) if name == symbol else Number(self._prime(name)) for name in names
        ]
        self.control: frozenset[str] = frozenset()
        self.order: dict[str, int] = {}  # causes as they were met
        self._sites = 0

    def _prime(self, key: object) -> int:
        """Return a prime that stands for an int of which nothing is known; the same for the same key."""
        if key not in self._fresh:
            self._fresh[key] = next(self._primes)
        return self._fresh[key]

    def run(self) -> list[Verdict]:
        """Return what each result of main depends on."""
        state = _State({}, {})
        for i, row in enumerate(self.program.inputs):
            if row.kind == "tensor":
                sizes = tuple(self._axis_size(a.symbol, a.scale, a.offset) for a in row.axes)
                state.registers[i] = Tensor((-1, i), sizes)
                state.storages[-1, i] = self._input_layout(row.name, sizes)
            else:
                known = self.symbols[row.symbol] if row.symbol is not None else Number(self._prime(row.name))
                state.registers[i] = known if row.kind == "int" else Unknown()
        for i, number in enumerate(self.symbols):
            state.registers[len(self.program.inputs) + i] = number
        results, state = _Flow(self, self.program.functions[0], state, 0).run()
        return [
            self._verdict(output.name, known, state)
            for output, known in zip(self.program.outputs, results, strict=True)
        ]

    def _axis_size(self, symbol: int | None, scale: int, offset: int) -> Number:
        if symbol is None:
            return Number(offset)
        known = self.symbols[symbol]
        return Number(scale * known.value + offset, known.varies)

    @staticmethod
    def _input_layout(name: str, sizes: Sequence[Number]) -> Layout:
        """Return an input's layout: its one axis of rows is the one that has the symbol."""
        found = [a for a, size in enumerate(sizes) if size.varies]
        if not found:
            return Shared()
        if len(found) > 1 or sizes[found[0]].value % BATCH:
            return Mixed.by(f"input {name}: its sizes are not so many for each row")
        inner = sizes[found[0]].value // BATCH
        for size in sizes[found[0] + 1 :]:
            inner *= size.value
        return Rows(inner) if inner else Alike(1, BATCH)

    def _verdict(self, name: str, known: Known, state: _State) -> Verdict:
        layout = layout_of(known, state)
        if isinstance(layout, Positions):
            layout = Mixed.by(f"result {name}: the rows' numbers")
        if self.control:
            layout = Mixed(self.control | (layout.causes if isinstance(layout, Mixed) else frozenset()))
        if isinstance(known, Number) and known.varies:
            layout = Mixed.by(f"result {name}: the number of rows")
        verdict = Verdict(name, layout, known.sizes if isinstance(known, Tensor) else (), self.order)
        varying = [axis for axis, size in enumerate(verdict.sizes) if size.varies]
        is_square = any(verdict.sizes[axis].value % BATCH**2 == 0 for axis in varying)  # n rows for each of n
        if verdict.causes or (varying == [p[0] for p in (verdict.place,) if p] and not is_square):
            return verdict
        return replace(verdict, layout=Mixed.by(f"result {name}: its sizes are not so many for each row"))

    def spec(self, kernel: int) -> KernelSpec:
        """Return a kernel's spec."""
        if kernel not in self._specs:
            self._specs[kernel] = from_json(self.program.kernels[kernel].spec)
        return self._specs[kernel]


def exchanged(spec: KernelSpec) -> KernelSpec | None:
    """Return a product with its one batch loop and its row loop exchanged; None for other kernels."""
    if type(spec) is not Matmul or len(spec.batch) != 1:
        return None
    order = {0: 1, 1: 0}

    def index(places: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(i if i.loop is None else replace(i, loop=order.get(i.loop, i.loop)) for i in places)

    def body(instrs: Body) -> Body:
        return tuple(
            replace(i, index=index(i.index), loop=None if i.loop is None else order.get(i.loop, i.loop))
            for i in instrs
        )

    return replace(
        spec, batch=(spec.m,), m=spec.batch[0], a_index=index(spec.a_index), b_index=index(spec.b_index),
        epilogue=body(spec.epilogue), prologue=body(spec.prologue),
    )  # fmt: skip


def _below(array: Any) -> int | None:
    """Return what all elements of an array of few ints are below, None where they are not from 0 up."""
    is_few = array.dtype.kind in "iu" and 0 < array.size <= MAX_INTS
    return int(array.max()) + 1 if is_few and array.min() >= 0 else None


def layout_of(known: Known | None, state: _State) -> Layout:
    """Return the layout of what a register holds; that of a container is its items' together."""
    if isinstance(known, Tensor):
        return state.storages.get(known.storage, Shared())
    if isinstance(known, Items):
        causes = [layout_of(item, state) for item in known.items]
        mixed = [x for x in causes if isinstance(x, Mixed)]
        if mixed:
            return Mixed(frozenset().union(*(x.causes for x in mixed)))
        return Shared() if all(isinstance(x, Shared) for x in causes) else Mixed.by("a container of rows")
    return known.layout if isinstance(known, Unknown) else Shared()


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
}  # fmt: skip
_TRUTHS = ("eq", "ne", "lt", "le", "and", "or", "not")


def _labels_of(function: Function) -> set[int]:
    """Return the places that are jumped to."""
    found, pc = set(), 0
    while pc < len(function.code):
        i = decode(function.code, pc)
        found |= set(i.of_kind("L"))
        pc += i.size
    return found


class _Flow:
    """One function followed from its arguments to its `return`s."""

    def __init__(self, walk: Walk, function: Function, start: _State, depth: int) -> None:
        self.walk, self.function, self.depth = walk, function, depth
        self.start = start
        walk._sites += 1
        self.site = walk._sites
        self.returned: tuple[list[Known], _State] | None = None
        self._at: dict[int, _State] = {}
        self._widened: set[tuple[int, int]] = set()
        self._labels = _labels_of(function)

    def run(self) -> tuple[list[Known], _State]:
        """Return the results and the state at the end."""
        waiting = {0}
        self._at[0] = self.start
        while waiting:
            pc = min(waiting)
            waiting.discard(pc)
            state = self._at[pc].copy()
            while True:
                i = decode(self.function.code, pc)
                ends = "ends" in i.op.flags
                self._step(i, state)
                for target in i.of_kind("L"):
                    if self._meet(target, state):
                        waiting.add(target)
                pc += i.size
                if ends:
                    break
                if pc in self._labels:
                    if self._meet(pc, state):
                        waiting.add(pc)
                    break
        assert self.returned is not None
        return self.returned

    # Where ways meet
    def _meet(self, pc: int, state: _State) -> bool:
        """Add a way that leads to `pc`; return whether more is known there now."""
        old = self._at.get(pc)
        if old is None:
            self._at[pc] = state.copy()
            return True
        new = self._joined(old, state, pc)
        if new.registers == old.registers and new.storages == old.storages:
            return False
        self._at[pc] = new
        return True

    def _joined(self, a: _State, b: _State, pc: int) -> _State:
        storages = dict(a.storages)
        for key, layout in b.storages.items():
            storages[key] = merged(storages[key], layout, BATCH) if key in storages else layout
        made = _State({}, storages)
        for register in a.registers.keys() & b.registers.keys():
            one, other = a.registers[register], b.registers[register]
            made.registers[register] = self._either(one, other, (pc, register), made)
        return made

    def _either(self, a: Known, b: Known, key: tuple[int, int], state: _State) -> Known:
        if a == b:
            return a
        if isinstance(a, Number) and isinstance(b, Number):
            return Number(self.walk._prime((self.site, *key)), a.varies or b.varies)
        if isinstance(a, Tensor) and isinstance(b, Tensor) and len(a.sizes) == len(b.sizes):
            layout = merged(layout_of(a, state), layout_of(b, state), BATCH)
            storage = (-self.site - 1, hash(key) & 0xFFFFFFFF)
            if storage in state.storages:
                layout = merged(layout, state.storages[storage], BATCH)
            state.storages[storage] = layout
            sizes = tuple(
                x if x == y else Number(self.walk._prime((self.site, *key, n)), x.varies or y.varies)
                for n, (x, y) in enumerate(zip(a.sizes, b.sizes, strict=True))
            )
            return Tensor(storage, sizes)
        layouts = layout_of(a, state), layout_of(b, state)
        if all(isinstance(x, Shared) for x in layouts):
            return Unknown()
        return Unknown(Mixed.by("values of several kinds"))

    # Instructions
    def _where(self, i: Instruction) -> str:
        return self.function.source(i.pc)

    def _blame(self, what: str, source: str, layout: Layout, before: frozenset[str]) -> Layout:
        """Return a layout whose new causes say which kernel or instruction, and which line."""
        if not isinstance(layout, Mixed):
            return layout
        place = f"{what} at {source}" if source else what
        new = {f"{place}: {cause}" for cause in layout.causes - before}
        for cause in sorted(new):
            self.walk.order.setdefault(cause, len(self.walk.order))
        return Mixed(layout.causes & before | new)

    def _step(self, i: Instruction, state: _State) -> None:
        rule = getattr(self, f"_do_{i.op.name}", None)
        if rule is not None:
            rule(i, state)
            return
        args = [state.registers.get(r) for r in i.of_kind("sS")]
        if i.op.name in _ARITHMETIC or i.op.name in _TRUTHS:
            state.registers[i["d"]] = self._arithmetic(i, args)
            return
        layouts = [layout_of(a, state) for a in args]
        varies = any(isinstance(a, Number) and a.varies for a in args)
        plain = all(isinstance(x, Shared) for x in layouts) and not varies
        what = self.program.strings[i["name"]] if i.op.name in ("call_packed", "call_dps") else i.op.name
        made = Unknown() if plain else Unknown(self._mixed(what, i, layouts, "takes all rows"))
        for register in i.of_kind("dD"):
            state.registers[register] = made

    def _mixed(self, what: str, i: Instruction, layouts: Sequence[Layout], cause: str) -> Layout:
        before = frozenset().union(*(x.causes for x in layouts if isinstance(x, Mixed)))
        return self._blame(what, self._where(i), Mixed(before or frozenset({cause})), before)

    def _arithmetic(self, i: Instruction, args: Sequence[Known | None]) -> Known:
        if not all(isinstance(a, Number) for a in args):
            mixed = [a.layout for a in args if isinstance(a, Unknown) and not isinstance(a.layout, Shared)]
            return Unknown(mixed[0]) if mixed else Number(self.walk._prime((self.site, i.pc)))
        numbers = [a for a in args if isinstance(a, Number)]
        varies = any(a.varies for a in numbers)
        if i.op.name in _ARITHMETIC:
            value = _ARITHMETIC[i.op.name](*(a.value for a in numbers))
            return Number(value, varies)
        return Number(self.walk._prime((self.site, i.pc)), varies)

    def _do_move(self, i: Instruction, state: _State) -> None:
        state.registers[i["d"]] = state.registers[i["a"]]

    def _do_int(self, i: Instruction, state: _State) -> None:
        state.registers[i["d"]] = Number(i["value"])

    def _do_none(self, i: Instruction, state: _State) -> None:
        state.registers[i["d"]] = Unknown()

    def _do_free(self, i: Instruction, state: _State) -> None:
        for register in i["values"]:
            state.registers.pop(register, None)

    def _do_const(self, i: Instruction, state: _State) -> None:
        constant = self.program.constants[i["value"]]
        if constant.dtype is not None:
            storage = (-2_000_000, i["value"])
            state.storages[storage] = Shared(_below(constant.value))
            state.registers[i["d"]] = Tensor(storage, tuple(map(Number, constant.value.shape)))
        else:
            value = constant.value
            state.registers[i["d"]] = Number(value) if type(value) is int else Unknown()

    @property
    def program(self) -> Program:
        """The program."""
        return self.walk.program

    def _sizes(self, i: Instruction, state: _State) -> tuple[Number, ...]:
        return tuple(self._number(state.registers.get(r), (i.pc, n)) for n, r in enumerate(i["sizes"]))

    def _number(self, known: Known | None, key: object) -> Number:
        """Return an int; one that depends on data of rows stands for a size that hangs on them all."""
        if isinstance(known, Number):
            return known
        depends = isinstance(known, Unknown) and not isinstance(known.layout, Shared)
        return Number(self.walk._prime((self.site, key)), depends)

    def _do_alloc(self, i: Instruction, state: _State) -> None:
        storage, older = (self.site, i.pc), (-self.site - 1_000_000, i.pc)
        sizes = self._sizes(i, state)
        state.registers.pop(i["d"], None)
        held = state.registers.items()
        holders = [r for r, known in held if isinstance(known, Tensor) and known.storage == storage]
        if holders:  # from the loop's iteration before
            layout = state.storages.get(storage, Shared())
            known = state.storages.get(older)
            state.storages[older] = layout if known is None else merged(known, layout, BATCH)
            for r in holders:
                old = state.registers[r]
                assert isinstance(old, Tensor)
                state.registers[r] = Tensor(older, old.sizes)
        state.storages.pop(storage, None)  # undefined: what is written first is all that it holds
        state.registers[i["d"]] = Tensor(storage, sizes)

    def _do_view(self, i: Instruction, state: _State) -> None:
        old = state.registers[i["a"]]
        sizes = self._sizes(i, state)
        if isinstance(old, Tensor):
            state.registers[i["d"]] = Tensor(old.storage, sizes)
            return
        storage = (self.site, i.pc)
        state.storages[storage] = layout_of(old, state)
        state.registers[i["d"]] = Tensor(storage, sizes)

    def _do_dim(self, i: Instruction, state: _State) -> None:
        known = state.registers.get(i["a"])
        if isinstance(known, Tensor) and i["axis"] < len(known.sizes):
            state.registers[i["d"]] = known.sizes[i["axis"]]
        else:
            state.registers[i["d"]] = Unknown(layout_of(known, state))

    def _do_scalar(self, i: Instruction, state: _State) -> None:
        known = state.registers.get(i["a"])
        storage = (self.site, i.pc)
        layout = layout_of(known, state)
        if isinstance(known, Number) and known.varies:
            layout = self._mixed("a size as a number", i, [], "uses the number of rows")
        state.storages[storage] = layout
        state.registers[i["d"]] = Tensor(storage, ())

    def _do_item(self, i: Instruction, state: _State) -> None:
        layout = layout_of(state.registers.get(i["a"]), state)
        if isinstance(layout, Shared):
            state.registers[i["d"]] = Number(self.walk._prime((self.site, i.pc)))
            return
        state.registers[i["d"]] = Unknown(self._mixed("item", i, [layout], "reads the data of rows"))

    def _do_list(self, i: Instruction, state: _State) -> None:
        state.registers[i["d"]] = Items(tuple(state.registers[r] for r in i["values"]))

    _do_tuple = _do_list

    def _do_get(self, i: Instruction, state: _State) -> None:
        known, key = state.registers.get(i["a"]), state.registers.get(i["key"])
        if isinstance(known, Items) and isinstance(key, Number) and key.value < len(known.items):
            state.registers[i["d"]] = known.items[key.value]
        else:
            state.registers[i["d"]] = Unknown(layout_of(known, state))

    def _do_branch(self, i: Instruction, state: _State) -> None:
        if self._is_choice(i):
            return
        known = state.registers.get(i["cond"])
        layout = layout_of(known, state)
        if isinstance(known, Number) and known.varies:
            layout = self._mixed("a branch", i, [], "asks for the number of rows")
        elif not isinstance(layout, Shared):
            layout = self._mixed("a branch", i, [layout], "reads the data of rows")
        if isinstance(layout, Mixed):
            self.walk.control |= layout.causes

    def _is_choice(self, branch: Instruction) -> bool:
        """Whether a branch is about one launch, and another launch is the same product with its batch and row
        loops exchanged, on the same tensors: sizes choose between the two, which have the same bits."""
        code = self.function.code
        launch = decode(code, branch.pc + branch.size)
        if launch.op.name != "kernel" or launch.pc + launch.size != branch["otherwise"]:
            return False
        spec = exchanged(self.walk.spec(launch["kernel"]))
        if spec is None:
            return False
        operands = launch["buffers"], launch["dims"]
        others = (i for i in decode_all(code) if i.op.name == "kernel")
        return any(
            (i["buffers"], i["dims"]) == operands and self.walk.spec(i["kernel"]) == spec for i in others
        )

    def _do_guard(self, i: Instruction, state: _State) -> None:
        """A guard changes no result."""

    _do_expect = _do_jump = _do_fail = _do_guard

    def _do_kernel(self, i: Instruction, state: _State) -> None:
        kernel = self.program.kernels[i["kernel"]]
        dims = [self._number(state.registers.get(r), (i.pc, n)) for n, r in enumerate(i["dims"])]
        tensors = [state.registers.get(r) for r in i["buffers"]]
        inputs = [
            Shared() if buffer.is_output else layout_of(tensor, state)
            for buffer, tensor in zip(kernel.buffers, tensors, strict=True)
        ]
        before = frozenset().union(*(x.causes for x in inputs if isinstance(x, Mixed)))
        spec = self.walk.spec(i["kernel"])
        launch = Launch(spec, dims, inputs, BATCH)
        family_of(spec).follow(launch, spec)
        made = launch.written
        source = self._where(i) or kernel.source
        for buffer, layout in made.items():
            tensor = tensors[buffer]
            assert isinstance(tensor, Tensor)
            found = self._blame(kernel.label, source, layout, before)
            if tensor.storage[0] <= -self.site - 1:  # stands for several
                found = merged(found, state.storages.get(tensor.storage, found), BATCH)
            state.storages[tensor.storage] = found

    def _do_call(self, i: Instruction, state: _State) -> None:
        if self.depth == MAX_CALLS:
            for register in i["results"]:
                state.registers[register] = Unknown(Mixed.by(f"calls nested deeper than {MAX_CALLS}"))
            return
        function = self.program.functions[i["function"]]
        registers = {n: state.registers[r] for n, r in enumerate(i["args"]) if r in state.registers}
        inner = _State(registers, dict(state.storages))
        results, after = _Flow(self.walk, function, inner, self.depth + 1).run()
        state.storages.update(after.storages)
        for register, known in zip(i["results"], results, strict=True):
            state.registers[register] = known

    def _do_return(self, i: Instruction, state: _State) -> None:
        results: list[Known] = [state.registers.get(r, Unknown()) for r in i["values"]]
        if self.returned is None:
            self.returned = results, state.copy()
            return
        old, before = self.returned
        both = self._joined(before, state, -1)
        self.returned = (
            [self._either(a, b, (-1, n), both) for n, (a, b) in enumerate(zip(old, results, strict=True))],
            both,
        )


def verdicts(program: Program, symbol: str) -> list[Verdict]:
    """Return what each result of `program` depends on along `symbol` of its contract."""
    return Walk(program, symbol).run()


def row_symbols(program: Program) -> dict[str, list[Verdict]]:
    """Return the verdicts of every symbol that is the size of some input's axis. Raises ValueError for a
    kernel spec that cannot be read."""
    bound = {a.symbol for row in program.inputs for a in row.axes} - {None}
    return {s.name: verdicts(program, s.name) for i, s in enumerate(program.symbols) if i in bound}


def along(found: Mapping[str, Sequence[Verdict]]) -> dict[str, dict[str, list[str]]]:
    """Return the causes of each symbol's verdicts, by result; none where a result is each row's own."""
    return {name: {v.name: v.causes for v in verdicts} for name, verdicts in found.items()}


def along_text(causes_of: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return what `along` gave for people."""
    lines = []
    for symbol, results in causes_of.items():
        bad = {name: causes for name, causes in results.items() if causes}
        if not bad:
            lines.append(f"invariant along {symbol}: a row's results depend on nothing but the row")
            continue
        kept = ", ".join(name for name in results if name not in bad)
        rest = f" (but {kept} is)" if kept else ""
        lines.append(f"not invariant along {symbol}: {', '.join(bad)}{rest}")
        causes = dict.fromkeys(cause for each in bad.values() for cause in each)
        lines += [f"  {cause}" for cause in list(causes)[:8]]
    return lines


def exceptions(program: Program) -> list[str]:
    """Return what code of `program` has bits that hang on the number of rows: products on AMX tiles."""
    from .jit.families.matmul.amx import MIN_ROWS

    found = []
    for number, kernel in enumerate(program.kernels):
        if any(o.target == AMX for o in kernel.objects):
            spec = from_json(kernel.spec)
            if family_of(spec).extension(spec) == "amx":
                found.append(
                    f"k{number} {kernel.label} on {AMX}: with {MIN_ROWS} rows and more its products are sums "
                    "of bf16 products; compile for x86-64-v4 to have the same bits in any batch"
                )
    return found


__all__: Sequence[str] = ("Verdict", "along", "along_text", "exceptions", "row_symbols", "verdicts")
