"""Which arrays share memory; what is no array for a program, or too large for a copy."""

import itertools

import numpy as np
import pytest
import torch
from shapevm.vm import arrays
from shapevm.vm.errors import KindError, OutOfMemory


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


class Made:
    """An object of another library, which makes an array of itself, or fails."""

    def __init__(self, made):
        self.made = made

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


MASKED = np.ma.masked_array(np.ones(3, "f4"), mask=[0, 1, 0])


@pytest.mark.parametrize("wrap", [lambda x: x, Made], ids=["itself", "__array__"])
def test_masks_are_not_dropped(wrap):
    def read(value):
        return arrays.NUMPY.array(arrays.as_array(wrap(value), "f32", "x"), "x")[0]

    for value in (MASKED, np.ma.masked):
        with pytest.raises(KindError, match=r"x is a masked array, .*: pass x.filled\(value\)"):
            read(value)
    for value in (MASKED.filled(2), np.ma.masked_array(np.ones(3, "f4"))):
        assert type(read(value)) is np.ndarray and read(value).sum() in (3, 4)


@pytest.mark.parametrize("made", [RuntimeError("no"), 3, MemoryError("much")])
def test_objects_that_make_no_array_of_themselves(made):
    with pytest.raises(KindError, match="x is a Made that makes no array of itself"):
        arrays.as_array(Made(made), "f32", "x")


@pytest.mark.parametrize("library", [arrays.NUMPY, arrays.torch_library()], ids=["numpy", "torch"])
def test_no_memory_is_one_error_of_every_library(library):
    with pytest.raises(OutOfMemory, match="there is none for a result of 4503599627370496 bytes"):
        library.empty((1 << 50,), "f32")
    is_torch = library is not arrays.NUMPY
    wide = torch.zeros(1).expand(1 << 50) if is_torch else np.broadcast_to(np.zeros(1, "f4"), (1 << 50,))
    with pytest.raises(OutOfMemory, match="there is none for a copy of x of 4503599627370496 bytes"):
        library.array(wide, "x")
