"""Register allocation: virtual registers of a straight list of instructions become few real ones (linear
scan).

A virtual register lives from its first to its last mention. Where a loop (a jump back) reads a register that
was written before it, the register lives to the loop's end. Instructions read all sources before they write.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from ...vm.builder import FunctionBuilder, Label
from ...vm.isa import OPCODES, OPS

READS, WRITES = "sS", "dD"


@dataclass
class Instruction:
    """An opcode with its operands by name; or, if `op` is "", the position of the operand "label"."""

    op: str
    operands: dict[str, Any]
    source: str = ""

    def registers(self, kinds: str) -> list[int]:
        """Return the registers that operands of these kinds name."""
        found: list[int] = []
        for operand in OPS[OPCODES[self.op]].operands if self.op else ():
            if operand.kind in kinds:
                value = self.operands[operand.name]
                found += value if isinstance(value, tuple) else (value,)
        return found


@dataclass
class Interval:
    """`register` is taken from time `start` to `end`; instruction i reads at 2i and writes at 2i+1."""

    register: int
    start: int
    end: int


@dataclass
class Code:
    """Instructions of one function; virtual registers 0 .. n_params - 1 are its parameters."""

    n_params: int
    instructions: list[Instruction] = field(default_factory=list)
    source: str = ""
    _n_registers: int = 0

    def __post_init__(self) -> None:
        self._n_registers = self.n_params

    def register(self) -> int:
        """Return a new virtual register."""
        self._n_registers += 1
        return self._n_registers - 1

    def op(self, name: str, /, **operands: Any) -> None:
        """Append an instruction."""
        self.instructions.append(Instruction(name, operands, self.source))

    def result(self, name: str, /, **operands: Any) -> int:
        """Append an instruction with destination `d`; return that new register."""
        register = self.register()
        self.op(name, d=register, **operands)
        return register

    def place(self, label: Label) -> None:
        """Put a label here."""
        self.instructions.append(Instruction("", {"label": label}))

    def write(self, builder: FunctionBuilder) -> None:
        """Write the instructions with real registers into `builder`."""
        real = allocate(self)
        for instruction in self.instructions:
            if not instruction.op:
                builder.place(instruction.operands["label"])
                continue
            builder.line(instruction.source)
            builder.op(instruction.op, **_renamed(instruction, real))
        builder.n_registers = max([self.n_params - 1, *real.values()]) + 1


def _renamed(instruction: Instruction, real: dict[int, int]) -> dict[str, Any]:
    operands = dict(instruction.operands)
    for operand in OPS[OPCODES[instruction.op]].operands:
        if operand.kind in READS + WRITES:
            value = operands[operand.name]
            operands[operand.name] = (
                tuple(map(real.__getitem__, value)) if isinstance(value, tuple) else real[value]
            )
    return operands


def intervals(code: Code) -> list[Interval]:
    """Return the intervals of the virtual registers, by start. Parameters start first."""
    found = {register: Interval(register, -1, -1) for register in range(code.n_params)}
    for place, instruction in enumerate(code.instructions):
        for kinds, time in ((READS, 2 * place), (WRITES, 2 * place + 1)):
            for register in instruction.registers(kinds):
                found.setdefault(register, Interval(register, time, time)).end = time
    for first, last in _loops(code):
        for interval in found.values():
            if interval.start < 2 * first <= interval.end < 2 * last:
                interval.end = 2 * last
    return sorted(found.values(), key=lambda interval: (interval.start, interval.register))


def _loops(code: Code) -> list[tuple[int, int]]:
    """Return (first, last) instruction of every loop, inner loops before outer ones."""
    places = {id(i.operands["label"]): place for place, i in enumerate(code.instructions) if not i.op}
    jumps = (
        (places[id(i.operands["target"])], at) for at, i in enumerate(code.instructions) if i.op == "jump"
    )
    return sorted(((target, at) for target, at in jumps if target < at), key=lambda loop: loop[1] - loop[0])


def allocate(code: Code) -> dict[int, int]:
    """Return the real register of every virtual one. Parameters keep their numbers."""
    real: dict[int, int] = {}
    free: list[int] = []
    taken: list[tuple[int, int]] = []  # (end, real register)
    n_registers = code.n_params
    for interval in intervals(code):
        while taken and taken[0][0] < interval.start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if interval.register < code.n_params:
            real[interval.register] = interval.register
        elif free:
            real[interval.register] = heapq.heappop(free)
        else:
            real[interval.register] = n_registers
            n_registers += 1
        heapq.heappush(taken, (interval.end, real[interval.register]))
    return real
