"""Programs whose sizes are all free: PyTorch's operators and modules with the samples that PyTorch tests them
with, and short programs of `programs.py`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from ..modules import cases as modules
from ..opinfo import cases as operators
from ..opinfo.cases import Call, Cell
from .programs import PROGRAMS

KINDS = ("operators", "modules", "programs")


def cells(kinds: Sequence[str] = KINDS) -> list[Cell]:
    """Return one cell for each operator, module and program; its dtype is the kind."""
    names = {"operators": _infos, "modules": modules.database, "programs": lambda: PROGRAMS}
    return [Cell(name.replace(" ", "_"), kind) for kind in kinds for name in names[kind]()]


def _infos() -> dict[str, Any]:
    return {c.op: c for c in operators.cells(operators.database(), ("f32",))}


class Source:
    """Makes the calls of a cell."""

    def __init__(self) -> None:
        self.operators, self.modules = operators.database(), modules.database()
        self.programs = {name.replace(" ", "_"): program for name, program in PROGRAMS.items()}

    def samples(self, cell: Cell) -> list[Any]:
        """Return what the calls of a cell are made of."""
        if cell.dtype == "operators":
            return operators.samples(self.operators[cell.op], "f32")
        if cell.dtype == "modules":
            return modules.inputs(self.modules[cell.op], "f32", False)
        return [self.programs[cell.op]]

    def calls(self, cell: Cell, made: Sequence[Any], limit: int) -> list[Call]:
        """Return at most `limit` calls, evenly chosen."""
        if cell.dtype == "operators":
            return operators.calls(self.operators[cell.op], made, limit)
        step = max(len(made) / limit, 1)
        chosen = [made[int(i * step)] for i in range(min(limit, len(made)))]
        if cell.dtype == "modules":
            return [self._module(cell.op, found) for found in chosen]
        return [of_tensors(function, make()) for function, make in chosen]

    def _module(self, name: str, found: Any) -> Call:
        case = modules.case(self.modules[name], "f32", found, False)
        return of_tensors(case.module, case.args, case.kwargs)


def of_tensors(function: Any, args: Sequence[Any], kwargs: Any = ()) -> Call:
    """Return the call of a function with arguments, of which the tensors are inputs."""
    sample = SimpleNamespace(input=tuple(args), args=(), kwargs=dict(kwargs))
    return Call(Spread(function), sample).eval()


class Spread(torch.nn.Module):
    """Calls a function with its arguments in one tuple."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, args: tuple[Any, ...], **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)
