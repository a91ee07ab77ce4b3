"""Text to programs: reads the disassembler's output and handwritten text (docs/assembly.md).

    symbol "n" 1 .. 64
    input "x": f32[s0]
    output "y": f32[s0]
    kernel k0 "relu" (1 dims, f32[n0], out f32[n0]) = {"family":"nest", ...}
    function "main" (2 params, 1 results)
      alloc d=r2 dtype=f32 sizes=(r1)
      kernel kernel=k0 dims=(r1) buffers=(r0, r2)
      return values=(r2)

Mnemonics, operands and their kinds are those of the opcode table (vm/isa.py): a new opcode needs no change
here. For any text, the result is a program or an AssemblyError with line and column.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .builder import FunctionBuilder, Label, ProgramBuilder
from .errors import ArtifactError, VerifyError
from .isa import DTYPES, LIST_KINDS, OPCODES, OPS, STRING_FUNCTIONS, TAGS, Op, Operand
from .layout import INT_MIN, LIMITS
from .literals import Array
from .meta import META
from .objects import parse_object
from .program import (
    NUMPY_DTYPES,
    Axis,
    Buffer,
    Constant,
    Dim,
    EntryPoint,
    Input,
    Kernel,
    Output,
    Program,
    Size,
    Symbol,
)
from .reader import CONSTANT_TAGS, INPUT_KINDS, check_contract, check_objects
from .tokens import INT64, U32, AssemblyError, Line, cut, known
from .verify import verify

__all__ = ["AssemblyError", "assemble"]

_SCALARS = tuple(tag for tag in CONSTANT_TAGS if tag != "tensor")
_SIZE = (0, INT64[1])
_WORDS = {"None": None, "True": True, "False": False}


# The contract ---------------------------------------------------------------------------------------


class _Contract:
    """Reads symbols, inputs and outputs, which have the index of their function. `indices`: of all functions
    of the text by name."""

    def __init__(self, indices: Mapping[str, int]) -> None:
        self.indices = indices
        self.symbols: list[Symbol] = []
        self.inputs: list[tuple[int, Input]] = []
        self.outputs: list[tuple[int, Output]] = []

    def symbol(self, line: Line) -> None:
        """Read `"n" 1 .. 64 step 2 why "model.py:3"`."""
        _limit(line, self.symbols, "SYMBOLS")
        name, low = line.string(), line.integer((INT_MIN, INT64[1]))
        line.expect("..")
        top = line.integer((low, INT64[1] - 1)) if line.kind() == "number" else None
        step = line.integer((1, INT64[1])) if line.skip("step") else 1
        self.symbols.append(Symbol(name, low, top, step, line.string() if line.skip("why") else ""))

    def input(self, line: Line) -> None:
        """Read `"x": f32[2*s0+1, 4]`, `"k": int = s0`, `"eps" of "decode": float`, `"cache": f32[4]
        written`, `"x": f32[4] in_rows`."""
        _limit(line, self.inputs, "INPUTS")
        name, function = line.string(), self._function(line)
        line.expect(":")
        if line.peek(1) != "[":
            kind = line.one_of([kind for kind in INPUT_KINDS if kind != "tensor"], "the kind")
            symbol = self._symbol(line) if kind == "int" and line.skip("=") else None
            self.inputs.append((function, Input(name, kind, symbol=symbol)))
            return
        dtype = _dtype(line)
        line.expect("[")
        axes = tuple(line.items("]", lambda: self._axis(line), "RANK"))
        memory = line.skip("written"), line.skip("in_rows")
        self.inputs.append((function, Input(name, "tensor", dtype, axes, None, *memory)))

    def output(self, line: Line) -> None:
        """Read `"y": f32[s0, "floordiv(n,2)"]`, `"pair": tuple`, `"z"`."""
        _limit(line, self.outputs, "INPUTS")
        name, function = line.string(), self._function(line)
        if not line.skip(":"):
            self.outputs.append((function, Output(name)))
        elif line.peek(1) != "[":
            tag = line.one_of([tag for tag in TAGS if tag != "tensor"], "the tag")
            self.outputs.append((function, Output(name, tag)))
        else:
            dtype = _dtype(line)
            line.expect("[")
            axes = tuple(line.items("]", lambda: self._output_axis(line), "RANK"))
            self.outputs.append((function, Output(name, "tensor", dtype, axes)))

    def _function(self, line: Line) -> int:
        """Return the function whose input or output it is: main, or what follows `of`."""
        if not line.skip("of"):
            return 0
        name = line.string()
        if name not in self.indices:
            raise line.fail(f"there is no function {cut(name)!r}; {known(self.indices, name)}", line.at - 1)
        return self.indices[name]

    def entry_points(self) -> Iterator[EntryPoint]:
        """Yield the entry points, main first. Raises ArtifactError for one that has outputs alone."""
        owners = {0, *(function for function, _ in (*self.inputs, *self.outputs))}
        for index in sorted(owners):
            inputs = tuple(row for function, row in self.inputs if function == index)
            if index and not inputs:
                raise ArtifactError(f"function {index} has outputs and no input; declare one")
            yield EntryPoint(index, inputs, tuple(row for function, row in self.outputs if function == index))

    def _output_axis(self, line: Line) -> Axis:
        if line.kind() != "string":
            return self._axis(line)
        expression = line.string()
        if not expression:
            raise line.fail('the size "" says nothing; write the size as people read it')
        return Axis(expression=expression)

    def _axis(self, line: Line) -> Axis:
        if line.kind() == "number" and line.peek(1) != "*":
            return Axis.const(line.integer(_SIZE))
        scale = 1
        if line.kind() == "number":
            scale = line.integer((1, INT64[1]))
            line.expect("*")
        symbol = self._symbol(line)
        return Axis.of(symbol, scale, line.integer() if line.kind() == "number" else 0)

    def _symbol(self, line: Line) -> int:
        index = line.indexed("s")
        if index >= len(self.symbols):
            raise line.fail(f"symbol s{index} is not declared before; {len(self.symbols)} are")
        return index


def _limit(line: Line, rows: list[Any], name: str) -> None:
    bound, what = LIMITS[name]
    if len(rows) == bound:
        raise line.fail(f"more than {bound} {what} are not allowed")


def _dtype(line: Line) -> str:
    return line.one_of(DTYPES, "dtype")


def _next(line: Line, letter: str, rows: list[Any]) -> None:
    index = line.indexed(letter)
    if index != len(rows):
        raise line.fail(f"{letter}{index} is not the next one; write {letter}{len(rows)}")


# Constants ------------------------------------------------------------------------------------------


class _Constants:
    """Reads constants; `arrays`: those that the text names by hash."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays, self.rows = arrays, list[Constant]()

    def constant(self, line: Line) -> None:
        """Read `c0 "w" f32[2] = [1.0, 2.0]`, `c1 int = -5`."""
        _next(line, "c", self.rows)
        name = line.string() if line.kind() == "string" else ""
        type_ = line.one_of((*_SCALARS, *DTYPES), "the tag or dtype")
        if type_ in _SCALARS and line.peek() != "[":
            line.expect("=")
            self.rows.append(Constant(_scalar(line, type_), name=name))
            return
        line.expect("[")
        shape = tuple(line.items("]", lambda: line.integer(_SIZE), "RANK"))
        line.expect("=")
        try:
            array = self._tensor(line, type_, shape)
        except (ValueError, OverflowError) as error:
            if isinstance(error, AssemblyError):
                raise
            raise line.fail(f"the elements are not {type_}{list(shape)} ({error})") from None
        self.rows.append(Constant.tensor(array, type_, name))

    def _tensor(self, line: Line, dtype: str, shape: tuple[int, ...]) -> Array:
        holder = NUMPY_DTYPES[dtype]
        if line.skip("base64"):
            return np.frombuffer(line.base64(), holder).reshape(shape).copy()
        if line.kind() == "hash":
            return self._beside(line, holder, shape)
        if line.kind() == "name":
            return self._again(line, dtype, shape)
        line.expect("[")
        tag = {"b": "bool", "f": "float"}.get(holder.kind, "int")
        return np.array(line.items("]", lambda: _scalar(line, tag)), holder).reshape(shape)

    def _beside(self, line: Line, holder: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        line.at += 1
        name = line.peek(-1)[1:]
        if name not in self.arrays:
            raise line.fail(f"array {name} is not in the file beside the text; write it there as {name}")
        array = self.arrays[name]
        if (array.dtype, array.shape) != (holder, shape):
            raise line.fail(f"array {name} is {array.dtype}{list(array.shape)}")
        return array.copy()  # its own memory: the artifact stores it again

    def _again(self, line: Line, dtype: str, shape: tuple[int, ...]) -> Array:
        """Take c0: the data of an earlier constant, which the artifact stores once."""
        index = line.indexed("c")
        if index >= len(self.rows) or self.rows[index].dtype is None:
            raise line.fail(f"c{index} is no tensor that is declared before")
        return self.rows[index].value.reshape(-1).view(NUMPY_DTYPES[dtype]).reshape(shape)


def _scalar(line: Line, tag: str) -> Any:
    """Take a value of this tag."""
    if tag == "str":
        return line.string()
    if tag == "int":
        return line.integer()
    if tag == "float":
        if line.skip("base64"):
            return _float_of(line)
        return float(line.take("number"))
    word = line.one_of(("True", "False") if tag == "bool" else ("None",), "the value")
    return _WORDS[word]


def _float_of(line: Line) -> float:
    data = line.base64()
    if len(data) != 8:
        raise line.fail(f"a float has {len(data)} bytes; it must have 8")
    return float(struct.unpack("<d", data)[0])


# Kernels --------------------------------------------------------------------------------------------


class _Kernels:
    """Reads kernels and their code objects."""

    def __init__(self) -> None:
        self.rows: list[Kernel] = []

    def kernel(self, line: Line) -> None:
        """Read `k0 "relu" (1 dims, f32[n0], out f32[n0]) source "model.py:9" = {"family": ...}`."""
        _next(line, "k", self.rows)
        label = line.string()
        line.expect("(")
        n_dims = line.integer((0, LIMITS["DIMS"][0]))
        line.expect("dims")
        if line.peek() != ")":
            line.expect(",")
        buffers = tuple(line.items(")", lambda: _buffer(line, n_dims), "BUFFERS"))
        source = line.string() if line.skip("source") else ""
        line.expect("=")
        spec = line.string() if line.kind() == "string" else line.take("json")
        self.rows.append(Kernel(spec, n_dims, buffers, label, source))

    def object(self, line: Line) -> None:
        """Read `k0 base64 "..."`."""
        index = line.indexed("k")
        if index >= len(self.rows):
            raise line.fail(f"kernel k{index} is not declared before; {len(self.rows)} are")
        line.expect("base64")
        kernel = self.rows[index]
        try:
            objects = (*kernel.objects, parse_object(line.base64()))
            check_objects(kernel, objects)
        except ArtifactError as error:
            raise line.fail(str(error)) from None
        self.rows[index] = replace(kernel, objects=objects)


def _buffer(line: Line, n_dims: int) -> Buffer:
    is_output = line.skip("out")
    dtype = _dtype(line)
    line.expect("[")

    def size() -> Size:
        if line.kind() == "number":
            return line.integer(_SIZE)
        index = line.indexed("n")
        if index >= n_dims:
            raise line.fail(f"n{index} is none of the kernel's {n_dims} dims")
        return Dim(index)

    return Buffer(dtype, tuple(line.items("]", size, "RANK")), is_output)


# Code -----------------------------------------------------------------------------------------------


class _Functions:
    """Reads functions. `indices`: of all functions of the text by name, for calls to later ones."""

    def __init__(self, indices: Mapping[str, int]) -> None:
        self.builder, self.indices = ProgramBuilder(), indices
        self.function: FunctionBuilder | None = None
        self.registers: list[int | None] = []  # the numbers of registers that functions declare
        self.labels: dict[str, Label] = {}
        self.uses: dict[str, tuple[Line, int]] = {}  # first uses of labels: line, token
        self.places: dict[tuple[int, int], Line] = {}  # (function, pc) -> line

    def begin(self, line: Line) -> None:
        """Read `"main" (2 params, 1 results, 5 registers)`."""
        self.end()
        name = line.string()
        if self.indices[name] != len(self.registers):
            raise line.fail(f"function {cut(name)!r} is there already; give it another name")
        line.expect("(")
        counts = dict[str, int]()
        for what, count in line.items(")", lambda: self._count(line)):
            if what in counts:
                raise line.fail(f"{what} are there twice")
            counts[what] = count
        if not {"params", "results"} <= set(counts):
            raise line.fail("a function says its params and results, such as (2 params, 1 results)")
        fixed = counts.get("registers")
        if fixed is not None and fixed < counts["params"]:
            raise line.fail(f"{fixed} registers do not hold {counts['params']} params")
        self.registers.append(fixed)
        self.function = self.builder.function(name, counts["params"], counts["results"])

    def _count(self, line: Line) -> tuple[str, int]:
        count = line.integer((0, LIMITS["REGISTERS"][0]))
        return line.one_of(("params", "results", "registers"), "the count"), count

    def end(self) -> None:
        """End the previous function. Raises AssemblyError for a label that is used but never placed."""
        for name, label in self.labels.items():
            if label.pc is None:
                line, at = self.uses[name]
                shown = cut(name)
                raise line.fail(f"label {shown!r} is never placed; write {shown}: before an instruction", at)
        self.labels, self.uses = {}, {}

    def statement(self, line: Line, name: str) -> None:
        """Read an instruction, a label `name:`, or `line "model.py:3"`; the first word is taken."""
        function = self.function
        if function is None:
            raise line.fail(f"{cut(name)!r} stands before the first function; {_DECLARE}")
        if line.skip(":"):
            self._place(line, name, function)
            return
        if name == "line":
            function.line(line.string())
            return
        if name not in OPCODES:
            raise line.fail(f"opcode {cut(name)!r} is unknown; {known(OPCODES, name)}")
        operands = self._operands(line, OPS[OPCODES[name]], function)
        self.places[len(self.registers) - 1, function.pc] = line
        function.op(name, **operands)

    def _place(self, line: Line, name: str, function: FunctionBuilder) -> None:
        label = self.labels.setdefault(name, Label())
        if label.pc is not None:
            raise line.fail(f"label {cut(name)!r} is placed already; give it another name", 0)
        function.place(label)

    def _operands(self, line: Line, op: Op, function: FunctionBuilder) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for operand in op.operands:
            if line.peek(1) == "=" and line.take("name") != operand.name:
                raise line.fail(f"operand {operand.name!r} must stand where {cut(line.peek(-1))!r} does")
            line.skip("=")
            if operand.kind in LIST_KINDS:
                line.expect("(")
                registers = line.items(")", lambda: self._register(line, function))
                given[operand.name] = tuple(registers)
            else:
                given[operand.name] = self._operand(line, operand, function)
            line.skip(",")
        return given

    def _register(self, line: Line, function: FunctionBuilder) -> int:
        register = line.indexed("r")
        function.n_registers = max(function.n_registers, register + 1)
        return register

    def _operand(self, line: Line, operand: Operand, function: FunctionBuilder) -> Any:
        match operand.kind:
            case "d" | "s":
                return self._register(line, function)
            case "c" | "k":
                return line.indexed(operand.kind)
            case "t":
                return _dtype(line)
            case "x":
                return line.one_of(STRING_FUNCTIONS, "the function of strings")
            case "n":
                return line.string()
            case "f":
                return self.indices.get(line.string(), U32[1])  # the verifier reports unknown functions
            case "L":
                name = line.take("name")
                self.uses.setdefault(name, (line, line.at - 1))
                return self.labels.setdefault(name, Label())
            case _:
                return line.integer((-(1 << 31), (1 << 31) - 1))

    def finish(self, contract: _Contract, meta: dict[str, Any]) -> Program:
        """Return the program without its constants and kernels."""
        self.end()
        program = self.builder.finish(tuple(contract.symbols), list(contract.entry_points()), meta)
        functions = tuple(
            made if fixed is None else replace(made, n_registers=fixed)
            for made, fixed in zip(program.functions, self.registers, strict=True)
        )
        return replace(program, functions=functions)


_DECLARE = 'declare one, such as function "main" (0 params, 0 results)'


# Programs -------------------------------------------------------------------------------------------


class _Assembler:
    """Reads statements in order."""

    def __init__(self, lines: list[Line], arrays: Mapping[str, Array]) -> None:
        self.lines = lines
        names = dict.fromkeys(_function_names(lines))
        indices = {name: index for index, name in enumerate(names)}
        self.contract, self.constants, self.kernels = _Contract(indices), _Constants(arrays), _Kernels()
        self.functions = _Functions(indices)
        self.meta: dict[str, Any] = {}
        self.declarations: dict[str, Callable[[Line], None]] = {
            "string": self.string, "symbol": self.contract.symbol, "input": self.contract.input,
            "output": self.contract.output, "meta": self.set_meta, "constant": self.constants.constant,
            "kernel": self.kernels.kernel, "object": self.kernels.object, "function": self.functions.begin,
        }  # fmt: skip

    def string(self, line: Line) -> None:
        """Read `"text"`: the next string of the string table."""
        self.functions.builder.string(line.string())

    def set_meta(self, line: Line) -> None:
        """Read a JSON object."""
        self.meta = line.object(META)

    def statement(self, line: Line) -> None:
        """Read one line."""
        name = line.take("name")
        is_launch = name == "kernel" and line.kind(1) != "string"
        if name in self.declarations and not is_launch and line.peek() != ":":
            self.declarations[name](line)
        else:
            self.functions.statement(line, name)
        line.end()

    def program(self) -> Program:
        """Read all lines; return the program."""
        for line in self.lines:
            if line.tokens:
                self.statement(line)
        program = self.functions.finish(self.contract, self.meta)
        return replace(program, constants=tuple(self.constants.rows), kernels=tuple(self.kernels.rows))

    def where(self, error: VerifyError) -> str:
        """Return the line of the instruction that an error names."""
        line = self.functions.places.get((error.function, error.pc))
        return f"line {line.number}, column {line.tokens[0][2]}: " if line is not None else ""


def _function_names(lines: list[Line]) -> Iterator[str]:
    for line in lines:
        if line.peek() == "function" and line.kind(1) == "string":
            try:
                yield str(json.loads(line.peek(1)))
            except json.JSONDecodeError:
                continue  # `begin` reports it


def assemble(text: str, arrays: Mapping[str, Array] | None = None, verified: bool = True) -> Program:
    """Return the program of `text`. `arrays`: those that it names by their hash. `verified` False skips the
    verifier and the contract's check (for tests of verifiers).

    Raises AssemblyError, naming line and column; VerifyError or ArtifactError for a program that breaks a
    rule.
    """
    lines = [Line(number, row) for number, row in enumerate(text.split("\n"), 1)]
    assembler = _Assembler(lines, arrays or {})
    program = assembler.program()
    if verified:
        if not program.functions:
            raise AssemblyError(f"line {len(lines)}, column 1: there is no function; {_DECLARE}")
        try:
            verify(program)
        except VerifyError as error:
            place = assembler.where(error) + str(error)
            raise VerifyError(place, function=error.function, pc=error.pc) from None
        check_contract(program)
    return program
