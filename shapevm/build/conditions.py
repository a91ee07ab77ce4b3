"""The sizes of the contract that a guard of main depends on, read from the bytecode."""

from __future__ import annotations

from ..vm.instruction import decode_all
from ..vm.program import Function, Program


def joint_conditions(program: Program) -> list[frozenset[int]]:
    """Return, for each guard of main on several symbols, the indices of these symbols."""
    main = program.functions[0]
    guards = [i.pc for i in decode_all(main.code) if i.op.name == "guard"]
    found = [frozenset(condition_symbols(program, 0, pc)) for pc in guards]
    return [symbols for symbols in found if len(symbols) > 1]


def condition_symbols(program: Program, function: int, pc: int) -> set[int]:
    """Return the indices of the symbols that the guard at `pc` of a function depends on, none for functions
    other than main. A register that is written more than once counts with all of its sources."""
    if function != 0:
        return set()
    first, n = len(program.inputs), len(program.symbols)
    read, _ = _behind(program.functions[0], pc)
    return {register - first for register in read if first <= register < first + n}


def is_joint(program: Program, function: int, pc: int) -> bool:
    """Return True for a guard of main that may hold for other sizes or data: it depends on several symbols,
    or on a number that is read from a tensor."""
    if len(condition_symbols(program, function, pc)) > 1:
        return True
    return function == 0 and "item" in _behind(program.functions[0], pc)[1]


def _behind(function: Function, pc: int) -> tuple[set[int], set[str]]:
    """Return the registers that the operands of the instruction at `pc` were computed from, through int and
    bool arithmetic, and the names of the instructions that did so."""
    before = [i for i in decode_all(function.code) if i.pc <= pc]
    wanted, names = set(before[-1].of_kind("s")), set()
    for i in reversed(before[:-1]):
        if not wanted.isdisjoint(i.of_kind("d")):
            wanted.update(i.of_kind("s"))
            names.add(i.op.name)
    return wanted, names
