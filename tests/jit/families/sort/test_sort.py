"""Sort: the stable order of the reference, by every algorithm, tier, tile split and target."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.families.sort.spec import Sort
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim, Size

from ..nest.test_nest import random, run

N, M, K = (Dim(i) for i in range(3))


def sort(dtype="f32", descending=False, keep: Size = K, length: Size = M) -> Sort:
    buffers = (Buffer(dtype, (N, length)), Buffer(dtype, (N, keep), True), Buffer("i64", (N, keep), True))
    return Sort(3, buffers, N, length, keep, descending)


def check(spec, dims, x):
    values, indices = run(spec, dims, [x])
    wanted = [np.zeros_like(values), np.zeros_like(indices)]
    evaluate(spec, dims, [x, *wanted])
    np.testing.assert_array_equal(indices, wanted[1])
    assert values.tobytes() == wanted[0].tobytes()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "dims",
    [(0, 5, 5), (3, 0, 0), (2, 1, 1), (4, 16, 16), (3, 17, 5), (2, 64, 64), (2, 65, 65), (1, 300, 300),
     (2, 3000, 3000), (2, 300, 1), (1, 5000, 10), (3, 257, 64), (2, 600, 100), (2, 70, 0)],
)  # fmt: skip
def test_every_length(dims, descending):
    check(sort(descending=descending), dims, random(dims[:2], "f32", "x"))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dims", [(3, 40, 40), (2, 400, 400), (2, 400, 7)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_with_equal_elements(dtype, dims, descending):
    x = random(dims[:2], dtype, "x")
    if dtype in ("f64", "f32", "f16"):
        x[:, ::7], x[:, 1::5], x[:, 2::11] = np.round(x[:, ::7]), np.nan, -0.0
        x[:, 3::11], x[:, 4::13], x[:, 5::13] = 0.0, np.inf, -np.inf
    elif dtype == "bf16":
        x = f32_to_bf16(np.round(random(dims[:2], "f32", "x") * 3))
        x[:, 5::7], x[:, 6::7] = 0x7FC0, 0x8000
    elif dtype == "i64":
        x[:, ::3] += 1 << 40
        x[:, 1::9] = np.iinfo(np.int64).min
    check(sort(dtype, descending), dims, x)


@pytest.mark.parametrize("order", [np.sort, lambda x: -np.sort(-x), np.zeros_like])
def test_rows_in_order_already(order):
    x = order(random((2, 700), "f32", "x"))
    for keep in (700, 33):
        check(sort(), (2, 700, keep), x)
        check(sort(descending=True), (2, 700, keep), x)


def test_keep_is_at_most_the_length():
    with pytest.raises(ValueError, match="read or written at 5 along axis 1 of size 5"):
        compile_kernel(sort(), (1, 5, 6))
