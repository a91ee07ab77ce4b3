"""Constants, attributes, tuples, lists, dicts and optionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...ir.errors import ShapeError, UnsupportedOp
from ...ir.graph import Value
from ...ir.types import ScalarType, TensorType
from ...ops import build as B
from ..dtypes import NUMBER_OF
from .scalars import scalar_op, value_of
from .values import (
    UNINITIALIZED,
    Cell,
    Dict,
    List,
    Maybe,
    Tensor,
    is_run_time,
    is_run_time_list,
    is_same,
    is_size,
    kind_of,
)

if TYPE_CHECKING:
    from .importer import ScriptImporter

Handler = Callable[["ScriptImporter", Any], list[Any]]


@dataclass(eq=False)
class Attribute(Cell):
    """An attribute of a module; `path`: its name in the model."""

    path: str = ""


# Primitives -----------------------------------------------------------------------------------------


def _constant(importer: ScriptImporter, node: Any) -> list[Any]:
    found = node.output().toIValue()
    return [importer.abstract(found, f"constant_{node.output().debugName()}")]


def _get_attribute(importer: ScriptImporter, node: Any) -> list[Any]:
    return [importer.attribute(importer.get(node.inputsAt(0)), node.s("name"))]


def _set_attribute(importer: ScriptImporter, node: Any) -> list[Any]:
    owner, new = importer.get(node.inputsAt(0)), importer.get(node.inputsAt(1))
    cell = importer.attribute_cell(owner, node.s("name"))
    if not is_same(cell.content, new):
        importer.keep_state(cell.path)
        importer.regions.note(cell)
        cell.content = new
    return []


def _values(importer: ScriptImporter, node: Any) -> list[Any]:
    return [importer.get(value) for value in node.inputs()]


def _dict(importer: ScriptImporter, node: Any) -> list[Any]:
    found = _values(importer, node)
    keys = [_key(key) for key in found[::2]]
    return [Dict(dict(zip(keys, found[1::2], strict=True)))]


def _key(key: Any) -> Any:
    if isinstance(key, bool | int | float | str):
        return key
    raise UnsupportedOp("a dict's key that only a call tells cannot be compiled")


def _unpack(importer: ScriptImporter, node: Any) -> list[Any]:
    found = importer.get(node.inputsAt(0))
    items = found if isinstance(found, tuple) else content(importer, found)
    n = node.outputsSize()
    if len(items) != n:
        raise ShapeError(f"a list of {len(items)} is unpacked to {n} names")
    return list(items)


def _tuple_index(importer: ScriptImporter, node: Any) -> list[Any]:
    items, index = _values(importer, node)
    return [items[index]]


def _tuple_slice(importer: ScriptImporter, node: Any) -> list[Any]:
    return [importer.get(node.inputsAt(0))[node.i("beg") : node.i("end")]]


def _unwrapped(importer: ScriptImporter, node: Any) -> list[Any]:
    found = importer.get(node.inputsAt(0))
    return [found.value if isinstance(found, Maybe) else found]


def _number_to_tensor(importer: ScriptImporter, node: Any) -> list[Any]:
    b, x = importer.builder, importer.get(node.inputsAt(0))
    dtype = {"int": "i64", "float": "f32", "bool": "bool"}[kind_of(x)]
    made = b.one("scalar", x, dtype=dtype) if is_run_time(x) else B.full(b, x, dtype)
    return [importer.tensors.fresh(made)]


def _raise(importer: ScriptImporter, node: Any) -> list[Any]:
    b = importer.builder
    message = importer.message_of(node)
    if len(importer.regions.blocks) == 1:
        raise ShapeError(f"the model raises: {message}")
    b.apply("guard", b.one("literal", value=False), message=message)
    return []


def _of_tensor(compute: Callable[[TensorType], Any]) -> Handler:
    def handler(importer: ScriptImporter, node: Any) -> list[Any]:
        return [compute(B.type_of(importer.tensors.read(importer.get(node.inputsAt(0)))))]

    return handler


def _always(value: Any) -> Handler:
    return lambda importer, node: [value] * node.outputsSize()


def _shape(importer: ScriptImporter, node: Any) -> list[Any]:
    return [List(list(B.shape_of(importer.tensors.read(importer.get(node.inputsAt(0))))))]


def _create(importer: ScriptImporter, node: Any) -> list[Any]:
    raise UnsupportedOp(f"objects of {node.output().type()} cannot be compiled")


def _isinstance(importer: ScriptImporter, node: Any) -> list[Any]:
    wanted = {str(t) for t in node.tys("types")}
    found = importer.get(node.inputsAt(0))
    name = "Tensor" if isinstance(found, Tensor) else {"none": "NoneType"}.get(kind_of(found), kind_of(found))
    if not name or isinstance(found, Maybe):
        raise UnsupportedOp("isinstance of this value cannot be compiled")
    return [name in wanted]


def _plain(name: str) -> Handler:
    def handler(importer: ScriptImporter, node: Any) -> list[Any]:
        args = _values(importer, node)
        if len(args) == 1 and isinstance(args[0], List):
            args = content(importer, args[0])
        made = args[0]
        for other in args[1:]:
            made = scalar_op(importer.builder, name, (made, other))
        return [scalar_op(importer.builder, name, args) if len(args) == 1 and name == "abs" else made]

    return handler


def _range(importer: ScriptImporter, node: Any) -> list[Any]:
    (n,) = _values(importer, node)
    if not isinstance(n, int):
        raise UnsupportedOp("a list of a range whose end only a call tells cannot be compiled")
    return [List(list(range(n)))]


HANDLERS: dict[str, Handler] = {
    "prim::Constant": _constant,
    "prim::GetAttr": _get_attribute,
    "prim::SetAttr": _set_attribute,
    "prim::ListConstruct": lambda importer, node: [List(_values(importer, node))],
    "prim::TupleConstruct": lambda importer, node: [tuple(_values(importer, node))],
    "prim::DictConstruct": _dict,
    "prim::TupleUnpack": _unpack,
    "prim::ListUnpack": _unpack,
    "prim::TupleIndex": _tuple_index,
    "prim::TupleSlice": _tuple_slice,
    "prim::Uninitialized": _always(UNINITIALIZED),
    "prim::unchecked_cast": _unwrapped,
    "prim::unchecked_unwrap_optional": _unwrapped,
    "aten::_unwrap_optional": _unwrapped,
    "prim::NumToTensor": _number_to_tensor,
    "prim::RaiseException": _raise,
    "prim::dtype": _of_tensor(lambda type: NUMBER_OF[type.dtype]),
    "prim::device": _always("cpu"),
    "prim::layout": _always(0),
    "prim::type": _always("cpu"),
    "prim::is_cuda": _always(False),
    "prim::is_nested": _always(False),
    "prim::is_sparse": _always(False),
    "prim::is_quantized": _always(False),
    "prim::is_mkldnn": _always(False),
    "prim::requires_grad": _always(True),  # so no inference-only kernel of torch's is asked for
    "prim::data": lambda importer, node: [importer.get(node.inputsAt(0))],
    "prim::shape": _shape,
    "prim::CreateObject": _create,
    "prim::isinstance": _isinstance,
    "prim::Print": _always(None),
    "prim::min": _plain("min"),
    "prim::max": _plain("max"),
    "prim::abs": _plain("abs"),
    "prim::rangelist": _range,
    "aten::warn": _always(None),
    "aten::is_grad_enabled": _always(True),
    "aten::is_autocast_enabled": _always(False),
    "aten::is_scripting": _always(True),
}


# Lists and dicts: operators whose first argument is one -----------------------------------------------


def content(importer: ScriptImporter, x: List) -> list[Any]:
    """Return the items of a list. Raises UnsupportedOp where only a call tells how many there are."""
    if is_run_time_list(x.content):
        raise UnsupportedOp("this use of a list whose length only a call tells cannot be compiled")
    return x.content


def container_op(importer: ScriptImporter, name: str, args: Sequence[Any]) -> Any:
    """Return what TorchScript's `aten::name` gives for a list, tuple, dict or string; NotImplemented where no
    container's operator has that name."""
    first = args[0] if args else None
    if isinstance(first, List):
        table = _RUN_TIME_LISTS if is_run_time_list(first.content) else _LISTS
    elif isinstance(first, Dict):
        table = _DICTS
    else:
        return NotImplemented
    handler = table.get(name)
    return NotImplemented if handler is None else handler(importer, *args)


def _index(importer: ScriptImporter, items: Sequence[Any], index: Any) -> int:
    if not isinstance(index, int):
        raise UnsupportedOp("a position in this list that only a call tells cannot be compiled")
    if not -len(items) <= index < len(items):
        raise ShapeError(f"index {index} is out of range; the list has {len(items)} elements")
    return index


def _get_item(importer: ScriptImporter, x: List, index: Any) -> Any:
    if isinstance(index, int):
        return x.content[_index(importer, x.content, index)]
    kinds = {kind_of(item) for item in x.content}
    if len(kinds) == 1 and kinds <= {"int", "float", "bool"}:
        return _element(importer, _run_time(importer, x), index)
    return x.content[_index(importer, x.content, index)]


def _run_time(importer: ScriptImporter, x: List) -> List:
    b = importer.builder
    kind = kind_of(x.content[0])
    items = [value_of(b, item, kind) for item in x.content]
    made = b.one("list", element=ScalarType(kind))
    for item in items:
        made = b.one("append", made, item)
    return List(made)


def _element(importer: ScriptImporter, x: List, index: Any) -> Any:
    b = importer.builder
    position = value_of(b, index, "int")
    length = b.one("len", x.content)
    if isinstance(index, int) and index < 0:
        position = b.one("int_add", length, position)
    elif not is_size(index) and not isinstance(index, int):
        position = b.one("int_mod", position, length)
    made = b.one("get", x.content, position)
    return importer.tensors.fresh(made) if isinstance(made.type, TensorType) else made


def _append(importer: ScriptImporter, x: List, item: Any) -> List:
    importer.regions.note(x)
    x.content = [*x.content, item]
    return x


def _append_at_run_time(importer: ScriptImporter, x: List, item: Any) -> List:
    importer.regions.note(x)
    b = importer.builder
    element = x.content.type.element
    value = (
        importer.tensors.read(item)
        if isinstance(item, Tensor)
        else value_of(b, item, getattr(element, "kind", ""))
    )
    x.content = b.one("append", x.content, value)
    return x


def _set_item(importer: ScriptImporter, x: List, index: Any, item: Any) -> List:
    importer.regions.note(x)
    items = list(x.content)
    items[_index(importer, items, index)] = item
    x.content = items
    return x


def _changing(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler of a method that changes a list."""

    def handler(importer: ScriptImporter, x: List, *args: Any) -> Any:
        importer.regions.note(x)
        x.content = list(x.content)
        return change(x.content, *(content(importer, a) if isinstance(a, List) else a for a in args))

    return handler


def _new_list(compute: Callable[..., list[Any]]) -> Callable[..., List]:
    return lambda importer, x, *args: List(
        compute(x.content, *(content(importer, a) if isinstance(a, List) else a for a in args))
    )


def _slice(items: Sequence[Any], start: Any = None, end: Any = None, step: int = 1) -> list[Any]:
    return list(items[slice(start, end, step)])


def _contains(importer: ScriptImporter, x: List, item: Any) -> Any:
    made: Any = False
    for each in x.content:
        made = _either(importer, made, scalar_op(importer.builder, "eq", (each, item)))
    return made


def _either(importer: ScriptImporter, a: Any, c: Any) -> Any:
    if a is True or c is True:
        return True
    if a is False or c is False:
        return c if a is False else a
    return importer.builder.one("bool_or", a, c)


def _lists_equal(importer: ScriptImporter, x: List, y: List) -> Any:
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


def _lists_differ(importer: ScriptImporter, x: List, y: List) -> Any:
    return scalar_op(importer.builder, "__not__", (_lists_equal(importer, x, y),))


def _fold(name: str) -> Callable[..., Any]:
    def handler(importer: ScriptImporter, x: List, *_: Any) -> Any:
        if not x.content:
            if name == "add":
                return 0
            raise ShapeError(f"{name} of an empty list")
        made = x.content[0]
        for item in x.content[1:]:
            made = scalar_op(importer.builder, name, (made, item))
        return made

    return handler


def _quantified(is_all: bool) -> Callable[..., Any]:
    def handler(importer: ScriptImporter, x: List) -> Any:
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


def _length(importer: ScriptImporter, x: List) -> Value:
    return importer.builder.one("len", x.content)


_LISTS: dict[str, Callable[..., Any]] = {
    "__getitem__": _get_item,
    "append": _append,
    "len": lambda importer, x: len(x.content),
    "_set_item": _set_item,
    "slice": _new_list(_slice),
    "add": _new_list(lambda items, other: [*items, *other]),
    "add_": _changing(lambda items, other: items.extend(other)),
    "mul": _new_list(lambda items, n: items * n),
    "copy": _new_list(list),
    "list": _new_list(list),
    "extend": _changing(lambda items, other: items.extend(other)),
    "insert": _changing(lambda items, index, item: items.insert(index, item)),
    "pop": _changing(lambda items, index=-1: items.pop(index)),
    "clear": _changing(lambda items: items.clear()),
    "reverse": _changing(lambda items: items.reverse()),
    "Delete": _changing(lambda items, index: items.pop(index)),
    "__contains__": _contains,
    "eq": _lists_equal,
    "ne": _lists_differ,
    "sum": _fold("add"),
    "max": _fold("max"),
    "min": _fold("min"),
    "any": _quantified(False),
    "all": _quantified(True),
}
_RUN_TIME_LISTS: dict[str, Callable[..., Any]] = {
    "__getitem__": _element,
    "append": _append_at_run_time,
    "len": _length,
}


def _dict_get(importer: ScriptImporter, x: Dict, key: Any, default: Any = None) -> Any:
    return x.content.get(_key(key), default)


def _dict_item(importer: ScriptImporter, x: Dict, key: Any) -> Any:
    if _key(key) not in x.content:
        raise ShapeError(f"the dict has no key {key!r}; it has {', '.join(map(repr, x.content)) or 'none'}")
    return x.content[key]


def _set_key(importer: ScriptImporter, x: Dict, key: Any, item: Any) -> None:
    importer.regions.note(x)
    x.content = {**x.content, _key(key): item}


def _drop_key(importer: ScriptImporter, x: Dict, key: Any, *default: Any) -> Any:
    importer.regions.note(x)
    found = default[0] if default and key not in x.content else _dict_item(importer, x, key)
    x.content = {k: v for k, v in x.content.items() if k != key}
    return found


def _update(importer: ScriptImporter, x: Dict, other: Dict) -> None:
    importer.regions.note(x)
    x.content = {**x.content, **other.content}


_DICTS: dict[str, Callable[..., Any]] = {
    "__getitem__": _dict_item,
    "get": _dict_get,
    "_set_item": _set_key,
    "len": lambda importer, x: len(x.content),
    "__contains__": lambda importer, x, key: _key(key) in x.content,
    "keys": lambda importer, x: List(list(x.content)),
    "values": lambda importer, x: List(list(x.content.values())),
    "items": lambda importer, x: List([tuple(pair) for pair in x.content.items()]),
    "pop": _drop_key,
    "Delete": _drop_key,
    "update": _update,
    "copy": lambda importer, x: Dict(dict(x.content)),
    "dict": lambda importer, x: Dict(dict(x.content)),
}
