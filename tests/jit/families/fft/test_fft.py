"""Fft: transforms of every length against numpy's, by every tier, tile split and target."""

import numpy as np
import pytest
from shapevm.jit.families.fft.reference import factors
from shapevm.jit.families.fft.spec import Fft
from shapevm.jit.spec import Buffer, Dim

from ..nest.test_nest import random, run

OUTER, LENGTH, COLUMNS, KEPT = (Dim(i) for i in range(4))
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 12, 49, 97, 400, 512)


def fft(dtype="f32", n_inputs=2, n_outputs=2) -> Fft:
    tables = [Buffer("f64", (1, LENGTH, 1))] * 2
    inputs = [Buffer(dtype, (OUTER, LENGTH, COLUMNS))] * n_inputs
    outputs = [Buffer(dtype, (OUTER, KEPT, COLUMNS), True)] * n_outputs
    return Fft(4, (*tables, *inputs, *outputs), OUTER, LENGTH, COLUMNS, KEPT)


def tables_of(length):
    angles = 2 * np.pi * np.arange(length).reshape(1, length, 1) / max(length, 1)
    return [np.cos(angles), np.sin(angles)]


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-7), ("f64", 2e-15)])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(length, dtype, tolerance):
    shape = (2, length, 19)
    x = [random(shape, dtype, "x"), random(shape, dtype, "y")]
    real, imaginary = run(fft(dtype), (*shape, length), [*tables_of(length), *x])
    wanted = np.fft.fft(x[0].astype(np.float64) + 1j * x[1], axis=1) if length else np.zeros(shape, complex)
    error = np.abs(real.astype(np.float64) + 1j * imaginary - wanted).max(initial=0)
    assert error <= tolerance * np.abs(wanted).max(initial=1)


@pytest.mark.parametrize("kept", [1, 4, 7])
def test_parts_that_are_not_needed_are_left_out(kept):
    x = random((1, 7, 3), "f64", "x")
    (real,) = run(fft("f64", 1, 1), (1, 7, 3, kept), [*tables_of(7), x])
    np.testing.assert_allclose(real, np.fft.fft(x, axis=1).real[:, :kept], rtol=1e-13, atol=1e-13)


def test_a_column_depends_on_itself_only():
    x = random((1, 12, 40), "f32", "x")
    alone = run(fft("f32", 1), (1, 12, 1, 12), [*tables_of(12), x[:, :, 17:18]])
    x[:, 3, 16], x[:, 5, 18] = np.nan, np.inf
    among = run(fft("f32", 1), (1, 12, 40, 12), [*tables_of(12), x])
    for one, many in zip(alone, among, strict=True):
        assert one[:, :, 0].tobytes() == many[:, :, 17].tobytes()
        assert np.isnan(many[:, :, 16]).all()


def test_factors_are_fours_a_two_and_rising_primes():
    assert factors(2**5 * 3 * 3 * 11) == [4, 4, 2, 3, 3, 11]
    assert factors(1009) == [1009]
    assert factors(1) == factors(0) == []
