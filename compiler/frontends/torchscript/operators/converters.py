"""Operators of graph values through the tables of converters that all frontends share, and the tensors and
views of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.errors import Error, UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.complex import is_complex
from ...importer import find_converter
from ..values.values import List, Tensor, View, is_run_time, is_size, is_tensor_value
from ..walk import Walk
from . import composites, matching
from .decomposed import can_decompose, decomposed


def run(importer: Walk, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Append an operator of graph values; sizes that it requires to be equal become equal in the contract.
    Raises UnsupportedOp for a run-time number that must be constant."""
    args = _of_known_sizes(importer, args)
    for one, other in matching.pairs(overload, args, kwargs):
        importer.require_equal(one, other)
    try:
        return _converted_by_table(importer, overload, args, kwargs)
    except Error:
        importer.assumptions.is_operator_refused = True
        raise
    except (TypeError, ValueError) as error:
        given = [item for x in (*args, *kwargs.values()) for item in (x if isinstance(x, list) else [x])]
        if not any(is_run_time(x) or is_size(x) or _has_free_size(x) for x in given):
            raise
        importer.assumptions.is_operator_refused = True
        raise UnsupportedOp(
            f"{overload}: a number or size that is known at run time only is given where a constant is needed"
        ) from error


def _of_known_sizes(importer: Walk, args: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments with the sizes that they have here, in branches on sizes that equal a number."""
    known = importer.known_sizes()

    def cut(x: Any) -> Any:
        if isinstance(x, list):
            return list(map(cut, x))
        for axis, size in enumerate(B.shape_of(x)) if isinstance(x, Value) and is_tensor_value(x) else ():
            if size in known:
                x = B.take(importer.builder, x, axis, 0, known[size])
        return x

    return [cut(x) for x in args] if known else args


def _has_free_size(x: Any) -> bool:
    return is_tensor_value(x) and any(map(is_size, x.type.shape))


def _converted_by_table(importer: Walk, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    own = composites.COMPOSITES.get(overload)
    made = NotImplemented if own is None or is_complex([*args]) else own(importer.builder, *args, **kwargs)
    if made is not NotImplemented:
        return made
    if find_converter(overload) is None:
        if can_decompose(overload):
            return decomposed(importer, overload, args, kwargs)
        importer.require([(overload, importer.builder.source)])
    return importer.call(overload, args, kwargs)


def abstract(importer: Walk, made: Any) -> Any:
    """Return new tensors for graph values, and lists of them."""
    if is_tensor_value(made):
        return importer.tensors.fresh(made)
    if isinstance(made, tuple | list):
        return List([abstract(importer, each) for each in made])
    return made


def view(importer: Walk, overload: str, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the view that an operator makes of a tensor."""
    value = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), value)


def views(importer: Walk, overload: str, x: Any, rest: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the view or the list of views that an operator makes of a tensor."""
    made = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    if is_tensor_value(made):
        return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), made)
    return List(
        [
            importer.tensors.view_of(x, View(overload, tuple(rest), kwargs, i), each)
            for i, each in enumerate(made)
        ]
    )
