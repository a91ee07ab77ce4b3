"""The range and the rounding of sums, along rows and along columns."""

import numpy as np
import pytest
from shapevm.jit.spec import Nest

from ...nests import Body, M, N, at
from .test_nest import run

ROW_SIZES = [(3, 5), (2, 65), (5, 1000), (2, 5003)]


def summed(along_row: bool, of_products: bool, dtype: str) -> Nest:
    """Sums of x, or of its squares, of N rows or columns."""
    b = Body()
    x = b.load("f32", (N, M), at(0, 1)) if along_row else b.load("f32", (M, N), at(1, 0))
    terms = b.op("mul", x, x) if of_products else x
    b.store(b.op("reduce.sum", terms, dtype=dtype), (N,), at(0))
    return b.nest(N, M)


def totals(x: np.ndarray, along_row: bool, of_products: bool, dtype: str) -> np.ndarray:
    laid_out = x if along_row else np.ascontiguousarray(x.T)
    return run(summed(along_row, of_products, dtype), x.shape, [laid_out])[0]


def noise(dims: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=dims).astype(np.float32)


@pytest.mark.parametrize("along_row", [True, False])
@pytest.mark.parametrize("dims", ROW_SIZES)
def test_sums_that_overflow_on_the_way(dims, along_row):
    x = np.full(dims, 3e38, np.float32)
    x[:, 1::2] *= -1
    x[0] = noise(dims)[0]  # one row that does not
    x[1, 0] = 1e38
    expected = x.sum(axis=1, dtype=np.float64)
    found = totals(x, along_row, False, "f64")
    scale = np.abs(x).sum(axis=1, dtype=np.float64)
    np.testing.assert_allclose(found[1:] / scale[1:], expected[1:] / scale[1:], atol=1e-7)
    np.testing.assert_array_equal(found[:1], totals(x[:1], along_row, False, "f64"))


@pytest.mark.parametrize("along_row", [True, False])
@pytest.mark.parametrize("dims", ROW_SIZES)
def test_sums_of_squares_out_of_range(dims, along_row):
    """Rows of every size side by side: each has the bits that it has alone."""
    x = np.repeat(noise((1, dims[1])), 6, axis=0)
    x *= np.array([1e-38, 1e-30, 1, 1e30, 0, np.nan], np.float32)[:, None]
    expected = np.square(x.astype(np.float64)).sum(axis=1)
    found = totals(x, along_row, True, "f64")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for row in range(len(x)):
        np.testing.assert_array_equal(found[row], totals(x[row : row + 1], along_row, True, "f64")[0])


@pytest.mark.parametrize("along_row", [True, False])
def test_infinities_and_nan_stay(along_row):
    x = noise((4, 100))
    x[0, 3], x[1, 50], x[2, 1], x[2, 2] = np.inf, -np.inf, np.inf, -np.inf
    found = totals(x, along_row, False, "f32")
    np.testing.assert_array_equal(found[:2], [np.inf, -np.inf])
    assert np.isnan(found[2])
    assert np.isfinite(found[3])


@pytest.mark.parametrize("along_row", [True, False])
def test_products_are_added_unrounded(along_row):
    x = np.zeros((1, 65), np.float32)
    x[0, 0], x[0, 64 if along_row else 1] = 2**-12, 1 + 2**-23  # one lane adds both
    assert totals(x, along_row, True, "f64")[0] == 1 + 2**-22 + 2**-23  # rounded first, it were a tie


@pytest.mark.parametrize("along_row", [True, False])
@pytest.mark.parametrize("value", [0.1, 1e6 + 0.3, 1 / 3])
def test_long_sums_of_one_value(value, along_row):
    x = np.full((1, 200_000), value, np.float32)
    expected = x[0].sum(dtype=np.float64)
    assert abs(totals(x, along_row, False, "f32")[0] - expected) < 2.5e-7 * abs(expected)


def test_a_row_that_is_stored_in_the_pass_of_its_sum():
    """It is not read again, for it may have been written over."""
    b = Body()
    x = b.load("f32", (N, M), at(0, 1))
    b.store(b.op("neg", x), (N, M), at(0, 1))
    b.store(b.op("reduce.sum", x), (N,), at(0))
    x = noise((3, 70))
    found, sums = run(b.nest(N, M), (3, 70), [x])
    np.testing.assert_array_equal(found, -x)
    np.testing.assert_allclose(sums, x.sum(1, dtype=np.float64), rtol=1e-5)
