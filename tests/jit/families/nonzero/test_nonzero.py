"""Nonzero and Search: numpy's answers, by every tier, tile split and target."""

import numpy as np
import pytest
from shapevm.jit.families.nonzero.spec import Nonzero
from shapevm.jit.families.search.spec import Search
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim

from ..nest.test_nest import random, run

N, M, K = (Dim(i) for i in range(3))


def check(spec, dims, inputs):
    (found,) = run(spec, dims, inputs)
    wanted = np.zeros_like(found)
    evaluate(spec, dims, [*inputs, wanted])
    np.testing.assert_array_equal(found, wanted)
    return found


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100, 5003])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_places(n, share):
    mask = np.random.default_rng(n).random(n) < share
    total = int(mask.sum())
    spec = Nonzero(2, (Buffer("bool", (N,)), Buffer("i64", (M,), True)), N, M)
    np.testing.assert_array_equal(check(spec, (n, total), [mask]), np.flatnonzero(mask))
    for count in {max(total - 3, 0), total + 5}:
        check(spec, (n, count), [mask])


def search(dtype="f32", right=False, shared=False) -> Search:
    rows = Buffer(dtype, (1 if shared else N, M))
    return Search(3, (rows, Buffer(dtype, (N, K)), Buffer("i64", (N, K), True)), N, M, K, right)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(
    "dims", [(0, 3, 2), (2, 0, 5), (2, 1, 9), (3, 2, 17), (2, 7, 64), (1, 1000, 3000), (5, 64, 1)]
)
def test_search(dims, right):
    n, m, k = dims
    for shared in (False, True):
        rows = np.sort(np.round(random((1 if shared else n, m), "f32", "r") * 4), axis=1)
        values = np.round(random((n, k), "f32", "v") * 4)
        values[:, ::5] = np.nan
        check(search(right=right, shared=shared), dims, [rows, values])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("bf16", "bool")])
def test_search_of_every_dtype(dtype):
    rows, values = np.sort(random((2, 37), dtype, "r"), axis=1), random((2, 50), dtype, "v")
    check(search(dtype), (2, 37, 50), [rows, values])
    check(search(dtype, True), (2, 37, 50), [rows, values])
