"""Dead code elimination: nodes without effects whose results are unused are removed."""

from __future__ import annotations

from collections import Counter

from ..ir.graph import Block, Graph, Node, Value, detach
from ..ir.sizes import node_sizes, sizes_named

#: Ops with effects besides their results: they stay.
EFFECTS = frozenset(("extern", "guard", "fail", "free", "call"))


def dce(graph: Graph) -> None:
    """Remove dead nodes, regions included, in one backward walk. A use of a value's size also counts as a use
    of the value."""
    yielded = Counter(value for block in graph.blocks() for value in block.results)
    _clean(graph.body, yielded, set())


def has_effect(node: Node) -> bool:
    """Return True if `node`, or a node of its regions, has effects besides its results."""
    acts = node.op in EFFECTS and node.attrs.get("effect", True)
    return acts or any(has_effect(inner) for region in node.regions for inner in region.nodes)


def _clean(block: Block, yielded: Counter[Value], sizes: set[str]) -> None:
    """`sizes`: the symbols that later live nodes mention."""
    dead = set()
    for node in reversed(block.nodes):
        if has_effect(node) or any(_is_used(result, yielded, sizes) for result in node.results):
            sizes |= node_sizes(node)
            for region in node.regions:
                _clean(region, yielded, sizes)
        else:
            yielded.subtract(_yields(node))
            detach(node)
            dead.add(node)
    block.nodes = [node for node in block.nodes if node not in dead]


def _is_used(value: Value, yielded: Counter[Value], sizes: set[str]) -> bool:
    return bool(value.users) or yielded[value] > 0 or not sizes.isdisjoint(sizes_named(value))


def _yields(node: Node) -> list[Value]:
    """Return the values that the blocks inside `node` yield."""
    inner = [value for region in node.regions for each in region.nodes for value in _yields(each)]
    return inner + [value for region in node.regions for value in region.results]
