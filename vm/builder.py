"""Building programs piece by piece: constants, strings and kernels are shared, labels resolved. Nothing is
checked: see verify.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .instruction import Value, encode
from .isa import DTYPES, OPCODES, OPS, STRING_FUNCTIONS
from .program import Constant, EntryPoint, Function, Kernel, Program, Symbol


class Label:
    """A position in a function that jumps may name before it is known."""

    def __init__(self) -> None:
        self.pc: int | None = None


class FunctionBuilder:
    """Writes one function; its strings, constants and kernels are added to `program`.

    >>> f.op("add", d=f.register(), a=0, b=1)
    """

    def __init__(self, program: ProgramBuilder, name: str, n_params: int, n_results: int) -> None:
        self.program = program
        self.name, self.n_params, self.n_results = name, n_params, n_results
        self.n_registers = n_params
        self._code: list[int] = []
        self._labels: list[tuple[int, Label]] = []  # word to fill, label
        self._lines: list[tuple[int, str]] = []

    @property
    def pc(self) -> int:
        """The word offset of the next instruction."""
        return len(self._code)

    def register(self) -> int:
        """Return a new register."""
        self.n_registers += 1
        return self.n_registers - 1

    def line(self, source: str) -> None:
        """Set the source line of the following instructions ("" if unknown)."""
        pc = len(self._code)
        if self._lines and self._lines[-1][0] == pc:
            self._lines.pop()
        if source != (self._lines[-1][1] if self._lines else ""):
            self._lines.append((pc, source))

    def place(self, label: Label) -> None:
        """Put a label here."""
        if label.pc is not None:
            raise ValueError(
                f"function {self.name}: a label is placed at {label.pc} and again at {len(self._code)}"
            )
        label.pc = len(self._code)

    def op(self, name: str, /, **operands: Value | Label | str) -> None:
        """Append an instruction, operands by name.

        Registers, constants and kernels are numbers, register lists tuples, dtypes, strings and functions of
        strings str, labels Labels. Raises ValueError for an unknown opcode or operand.
        """
        if name not in OPCODES:
            raise ValueError(f"opcode {name!r} is unknown; known are {', '.join(OPCODES)}")
        row = OPS[OPCODES[name]]
        names = [operand.name for operand in row.operands]
        if set(names) != set(operands):
            raise ValueError(f"{name}: operands {', '.join(operands)} given, it has {', '.join(names)}")
        values, labels, size = [], [], 1
        for operand in row.operands:
            value = operands[operand.name]
            if isinstance(value, Label):
                labels.append((size, value))
                value = 0
            elif isinstance(value, str):
                value = self._number(operand.kind, value)
            values.append(value)
            size += 1 + (len(value) if isinstance(value, tuple | list) else 0)
        start = len(self._code)
        self._code += encode(row, values)
        self._labels += [(start + at, label) for at, label in labels]

    def _number(self, kind: str, name: str) -> int:
        """Return the number that represents a str."""
        if kind == "t":
            return DTYPES[name][0]
        return list(STRING_FUNCTIONS).index(name) if kind == "x" else self.program.string(name)

    def finish(self) -> Function:
        """Return the function. Raises ValueError for a label that was never placed."""
        for word, label in self._labels:
            if label.pc is None:
                raise ValueError(f"function {self.name}: a label that is jumped to was never placed")
            self._code[word] = label.pc
        return Function(
            self.name, self.n_params, self.n_results, self.n_registers, tuple(self._code), tuple(self._lines)
        )


class ProgramBuilder:
    """Collects a program's parts. Functions may be built in any order; `function` reserves their indices."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._constants: list[Constant] = []
        self._scalars: dict[tuple[Any, ...], int] = {}
        self._kernels: dict[tuple[Any, ...], int] = {}
        self._kernel_rows: list[Kernel] = []
        self._functions: list[FunctionBuilder] = []

    def string(self, text: str) -> int:
        """Return the index of a string."""
        return self._strings.setdefault(text, len(self._strings))

    def constant(self, constant: Constant) -> int:
        """Return the index of a constant; equal scalars share one, tensors are not merged."""
        if constant.tag == "tensor":
            self._constants.append(constant)
            return len(self._constants) - 1
        key = (constant.tag, repr(constant.value), constant.name)
        if key not in self._scalars:
            self._constants.append(constant)
            self._scalars[key] = len(self._constants) - 1
        return self._scalars[key]

    def kernel(self, kernel: Kernel) -> int:
        """Return the index of a kernel; equal specs share one (the first one's label, source and objects)."""
        key = (kernel.spec,)
        if key not in self._kernels:
            self._kernels[key] = len(self._kernel_rows)
            self._kernel_rows.append(kernel)
        return self._kernels[key]

    def function(self, name: str, n_params: int, n_results: int) -> FunctionBuilder:
        """Return the builder of a new function; its index is the number of functions before it (main is
        0).
        """
        self._functions.append(FunctionBuilder(self, name, n_params, n_results))
        return self._functions[-1]

    def function_index(self, function: FunctionBuilder) -> int:
        """Return the index for `call`."""
        return self._functions.index(function)

    def finish(
        self,
        symbols: tuple[Symbol, ...] = (),
        entry_points: Sequence[EntryPoint] = (EntryPoint(0, (), ()),),
        meta: dict[str, Any] | None = None,
    ) -> Program:
        """Return the program; main is the first of the entry points. Raises ValueError like
        `FunctionBuilder.finish`."""
        main, *others = entry_points
        functions = tuple(function.finish() for function in self._functions)
        return Program(
            functions,
            tuple(self._constants),
            tuple(self._kernel_rows),
            tuple(self._strings),
            symbols,
            main.inputs,
            main.outputs,
            meta or {},
            tuple(others),
        )
