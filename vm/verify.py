"""The verifier: the requirements on bytecode before it runs, as a table of rules.

runtime_c/program/verify.c checks the same rules in the same order; tests compare both on random mutated
programs. Tags of values are checked at run time, so the rules concern structure only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import VerifyError
from .instruction import Instruction, decode
from .isa import DTYPES, STRING_FUNCTIONS
from .layout import LIMITS
from .program import Function, Program

#: A rule for one instruction: returns its violation, or None.
Rule = Callable[[Program, Function, Instruction], str | None]
MAX_RANK = LIMITS["RANK"][0]


def _registers(_: Program, f: Function, i: Instruction) -> str | None:
    worst = max(i.of_kind("dsDS"), default=-1)
    return f"register {worst} of {f.n_registers}" if worst >= f.n_registers else None


def _destinations(_: Program, __: Function, i: Instruction) -> str | None:
    written = list(i.of_kind("D"))
    return "a register is written twice" if len(set(written)) != len(written) else None


def _indices(p: Program, _: Function, i: Instruction) -> str | None:
    tables = {
        "t": ("dtype", len(DTYPES)),
        "x": ("function of strings", len(STRING_FUNCTIONS)),
        "c": ("constant", len(p.constants)),
        "k": ("kernel", len(p.kernels)),
    }
    tables |= {"f": ("function", len(p.functions)), "n": ("string", len(p.strings))}
    for operand in i.op.operands:
        what, count = tables.get(operand.kind, ("", 0))
        if what and i[operand.name] >= count:
            return f"{what} {i[operand.name]} of {count}"
    return None


def _return(_: Program, f: Function, i: Instruction) -> str | None:
    if i.op.name != "return" or len(i["values"]) == f.n_results:
        return None
    return f"{len(i['values'])} values; the function has {f.n_results} results"


def _call(p: Program, _: Function, i: Instruction) -> str | None:
    if i.op.name != "call":
        return None
    callee, n_args, n_results = p.functions[i["function"]], len(i["args"]), len(i["results"])
    if n_args == callee.n_params and n_results == callee.n_results:
        return None
    return f"{n_args} args, {n_results} results; {callee.name!r} has {callee.n_params} and {callee.n_results}"


def _kernel(p: Program, _: Function, i: Instruction) -> str | None:
    if i.op.name != "kernel":
        return None
    kernel, n_dims, n_buffers = p.kernels[i["kernel"]], len(i["dims"]), len(i["buffers"])
    if n_dims == kernel.n_dims and n_buffers == len(kernel.buffers):
        return None
    return (
        f"{n_dims} dims, {n_buffers} buffers; {kernel.label!r} has {kernel.n_dims} and {len(kernel.buffers)}"
    )


def _rank(_: Program, __: Function, i: Instruction) -> str | None:
    if i.op.name in ("alloc", "view", "expect") and len(i["sizes"]) > MAX_RANK:
        return f"{len(i['sizes'])} sizes; at most {MAX_RANK} are allowed"
    if i.op.name == "dim" and not 0 <= i["axis"] < MAX_RANK:
        return f"axis {i['axis']}; it must be 0 to {MAX_RANK - 1}"
    return None


def _pairs(_: Program, __: Function, i: Instruction) -> str | None:
    return "an odd number of items" if i.op.name == "dict" and len(i["items"]) % 2 else None


def _outputs(_: Program, __: Function, i: Instruction) -> str | None:
    if i.op.name != "call_dps":
        return None
    outputs = set(i["outputs"])
    distinct = len(outputs) == len(i["outputs"]) and not outputs & set(i["args"])
    return None if distinct else "a register is an output and another operand as well"


def _string(_: Program, __: Function, i: Instruction) -> str | None:
    if i.op.name != "text":
        return None
    name, row = list(STRING_FUNCTIONS.items())[i["function"]]
    n = len(i["args"])
    return None if n == len(row.takes) else f"{n} args; {name} takes {len(row.takes)}"


#: In the order of docs/artifact.md, rules 3 to 12 (1 and 2 are `decode`'s).
RULES: tuple[Rule, ...] = (
    _registers, _destinations, _indices, _return, _call, _kernel, _rank, _pairs, _outputs, _string,
)  # fmt: skip


@dataclass(frozen=True)
class Verified:
    """The verifier's results for a function."""

    starts: frozenset[int]
    calls: frozenset[int]
    reads_data: bool  # it directly contains an instruction with the flag `data`


def _fail(program: Program, index: int, pc: int, sentence: str) -> VerifyError:
    function = program.functions[index]
    return VerifyError(
        f"function {function.name!r}, word {pc}: {sentence}",
        function=index,
        pc=pc,
        source=function.source(pc),
    )


def verify_function(program: Program, index: int) -> Verified:
    """Check all rules on one function. Raises VerifyError for the first one that is broken."""
    function = program.functions[index]
    pc, starts, labels, calls, reads_data = 0, set[int](), list[tuple[int, int]](), set[int](), False
    last: Instruction | None = None
    while pc < len(function.code):
        try:
            last = decode(function.code, pc)
        except VerifyError as error:
            raise _fail(program, index, pc, str(error)) from None
        for rule in RULES:
            problem = rule(program, function, last)
            if problem:
                raise _fail(program, index, pc, f"{last.op.name}: {problem}")
        starts.add(pc)
        labels += [(pc, target) for target in last.of_kind("L")]
        calls.update(last.of_kind("f"))
        reads_data |= "data" in last.op.flags
        pc += last.size
    for at, target in labels:
        if target not in starts:
            raise _fail(program, index, at, f"label {target} is not the start of an instruction")
    if last is None or "ends" not in last.op.flags:
        raise _fail(program, index, last.pc if last else 0, "control runs beyond the function's end")
    for line, _ in function.lines:
        if line not in starts:
            raise _fail(
                program, index, last.pc, f"a source line is at {line}, not the start of an instruction"
            )
    return Verified(frozenset(starts), frozenset(calls), reads_data)


def verify(program: Program) -> tuple[Verified, ...]:
    """Check all functions, in order. Raises VerifyError for the first broken rule."""
    return tuple(verify_function(program, index) for index in range(len(program.functions)))


def static_flow(program: Program) -> tuple[bool, ...]:
    """Return, per function, whether neither it nor any function that it calls reads tensor data. Verifies
    first.
    """
    verified = verify(program)
    reads = {index for index, function in enumerate(verified) if function.reads_data}
    while True:
        more = {index for index, function in enumerate(verified) if function.calls & reads} - reads
        if not more:
            return tuple(index not in reads for index in range(len(verified)))
        reads |= more
