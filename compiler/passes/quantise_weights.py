"""`weights="int8"`, `weights="int4"`: constant weights of matrix products become small integers with scales.

Under int8 a column has one scale, which maps its greatest magnitude to 127 and multiplies the product's sums.
Under int4 each GROUP successive steps of a column have one, which maps them to -8 .. 7; weights whose steps
are no multiple of GROUP get a scale a column and integers of one byte. Weights that are not finite, or hold
integers of a byte already, stay as they are.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Builder, Graph, Node, Value
from ..ops import build as B
from .move_scales import by_groups
from .rewrite import rewrite

MAX_INTEGER = 127
GROUP = 32  # steps that share a scale under int4
LEAST, GREATEST = -8, 7  # integers of four bits

Quantised = tuple[np.ndarray, np.ndarray]  # integers and scales


def quantise_weights(graph: Graph) -> None:
    """Quantise the weights of products, where `Graph.weights` asks for it."""
    if graph.weights not in ("int8", "int4"):
        return
    known: dict[Value, Quantised | None] = {}  # a weight may have several readers
    rewrite(graph, lambda b, node: _by_integers(b, node, known) if node.op == "matmul" else None)


def _by_integers(b: Builder, node: Node, known: dict[Value, Quantised | None]) -> Value | None:
    """Return a product by a constant as one by integers and their scales."""
    weight = node.arg(1)
    if weight.node is None or weight.node.op != "constant" or weight.tensor.dtype != "f32":
        return None
    if weight not in known:
        array = weight.node.attrs["array"]
        in_groups = b.graph.weights == "int4" and array.ndim == 2 and array.shape[0] % GROUP == 0
        known[weight] = quantised_in_groups(array) if in_groups else quantised(array)
    found = known[weight]
    if found is None:
        return None
    integers, scales = found
    name = str(weight.node.attrs["name"])
    if scales.ndim == 2:
        return by_groups(b, node.arg(0), name, integers, scales)
    result = b.one("matmul", node.arg(0), b.constant(integers, "f32", name))
    return B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{name}.scale"))


def quantised(weight: np.ndarray) -> Quantised | None:
    """Return the integers of a weight [K, N], in f32, and the scale of each column; None where it has no
    columns of finite numbers, or holds integers of a byte already."""
    if not _may_round(weight):
        return None
    greatest = np.abs(weight).max(0)
    scales = _scales(greatest / np.float32(MAX_INTEGER), greatest == 0)
    if scales is None:
        return None
    return np.rint(weight / scales).astype(np.float32) + np.float32(0), scales  # no zero is negative


def quantised_in_groups(weight: np.ndarray) -> Quantised | None:
    """Return the integers of a weight [K, N], in i8 from -8 to 7, and the scales [K / GROUP, N]; None where
    `quantised` has none."""
    if not _may_round(weight):
        return None
    groups = weight.reshape(-1, GROUP, weight.shape[1])
    ends = groups.max(1) / np.float32(GREATEST), groups.min(1) / np.float32(LEAST)
    scales = _scales(np.maximum(*ends), (groups == 0).all(1))
    if scales is None:
        return None
    integers = np.clip(np.rint(groups / scales[:, None]), LEAST, GREATEST)
    return integers.astype(np.int8).reshape(weight.shape), scales


def _may_round(weight: np.ndarray) -> bool:
    """Whether a matrix has numbers, all finite, and not only integers of a byte."""
    if weight.ndim != 2 or not weight.size or not np.isfinite(weight).all():
        return False
    return bool(np.abs(weight).max() > MAX_INTEGER or not np.array_equal(weight, np.rint(weight)))


def _scales(steps: np.ndarray, are_zeros: np.ndarray) -> np.ndarray | None:
    """Return scales of such steps, 1 for zeros; None where one is no normal number."""
    scales: np.ndarray = np.where(are_zeros, np.float32(1), steps).astype(np.float32)
    return scales if (scales >= np.finfo(np.float32).tiny).all() else None
