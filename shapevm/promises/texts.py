"""Programs whose tokens are packed: a text has the same bits alone, in any batch and in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..program.executable import Executable
from ..reports.invariance.verdicts import packed_sizes
from ..vm.program import Input, Output, Program, Symbol
from .report import Report

Inputs = list[Any]


class Prover(Protocol):
    """Calls a program, and notes differences of results: `prove.Prover`."""

    program: Program
    exe: Executable
    rng: random.Random

    @property
    def inputs(self) -> Sequence[Input]:
        """The program's inputs."""

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The contract's symbols."""

    def call(self, exe: Executable, inputs: Inputs) -> list[Any]:
        """Return the results of a call."""

    @property
    def report(self) -> Report:
        """What was compared so far."""


def compare_texts(prover: Prover, inputs: Inputs) -> None:
    """Give the rows of `inputs` lengths of their own, by the mask; compare each text alone, without padding,
    and all in another order, with the batch. Programs whose tokens are not packed are left out."""
    sizes = packed_sizes(prover.program)
    if len(sizes) != 2:
        return
    name = prover.program.meta["packed"]
    batch, length = (next(s for s in prover.symbols if s.name == size) for size in sizes)
    given = [np.array(x) if isinstance(x, np.ndarray) else x for x in inputs]
    at = next(i for i, row in enumerate(prover.inputs) if row.name == name)
    n_rows, longest = given[at].shape
    if not n_rows or not longest or batch.min > 1 or length.multiple_of > 1 or batch.multiple_of > 1:
        return
    lengths = [prover.rng.randint(max(length.min, 1), longest) for _ in range(n_rows)]
    lengths[0] = longest
    given[at][...] = np.arange(longest) < np.array(lengths)[:, None]
    found = prover.call(prover.exe, given)
    for row, n in enumerate(lengths):
        alone = prover.call(prover.exe, _taken(prover, given, sizes, [row], n))
        _compare(prover, "a text alone", f"{n} tokens of {longest}", alone, _results(prover, found, [row], n))
    order = prover.rng.sample(range(n_rows), n_rows)
    other = prover.call(prover.exe, _taken(prover, given, sizes, order, longest))
    _compare(
        prover, "texts in another order", f"order {order}", other, _results(prover, found, order, longest)
    )


def _taken(prover: Prover, inputs: Inputs, sizes: list[str], rows: list[int], n: int) -> Inputs:
    """Return the inputs of these texts, `n` tokens long."""
    found = []
    for row, x in zip(prover.inputs, inputs, strict=True):
        is_size = row.kind != "tensor" and row.symbol is not None
        name = prover.program.symbols[row.symbol].name if is_size and row.symbol is not None else ""
        found.append(dict(zip(sizes, (len(rows), n), strict=True)).get(name, _part(prover, row, x, rows, n)))
    return found


def _results(prover: Prover, results: list[Any], rows: list[int], n: int) -> list[Any]:
    outputs = prover.program.outputs
    return [_part(prover, row, x, rows, n) for row, x in zip(outputs, results, strict=False)]


def _part(prover: Prover, row: Input | Output, x: Any, rows: list[int], n: int) -> Any:
    """Return the part of an input or a result that belongs to texts, `n` tokens long."""
    if not isinstance(x, np.ndarray):
        return x
    sizes = packed_sizes(prover.program)
    for axis, a in enumerate(row.axes):
        name = None if a.symbol is None else prover.program.symbols[a.symbol].name
        if name in sizes:
            x = x.take(rows if name == sizes[0] else range(n), axis)
    return np.require(x, requirements="C")


def _compare(prover: Prover, relation: str, where: str, found: list[Any], wanted: list[Any]) -> None:
    for output, x, y in zip(prover.program.outputs, found, wanted, strict=False):
        prover.report.compare(relation, where, output.name, x, y)
