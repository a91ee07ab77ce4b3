"""Lists of run-time length: values of the graph, which every change replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ir.types import ScalarType, TupleType, Type, common_type
from ....ops import build as B
from ....ops.loops import for_each
from ..bounds import check_length
from ..values import elements, nested
from ..values.scalars import scalar_op, unknown_int, value_of
from ..values.values import Dict, Fails, List, Maybe, Tensor, is_run_time_list, is_size
from ..walk import Walk
from . import library
from .composites import choose


def at_run_time(importer: Walk, x: List) -> List:
    """Return a list with the same elements, of one type, that allows run-time positions. Raises Fails for an
    empty one of an unknown type, UnsupportedOp if elements are of several types."""
    if is_run_time_list(x.content):
        return x
    found = List(_made(importer, x), x.birth, x.memory, x.ties)
    for item in x.content:
        hold(importer, found, item)
    nested.copied(importer, found, x)
    return found


def _made(importer: Walk, x: List) -> Value:
    """Return a list of the graph with the elements of one that is known."""
    if not x.content and x.declared is None:
        raise Fails("the index is out of range; the list is empty")
    b, read = importer.builder, importer.tensors.read
    types = [elements.type_of(item, lambda x: B.type_of(read(x))) for item in x.content]
    common = common_type(types) if types else x.declared
    if common is None:
        raise UnsupportedOp(
            f"a run-time position in a list of {' and '.join(dict.fromkeys(map(str, types)))} "
            "cannot be compiled; its elements must be of one type"
        )
    made = b.one("list", element=common)
    for item in x.content:
        made = b.one("append", made, elements.packed(b, item, common, read))
    return made


def hold(importer: Walk, x: List | Dict, item: Any) -> None:
    """A tensor in the list is the one that was put there, but in-place changes of one are not visible in the
    other."""
    _share(importer, x, item)
    nested.give(importer, x, item)


def _share(importer: Walk, x: List | Dict, item: Any) -> None:
    """The memory of tensors in an element is that of the list's."""
    if isinstance(item, Tensor):
        importer.tensors.hold(x.memory, item.memory)
    elif isinstance(item, Maybe):
        _share(importer, x, item.value)
    elif isinstance(item, Dict | List) and not isinstance(item.content, Value):
        content = item.content
        _share(importer, x, tuple(content.values() if isinstance(content, dict) else content))
    for each in item if isinstance(item, tuple) else ():
        _share(importer, x, each)


def become_run_time(importer: Walk, x: List) -> None:
    """Make a list allow run-time positions."""
    if is_run_time_list(x.content):
        return
    made, items = _made(importer, x), x.content
    importer.regions.keep(x)
    x.content = made
    for item in items:
        hold(importer, x, item)


def position(importer: Walk, index: Any, length: Any) -> Value:
    """Return a position in a list, counted from its end if the index is negative."""
    b = importer.builder
    found = value_of(b, index, "int")
    if isinstance(index, int):
        return b.one("int_add", length, found) if index < 0 else found
    low = B.bounds_of(b, index)[0] if is_size(index) else None
    if low is not None and low >= 0:
        return found
    return choose(b, b.one("int_lt", found, b.size(0)), b.one("int_add", length, found), found)


def element(importer: Walk, x: List, index: Any) -> Any:
    """Return the element at a position, counted from the end if it is negative."""
    place = position(importer, index, importer.builder.one("len", x.content))
    found = nested.taken(importer, x, place)
    if isinstance(found, Tensor) and isinstance(found.place, nested.Spot):
        found.place.asked = index
    return found


def _item_value(importer: Walk, x: List, item: Any) -> Value:
    """Return the graph value of an item that is put into a list."""
    hold(importer, x, item)
    return elements.packed(importer.builder, item, x.content.type.element, importer.tensors.read)


def _append(importer: Walk, x: List, item: Any) -> List:
    importer.regions.note(x, moves=False)
    x.content = importer.builder.one("append", x.read(), _item_value(importer, x, item))
    return x


def set_item(importer: Walk, x: List, index: Any, item: Any) -> List:
    """Put `item` in place of the element at `index`."""
    become_run_time(importer, x)
    b = importer.builder
    if isinstance(item, Tensor) and isinstance(item.place, nested.Spot) and item.place.is_at(x, index):
        return x
    importer.regions.note(x)
    place = position(importer, index, b.one("len", x.content))
    x.content = b.one("list_set", x.content, place, _item_value(importer, x, item))
    return x


def _pop(importer: Walk, x: List, index: Any = -1) -> Any:
    found = nested.detached(importer, x, element(importer, x, index))
    if index != -1:
        _replace(importer, x, "without", index)
        return found
    importer.regions.note(x)
    b = importer.builder
    rest = b.one("int_sub", b.one("len", x.content), b.size(1))
    x.content = b.one("list_slice", x.content, b.size(0), rest)
    return found


def _call(importer: Walk, name: str, x: List, *args: Any) -> Any:
    """Return the result of a library function for a list and more, never the list itself."""
    return library.run(importer, name, [nested.apart(importer, x), *args], x.content.type.element)


def _replace(importer: Walk, x: List, name: str, *args: Any) -> None:
    """Replace the content of `x` by the result of a library function."""
    given = [nested.alone(arg) for arg in args]
    made = _call(importer, name, List(x.content, memory=x.memory), *given)
    importer.regions.note(x)
    x.content = made.content
    for item in args:
        hold(importer, x, item)


def _clear(importer: Walk, x: List) -> None:
    importer.regions.note(x)
    x.content = importer.builder.one("list", element=x.content.type.element)


def sliced(importer: Walk, x: List, start: Any = None, end: Any = None, step: Any = 1) -> List:
    """x[start:end:step]."""
    end = None if end == 2**63 - 1 else end
    if step != 1:
        bounds = [
            given for bound in (start, end) for given in (0 if bound is None else bound, bound is not None)
        ]
        return _call(importer, "stepped", x, *bounds, step)
    b = importer.builder
    length = b.one("len", x.content)
    end = length if end is None else _bound(importer, end, length)
    start = b.one("int_min", _bound(importer, 0 if start is None else start, length), end)
    memory = importer.tensors.apart(x.memory)
    found = List(b.one("list_slice", x.read(), start, end), memory=memory)
    nested.copied(importer, found, x)
    return found


def _bound(importer: Walk, bound: Any, length: Value) -> Value:
    """Return a bound of a slice, clamped to the list."""
    b = importer.builder
    found = b.one("int_max", position(importer, bound, length), b.size(0))
    return b.one("int_min", found, length)


def _folded(importer: Walk, x: List, start: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Fold `step(previous, element)` over the elements, starting with `start`."""
    b = importer.builder
    length = importer.size_of(b.one("len", x.content))

    def turn(row: Value, made: list[Value]) -> list[Value]:
        return [value_of(b, step(made[0], b.one("get", x.content, b.one("item", row))))]

    return for_each(b, length, [start], turn, "list")[0]


def _contains(importer: Walk, x: List, item: Any) -> Any:
    b, kind = importer.builder, x.content.type.element.kind
    wanted = value_of(b, item, kind)
    is_there = b.one("bool_not", b.one("literal", value=True))

    def step(found: Any, element: Any) -> Any:
        return b.one("bool_or", found, scalar_op(b, "eq", (element, wanted)))

    return _folded(importer, x, is_there, step)


def _fold(name: str) -> Callable[..., Any]:
    def handler(importer: Walk, x: List, *_: Any) -> Any:
        b = importer.builder
        if name == "add":
            kind = x.content.type.element.kind
            start = value_of(b, 0.0) if kind == "float" else unknown_int(b, 0)
        else:
            start = value_of(b, element(importer, x, 0))
        return _folded(importer, x, start, lambda a, c: scalar_op(b, name, (a, c)))

    return handler


def concatenated(importer: Walk, x: List, other: List) -> List:
    """x + other, where one or both are lists of run-time length."""
    b = importer.builder
    sides = [at_run_time(importer, each) for each in (x, other) if each.read()]
    if len(sides) == 1:
        return copy_of(importer, sides[0])
    one, two = sides
    length = importer.size_of(b.one("len", two.content))

    def turn(row: Value, made: list[Value]) -> list[Value]:
        return [b.one("append", made[0], b.one("get", two.content, b.one("item", row)))]

    memory = importer.tensors.apart(one.memory)
    made = List(for_each(b, length, [one.content], turn, "list")[0], memory=memory)
    importer.tensors.hold(memory, two.memory)
    nested.copied(importer, made, one, two)
    return made


def copy_of(importer: Walk, x: List) -> List:
    """x.copy()."""
    made = nested.has_all_of(List(x.content, memory=importer.tensors.apart(x.memory)), x)
    nested.copied(importer, made, x)
    return made


def extend(importer: Walk, x: List, other: List) -> List:
    """Append the elements of `other`."""
    made = concatenated(importer, x, other)
    importer.regions.note(x, moves=False)
    x.content = made.content
    importer.tensors.share(x.memory, made.memory)
    importer.regions.tie(x.root, made.ties)
    return x


def repeated(importer: Walk, x: List, n: Any) -> List:
    """x * n."""
    if isinstance(n, int) and not is_run_time_list(x.content):
        check_length(len(x.content) * n)
        return List(x.content * n)
    b, source = importer.builder, at_run_time(importer, x)
    count = scalar_op(b, "max", (n, 0))
    start = b.one("list", element=source.content.type.element)

    def turn(_: Value, made: list[Value]) -> list[Value]:
        grown = concatenated(importer, List(made[0]), source)
        return [grown.content]

    memory = importer.tensors.apart(source.memory)
    importer.tensors.tangle(memory)
    made = List(for_each(b, importer.size_of(count), [start], turn, "list")[0], memory=memory)
    nested.copied(importer, made, source)
    return made


def _length(importer: Walk, x: List) -> Value:
    return importer.builder.one("len", x.content)


def _sorted(importer: Walk, x: List, reverse: Any = False) -> List:
    found = _element_type(x)
    parts = found.elements if isinstance(found, TupleType) else (found,)
    if not all(isinstance(part, ScalarType) and part.kind != "bool" for part in parts):
        raise UnsupportedOp(
            f"a list of {found} cannot be sorted; these must be ints, floats, strings or tuples of them"
        )
    return _call(importer, "sorted", x, reverse)


def _element_type(x: List) -> Type:
    return x.content.type.element


def _sort(importer: Walk, x: List, reverse: Any = False) -> None:
    made = _sorted(importer, x, reverse)
    importer.regions.note(x)
    x.content = made.content


def _remove(importer: Walk, x: List, item: Any) -> None:
    _replace(importer, x, "without", _call(importer, "index", x, item))


def _delete(importer: Walk, x: List, index: Any) -> None:
    _pop(importer, x, index)


def _equal(importer: Walk, x: List, other: List) -> Any:
    if not is_run_time_list(other.content) and not other.content:
        return scalar_op(importer.builder, "eq", (_length(importer, x), 0))
    return _call(importer, "equal", x, at_run_time(importer, other))


def differ(importer: Walk, x: List, other: List) -> Any:
    """x != other, where one or both are lists of run-time length."""
    return scalar_op(importer.builder, "__not__", (equal(importer, x, other),))


def equal(importer: Walk, x: List, other: List) -> Any:
    """x == other, where one or both are lists of run-time length."""
    return _equal(importer, x, other) if is_run_time_list(x.content) else _equal(importer, other, x)


def of_library(name: str) -> Callable[..., Any]:
    """Return the handler of a method that is a function of the library."""
    return lambda importer, x, *args: _call(importer, name, at_run_time(importer, x), *args)


def changed_by_library(name: str) -> Callable[..., Any]:
    """Return the handler of a method that replaces the list by the result of a library function."""
    return lambda importer, x, *args: _replace(importer, x, name, *args)


RUN_TIME_LISTS: dict[str, Callable[..., Any]] = {
    "__getitem__": element,
    "append": _append,
    "len": _length,
    "_set_item": set_item,
    "pop": _pop,
    "clear": _clear,
    "slice": sliced,
    "copy": copy_of,
    "list": copy_of,
    "add": concatenated,
    "add_": extend,
    "extend": extend,
    "mul": repeated,
    "__contains__": _contains,
    "insert": changed_by_library("inserted"),
    "remove": _remove,
    "Delete": _delete,
    "reverse": changed_by_library("reversed"),
    "index": of_library("index"),
    "count": of_library("count"),
    "sort": _sort,
    "sorted": _sorted,
    "eq": equal,
    "ne": differ,
    "any": of_library("any"),
    "all": of_library("all"),
    "sum": _fold("add"),
    "max": _fold("max"),
    "min": _fold("min"),
}
