"""Kernels in loops read `x[i]` in place: the program passes them that part of `x`.

As an index inside the kernel, `i` would be a size that its code is specialised for: an entry of the call
site, and an exact kernel, for each of its values. This applies to tensors that are already in memory, and to
positions that do not follow from a call's sizes.
"""

from __future__ import annotations

from ..ir.dims import product, simplify, symbols_of
from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import is_unit_reshape
from ..lower.operands import is_kernel_work
from ..ops import build as B
from .memory import is_in_memory
from .rewrite import rewrite


def read_parts(graph: Graph) -> None:
    """Replace slices of leading axes by parts, which have the shape in which they are read."""
    blocks = {node: block for block in graph.blocks() for node in block.nodes}
    results = {value for block in graph.blocks() for value in block.results}

    def read(b: Builder, node: Node) -> Value | None:
        if node.op == "slice" and _is_moving(graph, node) and _is_in_a_row(node):
            fits = is_in_memory(node.arg(0), node, blocks) and _is_read(node.result, results)
            return _part(b, node) if fits else None
        part = node.arg(0).node if node.op == "reshape" else None
        if part is None or part.op != "part" or not _is_read(node.result, results, through=True):
            return None
        return b.one("part", part.arg(0), begin=part.attrs["begin"], shape=node.result.tensor.shape)

    rewrite(graph, read)


def _is_moving(graph: Graph, node: Node) -> bool:
    """Whether the start of a slice depends on more than the sizes of inputs."""
    return not symbols_of(node.attrs["start"]) <= graph.symbols.keys()


def _is_in_a_row(node: Node) -> bool:
    """Whether the elements of a slice are contiguous."""
    before = node.arg(0).tensor.shape[: node.attrs["axis"]]
    return node.attrs["step"] == 1 and all(map(B.is_one, before))


def _is_read(value: Value, results: set[Value], through: bool = False) -> bool:
    """Whether only kernels read a value in place, possibly reshaped. A reshape that only adds or
    removes axes of size 1 may have other users, for which a kernel copies it; not so with `through`."""
    if value in results or not all(map(is_kernel_work, value.users)):
        return False
    shape = value.tensor.shape
    others = [user.result for user in value.users if user.op == "reshape"]
    return all(
        (not through and is_unit_reshape(shape, x.tensor.shape)) or _is_read(x, results, through)
        for x in others
    )


def _part(b: Builder, node: Node) -> Value:
    x, shape = node.arg(0), node.result.tensor.shape
    row = product(x.tensor.shape[node.attrs["axis"] + 1 :])
    return b.one("part", x, begin=simplify(node.attrs["start"] * row), shape=shape)
