"""Quantised parameters: zero points that are no integers, and refused shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shapevm import nn
from shapevm.errors import ArgumentError


def linear(array: nn.Quantised, k: int) -> Any:
    layer = nn.Linear(k, array.shape[0], bias=False)
    layer.weight.array = array
    return nn.compile(layer, {"x": ("rows", k)}, {"rows": (1, 8)})


@pytest.mark.parametrize("bits", [4, 7])
@pytest.mark.parametrize("groups", [1, 4])
def test_fractions_of_zero_points(bits: int, groups: int) -> None:
    rng = np.random.default_rng(bits)
    n, k = 300, 1024
    integers = rng.integers(0, 1 << bits, (n, k)).astype(np.int8)
    scales = rng.uniform(0.5, 1.5, (n, groups)).astype(np.float32)
    zeros = rng.uniform(0, 7, (n, groups)).astype(np.float32)
    array = nn.Quantised(integers, scales, zeros)
    exe, x = linear(array, k), rng.normal(size=(3, k)).astype(np.float32)
    wide = array.values().astype(np.float64)
    most = 2.0**-18 * (np.abs(x) @ np.abs(wide).T + 200 * np.abs(x).sum(1, keepdims=True))
    assert (np.abs(exe(x) - x @ wide.T) <= most).all()


def test_parts_have_the_values_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    parts = rng.integers(-8, 8, (6, 64)).astype(np.int8), rng.random((6, 2), np.float32)
    array = nn.Quantised(*parts)
    np.testing.assert_array_equal(array.rows(2, 5).values(), array.values()[2:5])
    np.testing.assert_array_equal(array.transposed().values(), array.values().T)


def test_another_shape_is_refused() -> None:
    array = nn.Quantised(np.zeros((4, 32), np.int8), np.ones((4, 1), np.float32))
    with pytest.raises(ArgumentError, match=r'"weight" is f32\[4, 64\], but .* f32\[4, 32\]'):
        linear(array, 64)
