"""Dead code elimination: nodes without effect whose results nobody uses are removed."""

from __future__ import annotations

from collections import Counter

from ..ir import Block, Graph, Node, Value, erase

#: Ops that act on something besides their results: they stay.
EFFECTS = frozenset(("extern", "guard", "fail", "free", "call"))


def dce(graph: Graph) -> None:
    """Remove dead nodes, regions included, in one backward walk."""
    _clean(graph.body, Counter(value for block in graph.blocks() for value in block.results))


def has_effect(node: Node) -> bool:
    """Return True where running `node`, or a node of its regions, does more than making its results."""
    return node.op in EFFECTS or any(has_effect(inner) for region in node.regions for inner in region.nodes)


def _clean(block: Block, yielded: Counter[Value]) -> None:
    for node in reversed(list(block.nodes)):
        if has_effect(node) or any(result.users or yielded[result] for result in node.results):
            for region in node.regions:
                _clean(region, yielded)
        else:
            yielded.subtract(_yields(node))
            erase(block, node)


def _yields(node: Node) -> list[Value]:
    """Return what the blocks inside `node` yield."""
    inner = [value for region in node.regions for each in region.nodes for value in _yields(each)]
    return inner + [value for region in node.regions for value in region.results]
