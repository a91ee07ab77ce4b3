"""The contract of a loaded program: its symbols, and the inputs and outputs of its entry points."""

from __future__ import annotations

from typing import Any

from ._runtime import lib
from .layout import INT_MAX
from .program import DTYPE_NAMES, Axis, EntryPoint, Input, Output, Symbol
from .values import TAG_NAMES, text_of


def read_symbols(program: Any) -> tuple[Symbol, ...]:
    """Return the symbols of an `svm_program *`."""
    return tuple(_symbol(lib.svm_symbol(program, i)) for i in range(lib.svm_n_symbols(program)))


def _symbol(row: Any) -> Symbol:
    top = None if row.max == INT_MAX else row.max
    return Symbol(text_of(row.name), row.min, top, row.multiple_of, text_of(row.why))


def read_entry_points(program: Any) -> dict[str, EntryPoint]:
    """Return the contracts by the names of their functions, main's first."""
    functions = range(lib.svm_n_functions(program))
    return dict(_entry_point(program, i) for i in functions if lib.svm_is_entry_point(program, i))


def _entry_point(program: Any, function: int) -> tuple[str, EntryPoint]:
    """Return the name and the contract of a function."""
    n_inputs = lib.svm_function_n_inputs(program, function)
    n_outputs = lib.svm_function_n_outputs(program, function)
    inputs = tuple(_input(program, function, i) for i in range(n_inputs))
    outputs = tuple(_output(program, function, i) for i in range(n_outputs))
    return text_of(lib.svm_function(program, function).name), EntryPoint(function, inputs, outputs)


def _input(program: Any, function: int, index: int) -> Input:
    row = lib.svm_function_input(program, function, index)
    place = (program, function, index)
    is_written, in_rows = bool(lib.svm_function_writes(*place)), bool(lib.svm_function_in_rows(*place))
    kind = TAG_NAMES[row.kind]
    if kind != "tensor":
        return Input(text_of(row.name), kind, symbol=None if row.symbol < 0 else row.symbol)
    return Input(text_of(row.name), kind, DTYPE_NAMES[row.dtype], _axes(row), None, is_written, in_rows)


def _output(program: Any, function: int, index: int) -> Output:
    row = lib.svm_function_output(program, function, index)
    if TAG_NAMES.get(row.kind) != "tensor":
        return Output(text_of(row.name), TAG_NAMES.get(row.kind))
    return Output(text_of(row.name), "tensor", DTYPE_NAMES[row.dtype], _axes(row))


def _axes(row: Any) -> tuple[Axis, ...]:
    rows = [row.axes[i] for i in range(row.rank)]
    return tuple(
        Axis(None if a.symbol < 0 else a.symbol, a.scale, a.offset, text_of(a.expression)) for a in rows
    )
