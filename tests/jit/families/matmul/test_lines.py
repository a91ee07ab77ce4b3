"""Which lines a product's tiles take: the rows of its code object, checked on the kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.families.matmul.lines import lines_of_rows
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.vm.program import Lines

from ...operations import HOST_TARGETS
from ..lines import check_lines

ROWS = s.Dim(0)
ROW, COLUMN, STEP = (s.Index(loop=i) for i in range(3))


def product(k: int, n: int) -> Matmul:
    """A @ B + residual * scale, of any number of rows."""
    body = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=3, index=(ROW, COLUMN)),
        s.Instr("load", "f32", buffer=4, index=(COLUMN,)),
        s.Instr("mul", "f32", (1, 2)),
        s.Instr("add", "f32", (0, 3)),
        s.Instr("store", "f32", (4,), buffer=2, index=(ROW, COLUMN)),
    )
    buffers = (
        s.Buffer("f32", (ROWS, k)),
        s.Buffer("f32", (-(-n // 32), k, 32)),
        s.Buffer("f32", (ROWS, n), True),
        s.Buffer("f32", (ROWS, n)),
        s.Buffer("f32", (n,)),
    )
    return Matmul(1, buffers, MatrixProduct((), ROWS, n, k, 0, (ROW, STEP), 1, (), "panels", body))


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize(("m", "k", "n"), [(500, 24, 96), (449, 16, 40), (224, 144, 24), (1, 32, 16)])
def test_a_group_of_tiles_takes_its_rows_alone(m: int, k: int, n: int, target: str) -> None:
    rng = np.random.default_rng(m)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (m, n), (m, n), (n,))]
    arrays.insert(1, pack_panels(rng.standard_normal((k, n)).astype(np.float32)))
    for dims in (None, (m,)):
        code = compile_kernel(product(k, n), dims, target)
        assert {row.buffer for row in code.work.lines} == {0, 2, 3}
        assert check_lines(code, (m,), arrays) >= m / 224


def test_what_is_read_in_another_order_has_no_row() -> None:
    spec = product(16, 16)
    assert lines_of_rows(spec, 0) == (Lines(0, 0, ROWS), Lines(2, 0, ROWS), Lines(3, 0, ROWS))
    assert lines_of_rows(replace(spec, skips_zeros=True), 0) == (Lines(2, 0, ROWS), Lines(3, 0, ROWS))
    body = list(spec.product.epilogue)
    body[1] = s.Instr("load", "f32", buffer=3, index=(s.Index(offset=0), COLUMN))
    assert lines_of_rows(spec.with_product(epilogue=tuple(body)), 0) == (Lines(0, 0, ROWS), Lines(2, 0, ROWS))
    body[1] = s.Instr("load", "f32", buffer=0, index=(ROW, COLUMN))
    again = spec.with_product(epilogue=tuple(body))
    assert lines_of_rows(again, 0) == (Lines(2, 0, ROWS),)
    body[-1] = s.Instr("store", "f32", (4,), buffer=2, index=(COLUMN, ROW))
    assert lines_of_rows(spec.with_product(epilogue=tuple(body)), 0) == ()
