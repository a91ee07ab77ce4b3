"""Usual products, for speculative compilation: most models need their parts."""

from __future__ import annotations

from collections.abc import Sequence

from ...spec import Body, Buffer, Dim, Index, Instr
from .schedules import PANEL
from .spec import Matmul, MatrixProduct
from .sums import CHAIN

DEPTHS = (1024, 64)  # sums in several chains, as mostly in transformers, and in one
COLUMNS = 256
_ROWS, _COLUMNS, _STEPS = (Index(loop=i) for i in range(3))


def usual_products() -> list[Matmul[Dim]]:
    """Return products of any number of rows with constant weights, by depth."""
    return [usual_product(depth, COLUMNS) for depth in DEPTHS]


def usual_product(depth: int, columns: int, ending: Sequence[str] = (), dtype: str = "f32") -> Matmul[Dim]:
    """Return the product of any number of rows with a constant weight held in `dtype`, in the lowered form.
    `ending`: see `with_ending`."""
    rows = Dim(0)
    operands = Buffer("f32", (rows, depth)), Buffer(dtype, (-(-columns // PANEL), depth, PANEL))
    buffers, epilogue = with_ending(operands, rows, columns, ending)
    given = ((), rows, columns, depth, 0, (_ROWS, _STEPS), 1, (), "panels", epilogue)
    return Matmul(1, buffers, MatrixProduct(*given, chain=CHAIN))


def with_ending(
    operands: Sequence[Buffer[Dim]], rows: Dim, columns: int, ending: Sequence[str]
) -> tuple[tuple[Buffer[Dim], ...], Body[Dim]]:
    """Return the buffers of a product and its epilogue. `ending`: the operations on the sums, from "bias",
    "residual", "shortcut" (a residual, the sums of another product, comes without its bias, which is the last
    buffer but one), "gelu" and "relu"."""
    buffers = list(operands)
    body: list[Instr[Dim]] = [Instr("const", "f32", value=0.0)] if "relu" in ending else []

    def loaded(place: tuple[Index[Dim], ...], shape: tuple[Dim | int, ...]) -> int:
        buffers.append(Buffer("f32", shape))
        body.append(Instr("load", "f32", buffer=len(buffers) - 1, index=place))
        return len(body) - 1

    def combined(op: str, *args: int) -> int:
        body.append(Instr(op, "f32", args))
        return len(body) - 1

    row, bias = ((_ROWS, _COLUMNS), (rows, columns)), ((_COLUMNS,), (columns,))
    first = combined("add", loaded(*row), loaded(*bias)) if "shortcut" in ending else None
    body.append(Instr("acc", "f32"))
    last = len(body) - 1
    for step in ending:
        if step == "gelu":
            last = combined("gelu_erf", last)
        elif step == "relu":
            last = combined("maximum", 0, last)
        elif step == "shortcut" and first is not None:
            last = combined("add", first, last)
        else:
            last = combined("add", last, loaded(*(bias if step == "bias" else row)))
    body.append(Instr("store", "f32", (last,), buffer=len(buffers), index=(_ROWS, _COLUMNS)))
    return (*buffers, Buffer("f32", (rows, columns), True)), tuple(body)
