"""Products whose parts most models need: compiled before it is known what a model needs."""

from __future__ import annotations

from ...spec import Buffer, Dim, Index, Instr
from .microkernel import PANEL
from .spec import Matmul, MatrixProduct
from .sums import CHAIN

DEPTHS = (1024, 64)  # sums in several chains, which transformers have mostly, and in one
COLUMNS = 256


def usual_products() -> list[Matmul[Dim]]:
    """Return products of any number of rows with constant weights, by depth."""
    return [_product(depth) for depth in DEPTHS]


def _product(depth: int) -> Matmul[Dim]:
    rows = Dim(0)
    buffers = (
        Buffer("f32", (rows, depth)),
        Buffer("f32", (COLUMNS // PANEL, depth, PANEL)),
        Buffer("f32", (rows, COLUMNS), True),
    )
    place = (Index(loop=0), Index(loop=1))
    epilogue = (Instr("acc", "f32"), Instr("store", "f32", (0,), buffer=2, index=place))
    a_index = (Index(loop=0), Index(loop=2))
    product = MatrixProduct((), rows, COLUMNS, depth, 0, a_index, 1, (), "panels", epilogue, chain=CHAIN)
    return Matmul(1, buffers, product)
