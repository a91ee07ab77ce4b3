"""Which sizes of the contract a guard of main is about, read from the bytecode."""

from __future__ import annotations

from .vm.instruction import decode_all
from .vm.program import Function, Program


def joint_conditions(program: Program) -> list[frozenset[int]]:
    """Return, for each guard of main on several symbols, the indices of these symbols."""
    main = program.functions[0]
    guards = [i.pc for i in decode_all(main.code) if i.op.name == "guard"]
    found = [frozenset(condition_symbols(program, 0, pc)) for pc in guards]
    return [symbols for symbols in found if len(symbols) > 1]


def condition_symbols(program: Program, function: int, pc: int) -> set[int]:
    """Return the indices of the symbols that the guard at `pc` of a function depends on, none for other
    functions than main. A register that is written more than once counts with all that it was made of."""
    if function != 0:
        return set()
    first, n = len(program.inputs), len(program.symbols)
    read = _behind(program.functions[0], pc)
    return {register - first for register in read if first <= register < first + n}


def _behind(function: Function, pc: int) -> set[int]:
    """Return the registers that the operands of the instruction at `pc` were computed from, through int and
    bool arithmetic."""
    before = [i for i in decode_all(function.code) if i.pc <= pc]
    wanted = set(before[-1].of_kind("s"))
    for i in reversed(before[:-1]):
        if not wanted.isdisjoint(i.of_kind("d")):
            wanted.update(i.of_kind("s"))
    return wanted
