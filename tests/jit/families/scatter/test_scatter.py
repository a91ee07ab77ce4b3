"""Scatter: the reference's values; exact, generic and any sharing of the tiles give the same bits."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.scatter.spec import SCATTER_MODES, Scatter
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim

from ..nest.test_nest import random, resolved, run

A, D, S, C = (Dim(i) for i in range(4))
SHAPES = {  # out, updates, index, source, axis; sizes are A, D, S, C
    "elements": ((D,), (S,), (S,), (S,), 0),
    "rows": ((D, C), (S, C), (S, 1), (S, C), 0),
    "columns": ((A, D), (A, S), (1, S), (A, S), 1),
    "middle": ((A, D, C), (A, S, C), (A, S, C), (A, S, C), 1),
    "middle rows": ((A, D, C), (A, S, C), (1, S, 1), (A, S, C), 1),
    "one value": ((D, C), (S, C), (S, C), (1, 1), 0),
    "deep": ((A, D, C, 3), (A, S, C, 3), (A, S, C, 3), (A, S, C, 3), 1),
}
SIZES = [
    (2, 5, 7, 3),
    (1, 1, 1, 1),
    (3, 4, 0, 2),
    (0, 4, 3, 2),
    (2, 13, 100, 0),
    (1, 7, 40, 601),
    (5, 300, 999, 17),
]


def scatter(shapes, mode="sum", dtype="f32", index="i64", base=None) -> Scatter:
    out, updates, index_shape, source, axis = shapes
    buffers = (
        Buffer(dtype, base or out),
        Buffer(index, index_shape),
        Buffer(dtype, source),
        Buffer(dtype, out, True),
    )
    return Scatter(4, buffers, updates, axis, mode)


def inputs(spec, dims, seed="x"):
    base, index, source = (resolved(b.shape, dims) for b in spec.buffers[:3])
    size = max(resolved(spec.buffers[3].shape, dims)[spec.axis], 1)
    chosen = np.random.default_rng(len(seed)).integers(0, size, index)
    dtype = spec.buffers[0].dtype
    return [
        random(base, dtype, seed),
        chosen.astype(DTYPES[spec.buffers[1].dtype].numpy),
        random(source, dtype, seed + "s"),
    ]


def expected(spec, dims, given):
    out = np.zeros(resolved(spec.buffers[3].shape, dims), DTYPES[spec.buffers[3].dtype].numpy)
    evaluate(spec, dims, [*given, out])
    return out


@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_sums(shapes, dims):
    spec = scatter(shapes)
    given = inputs(spec, dims)
    np.testing.assert_array_equal(run(spec, dims, given)[0], expected(spec, dims, given))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", SCATTER_MODES)
def test_modes_and_dtypes(mode, dtype):
    if (mode in ("any", "all")) != (dtype == "bool") and mode != "set":
        pytest.skip("no such update")
    dims = (3, 9, 31, 18)
    for name in ("rows", "columns"):
        spec = scatter(SHAPES[name], mode, dtype, "i32")
        given = inputs(spec, dims)
        np.testing.assert_array_equal(run(spec, dims, given)[0], expected(spec, dims, given))


def test_nan_wins_and_base_is_broadcast():
    dims = (2, 5, 30, 17)
    spec = scatter(SHAPES["middle"], "max", base=(1, 1, 1))
    given = inputs(spec, dims)
    given[2][0, 3, 2] = np.nan
    result = run(spec, dims, given)[0]
    assert np.isnan(result).sum() == 1
    np.testing.assert_array_equal(result, expected(spec, dims, given))


def test_fewer_updates_than_places():
    out, updates = (A, D, C), (Dim(4), S, Dim(5))
    buffers = (Buffer("f32", out), Buffer("i64", updates), Buffer("f32", updates), Buffer("f32", out, True))
    spec = Scatter(6, buffers, updates, 1, "sum")
    for dims in ((4, 5, 9, 1200, 2, 7), (4, 5, 9, 3, 0, 3), (1, 2, 3, 40, 1, 40)):
        given = inputs(spec, dims)
        np.testing.assert_array_equal(run(spec, dims, given)[0], expected(spec, dims, given))
    with pytest.raises(ValueError, match="leaves|read or written"):
        compile_kernel(spec, (4, 5, 9, 3, 5, 3))


@pytest.mark.parametrize("name", ["elements", "rows", "middle"])
@pytest.mark.parametrize("bad", [-1, 6])
def test_a_bad_index_is_reported(name, bad):
    dims = (2, 6, 40, 20)
    spec = scatter(SHAPES[name])
    given = inputs(spec, dims)
    given[1].reshape(-1)[-1] = bad
    for exact in (dims, None):
        with pytest.raises(IndexError, match=f"index {bad} is out of range for a dimension of size 6"):
            Kernel(compile_kernel(spec, exact)).run(
                [*given, np.zeros(resolved(spec.buffers[3].shape, dims), np.float32)], dims
            )
