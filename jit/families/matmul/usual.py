"""Products whose parts most models need: compiled before it is known what a model needs."""

from __future__ import annotations

from collections.abc import Sequence

from ...spec import Buffer, Dim, Index, Instr
from .schedules import PANEL
from .spec import Matmul, MatrixProduct
from .sums import CHAIN

DEPTHS = (1024, 64)  # sums in several chains, which transformers have mostly, and in one
COLUMNS = 256
_ROWS, _COLUMNS, _STEPS = (Index(loop=i) for i in range(3))


def usual_products() -> list[Matmul[Dim]]:
    """Return products of any number of rows with constant weights, by depth."""
    return [usual_product(depth, COLUMNS) for depth in DEPTHS]


def usual_product(depth: int, columns: int, ending: Sequence[str] = ()) -> Matmul[Dim]:
    """Return the product of any number of rows with a constant weight, as it is lowered. `ending`: what
    follows in the same kernel, of "bias", "residual", "gelu" and "relu"."""
    rows, zero = Dim(0), [Instr[Dim]("const", "f32", value=0.0)] if "relu" in ending else []
    buffers = [Buffer("f32", (rows, depth)), Buffer("f32", (-(-columns // PANEL), depth, PANEL))]
    body: list[Instr[Dim]] = [*zero, Instr("acc", "f32")]
    for step in ending:
        last = len(body) - 1
        if step == "gelu":
            body.append(Instr("gelu_erf", "f32", (last,)))
        elif step == "relu":
            body.append(Instr("maximum", "f32", (0, last)))
        else:
            place = (_COLUMNS,) if step == "bias" else (_ROWS, _COLUMNS)
            body.append(Instr("load", "f32", buffer=len(buffers), index=place))
            body.append(Instr("add", "f32", (last, last + 1)))
            buffers.append(Buffer("f32", (columns,) if step == "bias" else (rows, columns)))
    body.append(Instr("store", "f32", (len(body) - 1,), buffer=len(buffers), index=(_ROWS, _COLUMNS)))
    buffers.append(Buffer("f32", (rows, columns), True))
    given = ((), rows, columns, depth, 0, (_ROWS, _STEPS), 1, (), "panels", tuple(body))
    return Matmul(1, tuple(buffers), MatrixProduct(*given, chain=CHAIN))
