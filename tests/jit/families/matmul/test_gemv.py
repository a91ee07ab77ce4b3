"""Few rows against several panels at once: the bits of any other tile, for every split of the tiles."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.gemv import GEMV_PANELS, MAX_ROWS
from shapevm.jit.families.matmul.matmul import pack_panels
from shapevm.jit.families.matmul.microkernel import PANEL
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.families.matmul.sums import products
from shapevm.jit.llvm.target import host_target

TARGETS = ("x86-64-v3", None) if host_target().startswith("x86") else (None,)
ROWS, WIDE = s.Dim(0), GEMV_PANELS * PANEL


def linear(n: int, k: int, is_computed: bool) -> Matmul:
    """out = (a + 1 where computed) @ panels + bias."""
    m, i, j, kk = ROWS, *(s.Index(loop=loop) for loop in range(3))
    shapes: list[tuple[s.Size, ...]] = [(m, k), (-(-n // PANEL), k, PANEL), (m, n), (n,)]
    buffers = tuple(s.Buffer("f32", shape, is_output=b == 2) for b, shape in enumerate(shapes))
    body = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=3, index=(j,)),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("store", "f32", (2,), buffer=2, index=(i, j)),
    )
    spec = Matmul(1, buffers, MatrixProduct((), m, n, k, 0, (i, kk), 1, (), "panels", body))
    if not is_computed:
        return spec
    prologue = (
        s.Instr("load", "f32", buffer=0, index=(i, kk)),
        s.Instr("const", "f32", value=1.0),
        s.Instr("add", "f32", (0, 1)),
    )
    return spec.with_product(a=-1, a_index=(), prologue=prologue)


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize(
    "n, k, chain",
    [
        (WIDE, 32, 0),
        (2 * WIDE + 71, 37, 0),
        (3 * WIDE - 1, 96, 0),
        (WIDE - 1, 40, 0),
        (WIDE + 33, 389, 0),
        (WIDE, 8900, 0),
        (WIDE + 33, 37, 16),
        (WIDE, 128, 32),
    ],
)
def test_few_rows_give_sums_in_the_order_of_the_definition(
    n: int, k: int, chain: int, is_computed: bool
) -> None:
    rng = np.random.default_rng(3)
    spec = linear(n, k, is_computed).with_product(chain=chain)
    b, bias = rng.standard_normal((k, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    for target in TARGETS:
        generic = Kernel(compile_kernel(spec, None, target))
        for m in (1, 3, 7, MAX_ROWS, MAX_ROWS + 1):
            a = rng.standard_normal((m, k)).astype(np.float32)
            wanted = products(a + np.float32(is_computed), b, chain=chain) + bias
            for kernel in (generic, Kernel(compile_kernel(spec, (m,), target))):
                tiles = kernel.n_tiles((m,))
                for ranges in (
                    None,
                    [(t, t + 1) for t in range(tiles)],
                    [(tiles // 3, tiles), (0, tiles // 3)],
                ):
                    out = np.full((m, n), np.nan, np.float32)
                    kernel.run([a, pack_panels(b), out, bias], (m,), ranges)
                    assert np.array_equal(out, wanted)
