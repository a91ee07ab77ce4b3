"""Data classes that are quick to make: importing the compiler makes two hundred, half of what it takes.

`dataclasses.dataclass` compiles six methods of every class from text. Here all classes share some methods,
and the others are compiled when they are first called. `dataclasses.fields`, `replace`, `asdict` and
`is_dataclass` take these classes as they take the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

Method = Callable[..., Any]


def made_quickly(
    cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Any:
    """Make a data class of `cls`, or return a decorator that does. Methods that the class has are kept. The
    options are those of `dataclasses.dataclass`; a frozen class may have bases that are not."""
    if cls is None:
        return lambda cls: made_quickly(cls, frozen=frozen, eq=eq, kw_only=kw_only)
    own = {name for name, value in vars(cls).items() if value is not None}  # __hash__ is None beside __eq__
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)  # its fields, no methods
    for name, method in _methods(cls, frozen, eq).items():
        if name not in own:
            setattr(cls, name, method)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = made_quickly


def _methods(cls: type, frozen: bool, eq: bool) -> dict[str, Method | None]:
    """Return what a data class has unless it says otherwise."""
    methods: dict[str, Method | None] = {"__init__": _compiled_later(cls, "__init__", _init_of, frozen)}
    methods["__repr__"] = _repr
    if eq:
        methods["__eq__"] = _compiled_later(cls, "__eq__", _equality_of)
        methods["__hash__"] = _compiled_later(cls, "__hash__", _hash_of) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    return methods


def _compiled_later(cls: type, name: str, make: Method, *how: bool) -> Method:
    """Return a method that has the real one made when it is first called, which takes its place."""

    def first(*args: Any, **kwargs: Any) -> Any:
        method = make(cls, *how)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        type.__setattr__(cls, name, method)
        return method(*args, **kwargs)

    return first


def _compared(cls: type, of: str) -> str:
    """Return the expression of a tuple of what is compared of the object `of`."""
    return "(" + "".join(f"{of}.{f.name}, " for f in dataclasses.fields(cls) if f.compare) + ")"


def _equality_of(cls: type) -> Method:
    equal = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    result = f"{equal} if other.__class__ is self.__class__ else NotImplemented"
    return _compiled(f"def __eq__(self, other):\n return {result}", "__eq__", {})


def _hash_of(cls: type) -> Method:
    return _compiled(f"def __hash__(self):\n return hash({_compared(cls, 'self')})", "__hash__", {})


def _compiled(text: str, name: str, names: dict[str, Any]) -> Method:
    """Return the function `name` of a text that may mention these names."""
    exec(text, names)
    method: Method = names[name]
    return method


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _init_of(cls: type, frozen: bool) -> Method:
    known = dataclasses.fields(cls)
    names: dict[str, Any] = {"MISSING": MISSING, "_set": object.__setattr__}
    for field in known:
        names[f"_default_{field.name}"], names[f"_make_{field.name}"] = field.default, field.default_factory
    taken = sorted((field for field in known if field.init), key=lambda field: bool(field.kw_only))
    parameters = ["self", *map(_parameter, taken)]
    n_by_place = sum(not field.kw_only for field in taken)
    if n_by_place < len(taken):
        parameters.insert(1 + n_by_place, "*")
    given = [(field.name, _given(field)) for field in known if field.init or _is_made(field)]
    form = "_set(self, '{}', {})" if frozen else "self.{} = {}"
    lines = [form.format(name, value) for name, value in given]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    return _compiled(text, "__init__", names)


def _is_made(field: dataclasses.Field[Any]) -> bool:
    """Whether each object has a default value of its own."""
    return field.default_factory is not MISSING


def _parameter(field: dataclasses.Field[Any]) -> str:
    if _is_made(field):
        return f"{field.name}=MISSING"
    return field.name if field.default is MISSING else f"{field.name}=_default_{field.name}"


def _given(field: dataclasses.Field[Any]) -> str:
    """Return the expression of a field's value."""
    if not _is_made(field):
        return field.name
    made = f"_make_{field.name}()"
    return f"{made} if {field.name} is MISSING else {field.name}" if field.init else made
