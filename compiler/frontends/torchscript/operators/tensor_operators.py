"""Operators of tensors, by their schemas: with sizes, with attributes that only a call tells, in place, and
all others through the tables of converters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ....ir.errors import UnsupportedOp
from ....ir.types import TensorType
from ....ops import build as B
from ..flow import variants
from ..values.scalars import scalar_op
from ..values.tensors import VIEWS
from ..values.values import List, Tensor, Variant, is_run_time, kind_of
from . import attributes, composites, library
from .arguments import converted, items_of
from .axes import unbind
from .converters import abstract, run, views
from .creation import created
from .library import arithmetic

if TYPE_CHECKING:
    from ..importer import ScriptImporter

#: Operators of traced programs that compute with sizes as 0-d tensors -> the operator of ints.
_OF_SIZES = {
    "add": "add", "sub": "sub", "mul": "mul", "floor_divide": "floordiv", "remainder": "remainder",
    "rsub": "sub",
}  # fmt: skip


def _of_sizes(importer: ScriptImporter, name: str, args: Sequence[Any]) -> Tensor | None:
    """Return what an operator gives for ints that tracing made 0-d tensors; None for other arguments."""
    if name not in _OF_SIZES or len(args) < 2 or any(x != 1 for x in args[2:]):
        return None
    sides = [_known_int(importer, x) for x in args[:2]]
    if any(x is None for x in sides) or not any(isinstance(x, Tensor) for x in args):
        return None
    if name == "rsub":
        sides = sides[::-1]
    made = scalar_op(importer.builder, _OF_SIZES[name], sides)
    if is_run_time(made):
        return None
    return importer.tensors.fresh(B.full(importer.builder, made, "i64"))


def _known_int(importer: ScriptImporter, x: Any) -> Any:
    """Return an int or size, also that which is all of a 0-d tensor."""
    if isinstance(x, Tensor):
        value = importer.tensors.read(x)
        if not isinstance(value.type, TensorType) or value.type.dtype != "i64" or value.type.shape:
            return None
        return B.uniform(value)
    return x if kind_of(x) == "int" and not is_run_time(x) else None


def tensor_operator(importer: ScriptImporter, node: Any, args: Sequence[Any]) -> list[Any]:
    """Import an operator of tensors with these arguments; return its results."""
    sized = _of_sizes(importer, node.kind().removeprefix("aten::"), args)
    if sized is not None:
        return [sized]
    items = [importer.resolved(item) for x in args if isinstance(x, List) for item in items_of(x)]
    if any(isinstance(item, Variant) for item in items):
        return variants.import_both(importer, node, items)
    schema = torch._C.parse_schema(node.schema())
    space, _, name = schema.name.partition("::")
    at = attributes.axis_at([argument.name for argument in schema.arguments], args)
    if at is not None:
        return attributes.of_each_axis(
            importer, name, args, at, lambda changed: tensor_operator(importer, node, changed)
        )
    if name == "unbind":
        parts = unbind(importer, node, *args)
        if parts is not NotImplemented:
            return [parts]
    choice = attributes.choice_at(schema.arguments, args)
    if choice is not None:
        return attributes.of_each_choice(
            importer, name, args, choice, lambda changed: tensor_operator(importer, node, changed)
        )
    source = arithmetic.source_of(name, schema.overload_name, args)
    if source is not None:
        found = library.run(importer, source, args)
        return list(found) if node.outputsSize() > 1 else [found]
    made = created(importer, name, dict(zip([a.name for a in schema.arguments], args, strict=True)))
    if made is not None:
        return [made]
    suffix = schema.overload_name or "default"
    writes = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    if writes:
        if writes != [0] or not name.endswith("_"):
            raise UnsupportedOp(f"{space}.{name}.{suffix} writes into another argument than its first")
        return [_in_place(importer, f"{space}.{name}.{suffix}", schema, args)]
    overload = f"{space}.{name}.{suffix}"
    positional, keywords = converted(importer, schema, args)
    if overload in VIEWS or _returns_view(schema):
        first = args[0]
        return [views(importer, overload, first, positional[1:], keywords)]
    made = run(importer, overload, positional, keywords)
    return [abstract(importer, each) for each in ([made] if node.outputsSize() == 1 else made)]


def _returns_view(schema: Any) -> bool:
    return bool(schema.returns) and schema.returns[0].alias_info is not None


_CHANGES_OF_AXES = ("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_")


def _in_place(importer: ScriptImporter, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Write what the operator of a name without the last _ gives into the first argument."""
    x = args[0]
    space, name, suffix = overload.split(".")
    positional, keywords = converted(importer, schema, args)
    functional = f"{space}.{name.removesuffix('_')}.{suffix}"
    if name in _CHANGES_OF_AXES:
        raise UnsupportedOp(f"{overload}: a change of axes in place cannot be compiled; use {name[:-1]}")
    own = composites.IN_PLACE.get(overload)
    b, old = importer.builder, importer.tensors.read(x)
    source = arithmetic.source_of(name[:-1], suffix, args)
    if source is not None:
        made = importer.tensors.read(library.run(importer, source, args))
    elif own is not None:
        made = own(b, *positional, **keywords)
    else:
        made = run(importer, functional, positional, keywords)
    importer.tensors.write(x, composites.fitted(b, name, made, old))
    return x
