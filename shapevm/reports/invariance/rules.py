"""The transfer functions of the instructions: each instruction's rule is the method of its name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...jit.dependence import PART, Launch, Layout, Mixed, Number, Shared, keeps_rows, merged
from ...jit.families.matmul.spec import Matmul
from ...jit.families.table import family_of
from ...jit.spec import Body, Index, KernelSpec
from ...jit.spec_reader import from_json
from ...vm.instruction import Instruction, decode, decode_all
from ...vm.program import Function, Program
from .values import BATCH, Items, Known, State, Tensor, Unknown, layout_of

FIRST_OTHER = 2_000_003
MAX_STEPS = 1 << 20  # of analysing a program, for all its symbols together: some seconds
MAX_BITS = 4096  # of a number that represents an int
MAX_ITEMS = 4096  # of a container whose items are tracked
MAX_INTS = 1 << 16  # elements of a constant whose bounds are looked up

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
}  # fmt: skip
_ARITHMETIC |= {f"wrapping_{name}": _ARITHMETIC[name] for name in ("add", "sub", "mul")}
_TRUTHS = ("eq", "ne", "lt", "le", "and", "or", "not")


def _primes(first: int) -> Iterator[int]:
    """Yield primes from `first` on."""
    number = first
    while True:
        if all(number % d for d in range(3, int(number**0.5) + 1, 2)):
            yield number
        number += 2


class TooLong(Exception):
    """The analysis of a program takes more steps than its budget."""


class Budget:
    """The steps that the analysis of a program may still take."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Spend steps. Raises TooLong if none are left."""
        self._left -= steps
        if self._left < 0:
            raise TooLong


class Walk:
    """State shared by all functions that are analysed for one symbol."""

    def __init__(self, program: Program, symbol: str, budget: Budget) -> None:
        self.program, self.budget = program, budget
        self._primes = _primes(FIRST_OTHER)
        self._fresh: dict[object, int] = {}
        self._specs: dict[int, KernelSpec] = {}
        names = [s.name for s in program.symbols]
        self.symbols = [Number(BATCH, True) if name == symbol else Number(self.prime(name)) for name in names]
        self.control: frozenset[str] = frozenset()
        self.order: dict[str, int] = {}  # causes in order of occurrence
        self._sites = 0

    def prime(self, key: object) -> int:
        """Return a prime that represents an unknown int; the same for the same key."""
        if key not in self._fresh:
            self.budget.spend(8)
            self._fresh[key] = next(self._primes)
        return self._fresh[key]

    def new_site(self) -> int:
        """Return the number of one more analysed function."""
        self._sites += 1
        return self._sites

    def spec(self, kernel: int) -> KernelSpec:
        """Return a kernel's spec."""
        if kernel not in self._specs:
            self._specs[kernel] = from_json(self.program.kernels[kernel].spec)
        return self._specs[kernel]


def exchanged(spec: KernelSpec) -> KernelSpec | None:
    """Return a product with its one batch loop and its row loop exchanged; None for other kernels."""
    if not isinstance(spec, Matmul) or len(spec.product.batch) != 1:
        return None
    order = {0: 1, 1: 0}

    def index(places: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(i if i.loop is None else replace(i, loop=order.get(i.loop, i.loop)) for i in places)

    def body(instrs: Body) -> Body:
        return tuple(
            replace(i, index=index(i.index), loop=None if i.loop is None else order.get(i.loop, i.loop))
            for i in instrs
        )

    given = spec.product
    return spec.with_product(
        batch=(given.m,), m=given.batch[0], a_index=index(given.a_index), b_index=index(given.b_index),
        epilogue=body(given.epilogue), prologue=body(given.prologue),
    )  # fmt: skip


def _below(array: Any) -> int | None:
    """Return an exclusive upper bound of the elements of a small array of ints, None if any is negative."""
    is_few = array.dtype.kind in "iu" and 0 < array.size <= MAX_INTS
    return int(array.max()) + 1 if is_few and array.min() >= 0 else None


class Rules:
    """The rules of one function's instructions; those of calls and returns are `flow.Flow`'s."""

    def __init__(self, walk: Walk, function: Function) -> None:
        self.walk, self.function = walk, function
        self.site = walk.new_site()

    def _where(self, i: Instruction) -> str:
        return self.function.source(i.pc)

    def _blame(self, what: str, source: str, layout: Layout, before: frozenset[str]) -> Layout:
        """Return a layout whose new causes name the kernel or instruction, and the line."""
        if not isinstance(layout, Mixed):
            return layout
        place = f"{what} at {source}" if source else what
        new = {f"{place}: {cause}" for cause in layout.causes - before}
        for cause in sorted(new):
            self.walk.order.setdefault(cause, len(self.walk.order))
        return Mixed(layout.causes & before | new)

    def _step(self, i: Instruction, state: State) -> None:
        self.walk.budget.spend(i.size)
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
            return Unknown(mixed[0]) if mixed else Number(self.walk.prime((self.site, i.pc)))
        numbers = [a for a in args if isinstance(a, Number)]
        varies = any(a.varies for a in numbers)
        if i.op.name in _ARITHMETIC:
            value = _ARITHMETIC[i.op.name](*(a.value for a in numbers))
            is_product = varies and i.op.name == "mul"
            factors = [a.fixed if a.varies else a.value for a in numbers] if is_product else []
            if value.bit_length() <= MAX_BITS:
                return Number(value, varies, prod(factors))
        return Number(self.walk.prime((self.site, i.pc)), varies)

    def _do_move(self, i: Instruction, state: State) -> None:
        state.registers[i["d"]] = state.registers.get(i["a"], Unknown())

    def _do_int(self, i: Instruction, state: State) -> None:
        state.registers[i["d"]] = Number(i["value"])

    def _do_none(self, i: Instruction, state: State) -> None:
        state.registers[i["d"]] = Unknown()

    def _do_free(self, i: Instruction, state: State) -> None:
        for register in i["values"]:
            state.registers.pop(register, None)

    def _do_const(self, i: Instruction, state: State) -> None:
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

    def _sizes(self, i: Instruction, state: State) -> tuple[Number, ...]:
        return tuple(self._number(state.registers.get(r), (i.pc, n)) for n, r in enumerate(i["sizes"]))

    def _number(self, known: Known | None, key: object) -> Number:
        """Return an int; one that depends on data of rows represents a size that depends on all rows."""
        if isinstance(known, Number):
            return known
        depends = isinstance(known, Unknown) and not isinstance(known.layout, Shared)
        return Number(self.walk.prime((self.site, key)), depends)

    def _do_alloc(self, i: Instruction, state: State) -> None:
        storage, older = (self.site, i.pc), (-self.site - 1_000_000, i.pc)
        sizes = self._sizes(i, state)
        state.registers.pop(i["d"], None)
        held = state.registers.items()
        holders = [r for r, known in held if isinstance(known, Tensor) and known.storage == storage]
        if holders:  # from the loop's previous iteration
            layout = state.storages.get(storage, Shared())
            known = state.storages.get(older)
            state.storages[older] = layout if known is None else merged(known, layout, BATCH)
            for r in holders:
                old = state.registers[r]
                assert isinstance(old, Tensor)
                state.registers[r] = Tensor(older, old.sizes)
        state.storages.pop(storage, None)  # undefined: its first write defines all of its content
        state.registers[i["d"]] = Tensor(storage, sizes)

    def _do_view(self, i: Instruction, state: State) -> None:
        old = state.registers.get(i["a"])
        sizes = self._sizes(i, state)
        if isinstance(old, Tensor):
            state.registers[i["d"]] = Tensor(old.storage, sizes)
            return
        storage = (self.site, i.pc)
        state.storages[storage] = layout_of(old, state)
        state.registers[i["d"]] = Tensor(storage, sizes)

    def _do_part(self, i: Instruction, state: State) -> None:
        layout = layout_of(state.registers.get(i["a"]), state)
        begin = self._number(state.registers.get(i["begin"]), (i.pc, "begin"))
        storage = (self.site, i.pc)
        is_kept = keeps_rows(layout, begin, BATCH)
        state.storages[storage] = layout if is_kept else self._mixed("part", i, [layout], PART)
        state.registers[i["d"]] = Tensor(storage, self._sizes(i, state))

    def _do_dim(self, i: Instruction, state: State) -> None:
        known = state.registers.get(i["a"])
        if isinstance(known, Tensor) and i["axis"] < len(known.sizes):
            state.registers[i["d"]] = known.sizes[i["axis"]]
        else:
            state.registers[i["d"]] = Unknown(layout_of(known, state))

    def _do_scalar(self, i: Instruction, state: State) -> None:
        known = state.registers.get(i["a"])
        storage = (self.site, i.pc)
        layout = layout_of(known, state)
        if isinstance(known, Number) and known.varies:
            layout = self._mixed("a size as a number", i, [], "uses the number of rows")
        state.storages[storage] = layout
        state.registers[i["d"]] = Tensor(storage, ())

    def _do_item(self, i: Instruction, state: State) -> None:
        layout = layout_of(state.registers.get(i["a"]), state)
        at = [self._number(state.registers.get(r), (i.pc, n)) for n, r in enumerate(i["at"])]
        if isinstance(layout, Shared) and not any(place.varies for place in at):
            state.registers[i["d"]] = Number(self.walk.prime((self.site, i.pc)))
            return
        state.registers[i["d"]] = Unknown(self._mixed("item", i, [layout], "reads the data of rows"))

    def _do_list(self, i: Instruction, state: State) -> None:
        found = Items(tuple(state.registers.get(r, Unknown()) for r in i["values"]))
        state.registers[i["d"]] = found if found.n <= MAX_ITEMS else Unknown(layout_of(found, state))

    _do_tuple = _do_list

    def _do_get(self, i: Instruction, state: State) -> None:
        known, key = state.registers.get(i["a"]), state.registers.get(i["key"])
        if isinstance(known, Items) and isinstance(key, Number) and 0 <= key.value < len(known.items):
            state.registers[i["d"]] = known.items[key.value]
        else:
            state.registers[i["d"]] = Unknown(layout_of(known, state))

    def _do_branch(self, i: Instruction, state: State) -> None:
        if self._is_choice(i):
            return
        known = state.registers.get(i["cond"])
        layout = layout_of(known, state)
        if isinstance(known, Number) and known.varies:
            layout = self._mixed("a branch", i, [], "depends on the number of rows")
        elif not isinstance(layout, Shared):
            layout = self._mixed("a branch", i, [layout], "reads the data of rows")
        if isinstance(layout, Mixed):
            self.walk.control |= layout.causes

    def _is_choice(self, branch: Instruction) -> bool:
        """Whether a branch chooses by sizes between two launches that differ only in the order of the batch
        and row loops of a product, on the same tensors, and so have the same bits."""
        code = self.function.code
        if branch.pc + branch.size == len(code):
            return False
        launch = decode(code, branch.pc + branch.size)
        if launch.op.name != "kernel" or launch.pc + launch.size != branch["otherwise"]:
            return False
        spec = exchanged(self.walk.spec(launch["kernel"]))
        if spec is None:
            return False
        operands = launch["buffers"], launch["dims"]
        self.walk.budget.spend(len(code))
        others = (i for i in decode_all(code) if i.op.name == "kernel")
        return any(
            (i["buffers"], i["dims"]) == operands and self.walk.spec(i["kernel"]) == spec for i in others
        )

    def _do_guard(self, i: Instruction, state: State) -> None:
        """A guard changes no result."""

    _do_expect = _do_expect_items = _do_jump = _do_fail = _do_guard

    def _do_kernel(self, i: Instruction, state: State) -> None:
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
            if not isinstance(tensor, Tensor):  # the launch fails
                continue
            found = self._blame(kernel.label, source, layout, before)
            if tensor.storage[0] <= -self.site - 1:  # represents several
                found = merged(found, state.storages.get(tensor.storage, found), BATCH)
            state.storages[tensor.storage] = found
