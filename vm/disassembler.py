"""Programs as text, which the assembler reads back.

Every line is a declaration or an instruction with its operands by name; the comment after `;` is the
instruction's effect, in the table's notation with the operands filled in. docs/assembly.md has the grammar.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import ArtifactError
from .instruction import Instruction, decode_all
from .isa import LIST_KINDS, STRING_FUNCTIONS
from .literals import MAX_INLINE, Array, array_hash, elements, is_exact, printable, quote
from .objects import serialise_object
from .program import (
    DTYPE_NAMES,
    Axis,
    Buffer,
    Constant,
    Function,
    Input,
    Kernel,
    Output,
    Program,
    Symbol,
    format_key,
)
from .writer import memory_key, string_order

COMMENT_COLUMN = 56
MAX_CHARACTERS = 1 << 28  # of a text: every instruction may name the file's longest string
MAX_BASE64 = 4096  # bytes of a constant inside a full text; larger ones are stored beside it


def buffer_text(buffer: Buffer) -> str:
    """Return a buffer as text: `out f32[n0, 384]`."""
    return f"{'out ' if buffer.is_output else ''}{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


# Declarations ---------------------------------------------------------------------------------------


def symbol_text(s: Symbol) -> str:
    """Return the declaration of a symbol."""
    top = "" if s.max is None else f" {s.max}"
    step = f" step {s.multiple_of}" if s.multiple_of != 1 else ""
    why = f" why {quote(s.why)}" if s.why else ""
    return f"symbol {quote(s.name)} {s.min} ..{top}{step}{why}"


def input_text(i: Input, function: str = "") -> str:
    """Return the declaration of an input; axes name symbols by index: `2*s0+1`. `function`: the entry point,
    if it is not main."""
    begin = f"input {_owned(i.name, function)}"
    if i.kind != "tensor":
        return f"{begin}: {i.kind}" + (f" = s{i.symbol}" if i.symbol is not None else "")
    end = " written" * i.is_written + " in_rows" * i.in_rows
    return f"{begin}: {i.dtype}[{', '.join(map(_axis_text, i.axes))}]{end}"


def output_text(o: Output, function: str = "") -> str:
    """Return the declaration of an output: like an input's; a size in quotes is text only."""
    begin = f"output {_owned(o.name, function)}"
    if o.kind != "tensor":
        return begin + (f": {o.kind}" if o.kind else "")
    return f"{begin}: {o.dtype}[{', '.join(map(_axis_text, o.axes))}]"


def _owned(name: str, function: str) -> str:
    return quote(name) + (f" of {quote(function)}" if function else "")


def _axis_text(axis: Axis) -> str:
    if axis.expression:
        return quote(axis.expression)
    scale = f"{axis.scale}*" if axis.scale != 1 else ""
    offset = f"{axis.offset:+d}" if axis.offset else ""
    return str(axis.offset) if axis.symbol is None else f"{scale}s{axis.symbol}{offset}"


def _base64(data: bytes) -> str:
    return f'base64 "{base64.b64encode(data).decode()}"'


def _array(array: Array, full: bool) -> str:
    if array.size <= MAX_INLINE and (not full or is_exact(array)):
        return elements(array)
    if not full:
        return f"<{array.nbytes} bytes>"
    return f"@{array_hash(array)}" if array.nbytes > MAX_BASE64 else _base64(array.tobytes())


def _scalar(value: Any, full: bool) -> str:
    if isinstance(value, str):
        return quote(value)
    data = struct.pack("<d", value) if isinstance(value, float) else b""
    is_hidden = full and data != b"" and data != struct.pack("<d", float(repr(value)))
    return _base64(data) if is_hidden else repr(value)


def constant_text(c: Constant, full: bool = False, same: int | None = None) -> str:
    """Return a constant's value; `full`: so that it reads back exactly; `same`: the constant before it whose
    data it shares."""
    name = f"{quote(c.name)} " if c.name else ""
    if c.dtype is None:
        return f"{name}{c.tag} = {_scalar(c.value, full)}"
    data = _array(c.value, full) if same is None else f"c{same}"
    return f"{name}{c.dtype}[{', '.join(map(str, c.value.shape))}] = {data}"


def _constants(constants: tuple[Constant, ...], full: bool) -> Iterator[str]:
    first: dict[tuple[int, ...], int] = {}
    for index, c in enumerate(constants):
        found = first.setdefault(memory_key(c.value), index) if c.dtype is not None and full else index
        yield f"constant c{index} {constant_text(c, full, None if found == index else found)}"


def _spec(k: Kernel) -> str:
    """Return a spec unquoted if it parses as JSON up to the line's end, else as a string."""
    is_plain = k.spec.startswith("{") and k.spec.isprintable() and k.spec == k.spec.rstrip()
    return k.spec if is_plain else quote(k.spec)


def _kernel(index: int, k: Kernel, full: bool, specs: bool) -> Iterator[str]:
    source = f" source {quote(k.source)}" if k.source else ""
    parts = ", ".join([f"{k.n_dims} dims", *map(buffer_text, k.buffers)])
    spec = _spec(k) if specs else f"@{k.spec_hash[:16]}"
    yield f"kernel k{index} {quote(k.label)} ({parts}){source} = {spec}"
    for o in k.objects:
        if full:
            yield f"object k{index} {_base64(serialise_object(o))}"
        else:
            dims = "generic" if o.key is None else f"dims [{format_key(o.key).replace(',', ', ')}]"
            yield f"  ; object {o.target} {dims} {printable(o.schedule)}, {len(o.code.data)} bytes"


# Code -----------------------------------------------------------------------------------------------


class _Names:
    """The text form of operands in one program."""

    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.labels = {target for i in decode_all(function.code) for target in i.of_kind("L")}

    def operand(self, kind: str, value: int) -> str:
        if kind in "dsDS":
            return f"r{value}"
        if kind in "ck":
            return f"{kind}{value}"
        if kind == "t":
            return DTYPE_NAMES[value]
        if kind == "x":
            return list(STRING_FUNCTIONS)[value]
        if kind == "n":
            return quote(self.program.strings[value])
        if kind == "f":
            return quote(self.program.functions[value].name)
        return f"L{value}" if kind == "L" else str(value)

    def instruction(self, i: Instruction) -> str:
        parts = [i.op.name]
        for operand, value in zip(i.op.operands, i.values, strict=True):
            if operand.kind in LIST_KINDS and isinstance(value, tuple):
                text = "(" + ", ".join(self.operand(operand.kind, item) for item in value) + ")"
            else:
                text = self.operand(operand.kind, value)  # type: ignore[arg-type]
            parts.append(f"{operand.name}={text}")
        return " ".join(parts)

    def synopsis(self, i: Instruction) -> str:
        """Return the row's effect with this instruction's operands in it."""
        kinds = {operand.name: operand.kind for operand in i.op.operands}

        def value(name: str) -> str:
            kind, at = kinds[name], i[name]
            if kind in LIST_KINDS:
                return ", ".join(f"r{item}" for item in at)
            if kind == "c":
                return constant_text(self.program.constants[at])
            if kind == "k":
                return f"{quote(self.program.kernels[at].label)}"
            return self.operand(kind, at)

        words = "|".join(name for name, kind in kinds.items() if kind in "tikfL")
        pattern = r'[RK]\[(\w+)(?:\.\.\.)?\]|"(\w+)"' + (rf"|\b({words})\b" if words else "")
        return re.sub(pattern, lambda m: value(m[m.lastindex or 0]), i.op.effect)


def function_text(program: Program, function: Function) -> Iterator[str]:
    """Yield the lines of a function. Raises VerifyError or IndexError for invalid code."""
    names = _Names(program, function)
    counts = f"{function.n_params} params, {function.n_results} results, {function.n_registers} registers"
    yield f"function {quote(function.name)} ({counts})"
    lines = dict(function.lines)
    for i in decode_all(function.code):
        if i.pc in names.labels:
            yield f"L{i.pc}:"
        if i.pc in lines:
            yield f"  line {quote(lines[i.pc])}"
        yield f"  {names.instruction(i)}".ljust(COMMENT_COLUMN) + f" ; {i.pc:4} {names.synopsis(i)}"


def _strings(program: Program) -> list[str]:
    """Return the strings that a text must list so that the string table is reproduced: none if the table
    starts with the code's strings in their order."""
    table, order = program.strings, string_order(program)
    code = [i for f in program.functions for row in decode_all(f.code) for i in row.of_kind("n")]
    rank = {text: place for place, text in enumerate(order)}
    n = len(table)
    while n > max([0, *code]) + 1 and table[n - 1] in rank:
        if n < len(table) and rank[table[n - 1]] > rank[table[n]]:
            break
        n -= 1
    natural = dict.fromkeys(["", *(table[i] for i in code)])
    return [] if list(natural) == list(table[:n]) else list(table[1:n])


def large_arrays(program: Program) -> dict[str, Array]:
    """Return the arrays that a full text names by their hash."""
    arrays = (c.value for c in program.constants if c.dtype is not None)
    return {array_hash(array): array for array in arrays if array.nbytes > MAX_BASE64}


def disassemble(program: Program, full: bool = False, specs: bool = True) -> str:
    """Return the text of a program. `full`: with machine code, and with weights or (`large_arrays`) their
    hashes, so that it assembles to the same program, whose artifact has the same bytes; not `specs`: kernels
    name their specs by hash, as the text of graphs does.

    Raises VerifyError or IndexError for invalid code, ArtifactError for a text of more than
    MAX_CHARACTERS.
    """
    return bounded_text(_lines(program, full, specs))


def bounded_text(lines: Iterable[str]) -> str:
    """Return lines as one text. Raises ArtifactError for more than MAX_CHARACTERS."""
    taken, n = [], 0
    for line in lines:
        taken.append(line)
        n += len(line) + 1
        if n > MAX_CHARACTERS:
            raise ArtifactError(f"the program's text is longer than {MAX_CHARACTERS:,} characters")
    return "\n".join(taken) + "\n"


def _lines(program: Program, full: bool, specs: bool) -> Iterator[str]:
    yield from (f"string {quote(text)}" for text in (_strings(program) if full else ()))
    yield from map(symbol_text, program.symbols)
    for entry in program.entry_points:
        owner = program.functions[entry.function].name if entry.function else ""
        yield from (input_text(i, owner) for i in entry.inputs)
        yield from (output_text(o, owner) for o in entry.outputs)
    if program.meta and full:
        yield f"meta {json.dumps(dict(program.meta))}"
    yield from _constants(program.constants, full)
    for index, kernel in enumerate(program.kernels):
        yield from _kernel(index, kernel, full, specs)
    for function in program.functions:
        yield ""
        yield from function_text(program, function)
