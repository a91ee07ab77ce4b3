"""A convolution of few channels reads its image channels first: the permute before it is removed."""

from __future__ import annotations

from ...jit.families.conv.planes import is_fit
from ..ir.graph import Builder, Graph, Node, Value
from ..lower.access import shape_of
from .rewrite import rewrite


def read_planes(graph: Graph) -> None:
    """Give such convolutions the image before its permute."""
    rewrite(graph, lambda b, node: _of_planes(b, node) if node.op == "conv" else None)


def _of_planes(b: Builder, conv: Node) -> Value | None:
    planes = _planes(conv)
    return None if planes is None else b.one("conv", planes, conv.args[1], **{**conv.attrs, "planes": True})


def _planes(conv: Node) -> Value | None:
    """Return the channels-first image of a conv, if there is one and a kernel reads it."""
    x, attrs = conv.arg(0), conv.attrs
    permute = x.node
    if permute is None or permute.op != "permute" or attrs["planes"] or x.tensor.dtype != "f32":
        return None
    axes = (0, *range(2, len(shape_of(x))), 1)
    is_read = is_fit(shape_of(x)[-1], attrs, attrs["groups"])
    return permute.arg(0) if permute.attrs["axes"] == axes and is_read else None
