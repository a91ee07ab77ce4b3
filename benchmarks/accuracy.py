"""Errors against f64 beside eager's: `python benchmarks/accuracy.py [--max N] [--only NAME ..] [--all]`.

Every operator runs on f32 data of growing length, with offsets and scales, and is compared with eager's
result in f64. An error may be TIMES eager's, or SHARE of the greatest result. Prints a table of broken bounds
(`--all`: of everything) and fails if there are any. `--max`: the greatest length, 1e8 for the full table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import shapevm

TIMES, SHARE = 2.0, 2e-7
LEAST = 1.5e-45  # an error of one subnormal number is none
ROWS = 3
LENGTHS = (65, 1_000, 5_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
LONG = 1_000_000  # beyond, one row
Function = Callable[[torch.Tensor], torch.Tensor]

ALONG_ROWS: dict[str, Function] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "mse_loss": lambda x: F.mse_loss(x, x * 0.5),
}
ALONG_COLUMNS: dict[str, Function] = {
    "sum of columns": lambda x: x.sum(0),
    "var of columns": lambda x: x.var(0),
    "softmax of columns": lambda x: torch.softmax(x, 0),
}
OPERATORS = ALONG_ROWS | ALONG_COLUMNS
#: offset and scale of the uniform numbers that the operators get
UNIFORM = ((0.0, 1.0), (1e4, 1.0), (1e6, 1.0), (1e4, 2e-3))
NORMAL = (1.0, 1e3, 1e30, 1e38, 1e-30, 1e-38)


class Model(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@dataclass(frozen=True)
class Case:
    """Errors of one operator on one tensor, as shares of the greatest result in f64."""

    operator: str
    length: int
    offset: float
    scale: float
    ours: float
    eager: float

    @property
    def holds(self) -> bool:
        """Whether the bound holds."""
        return self.ours <= max(TIMES * self.eager, SHARE)

    def row(self) -> list[str]:
        """Return the table's row."""
        ratio = "" if self.eager == 0 else f"{self.ours / self.eager:.2f}"
        numbers = [f"{x:g}" for x in (self.offset, self.scale)]
        errors = [f"{x:.2g}" for x in (self.ours, self.eager)]
        return [self.operator, str(self.length), *numbers, *errors, ratio, "" if self.holds else "broken"]


def data(length: int) -> Iterator[tuple[float, float, torch.Tensor]]:
    """Yield (offset, scale, numbers): uniform ones from an offset, normal ones about 0."""
    shape = (1 if length > LONG else ROWS, length)
    for offset, scale in UNIFORM:
        yield offset, scale, torch.rand(shape) * scale + offset
    for scale in NORMAL:
        yield 0.0, scale, torch.randn(shape).clamp_(-3, 3) * scale


def compiled(name: str) -> shapevm.Executable:
    """Return the operator compiled for any number of rows and any length."""
    length, rows = (torch.export.Dim(n, min=1, max=1 << 28) for n in ("length", "rows"))
    is_column = name in ALONG_COLUMNS
    example = torch.randn((70, ROWS) if is_column else (ROWS, 70))
    sizes = {0: length, 1: rows} if is_column else {0: rows, 1: length}
    return shapevm.compile(Model(OPERATORS[name]), (example,), dynamic_shapes=(sizes,), strategy="generic")


def measured(name: str, lengths: tuple[int, ...]) -> Iterator[Case]:
    """Yield the errors of one operator, where its result in f64 and eager's are finite."""
    exe, function = compiled(name), OPERATORS[name]
    for length in lengths:
        for offset, scale, x in data(length):
            x = x.t().contiguous() if name in ALONG_COLUMNS else x
            eager, exact = function(x), function(x.double())
            found = exe(x).double()
            known = exact.isfinite() & eager.isfinite()
            if not known.any():
                continue
            greatest = exact[known].abs().max().item()
            errors = [(y.double() - exact)[known].abs().nan_to_num(nan=torch.inf) for y in (found, eager)]
            if greatest < LEAST:
                continue
            ours, theirs = (max(e.max().item() - LEAST, 0.0) / greatest for e in errors)
            yield Case(name, length, offset, scale, ours, theirs)


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--max", type=float, default=1e6, help="the greatest length (1e6)")
    parser.add_argument("--only", nargs="*", default=list(OPERATORS), help="names of operators")
    parser.add_argument("--all", action="store_true", help="print what holds as well")
    given = parser.parse_args()
    unknown = [name for name in given.only if name not in OPERATORS]
    if unknown:
        sys.exit(f"no operator is named {unknown[0]!r}; there are {', '.join(OPERATORS)}")
    torch.manual_seed(0)
    lengths = tuple(n for n in LENGTHS if n <= given.max)
    cases = [case for name in given.only for case in measured(name, lengths)]
    broken = [case for case in cases if not case.holds]
    table = Table("operator", "n", "offset", "scale", "our error", "eager's", "ratio", "bound")
    for case in cases if given.all else broken:
        table.add_row(*case.row())
    Console(width=110).print(table)
    print(
        f"{len(cases)} cases, {len(broken)} beyond {TIMES:g} times eager's error and {SHARE:g} of the result"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
