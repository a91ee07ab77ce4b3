"""Rows that run across memory: lanes are columns, in the order that `jit.families.nest.reduce` defines."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.nest.columns import find_columns
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Index, Nest
from shapevm.vm.program import SizeRange

from ... import nests
from ...nests import Body, K, M, N, Size, at
from .test_nest import NUMPY, REDUCED, random, resolved, run

SIZES = [
    (0, 5),
    (5, 0),
    (1, 1),
    (1, 70),
    (16, 3),
    (17, 7),
    (63, 64),
    (64, 65),
    (131, 128),
    (257, 31),
    (67, 5003),
]


def column_order_sum(x: np.ndarray) -> np.ndarray:
    """The sum of each column: groups of 4 rows in blocks of 64, whose sums are added in f64."""
    total = np.zeros(x.shape[1], np.float64)
    for first in range(0, len(x), 64):
        rows = x[first : first + 64]
        block = np.zeros(x.shape[1], x.dtype)
        for begin in range(0, len(rows), 4):
            group = np.zeros(x.shape[1], x.dtype)
            for row in rows[begin : begin + 4]:
                group = group + row
            block = block + group
        total = total + block
    return total.astype(x.dtype)


def reduction(op: str, dtype: str = "f32", n: Size = N, m: Size = M) -> Nest:
    """Columns n, rows m."""
    b = Body()
    b.store(b.op(op, b.load(dtype, (m, n), at(1, 0))), (n,), at(0))
    return b.nest(n, m)


def softmax(dtype: str = "f32") -> Nest:
    """Over the middle axis of [K, M, N]."""
    b = Body()
    x = b.load(dtype, (K, M, N), at(0, 2, 1))
    e = b.op("exp", b.op("sub", x, b.op("reduce.max", x)))
    b.store(b.op("div", e, b.op("reduce.sum", e)), (K, M, N), at(0, 2, 1))
    return b.nest(K, N, M, n_dims=3)


def batch_norm() -> Nest:
    """Of [M, N], over M; the statistics are stored as well."""
    b = Body()
    x = b.load("f32", (M, N), at(1, 0))
    length = b.op("cast", b.op("dim", dtype="i64", size=M), dtype="f32")
    mean = b.op("div", b.op("reduce.sum", x), length)
    centred = b.op("sub", x, mean)
    variance = b.op("div", b.op("reduce.sum", b.op("mul", centred, centred)), length)
    scale = b.op("mul", b.op("rsqrt", b.op("add", variance, b.const(1e-5))), b.load("f32", (N,), at(0)))
    b.store(b.op("mul", centred, scale), (M, N), at(1, 0))
    b.store(mean, (N,), at(0))
    b.store(variance, (N,), at(0))
    return b.nest(N, M)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("dims", SIZES)
def test_sum_is_in_the_defined_order(dims, dtype):
    x = random(dims[::-1], dtype, "x")
    np.testing.assert_array_equal(run(reduction("reduce.sum", dtype), dims, [x])[0], column_order_sum(x))


@pytest.mark.parametrize(("name", "dtype"), REDUCED)
def test_reductions_of_every_dtype(name, dtype):
    for n, m in [(3, 1), (131, 5), (64, 70), (1, 300)]:
        x = random((m, n), dtype, "x" + name)
        if name in ("sum", "prod") and DTYPES[dtype].kind != "float":
            expected = NUMPY[name](x, axis=0, dtype=x.dtype)
        else:
            expected = NUMPY[name](x, axis=0)
        found = run(reduction(f"reduce.{name}", dtype), (n, m), [x])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "f32" else 1e-11, atol=1e-5)


def test_half_sums_accumulate_wide_and_round_once():
    x = random((300, 37), "f16", "x")
    expected = column_order_sum(x.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(run(reduction("reduce.sum", "f16"), (37, 300), [x])[0], expected)


def test_a_sum_of_a_million_rows_is_right_to_the_last_bits():
    x = np.random.default_rng(0).random((1_000_000, 5), np.float32)
    (found,) = run(reduction("reduce.sum"), (5, 1_000_000), [x])
    np.testing.assert_allclose(found, x.sum(0, dtype=np.float64), rtol=1.2e-7)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_propagate_nan_wherever_it_is(name):
    x = random((131, 131), "f32", "x")
    np.fill_diagonal(x, np.nan)
    assert np.isnan(run(reduction(f"reduce.{name}"), (131, 131), [x])[0]).all()


@pytest.mark.parametrize(("name", "expected"), [("sum", 0), ("prod", 1)])
def test_empty_rows_give_the_neutral_element(name, expected):
    found = run(reduction(f"reduce.{name}"), (19, 0), [np.zeros((0, 19), np.float32)])[0]
    np.testing.assert_array_equal(found, np.full(19, expected, np.float32))


@pytest.mark.parametrize(("k", "n", "m"), [(0, 3, 3), (3, 1, 5), (2, 17, 3), (2, 48, 131), (3, 100, 64)])
def test_softmax_over_a_middle_axis(k, n, m):
    x = random((k, m, n), "f32", "x") * 5
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True, initial=-np.inf))
    found = run(softmax(), (n, m, k), [x])[0]
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=4e-6)


def test_softmax_of_a_column_without_finite_scores_is_nan():
    x = np.zeros((1, 5, 20), np.float32)
    x[:, :, 7] = -np.inf
    assert (np.isnan(run(softmax(), (20, 5, 1), [x])[0]) == np.isinf(x)).all()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (64, 200), (19, 131), (100, 1), (33, 3)])
def test_batch_norm(n, m):
    x, weight = random((m, n), "f32", "x"), random((n,), "f32", "w")
    wide = x.astype(np.float64)
    out, mean, variance = run(batch_norm(), (n, m), [x, weight])
    np.testing.assert_allclose(mean, wide.mean(0), atol=1e-6)
    np.testing.assert_allclose(variance, wide.var(0), atol=1e-6)
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5) * weight
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_a_sum_of_the_rows_that_an_index_picks():
    b = Body()
    i = b.load("i64", (N, M), at(0, 2))
    x = b.load("f32", (50, K), at(Index(value=i), 1))
    b.store(b.op("reduce.sum", x), (N, K), at(0, 1))
    spec = b.nest(N, K, M, n_dims=3)
    assert find_columns(spec) == 1
    table, bags = random((50, 37), "f32", "t"), np.random.default_rng(0).integers(0, 50, (7, 5))
    found = run(spec, (7, 5, 37), [bags, table])[0]
    np.testing.assert_array_equal(found, np.stack([column_order_sum(table[bag]) for bag in bags]))
    bags[3, 2] = 50
    with pytest.raises(IndexError, match="index 50 is out of range for a dimension of size 50"):
        run(spec, (7, 5, 37), [bags, table])


def test_what_is_the_same_in_all_columns_is_shared():
    b = Body()
    weight = b.op("exp", b.load("f32", (M,), at(1)))
    x = b.op("mul", b.load("f32", (M, N), at(1, 0)), weight)
    total = b.op("reduce.sum", x)
    b.store(b.op("sub", b.op("mul", x, weight), total), (M, N), at(1, 0))
    x, weight = random((70, 37), "f32", "x"), random((70,), "f32", "w")
    found = run(b.nest(N, M), (37, 70), [weight, x])[0]
    e = np.exp(weight.astype(np.float64))[:, None]
    np.testing.assert_allclose(found, x * e * e - (x * e).sum(0), rtol=1e-4, atol=1e-4)


def test_columns_backwards_and_rows_written_across():
    b = Body()
    x = b.load("f32", (M, N), at(1, Index(loop=0, scale=-1, offset=K)))
    b.store(b.op("sub", x, b.op("reduce.max", x)), (N, M), at(0, 1))
    x = random((70, 37), "f32", "x")
    found = run(b.nest(N, M, n_dims=3), (37, 70, 36), [x])[0]
    np.testing.assert_array_equal(found, (x - x.max(0))[:, ::-1].T)


def test_the_loads_that_move_most_bytes_decide():
    def both(row_dtype: str, column_dtype: str) -> int | None:
        b = Body()
        x = b.op("cast", b.load(row_dtype, (N, M), at(0, 1)), dtype="f64")
        y = b.op("cast", b.load(column_dtype, (M, N), at(1, 0)), dtype="f64")
        b.store(b.op("reduce.sum", b.op("add", x, y)), (N,), at(0))
        return find_columns(b.nest(N, M))

    assert both("f16", "f32") == 0
    assert both("f32", "f16") is None
    assert both("f32", "f32") is None
    assert find_columns(nests.layer_norm()) is None
    assert find_columns(nests.transpose()) is None
    assert find_columns(reduction("reduce.sum", n=2)) is None


def test_ranges_give_the_same_bits():
    spec, dims = batch_norm(), (48, 100)
    inputs = [random((100, 48), "f32", "x"), random((48,), "f32", "w")]
    expected = run(spec, dims, inputs)
    for ranges in [
        (SizeRange(1, 64, 1), SizeRange(65, 128, 1)),
        (SizeRange(16, 64, 16), SizeRange(0, None, 4)),
    ]:
        outputs = [np.zeros(resolved(b.shape, dims), np.float32) for b in spec.buffers if b.is_output]
        Kernel(compile_kernel(spec, ranges)).run([*inputs, *outputs], dims)
        for found, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_column_may_be_written_over_its_input():
    kernel, x = Kernel(compile_kernel(softmax(), None)), random((2, 100, 37), "f32", "x")
    expected = np.zeros_like(x)
    kernel.run([x, expected], (37, 100, 2))
    kernel.run([x, x], (37, 100, 2))
    np.testing.assert_array_equal(x, expected)


def test_tiles_share_out_the_columns():
    kernel = Kernel(compile_kernel(reduction("reduce.sum"), None))
    assert kernel.n_tiles((1024, 10_000)) >= 8
    assert kernel.n_tiles((16, 10)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_agrees(dtype):
    b = Body()
    x = b.op("cast", b.load(dtype, (M, N), at(1, 0)), dtype="f32")
    b.store(b.op("sub", x, b.op("reduce.prod", b.op("sigmoid", x))), (M, N), at(1, 0))
    arrays = [random((9, 21), dtype, "x"), np.zeros((9, 21), np.float32)]
    found = run(b.nest(N, M), (21, 9), arrays[:1])[0]
    evaluate(b.nest(N, M), (21, 9), arrays)
    np.testing.assert_allclose(found, arrays[1], rtol=1e-5, atol=1e-5)
