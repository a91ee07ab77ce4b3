"""Programs without in-place operators, by renaming: where nothing else shares the memory that an operator
changes, it is the operator that makes a new value, and what follows uses that one.

torch's own way, `ExportedProgram.run_decompositions`, handles whatever there is, by tracing the program anew:
half the time that compiling a convolutional network takes. Programs of operators that all have a converter
can do without.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from .fx_nodes import is_check, is_item, is_operator, overload_of, schema_arguments
from .importer import find_converter

#: Composites of torch whose results never share memory with their arguments; of others it is not known.
_FRESH = (
    "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::batch_norm", "aten::linear", "aten::matmul",
    "aten::layer_norm", "aten::group_norm", "aten::max_pool2d", "aten::adaptive_avg_pool2d",
    "aten::scaled_dot_product_attention", "aten::embedding", "aten::softmax.int", "aten::relu6",
)  # fmt: skip


def functional(program: ExportedProgram) -> ExportedProgram | None:
    """Return `program` with new values for changed ones, itself where nothing is changed; None where it has
    operators without a converter or changes memory that may be shared."""
    nodes = list(program.graph.nodes)
    if any(node.op not in ("placeholder", "call_function", "output") for node in nodes):
        return None
    operators = [node for node in nodes if is_operator(node)]
    if not all(map(_is_convertible, operators)):
        return None
    changes = [node for node in operators if _changes_memory(node)]
    if not changes:
        return program
    names = _Names()
    return _renamed(program, names) if all(names.add(node) for node in nodes) else None


def _is_convertible(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if _changes_memory(node):
        return new_value_overload(node) is not None
    if node.target._schema.name == "aten::batch_norm" and schema_arguments(node)[5]:
        return False  # it changes its running means
    return is_item(node) or is_check(node) or find_converter(overload_of(node)) is not None


def _changes_memory(node: torch.fx.Node) -> bool:
    return cast(Any, node.target)._schema.is_mutable


def new_value_overload(node: torch.fx.Node) -> Any:
    """Return the overload that makes the new value of an in-place call, such as aten.add.Tensor of
    aten.add_.Tensor; None where there is none with a converter, or it would make another dtype."""
    schema = cast(Any, node.target)._schema
    space, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, space), name.removesuffix("_"), None)
    found = getattr(packet, schema.overload_name or "default", None)
    if found is None or not name.endswith("_") or find_converter(str(found)) is None:
        return None
    names = [[argument.name for argument in each.arguments[1:]] for each in (found._schema, schema)]
    if names[0] != names[1]:  # the first one, which is changed, may be `self` or `input`
        return None
    values = [arg.meta.get("val") for arg in node.all_input_nodes]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    return found if len(dtypes) == 1 else None


class _Names:
    """Which nodes stand for one piece of memory, and which memory may be shared."""

    def __init__(self) -> None:
        self.first: dict[torch.fx.Node, torch.fx.Node] = {}  # of each node, the one that made its memory
        self._shared: set[torch.fx.Node] = set()

    def add(self, node: torch.fx.Node) -> bool:
        """Take in the next node. Return False where it changes memory that may be shared."""
        if is_operator(node) and _changes_memory(node):
            owner = self.first[cast(torch.fx.Node, node.args[0])]
            self.first[node] = owner
            return owner not in self._shared or _keeps_values(node)
        self.first[node] = node
        if not _makes_fresh(node):
            self._shared |= {node, *(self.first[arg] for arg in node.all_input_nodes)}
        return True


def _keeps_values(node: torch.fx.Node) -> bool:
    """Return True for dropout in evaluation mode."""
    return overload_of(node) == "aten.dropout_.default" and not schema_arguments(node)[2]


def _makes_fresh(node: torch.fx.Node) -> bool:
    """Return True where the results certainly share no memory with anything."""
    if node.op == "output":
        return True
    if not is_operator(node):
        return False
    overload: Any = node.target
    name = f"{overload._schema.name}.{overload._schema.overload_name}".removesuffix(".")
    is_composite = overload._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
        overload.name(), "CompositeImplicitAutograd"
    )
    has_alias = any(result.alias_info is not None for result in overload._schema.returns)
    return not has_alias and (not is_composite or name in _FRESH or overload._schema.name in _FRESH)


def _renamed(program: ExportedProgram, names: _Names) -> ExportedProgram:
    """Return `program` in which each use is of the newest value of its memory."""
    graph, newest = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    for node in program.graph.nodes:
        made = graph.node_copy(node, lambda arg: newest[names.first[arg]])
        if is_operator(node) and _changes_memory(node):
            made.target = new_value_overload(node)
        newest[names.first[node]] = made
    result = copy.copy(program)
    cast(Any, result)._graph_module = torch.fx.GraphModule(program.graph_module, graph)
    return result
