"""Lists of any length and dicts of any keys among the arguments: each call gives their columns (see
`shapevm.columns`), of which the program makes the list, or the list of a dict's pairs, before all else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ....columns import Kind, names
from ...ir.dims import OPEN
from ...ir.graph import Builder, Value
from ...ir.types import INT, ListType, ScalarType, TensorType, TupleType, Type, common_type, parts
from ...ops.loops import for_each_place
from ..dtypes import dtype_name
from ..kinds import PLAIN
from .scalars import unknown_int

if TYPE_CHECKING:
    from .importer import ScriptImporter


def element_type(type: Any, examples: Sequence[Any]) -> Type | None:
    """Return the type of the elements of a list or dict, whose type in the source is `type`, in some examples
    of it; None where these are of several dtypes or ranks, or tell none, and for what no list may hold."""
    if type.kind() == "DictType":
        key = PLAIN.get(type.getKeyType().kind())
        value = _type(type.getValueType(), [x for found in examples for x in found.values()])
        return None if key is None or value is None else TupleType((ScalarType(key), value))
    return _type(type.getElementType(), [x for found in examples for x in found])


def _type(type: Any, examples: Sequence[Any]) -> Type | None:
    """Return the type of values whose type in the source is `type`."""
    kind = type.kind()
    if kind in PLAIN:
        return ScalarType(PLAIN[kind])
    if kind == "TensorType" and all(isinstance(x, torch.Tensor) for x in examples):
        return common_type(TensorType(dtype_name(x.dtype), (OPEN,) * x.ndim) for x in examples)
    if kind == "ListType":
        element = element_type(type, examples)
        return None if element is None else ListType(element)
    if kind != "TupleType" or not type.elements():
        return None
    found = [_type(part, [x[i] for x in examples]) for i, part in enumerate(type.elements())]
    return None if None in found else TupleType(tuple(part for part in found if part is not None))


def has_tensors(type: Type) -> bool:
    """Return True for a type with tensors in it."""
    return isinstance(type, TensorType) or any(map(has_tensors, parts(type)))


def structure_of(type: Type, is_dict: bool = False) -> Kind:
    """Return the kind that `shapevm.columns` has of a type; of a list of pairs as that of a dict."""
    if isinstance(type, ListType):
        if is_dict and isinstance(type.element, TupleType):
            return {"pairs": list(map(structure_of, type.element.elements))}
        return {"many": structure_of(type.element)}
    if isinstance(type, TupleType):
        return {"tuple": list(map(structure_of, type.elements))}
    return [type.dtype, type.rank] if isinstance(type, TensorType) else str(type).partition("(")[0]


def given(importer: ScriptImporter, path: str, type: ListType, is_dict: bool) -> Value:
    """Return a list of `type` whose columns are inputs: the list itself, or that of a dict's pairs."""
    kind = structure_of(type, is_dict)
    found = names(kind if is_dict else kind["many"], path)
    columns = zip(found, _leaves(type.element), strict=True)
    inputs = [Column(name, importer.graph.input(name, ListType(each))) for name, each in columns]
    return _rebuilt(importer.builder, type.element, iter(inputs)).value


@dataclass(frozen=True)
class Column:
    """A list of the graph, and the input that tells its length."""

    name: str
    value: Value


def _leaves(type: Type) -> Iterator[Type]:
    """Yield the types of the elements of the columns of a type."""
    if isinstance(type, ListType):
        yield INT
        yield from _leaves(type.element)
    elif isinstance(type, TupleType):
        for part in type.elements:
            yield from _leaves(part)
    else:
        yield type


def _rebuilt(b: Builder, type: Type, columns: Iterator[Column]) -> Column:
    """Return the list of elements of `type` that have the next columns."""
    if isinstance(type, TupleType):
        return _zipped(b, type, [_rebuilt(b, part, columns) for part in type.elements])
    if isinstance(type, ListType):
        return _cut(b, type, next(columns), _rebuilt(b, type.element, columns))
    return next(columns)


def _zipped(b: Builder, type: TupleType, columns: Sequence[Column]) -> Column:
    """Return the list of tuples of what is at the same place in lists of one length."""
    first = columns[0]
    length = b.one("len", first.value)
    for part in columns[1:]:
        is_so = b.one("int_eq", b.one("len", part.value), length)
        message = f'input "{part.name}" must have as many elements as "{first.name}"'
        b.apply("guard", is_so, message=message)

    def turn(place: Value, made: list[Value]) -> list[Value]:
        items = [b.one("get", part.value, place) for part in columns]
        return [b.one("append", made[0], b.one("tuple", *items))]

    start = b.one("list", element=type)
    return Column(first.name, for_each_place(b, length, [start], turn, "list")[0])


def _cut(b: Builder, type: ListType, lengths: Column, items: Column) -> Column:
    """Return the lists of such lengths that lie behind each other in `items`."""
    n_items, zero = b.one("len", items.value), b.size(0)
    message = (
        f'input "{lengths.name}" must have numbers from 0 on, in all as many as "{items.name}" has elements'
    )

    def turn(place: Value, carried: list[Value]) -> list[Value]:
        made, begin = carried
        length = b.one("get", lengths.value, place)
        end = b.one("int_add", begin, length)
        fits = b.one("bool_and", b.one("int_le", zero, length), b.one("int_le", end, n_items))
        b.apply("guard", fits, message=message)
        return [b.one("append", made, b.one("list_slice", items.value, begin, end)), end]

    start = [b.one("list", element=type), unknown_int(b, 0)]
    made, end = for_each_place(b, b.one("len", lengths.value), start, turn, "list")
    b.apply("guard", b.one("int_eq", end, n_items), message=message)
    return Column(lengths.name, made)
