"""Abstract interpretation of a function from its arguments to its returns: both sides of branches, loops to a
fixed point."""

from __future__ import annotations

from ...jit.dependence import Mixed, Number, Shared, merged
from ...vm.instruction import Instruction, decode
from ...vm.program import Function
from .rules import Rules, Walk
from .values import BATCH, Known, State, Tensor, Unknown, layout_of

MAX_CALLS = 16  # nested calls that are followed


def _labels_of(function: Function) -> set[int]:
    """Return the jump targets."""
    found, pc = set(), 0
    while pc < len(function.code):
        i = decode(function.code, pc)
        found |= set(i.of_kind("L"))
        pc += i.size
    return found


class Flow(Rules):
    """The analysis of one function from its arguments to its `return`s."""

    def __init__(self, walk: Walk, function: Function, start: State, depth: int) -> None:
        super().__init__(walk, function)
        self.start, self.depth = start, depth
        self.returned: tuple[list[Known], State] | None = None
        self._at: dict[int, State] = {}
        self._labels = _labels_of(function)

    def run(self) -> tuple[list[Known], State]:
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
        return self.returned or ([Unknown()] * self.function.n_results, self.start)  # it never returns

    # Where ways meet
    def _meet(self, pc: int, state: State) -> bool:
        """Merge a path that leads to `pc`; return whether the state there changed."""
        old = self._at.get(pc)
        self.walk.budget.spend(1 + (len(state.registers) + len(state.storages)) // 8)
        if old is None:
            self._at[pc] = state.copy()
            return True
        new = self._joined(old, state, pc)
        if new.registers == old.registers and new.storages == old.storages:
            return False
        self._at[pc] = new
        return True

    def _joined(self, a: State, b: State, pc: int) -> State:
        storages = dict(a.storages)
        for key, layout in b.storages.items():
            storages[key] = merged(storages[key], layout, BATCH) if key in storages else layout
        made = State({}, storages)
        for register in a.registers.keys() & b.registers.keys():
            one, other = a.registers[register], b.registers[register]
            made.registers[register] = self._either(one, other, (pc, register), made)
        return made

    def _either(self, a: Known, b: Known, key: tuple[int, int], state: State) -> Known:
        if a == b:
            return a
        if isinstance(a, Number) and isinstance(b, Number):
            return Number(self.walk.prime((self.site, *key)), a.varies or b.varies)
        if isinstance(a, Tensor) and isinstance(b, Tensor) and len(a.sizes) == len(b.sizes):
            layout = merged(layout_of(a, state), layout_of(b, state), BATCH)
            storage = (-self.site - 1, hash(key) & 0xFFFFFFFF)
            if storage in state.storages:
                layout = merged(layout, state.storages[storage], BATCH)
            state.storages[storage] = layout
            sizes = tuple(
                x if x == y else Number(self.walk.prime((self.site, *key, n)), x.varies or y.varies)
                for n, (x, y) in enumerate(zip(a.sizes, b.sizes, strict=True))
            )
            return Tensor(storage, sizes)
        layouts = layout_of(a, state), layout_of(b, state)
        if all(isinstance(x, Shared) for x in layouts):
            return Unknown()
        return Unknown(Mixed.by("values of several kinds"))

    # Calls and returns
    def _do_call(self, i: Instruction, state: State) -> None:
        if self.depth == MAX_CALLS:
            for register in i["results"]:
                state.registers[register] = Unknown(Mixed.by(f"calls nested deeper than {MAX_CALLS}"))
            return
        function = self.program.functions[i["function"]]
        self.walk.budget.spend(len(function.code) + len(state.storages) // 8)
        registers = {n: state.registers[r] for n, r in enumerate(i["args"]) if r in state.registers}
        inner = State(registers, dict(state.storages))
        results, after = Flow(self.walk, function, inner, self.depth + 1).run()
        state.storages.update(after.storages)
        for register, known in zip(i["results"], results, strict=True):
            state.registers[register] = known

    def _do_return(self, i: Instruction, state: State) -> None:
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
