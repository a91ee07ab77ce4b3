"""Programs of other people's packages, with tiny configurations and random weights, by two doors.

    python -m tests.packages.coverage [--package diffusers] [--door export,script] [--ops REGEX] [--page FILE]

`tests/packages/programs/NAME.py` has the programs of the package that is imported as NAME; those of packages
that are not installed are left out. Verdicts are kept in build/packages/verdicts.json: `--again bad` (the
default) judges what is new or not right. `--page` writes the rows of the packages into that page.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import re
import resource
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..freed import verdicts
from ..freed.cases import of_tensors
from ..freed.coverage import is_due
from ..models import vision
from ..opinfo.cases import SEED, Call, Cell
from ..opinfo.kept import Found, keep_all, read
from ..opinfo.verdicts import RIGHT, Verdict

PROGRAMS = Path(__file__).parent / "programs"
KEPT = Path(__file__).parents[2] / "build" / "packages" / "verdicts.json"
DOORS = ("export", "script")
MEMORY = 12 << 30  # bytes of address space for a process
START, END = "<!-- packages -->", "<!-- end of packages -->"
HEAD = (
    "| package | version | programs | torch.export takes | right | native | traced | right | native |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def packages() -> list[str]:
    """Return the packages that have programs here."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py"))


def is_installed(package: str) -> bool:
    """Whether the programs of a package can be made here."""
    return importlib.util.find_spec(package) is not None


def programs(package: str) -> dict[str, Any]:
    """Return the programs of a package: name -> function that returns (module, args, kwargs)."""
    if importlib.util.find_spec("torchvision"):
        vision.torchvision()
    table = importlib.import_module(f"{__package__}.programs.{package}").PROGRAMS
    return {name.replace(" ", "_"): make for name, make in table.items()}


def call_of(cell: Cell) -> Call:
    """Return the call of a program, of which all tensors are inputs."""
    torch.manual_seed(SEED)
    module, args, kwargs = programs(cell.dtype)[cell.op]()
    return of_tensors(module.eval() if isinstance(module, torch.nn.Module) else module, args, kwargs)


def judge(op: str, call: Call, door: str) -> Verdict:
    """Return the verdict of a program by one door."""
    return verdicts.judge_one(op, call) if door == "export" else verdicts.judge_traced(op, call)


def _prepare() -> None:
    verdicts.prepare()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main() -> None:
    """Judge and print a summary."""
    options = _options()
    names = [name for name in options.package or packages() if is_installed(name)]
    for name in names if options.again != "none" else ():
        _judge(name, options)
    found, _ = read(KEPT)
    for (op, package, door), rows in found.items():
        if package in names and re.search(options.ops, op):
            for verdict, detail in rows:
                if verdict not in RIGHT[:1]:
                    print(f"{package} {op} ({door}): {verdict}: {detail}")
    print("\n".join(table(found, names)))
    if options.page:
        _write(options.page, table(found, names)[len(HEAD) :])


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", nargs="*", choices=packages())
    parser.add_argument("--door", default=",".join(DOORS))
    parser.add_argument("--ops", default="", help="only programs whose name matches")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180, help="for one program")
    parser.add_argument("--again", default="bad", choices=("all", "bad", "new", "none"))
    parser.add_argument("--page", type=Path, help="such as docs/models.md")
    return parser.parse_args()


def _judge(package: str, options: Any) -> None:
    from ..opinfo import pool

    kept, _ = read(KEPT)
    cells = [Cell(op, package) for op in programs(package) if re.search(options.ops, op)]
    tasks = [
        ((cell,), door, 1)
        for door in options.door.split(",")
        for cell in cells
        if is_due(kept.get((cell.op, package, door)), options.again)
    ]
    suite = pool.Suite(_prepare, lambda cell: [cell], lambda _, made, limit: [*map(call_of, made)], judge)
    keep_all(KEPT, pool.run(tasks, suite, options.jobs, options.seconds), len(tasks), f"of {package}")


def table(found: Found, names: Sequence[str]) -> list[str]:
    """Return the lines of a table with a row for each package."""
    return [*HEAD, *(_row(found, name) for name in names if any(name == key[1] for key in found))]


def _row(found: Found, package: str) -> str:
    cells: list[Any] = [package, _version(package)]
    for door in DOORS:
        counts = Counter(rows[0][0] for key, rows in found.items() if key[1:] == (package, door))
        taken = sum(counts.values()) - counts["skipped"] - counts["foreign"]
        cells += [sum(counts.values()) or ""] * (door == DOORS[0])
        right = [taken, sum(counts[verdict] for verdict in RIGHT), counts[RIGHT[0]]]
        cells += right if counts else [""] * len(right)
    return f"| {' | '.join(map(str, cells))} |"


def _version(package: str) -> str:
    for name in importlib.metadata.packages_distributions().get(package, [package]):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _write(page: Path, rows: Sequence[str]) -> None:
    """Put rows into the table between its marks in a page; rows of other packages stay, and what another door
    gave for the same version."""
    before, rest = page.read_text().split(START)
    kept, after = rest.split(END)
    by_name: dict[str, list[str]] = {}
    for row in [*kept.strip().splitlines()[len(HEAD) :], *rows]:
        name, *cells = row.removesuffix(" |").split(" | ")
        old = by_name.get(name, [])
        if old[:1] == cells[:1]:
            cells = [new or cell for cell, new in zip(old, cells, strict=True)]
        by_name[name] = cells
    lines = [*HEAD, *(" | ".join([name, *by_name[name]]) + " |" for name in sorted(by_name))]
    page.write_text("\n".join([before + START, *lines, END + after]))


if __name__ == "__main__":
    os.nice(10)
    main()
