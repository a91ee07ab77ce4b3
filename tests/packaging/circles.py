"""Circles of files: `python tests/packaging/circles.py` prints each, the largest first.

A file of Python leads to those that it imports, within functions and for types too; a file of C, with its
header, to those that it includes and those whose functions it calls. Files that lead to each other are one
circle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("compiler", "jit", "vm")  # installed within shapevm
_INCLUDE = re.compile(r'^#include "([\w./]+)"', re.MULTILINE)
_DEFINED = re.compile(
    r"^(?!static|typedef|extern|#|\s)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE
)
_STATIC = re.compile(r"^static [\w *]*?\b(\w+)\(", re.MULTILINE)
_CALLED = re.compile(r"(?<![.>\w])(\w+)\(")
_NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.DOTALL)
Leads = dict[str, set[str]]


def _module(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "shapevm" else parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _targets(path: Path, modules: Container[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the modules that a file imports from."""
    package = _module(path) if path.name == "__init__.py" else _module(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + tuple((node.module or "").split("."))
            base = tuple(part for part in base if part)
            for name in ((*base, alias.name) for alias in node.names):
                yield name if name in modules else base


@cache
def python_leads() -> Leads:
    """Return which files of the repository's packages import which, `shapevm/__init__.py` apart, whose public
    names are everywhere."""
    files = {_module(p): p for top in ("shapevm", *PACKAGES) for p in (ROOT / top).rglob("*.py")}
    del files[()]
    names = {module: str(path.relative_to(ROOT)) for module, path in files.items()}
    return {
        names[module]: {names[t] for t in _targets(path, names) if t in names and t != module}
        for module, path in files.items()
    }


def _unit(path: Path) -> str:
    """Return the name of a file of C and its header."""
    return str(path.relative_to(ROOT).with_suffix(""))


@cache
def c_leads() -> Leads:
    """Return which files of the C runtime need which, each with its header."""
    code = {p: _NO_CODE.sub("", p.read_text()) for p in ROOT.glob("runtime_c/*/*.c")}
    owners: dict[str, set[Path]] = {}
    for path, text in code.items():
        for function in _DEFINED.findall(text):
            owners.setdefault(function, set()).add(path)
    leads: Leads = {_unit(path): set() for path in ROOT.glob("runtime_c/*/*.[ch]")}
    for path, text in code.items():
        for name in set(_CALLED.findall(text)) - set(_STATIC.findall(text)):
            if len(owners.get(name, ())) == 1:  # else programs have one of their own each
                leads[_unit(path)] |= set(map(_unit, owners[name]))
    for path in ROOT.glob("runtime_c/*/*.[ch]"):
        for name in _INCLUDE.findall(path.read_text()):
            leads[_unit(path)].add(_unit((path.parents[1] if "/" in name else path.parent) / name))
    return {name: others & leads.keys() - {name} for name, others in leads.items()}


def circles(leads: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the sets of files of which each leads to all others, the largest first."""
    reached = {name: _reached(leads, name) for name in leads}
    found = {frozenset(o for o in reached[name] if name in reached[o]) for name in leads}
    return sorted((set(each) for each in found if len(each) > 1), key=len, reverse=True)


def _reached(leads: Mapping[str, Iterable[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(leads[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += leads[name]
    return found


if __name__ == "__main__":
    for circle in circles(python_leads()) + circles(c_leads()):
        print(f"{len(circle)} files: {', '.join(sorted(circle))}")
