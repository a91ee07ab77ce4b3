"""Decomposition: composite operators become the canonical ones that `lower` knows."""

from __future__ import annotations

from ..ir.errors import VerifyError
from ..ir.graph import Block, Builder, Graph, Node, Value, erase, replace_uses
from ..ir.types import types_equal
from ..ops import OPS


def decompose(graph: Graph) -> None:
    """Replace every composite by its declared decomposition, until none is left.

    Raises VerifyError if a decomposition's types differ from those of its op.
    """
    replaced: dict[Value, Value] = {}
    _decompose_block(graph, graph.body, replaced)
    graph.replace_results(replaced)


def _decompose_block(graph: Graph, block: Block, replaced: dict[Value, Value]) -> None:
    position = 0
    while position < len(block.nodes):
        node = block.nodes[position]
        for region in node.regions:
            _decompose_block(graph, region, replaced)
        if node.op in OPS and OPS[node.op].kind == "composite":
            replaced |= _replace(graph, block, position, node)  # its replacement is visited next
        else:
            position += 1


def _replace(graph: Graph, block: Block, position: int, node: Node) -> dict[Value, Value]:
    """Replace a node by its declared decomposition; return its results' new values."""
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
        replace_uses(old, new)
    erase(block, node)
    return dict(zip(node.results, values, strict=True))
