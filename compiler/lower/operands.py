"""Operands of kernels: values traced through views to their memory; operands of contractions."""

from __future__ import annotations

from ...jit.spec import Index
from ..ir.graph import Node, Value
from ..ops import OPS
from .access import Access, Shape, is_loop, is_unit_reshape, loops, shape_of, through_view

CONTRACTIONS = ("matmul", "conv", "attention")
MASKS = {"attention": 3, "segment_attention": 4}  # the arguments of attentions that kernels compute
TOGETHER = {"u8": 4, "bf16": 2}  # elements of operands that kernels read together, as four bytes
KERNEL_KINDS = ("pointwise", "view", "concat", "source", "reduce", "gather", *CONTRACTIONS)


def is_kernel_work(node: Node) -> bool:
    """Return True for nodes that kernels compute or read through (constants are in memory)."""
    return node.op != "constant" and node.op in OPS and OPS[node.op].kind in KERNEL_KINDS


def is_alias(node: Node) -> bool:
    """Return True for a reshape that merges or splits axes, or is read from memory by a standalone operator:
    the same memory under another shape."""
    if node.op != "reshape":
        return False
    return not is_unit_reshape(shape_of(node.arg(0)), shape_of(node.result)) or any(
        user.op in OPS and OPS[user.op].kind == "standalone" for user in node.result.users
    )


def is_view(value: Value) -> bool:
    """Return True if `value` is an index map of another value, whether or not it has the same memory
    order."""
    return value.node is not None and value.node.op in OPS and OPS[value.node.op].kind == "view"


def base_of(value: Value) -> Value:
    """Follow aliases down to the value whose memory they share."""
    while is_view(value) and is_alias(value.definition):
        value = value.definition.arg(0)
    return value


def in_memory(value: Value, access: Access) -> tuple[Value, Shape, Access]:
    """Follow views down to memory: (the value that owns it, the shape under which it is read, the access)."""
    while is_view(value):
        node = value.definition
        moved = through_view(node, access)
        if moved is None:
            return base_of(value), shape_of(value), access
        value, access = node.arg(0), moved
    return value, shape_of(value), access


def is_readable_in_place(value: Value, access: Access) -> bool:
    """Return True if `access`, seen through views, still has unit stride: its last loop alone is on the last
    axis."""
    last = access[-1].loop
    assert last is not None
    _, shape, seen = in_memory(value, access)
    together = TOGETHER.get(value.tensor.dtype, 1)
    if together > 1 and not (shape and isinstance(shape[-1], int) and shape[-1] % together == 0):
        return False  # kernels read four bytes together, also along rows
    return bool(seen) and is_loop(seen[-1], last) and all(index.loop != last for index in seen[:-1])


def operand_access(node: Node, position: int) -> Access:
    """Return the loops of a contraction's access to operand `position`.

    matmul, conv: batch.., m, n, k.  attention: batch.., i, j, head dimension; of segments: segment, heads..,
    i, j, head dimension.
    """
    n_batch = len(shape_of(node.result)) - 2 + (node.op == "segment_attention")
    batch = loops(n_batch)
    first, second, third = (Index(loop=n_batch + i) for i in range(3))
    if node.op == "segment_attention":
        heads = batch[1:]
        rows = [(place, *heads, third) for place in (first, second, second)]
        return (*rows, batch[:1], (*heads, first, second))[position]
    if node.op == "attention":
        return (*batch, *((first, third), (second, third), (second, third), (first, second))[position])
    if position == 0:
        return (*batch, first, third)
    return (third, second) if len(shape_of(node.arg(1))) == 2 else (*batch, third, second)


def result_loops(node: Node) -> list[int]:
    """Return the loop along each axis of a contraction's result: batch.., m, n; attention has the loop over
    keys before the last one, and that of segments the loop over queries as its first axis."""
    rank = len(shape_of(node.result))
    if node.op == "segment_attention":
        return [rank - 1, *range(1, rank - 1), rank + 1]
    return [*range(rank - 1), rank] if node.op == "attention" else list(range(rank))
