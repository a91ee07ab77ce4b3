"""Models that `torch.onnx` exports, by its old exporter and its new one: the results are those of the same
models compiled from PyTorch, and so is the number of kernels, within what the exporters lose."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shapevm

sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))

from encoder import SentenceEncoder, dynamic_shapes, example_inputs, random_inputs

#: The exporters, and how many kernels more their models may have than PyTorch's own.
EXPORTERS = pytest.mark.parametrize(
    "is_new", [pytest.param(False, id="old"), pytest.param(True, id="new", marks=pytest.mark.skipif(
        find_spec("onnxscript") is None, reason="torch.onnx.export(dynamo=True) needs onnxscript"))]
)  # fmt: skip


def exported(
    folder: Path, is_new: bool, model: nn.Module, inputs: dict[str, Any], shapes: Any, version: int
) -> str:
    """Return the path of a model that torch exports with free sizes."""
    path, names = str(folder / "model.onnx"), list(inputs)
    if is_new:
        given: dict[str, Any] = {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    else:
        free = {name: {axis: dim.__name__ for axis, dim in each.items()} for name, each in shapes.items()}
        given = {"dynamo": False, "dynamic_axes": free, "opset_version": version}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (), path, kwargs=inputs, input_names=names, output_names=["y"], **given)
    return path


def kernels(exe: shapevm.Executable) -> int:
    """Return the number of kernels of a program."""
    return int(exe.summary().split()[0])


class Block(nn.Module):
    """Two convolutions with batch norms, and a connection around them."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(before, after, 3, 2, 1), nn.Conv2d(after, after, 3, 1, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(3))
        self.around = nn.Conv2d(before, after, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the image at half the size."""
        inner = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(inner + self.norms[2](self.around(x)))


def small_resnet() -> nn.Module:
    """Return a classifier of images of any size, whose batch norms have statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Block(8, 16), Block(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    model(torch.randn(4, 3, 64, 64))
    return model.eval()


@EXPORTERS
def test_a_small_resnet(tmp_path: Path, is_new: bool) -> None:
    dims = [torch.export.Dim(name, min=low, max=high) for name, low, high in
            (("batch", 1, 64), ("height", 32, 512), ("width", 32, 512))]  # fmt: skip
    model, shapes = small_resnet(), {"input": {0: dims[0], 2: dims[1], 3: dims[2]}}
    inputs = {"input": torch.randn(2, 3, 64, 48)}
    path = exported(tmp_path, is_new, model, inputs, shapes, 17)
    direct = shapevm.compile(model, (inputs["input"],), dynamic_shapes=(shapes["input"],), strategy="generic")
    exe = shapevm.compile(path, strategy="generic")
    assert kernels(exe) <= kernels(direct)
    for shape in ((1, 3, 32, 32), (2, 3, 97, 61), (5, 3, 64, 129)):
        x = torch.randn(shape)
        np.testing.assert_allclose(exe(x), direct(x), 1e-4, 1e-5)


def minilm(attention: str) -> SentenceEncoder:
    """Return the encoder with two of its layers."""
    model = SentenceEncoder().eval()
    model.bert.encoder.layer = model.bert.encoder.layer[:2]
    model.bert.set_attn_implementation(attention)
    return model


@cache
def direct_minilm() -> shapevm.Executable:
    """Return the encoder compiled from PyTorch."""
    model, inputs = minilm("sdpa"), example_inputs()
    return shapevm.compile(model, kwargs=inputs, dynamic_shapes=dynamic_shapes(), strategy="generic")


@EXPORTERS
def test_minilm(tmp_path: Path, is_new: bool) -> None:
    """In version 14 the old exporter adds the mask, which a kernel makes."""
    model = minilm("sdpa" if is_new else "eager")
    exe = shapevm.compile(
        exported(tmp_path, is_new, model, example_inputs(), dynamic_shapes(), 14), strategy="generic"
    )
    assert kernels(exe) <= kernels(direct_minilm()) + (0 if is_new else 1)
    for batch, length in ((1, 1), (3, 19), (2, 67)):
        given = {name: x.numpy() for name, x in random_inputs(batch, length, padded=True).items()}
        (wanted,) = direct_minilm().run(given).values()
        np.testing.assert_allclose(exe.run(given)["y"], wanted, 1e-4, 1e-6)
    ids = np.zeros((1, 513), np.int64)
    with pytest.raises(shapevm.Error, match="it must be at most 512"):
        exe.run({"input_ids": ids, "attention_mask": ids})
