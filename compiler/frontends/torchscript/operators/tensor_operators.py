"""Operators of tensors, by their schemas: with sizes, with run-time attributes, in place, and all others
through the tables of converters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....ir.errors import UnsupportedOp
from ....ir.types import TensorType
from ....ops import build as B
from ..flow import variants
from ..values.scalars import scalar_op
from ..values.tensors import VIEWS
from ..values.values import List, Tensor, Variant, is_run_time, kind_of
from ..walk import Walk
from . import attributes, composites, library
from .arguments import converted, items_of
from .axes import unbind
from .converters import abstract, run, views
from .creation import created
from .library import arithmetic

#: Operators of traced programs that compute with sizes as 0-d tensors -> the operator of ints.
_OF_SIZES = {
    "add": "add", "sub": "sub", "mul": "mul", "floor_divide": "floordiv", "remainder": "remainder",
    "rsub": "sub",
}  # fmt: skip


def _of_sizes(importer: Walk, name: str, args: Sequence[Any]) -> Tensor | None:
    """Return the result of an operator for ints that tracing made 0-d tensors; None for other arguments."""
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


def _known_int(importer: Walk, x: Any) -> Any:
    """Return an int or size, also from a 0-d tensor."""
    if isinstance(x, Tensor):
        value = importer.tensors.read(x)
        if not isinstance(value.type, TensorType) or value.type.dtype != "i64" or value.type.shape:
            return None
        return B.uniform(value)
    return x if kind_of(x) == "int" and not is_run_time(x) else None


def tensor_operator(importer: Walk, node: Any, args: Sequence[Any]) -> list[Any]:
    """Import an operator of tensors with these arguments; return its results."""
    name = node.kind().removeprefix("aten::")
    sized = _of_sizes(importer, name.removesuffix("_"), args)
    if sized is not None and name.endswith("_"):
        importer.tensors.write(args[0], importer.tensors.read(sized))
    if sized is not None:
        return [args[0] if name.endswith("_") else sized]
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
    overload = f"{space}.{name}.{schema.overload_name or 'default'}"
    if any(_is_written(a) for a in schema.arguments):
        return [_written(importer, overload, schema, args)]
    positional, keywords = converted(importer, schema, args)
    if overload in VIEWS or _returns_view(schema):
        first = args[0]
        return [views(importer, overload, first, positional[1:], keywords)]
    made = run(importer, overload, positional, keywords)
    return [abstract(importer, each) for each in ([made] if node.outputsSize() == 1 else made)]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _written(importer: Walk, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Import an operator that changes an argument, which it returns."""
    name, writes = overload.split(".")[1], [i for i, a in enumerate(schema.arguments) if _is_written(a)]
    if schema.arguments[writes[0]].name == "out" and len(writes) == 1:
        return _into(importer, overload, schema, args)
    if writes != [0] or not name.endswith("_"):
        raise UnsupportedOp(f"{overload} writes into another argument than its first")
    run = _with_other_axes if name in _CHANGES_OF_AXES else _in_place
    return run(importer, overload, schema, args)


def _returns_view(schema: Any) -> bool:
    return bool(schema.returns) and schema.returns[0].alias_info is not None


#: In-place changes of axes -> the overload of the view if its name differs.
_CHANGES_OF_AXES = {
    "squeeze_": "", "unsqueeze_": "", "transpose_": "aten.transpose.int", "t_": "", "swapaxes_": "",
    "swapdims_": "",
}  # fmt: skip


def _with_other_axes(importer: Walk, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Make the first argument a view of its old value, for all holders."""
    x = args[0]
    space, name, suffix = overload.split(".")
    if len(importer.regions.blocks) > 1 or x.place is not None or (x.parent is None and not x.memory.birth):
        raise UnsupportedOp(
            f"{overload}: the axes of an argument, an attribute or an element of a list, or in a branch or "
            f"loop, cannot be changed in place; use {name[:-1]}"
        )
    positional, keywords = converted(importer, schema, args)
    functional = _CHANGES_OF_AXES[name] or f"{space}.{name[:-1]}.{suffix}"
    importer.tensors.replace(x, views(importer, functional, x, positional[1:], keywords))
    return x


def _into(importer: Walk, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Write the result of the operator without `out` into `out`."""
    space, name, _ = overload.split(".")
    packet = getattr(getattr(torch.ops, space), name)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if a.name != "out"]
    functional = next((each for each in packet.overloads() if _arguments(packet, each) == wanted), None)
    positional, keywords = converted(importer, schema, args)
    out = next(x for x, a in zip(args, schema.arguments, strict=True) if a.name == "out")
    if functional is None or not isinstance(out, Tensor):
        raise UnsupportedOp(f"{overload} cannot be compiled; assign what {name} returns")
    old = importer.tensors.read(out)
    keywords.pop("out")
    made = run(importer, f"{space}.{name}.{functional}", positional, keywords)
    if len(B.shape_of(made)) != len(B.shape_of(old)):
        raise UnsupportedOp(f"{overload}: out has another rank than the result; assign what {name} returns")
    for axis, size in enumerate(B.shape_of(old)):
        made = B.of_size(importer.builder, f"{name}: out", made, axis, size)
    importer.tensors.write(out, composites.fitted(importer.builder, name, made, old))
    return out


def _arguments(packet: Any, overload: str) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in getattr(packet, overload)._schema.arguments]


#: In-place operators whose functional operator has another name.
_FUNCTIONAL = {
    "aten.normal_.default": "aten.normal_functional.default",
    "aten.bernoulli_.float": "aten.bernoulli.p",
    "aten.floor_divide_.Tensor": "aten.floor_divide.default",
    "aten.pow_.Tensor": "aten.pow.Tensor_Tensor",
    "aten.float_power_.Tensor": "aten.float_power.Tensor_Tensor",
    **{
        f"aten.__i{name}__.{suffix}": f"aten.{functional}.{suffix}"
        for name, functional in (
            ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"), ("lshift", "__lshift__"),
            ("rshift", "__rshift__"),
        )
        for suffix in ("Tensor", "Scalar")
    },
}  # fmt: skip


def _in_place(importer: Walk, overload: str, schema: Any, args: Sequence[Any]) -> Tensor:
    """Write the result of the operator whose name lacks the last _ into the first argument."""
    x = args[0]
    space, name, suffix = overload.split(".")
    positional, keywords = converted(importer, schema, args)
    functional = _FUNCTIONAL.get(overload, f"{space}.{name.removesuffix('_')}.{suffix}")
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
