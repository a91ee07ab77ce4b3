"""Decomposition: composite operators become the canonical ones that `lower` knows."""

from __future__ import annotations

from ..errors import VerifyError
from ..ir import Block, Builder, Graph, Node, erase
from ..ops import OPS
from ..types import types_equal


def decompose(graph: Graph) -> None:
    """Replace every composite by what its declaration says, until none is left.

    Raises VerifyError where a declaration gives values of other types than its op.
    """
    _decompose_block(graph, graph.body)


def _decompose_block(graph: Graph, block: Block) -> None:
    position = 0
    while position < len(block.nodes):
        node = block.nodes[position]
        for region in node.regions:
            _decompose_block(graph, region)
        if node.op in OPS and OPS[node.op].kind == "composite":
            _replace(graph, block, position, node)  # what takes its place is looked at next
        else:
            position += 1


def _replace(graph: Graph, block: Block, position: int, node: Node) -> None:
    rule = OPS[node.op].decompose
    assert rule is not None, f"{node.op} is a composite without decompose"
    builder = Builder(graph, block, position)
    builder.source = node.source
    values = rule(builder, node)
    for old, new in zip(node.results, values, strict=True):
        if not types_equal(old.type, new.type):
            raise VerifyError(
                f"{node.op}: its decomposition gives {new.type}, not {old.type}", source=node.source
            )
        graph.replace(old, new)
    erase(block, node)
