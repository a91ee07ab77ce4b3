"""Results that may share memory with an input, a constant or another result are copied."""

from __future__ import annotations

from ...jit.spec import Buffer, Dim, Index, Instr, Nest
from ..ir.aliases import fresh_results
from ..ir.dims import DimExpr, product
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.types import TensorType


def copy_results(graph: Graph) -> None:
    """Replace results that are not fresh by kernels that copy them."""
    fresh = fresh_results(graph)
    results, builder = list(graph.body.results), Builder(graph)
    graph.body.results = [
        value if is_fresh else copy(builder, value) for value, is_fresh in zip(results, fresh, strict=True)
    ]


def copy(builder: Builder, value: Value) -> Value:
    """Insert a kernel that copies a tensor; return its result."""
    assert isinstance(value.type, TensorType), f"{value.type} needs no copy"
    n_elements = product(value.type.shape)
    dims: tuple[DimExpr, ...] = () if isinstance(n_elements, int) else (n_elements,)
    spec = copy_spec(value.type.dtype, n_elements if isinstance(n_elements, int) else Dim(0))
    node = Node("kernel", [value], {"spec": spec, "dims": dims, "label": "copy"})
    (result,) = builder.insert(node, [value.type], hint="k")
    return result


def copy_spec(dtype: str, n_elements: int | Dim) -> Nest:
    """Return the spec that copies `n_elements` elements."""
    place = (Index(loop=0),)
    body = (Instr("load", dtype, buffer=0, index=place), Instr("store", dtype, (0,), 1, place))
    buffers = (Buffer(dtype, (n_elements,)), Buffer(dtype, (n_elements,), is_output=True))
    return Nest(int(isinstance(n_elements, Dim)), buffers, (n_elements,), body)
