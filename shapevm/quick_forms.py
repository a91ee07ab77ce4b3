"""Functions that are written for one structure of arguments or results: they do what `pytree` does, without
walking the structure in every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .columns import columns_of, value_of
from .pytree import LEAF, Structure, absent, n_leaves
from .vm.errors import ArgumentError

MAX_LEAVES = 1000  # of a structure that a function is written for

Flatten = Callable[[Sequence[Any]], "list[Any] | None"]
Build = Callable[[Sequence[Any]], Any]


def flattener(signature: Mapping[str, Any]) -> Flatten | None:
    """Return a function of the positional arguments that returns the leaves in order, or None where it is
    `pytree.flatten_call` that must look: at other arguments, or at errors. None for a signature of other
    things than leaves, None, lists, tuples and dicts."""
    names = list(signature["parameters"])
    if signature["positional"] != names:
        return None
    text = _Text()
    places = [text.name() for _ in names]
    text.lines.append(f"if len(args) != {len(names)}: return None")
    if places:
        text.lines.append(f"{', '.join(places)}, = args")
    leaves: list[str] = []
    pairs = zip(places, signature["parameters"].values(), strict=True)
    try:
        if not all(text.take_apart(place, structure, leaves) for place, structure in pairs):
            return None
    except RecursionError:
        return None
    text.lines.append(f"return [{', '.join(leaves)}]")
    found: Flatten | None = text.function("args") if len(leaves) <= MAX_LEAVES else None
    return found


def builder(structure: Structure) -> Build | None:
    """Return a function of the leaves that returns the nested value, as `pytree.unflatten` does for as many
    as the structure has. None for a structure of other things than leaves, None, lists, tuples and dicts."""
    leaves: list[str] = []
    text = _Text()
    try:
        made = text.expression(structure, leaves)
    except RecursionError:
        return None
    if made is None or not 0 < len(leaves) <= MAX_LEAVES:
        return None
    text.lines += [f"{', '.join(leaves)}, = leaves", f"return {made}"]
    found: Build = text.function("leaves")
    return found


class _Text:
    """The lines of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, Any] = {}  # what the function reads
        self._n = 0

    def name(self) -> str:
        """Return a new name."""
        self._n += 1
        return f"v{self._n}"

    def take_apart(self, place: str, structure: Structure, leaves: list[str]) -> bool:
        """Write how the leaves of a value are found; return False for a structure that is not written."""
        if structure == LEAF:
            leaves.append(place)
            return True
        if "constant" in structure:
            return self._check(place, structure["constant"])
        if "optional" in structure:
            return self._choose(place, structure, leaves)
        if "pairs" in structure or not isinstance(structure.get("many", ""), str):
            self._take_columns(place, structure, leaves)
            return True
        if "many" in structure:
            self.lines.append(f"if type({place}) is not list: return None")
            self.lines.append(f"for x in {place}:")
            self.lines.append(f"  if type(x) is not {structure['many']}: return None")
            leaves.append(place)
            return True
        items = _items(structure)
        if items is None:
            return False
        names = [self.name() for _ in items]
        if "dict" in structure:
            self.lines.append(f"if type({place}) is not dict or len({place}) != {len(items)}: return None")
            self.lines += [f"{name} = {place}[{key!r}]" for name, key in zip(names, items, strict=True)]
        else:
            kinds = f"type({place}) is not list and type({place}) is not tuple"
            self.lines.append(f"if ({kinds}) or len({place}) != {len(items)}: return None")
            if names:
                self.lines.append(f"{', '.join(names)}, = {place}")
        pairs = zip(names, items.values(), strict=True)
        return all(self.take_apart(name, inner, leaves) for name, inner in pairs)

    def _take_columns(self, place: str, structure: Structure, leaves: list[str]) -> None:
        """Write that a function finds the columns of a list or dict; None is for one of another kind."""
        function, names = self.name(), [self.name() for _ in range(n_leaves(structure))]
        self.known[function] = partial(_columns, structure)
        self.lines.append(f"found = {function}({place})")
        self.lines.append("if found is None: return None")
        self.lines.append(f"{', '.join(names)}, = found")
        leaves += names

    def _choose(self, place: str, structure: Structure, leaves: list[str]) -> bool:
        """Write the leaves of an optional, which a function of its own finds where it is there."""
        inner, zeros = structure["optional"], self.name()
        self.known[zeros] = made = absent(structure)
        names = [self.name() for _ in made]
        leaves += [f"{place} is not None", *names]
        found = f"[{place}]"
        if inner != LEAF:
            part = flattener({"positional": [""], "parameters": {"": inner}})
            if part is None or not made:
                return False
            self.known[f"f{zeros}"] = part
            found = f"f{zeros}([{place}])"
        self.lines.append(f"found = {zeros} if {place} is None else {found}")
        self.lines.append("if found is None: return None")
        self.lines.append(f"{', '.join(names)}, = found")
        return True

    def expression(self, structure: Structure, leaves: list[str]) -> str | None:
        """Return the expression of the value that the next leaves make; None where none is written."""
        if structure == LEAF:
            leaves.append(f"x{len(leaves)}")
            return leaves[-1]
        if "constant" in structure:
            return "None" if structure["constant"] is None else None
        if "optional" in structure:
            leaves.append(f"x{len(leaves)}")
            is_there, made_inside = leaves[-1], self.expression(structure["optional"], leaves)
            return None if made_inside is None else f"({made_inside} if {is_there} else None)"
        if "many" in structure or "pairs" in structure:
            return self._whole(structure, leaves)
        items = _items(structure)
        if items is None:
            return None
        made = {key: self.expression(inner, leaves) for key, inner in items.items()}
        if None in made.values():
            return None
        if "dict" in structure:
            return "{" + ", ".join(f"{key!r}: {each}" for key, each in made.items()) + "}"
        inside = ", ".join(map(str, made.values()))
        return f"[{inside}]" if "list" in structure else f"({inside}{',' if len(made) == 1 else ''})"

    def _whole(self, structure: Structure, leaves: list[str]) -> str:
        """Return the expression of a list or dict of which the next leaves are the columns."""
        function, n = self.name(), n_leaves(structure)
        self.known[function] = partial(value_of, kind=structure)
        columns = [f"x{len(leaves) + i}" for i in range(n)]
        leaves += columns
        return f"{function}([{', '.join(columns)}])"

    def _check(self, place: str, constant: Any) -> bool:
        """Write that an argument is what the program was compiled for, unless that is no plain number or
        text."""
        if constant is None:
            self.lines.append(f"if {place} is not None: return None")
        elif type(constant) in (bool, int, str):
            name = type(constant).__name__
            self.lines.append(f"if type({place}) is not {name} or {place} != {constant!r}: return None")
        else:
            return False
        return True

    def function(self, argument: str) -> Any:
        """Return the function, None where it nests too deep. A key that a dict lacks gives None."""
        body = "\n  ".join(self.lines)
        text = f"def run({argument}):\n try:\n  {body}\n except KeyError: return None\n"
        made: dict[str, Any] = {**self.known}
        try:
            exec(compile(text, "<a call's structure>", "exec"), made)  # keys are literals of str and int
        except (SyntaxError, RecursionError, MemoryError):
            return None
        return made["run"]


def _columns(structure: Structure, value: Any) -> list[list[Any]] | None:
    try:
        return columns_of(value, structure, "")
    except ArgumentError:
        return None


def _items(structure: Structure) -> dict[Any, Structure] | None:
    """Return the structures in a list, tuple or dict by key; None for another one."""
    if "dict" in structure:
        to_key = int if structure.get("int_keys") else str
        return {to_key(key): inner for key, inner in structure["dict"].items()}
    inner = structure.get("list", structure.get("tuple"))
    return None if inner is None else dict(enumerate(inner))
