"""Merging of matmuls that share their left side, such as the query, key and value projections, into one.

Only where it costs nothing: every product ends (perhaps after a bias) in a reshape that splits its last
axis into (heads, width) with one width for all. Then they are slices of one wide product along the heads'
axis, which kernels read in place.

Not in the pipeline: MiniLM-L6 gains nothing (one thread, length 16 / 64 / 128 / 256: 3.1 / 6.6 / 14.0 /
30.2 ms both apart and merged, within the noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from ..access import shape_of
from ..dims import equal, shapes_equal
from ..ir import Block, Builder, Graph, Node, Value
from ..types import TensorType


@dataclass(frozen=True)
class Branch:
    """One product `matmul`, `bias` added or None, and the reshape to [..., heads, width] that it ends in."""

    matmul: Node
    weight: np.ndarray
    bias: np.ndarray | None
    split: Node

    @property
    def name(self) -> str:
        """The weight's name."""
        return str(cast(Node, cast(Value, self.matmul.args[1]).node).attrs["name"])

    @property
    def heads(self) -> int:
        """The number of heads."""
        return cast(int, shape_of(self.split.result)[-2])


def merge_linears(graph: Graph) -> None:
    """Replace such matmuls by one with all their columns; what becomes dead is left for `dce`."""
    for block in graph.blocks():
        groups: dict[tuple[Value, object, bool], list[Branch]] = {}
        for node in block.nodes:
            branch = match(node)
            if branch is not None:
                key = (cast(Value, node.args[0]), shape_of(branch.split.result)[-1], branch.bias is None)
                groups.setdefault(key, []).append(branch)
        for branches in groups.values():
            if len(branches) > 1:
                _merge(graph, block, branches)


def match(node: Node) -> Branch | None:
    """Return the branch that starts at `node`, if it has the form above."""
    if node.op != "matmul" or len(node.result.users) != 1:
        return None
    weight, last, bias = _array(node.args[1]), node, None
    (user,) = node.result.users
    if user.op == "add":
        (other,) = [arg for arg in user.args if arg is not node.result] or [None]
        bias, last = _bias(other), user
        if bias is None or len(user.result.users) != 1:
            return None
        (user,) = user.result.users
    if weight is None or weight.ndim != 2 or user.op != "reshape":
        return None
    old, new = shape_of(last.result), shape_of(user.result)
    splits = len(new) == len(old) + 1 and shapes_equal(new[:-2], old[:-1]) and isinstance(new[-2], int)
    return Branch(node, weight, bias, user) if splits and equal(new[-2] * new[-1], old[-1]) else None


def _array(value: Value | None) -> np.ndarray | None:
    is_constant = value is not None and value.node is not None and value.node.op == "constant"
    return cast(Node, cast(Value, value).node).attrs["array"] if is_constant else None


def _bias(value: Value | None) -> np.ndarray | None:
    """Return the constant vector that an expand repeats over the rows."""
    if value is None or value.node is None or value.node.op != "expand":
        return None
    array = _array(value.node.args[0])
    return array if array is not None and array.ndim == 1 and array.shape[0] != 1 else None


def _merge(graph: Graph, block: Block, branches: list[Branch]) -> None:
    first = branches[0]
    builder = Builder(graph, block, block.nodes.index(first.matmul))
    builder.source = first.matmul.source
    dtype = cast(TensorType, first.matmul.result.type).dtype
    name = "+".join(branch.name for branch in branches)
    weight = builder.constant(np.concatenate([branch.weight for branch in branches], axis=1), dtype, name)
    product = builder.one("matmul", first.matmul.args[0], weight)
    if first.bias is not None:
        columns = np.concatenate([cast(np.ndarray, branch.bias) for branch in branches])
        bias = builder.constant(columns, dtype, f"{name}.bias")
        product = builder.one("add", product, builder.one("expand", bias, shape=shape_of(product)))
    *rows, _, width = shape_of(first.split.result)
    heads = sum(branch.heads for branch in branches)
    wide = builder.one("reshape", product, shape=(*rows, heads, width))
    start = 0
    for branch in branches:
        part = builder.one("slice", wide, axis=len(rows), start=start, length=branch.heads, step=1)
        graph.replace(branch.split.result, part)
        start += branch.heads
