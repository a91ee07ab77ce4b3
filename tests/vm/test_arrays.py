"""Which arrays share memory."""

import itertools

import numpy as np
import pytest
import torch
from shapevm.vm import arrays


def views(rng, memory):
    """Return random parts of `memory`, turned around and strided, some of them empty."""
    for _ in range(40):
        start, stop = sorted(rng.integers(0, len(memory) + 1, 2))
        yield memory[start:stop][:: int(rng.choice([-3, -1, 1, 2, 5]))]


@pytest.mark.parametrize("seed", range(20))
def test_pairs_are_those_that_numpy_finds(seed):
    rng = np.random.default_rng(seed)
    given = [
        *views(rng, np.zeros(60, np.float32)),
        *views(rng, np.zeros((9, 7), np.int64)),
        3,
        "text",
        np.float32(1),
    ]
    expected = {
        (i, j)
        for (i, x), (j, y) in itertools.combinations(enumerate(given), 2)
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and np.shares_memory(x, y)
    }
    found = list(arrays.sharing_pairs(given))
    assert set(found) == expected and len(found) == len(expected)


def test_pairs_of_two_libraries():
    x = torch.zeros(6, 4)
    given = [x[:, 1], x.numpy()[:, 1:3], x.t()[3], torch.zeros(0), torch.zeros(3).to_sparse()]
    assert list(arrays.sharing_pairs(given)) == [(0, 1)]


def test_arrays_apart_are_not_compared(monkeypatch):
    """10,000 elements of a list would be 50,000,000 comparisons."""
    monkeypatch.setattr(arrays, "_overlap", lambda x, y: pytest.fail("compared"))
    assert not list(arrays.sharing_pairs(list(np.zeros((10_000, 3)))))
