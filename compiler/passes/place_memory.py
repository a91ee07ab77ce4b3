"""Memory placement: a tensor or container is freed after its last use, so that its storage can be reused.

A use inside a region counts as a use by the node that holds the region. Results of a block, inputs, constants
and the carried values that a loop's condition reads are not freed.
"""

from __future__ import annotations

from ..ir.graph import Block, Graph, Node, Value
from ..ir.types import ScalarType

KEPT = ("constant", "size")  # they own no storage


def place_memory(graph: Graph) -> None:
    """Insert `free` nodes."""
    _place(graph.body, own=set())


def _place(block: Block, own: set[Value]) -> None:
    """Free the values that are defined in `block`, and those of its parameters in `own`."""
    own = own | {result for node in block.nodes if node.op not in KEPT for result in node.results}
    pending = {value for value in own if not isinstance(value.type, ScalarType)} - set(block.results)
    pending -= {node.result for node in block.nodes if _writes_input(block, node)}
    placed: list[Node] = []
    for node in reversed(block.nodes):
        last = [value for value in _mentioned(node) if value in pending]
        pending.difference_update(last)
        if node.attrs.get("in_place"):  # its result takes over the memory
            last = [value for value in last if value is not node.args[0]]
        if last:
            placed.append(Node("free", last, source=node.source))
        placed.append(node)
        for i, region in enumerate(node.regions):
            _place(region, own=set(region.params) if node.op != "while" or i == 1 else set())
    block.nodes[:] = reversed(placed)


def _writes_input(block: Block, node: Node) -> bool:
    return bool(node.attrs.get("in_place")) and node.args[0] in block.params


def _mentioned(node: Node) -> list[Value]:
    """Return the values that `node` makes or uses, its regions included, each once."""
    found = [value for value in (*node.args, *node.results) if value is not None]
    for region in node.regions:
        for inner in region.nodes:
            found += _mentioned(inner)
        found += region.results
    return list(dict.fromkeys(found))
