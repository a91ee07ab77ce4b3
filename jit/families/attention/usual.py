"""Usual attention kernels, for speculative compilation: their parts occur in transformers with such heads."""

from __future__ import annotations

from ...spec import Buffer, Dim, Index, Instr
from .spec import Attention, Extents, Layout, Softmax


def usual_attention(heads: int, width: int, mask: str = "") -> Attention[Dim]:
    """Return self-attention of any batch and length with heads of this width, adjacent in memory. `mask`:
    masked by "query", by "sequence", or not at all ("")."""
    batch, length = Dim(0), Dim(1)
    rows = Buffer("f32", (batch, length, heads, width))
    out = Buffer("f32", (batch, length, heads, width), True)
    queries, keys = ((Index(loop=0), Index(loop=i), Index(loop=1), Index(loop=4)) for i in (2, 3))
    extents = Extents((batch, heads), length, length, width, width)
    seen = Buffer("bool", (batch, 1, length, length) if mask == "query" else (batch, length))
    inner = (Index[Dim](), Index[Dim](loop=2)) if mask == "query" else ()
    place = (Index[Dim](loop=0), *inner, Index[Dim](loop=3))
    masked = (
        Instr("acc", "f32"),
        Instr("load", "bool", buffer=3, index=place),
        Instr("const", "f32", value="-inf"),
        Instr("select", "f32", (1, 0, 2)),
    )
    buffers = (rows, rows, rows, *((seen,) if mask else ()), out)
    softmax = Softmax(width**-0.5, True, masked if mask else ())
    layout = Layout(0, 1, 2, len(buffers) - 1, queries, keys, keys, queries)
    return Attention(2, buffers, extents, layout, softmax)
