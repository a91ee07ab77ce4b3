"""Prologues: nodes that a matmul computes while it loads its operand a, without a pass over memory.

The operand is computed once for every block of rows in every share of the tiles. So it may consist only of a
few cheap pointwise nodes without other users, on values that are in memory anyway and are read along k with
unit stride or not at all. A value that another kernel computes for this matmul alone stays with that kernel,
where it is free in the epilogue or the last stage of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.graph import Block, Graph, Node, Value, replace_uses
from ..ops import OPS
from .access import Access, through_view
from .fuse import CHEAP, fits_in_kernel
from .group import group_of
from .operands import is_view, operand_access

#: A longer chain costs more than one pass over memory.
MAX_NODES = 12


def prologue(graph: Graph) -> None:
    """Move `fused` nodes that compute operand a of one matmul alone, and cheaply, into the matmul's
    region."""
    yielded = {value for block in graph.blocks() for value in block.results}
    for block in list(graph.blocks()):
        for node in list(block.nodes):
            matmul = _matmul(node)
            producer = None if matmul is None else _producer(matmul, block, yielded)
            if matmul is not None and producer is not None and _is_cheap(matmul, producer, yielded):
                _move(block, producer, node, graph.accurate)


def _matmul(node: Node) -> Node | None:
    """Return the matmul in the region of a `fused` node, if any."""
    inside = node.regions[0].nodes if node.op == "fused" else []
    return next((inner for inner in inside if inner.op == "matmul"), None)


def _producer(matmul: Node, block: Block, yielded: set[Value]) -> Node | None:
    """Return the `fused` node of the block whose result the matmul alone uses, once, as its operand a."""
    value, access = matmul.arg(0), operand_access(matmul, 0)
    while len(value.users) == 1 and is_view(value):
        moved = through_view(value.definition, access)
        if moved is None:
            return None
        value, access = value.definition.arg(0), moved
    is_alone = len(value.users) == 1 and value not in yielded
    made = value.node
    return made if is_alone and made is not None and made.op == "fused" and made in block.nodes else None


def _is_cheap(matmul: Node, producer: Node, yielded: set[Value]) -> bool:
    """Return True if the matmul should compute its operand rather than read it from memory."""
    if matmul.arg(0).tensor.dtype not in ("f32", "bf16"):
        return False
    (region,) = producer.regions
    if not all(node.op in CHEAP or OPS[node.op].kind in ("view", "source") for node in region.nodes):
        return False
    access = operand_access(matmul, 0)
    chain = _Chain(access[-1].along, producer)
    chain.follow(matmul.arg(0), access)
    inside = set(region.nodes)
    in_memory = all(
        value in yielded or any(user not in inside for user in value.users) for value in chain.computed
    )
    return in_memory and chain.is_streamed and 0 < len(chain.nodes) <= MAX_NODES


def _move(block: Block, producer: Node, node: Node, accurate: bool) -> None:
    """Put the region of `producer` in front of that of `node`, if one kernel can compute both."""
    (first,), (second,) = producer.regions, node.regions
    result, (root,) = producer.result, first.results
    replace_uses(result, root)
    second.nodes[:0] = first.nodes
    if fits_in_kernel(group_of(node), accurate):
        block.nodes.remove(producer)
    else:
        del second.nodes[: len(first.nodes)]
        replace_uses(root, result)


@dataclass
class _Chain:
    """The computation of an operand, through the region of `producer`.

    `nodes`: the cheap pointwise ones. `computed`: the values of other kernels that they read. `is_streamed`:
    all reads have unit stride or none along loop `k`.
    """

    k: int
    producer: Node
    nodes: set[Node] = field(default_factory=set)
    computed: set[Value] = field(default_factory=set)
    seen: set[tuple[Value, Access]] = field(default_factory=set)
    is_streamed: bool = True

    def follow(self, value: Value, access: Access) -> None:
        """Add the computation of `value` at `access`; stop one node beyond the limit."""
        if (value, access) in self.seen or len(self.nodes) > MAX_NODES:
            return
        self.seen.add((value, access))
        while is_view(value) or value is self.producer.result:
            if value is self.producer.result:
                (value,) = self.producer.regions[0].results
                continue
            moved = through_view(value.definition, access)
            if moved is None:  # the reshaped memory
                self.is_streamed = self.is_streamed and self._is_stream(access)
                return
            value, access = value.definition.arg(0), moved
        made = value.node
        if made is not None and made in self.producer.regions[0].nodes and made.op in CHEAP:
            self.nodes.add(made)
            for arg in made.present:
                self.follow(arg, access)
        elif made is None or made.op not in OPS or OPS[made.op].kind != "source":
            self.is_streamed = self.is_streamed and self._is_stream(access)
            if made is not None and made.op == "fused":
                self.computed.add(value)

    def _is_stream(self, access: Access) -> bool:
        using = [axis for axis, index in enumerate(access) if index.loop == self.k]
        return not using or using == [len(access) - 1] and access[-1].scale == 1
