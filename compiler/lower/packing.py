"""How the constant right operand of a matmul or conv lies in the artifact: packed when compiling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ...jit.families.conv import depthwise, winograd
from ...jit.families.conv.conv import pack_groups
from ...jit.families.conv.pixels import AXES
from ...jit.families.conv.winograd_points import LAYOUT, TAPS
from ...jit.families.matmul.matmul import as_panels, pack_quads
from ...jit.families.matmul.microkernel import PANEL
from ...jit.loops.bodies import LANES
from ..ir.graph import Builder, Node, Value
from .access import shape_of
from .weights import held

Packed = dict[tuple[Value, str, int], Value]


def b_layout(product: Node, accurate: bool) -> str:
    """Return the `b_layout` of a matmul's or conv's spec; `accurate`: see `Graph`."""
    weight = product.arg(1)
    if weight.tensor.dtype == "i8":
        return "quads"
    if not is_constant_matrix(weight) or (product.op == "conv" and has_depthwise_kernel(product)):
        return "rows"
    return _conv_layout(product, weight) if product.op == "conv" and not accurate else "panels"


def _conv_layout(conv: Node, weight: Value) -> str:
    """Return a conv's layout: by Winograd where its window and channels are fit for it."""
    attrs, channels = conv.attrs, shape_of(conv.arg(0))[-1]
    steps = {*attrs["stride"], *attrs["dilation"], *attrs["expansion"], attrs["groups"]}
    is_fit = attrs["kernel"] == (TAPS, TAPS) and steps == {1} and isinstance(channels, int)
    is_fit = is_fit and not attrs["planes"]
    array = weight.definition.attrs["array"]
    return winograd_layout(channels) if is_fit and np.isfinite(array).all() else "panels"


def winograd_layout(channels: int) -> str:
    """Return the layout of the weights of 3 x 3 taps. Sizes of the image do not decide: every tier has the
    same bits."""
    return "panels" if channels % LANES or not channels else LAYOUT


def has_depthwise_kernel(conv: Node) -> bool:
    """Return True for a conv that `jit.families.conv.depthwise` computes; it reads the weights in place."""
    attrs, (x, weight) = conv.attrs, conv.present
    if attrs["planes"]:
        return False
    is_plain = len(attrs["kernel"]) <= AXES and set(attrs["expansion"]) == {1}
    is_narrow = depthwise.is_narrow(shape_of(x)[-1], shape_of(weight)[1], attrs["groups"])
    return is_plain and min(attrs["dilation"]) > 0 and is_narrow


def is_constant_matrix(value: Value) -> bool:
    """Return True where a matmul's right operand is a constant [K, N] in f32: it is packed when compiling."""
    return (
        value.node is not None
        and value.node.op == "constant"
        and len(shape_of(value)) == 2
        and value.tensor.dtype == "f32"
    )


def pack(builder: Builder, value: Value, product: Node, packed: Packed) -> Value:
    """Return the constant matrix `value` as `b_layout` of `product` says, a conv's groups of columns by
    themselves (once per matrix).

    A matmul's is held in the narrowest dtype that has its values, or the one asked for.
    """
    layout, groups = b_layout(product, builder.graph.accurate), product.attrs.get("groups", 1)
    kind = product.op if layout == "panels" else layout
    key = value, kind, groups
    if key not in packed:
        node = value.definition
        array, dtype = node.attrs["array"], value.tensor.dtype
        if product.op == "matmul" and dtype == "f32":
            array, dtype = held(array, builder.graph.weights)
        panels = _PACK.get(layout, partial(_in_panels, groups=groups))(array)
        packed[key] = builder.constant(panels, dtype, f"{node.attrs['name']}.panels")
    return packed[key]


def _in_panels(weight: np.ndarray, groups: int) -> np.ndarray:
    """Return `pack_groups` of a weight, in the weight's own memory where that will do: it is copied once,
    into the artifact."""
    is_whole = groups == 1 and weight.shape[1] % PANEL == 0
    return as_panels(weight) if is_whole else pack_groups(weight, groups)


#: How weights are packed for layouts other than panels.
_PACK: dict[str, Callable[[np.ndarray], np.ndarray]] = {LAYOUT: winograd.pack, "quads": pack_quads}
