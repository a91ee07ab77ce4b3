"""Lists and dicts: operators whose first argument is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ir.types import ScalarType
from ....ops import build as B
from ..bounds import check_length
from ..flow.branches import branch
from ..values.scalars import scalar_op, value_of
from ..values.values import Dict, Fails, List, Tensor, is_run_time, is_run_time_list, is_size, kind_of
from ..walk import Walk
from . import library, run_time_dicts
from .composites import choose
from .run_time_dicts import RUN_TIME_DICTS
from .run_time_lists import (
    RUN_TIME_LISTS,
    at_run_time,
    become_run_time,
    concatenated,
    element,
    equal,
    extend,
    repeated,
    set_item,
    sliced,
)
from .texts import place_in_text

MANY_KEYS = 16  # of a dict: beyond that its keys are searched as one text, its numbers are in a tensor
_DTYPES = {"bool": (np.bool_, "bool"), "int": (np.int64, "i64"), "float": (np.float64, "f64")}


def content(importer: Walk, x: List) -> list[Any]:
    """Return the items of a list. Raises UnsupportedOp for a run-time length."""
    if is_run_time_list(x.content):
        raise UnsupportedOp("this use of a list of run-time length cannot be compiled")
    return x.content


def container_op(importer: Walk, name: str, args: Sequence[Any]) -> Any:
    """Return the result of TorchScript's `aten::name` for a list, tuple, dict or string; NotImplemented if no
    container's operator has that name."""
    first = args[0] if args else None
    if isinstance(first, List):
        table = RUN_TIME_LISTS if is_run_time_list(first.content) else _LISTS
    elif isinstance(first, Dict):
        table = RUN_TIME_DICTS if is_run_time_list(first.content) else _DICTS
    else:
        return NotImplemented
    handler = table.get(name)
    return NotImplemented if handler is None else handler(importer, *args)


def _index(importer: Walk, items: Sequence[Any], index: Any) -> int:
    if not isinstance(index, int):
        raise UnsupportedOp("a run-time position in this list cannot be compiled")
    if not -len(items) <= index < len(items):
        raise Fails(f"index {index} is out of range; the list has {len(items)} elements")
    return index


def get_item(importer: Walk, x: List, index: Any) -> Any:
    """Return x[index]."""
    if isinstance(index, int):
        return x.content[_index(importer, x.content, index)]
    if any(isinstance(item, List) for item in x.content):
        become_run_time(importer, x)
    return element(importer, at_run_time(importer, x), index)


def _append(importer: Walk, x: List, item: Any) -> List:
    importer.regions.note(x)
    x.content = [*x.content, item]
    return x


def _set_item(importer: Walk, x: List, index: Any, item: Any) -> List:
    if not isinstance(index, int):
        return set_item(importer, x, index, item)
    importer.regions.note(x)
    items = list(x.content)
    items[_index(importer, items, index)] = item
    x.content = items
    return x


def _changing(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler of a method that changes a list."""

    def handler(importer: Walk, x: List, *args: Any) -> Any:
        if any(map(_is_of_calls, args[:1])):
            become_run_time(importer, x)
            return RUN_TIME_LISTS[name](importer, x, *args)
        importer.regions.note(x)
        x.content = list(x.content)
        try:
            return change(x.content, *args)
        except IndexError as error:
            raise Fails(f"{error}; the list has {len(x.content)} elements") from None

    return handler


def _searching(name: str, search: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler of a method that compares elements with a value, and that may change a list."""

    def handler(importer: Walk, x: List, item: Any) -> Any:
        if not x.content:
            return _found(search, [], item)
        if all(map(_is_known, (*x.content, item))):
            importer.regions.note(x)
            x.content = list(x.content)
            return _found(search, x.content, item)
        if name == "remove":
            become_run_time(importer, x)
        return RUN_TIME_LISTS[name](importer, at_run_time(importer, x), item)

    return handler


def _found(search: Callable[..., Any], items: list[Any], item: Any) -> Any:
    try:
        return search(items, item)
    except ValueError:
        raise Fails(f"the value {item!r} is not in the list") from None


def _is_known(x: Any) -> bool:
    """Return True for a plain value that does not depend on calls."""
    return kind_of(x) != "" and not _is_of_calls(x)


def _sorted(importer: Walk, x: List, reverse: Any = False) -> List:
    items = x.content
    if all(map(_is_known, (*items, reverse))):
        return List(sorted(items, reverse=reverse))
    if len(items) < 2:
        return List(list(items))
    made = RUN_TIME_LISTS["sorted"](importer, at_run_time(importer, x), reverse)
    return List([element(importer, made, i) for i in range(len(items))])


def _sort(importer: Walk, x: List, reverse: Any = False) -> None:
    made = _sorted(importer, x, reverse)
    importer.regions.note(x)
    x.content = made.content


def _new_list(compute: Callable[..., list[Any]]) -> Callable[..., List]:
    def handler(importer: Walk, x: List, *args: Any) -> List:
        if any(is_run_time(a) or is_size(a) for a in args):
            return sliced(importer, at_run_time(importer, x), *args)
        return List(compute(x.content, *(content(importer, a) if isinstance(a, List) else a for a in args)))

    return handler


def _joined(importer: Walk, x: List, other: List) -> List:
    if is_run_time_list(other.content):
        return concatenated(importer, x, other)
    check_length(len(x.content) + len(other.content))
    return List([*x.content, *other.content])


def _extend(importer: Walk, x: List, other: List) -> List:
    if is_run_time_list(other.content):
        return extend(importer, x, other)
    check_length(len(x.content) + len(other.content))
    importer.regions.note(x)
    x.content = [*x.content, *other.content]
    return x


def _slice(items: Sequence[Any], start: Any = None, end: Any = None, step: int = 1) -> list[Any]:
    return list(items[slice(start, end, step)])


def _contains(importer: Walk, x: List, item: Any) -> Any:
    made: Any = False
    for each in x.content:
        made = _either(importer, made, scalar_op(importer.builder, "eq", (each, item)))
    return made


def _either(importer: Walk, a: Any, c: Any) -> Any:
    if a is True or c is True:
        return True
    if a is False or c is False:
        return c if a is False else a
    return importer.builder.one("bool_or", a, c)


def _lists_equal(importer: Walk, x: List, y: List) -> Any:
    if is_run_time_list(y.content):
        return equal(importer, x, y)
    if len(x.content) != len(content(importer, y)):
        return False
    made: Any = True
    for one, two in zip(x.content, y.content, strict=True):
        found = scalar_op(importer.builder, "eq", (one, two))
        if found is False:
            return False
        made = (
            found
            if made is True
            else made
            if found is True
            else importer.builder.one("bool_and", made, found)
        )
    return made


def _lists_differ(importer: Walk, x: List, y: List) -> Any:
    return scalar_op(importer.builder, "__not__", (_lists_equal(importer, x, y),))


def _fold(name: str) -> Callable[..., Any]:
    def handler(importer: Walk, x: List, *_: Any) -> Any:
        if not x.content:
            if name == "add":
                return 0
            raise Fails(f"{name} of an empty list")
        made = x.content[0]
        for item in x.content[1:]:
            made = scalar_op(importer.builder, name, (made, item))
        return made

    return handler


def _quantified(is_all: bool) -> Callable[..., Any]:
    def handler(importer: Walk, x: List) -> Any:
        made: Any = is_all
        for item in x.content:
            found = scalar_op(importer.builder, "Bool", (item,))
            if isinstance(found, bool):
                if found is not is_all:
                    return found
            elif isinstance(made, bool):
                made = found
            else:
                made = importer.builder.one("bool_and" if is_all else "bool_or", made, found)
        return made

    return handler


_LISTS: dict[str, Callable[..., Any]] = {
    "__getitem__": get_item,
    "append": _append,
    "len": lambda importer, x: len(x.content),
    "_set_item": _set_item,
    "slice": _new_list(_slice),
    "add": _joined,
    "add_": _extend,
    "mul": repeated,
    "copy": _new_list(list),
    "list": _new_list(list),
    "extend": _extend,
    "insert": _changing("insert", lambda items, index, item: items.insert(index, item)),
    "pop": _changing("pop", lambda items, index=-1: items.pop(index)),
    "clear": _changing("clear", lambda items: items.clear()),
    "reverse": _changing("reverse", lambda items: items.reverse()),
    "Delete": _changing("Delete", lambda items, index: items.pop(index)),
    "__contains__": _contains,
    "index": _searching("index", list.index),
    "count": _searching("count", list.count),
    "remove": _searching("remove", list.remove),
    "sort": _sort,
    "sorted": _sorted,
    "eq": _lists_equal,
    "ne": _lists_differ,
    "sum": _fold("add"),
    "max": _fold("max"),
    "min": _fold("min"),
    "dict": lambda importer, x: Dict({key_of(key): item for key, item in x.content}),
    "any": _quantified(False),
    "all": _quantified(True),
}


def key_of(key: Any) -> Any:
    """Return a dict's key. Raises UnsupportedOp for a run-time value."""
    if isinstance(key, bool | int | float | str):
        return key
    raise UnsupportedOp("a dict's run-time key cannot be compiled")


def _is_of_calls(key: Any) -> bool:
    return is_run_time(key) or is_size(key)


def _dict_get(importer: Walk, x: Dict, key: Any, default: Any = None) -> Any:
    if not _is_of_calls(key):
        return x.content.get(key_of(key), default)
    if default is None:
        return run_time_dicts.get(importer, x, key) if x.content else None
    keys = list(x.content)
    return _chosen(importer, [*x.content.values(), default], _place_of(importer, keys, key))


def _dict_item(importer: Walk, x: Dict, key: Any) -> Any:
    known = f"it has {_shown_keys(x)}"
    if _is_of_calls(key) and x.content:
        importer.builder.apply(
            "guard", _dict_contains(importer, x, key), message=f"the dict lacks the key; {known}"
        )
        keys = list(x.content)
        place = _place_of(importer, keys if len(keys) > MANY_KEYS else keys[:-1], key)
        return _chosen(importer, list(x.content.values()), place)
    if key_of(key) not in x.content:
        raise Fails(f"the dict has no key {key!r}; {known}")
    return x.content[key]


def _shown_keys(x: Dict) -> str:
    shown = [repr(key) for key in list(x.content)[:MANY_KEYS]]
    more = len(x.content) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


def _dict_contains(importer: Walk, x: Dict, key: Any) -> Any:
    if not _is_of_calls(key):
        return key_of(key) in x.content
    wanted, keys = value_of(importer.builder, key, kind_of(key)), list(x.content)
    if len(keys) > MANY_KEYS and kind_of(key) == "str":
        return scalar_op(importer.builder, "lt", (_place_of(importer, keys, key), len(keys)))
    return _contains(importer, List(keys), wanted)


def _place_of(importer: Walk, keys: list[Any], key: Any) -> Value:
    """Return the position of a run-time key; the number of `keys` if it is not among them."""
    b = importer.builder
    if len(keys) > MANY_KEYS and kind_of(key) == "str":
        place = place_in_text(importer, keys, key)
        if place is not None:
            return place
    key, place = value_of(b, key, kind_of(key)), value_of(b, len(keys), "int")
    for i, each in enumerate(keys):
        place = choose(b, scalar_op(b, "eq", (each, key)), value_of(b, i, "int"), place)
    return place


def _chosen(importer: Walk, items: list[Any], place: Value) -> Any:
    """Return the item at a run-time position within the items."""
    if all(item is items[0] for item in items):
        return items[0]
    kinds = set(map(kind_of, items))
    if len(items) > MANY_KEYS and len(kinds) == 1 and kinds < set(_DTYPES) and all(map(_is_known, items)):
        (kind,) = kinds
        row = importer.builder.constant(np.array(items, _DTYPES[kind][0]), _DTYPES[kind][1], "values")
        return library.run(importer, "chosen", [importer.tensors.fresh(row), place], ScalarType(kind))
    if all(isinstance(item, Tensor) for item in items) and _differ_in_size(importer, items):
        return _by_branches(importer, items, place, 0)
    return element(importer, at_run_time(importer, List(items)), place)


def _differ_in_size(importer: Walk, items: Sequence[Tensor]) -> bool:
    shapes = {tuple(map(str, B.shape_of(importer.tensors.read(item)))) for item in items}
    return len(shapes) > 1


def _by_branches(importer: Walk, items: Sequence[Tensor], place: Value, first: int) -> Any:
    """Return the tensor of items[first:] at a run-time position; their sizes may differ."""
    if first == len(items) - 1:
        return items[first]
    b = importer.builder
    here = b.one("int_eq", place, value_of(b, first, "int"))
    ways = [lambda: [items[first]], lambda: [_by_branches(importer, items, place, first + 1)]]
    return branch(importer, here, ways)[0]


def _set_key(importer: Walk, x: Dict, key: Any, item: Any) -> None:
    if _is_of_calls(key):
        run_time_dicts.set_key(importer, x, key, item)
        return
    importer.regions.note(x)
    x.content = {**x.content, key_of(key): item}


def _drop_key(importer: Walk, x: Dict, key: Any, *default: Any) -> Any:
    if _is_of_calls(key) and x.content:
        return RUN_TIME_DICTS["pop"](importer, x, key, *default)
    importer.regions.note(x)
    found = default[0] if default and key not in x.content else _dict_item(importer, x, key)
    x.content = {k: v for k, v in x.content.items() if k != key}
    return found


def _update(importer: Walk, x: Dict, other: Dict) -> None:
    if is_run_time_list(other.content):
        run_time_dicts.update(importer, x, other)
        return
    importer.regions.note(x)
    x.content = {**x.content, **other.content}


def _set_default(importer: Walk, x: Dict, key: Any, default: Any) -> Any:
    if _is_of_calls(key) and x.content:
        return RUN_TIME_DICTS["setdefault"](importer, x, key, default)
    if _is_of_calls(key) or key_of(key) not in x.content:
        _set_key(importer, x, key, default)
        is_list = isinstance(default, List)
        return container_op(importer, "__getitem__", [x, key]) if is_list else default
    return x.content[key]


def _clear(importer: Walk, x: Dict) -> None:
    importer.regions.note(x)
    x.content = {}


_DICTS: dict[str, Callable[..., Any]] = {
    "__getitem__": _dict_item,
    "get": _dict_get,
    "_set_item": _set_key,
    "len": lambda importer, x: len(x.content),
    "__contains__": _dict_contains,
    "keys": lambda importer, x: List(list(x.content)),
    "values": lambda importer, x: List(list(x.content.values())),
    "items": lambda importer, x: List([tuple(pair) for pair in x.content.items()]),
    "pop": _drop_key,
    "Delete": _drop_key,
    "update": _update,
    "setdefault": _set_default,
    "clear": _clear,
    "copy": lambda importer, x: Dict(dict(x.content)),
    "dict": lambda importer, x: Dict(dict(x.content)),
}
