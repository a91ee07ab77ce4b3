"""Small programs for the stress tests, whose cost is in their many shapes."""

import pytest
import torch

import shapevm


class Rows(torch.nn.Module):
    """A row reduction and pointwise work over two sizes."""

    def forward(self, x):
        h = torch.softmax(x, -1) * 2 + x
        return h, h.sum(-1)


def saved(path, greatest):
    n, m = (torch.export.Dim(name, min=1, max=greatest) for name in "nm")
    options = {"dynamic_shapes": ({0: n, 1: m},), "strategy": "generic"}
    with shapevm.compile(Rows(), (torch.randn(3, 5),), **options) as exe:
        exe.save(path)
    return path


@pytest.fixture(scope="session")
def two_sizes(tmp_path_factory):
    """An artifact with the sizes n and m, from 1 to 64 each."""
    return saved(tmp_path_factory.mktemp("stress") / "rows.svm", 64)


@pytest.fixture(scope="session")
def large_sizes(tmp_path_factory):
    """The same, from 1 to 1024 each."""
    return saved(tmp_path_factory.mktemp("stress") / "large.svm", 1024)
