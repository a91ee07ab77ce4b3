"""A small artifact without kernels for its sizes."""

from pathlib import Path

import pytest
import torch

import shapevm


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    n = torch.export.Dim("n", min=1, max=1 << 20)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    exe = shapevm.compile(model, (torch.zeros(3, 64),), dynamic_shapes=({0: n},), strategy="generic")
    place = tmp_path_factory.mktemp("hosts") / "model.svm"
    exe.save(place)
    return place
