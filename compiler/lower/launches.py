"""The launches of a `kernel` node: its spec, or one of two chosen by the sizes of a call.

The optional attribute `exchanged` of a matmul's node is (spec, dims, rows, other rows): the same product with
another loop as rows. It is launched if its rows are more than the spec's own. A node without the attribute
`dims` is not bound: its specs have dimension expressions instead of sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...jit.spec import KernelSpec
from ..ir.dims import DimExpr, evaluate
from ..ir.graph import Graph, Node

Launch = tuple[KernelSpec, tuple[DimExpr, ...]]


def launches_of(node: Node) -> list[Launch]:
    """Return the specs that a kernel node may launch and the values of their dims, its own first."""
    own: Launch = (node.attrs["spec"], node.attrs.get("dims", ()))
    return [own, node.attrs["exchanged"][:2]] if "exchanged" in node.attrs else [own]


def is_bound(node: Node) -> bool:
    """Return True if a kernel node's sizes are parameters of its spec."""
    return "dims" in node.attrs


def unbound_kernels(graph: Graph) -> Iterator[Node]:
    """Yield the kernel nodes whose sizes are still dimension expressions."""
    return (node for node in graph.nodes() if node.op == "kernel" and not is_bound(node))


def launch_at(node: Node, values: Mapping[str, int]) -> Launch:
    """Return the launch of a kernel node at these values of the symbols."""
    own, *others = launches_of(node)
    if not others:
        return own
    rows, other_rows = (evaluate(size, values) for size in node.attrs["exchanged"][2:])
    return others[0] if other_rows > rows else own
