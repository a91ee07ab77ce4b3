"""Arguments that may be None in any call.

Such an argument is a flag input, and the inputs that hold its value. The sizes of an optional tensor bind no
size of other inputs: they are checked where the program reads the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch

from ....ir.dims import format_dim
from ....ops import build as B
from ....ops.conditions import add_guard
from ...dynamic_shapes import axis_dim
from ..values.values import Maybe, Tensor, View
from ..walk import Walk
from .branches import branch

#: Nodes that accept an optional; other operators are imported for both cases.
TAKES_OPTIONALS = ("aten::__is__", "aten::__isnot__", "aten::_unwrap_optional")
_ZEROS: dict[str, Any] = {
    "IntType": int, "FloatType": float, "BoolType": bool, "StringType": str, "ListType": list,
    "DictType": dict,
}  # fmt: skip


def inner_type(type: Any) -> Any:
    """Return the type of an optional's value; None for another type."""
    return type.getElementType() if type is not None and type.kind() == "OptionalType" else None


def part_type(type: Any, key: Any) -> Any:
    """Return the type of a part of a tuple, list or dict; None if it is not known."""
    kind = type.kind() if type is not None else ""
    if kind == "TupleType":
        return type.elements()[key]
    if kind == "ListType":
        return type.getElementType()
    return type.getValueType() if kind == "DictType" else None


def zero_of(type: Any) -> Any:
    """Return an example of a fully specified type; None if it contains tensors."""
    kind = type.kind()
    if kind == "TupleType":
        parts = [None if inner_type(part) is not None else zero_of(part) for part in type.elements()]
        is_known = all(x is not None or inner_type(t) for x, t in zip(parts, type.elements(), strict=True))
        return tuple(parts) if parts and is_known else None
    return _ZEROS[kind]() if kind in _ZEROS else None


def can_be_open(x: Any, type: Any) -> bool:
    """Return True for the example of an optional whose type is supported: tensors, numbers, strings and
    tuples of these, also optional ones."""
    inner = inner_type(type)
    if isinstance(x, tuple):
        parts = [part_type(inner or type, i) for i in range(len(x))]
        return bool(x) and all(
            can_be_open(item, part) or (item is None and inner_type(part) is not None)
            for item, part in zip(x, parts, strict=True)
        )
    return isinstance(x, torch.Tensor | bool | int | float | str)


def named_sizes(x: Any, shapes: Any, type: Any, inner: Callable[[Any, Any], Any]) -> Iterator[str]:
    """Yield the names of sizes that `dynamic_shapes` gives to axes of a non-optional argument."""
    if isinstance(x, torch.Tensor):
        for axis in range(x.ndim):
            name = getattr(axis_dim(shapes, axis), "__name__", None)
            if name is not None and inner_type(type) is None:
                yield str(name)
    pairs = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list | tuple) else ()
    for key, item in pairs if inner_type(type) is None else ():
        yield from named_sizes(item, inner(shapes, key), part_type(type, key), inner)


def there(importer: Walk, x: Any) -> Any:
    """Return the value of an optional that is known to be present, after checking its sizes."""
    if isinstance(x, tuple):
        return tuple(there(importer, item) for item in x)
    if not isinstance(x, Tensor):
        return x
    b = importer.builder
    path, bounds = importer.bounds_of(x)
    for bound in bounds:
        what = f'input "{path}": axis {bound.axis} must'
        given = sympy.sympify(bound.given)
        if bound.size is None:
            add_guard(b, sympy.Ge(given, bound.low), f"{what} have size {bound.low} or more")
            if bound.high is not None:
                add_guard(b, sympy.Le(given, bound.high), f"{what} have size {bound.high} or less")
            continue
        add_guard(b, sympy.Eq(given, sympy.sympify(bound.size)), f"{what} have size {format_dim(bound.size)}")
        part = B.take(b, importer.tensors.read(x), bound.axis, 0, bound.size)
        view = View("aten.narrow.default", (bound.axis, 0, bound.size), {})
        x = importer.tensors.view_of(x, view, part)
    return x


def import_both(importer: Walk, node: Any, given: Sequence[Any]) -> list[Any]:
    """Import an operator for the first optional among its arguments being present, and for None."""
    index = next(i for i, x in enumerate(given) if isinstance(x, Maybe))
    maybe, argument = given[index], list(node.inputs())[index]

    def way(is_there: bool) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            found = there(importer, maybe.value) if is_there else None
            with importer.taken_for(argument, found):
                importer.run_node(node)
                return [importer.get(value) for value in node.outputs()]

        return run

    return branch(importer, maybe.is_there, [way(True), way(False)])
