"""Nested inputs and outputs as flat lists of leaves, and back, without PyTorch.

A *structure* is JSON data:
  "*"                                     a leaf
  {"constant": value}                     None, a number or a string, the same in every call
  {"list": [..]}, {"tuple": [..]}         their items' structures
  {"dict": {key: ..}, "int_keys": true}   by key, in order ("int_keys" only where they are ints)
  {"namedtuple": "module:Class", "fields": {name: ..}}
  {"object": "module:Class", "fields": {name: ..}}
  {"object": "module:Class", "fields": {"0": ..}, "registered": digest}
  {"optional": .., "absent": [kind, ..]}  None, or what the structure says
  {"many": kind}, {"pairs": [kind, kind]} a list of any length, a dict of any keys, of elements of one kind
The leaves of a list of any length and of a dict of any keys are their columns: see `columns`.
A leaf tells whether an optional is there; its own leaves follow. Where it is None, these are zeros of the
kinds: "int", "float", "bool", "str", [dtype, rank] for an array of one zero, {"many": kind} for an empty
list. Results need no kinds.
A dataclass, or a class that takes its fields as keywords, is given back where its module is loaded, else as a
dict; one that is registered with torch's pytrees only in the process that compiled the program. A *signature*
says how a call's arguments become leaves:
{"positional": [name, ..], "parameters": {name: structure}}.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from . import columns
from .columns import GIVEN, described_value, join
from .vm.errors import ArgumentError
from .vm.program import NUMPY_DTYPES

Structure = Any
LEAF = "*"
_COLUMNS = ("many", "pairs")
_KINDS = ("constant", "list", "tuple", "dict", "namedtuple", "object", "optional", *_COLUMNS)


def flatten(value: Any, structure: Structure, path: str = "") -> list[Any]:
    """Return the leaves of `value` in order. Raises ArgumentError where it is not built as `structure`
    says."""
    if structure == LEAF:
        return [value]
    kind = _kind(structure)
    if kind == "constant":
        if not _is_same(value, structure["constant"]):
            shown = repr(value) if isinstance(value, _SCALARS) else described_value(value)
            fix = ": compile it with an example of this argument" if structure["constant"] is None else ""
            raise ArgumentError(
                f"{path or 'value'} is {shown}; the program was compiled for {structure['constant']!r}{fix}"
            )
        return []
    if kind == "optional":
        inner = structure["optional"]
        return [False, *absent(structure)] if value is None else [True, *flatten(value, inner, path)]
    if kind in _COLUMNS:
        return list(columns.columns_of(value, structure, path or "value"))
    items = _items_of(value, kind, structure, path or "value")
    return [
        leaf
        for (key, inner), item in zip(_inner(structure), items, strict=True)
        for leaf in flatten(item, inner, _part_of(path, key, kind, structure))
    ]


def _part_of(path: str, key: str, kind: str, structure: Structure) -> str:
    """Return how a message names a part of what is named `path`: boxes[1]['x'], box.x."""
    if not path or kind in ("namedtuple", "object"):
        return join(path, key)
    is_text = kind == "dict" and not structure.get("int_keys")
    return f"{path}[{key!r}]" if is_text else f"{path}[{key}]"


def absent(structure: Structure) -> list[Any]:
    """Return what stands for the leaves of an optional that is None."""
    return [_zero(kind) for kind in structure.get("absent", [])]


def unflatten(leaves: Sequence[Any], structure: Structure) -> Any:
    """Return the nested value that holds `leaves`. Raises ArgumentError for too few or too many."""
    if n_leaves(structure) != len(leaves):
        raise ArgumentError(f"{len(leaves)} values are given; the structure holds {n_leaves(structure)}")
    return _build(iter(leaves), structure)


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """Return the name of every leaf: keys and positions joined by dots ("" for a bare leaf)."""
    if structure == LEAF:
        return [prefix]
    if _kind(structure) in _COLUMNS:
        return columns.names(structure, prefix)
    return [path for key, inner in _inner(structure) for path in paths(inner, join(prefix, key))]


def n_leaves(structure: Structure) -> int:
    """Return how many leaves there are."""
    if structure == LEAF:
        return 1
    if _kind(structure) in _COLUMNS:
        return len(columns.names(structure, ""))
    return sum(n_leaves(inner) for _, inner in _inner(structure))


def flatten_call(args: Sequence[Any], kwargs: Mapping[str, Any], signature: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of a call's arguments, which may be given by position or by name.

    Raises ArgumentError for an argument that is missing, given twice or unknown (None counts as not given).
    """
    names, parameters = signature["positional"], signature["parameters"]
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
    missing = [name for name, structure in parameters.items() if name not in given and n_leaves(structure)]
    given.update((name, None) for name in missing if "optional" in parameters[name])
    missing = [name for name in missing if name not in given]
    if missing:
        raise ArgumentError(f"argument {missing[0]} is missing; the program takes {', '.join(parameters)}")
    return [
        leaf
        for name, structure in parameters.items()
        if name in given
        for leaf in flatten(given[name], structure, name)
    ]


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return `names`, those that occurred before or are `taken` with a number behind: "x", "x_2", "x_3"."""
    found: list[str] = []
    used = set(taken)
    for name in names:
        numbered = (f"{name}_{n}" for n in itertools.count(2))
        found.append(next(each for each in itertools.chain([name], numbered) if each not in used))
        used.add(found[-1])
    return found


def call_paths(signature: Mapping[str, Any]) -> list[str]:
    """Return the name of every leaf of a call: the argument's name, then as `paths`."""
    return [path for name, structure in signature["parameters"].items() for path in paths(structure, name)]


def to_json(structure: Structure) -> str:
    """Return a structure or signature as text."""
    return json.dumps(structure, separators=(",", ":"))


def from_json(text: str) -> Structure:
    """Return the structure or signature in `text`. Raises ArgumentError where it is neither."""
    structure = json.loads(text)
    parts: Iterable[Structure] = [structure]
    if isinstance(structure, dict) and "parameters" in structure:
        names, parameters = structure.get("positional"), structure["parameters"]
        if (
            not isinstance(parameters, dict)
            or not isinstance(names, list)
            or not all(name in parameters for name in names)
        ):
            raise ArgumentError(
                f"{text[:200]} is not a signature: parameters by name, and the names of positional ones"
            )
        parts = parameters.values()
    for part in parts:
        _check(part)
    return structure


def class_name(cls: type) -> str:
    """Return "module:Class" for a structure; `unflatten` finds the class by it while it exists in this
    process."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    _NAMED[name] = cls
    return name


def registered_class(cls: type, build: Callable[[list[Any]], Any], digest: str) -> str:
    """Return "module:Class" for a structure of a class that is registered with torch's pytrees. `build` makes
    one of its parts; `digest` names it in this process alone: a file cannot bring another one."""
    _BUILDERS[digest] = build
    return class_name(cls)


_BUILDERS: dict[str, Callable[[list[Any]], Any]] = {}


#: Classes that have been named here: those made inside of functions are found nowhere else.
_NAMED: WeakValueDictionary[str, type] = WeakValueDictionary()


# Inside -------------------------------------------------------------------------------------------


def _kind(structure: Structure) -> str:
    for kind in _KINDS:
        if (
            isinstance(structure, dict)
            and kind in structure
            and (kind not in ("namedtuple", "object") or "fields" in structure)
        ):
            return kind
    raise ArgumentError(f"{structure!r} is not a structure of nested values")


def _check(structure: Structure) -> None:
    if structure == LEAF:
        return
    kind = _kind(structure)
    if kind == "optional":
        _check_optional(structure)
        return
    if kind in _COLUMNS:
        if not columns.is_kind(structure):
            raise ArgumentError(f"{structure!r} is not a structure of nested values")
        return
    items = structure["fields" if kind in ("namedtuple", "object") else kind] if kind != "constant" else []
    is_named = kind not in ("namedtuple", "object") or isinstance(structure[kind], str)
    if not isinstance(items, list if kind in ("constant", "list", "tuple") else dict) or not is_named:
        raise ArgumentError(f"{structure!r} is not a structure of nested values")
    for _, inner in _inner(structure):
        _check(inner)


def _zero(kind: columns.Kind) -> Any:
    if isinstance(kind, dict):
        return []
    return columns.ZEROS[kind] if isinstance(kind, str) else np.zeros((1,) * kind[1], NUMPY_DTYPES[kind[0]])


def _check_optional(structure: Structure) -> None:
    _check(structure["optional"])
    kinds = structure.get("absent", [])
    is_right = isinstance(kinds, list) and all(map(columns.is_kind, kinds))
    if not is_right or ("absent" in structure and len(kinds) != n_leaves(structure["optional"])):
        raise ArgumentError(f"{structure!r} is not a structure of nested values")


def _inner(structure: Structure) -> Iterator[tuple[str, Structure]]:
    """Yield (key, structure) of every item."""
    kind = _kind(structure)
    if kind in ("list", "tuple"):
        yield from ((str(i), inner) for i, inner in enumerate(structure[kind]))
    elif kind == "optional":
        yield GIVEN, LEAF
        yield "", structure["optional"]
    elif kind != "constant":
        yield from structure["dict" if kind == "dict" else "fields"].items()


def _items_of(value: Any, kind: str, structure: Structure, path: str) -> list[Any]:
    keys = [key for key, _ in _inner(structure)]
    if kind in ("list", "tuple"):
        if not isinstance(value, list | tuple) or len(value) != len(keys):
            why = structure.get("why")
            because = f", because {why}" if isinstance(why, str) else ""
            raise ArgumentError(
                f"{path} is {described_value(value)}; it must be a {kind} of {len(keys)}{because}"
            )
        return list(value)
    if "registered" in structure and not isinstance(value, Mapping):
        return _registered_items(value, structure, path, len(keys))
    wanted = [int(key) for key in keys] if structure.get("int_keys") else keys
    if isinstance(value, Mapping):
        if set(value) != set(wanted):
            raise ArgumentError(
                f"{path} has the keys {', '.join(map(str, value))}; they must be {', '.join(keys)}"
            )
        return [value[key] for key in wanted]
    if kind == "dict" or not all(hasattr(value, key) for key in keys):
        raise ArgumentError(f"{path} is {described_value(value)}; it must have {', '.join(keys)}")
    return [getattr(value, key) for key in keys]


def _registered_items(value: Any, structure: Structure, path: str, n: int) -> list[Any]:
    """Return the parts of an object whose class is registered with torch's pytrees."""
    torch_pytree = sys.modules.get("torch.utils._pytree")
    node = torch_pytree.SUPPORTED_NODES.get(type(value)) if torch_pytree is not None else None
    items = list(node.flatten_fn(value)[0]) if node is not None else []
    if class_name(type(value)) != structure["object"] or len(items) != n:
        raise ArgumentError(
            f"{path} is {described_value(value)}; it must be a {structure['object']} of {n} parts"
        )
    return items


_SCALARS = (type(None), bool, int, float, str)


def _is_same(value: Any, constant: Any) -> bool:
    """Return True for the same value of the same type: 1, 1.0 and True make different programs."""
    return type(value) is type(constant) and (value == constant or value != value and constant != constant)


def _build(leaves: Iterator[Any], structure: Structure) -> Any:
    if structure == LEAF:
        return next(leaves)
    kind = _kind(structure)
    if kind in _COLUMNS:
        return columns.value_of([next(leaves) for _ in range(n_leaves(structure))], structure)
    if kind == "constant":
        return structure["constant"]
    if kind == "optional":
        is_there, made = next(leaves), _build(leaves, structure["optional"])
        return made if is_there else None
    built = [(key, _build(leaves, inner)) for key, inner in _inner(structure)]
    if kind in ("list", "tuple"):
        items = [item for _, item in built]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {int(key) if structure.get("int_keys") else key: item for key, item in built}
    if isinstance(structure.get("registered"), str):
        make = _BUILDERS.get(structure["registered"])
        return dict(built) if make is None else make([item for _, item in built])
    cls = _loaded_class(structure[kind])
    try:
        if cls is not None and issubclass(cls, tuple) and not hasattr(cls, "_fields"):
            return cls([item for _, item in built])  # one of torch.return_types
        return dict(built) if cls is None else cls(**dict(built))
    except TypeError:  # another class than the model's, though of its name
        return dict(built)


def _loaded_class(name: str) -> type | None:
    """Return the class where its module is loaded already: a file must not be able to import modules."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    found = _NAMED.get(name) or found
    is_record = isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, tuple))
    return found if is_record else None
