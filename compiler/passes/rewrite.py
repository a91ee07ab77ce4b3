"""Traversals for passes: replacement of single nodes, and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..ir.graph import Block, Builder, Graph, Node, Value, erase, replace_uses

#: Builds, before a node, the replacement of its only result; None if the node stays.
Rule = Callable[[Builder, Node], Value | None]


def rewrite(graph: Graph, rule: Rule) -> None:
    """Apply `rule` to every node with one result, in order, nodes of its regions first; new nodes are not
    visited. Nodes that thereby lose their users are left for `dce`."""
    replaced: dict[Value, Value] = {}
    _rewrite_block(graph, graph.body, rule, replaced)
    graph.replace_results(replaced)


def _rewrite_block(graph: Graph, block: Block, rule: Rule, replaced: dict[Value, Value]) -> None:
    """Replace all uses as arguments of results that `rule` replaces in a block; add them to `replaced`."""
    builder = Builder(graph, block, 0)
    for node in list(block.nodes):
        for region in node.regions:
            _rewrite_block(graph, region, rule, replaced)
        builder.source = node.source
        new = rule(builder, node) if len(node.results) == 1 else None
        assert builder.position is not None and (new is None or new is not node.result)
        if new is None:
            builder.position += 1
            continue
        replace_uses(node.result, new)
        replaced[node.result] = new
        erase(block, node)


def while_loops(block: Block) -> Iterator[tuple[Block, Node]]:
    """Yield each `while` of a block and its regions with its containing block, inner loops first. The caller
    may add and remove nodes around it."""
    for node in list(block.nodes):
        for region in node.regions:
            yield from while_loops(region)
        if node.op == "while":
            yield block, node
