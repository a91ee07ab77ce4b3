"""The layout of the constant right operand of a matmul or conv, which is packed at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import sympy

from ...jit.families.conv import depthwise, winograd
from ...jit.families.conv.by_taps import has_few_pixels
from ...jit.families.conv.pixels import AXES
from ...jit.families.conv.spec import Conv, Window
from ...jit.families.matmul import digits
from ...jit.families.matmul.layouts import (
    DIGITS_LAYOUT,
    GROUPED,
    LAYOUTS,
    PANELS,
    ROWS,
    SHORTS_LAYOUT,
    TAPS,
    WINOGRAD,
    as_panels,
    pack_columns,
)
from ...jit.families.matmul.schedules import PANEL
from ...jit.families.matmul.spec import Matmul, ProductSpec
from ...jit.loops.bodies import LANES
from ...jit.spec import Buffer
from ..ir.dims import DimExpr
from ..ir.graph import Block, Builder, Graph, Node, Value
from .access import shape_of
from .launches import unbound_kernels
from .specs import SCALED
from .weights import held

Product = ProductSpec[sympy.Expr]

WIDE = 8  # channels of a group for which byte products are faster, with half of a vector of sums unused


def pack(graph: Graph) -> None:
    """Pack the constant right operands of matmuls and convs in their kernels' layouts, each matrix once."""
    packing = _Packing(graph)
    for node in unbound_kernels(graph):
        spec = node.attrs["spec"]
        if isinstance(spec, ProductSpec) and spec.product.b_layout == ROWS:
            packing.pack(node, spec)
        elif isinstance(spec, ProductSpec) and spec.product.b_layout == SCALED:
            packing.pack_scaled(node, spec)
    packing.insert()
    packing.report()


class _Packing:
    """The packed constants of a graph: by matrix, layout and groups of columns."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Value, str, int | Value], Value] = {}
        self._builder = Builder(graph, Block())

    def pack(self, node: Node, spec: Product) -> None:
        """Let a kernel read its right operand packed, if it is a suitable constant."""
        place = sum(not buffer.is_output for buffer in spec.buffers[: spec.product.b])
        weight = node.arg(place)
        layout = b_layout(spec, weight, self._graph.accurate)
        if layout == ROWS:
            return
        if layout == PANELS and self._is_rounded(weight):
            layout = self._represented(spec, 1) or layout
        panels = self._packed(weight, spec, layout)
        node.set_args([*node.args[:place], panels, *node.args[place + 1 :]])
        b = Buffer(panels.tensor.dtype, shape_of(panels))
        buffers = *spec.buffers[: spec.product.b], b, *spec.buffers[spec.product.b + 1 :]
        chain = spec.product.chain if LAYOUTS[layout].has_chain else 0
        node.attrs["spec"] = self._packed_spec(replace(spec, buffers=buffers), layout, chain)

    def pack_scaled(self, node: Node, spec: Product) -> None:
        """Let a kernel read integers and the scales of their groups, its last buffer, as one constant."""
        place = sum(not buffer.is_output for buffer in spec.buffers[: spec.product.b])
        weight, scales = node.arg(place), node.args[-1]
        is_of_bytes = not spec.product.prologue and spec.buffers[spec.product.a].dtype == "u8"
        assert scales is not None
        layout = "grouped_quads" if is_of_bytes else GROUPED
        integers, factors = (value.definition.attrs["array"] for value in (weight, scales))
        if not is_of_bytes:
            found = self._represented(spec, len(factors))
            is_fit = found != DIGITS_LAYOUT or digits.fit(len(integers), factors)
            layout = found if found and is_fit else layout
        if (weight, layout, scales) not in self._made:
            name = f"{weight.definition.attrs['name']}.panels"
            made = LAYOUTS[layout].pack(integers, factors)
            self._made[weight, layout, scales] = self._builder.constant(made, "u8", name)
        panels = self._made[weight, layout, scales]
        node.set_args([*node.args[:place], panels, *node.args[place + 1 : -1]])
        b = Buffer("u8", shape_of(panels))
        buffers = *spec.buffers[: spec.product.b], b, *spec.buffers[spec.product.b + 1 : -1]
        node.attrs["spec"] = self._packed_spec(replace(spec, buffers=buffers), layout, 0)

    def _packed_spec(self, spec: Product, layout: str, chain: int) -> Product:
        bf16x6 = self._graph.rounding.precision == "bf16x6" and LAYOUTS[layout].in_parts
        spec = spec.with_product(b_layout=layout, b_index=(), chain=chain)
        return replace(spec, bf16x6=bf16x6)

    def _is_rounded(self, weight: Value) -> bool:
        """Whether a weight holds byte integers because it was rounded; products by other weights are those of
        f32."""
        known = self._graph.rounding.weights.get(str(weight.definition.attrs["name"]))
        return known is not None and known.format == "int8" and weight.tensor.dtype == "f32"

    def _represented(self, spec: Product, groups: int) -> str | None:
        """Return the layout in which a matmul's f32 rows are represented by integers, i16 or fixed-point
        limbs, for a weight whose columns have scales for this many groups of steps; None: they are not."""
        k, n = spec.product.k, spec.product.n
        is_plain = isinstance(spec, Matmul) and not spec.skips_zeros
        if not is_plain or not isinstance(k, int) or not isinstance(n, int):
            return None
        group = k // groups if groups > 1 else digits.steps(k)
        if self._graph.rounding.precision == "i16" and group:
            return SHORTS_LAYOUT
        return DIGITS_LAYOUT if digits.pays(k, n, group, self._graph.rounding.targets) else None

    def _packed(self, weight: Value, spec: Product, layout: str) -> Value:
        """Return the matrix `weight` in a layout, with a conv's groups of columns packed separately. A
        matmul's weight is held in the narrowest dtype that represents its values, or the requested one."""
        groups = spec.window.groups if isinstance(spec, Conv) else 1
        key = weight, spec.family if layout == PANELS else layout, groups
        if key not in self._made:
            attrs, dtype, rounding = weight.definition.attrs, weight.tensor.dtype, self._graph.rounding
            array = attrs["array"]
            if LAYOUTS[layout].planes:
                dtype = "u8"
            elif dtype == "f32" and not isinstance(spec, Conv) and str(attrs["name"]) not in rounding.in_f32:
                array, dtype = held(array, rounding.dtype)
            panels = _pack(array, layout, groups)
            self._made[key] = self._builder.constant(panels, dtype, f"{attrs['name']}.panels")
        return self._made[key]

    def insert(self) -> None:
        """Insert the packed constants after their sources."""
        made: dict[Node | None, list[Node]] = {}
        for (weight, _, _), value in self._made.items():
            made.setdefault(weight.node, []).append(value.definition)
        for block in self._graph.blocks():
            block.nodes[:] = [each for node in block.nodes for each in (node, *made.get(node, ()))]

    def report(self) -> None:
        """Name the format of activations beside that of weights whose products round them."""
        weights = self._graph.rounding.weights
        rounding = [weight for weight, layout, _ in self._made if layout == SHORTS_LAYOUT]
        for name in {str(weight.definition.attrs["name"]) for weight in rounding} & set(weights):
            weights[name] = replace(weights[name], format=f"i16 x {weights[name].format}")


def b_layout(spec: Product, weight: Value, accurate: bool) -> str:
    """Return the layout in which a product's kernel reads its right operand `weight`; `accurate`: see
    `Graph`."""
    if weight.tensor.dtype in _LAYOUTS:
        return _LAYOUTS[weight.tensor.dtype]
    if not is_constant_matrix(weight):
        return ROWS
    if not isinstance(spec, Conv):
        return PANELS
    if has_depthwise_kernel(spec.window, spec.planes, _channels(spec), spec.product.n):
        return ROWS
    return PANELS if accurate else _conv_layout(spec, weight)


def _channels(spec: Conv[sympy.Expr]) -> DimExpr:
    return spec.buffers[spec.product.a].shape[-1]


def _conv_layout(spec: Conv[sympy.Expr], weight: Value) -> str:
    """Return a conv's layout: Winograd's if its window and channels suit it; by taps in small images with
    other strides and dilations."""
    window, channels = spec.window, _channels(spec)
    is_one = window.kernel == (TAPS, TAPS) and {*window.expansion, window.groups} == {1}
    is_fit = is_one and not spec.planes and (winograd.is_plain(window) or has_few_pixels(window))
    array = weight.definition.attrs["array"]
    if not (is_fit and isinstance(channels, int) and np.isfinite(array).all()):
        return PANELS
    return winograd_layout(channels)


def winograd_layout(channels: int) -> str:
    """Return the layout of the weights of 3 x 3 taps. It must not depend on image sizes, because every tier
    has the same bits."""
    return PANELS if channels % LANES or not channels else WINOGRAD


def has_depthwise_kernel(
    window: Window[sympy.Expr], planes: bool, channels: DimExpr, columns: DimExpr
) -> bool:
    """Return True for a conv that `jit.families.conv.depthwise` computes; it reads the weights in place."""
    if planes:
        return False
    is_plain = len(window.kernel) <= AXES and set(window.expansion) == {1}
    return is_plain and min(window.dilation) > 0 and depthwise.is_narrow(channels, columns, window.groups)


def takes_bytes_in_f32(
    window: Window[sympy.Expr], planes: bool, channels: DimExpr, columns: DimExpr, targets: Sequence[str]
) -> bool:
    """Return True for a conv of bytes that has that kernel, which multiplies them in f32, if no other kernel
    is faster: groups of WIDE channels are multiplied as bytes on targets that do so faster."""
    if not has_depthwise_kernel(window, planes, channels, columns):
        return False
    assert isinstance(channels, int)
    return channels // window.groups < WIDE or not digits.multiply_bytes(targets)


def is_constant_matrix(value: Value) -> bool:
    """Return True if a matmul's right operand is a constant [K, N] in f32, which is packed at compile
    time."""
    return (
        value.node is not None
        and value.node.op == "constant"
        and len(shape_of(value)) == 2
        and value.tensor.dtype == "f32"
    )


def _pack(weight: np.ndarray, layout: str, groups: int) -> np.ndarray:
    """Return a weight in a layout, in place if possible, so that only the artifact copies it."""
    k, n = weight.shape
    if layout == PANELS and groups == 1 and n % PANEL == 0:
        return as_panels(weight)
    if LAYOUTS[layout].planes:
        return LAYOUTS[layout].pack(weight.astype(np.int8), digits.ones(k, n))
    return pack_columns(layout, weight, groups)


#: By the dtype of a weight whose product has separate arithmetic.
_LAYOUTS = {row.dtypes[0]: row.name for row in LAYOUTS.values() if row.has_dots}
