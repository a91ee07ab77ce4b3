"""Whether values have in eager the memory layout of a trace. Some of torch's fake kernels return row-major
results although eager keeps the layout of an argument (`roll` of a channels-last image). So an operator with
arguments of another layout is run once, on zeros of the traced sizes and strides."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from .layout import example

_CLONE = "clone the tensor before, with memory_format=torch.contiguous_format"
NOT_AS_TRACED = (
    f"it reads the storage of a tensor that eager may keep in another layout than tracing says; {_CLONE}"
)
ASKED = (
    "the model asks how a tensor lies in memory (stride, is_contiguous), which eager may answer otherwise "
    f"than tracing or in another call; {_CLONE}"
)
MAX_ELEMENTS = 1 << 24  # of the arguments of an operator that is run


def lies_as_traced(node: torch.fx.Node) -> bool:
    """Return True if the tensors of a node certainly have the traced layout in eager."""
    made = [each for each in _before(node, _is_written_in_rows) if each.op not in _GIVEN]
    return all(all(map(_is_in_rows, each.all_input_nodes)) or _runs_as_traced(each) for each in made)


def inputs_that_decide(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the inputs whose layout in memory decides that of a node's tensors."""
    return [each for each in _before(node, _gives_rows) if each.op == "placeholder"]


_GIVEN = ("placeholder", "get_attr")


def _before(node: torch.fx.Node, ends: Callable[[torch.fx.Node], bool]) -> Iterator[torch.fx.Node]:
    """Yield a node and those that its tensors come from, up to those that `ends` is true of."""
    pending, seen = [node], set[torch.fx.Node]()
    while pending:
        made = pending.pop()
        if made not in seen and not ends(made):
            seen.add(made)
            pending += [arg for arg in made.all_input_nodes if _tensors(arg)]
            yield made


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]


def _is_in_rows(node: torch.fx.Node) -> bool:
    return all(tensor.is_contiguous() for tensor in _tensors(node))


def _is_written_in_rows(node: torch.fx.Node) -> bool:
    """Whether a node requests a row-major copy."""
    is_copy = str(node.target) in ("aten.clone.default", "aten._to_copy.default", "aten.contiguous.default")
    return is_copy and node.kwargs.get("memory_format") == torch.contiguous_format


def _gives_rows(node: torch.fx.Node) -> bool:
    """Return True if results are certainly row-major, whatever the layout of the arguments."""
    if node.op in _GIVEN or node.target is operator.getitem:
        return False
    runs = (_run(node, layout) for layout in (_forwards, _backwards, _spaced))
    return _is_written_in_rows(node) or all(
        found is not None and all(tensor.is_contiguous() for tensor in found) for found in runs
    )


def _runs_as_traced(node: torch.fx.Node) -> bool:
    """Run an operator on zeros; return True if its results have the traced strides."""
    if node.target is operator.getitem:
        return True  # as its argument
    found = _run(node, _zeros)
    return found is not None and [_strides(t) for t in found] == [_strides(t) for t in _tensors(node)]


def _run(node: torch.fx.Node, argument: Callable[[Any], Any]) -> list[torch.Tensor] | None:
    """Return the result of an operator for such arguments; None if it is unknown."""
    target: Any = node.target
    given = [tensor for arg in node.all_input_nodes for tensor in _tensors(arg)]
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if sum(prod(map(example, tensor.shape)) for tensor in given) > MAX_ELEMENTS:
        return None
    try:
        with unset_fake_temporarily(), torch.no_grad():
            args, kwargs = tree_map(argument, (node.args, dict(node.kwargs)))
            return [leaf for leaf in tree_leaves(target(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    except Exception:  # zeros may be invalid arguments
        return None


def _strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides of the axes with more than one element."""
    pairs = zip(map(example, tensor.shape), map(example, tensor.stride()), strict=True)
    return [stride for size, stride in pairs if size != 1]


def _zeros(value: Any) -> Any:
    """Return a traced argument as one that operators run on."""
    value = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    if isinstance(value, torch.Tensor):
        sizes, strides = (tuple(map(example, part)) for part in (value.shape, value.stride()))
        return torch.empty_strided(sizes, strides, dtype=value.dtype).zero_()
    return example(value) if isinstance(value, torch.SymInt) else value


def _forwards(value: Any) -> Any:
    """Return a traced argument as one that lies row by row."""
    made = _zeros(value)
    return made.contiguous() if isinstance(made, torch.Tensor) else made


def _backwards(value: Any) -> Any:
    """Return a traced argument as one whose first axis is the innermost in memory."""
    made = _zeros(value)
    if not isinstance(made, torch.Tensor):
        return made
    axes = tuple(reversed(range(made.ndim)))
    return made.permute(axes).contiguous().permute(axes)


def _spaced(value: Any) -> Any:
    """Return a traced argument as one with gaps between its elements."""
    made = _zeros(value)
    return torch.stack([made, made], -1)[..., 0] if isinstance(made, torch.Tensor) else made
