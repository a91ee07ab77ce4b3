"""The ResNet-18 of shapevm.nn gives what torchvision's gives with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from shapevm import nn

from ...models import vision
from .models import ResNet18
from .test_models import close, saved

pytestmark = pytest.mark.skipif(not vision.is_installed(), reason="torchvision is not installed")


def resnet18() -> torch.nn.Module:
    """Return torchvision's model with weights and statistics that keep activations in range."""
    torch.manual_seed(0)
    model = vision.make("resnet18", weights=None)().eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.1)
    return model


@torch.no_grad()
def test_resnet18_is_that_of_torchvision(tmp_path: Path) -> None:
    """At the sizes that it was trained for and at others: odd, not square, the smallest."""
    model = resnet18()
    resnet = nn.load(ResNet18(), saved(model, tmp_path / "resnet.safetensors"))
    sizes = {"height": (32, 512), "width": (32, 512)}
    exe = nn.compile(resnet, {"x": ("batch", 3, "height", "width")}, sizes, strategy="generic")
    for shape in ((1, 3, 224, 224), (2, 3, 64, 47), (3, 3, 33, 131), (1, 3, 32, 32)):
        x = torch.randn(shape)
        wanted, found = model(x), exe(x.numpy())
        assert found.shape == (shape[0], 1000) and np.array_equal(found.argmax(1), wanted.argmax(1).numpy())
        close(found / float(wanted.abs().max()), wanted / wanted.abs().max())
    assert exe(np.zeros((0, 3, 64, 64), np.float32)).shape == (0, 1000)


def test_parameters_have_torchvisions_names_and_shapes() -> None:
    wanted = {name: tuple(x.shape) for name, x in resnet18().state_dict().items()}
    found = {name: each.shape for name, each in ResNet18().named_parameters()}
    assert list(found.items()) == list(wanted.items())
