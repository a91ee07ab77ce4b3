"""Call forms: nested inputs and outputs as flat lists of leaves, and back, without PyTorch.

A *structure* is JSON data:
  "*"                                     a leaf
  {"constant": value}                     None, a number or a string, the same in every call
  {"list": [..]}, {"tuple": [..]}         their items' structures; "why": a reason for the list's length
  {"dict": {key: ..}, "int_keys": true}   by key, in order ("int_keys" only where they are ints)
  {"namedtuple": "module:Class", "fields": {name: ..}}
  {"object": "module:Class", "fields": {name: ..}}
  {"object": "module:Class", "fields": {"0": ..}, "registered": digest}
  {"optional": .., "absent": [kind, ..]}  None, or what the structure says
  {"either": [.., ..]}                    one of two structures; of results only
  {"many": kind}, {"pairs": [kind, kind]} a list of any length, a dict of any keys, of elements of one kind
The leaves of a list of any length and of a dict of any keys are their columns: see `columns`.
An optional has a leaf that flags its presence, followed by its own leaves. If it is None, these are zeros of
the kinds: "int", "float", "bool", "str", [dtype, rank] for an array of one zero, {"many": kind} for an empty
list. Results need no kinds. "either" has a leaf that flags the second structure, followed by the leaves of
both. A *signature* maps a call's arguments to leaves: {"positional": [name, ..], "parameters": {name:
structure}}.

The schemas of both decode such data to trees of nodes, whose methods are the operations on a form: `paths`
names its leaves, `flatten` and `build` convert to leaves and back, `take_apart` and `expression` write
functions that do so for one form (`quick_forms`).
"""

# ruff: noqa: D102
# The methods of `Node` document those of its subclasses.
from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..vm.errors import ArgumentError, Error
from ..vm.program import NUMPY_DTYPES
from ..vm.schema import (
    BOOLEAN,
    INT64,
    NULL,
    Exactly,
    Integer,
    ListOf,
    Made,
    MapOf,
    Number,
    Object,
    OneOf,
    Schema,
    Text,
    decode,
)
from . import columns, records
from .columns import GIVEN, described_value, join, listed
from .quick_forms import Writer

Structure = Any
LEAF = "*"
Flatten = Callable[[Sequence[Any]], "list[Any] | None"]
Build = Callable[[Sequence[Any]], Any]


class Node:
    """A part of a call form. Nodes are neither changed nor compared; as in `Schema`, each method that
    `dataclass` would add slows down the first load."""

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        """The parts by their name suffixes."""
        return ()

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return sum(part.n_leaves for _, part in self.inner)

    def paths(self, prefix: str = "") -> list[str]:
        """Return the name of every leaf: keys and positions joined by dots ("" for a bare leaf)."""
        return [path for key, part in self.inner for path in part.paths(join(prefix, key))]

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        """Return the leaves of `value` in order. Raises ArgumentError if it does not have this form."""
        raise NotImplementedError

    def build(self, leaves: Iterator[Any]) -> Any:
        """Build the value from the next leaves."""
        raise NotImplementedError

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return the value that holds `leaves`. Raises ArgumentError for too few or too many."""
        if self.n_leaves != len(leaves):
            raise ArgumentError(f"{len(leaves)} values are given; the structure holds {self.n_leaves}")
        return self.build(iter(leaves))

    def take_apart(self, text: Writer, place: str) -> bool:
        """Write code that finds the leaves of the value at `place`; return False for a form that is not
        supported."""
        return False

    def expression(self, text: Writer) -> str | None:
        """Return the expression that builds the value from the next leaves; None if the form is not
        supported."""
        return None

    def builder(self) -> Build | None:
        """Return a function of the leaves equivalent to `unflatten` for the right number of leaves, None if
        the form is not supported."""
        text = Writer()
        made = self.expression(text)
        if made is None or not text.leaves:
            return None
        text.unpack(text.leaves, "leaves")
        found: Build | None = text.function("leaves", made)
        return found


@dataclass(eq=False, repr=False)
class Leaf(Node):
    """A tensor, a number, a string."""

    @property
    def n_leaves(self) -> int:
        return 1

    def paths(self, prefix: str = "") -> list[str]:
        return [prefix]

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        return [value]

    def build(self, leaves: Iterator[Any]) -> Any:
        return next(leaves)

    def take_apart(self, text: Writer, place: str) -> bool:
        text.leaves.append(place)
        return True

    def expression(self, text: Writer) -> str | None:
        return text.leaf()


@dataclass(eq=False, repr=False)
class Constant(Node):
    """None, a number or a string that is the same in every call."""

    constant: Any

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        if not _is_same(value, self.constant):
            shown = repr(value) if isinstance(value, _SCALARS) else described_value(value)
            fix = f": {_OTHER_FORM}" if self.constant is None else ""
            raise ArgumentError(
                f"{path or 'value'} is {shown}; the program was compiled for {self.constant!r}{fix}"
            )
        return []

    def build(self, leaves: Iterator[Any]) -> Any:
        return self.constant

    def take_apart(self, text: Writer, place: str) -> bool:
        if self.constant is None:
            text.refuse(f"{place} is not None")
        elif type(self.constant) in (bool, int, str):
            text.refuse(f"type({place}) is not {text.kind(self.constant)}")
            text.refuse(f"{place} != {text.constant(self.constant)}")
        else:
            return False
        return True

    def expression(self, text: Writer) -> str | None:
        return "None" if self.constant is None else None


@dataclass(eq=False, repr=False)
class Items(Node):
    """A list or tuple of a fixed length."""

    is_list: bool
    items: Sequence[Node]
    why: str = ""

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        return [(str(i), part) for i, part in enumerate(self.items)]

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self.items):
            because = f", because {self.why}" if self.why else ""
            wanted = f"a {'list' if self.is_list else 'tuple'} of {len(self.items)}"
            raise ArgumentError(
                f"{path or 'value'} is {described_value(value)}; it must be {wanted}{because}"
            )
        places = (f"{path}[{i}]" if path else str(i) for i in range(len(self.items)))
        return _all_leaves(self.items, value, places)

    def build(self, leaves: Iterator[Any]) -> Any:
        items = [part.build(leaves) for part in self.items]
        return items if self.is_list else tuple(items)

    def take_apart(self, text: Writer, place: str) -> bool:
        kinds = f"type({place}) is not list and type({place}) is not tuple"
        text.refuse(f"({kinds}) or len({place}) != {len(self.items)}")
        names = text.names(len(self.items))
        text.unpack(names, place)
        return _take_all_apart(text, self.items, names)

    def expression(self, text: Writer) -> str | None:
        made = _expressions(text, self.items)
        if made is None:
            return None
        inside = ", ".join(made)
        return f"[{inside}]" if self.is_list else f"({inside}{',' if len(made) == 1 else ''})"


@dataclass(eq=False, repr=False)
class Dict(Node):
    """A dict of known keys, all of them str or all int."""

    parts: Mapping[Any, Node]

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        return [(str(key), part) for key, part in self.parts.items()]

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        if not isinstance(value, Mapping):
            wanted = f"it must have {listed(self.parts)}"
            raise ArgumentError(f"{path or 'value'} is {described_value(value)}; {wanted}")
        items = _by_key(value, self.parts, path)
        places = (f"{path}[{key!r}]" if path else str(key) for key in self.parts)
        return _all_leaves(self.parts.values(), items, places)

    def build(self, leaves: Iterator[Any]) -> Any:
        return {key: part.build(leaves) for key, part in self.parts.items()}

    def take_apart(self, text: Writer, place: str) -> bool:
        text.refuse(f"type({place}) is not dict or len({place}) != {len(self.parts)}")
        names = text.names(len(self.parts))
        pairs = zip(names, self.parts, strict=True)
        text.lines += [f"{name} = {place}[{text.given(key)}]" for name, key in pairs]
        return _take_all_apart(text, self.parts.values(), names)

    def expression(self, text: Writer) -> str | None:
        made = _expressions(text, self.parts.values())
        if made is None:
            return None
        pairs = zip(self.parts, made, strict=True)
        return "{" + ", ".join(f"{text.given(key)}: {each}" for key, each in pairs) + "}"


@dataclass(eq=False, repr=False)
class Record(Node):
    """An object with fields, of a class that is known by its name. `registered`: the digest of a class that
    is registered with torch's pytrees; the fields are then its parts by number."""

    cls: str
    fields: Mapping[str, Node]
    registered: str | None = None

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        return list(self.fields.items())

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        places = (join(path, key) for key in self.fields)
        return _all_leaves(self.fields.values(), self._items(value, path or "value"), places)

    def _items(self, value: Any, path: str) -> Sequence[Any]:
        if isinstance(value, Mapping):
            return _by_key(value, self.fields, path)
        wanted = f"have {', '.join(self.fields)}"
        if self.registered is not None:
            items = records.parts_of(value, self.cls)
            wanted = f"be a {self.cls} of {len(self.fields)} parts"
        else:
            items = [getattr(value, key) for key in self.fields if hasattr(value, key)]
        if len(items) != len(self.fields):
            raise ArgumentError(f"{path} is {described_value(value)}; it must {wanted}")
        return items

    def build(self, leaves: Iterator[Any]) -> Any:
        built = {key: part.build(leaves) for key, part in self.fields.items()}
        return records.made(self.cls, built, self.registered)


@dataclass(eq=False, repr=False)
class Optional(Node):
    """None, or a value; `absent`: the kinds of the leaves that represent None."""

    optional: Node
    absent: Sequence[columns.Kind] | None = None

    def __post_init__(self) -> None:
        if self.absent is not None and len(self.absent) != self.optional.n_leaves:
            raise ValueError(f"absent has {len(self.absent)} kinds for {self.optional.n_leaves} leaves")

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        return (GIVEN, Leaf()), ("", self.optional)

    def zeros(self) -> list[Any]:
        """Return the leaves that represent None."""
        return [_zero(kind) for kind in self.absent or ()]

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        return [False, *self.zeros()] if value is None else [True, *self.optional.flatten(value, path)]

    def build(self, leaves: Iterator[Any]) -> Any:
        is_there, made = next(leaves), self.optional.build(leaves)
        return made if is_there else None

    def take_apart(self, text: Writer, place: str) -> bool:
        zeros = self.zeros()
        found = f"[{place}]"
        if not isinstance(self.optional, Leaf):
            part = flattener([self.optional])
            if part is None or not zeros:
                return False
            found = f"{text.given(part)}([{place}])"
        text.leaves.append(f"{place} is not None")
        text.lines.append(f"found = {text.given(zeros)} if {place} is None else {found}")
        text.refuse("found is None")
        names = text.names(len(zeros))
        text.leaves += names
        text.unpack(names, "found")
        return True

    def expression(self, text: Writer) -> str | None:
        is_there, made = text.leaf(), self.optional.expression(text)
        return None if made is None else f"({made} if {is_there} else None)"


@dataclass(eq=False, repr=False)
class Either(Node):
    """A result of one of two forms, such as tensors of two ranks."""

    forms: Sequence[Node]

    @property
    def inner(self) -> Sequence[tuple[str, Node]]:
        return ("is_second", Leaf()), *zip(("first", "second"), self.forms, strict=True)

    def build(self, leaves: Iterator[Any]) -> Any:
        is_second, *made = next(leaves), *[form.build(leaves) for form in self.forms]
        return made[bool(is_second)]

    def expression(self, text: Writer) -> str | None:
        is_second, *made = text.leaf(), *[form.expression(text) for form in self.forms]
        return None if None in made else f"({made[1]} if {is_second} else {made[0]})"


@dataclass(eq=False, repr=False)
class Columns(Node):
    """A list of any length or a dict of any keys: {"many": ..} or {"pairs": ..}, a kind of `columns`."""

    kind: columns.Kind

    @property
    def n_leaves(self) -> int:
        return len(columns.names(self.kind, ""))

    def paths(self, prefix: str = "") -> list[str]:
        return columns.names(self.kind, prefix)

    def flatten(self, value: Any, path: str = "") -> list[Any]:
        return list(columns.columns_of(value, self.kind, path or "value"))

    def build(self, leaves: Iterator[Any]) -> Any:
        return columns.value_of([next(leaves) for _ in range(self.n_leaves)], self.kind)

    def take_apart(self, text: Writer, place: str) -> bool:
        plain = columns.ZEROS.get(self.kind["many"]) if isinstance(self.kind.get("many"), str) else None
        if plain is not None:
            text.refuse(f"type({place}) is not list")
            text.lines.append(f"for x in {place}:")
            text.lines.append(f"  if type(x) is not {text.kind(plain)}: return None")
            text.leaves.append(place)
            return True
        text.lines.append(f"found = {text.given(self._or_none)}({place})")
        text.refuse("found is None")
        names = text.names(self.n_leaves)
        text.leaves += names
        text.unpack(names, "found")
        return True

    def _or_none(self, value: Any) -> list[Any] | None:
        try:
            return columns.columns_of(value, self.kind, "")
        except ArgumentError:
            return None

    def expression(self, text: Writer) -> str | None:
        made = [text.leaf() for _ in range(self.n_leaves)]
        return f"{text.given(partial(columns.value_of, kind=self.kind))}([{', '.join(made)}])"


@dataclass(eq=False, repr=False)
class Signature:
    """The mapping of a call's arguments to leaves."""

    positional: Sequence[str]
    parameters: Mapping[str, Node]

    def __post_init__(self) -> None:
        unknown = [name for name in self.positional if name not in self.parameters]
        if unknown or len(set(self.positional)) < len(self.positional):
            raise ValueError("the positional names must be different parameters")

    @classmethod
    def flat(cls, names: Sequence[str]) -> Signature:
        """Return the signature of a leaf for each name."""
        return cls(names, dict.fromkeys(names, Leaf()))

    @property
    def is_flat(self) -> bool:
        """Whether every argument is a leaf."""
        return all(isinstance(part, Leaf) for part in self.parameters.values())

    def paths(self) -> list[str]:
        """Return the name of every leaf of a call: the argument's name, then as `Node.paths`."""
        return [path for name, part in self.parameters.items() for path in part.paths(name)]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of a call's arguments, which may be given by position or by name.

        Raises ArgumentError for an argument that is missing, given twice or unknown (None counts as not
        given).
        """
        given = self._given(args, kwargs)
        missing = [name for name, part in self.parameters.items() if name not in given and part.n_leaves]
        given.update((name, None) for name in missing if isinstance(self.parameters[name], Optional))
        missing = [name for name in missing if name not in given]
        if missing:
            takes = ", ".join(self.parameters)
            raise ArgumentError(f"argument {missing[0]} is missing; the program takes {takes}")
        pairs = ((name, part) for name, part in self.parameters.items() if name in given)
        return [leaf for name, part in pairs for leaf in part.flatten(given[name], name)]

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name."""
        names, parameters = self.positional, self.parameters
        while len(args) > len(names) and args[-1] is None:
            args = args[:-1]
        if len(args) > len(names):
            by_name = [name for name in parameters if name not in names]
            rest = f"; give {', '.join(by_name)} by name" if by_name else ""
            raise ArgumentError(
                f"{len(args)} positional arguments are given; "
                f"the program takes {', '.join(names) or 'none'}{rest}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise ArgumentError(f"argument {name} is given twice, by position and by name")
            if name not in parameters and value is not None:
                hint = "; results go into arrays with exe.run({...}, out={...})" if name == "out" else ""
                takes = ", ".join(parameters)
                raise ArgumentError(f"argument {name} is unknown; the program takes {takes}{hint}")
            given[name] = value
        return given

    def flattener(self) -> Flatten | None:
        """Return a function of the positional arguments that returns the leaves in order, or None for other
        arguments or errors, which `flatten` handles. None if the form is not supported."""
        is_plain = list(self.positional) == list(self.parameters)
        return flattener(list(self.parameters.values())) if is_plain else None


def flattener(parts: Sequence[Node]) -> Flatten | None:
    """Return a function of that many values that returns their leaves in order, or None if `flatten` must
    handle them. None if the form is not supported."""
    text = Writer()
    places = text.names(len(parts))
    text.refuse(f"len(args) != {len(parts)}")
    text.unpack(places, "args")
    is_written = _take_all_apart(text, parts, places)
    found: Flatten | None = text.function("args", f"[{', '.join(text.leaves)}]") if is_written else None
    return found


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return `names`; repeated or `taken` ones get a numeric suffix: "x", "x_2", "x_3"."""
    found: list[str] = []
    used = set(taken)
    for name in names:
        numbered = (f"{name}_{n}" for n in itertools.count(2))
        found.append(next(each for each in itertools.chain([name], numbered) if each not in used))
        used.add(found[-1])
    return found


# Schemas --------------------------------------------------------------------------------------------


def _dict(data: Mapping[str, Any]) -> Dict:
    parts = data["dict"]
    if not data.get("int_keys"):
        return Dict(parts)
    if not all(re.fullmatch("0|-?[1-9][0-9]{0,18}", key) for key in parts):
        raise ValueError("its keys are not all whole numbers")
    return Dict({int(key): part for key, part in parts.items()})


def _choices() -> Sequence[Schema]:
    return _STRUCTURES


STRUCTURE = OneOf(_choices, "a structure of nested values")
_NAME = Text(plain=True)
_PARTS, _FIELDS = MapOf(STRUCTURE), MapOf(STRUCTURE, _NAME)
_CONSTANT = OneOf(
    (NULL, BOOLEAN, Integer(INT64[0], 2**64 - 1), Number(finite=False), Text()), "null, a number or a string"
)
_STRUCTURES = (
    Made(Exactly((LEAF,)), lambda _: Leaf()),
    Made(Object({"constant": _CONSTANT}), lambda of: Constant(of["constant"])),
    Made(Object({"list": ListOf(STRUCTURE)}, {"why": _NAME}), lambda of: Items(True, *of.values())),
    Made(Object({"tuple": ListOf(STRUCTURE)}), lambda of: Items(False, of["tuple"])),
    Made(Object({"dict": _PARTS}, {"int_keys": BOOLEAN}), _dict),
    Made(Object({"namedtuple": _NAME, "fields": _FIELDS}), lambda of: Record(of["namedtuple"], of["fields"])),
    Made(
        Object({"object": _NAME, "fields": _FIELDS}, {"registered": _NAME}),
        lambda of: Record(of["object"], of["fields"], of.get("registered")),
    ),
    Made(
        Object({"optional": STRUCTURE}, {"absent": ListOf(columns.KIND)}),
        lambda of: Optional(of["optional"], of.get("absent")),
    ),
    Made(Object({"either": ListOf(STRUCTURE, 2, 2)}), lambda of: Either(of["either"])),
    Made(columns.WHOLE, Columns),
)
SIGNATURE = Made(
    Object({"positional": ListOf(_NAME), "parameters": _FIELDS}),
    lambda of: Signature(of["positional"], of["parameters"]),
)


def to_json(structure: Structure) -> str:
    """Return the JSON data of a structure or signature as text."""
    return json.dumps(structure, separators=(",", ":"))


def read_structure(text: str, error: type[Error] = ArgumentError) -> Node:
    """Return the structure in a text. Raises `error` if it is invalid."""
    found: Node = decode(text, STRUCTURE, "the structure of the outputs", error)
    return found


def read_signature(text: str, error: type[Error] = ArgumentError) -> Signature:
    """Return the signature in a text. Raises `error` if it is invalid."""
    found: Signature = decode(text, SIGNATURE, "the structure of the inputs", error)
    return found


def signature_data(text: str) -> dict[str, Any]:
    """Return the JSON data of the signature in a text. Raises ArgumentError if it is invalid."""
    read_signature(text)
    return dict(json.loads(text))


def form(structure: Structure) -> Node:
    """Return the JSON data of a structure as a node. Raises ArgumentError if it is invalid."""
    return read_structure(to_json(structure))


# Inside -------------------------------------------------------------------------------------------


def _all_leaves(parts: Iterable[Node], values: Iterable[Any], places: Iterable[str]) -> list[Any]:
    rows = zip(parts, values, places, strict=True)
    return [leaf for part, value, place in rows for leaf in part.flatten(value, place)]


def _take_all_apart(text: Writer, parts: Iterable[Node], places: Iterable[str]) -> bool:
    return all(part.take_apart(text, place) for part, place in zip(parts, places, strict=True))


def _expressions(text: Writer, parts: Iterable[Node]) -> list[str] | None:
    made = [part.expression(text) for part in parts]
    return None if None in made else list(map(str, made))


def _by_key(value: Mapping[Any, Any], wanted: Mapping[Any, Node], path: str) -> list[Any]:
    if set(value) != set(wanted):
        raise ArgumentError(f"{path or 'value'} has the keys {listed(value)}; they must be {listed(wanted)}")
    return [value[key] for key in wanted]


def _zero(kind: columns.Kind) -> Any:
    if isinstance(kind, dict):
        return []
    return columns.ZEROS[kind] if isinstance(kind, str) else np.zeros((1,) * kind[1], NUMPY_DTYPES[kind[0]])


_SCALARS = (type(None), bool, int, float, str)
_OTHER_FORM = (
    "compile it with an example of this argument, or use shapevm.accelerate, which compiles a program for "
    "each form"
)


def _is_same(value: Any, constant: Any) -> bool:
    """Return True for equal values of the same type: 1, 1.0 and True make different programs."""
    return type(value) is type(constant) and (value == constant or value != value and constant != constant)
