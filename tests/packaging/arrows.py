"""Who imports whom among the rooms of a folder: `python -m tests.packaging.arrows` prints all.

A room is a file or folder of the top level; some folders within are folders of rooms as well. In a folder of
the C runtime, a file and its header are a room. A package imports its own public names from `__init__`; other
packages of the repository are no rooms of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from .circles import c_leads

ROOT = Path(__file__).parents[2]
_INCLUDE = re.compile(r'^#include "(?:(\w+)/)?([\w.]+)"', re.MULTILINE)
Arrow = tuple[str, str]

#: The most arrows between the rooms of a folder. A number is lowered when some go, and raised for a reason.
MAX_ARROWS = {
    "compiler": 16,
    "compiler/frontends/torchscript": 31,
    "compiler/ops": 186,  # einsum, which ONNX files and TorchScript share: four
    "jit": 60,
    "jit/families/matmul": 175,
    "runtime_c": 17,
    "runtime_c/base": 13,
    "runtime_c/program": 16,
    "runtime_c/run": 78,  # a fork pauses the queue of compilations
    "runtime_c/runner": 24,  # packed inputs and generated tokens: seven, and two from main
    "runtime_c/values": 8,
    "shapevm": 45,  # language models: programs of nn with options and texts, which are served and proved
    "vm": 180,
}


def imported(path: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the modules of `folder` that the module at `path` imports, each as its path in the folder."""
    package = path.relative_to(folder).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not 0 < node.level <= len(package) + 1:
            continue
        start = package[: len(package) + 1 - node.level]
        module = (*start, *(node.module.split(".") if node.module else ()))
        yield from [(*module, alias.name) for alias in node.names] if len(module) < 2 else [module]


def python_arrows(folder: Path) -> set[Arrow]:
    """Return (importer, imported) for the rooms of a folder of Python files."""
    rooms = {path.stem for path in folder.iterdir()}
    found = set()
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).with_suffix("").parts[0]
        names = {module[0] for module in imported(path, folder) if module}
        found |= {(own, name) for name in names & rooms}
        if any(not (folder.parent / name).is_dir() for name in names - rooms):
            found.add((own, "__init__"))
    return {(one, other) for one, other in found if one != other and one != "__init__"}


def c_arrows(folder: Path) -> set[Arrow]:
    """Return (including, included) for the rooms of a folder of C files."""
    found = set()
    for path in folder.glob("*/*.[ch]"):
        for name, _ in _INCLUDE.findall(path.read_text()):
            found.add((path.parent.name, name or "include"))
    return {(one, other) for one, other in found if one != other}


def c_file_arrows(folder: str) -> set[Arrow]:
    """Return (user, used) for the files of a folder of C: those that one includes or calls."""
    leads = {Path(unit): map(Path, others) for unit, others in c_leads().items()}
    pairs = [(unit, other) for unit, others in leads.items() for other in others]
    return {(a.name, b.name) for a, b in pairs if str(a.parent) == str(b.parent) == folder}


def check_one_way(arrows: set[Arrow]) -> None:
    """Raise graphlib.CycleError, which names the rooms, where arrows run in a circle."""
    graph: dict[str, set[str]] = {}
    for one, other in arrows:
        graph.setdefault(one, set()).add(other)
    TopologicalSorter(graph).prepare()


def arrows_of(folder: str) -> set[Arrow]:
    """Return the arrows of one of the repository's folders."""
    if folder.startswith("runtime_c/"):
        return c_file_arrows(folder)
    return (c_arrows if folder == "runtime_c" else python_arrows)(ROOT / folder)


if __name__ == "__main__":
    for folder in (*MAX_ARROWS, "jit/families"):
        arrows = arrows_of(folder)
        print(f"{folder}: {len(arrows)} arrows")
        for importer in sorted({one for one, _ in arrows}):
            print(f"  {importer} -> {', '.join(sorted(b for a, b in arrows if a == importer))}")
