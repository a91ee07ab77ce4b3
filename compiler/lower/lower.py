"""Lowering: every `fused` node and every standalone operator becomes a `kernel` node that holds a kernel
spec.

The specs have dimension expressions instead of sizes. Later passes change them: `pack` (layouts of
constants), `collapse` (loops) and `bind` (names of sizes).
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.graph import Graph, Node, Value
from .group import group_of
from .operands import base_of
from .specs import Spec, by_inputs, label, spec_of
from .standalone import SPECS


class _Kernel(NamedTuple):
    """The kernel of a node: a spec, its input buffers and a readable name."""

    spec: Spec
    values: list[Value]
    label: str


def lower(graph: Graph) -> None:
    """Make kernels of all `fused` nodes and standalone operators; nodes that nothing reads are left for
    `dce`."""
    found = [node for node in graph.nodes() if node.op == "fused" or node.op in SPECS]
    kernels = [_kernel(node, graph.accurate) for node in found]  # before any changes: they inspect each other
    for node, kernel in zip(found, kernels, strict=True):
        for inner in node.regions[0].nodes if node.regions else ():
            inner.set_args([])
        node.op, node.regions = "kernel", []
        node.attrs = {"spec": kernel.spec, "label": kernel.label}
        node.set_args(kernel.values)


def _kernel(node: Node, accurate: bool) -> _Kernel:
    if node.op in SPECS:
        return _Kernel(
            SPECS[node.op](node), [base_of(arg) for arg in node.present], node.op + by_inputs([node])
        )
    group = group_of(node)
    return _Kernel(*spec_of(group, accurate), label(group))
