"""aten:: operators: those of plain values and containers, then those of tensors through the tables of
converters that all frontends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.errors import UnsupportedOp
from ..values.scalars import PYTHON, scalar_op
from ..values.values import List, Member, Tensor, is_run_time, is_run_time_list, is_size, kind_of
from ..walk import Walk
from . import attributes, axes, creation, library, nested_rows, plain, statistics
from .containers import container_op
from .tensor_operators import tensor_operator
from .texts import text_op


def import_operator(importer: Walk, node: Any) -> list[Any]:
    """Import a node that is an operator; return its results. Raises UnsupportedOp naming it if it cannot be
    compiled."""
    return _imported(importer, node, [importer.get(value) for value in node.inputs()])


#: Special operators -> which argument is an axis; a run-time axis gives a branch for each.
_OF_AN_AXIS = {"select": 1, "slice": 1, "squeeze": 1, "squeeze_": 1, "roll": 2}


def _imported(importer: Walk, node: Any, args: Sequence[Any]) -> list[Any]:
    kind = node.kind()
    name = kind.removeprefix("aten::")
    if kind.startswith("aten::"):
        at = _OF_AN_AXIS.get(name.removesuffix("_copy"))
        if at is not None and isinstance(args[0], Tensor) and attributes.is_told_axis(args[at : at + 1]):
            return attributes.of_each_axis(
                importer, name, args, at, lambda changed: _imported(importer, node, changed)
            )
        found = _own(importer, name, args)
        if found is not NotImplemented:
            return list(found) if node.outputsSize() > 1 else [found] if node.outputsSize() else []
    if node.schema() == "(no schema)" or kind.startswith("prim::"):
        raise UnsupportedOp(f"{kind} cannot be compiled")
    return tensor_operator(importer, node, args)


#: Operators with special functions, which return NotImplemented for arguments that the tables of converters
#: handle.
_SPECIAL: dict[str, Callable[..., Any]] = {
    **plain.OPERATORS, **creation.OPERATORS, **axes.OPERATORS, **statistics.OPERATORS,
    **nested_rows.OPERATORS,
}  # fmt: skip


def _own(importer: Walk, name: str, args: Sequence[Any]) -> Any:
    """Return the result of an operator of plain values or containers; NotImplemented for others."""
    found = container_op(importer, name, args)
    if found is not NotImplemented:
        return found
    found = text_op(importer, name, args)
    if found is not NotImplemented:
        return found
    special = _SPECIAL.get(name)
    if special is not None:
        return special(importer, *args)
    viewed = name.removesuffix("_copy")
    if viewed != name and viewed in axes.OPERATORS:
        return axes.copied(importer, axes.OPERATORS[viewed](importer, *args))
    if name in ("eq", "ne") and all(isinstance(x, Member) for x in args):
        return _SPECIAL["__is__" if name == "eq" else "__isnot__"](importer, *args)
    if name in library.OF_LISTS and isinstance(args[0], List) and is_run_time_list(args[0].content):
        return library.run(importer, "vstack" if name == "row_stack" else name, args)
    if name in library.OF_INTS and any(is_run_time(x) or is_size(x) for x in args):
        return library.run(importer, name, args)
    if name in PYTHON and args and all(map(kind_of, args)):
        return scalar_op(importer.builder, name, args)
    if (
        name in ("eq", "ne")
        and len(args) == 2
        and all(x is None or kind_of(x) or isinstance(x, tuple) for x in args)
    ):
        return (args[0] == args[1]) is (name == "eq")
    return NotImplemented
