"""Results in the caller's arrays."""

import numpy as np
import pytest
import torch
from torch.export import Dim

import shapevm

N = Dim("n", min=0)


@pytest.fixture
def exe(build):
    def forward(self, x, w):
        return {"double": x * 2, "same": x, "k": x.shape[0], "sum": x.sum(0) + w}

    return build(forward, torch.ones(2, 3), torch.ones(3), dynamic_shapes={"x": {0: N}, "w": None})


def inputs(n):
    return {"x": np.arange(3 * n, dtype=np.float32).reshape(n, 3), "w": np.ones(3, np.float32)}


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_results_are_written_into_out(exe, n):
    given = inputs(n)
    for _ in range(3):
        double, same, total = np.full((n, 3), 9, "f4"), np.full((n, 3), 9, "f4"), torch.full((3,), 9.0)
        results = exe.run(given, out={"double": double, "same": same, "sum": total})
        assert results["double"] is double and results["same"] is same and results["sum"] is total
        assert np.array_equal(double, given["x"] * 2) and np.array_equal(same, given["x"])
        assert np.array_equal(total.numpy(), given["x"].sum(0) + 1) and results["k"] == n


def test_arrays_that_are_no_room(exe):
    given, read_only = inputs(2), np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    for out, message in (
        ({"double": np.zeros((3, 3), "f4")}, r'out "double" is f32\[3, 3\]; the result is f32\[2, 3\]'),
        ({"same": np.zeros((3, 3), "f4")}, r'out "same" is f32\[3, 3\]; the result is f32\[2, 3\]'),
        ({"double": np.zeros((2, 3))}, r'out "double" is f64\[2, 3\]; the result is f32\[2, 3\]'),
        ({"double": np.zeros((3, 2), "f4").T}, "must be contiguous, aligned and writable"),
        ({"double": read_only}, "must be contiguous, aligned and writable"),
        ({"double": given["x"]}, "shares memory with an input"),
        (dict.fromkeys(("double", "same"), np.zeros((2, 3), "f4")), "or another out"),
        ({"double": [1.0]}, "must be an array"),
        ({"k": np.zeros(())}, "a result that is a tensor"),
        ({"other": read_only}, "out 'other' is unknown; the program gives double, same, k, sum"),
    ):
        with pytest.raises(shapevm.ArgumentError, match=message):
            exe.run(given, out=out)
