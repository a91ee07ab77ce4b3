"""Which `Dim` the user gave for each dynamic axis of an exported program's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind


def named_sizes(program: ExportedProgram, dynamic_shapes: Any) -> list[tuple[torch.SymInt, Any]]:
    """Return (size, the user's Dim or None) of every dynamic axis of the inputs, plain symbols first."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = program.graph_signature.input_specs  # in the order of the nodes, whose names may differ
    pairs = zip(placeholders, specs, strict=True)
    inputs = [node for node, spec in pairs if spec.kind == InputKind.USER_INPUT]
    found = []
    for node, dims in zip(inputs, _specs(program, dynamic_shapes, len(inputs)), strict=True):
        value = node.meta.get("val")
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                found.append((size, axis_dim(dims, axis)))
    return sorted(found, key=lambda pair: not pair[0].node.expr.is_Symbol)


def int_symbols(values: Iterable[Any]) -> frozenset[str]:
    """Return torch's names of the ints among the values of inputs that are in no tensor's sizes."""
    values = list(values)
    named = {str(v.node.expr) for v in values if isinstance(v, torch.SymInt) and v.node.expr.is_Symbol}
    sizes: list[Any] = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    symbolic = [size for size in sizes if isinstance(size, torch.SymInt)]
    return frozenset(named - {str(name) for size in symbolic for name in size.node.expr.free_symbols})


def axis_dim(dims: Any, axis: int) -> Any:
    """Return what is said of one axis by what dynamic_shapes says of an input, None for nothing."""
    if isinstance(dims, Mapping):
        return dims.get(axis)
    if isinstance(dims, list | tuple):
        return dims[axis] if axis < len(dims) else None
    return dims


def _specs(program: ExportedProgram, dynamic_shapes: Any, n: int) -> Iterator[Any]:
    """Yield, for every input, what dynamic_shapes says of its axes (None: nothing)."""
    if dynamic_shapes is None:
        yield from [None] * n
        return
    spec = program.call_spec.in_spec
    args, kwargs = torch.utils._pytree.tree_unflatten([_Leaf(i) for i in range(n)], spec)
    names = program.module_call_graph[0].signature.forward_arg_names
    combined = dict(zip(names or map(str, range(len(args))), args, strict=False)) | kwargs
    shapes = (
        dynamic_shapes
        if isinstance(dynamic_shapes, Mapping)
        else dict(zip(combined, dynamic_shapes, strict=False))
    )
    result: list[Any] = [None] * n
    for name, value in combined.items():
        _pair(value, shapes.get(name), result)
    yield from result


class _Leaf:
    """Stands for the input of that position."""

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
