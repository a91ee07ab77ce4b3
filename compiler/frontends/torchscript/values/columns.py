"""Lists of any length and dicts of any keys: each call passes those among the arguments as columns
(`shapevm.calls.columns`), from which the program first builds the list, or the list of a dict's pairs; at its
end it builds the columns of those among the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import sympy
import torch

from .....calls.columns import Kind, names
from ....ir.dims import OPEN, DimExpr, format_dim
from ....ir.graph import Builder, Value
from ....ir.types import BOOL, INT, ListType, ScalarType, TensorType, TupleType, Type, common_type, parts
from ....ops import build as B
from ....ops.conditions import add_guard
from ....ops.loops import for_each_place
from ...dtypes import dtype_name
from ...kinds import PLAIN
from . import elements
from .scalars import unknown_int

#: From the dynamic_shapes of a container to those of a part.
Inner = Callable[[Any, Any], Any]


def type_of(type: Any, examples: Sequence[Any]) -> Type | None:
    """Return the type of elements whose type in the source is `type`, by examples; None if these are of
    several dtypes or ranks, or undetermined, and for values that no list may hold."""
    kind = type.kind()
    if kind in PLAIN:
        return ScalarType(PLAIN[kind])
    if kind == "TensorType" and all(isinstance(x, torch.Tensor) for x in examples):
        return common_type(TensorType(dtype_name(x.dtype), (OPEN,) * x.ndim) for x in examples)
    if kind == "OptionalType":
        inner = type_of(type.getElementType(), [x for x in examples if x is not None])
        return None if inner is None else ListType(inner, "optional")
    if kind == "ListType":
        inner = type_of(type.getElementType(), [x for found in examples for x in found])
        return None if inner is None else ListType(inner)
    if kind == "DictType":
        return _type_of_dict(type, examples)
    if kind != "TupleType" or not type.elements():
        return None
    return _tuple([type_of(part, [x[i] for x in examples]) for i, part in enumerate(type.elements())])


def _type_of_dict(type: Any, examples: Sequence[Any]) -> Type | None:
    """Return the type of dicts: of any keys if the values are of one type, else of the examples' keys."""
    key = PLAIN.get(type.getKeyType().kind())
    value = type_of(type.getValueType(), [x for found in examples for x in found.values()])
    if key is not None and value is not None:
        return ListType(TupleType((ScalarType(key), value)), "dict")
    keys = tuple(examples[0]) if examples else ()
    if key != "str" or not keys or any(found.keys() != set(keys) for found in examples):
        return None
    return _tuple([type_of(type.getValueType(), [found[name] for found in examples]) for name in keys], keys)


def _tuple(found: Sequence[Type | None], keys: tuple[str, ...] = ()) -> TupleType | None:
    return None if None in found else TupleType(tuple(part for part in found if part is not None), keys)


@dataclass(frozen=True)
class AxisRule:
    """The rule of `dynamic_shapes` for an axis of every tensor in a column: its `size`, or else from `low` to
    `high`."""

    size: DimExpr | None
    low: int = 0
    high: int | None = None


#: The rules of the axes of every tensor in a type, in the order of the columns.
Rules = Sequence[Sequence[AxisRule]]


def examples_of(
    type: Type, found: Sequence[tuple[Any, Any]], inner: Inner
) -> Iterator[list[tuple[Any, Any]]]:
    """Yield, for each tensor in a type, the examples' tensors with their dynamic_shapes. `found`: the
    examples with theirs; `inner(shapes, key)`: the dynamic_shapes of a part."""
    if isinstance(type, TensorType):
        yield list(found)
    elif isinstance(type, TupleType):
        for key, part in zip(type.keys or range(len(type.elements)), type.elements, strict=True):
            yield from examples_of(part, [(x[key], inner(shapes, key)) for x, shapes in found], inner)
    elif isinstance(type, ListType) and type.form == "optional":
        yield from examples_of(type.element, [pair for pair in found if pair[0] is not None], inner)
    elif isinstance(type, ListType):
        is_dict = type.form == "dict"
        pairs = [
            (item, inner(shapes, key))
            for x, shapes in found
            for key, item in (x.items() if is_dict else enumerate(x))
        ]
        yield from examples_of(parts(type.element)[1] if is_dict else type.element, pairs, inner)


def with_sizes(type: Type, rules: Iterator[Sequence[AxisRule]]) -> Type:
    """Return a type whose tensors have the sizes given by rules."""
    if isinstance(type, TensorType):
        sizes = (OPEN if rule.size is None else rule.size for rule in next(rules))
        return TensorType(type.dtype, tuple(sizes))
    if isinstance(type, TupleType):
        return replace(type, elements=tuple(with_sizes(part, rules) for part in type.elements))
    return replace(type, element=with_sizes(type.element, rules)) if isinstance(type, ListType) else type


def has_tensors(type: Type) -> bool:
    """Return True for a type with tensors in it."""
    return isinstance(type, TensorType) or any(map(has_tensors, parts(type)))


def has_forms(type: Type) -> bool:
    """Return True for a type with dicts or optionals in it, which lists and tuples represent."""
    is_form = type.form != "list" if isinstance(type, ListType) else bool(getattr(type, "keys", ()))
    return is_form or any(map(has_forms, parts(type)))


def structure_of(type: Type) -> Kind:
    """Return the kind of a type, as in `shapevm.calls.columns`."""
    if isinstance(type, ListType):
        if type.form == "dict":
            return {"pairs": list(map(structure_of, parts(type.element)))}
        return {"many" if type.form == "list" else "optional": structure_of(type.element)}
    if isinstance(type, TupleType):
        found = list(map(structure_of, type.elements))
        return {"record": dict(zip(type.keys, found, strict=True))} if type.keys else {"tuple": found}
    return [type.dtype, type.rank] if isinstance(type, TensorType) else str(type).partition("(")[0]


def given(b: Builder, path: str, type: ListType, rules: Rules | None) -> Value:
    """Return a list of `type` whose columns are inputs: the list itself, or that of a dict's pairs. `rules`:
    of the sizes of its tensors, which are checked."""
    columns = zip(names(structure_of(type), path), _leaves(type.element), strict=True)
    inputs = [Column(name, b.graph.input(name, ListType(each))) for name, each in columns]
    if rules is not None:
        rest = iter(rules)
        inputs = [_checked(b, column, rest) for column in inputs]
        type = cast(ListType, with_sizes(type, iter(rules)))
    if type.form == "dict":
        _check_keys(b, inputs[0], inputs[0].value)
    return _rebuilt(b, type.element, iter(inputs)).value


def _checked(b: Builder, column: Column, rules: Iterator[Sequence[AxisRule]]) -> Column:
    """Return a column whose tensors, if any, have the sizes given by the next rules."""
    element = cast(ListType, column.value.type).element
    if not isinstance(element, TensorType):
        return column
    axes = next(rules)
    if all(rule == AxisRule(None) for rule in axes):
        return column

    def turn(place: Value, made: list[Value]) -> list[Value]:
        x = elements.got(b, column.value, place)
        for axis, rule in enumerate(axes):
            x = _of_size(b, x, axis, rule, f'input "{column.name}": axis {axis} of every tensor must have')
        return [b.one("append", made[0], x)]

    start = b.one("list", element=with_sizes(element, iter([axes])))
    return Column(column.name, for_each_place(b, b.one("len", column.value), [start], turn)[0])


def _of_size(b: Builder, x: Value, axis: int, rule: AxisRule, what: str) -> Value:
    """Return a tensor of which an axis is checked."""
    given = sympy.sympify(B.shape_of(x)[axis])
    if rule.size is not None:
        add_guard(b, sympy.Eq(given, sympy.sympify(rule.size)), f"{what} size {format_dim(rule.size)}")
        return B.take(b, x, axis, 0, rule.size)
    if rule.low:
        add_guard(b, sympy.Ge(given, rule.low), f"{what} size {rule.low} or more")
    if rule.high is not None:
        add_guard(b, sympy.Le(given, rule.high), f"{what} size {rule.high} or less")
    return x


def _check_keys(b: Builder, column: Column, keys: Value) -> None:
    message = f'input "{column.name}" has a key twice; the keys of a dict must be different ones'
    b.apply("guard", b.one("distinct", keys), message=message)


@dataclass(frozen=True)
class Column:
    """A list of the graph, and the input that determines its length."""

    name: str
    value: Value


def _leaves(type: Type) -> Iterator[Type]:
    """Yield the types of the elements of the columns of a type."""
    if isinstance(type, ListType):
        yield BOOL if type.form == "optional" else INT
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
    if isinstance(type, ListType) and isinstance(type.element, TupleType) and type.form == "dict":
        lengths, *parts = next(columns), *(_rebuilt(b, part, columns) for part in type.element.elements)
        return _cut(b, type, lengths, _zipped(b, type.element, parts), parts[0])
    if isinstance(type, ListType):
        return _cut(b, type, next(columns), _rebuilt(b, type.element, columns))
    return next(columns)


def _zipped(b: Builder, type: TupleType, columns: Sequence[Column]) -> Column:
    """Return the list of tuples of corresponding elements of lists of one length."""
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
    return Column(first.name, for_each_place(b, length, [start], turn)[0])


def _cut(b: Builder, type: ListType, lengths: Column, items: Column, keys: Column | None = None) -> Column:
    """Return the lists of these lengths, or the present optionals, that are consecutive in `items`. `keys`:
    those of dicts."""
    n_items, zero = b.one("len", items.value), b.size(0)
    what = "as many that are true as" if type.form == "optional" else "numbers from 0 on, in all as many as"
    message = f'input "{lengths.name}" must have {what} "{items.name}" has elements'

    def turn(place: Value, carried: list[Value]) -> list[Value]:
        made, begin = carried
        length = b.one("get", lengths.value, place)
        if type.form == "optional":
            length = b.one("to_int", length)
        end = b.one("int_add", begin, length)
        fits = b.one("bool_and", b.one("int_le", zero, length), b.one("int_le", end, n_items))
        b.apply("guard", fits, message=message)
        if keys is not None:
            _check_keys(b, keys, b.one("list_slice", keys.value, begin, end))
        return [b.one("append", made, b.one("list_slice", items.value, begin, end)), end]

    start = [b.one("list", element=type), unknown_int(b, 0)]
    made, end = for_each_place(b, b.one("len", lengths.value), start, turn)
    b.apply("guard", b.one("int_eq", end, n_items), message=message)
    return Column(lengths.name, made)


def columns_of(b: Builder, items: Value, element: Type) -> Iterator[Value]:
    """Yield the columns of a list of elements of a type."""
    if isinstance(element, TupleType):
        for i, part in enumerate(element.elements):
            place = b.size(i)
            parts_of = _mapped(b, items, part, partial(_part, b, place))
            yield from columns_of(b, parts_of, part)
    elif isinstance(element, ListType):
        length = _is_there if element.form == "optional" else _length
        yield _mapped(b, items, BOOL if element.form == "optional" else INT, lambda x: length(b, x))
        yield from columns_of(b, _joined(b, items, element), element.element)
    else:
        yield items


def _part(b: Builder, place: Value, x: Value) -> Value:
    return b.one("get", x, place)


def _length(b: Builder, x: Value) -> Value:
    return b.one("len", x)


def _is_there(b: Builder, x: Value) -> Value:
    return b.one("int_lt", b.size(0), b.one("len", x))


def _mapped(b: Builder, items: Value, type: Type, compute: Callable[[Value], Value]) -> Value:
    """Return the list of the results of `compute`, of type `type`, for each element."""

    def turn(place: Value, made: list[Value]) -> list[Value]:
        return [b.one("append", made[0], compute(b.one("get", items, place)))]

    return for_each_place(b, b.one("len", items), [b.one("list", element=type)], turn)[0]


def _joined(b: Builder, items: Value, type: ListType) -> Value:
    """Return the concatenation of lists of `type`."""

    def turn(place: Value, made: list[Value]) -> list[Value]:
        inner = b.one("get", items, place)

        def put(k: Value, made: list[Value]) -> list[Value]:
            return [b.one("append", made[0], b.one("get", inner, k))]

        return for_each_place(b, b.one("len", inner), made, put)

    start = b.one("list", element=type.element)
    return for_each_place(b, b.one("len", items), [start], turn)[0]
