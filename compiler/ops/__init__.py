"""Operator declarations, one file per family; `OPS` and `COMPOSITES` are all of them.

An operator of the graph IR is a row of `OPS`; a torch overload is imported through `COMPOSITES` (by its name,
such as "aten.add.Tensor") or one to one through `Op.torch`.
"""

from __future__ import annotations

from ..ir.graph import TYPE_RULES
from . import (
    activations,
    attention,
    attention_backward,
    bags,
    complex,
    concat,
    control,
    conv,
    conv_backward,
    creation,
    distance,
    einsum,
    fourier,
    fractional,
    gather,
    grouped_matmul,
    groups,
    histogram,
    integer_product,
    matmul,
    nonzero,
    normalise,
    packed,
    paged,
    pointwise,
    pool,
    pool_backward,
    quantize,
    random,
    recurrent,
    reduce,
    regions,
    resize,
    scalars,
    scan,
    scatter,
    slices,
    sort,
    special,
    strings,
    torchao,
    views,
)
from .declare import Composite, Op, Sample

FAMILIES = (
    pointwise,
    special,
    views,
    slices,
    concat,
    creation,
    reduce,
    scan,
    pool,
    pool_backward,
    resize,
    distance,
    groups,
    matmul,
    grouped_matmul,
    integer_product,
    conv,
    conv_backward,
    attention,
    attention_backward,
    paged,
    bags,
    normalise,
    activations,
    gather,
    scatter,
    sort,
    nonzero,
    complex,
    einsum,
    fourier,
    regions,
    histogram,
    fractional,
    quantize,
    torchao,
    random,
    recurrent,
    packed,
    scalars,
    strings,
    control,
)
OPS: dict[str, Op] = {op.name: op for family in FAMILIES for op in family.OPS}
TYPE_RULES.update({name: op.infer for name, op in OPS.items()})
COMPOSITES: dict[str, Composite] = {
    overload: composite
    for family in FAMILIES
    for composite in family.COMPOSITES
    for overload in composite.torch
}
#: The converters of overloads that are given complex arguments, beside those that follow from the parts.
COMPLEX: dict[str, complex.Converter] = {**complex.ROWS, **einsum.ROWS, **fourier.ROWS}

__all__ = ["COMPLEX", "COMPOSITES", "OPS", "Composite", "Op", "Sample"]
