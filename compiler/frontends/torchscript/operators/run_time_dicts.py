"""Dicts with run-time keys: lists of (key, value), in insertion order."""

from __future__ import annotations

from typing import Any

from ....ir.graph import Value
from ....ir.types import ScalarType, TensorType, TupleType, Type
from ....ops import build as B
from ..flow.branches import branch
from ..values import elements, nested
from ..values.values import Dict, List, is_run_time_list, kind_of
from ..walk import Walk
from . import library
from .run_time_lists import at_run_time, element, hold


def as_list(importer: Walk, x: Dict) -> List:
    """Return the pairs of a dict, as a list of run-time length. Raises Fails for an empty one."""
    if is_run_time_list(x.content):
        return nested.apart(importer, x)
    return at_run_time(importer, List(list(x.content.items()), memory=x.memory))


def _call(importer: Walk, name: str, x: List, *args: Any) -> Any:
    given = nested.apart(importer, x)  # the result is never the list itself
    return library.run(importer, name, [given, *args], x.content.type.element)


def _replace(importer: Walk, x: Dict, made: List) -> None:
    importer.regions.note(x)
    x.content = made.content


def set_key(importer: Walk, x: Dict, key: Any, item: Any) -> None:
    """x[key] = item, with a run-time key, or in a dict of such keys."""
    if not is_run_time_list(x.content) and not x.content:
        type = x.declared or _type(importer, key, item)
        pairs = List(importer.builder.one("list", element=type), memory=x.memory)
    else:
        pairs = as_list(importer, x)
    b, place = importer.builder, _call(importer, "place", pairs, key)
    pair = elements.packed(b, (key, item), pairs.content.type.element, importer.tensors.read)
    ways = [
        lambda: [b.one("list_set", pairs.content, place, pair)],
        lambda: [b.one("append", pairs.content, pair)],
    ]
    (content,) = branch(importer, b.one("int_le", b.size(0), place), ways)
    importer.regions.note(x)
    x.content = content
    hold(importer, x, item)


def _type(importer: Walk, key: Any, item: Any) -> Type:
    def of_tensor(found: Any) -> TensorType:
        return B.type_of(importer.tensors.read(found))

    return TupleType((ScalarType(kind_of(key)), elements.type_of(item, of_tensor)))


def _item(importer: Walk, x: Dict, key: Any) -> Any:
    b, pairs = importer.builder, as_list(importer, x)
    place = _call(importer, "place", pairs, key)
    b.apply("guard", b.one("int_le", b.size(0), place), message="the dict lacks the key")
    if is_run_time_list(x.content):
        return nested.taken(importer, x, place)[1]
    return element(importer, pairs, place)[1]


def _contains(importer: Walk, x: Dict, key: Any) -> Value:
    b = importer.builder
    return b.one("int_le", b.size(0), _call(importer, "place", as_list(importer, x), key))


def get(importer: Walk, x: Dict, key: Any, default: Any = None) -> Any:
    """x.get(key, default)."""
    pairs = as_list(importer, x)
    if default is None:
        found = _call(importer, "found", pairs, key)
    else:
        found = _call(importer, "found_or", pairs, key, nested.alone(default))
        nested.follow(importer, x, default)
    nested.follow(importer, x, found)
    return found


def _delete(importer: Walk, x: Dict, key: Any, *default: Any) -> Any:
    found = (
        get(importer, x, key, *default) if default else nested.detached(importer, x, _item(importer, x, key))
    )
    _replace(importer, x, _call(importer, "dropped", as_list(importer, x), key))
    return found


def _set_default(importer: Walk, x: Dict, key: Any, default: Any) -> Any:
    if isinstance(default, List):
        pairs = as_list(importer, x)
        _replace(importer, x, _call(importer, "ensured", pairs, key, (key, nested.alone(default))))
        nested.give(importer, x, default)
        return _item(importer, x, key)
    found = get(importer, x, key, default)
    set_key(importer, x, key, found)
    return found


def _copy(importer: Walk, made: Any, x: Dict) -> Any:
    nested.copied(importer, made, x)
    return made


def _copy_of(importer: Walk, x: Dict) -> Dict:
    made = Dict(x.content, memory=importer.tensors.apart(x.memory))
    nested.copied(importer, made, x)
    return made


def _part(name: str) -> Any:
    def handler(importer: Walk, x: Dict) -> List:
        pairs = as_list(importer, x)
        made = _call(importer, name, pairs)
        importer.tensors.share(x.memory, made.memory)
        found = List(made.content, memory=made.memory)
        return _copy(importer, nested.has_all_of(found, x, (0 if name == "keys" else 1,)), x)

    return handler


def update(importer: Walk, x: Dict, other: Dict) -> None:
    """x.update(other), where one or both have run-time keys."""
    _update(importer, x, other)
    if is_run_time_list(other.content):
        nested.copied(importer, x, other)


def _update(importer: Walk, x: Dict, other: Dict) -> None:
    if not is_run_time_list(other.content):
        for key, item in other.content.items():
            set_key(importer, x, key, item)
    elif not is_run_time_list(x.content) and not x.content:
        _replace(importer, x, List(other.content))
        importer.tensors.share(x.memory, other.memory)
    else:
        pairs = as_list(importer, x)
        importer.tensors.share(x.memory, other.memory)
        _replace(importer, x, _call(importer, "updated", pairs, as_list(importer, other)))


def _cleared(importer: Walk, x: Dict) -> None:
    importer.regions.note(x)
    x.content = importer.builder.one("list", element=x.content.type.element)


RUN_TIME_DICTS: dict[str, Any] = {
    "__getitem__": _item,
    "get": get,
    "_set_item": set_key,
    "len": lambda importer, x: importer.builder.one("len", x.content),
    "__contains__": _contains,
    "keys": _part("keys"),
    "values": _part("values"),
    "items": lambda importer, x: _copy(importer, nested.has_all_of(nested.apart(importer, x), x), x),
    "pop": _delete,
    "Delete": _delete,
    "setdefault": _set_default,
    "update": update,
    "clear": _cleared,
    "copy": _copy_of,
    "dict": _copy_of,
}
