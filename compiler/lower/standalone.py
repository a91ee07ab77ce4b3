"""Specs of operators with their own kernels (kind "standalone"): their arguments are in memory.

`SPECS[op](node)` is the spec of a node, with dimension expressions instead of sizes; its buffers are the
node's present arguments in order, then the results.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy

from ...jit.families.fft.spec import TABLES, Fft
from ...jit.families.nms.spec import Nms
from ...jit.families.nonzero.spec import Nonzero
from ...jit.families.paged_attention.spec import PagedAttention
from ...jit.families.roi_align.spec import RoiAlign
from ...jit.families.scan.spec import Scan
from ...jit.families.scatter.spec import Scatter
from ...jit.families.search.spec import Search
from ...jit.families.sort.spec import Sort
from ...jit.spec import Buffer, KernelSpec
from ..ir.graph import Node, Value
from .access import shape_of


def buffers_of(node: Node) -> tuple[Buffer[sympy.Expr], ...]:
    """Return the buffers of a node's present arguments, then of its results."""
    args = node.present
    return (*map(_buffer, args), *(_buffer(result, is_output=True) for result in node.results))


def _buffer(value: Value, is_output: bool = False) -> Buffer[sympy.Expr]:
    return Buffer(value.tensor.dtype, shape_of(value), is_output)


def _scan(node: Node) -> Scan[sympy.Expr]:
    rows, length, columns = shape_of(node.arg(0))
    return Scan(0, buffers_of(node), rows, length, columns, node.attrs["function"])


def _fft(node: Node) -> Fft[sympy.Expr]:
    outer, length, columns = shape_of(node.arg(TABLES))
    return Fft(0, buffers_of(node), outer, length, columns, node.attrs["kept"])


def _scatter(node: Node) -> Scatter[sympy.Expr]:
    updates = tuple(node.attrs["updates"])
    return Scatter(0, buffers_of(node), updates, node.attrs["axis"], node.attrs["mode"])


def _sort(node: Node) -> Sort[sympy.Expr]:
    rows, length = shape_of(node.arg(0))
    return Sort(0, buffers_of(node), rows, length, node.attrs["keep"], node.attrs["descending"])


def _nonzero(node: Node) -> Nonzero[sympy.Expr]:
    (length,) = shape_of(node.arg(0))
    return Nonzero(0, buffers_of(node), length, node.attrs["count"])


def _search(node: Node) -> Search[sympy.Expr]:
    rows, values = map(shape_of, node.present)
    return Search(0, buffers_of(node), values[0], rows[1], values[1], node.attrs["right"])


def _nms(node: Node) -> Nms[sympy.Expr]:
    return Nms(0, buffers_of(node), shape_of(node.arg(0))[1])


def _roi_align(node: Node) -> RoiAlign[sympy.Expr]:
    attrs = node.attrs
    return RoiAlign(0, buffers_of(node), attrs["scale"], attrs["samples"], attrs["aligned"])


def _paged_attention(node: Node) -> PagedAttention[sympy.Expr]:
    attrs = node.attrs
    return PagedAttention(0, buffers_of(node), attrs["scale"], attrs["window"], attrs["soft_cap"])


SPECS: dict[str, Callable[[Node], KernelSpec[sympy.Expr]]] = {
    "scatter": _scatter,
    "scan": _scan,
    "fft": _fft,
    "sort": _sort,
    "nonzero": _nonzero,
    "search": _search,
    "nms": _nms,
    "roi_align": _roi_align,
    "paged_attention": _paged_attention,
}
