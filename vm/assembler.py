"""Text to programs: reads what the disassembler writes, and what people write by hand.

    symbol "n" 1 .. 64
    input "x": f32[s0]
    output "y": f32[s0]
    kernel k0 "relu" (1 dims, f32[n0], out f32[n0]) = "{...}"
    function "main" (2 params, 1 results)
      alloc d=r2 dtype=f32 sizes=(r1)
      kernel kernel=k0 dims=(r1) buffers=(r0, r2)
      return values=(r2)

The size of an output's axis may be text in quotes. Operands stand by name, or in the table's order without
names. A label is a name with a colon. `;` begins a comment. "registers" of a function may be left out: then
it is as many as the code names.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .builder import FunctionBuilder, Label, ProgramBuilder
from .errors import ArtifactError, Error
from .isa import DTYPES, LIST_KINDS, OPCODES, OPS, TAGS, Op, Operand
from .objects import parse_object
from .program import NUMPY_DTYPES, Axis, Buffer, Constant, Dim, Input, Kernel, Output, Program, Size, Symbol
from .verify import verify

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>;.*)|(?P<string>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)\b)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<punct>\.\.|[()\[\],:=*]))"""
)


class AssemblyError(Error, ValueError):
    """Text that is no program. The message names the line."""


class _Line:
    """One line's tokens."""

    def __init__(self, number: int, text: str) -> None:
        self.number, self.text, self.at = number, text, 0
        self.tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.fail(f"{text[at:].strip()[:20]!r} is not understood")
            if match.lastgroup != "comment":
                self.tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()

    def fail(self, sentence: str) -> AssemblyError:
        return AssemblyError(f"line {self.number}: {sentence}: {self.text.strip()[:80]}")

    def peek(self, offset: int = 0) -> str:
        at = self.at + offset
        return self.tokens[at][1] if at < len(self.tokens) else ""

    def kind(self, offset: int = 0) -> str:
        """Return the kind of the next token (or a later one), "" beyond the end."""
        at = self.at + offset
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def take(self, kind: str) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0] != kind:
            raise self.fail(f"a {kind} must stand where {self.peek() or 'the line ends'!r} does")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def skip(self, text: str) -> bool:
        """Take `text` if it is next; return whether it was."""
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.skip(text):
            raise self.fail(f"{text!r} must stand where {self.peek() or 'the line ends'!r} does")

    def string(self) -> str:
        try:
            return str(json.loads(self.take("string")))
        except json.JSONDecodeError:
            raise self.fail("a string has a wrong escape") from None

    def integer(self) -> int:
        text = self.take("number")
        try:
            return int(text)
        except ValueError:
            raise self.fail(f"{text} is not an integer") from None

    def indexed(self, letter: str) -> int:
        """Take a name such as r12; return the number."""
        text = self.take("name")
        if not re.fullmatch(letter + r"\d+", text):
            raise self.fail(f"{text!r} is not a name such as {letter}0")
        return int(text[1:])

    def items(self, close: str, read: Callable[[], Any]) -> list[Any]:
        """Read comma-separated items up to `close`."""
        items: list[Any] = []
        while not self.skip(close):
            if items:
                self.expect(",")
            items.append(read())
        return items

    def end(self) -> None:
        if self.at != len(self.tokens):
            raise self.fail(f"{self.peek()!r} must not follow")


# Declarations ---------------------------------------------------------------------------------------


class _Assembler:
    def __init__(self) -> None:
        self.builder = ProgramBuilder()
        self.symbols: list[Symbol] = []
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.constants: list[Constant] = []
        self.kernels: list[Kernel] = []
        self.meta: dict[str, Any] = {}
        self.function: FunctionBuilder | None = None
        self.labels: dict[str, Label] = {}
        self.calls: dict[str, int] = {}
        self.fixed_registers: dict[str, int] = {}

    def symbol(self, line: _Line) -> None:
        name, low = line.string(), line.integer()
        line.expect("..")
        top = line.integer() if line.kind() == "number" else None
        step = line.integer() if line.skip("step") else 1
        self.symbols.append(Symbol(name, low, top, step, line.string() if line.skip("why") else ""))

    def _axis(self, line: _Line) -> Axis:
        if not line.peek().startswith("s") and line.peek(1) != "*":
            return Axis.const(line.integer())
        scale = 1
        if line.peek(1) == "*":
            scale = line.integer()
            line.expect("*")
        symbol = line.indexed("s")
        offset = line.integer() if line.kind() == "number" else 0
        return Axis.of(symbol, scale, offset)

    def _dtype(self, line: _Line) -> str:
        dtype = line.take("name")
        if dtype not in DTYPES:
            raise line.fail(f"dtype {dtype!r} is unknown; known are {', '.join(DTYPES)}")
        return dtype

    def input(self, line: _Line) -> None:
        name = line.string()
        line.expect(":")
        if line.peek() in ("int", "float", "bool", "str") and line.peek(1) != "[":
            kind = line.take("name")
            self.inputs.append(Input(name, kind, symbol=line.indexed("s") if line.skip("=") else None))
            return
        dtype = self._dtype(line)
        line.expect("[")
        self.inputs.append(Input(name, "tensor", dtype, tuple(line.items("]", lambda: self._axis(line)))))

    def output(self, line: _Line) -> None:
        name = line.string()
        if not line.skip(":"):
            self.outputs.append(Output(name))
        elif line.peek() in TAGS and line.peek(1) != "[":
            self.outputs.append(Output(name, line.take("name")))
        else:
            dtype = self._dtype(line)
            line.expect("[")
            axes = tuple(line.items("]", lambda: self._output_axis(line)))
            self.outputs.append(Output(name, "tensor", dtype, axes))

    def _output_axis(self, line: _Line) -> Axis:
        return Axis(expression=line.string()) if line.kind() == "string" else self._axis(line)

    def _scalar(self, line: _Line, tag: str) -> Any:
        if tag == "str":
            return line.string()
        text = line.take("name" if line.kind() == "name" else "number")
        words = {"None": None, "True": True, "False": False}
        if text in words:
            return words[text]
        return float(text) if tag == "float" else int(text)

    def constant(self, line: _Line) -> None:
        index = line.indexed("c")
        if index != len(self.constants):
            raise line.fail(f"constant c{index} is not the next one, c{len(self.constants)}")
        name = line.string() if line.kind() == "string" else ""
        tag = line.take("name")
        if tag in ("none", "bool", "int", "float", "str") and line.skip("="):
            constant = Constant(self._scalar(line, tag), name=name)
            if constant.tag != tag:
                raise line.fail(f"the value is a {constant.tag}, not a {tag}")
        elif tag in DTYPES:
            line.expect("[")
            shape = tuple(line.items("]", line.integer))
            line.expect("=")
            constant = Constant.tensor(self._tensor(line, tag, shape), tag, name)
        else:
            raise line.fail(f"{tag!r} is neither a tag nor a dtype")
        self.constants.append(constant)

    def _tensor(self, line: _Line, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        holder = NUMPY_DTYPES[dtype]
        try:
            if line.skip("base64"):
                return np.frombuffer(_base64(line), holder).reshape(shape).copy()
            line.expect("[")
            return np.array(
                line.items("]", lambda: self._scalar(line, "float" if holder.kind == "f" else "int")), holder
            ).reshape(shape)
        except (ValueError, OverflowError) as error:
            raise line.fail(f"the elements are not {dtype}{list(shape)} ({error})") from None

    def _buffer(self, line: _Line) -> Buffer:
        is_output = line.skip("out")
        dtype = self._dtype(line)
        line.expect("[")

        def size() -> Size:
            return Dim(line.indexed("n")) if line.peek().startswith("n") else line.integer()

        return Buffer(dtype, tuple(line.items("]", size)), is_output)

    def kernel(self, line: _Line) -> None:
        index, label = line.indexed("k"), line.string()
        if index != len(self.kernels):
            raise line.fail(f"kernel k{index} is not the next one, k{len(self.kernels)}")
        line.expect("(")
        n_dims = line.integer()
        line.expect("dims")
        has_buffers = line.skip(",")
        buffers = tuple(line.items(")", lambda: self._buffer(line)))
        if has_buffers != bool(buffers):
            raise line.fail("a comma must stand between the dims and the buffers")
        source = line.string() if line.skip("source") else ""
        line.expect("=")
        self.kernels.append(Kernel(line.string(), n_dims, buffers, label, source))

    def object(self, line: _Line) -> None:
        index = line.indexed("k")
        if index >= len(self.kernels):
            raise line.fail(f"kernel k{index} does not exist yet")
        line.expect("base64")
        try:
            made = parse_object(_base64(line))
        except ArtifactError as error:
            raise line.fail(str(error)) from None
        kernel = self.kernels[index]
        self.kernels[index] = replace(kernel, objects=(*kernel.objects, made))

    # Code -------------------------------------------------------------------------------------------

    def begin(self, line: _Line) -> None:
        self.finish_labels(line)
        name = line.string()
        line.expect("(")
        counts = dict[str, int]()
        for count, what in line.items(")", lambda: (line.integer(), line.take("name"))):
            counts[what] = count
        if not {"params", "results"} <= set(counts) <= {"params", "results", "registers"}:
            raise line.fail("a function says its params, results and, if it wants, registers")
        if name in self.fixed_registers:
            raise line.fail(f"function {name!r} is there already")
        self.fixed_registers[name] = counts.get("registers", -1)
        self.function = self.builder.function(name, counts["params"], counts["results"])

    def finish_labels(self, line: _Line) -> None:
        for name, label in self.labels.items():
            if label.pc is None:
                raise line.fail(f"label {name!r} of the function before was never placed")
        self.labels = {}

    def instruction(self, line: _Line, name: str) -> None:
        function = self.function
        if function is None:
            raise line.fail("an instruction stands before the first function")
        if name == "line":
            function.line(line.string())
            return
        if line.skip(":"):
            try:
                function.place(self.labels.setdefault(name, Label()))
            except ValueError as error:
                raise line.fail(str(error)) from None
            return
        if name not in OPCODES:
            raise line.fail(f"opcode {name!r} is unknown")
        op = OPS[OPCODES[name]]
        operands = self._operands(line, op)
        try:
            function.op(name, **operands)
        except ValueError as error:
            raise line.fail(str(error)) from None

    def _operands(self, line: _Line, op: Op) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for operand in op.operands:
            if line.peek(1) == "=" and line.peek() != operand.name:
                raise line.fail(f"operand {operand.name!r} must stand where {line.peek()!r} does")
            if line.peek(1) == "=":
                line.at += 2
            if operand.kind in LIST_KINDS:
                line.expect("(")
                given[operand.name] = tuple(line.items(")", lambda: self._register(line)))
            else:
                given[operand.name] = self._operand(line, operand)
            line.skip(",")
        return given

    def _register(self, line: _Line) -> int:
        register = line.indexed("r")
        assert self.function is not None
        self.function.n_registers = max(self.function.n_registers, register + 1)
        return register

    def _operand(self, line: _Line, operand: Operand) -> Any:
        match operand.kind:
            case "d" | "s":
                return self._register(line)
            case "c" | "k":
                return line.indexed(operand.kind)
            case "t":
                return self._dtype(line)
            case "n":
                return line.string()
            case "f":
                return self._function_index(line.string())
            case "L":
                return self.labels.setdefault(line.take("name"), Label())
            case _:
                return line.integer()

    def _function_index(self, name: str) -> int:
        """Return the index of a function that may come later: the functions' names are known from a first
        look.
        """
        return self.calls.get(name, (1 << 32) - 1)  # the verifier names what does not exist


def _base64(line: _Line) -> bytes:
    try:
        return base64.b64decode(line.string(), validate=True)
    except binascii.Error:
        raise line.fail("the text is not base64") from None


_DECLARATIONS = {"symbol", "input", "output", "constant", "object", "function"}


def _statement(a: _Assembler, line: _Line) -> None:
    name = line.take("name")
    if name == "function":
        a.begin(line)
    elif name == "kernel" and line.kind(1) == "string":
        a.kernel(line)
    elif name in _DECLARATIONS:
        getattr(a, name)(line)
    else:
        a.instruction(line, name)
    line.end()


def assemble(text: str, verified: bool = True) -> Program:
    """Return the program of `text`. `verified` False leaves out the verifier (for tests of verifiers).

    Raises AssemblyError, naming the line; VerifyError for a program that breaks a rule.
    """
    a = _Assembler()
    rows = text.splitlines()
    names = [m[1] for row in rows if (m := re.match(r'\s*function\s+("(?:[^"\\]|\\.)*")', row))]
    a.calls = {json.loads(name): index for index, name in enumerate(names)}
    line = _Line(0, "")
    for number, row in enumerate(rows, 1):
        if row.strip().startswith("meta "):
            a.meta = _meta(number, row)
            continue
        line = _Line(number, row)
        if line.tokens:
            _statement(a, line)
    a.finish_labels(line)
    program = a.builder.finish(tuple(a.symbols), tuple(a.inputs), tuple(a.outputs), a.meta)
    program = replace(
        program, constants=tuple(a.constants), kernels=tuple(a.kernels), functions=_registers(a, program)
    )
    if verified:
        verify(program)
    return program


def _registers(a: _Assembler, program: Program) -> tuple[Any, ...]:
    made = []
    for function in program.functions:
        fixed = a.fixed_registers[function.name]
        made.append(function if fixed < 0 else replace(function, n_registers=fixed))
    return tuple(made)


def _meta(number: int, row: str) -> dict[str, Any]:
    try:
        meta = json.loads(row.strip()[len("meta ") :])
    except json.JSONDecodeError as error:
        raise AssemblyError(f"line {number}: meta is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise AssemblyError(f"line {number}: meta must be a JSON object")
    return meta
