"""The `Dim` that the user gave for each dynamic axis of an exported program's inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_flatten, tree_unflatten

#: Sizes that examples of size 1 are given instead, one for each named Dim.
_LARGER = (3, 5, 7, 11, 13)


def named_sizes(program: ExportedProgram, dynamic_shapes: Any) -> list[tuple[torch.SymInt, Any]]:
    """Return (size, the user's Dim or None) of every dynamic axis of the inputs, plain symbols first."""
    found, inputs = [], user_inputs(program)
    for node, dims in zip(inputs, dims_of_inputs(program, dynamic_shapes, len(inputs)), strict=True):
        value = node.meta.get("val")
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                found.append((size, axis_dim(dims, axis)))
    return sorted(found, key=lambda pair: not pair[0].node.expr.is_Symbol)


def user_inputs(program: ExportedProgram) -> list[torch.fx.Node]:
    """Return the placeholders of a program that are the user's arguments, not weights or state."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = program.graph_signature.input_specs  # in the order of the nodes, whose names may differ
    pairs = zip(placeholders, specs, strict=True)
    return [node for node, spec in pairs if spec.kind == InputKind.USER_INPUT]


def int_symbols(values: Iterable[Any]) -> frozenset[str]:
    """Return torch's names of the ints among the values of inputs that are in no tensor's sizes."""
    values = list(values)
    named = {str(v.node.expr) for v in values if isinstance(v, torch.SymInt) and v.node.expr.is_Symbol}
    sizes: list[Any] = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    symbolic = [size for size in sizes if isinstance(size, torch.SymInt)]
    return frozenset(named - {str(name) for size in symbolic for name in size.node.expr.free_symbols})


def axis_dim(dims: Any, axis: int) -> Any:
    """Return the rule for one axis in the dynamic_shapes of an input, None if there is none."""
    if isinstance(dims, Mapping):
        return dims.get(axis)
    if isinstance(dims, list | tuple):
        return dims[axis] if axis < len(dims) else None
    return dims


def dims_of_inputs(program: ExportedProgram, dynamic_shapes: Any, n: int) -> Iterator[Any]:
    """Yield, for every input, the rules of dynamic_shapes for its axes (None: none)."""
    if dynamic_shapes is None:
        yield from [None] * n
        return
    spec = program.call_spec.in_spec
    args, kwargs = torch.utils._pytree.tree_unflatten([_Leaf(i) for i in range(n)], spec)
    names = program.module_call_graph[0].signature.forward_arg_names
    combined = dict(zip(names or map(str, range(len(args))), args, strict=False)) | kwargs
    yield from _paired(combined, _spread(dynamic_shapes, combined), n)


def _spread(dynamic_shapes: Any, arguments: Mapping[str, Any]) -> Any:
    """Return dynamic_shapes with an entry for each of *args and **kwargs: programs take them one by one."""
    if not isinstance(dynamic_shapes, Mapping):
        *first, last = dynamic_shapes or (None,)
        each = [*first, *last] if isinstance(last, list | tuple) else first
        is_spread = len(arguments) > len(dynamic_shapes) or _is_of_one(last, list(arguments.values())[-1:])
        return each if len(each) == len(arguments) and is_spread else dynamic_shapes
    spread = dict(dynamic_shapes)
    for name in dynamic_shapes.keys() - arguments.keys():
        inner = dynamic_shapes[name]
        if isinstance(inner, Mapping):
            spread.update(inner)
        elif isinstance(inner, list | tuple):
            spread.update({f"{name}_{i}": dims for i, dims in enumerate(inner)})
    return spread


def _is_of_one(dims: Any, values: Sequence[Any]) -> bool:
    """Whether dims are those of *args that got one tensor: a tuple of the tensor's own."""
    is_one = isinstance(dims, list | tuple) and len(dims) == 1 and isinstance(values[0], _Leaf)
    return is_one and isinstance(dims[0], Mapping | list | tuple)


def _paired(arguments: Mapping[str, Any], dynamic_shapes: Any, n: int) -> list[Any]:
    """Return the dynamic_shapes of each of the n leaves of the arguments by name."""
    shapes = (
        dynamic_shapes
        if isinstance(dynamic_shapes, Mapping)
        else dict(zip(arguments, dynamic_shapes, strict=False))
    )
    result: list[Any] = [None] * n
    for name, value in arguments.items():
        _pair(value, shapes.get(name), result)
    return result


class _Leaf:
    """Represents the input of that position."""

    def __init__(self, position: int) -> None:
        self.position = position


def _pair(value: Any, shapes: Any, result: list[Any]) -> None:
    """Walk inputs and dynamic_shapes together."""
    if isinstance(value, _Leaf):
        result[value.position] = shapes
    elif shapes is not None:
        items = (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value)
            if isinstance(value, list | tuple)
            else []
        )
        for key, item in items:
            inner = (
                shapes.get(key) if isinstance(shapes, Mapping) else shapes[key] if len(shapes) > key else None
            )
            _pair(item, inner, result)


def dims_by_source(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> dict[str, str]:
    """Return, by the names of Dims, the name in torch's messages of the axis that each is given for."""
    try:
        names = list(inspect.signature(forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {}
    if isinstance(dynamic_shapes, list | tuple):
        dynamic_shapes = dict(zip(names, dynamic_shapes, strict=False))
    found: dict[str, str] = {}
    for name, axes in dynamic_shapes.items() if isinstance(dynamic_shapes, Mapping) else ():
        listed = enumerate(axes) if isinstance(axes, list | tuple) else ()
        for axis, dim in axes.items() if isinstance(axes, Mapping) else listed:
            if hasattr(dim, "__name__"):
                found.setdefault(dim.__name__, f"L['{name}'].size()[{axis}]")
    return found


def without_ones(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments with their rows repeated along the dynamic axes of size 1, which become 3 or more;
    None if there is no such axis.

    torch.export specialises a size of 1 wherever an operator checks it (for example, whether a transposed
    tensor is contiguous), regardless of dynamic_shapes.
    """
    leaves, structure = tree_flatten((tuple(args), dict(kwargs)))
    places = tree_unflatten([_Leaf(i) for i in range(len(leaves))], structure)
    try:
        bound = inspect.signature(forward).bind(*places[0], **places[1]).arguments
        shapes = _paired(bound, dynamic_shapes, len(leaves))
    except (TypeError, AttributeError, LookupError):  # a form of dynamic_shapes that is not by argument
        return None
    larger: dict[str, int] = {}
    tensors = [(value, dims) for value, dims in zip(leaves, shapes, strict=True) if _has_axes(value, dims)]
    for value, dims in tensors:
        for axis, size in enumerate(value.shape):
            dim = axis_dim(dims, axis)
            if size == 1 and is_dynamic(dim) and not hasattr(dim, "root") and _name(dim) not in larger:
                most = getattr(dim, "max", None)  # None of a Dim.AUTO without bounds
                larger[_name(dim)] = min(_LARGER[len(larger) % len(_LARGER)], 3 if most is None else most)
    if not larger:
        return None
    grown = [
        _with_sizes(v, dims, larger) if _has_axes(v, dims) else v
        for v, dims in zip(leaves, shapes, strict=True)
    ]
    made: tuple[tuple[Any, ...], dict[str, Any]] = tree_unflatten(grown, structure)
    return made


def _has_axes(value: Any, dims: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and dims is not None


def is_dynamic(dim: Any) -> bool:
    """Return True for a value that marks an axis as dynamic."""
    return dim is not None and not isinstance(dim, int) and dim is not torch.export.Dim.STATIC


def _name(dim: Any) -> str:
    return getattr(dim, "__name__", "")  # all of Dim.AUTO and Dim.DYNAMIC are alike


def _with_sizes(value: torch.Tensor, dims: Any, larger: Mapping[str, int]) -> torch.Tensor:
    """Return a tensor with rows repeated if its Dim, or the Dim that it is derived from, is larger."""
    for axis, size in enumerate(value.shape):
        dim = axis_dim(dims, axis)
        root = getattr(dim, "root", dim)
        if not is_dynamic(dim) or _name(root) not in larger or (size != 1 and root is dim):
            continue
        wanted = larger[_name(root)] if root is dim else dim.fn(larger[_name(root)])
        value = with_size(value, axis, wanted)
    return value


def with_size(value: torch.Tensor, axis: int, wanted: int | None) -> torch.Tensor:
    """Return a tensor with the rows of an axis cut or repeated to `wanted`; as it is for None, and without
    rows."""
    size = value.shape[axis]
    if not size or wanted in (size, None):
        return value
    return value.index_select(axis, torch.arange(wanted, device=value.device) % size)
