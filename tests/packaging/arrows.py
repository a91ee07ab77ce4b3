"""Who imports whom among the rooms of a folder: `python tests/packaging/arrows.py` prints every arrow.

A room is a file or folder of the top level; `jit/families` is a folder of rooms as well, the kernel families.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
_INCLUDE = re.compile(r'^#include "(?:(\w+)/)?([\w.]+)"', re.MULTILINE)
Arrow = tuple[str, str]


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
    found = set()
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).with_suffix("").parts[0]
        found |= {(own, module[0]) for module in imported(path, folder) if module}
    return {(one, other) for one, other in found if one != other and one != "__init__"}


def c_arrows(folder: Path) -> set[Arrow]:
    """Return (including, included) for the rooms of a folder of C files."""
    found = set()
    for path in folder.glob("*/*.[ch]"):
        for name, _ in _INCLUDE.findall(path.read_text()):
            found.add((path.parent.name, name or "include"))
    return {(one, other) for one, other in found if one != other}


def check_one_way(arrows: set[Arrow]) -> None:
    """Raise graphlib.CycleError, which names the rooms, where arrows run in a circle."""
    graph: dict[str, set[str]] = {}
    for one, other in arrows:
        graph.setdefault(one, set()).add(other)
    TopologicalSorter(graph).prepare()


def arrows_of(folder: str) -> set[Arrow]:
    """Return the arrows of one of the repository's folders."""
    return (c_arrows if folder == "runtime_c" else python_arrows)(ROOT / folder)


if __name__ == "__main__":
    for folder in ("compiler", "jit", "jit/families", "vm", "shapevm", "runtime_c"):
        arrows = arrows_of(folder)
        print(f"{folder}: {len(arrows)} arrows")
        for importer in sorted({one for one, _ in arrows}):
            print(f"  {importer} -> {', '.join(sorted(b for a, b in arrows if a == importer))}")
