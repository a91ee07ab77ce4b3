"""Convolutions with simpler forms: matrix products, and sums of few shifted images.

One that only mixes the channels of each position is a matmul. So is a transposed one whose stride is its
kernel: each position gives a block of the result, no two blocks overlap, and a permute puts them in place. A
product of patches would multiply by zeros in all taps of a position but one. A depthwise one without a
dedicated kernel (`jit.families.conv.depthwise`: over one or two axes) is a pointwise sum over its taps on the
padded image, with vectors along the channels: it has no sum over channels for a matmul.
"""

from __future__ import annotations

from functools import reduce
from itertools import product as combinations
from math import prod

from ..ir.dims import DimExpr, equal, product
from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import shape_of
from ..lower.packing import has_depthwise_kernel
from ..lower.specs import window_of
from ..ops import build as B
from .rewrite import rewrite

MAX_TAPS = 81  # at most, of a depthwise convolution in one body


def simplify_convs(graph: Graph) -> None:
    """Replace such convolutions."""
    rewrite(graph, lambda b, node: _simpler(b, node) if node.op == "conv" else None)


def _simpler(b: Builder, node: Node) -> Value | None:
    attrs, (x, weight) = node.attrs, node.present
    is_padded = any((*attrs["low"], *attrs["high"]))
    if any(e != 1 for e in attrs["expansion"]):
        return _by_blocks(b, node) if _has_blocks(node) else None
    if attrs["groups"] == 1 and {*attrs["kernel"], *attrs["stride"]} == {1} and not is_padded:
        return b.one("matmul", x, weight)
    groups = attrs["groups"]
    is_depthwise = equal(shape_of(x)[-1], groups) and equal(shape_of(weight)[1], groups)
    has_kernel = has_depthwise_kernel(window_of(node), attrs["planes"], shape_of(x)[-1], shape_of(weight)[1])
    if not is_depthwise or has_kernel or prod(attrs["kernel"]) > MAX_TAPS:
        return None
    return _by_taps(b, node)


def _has_blocks(node: Node) -> bool:
    """Whether it is a transposed convolution, without padding, whose stride is its kernel."""
    attrs, sizes = node.attrs, shape_of(node.arg(0))[1:-1]
    edges = tuple(k - 1 for k in attrs["kernel"])
    is_reversed = all(d == -1 or k == 1 for d, k in zip(attrs["dilation"], attrs["kernel"], strict=True))
    is_plain = attrs["groups"] == 1 and {*attrs["stride"]} == {1} and is_reversed
    is_apart = attrs["expansion"] == attrs["kernel"] and attrs["low"] == attrs["high"] == edges
    made = zip(shape_of(node.result)[1:-1], sizes, attrs["kernel"], strict=True)
    return is_plain and is_apart and all(equal(out, product((size, k))) for out, size, k in made)


def _by_blocks(b: Builder, node: Node) -> Value:
    """Return the product of each position with all taps, [N, spatial.., taps.., F], with every tap's axis
    moved next to that of its positions."""
    (x, weight), kernel = node.present, node.attrs["kernel"]
    *outer, channels = shape_of(x)
    n, width = len(kernel), shape_of(weight)[1]
    taps = B.permute(b, B.reshape(b, weight, (*kernel, channels, width)), [n, *range(n), n + 1])
    blocks = b.one("matmul", x, B.reshape(b, taps, (channels, product((*kernel, width)))))
    blocks = B.reshape(b, blocks, (*outer, *kernel, width))
    pairs = [axis for i in range(1, n + 1) for axis in (i, n + i)]
    return B.reshape(b, B.permute(b, blocks, [0, *pairs, 2 * n + 1]), shape_of(node.result))


def _by_taps(b: Builder, node: Node) -> Value:
    """Return the sum over taps of the shifted image times the tap's weights, one for each channel."""
    attrs, (x, weight) = node.attrs, node.present
    shape = shape_of(node.result)
    image = B.pad(b, x, [(0, 0), *zip(attrs["low"], attrs["high"], strict=True), (0, 0)])
    terms = []
    for number, tap in enumerate(combinations(*map(range, attrs["kernel"]))):
        row = B.reshape(b, B.take(b, weight, 0, number, 1), [shape[-1]])
        part = _under_tap(b, image, attrs, tap, shape[1:-1])
        terms.append(b.one("mul", part, B.expand(b, row, shape)))
    return reduce(lambda total, term: b.one("add", total, term), terms)


def _under_tap(
    b: Builder, image: Value, attrs: dict, tap: tuple[int, ...], out: tuple[DimExpr, ...]
) -> Value:
    """Return the elements of `image` under one tap."""
    for i, t in enumerate(tap):
        apart = attrs["dilation"][i]
        start = t * apart if apart > 0 else (attrs["kernel"][i] - 1 - t) * -apart
        image = B.take(b, image, i + 1, start, out[i], attrs["stride"][i])
    return image
