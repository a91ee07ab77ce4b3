"""Loops that change part of a carried tensor change it where it lies, instead of copying all of it each time.

This is so for a scatter of a carried tensor that nothing else sees, whose result is carried on in its place.
What the loop starts with is copied once, unless the loop is all that uses it.
"""

from __future__ import annotations

from ...jit.families.scatter.spec import Scatter
from ..ir.graph import Block, Builder, Graph, Node, Value
from .copy_results import copy


def update_in_place(graph: Graph) -> None:
    """Set attribute `in_place` on such kernels: the result takes over the first argument's memory."""
    _visit(graph, graph.body)


def _visit(graph: Graph, block: Block) -> None:
    for node in list(block.nodes):
        for region in node.regions:
            _visit(graph, region)
        if node.op == "while":
            _update(graph, block, node)


def _update(graph: Graph, block: Block, loop: Node) -> None:
    condition, body = loop.regions
    for i, (seen, param) in enumerate(zip(condition.params, body.params, strict=True)):
        update = _update_of(body, param, body.results[i])
        if update is None or seen.users or seen in condition.results:
            continue
        update.attrs["in_place"] = True
        start = loop.args[i]
        assert start is not None
        if not _is_only_for(loop, start, block):
            builder = Builder(graph, block, block.nodes.index(loop))
            own = copy(builder, start)
            loop.set_args([*loop.args[:i], own, *loop.args[i + 1 :]])


def _update_of(body: Block, param: Value, result: Value) -> Node | None:
    """Return the scatter that makes `result` of `param` alone, if there is one in `body` and no other use."""
    node = result.node
    is_scatter = node is not None and node.op == "kernel" and isinstance(node.attrs["spec"], Scatter)
    if node is None or not is_scatter or node not in body.nodes:
        return None
    is_alone = param.users == [node] and param not in body.results and node.args[0] is param
    return node if is_alone and body.results.count(result) == 1 else None


def _is_only_for(loop: Node, value: Value, block: Block) -> bool:
    """Whether `value` is memory of its own, made in the loop's block for the loop alone."""
    made = value.node is not None and value.node.op == "kernel" and value.node in block.nodes
    return made and value.users == [loop] and value not in block.results
