"""The values that are in memory before kernels are chosen."""

from __future__ import annotations

from ..ir.graph import Block, Node, Value
from ..ops import OPS


def is_in_memory(value: Value, reader: Node, blocks: dict[Node, Block]) -> bool:
    """Whether `value` is in memory at `reader`: inputs, constants, values that a loop carries or a list
    holds, and values computed by another block. `blocks`: the block of each node."""
    node = value.node
    if node is None or node.op == "constant":
        return True
    return OPS[node.op].kind in ("value", "control") or blocks.get(node) is not blocks[reader]
