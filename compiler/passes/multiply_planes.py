"""1x1 convolutions between images that stay channels first are products of the weight and each image.

`choose_layout` brings images into channels-last order before convolutions and back after them; between two
convolutions both permutes are removed. A 1x1 convolution without another one before or after it would keep
both, each a pass over memory. The weight [F, C] times the image [C, pixels] needs none. Pointwise nodes after
it are also computed on [N, F, pixels], so that they can be the product's epilogue. An image that the program
itself brings from channels-last order, and back after the convolution, is left to `choose_layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.dims import DimExpr, product
from ..ir.graph import Builder, Graph, Node, SymbolInfo, Value
from ..ir.ranges import always_at_most
from ..lower.access import shape_of
from ..ops import OPS
from ..ops import build as B
from .layout import MOVES
from .rewrite import rewrite

Shape = Sequence[DimExpr]
LEAST_PIXELS = 512  # of an image: at 784 it takes 0.4 to 0.95 of the time, at 196 1.0 to 1.3 times as long


def multiply_planes(graph: Graph) -> None:
    """Replace such convolutions."""
    apart = _apart(graph)
    if not apart:
        return
    made: dict[Value, Value] = {}  # images, and values reshaped to them

    def rule(b: Builder, node: Node) -> Value | None:
        flat = _product(b, node, apart[node]) if node in apart else _below_reshape(b, node, made)
        if flat is None:
            return None
        image = B.reshape(b, flat, shape_of(node.result))
        made[image] = flat
        return image

    rewrite(graph, rule)


# Which ----------------------------------------------------------------------------------------------------


def _apart(graph: Graph) -> dict[Node, Node]:
    """Return the 1x1 convolutions whose permutes meet none of another convolution, by the permute after
    them."""
    reached = _reached(graph)
    ends = {node: _conv_of(node, graph.symbols) for node in graph.nodes()}
    found = {
        end: conv
        for end, conv in ends.items()
        if conv is not None and not reached.get(_image(conv), set()) and not _stays_last(graph, end, conv)
    }
    while True:
        others = {conv for convs in reached.values() for conv in convs} - set(found.values())
        mixed = {conv for convs in reached.values() if convs & others for conv in convs}
        mixed |= {
            conv for node in graph.nodes() if node.op == "conv" for conv in reached.get(_image(node), ())
        }
        kept = {end: conv for end, conv in found.items() if conv not in mixed}
        if len(kept) == len(found):
            return kept
        found = kept


def _stays_last(graph: Graph, end: Node, conv: Node) -> bool:
    """Whether the program brings the image from channels-last order, and the result, perhaps after pointwise
    nodes, back."""
    rank, before, value = len(shape_of(end.result)), _image(conv).node, end.result
    if before is None or before.op != "permute" or before.attrs["axes"] != (0, rank - 1, *range(1, rank - 1)):
        return False
    while len(value.users) == 1 and _is_pointwise(value.users[0]) and value not in graph.body.results:
        value = value.users[0].result
    permutes = [
        user.op == "permute" and user.attrs["axes"] == (0, *range(2, rank), 1) for user in value.users
    ]
    return bool(permutes) and all(permutes) and value not in graph.body.results


def _is_pointwise(node: Node) -> bool:
    return node.op in OPS and OPS[node.op].kind == "pointwise"


def _reached(graph: Graph) -> dict[Value, frozenset[Node]]:
    """Return the convolutions whose permutes could move down to each value."""
    found: dict[Value, frozenset[Node]] = {}
    for node in graph.nodes():
        if len(node.results) != 1:
            continue
        if node.op == "conv":
            found[node.result] = frozenset([node])
        elif node.op in OPS and (OPS[node.op].kind in MOVES or node.op in MOVES):
            found[node.result] = frozenset(conv for arg in node.present for conv in found.get(arg, ()))
    return found


def _image(conv: Node) -> Value:
    """Return the image of a convolution, before the permute that brings its channels last."""
    x = conv.arg(0)
    return x.definition.arg(0) if x.node is not None and x.node.op == "permute" else x


def _conv_of(end: Node, symbols: Mapping[str, SymbolInfo]) -> Node | None:
    """Return the 1x1 convolution of a channels-first image whose result, plus at most a bias, the permute
    `end` brings into the same order."""
    rank = len(shape_of(end.result)) if end.op == "permute" else 0
    if rank < 3 or end.attrs["axes"] != (0, rank - 1, *range(1, rank - 1)):
        return None
    conv = _before_bias(end.arg(0), rank)
    if conv is None or conv.op != "conv" or len(conv.result.users) != 1 or len(end.arg(0).users) != 1:
        return None
    x, attrs = conv.arg(0).node, conv.attrs
    is_permuted = x is not None and x.op == "permute" and x.attrs["axes"] == (0, *range(2, rank), 1)
    is_one = {*attrs["kernel"], *attrs["stride"], *attrs["expansion"], attrs["groups"]} == {1}
    is_padded = any((*attrs["low"], *attrs["high"]))
    is_large = always_at_most(LEAST_PIXELS, product(shape_of(end.result)[2:]), symbols)
    return conv if is_permuted and is_one and not is_padded and is_large else None


def _before_bias(value: Value, rank: int) -> Node | None:
    """Return the node before the addition of a value that is the same at all pixels, if there is one."""
    node = value.node
    has_bias = node is not None and node.op == "add" and _of_channels(node.arg(1), rank - 1) is not None
    return node.arg(0).node if node is not None and has_bias else node


def _of_channels(value: Value, channels: int) -> tuple[Value, Shape] | None:
    """Return the value that `value` repeats at all pixels, and its shape [N or 1, F or 1, 1]; `channels`:
    their axis."""
    if value.node is None or value.node.op != "expand":
        return None
    small, rank = value.node.arg(0), len(shape_of(value))
    shape = (*(1,) * (rank - len(shape_of(small))), *shape_of(small))
    is_alike = all(size == 1 for axis, size in enumerate(shape) if axis not in (0, channels))
    return (small, (shape[0], shape[channels], 1)) if is_alike else None


# What takes their place -----------------------------------------------------------------------------------


def _product(b: Builder, end: Node, conv: Node) -> Value:
    """Return the product [N, F, pixels], with its bias."""
    image, weight = _image(conv), conv.arg(1)
    n, channels, *sides = shape_of(image)
    width, pixels = shape_of(weight)[1], product(sides)
    rows = B.expand(b, B.permute(b, weight, [1, 0]), (n, width, channels))
    flat = b.one("matmul", rows, B.reshape(b, image, (n, channels, pixels)))
    biased = end.arg(0).definition
    if biased is conv:
        return flat
    return b.one("add", flat, _flat(b, biased.arg(1), shape_of(flat), len(sides) + 1))


def _below_reshape(b: Builder, node: Node, made: dict[Value, Value]) -> Value | None:
    """Return the result of a pointwise node of such images, on [N, F, pixels]."""
    given = next((made[arg] for arg in node.present if arg in made), None)
    if given is None or not _is_pointwise(node):
        return None
    shape = shape_of(given)
    args = [None if arg is None else made.get(arg) or _flat(b, arg, shape, 1) for arg in node.args]
    return b.one(node.op, *args, **node.attrs)


def _flat(b: Builder, value: Value, shape: Shape, channels: int) -> Value:
    """Return an image as [N, F, pixels]; `channels`: their axis, 1 unless the image is the same at all
    pixels."""
    if value.node is not None and value.node.op == "full":
        return b.one("full", **{**value.node.attrs, "shape": tuple(shape)})
    repeated = _of_channels(value, channels)
    if repeated is None:
        return B.reshape(b, value, shape)
    return B.expand(b, B.reshape(b, *repeated), shape)
