"""The walks of passes: over single nodes, in whose place they put something else, and over loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..ir.graph import Block, Builder, Graph, Node, Value, erase, replace_uses

#: Builds, before a node, what takes the place of its only result; None where the node stays.
Rule = Callable[[Builder, Node], Value | None]


def rewrite(graph: Graph, rule: Rule) -> None:
    """Ask `rule` about every node with one result, in order, those of its regions before it; what it builds
    is not asked about. Nodes that lose their users thereby are left for `dce`."""
    replaced: dict[Value, Value] = {}
    _rewrite_block(graph, graph.body, rule, replaced)
    graph.replace_results(replaced)


def _rewrite_block(graph: Graph, block: Block, rule: Rule, replaced: dict[Value, Value]) -> None:
    """Replace all uses as arguments of what `rule` replaces in a block; put it into `replaced`."""
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
    """Yield each `while` of a block and its regions with the block that it stands in, inner loops first. What
    is done with one may add and remove nodes around it."""
    for node in list(block.nodes):
        for region in node.regions:
            yield from while_loops(region)
        if node.op == "while":
            yield block, node
