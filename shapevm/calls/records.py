"""Objects with fields in call forms: their classes are known by name.

Dataclasses, named tuples and torch.return_types are returned as such if their module is loaded, else as a
dict; classes registered with torch's pytrees only in the process that compiled the program. A file only names
classes: nothing is imported for it, and code of a class runs only if the class is registered with torch's
pytrees or this process compiled a program with it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

#: Classes that have been named here: local classes are found nowhere else.
_NAMED: WeakValueDictionary[str, type] = WeakValueDictionary()
_BUILDERS: dict[str, Callable[[list[Any]], Any]] = {}


def class_name(cls: type) -> str:
    """Return "module:Class" for a structure; `made` uses it to find the class while it exists in this
    process."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    _NAMED[name] = cls
    return name


def registered_class(cls: type, build: Callable[[list[Any]], Any], digest: str) -> str:
    """Return "module:Class" for a structure of a class that is registered with torch's pytrees. `build` makes
    an object from its parts; `digest` identifies the class in this process only: a file cannot supply another
    one."""
    _BUILDERS[digest] = build
    return class_name(cls)


def parts_of(value: Any, name: str) -> Sequence[Any]:
    """Return the parts of an object of the class `name` that is registered with torch's pytrees; none for
    another class."""
    node = _registry().get(type(value))
    if node is None or f"{type(value).__module__}:{type(value).__qualname__}" != name:
        return []
    return list(node.flatten_fn(value)[0])


def made(name: str, fields: Mapping[str, Any], registered: str | None) -> Any:
    """Return an object of the class `name` with these fields, or a dict if the class is not available."""
    if registered is not None:
        make = _BUILDERS.get(registered)
        return dict(fields) if make is None else make(list(fields.values()))
    cls = _NAMED.get(name) or _loaded(name)
    if not isinstance(cls, type) or not (issubclass(cls, tuple) or dataclasses.is_dataclass(cls)):
        return dict(fields)
    if issubclass(cls, tuple):
        return _tuple(cls, fields)
    try:
        return cls(**fields) if name in _NAMED or cls in _registry() else _plain(cls, fields)
    except TypeError:  # a different class of the same name
        return dict(fields)


def _loaded(name: str) -> Any:
    """Look this name up in loaded modules, without getattr, which runs code of lazy modules and of
    classes."""
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = vars(found).get(part) if isinstance(found, type | type(sys)) else None
    return found


def _registry() -> Mapping[type, Any]:
    torch_pytree = sys.modules.get("torch.utils._pytree")
    return torch_pytree.SUPPORTED_NODES if torch_pytree is not None else {}


def _tuple(cls: type[tuple[Any, ...]], fields: Mapping[str, Any]) -> Any:
    """Return a named tuple, or one of torch.return_types, without running code of its class."""
    if cls.__module__ == "torch.return_types":
        return cls(fields.values())
    if getattr(cls, "_fields", None) != tuple(fields):
        return dict(fields)
    return tuple.__new__(cls, fields.values())


def _plain(cls: type, fields: Mapping[str, Any]) -> Any:
    """Return an object of a dataclass without running code of its class; a dict if constructing one would do
    more than set the fields."""
    names = [each.name for each in dataclasses.fields(cls)]
    defined = [item for each in cls.__mro__[:-1] for item in vars(each).items()]
    acts = any(name in ("__post_init__", "__new__") or isinstance(x, property) for name, x in defined)
    if acts or names != list(fields):
        return dict(fields)
    result: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(result, name, value)
    return result
