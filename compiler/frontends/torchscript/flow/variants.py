"""Values of two forms, such as a state that is empty at first and a matrix after a call: operators on
them are imported for each form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....ir.errors import DtypeError, ShapeError, UnsupportedOp
from ..values.values import UNINITIALIZED, List, Variant, is_run_time, is_run_time_list, is_size, kind_of
from ..walk import Walk
from .branches import branch


def import_both(importer: Walk, node: Any, given: Iterable[Any]) -> list[Any]:
    """Import a node for each form of the first of its arguments `given` that has two; return values of two
    forms if these are known numbers, or lists of them, else the result of a branch."""
    variant = next(x for x in given if isinstance(x, Variant))

    def way(is_other: bool) -> list[Any]:
        return importer.knowing(variant.is_other, is_other, lambda: _outputs(importer, node))

    with importer.trial():
        found = [_tried(importer, lambda is_other=is_other: way(is_other)) for is_other in (False, True)]
    if all(result is not None and all(map(_is_known, result)) for result in found):
        return [Variant(variant.is_other, *pair) for pair in zip(*found, strict=True)]
    ways = [lambda: _or_fails(importer, node, way, True), lambda: _or_fails(importer, node, way, False)]
    return branch(importer, variant.is_other, ways, tells_form=True)


def _outputs(importer: Walk, node: Any) -> list[Any]:
    importer.run_node(node)
    return [importer.get(value) for value in node.outputs()]


def _tried(importer: Walk, way: Any) -> list[Any] | None:
    try:
        return way()
    except (ShapeError, DtypeError, UnsupportedOp):
        return None


def _or_fails(importer: Walk, node: Any, way: Any, is_other: bool) -> list[Any]:
    """Import a node for one form; if it is refused, calls with that form fail."""
    try:
        return way(is_other)
    except (ShapeError, DtypeError) as error:
        b = importer.builder
        b.apply("guard", b.one("literal", value=False), message=str(error))
        return [UNINITIALIZED] * node.outputsSize()


def _is_known(x: Any) -> bool:
    if isinstance(x, List) and not is_run_time_list(x.content):
        return all(map(_is_known, x.content))
    return is_size(x) or (kind_of(x) != "" and not is_run_time(x))
