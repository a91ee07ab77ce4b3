"""Operators without a converter are decomposed one by one: torch's decomposition is traced on the types of
the arguments and replaces the call.

torch's own method, `ExportedProgram.run_decompositions`, retraces the whole program twice: for a vision
transformer with one call of `pad`, that takes three times as long as the export.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from .functional import is_convertible, is_transform, with_module
from .fx_nodes import is_operator

Table = Mapping[Any, Callable[..., Any]]


def taken_apart(program: ExportedProgram, table: Callable[[], Table]) -> ExportedProgram:
    """Return `program` with such operators decomposed; return it unchanged if there are none, or if one is
    not in torch's table or has data-dependent sizes."""
    operators = [node for node in program.graph.nodes if is_operator(node)]
    whole = {node for node in operators if not is_convertible(node)}
    if any(map(is_transform, program.graph.nodes)):
        return program
    if not whole or not all(isinstance(node.target, torch._ops.OpOverload) for node in operators):
        return program
    known = table()
    if any(node.target not in known or "unbacked_bindings" in node.meta for node in whole):
        return program
    parts = {node: _traced(node, known) for node in whole}
    has_more = any(n.op not in _KINDS for part in parts.values() for n in part.nodes)
    return program if has_more else _inlined(program, parts)


_KINDS = ("placeholder", "call_function", "output")


def _traced(node: torch.fx.Node, table: Table) -> torch.fx.Graph:
    """Return the graph of one call, whose placeholders are `all_input_nodes` of it."""
    given = node.all_input_nodes

    def call(*values: Any) -> Any:
        value_of = dict(zip(given, values, strict=True)).__getitem__
        target = cast(Callable[..., Any], node.target)
        return target(*map_arg(node.args, value_of), **map_arg(node.kwargs, value_of))

    values = [each.meta["val"] for each in given]
    types = detect_fake_mode(tree_leaves([values, node.meta["val"]]))
    assert types is not None, f"{node.target} gives no tensor"
    with types, torch.no_grad():
        return make_fx(call, decomposition_table=dict(table), pre_dispatch=True)(*values).graph


def _inlined(program: ExportedProgram, parts: Mapping[torch.fx.Node, torch.fx.Graph]) -> ExportedProgram:
    """Return `program` with the nodes of graphs in place of calls."""
    graph, made = torch.fx.Graph(), dict[torch.fx.Node, Any]()
    for node in program.graph.nodes:
        if node in parts:
            made[node] = _copied(graph, node, parts[node], made)
        elif node.target is operator.getitem and node.args[0] in parts:
            made[node] = made[node.args[0]][node.args[1]]
        else:
            made[node] = graph.node_copy(node, made.__getitem__)
    return with_module(program, torch.fx.GraphModule(program.graph_module, graph))


def _copied(
    graph: torch.fx.Graph, call: torch.fx.Node, part: torch.fx.Graph, made: Mapping[torch.fx.Node, Any]
) -> Any:
    """Append the nodes of `part`, at the model's line of `call`; return its results."""
    *body, output = part.nodes
    holes = [node for node in body if node.op == "placeholder"]
    new = {hole: made[node] for hole, node in zip(holes, call.all_input_nodes, strict=True)}
    for node in body[len(holes) :]:
        new[node] = graph.node_copy(node, new.__getitem__)
        new[node].meta["stack_trace"] = call.meta.get("stack_trace")
    return map_arg(output.args[0], new.__getitem__)
