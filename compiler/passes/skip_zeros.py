"""Products of rows that are initially zeros: the state of a recurrent layer, or a sum over a node's children.

A value that a loop carries often starts as zeros, and zeros times a weight of finite numbers are +0 in every
order of the sum. The kernels of such products check their rows first and skip reading the weight.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...jit.families.matmul.layouts import layout_of
from ...jit.families.matmul.spec import Matmul
from ...jit.spec import Buffer, Nest
from ..ir.graph import Graph, Node, Value
from ..lower.launches import unbound_kernels
from .rewrite import while_loops

LEAST_BYTES = 1 << 16  # of a weight: reading a smaller one takes little longer than checking the row


def skip_zeros(graph: Graph) -> None:
    """Let such products, with a weight in panels of f32, check for rows of zeros."""
    starts = _starts(graph)
    for node in unbound_kernels(graph):
        spec = node.attrs["spec"]
        if isinstance(spec, Matmul) and layout_of(spec).is_plain and not spec.product.prologue:
            given = spec.product
            rows, weight = (_value(node, spec.buffers, place) for place in (given.a, given.b))
            if rows in starts and _is_zero(_start(starts, rows)) and _is_large_and_finite(weight):
                node.attrs["spec"] = replace(spec, skips_zeros=True)


def _starts(graph: Graph) -> dict[Value, Value]:
    """Return the initial values of the parameters and results of loops."""
    found: dict[Value, Value] = {}
    for _, loop in while_loops(graph.body):
        for carried in (*(region.params for region in loop.regions), loop.results):
            found |= zip(carried, loop.present, strict=True)
    return found


def _start(starts: dict[Value, Value], value: Value) -> Value:
    """Return the initial value of a carried value, before the outermost loop that carries it."""
    while value in starts:
        value = starts[value]
    return value


def _value(node: Node, buffers: tuple[Buffer, ...], place: int) -> Value:
    """Return the value that a kernel reads as its buffer `place`."""
    return node.arg(sum(not buffer.is_output for buffer in buffers[:place]))


def _is_zero(value: Value) -> bool:
    """Whether a value is a constant of zeros, or a kernel writes them."""
    node = value.node
    if node is None:
        return False
    if node.op == "constant":
        return not np.any(node.attrs["array"])
    spec = node.attrs["spec"] if node.op == "kernel" else None
    if not isinstance(spec, Nest):
        return False
    return all(x.op == "store" or (x.op == "const" and x.value == 0) for x in spec.body)


def _is_large_and_finite(weight: Value) -> bool:
    attrs = weight.definition.attrs
    return (
        attrs["dtype"] == "f32" and attrs["array"].nbytes >= LEAST_BYTES and np.isfinite(attrs["array"]).all()
    )
