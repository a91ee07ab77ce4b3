"""`int(t[i, j])` in a program reads the element in place: no kernel copies it first.

This applies to elements of tensors that are in memory: inputs, constants, values that a loop carries or a
list holds, and values computed before the loop. Other values are unchanged.
"""

from __future__ import annotations

from ...jit.spec import Index
from ..ir.graph import Block, Builder, Graph, Node, Value
from ..lower.access import shape_of, through_view
from ..ops import build as B
from .memory import is_in_memory
from .rewrite import rewrite


def read_elements(graph: Graph) -> None:
    """Let `item` read directly from the tensor of which it views one element."""
    blocks = {node: block for block in graph.blocks() for node in block.nodes}

    def read(b: Builder, node: Node) -> Value | None:
        return _read(b, node, blocks) if node.op == "item" and not node.attrs.get("at") else None

    rewrite(graph, read)


def _read(b: Builder, node: Node, blocks: dict[Node, Block]) -> Value | None:
    """Return the element, read in place; None if it is not in memory, or not known to be a single one."""
    x = node.arg(0)
    if not all(map(B.is_one, shape_of(x))):
        return None
    access = tuple(Index() for _ in shape_of(x))
    while x.node is not None and x.node.op in ("reshape", "permute", "expand", "slice"):
        found = through_view(x.node, access)
        if found is None:
            return None
        x, access = x.node.arg(0), found
    if x is node.arg(0) or not is_in_memory(x, node, blocks):
        return None
    return b.one("item", x, **node.attrs, at=tuple(index.offset for index in access))
