"""torchvision's detection models through the TorchScript door: lists of images in, lists of dicts out,
compared with TorchScript at three sizes of images, and the runner's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapevm

from . import vision
from .test_zoo import in_the_runner

pytestmark = pytest.mark.skipif(not vision.is_installed(), reason="torchvision is not installed")
SMALL = {"min_size": 160, "max_size": 256}
MODELS: dict[str, dict[str, Any]] = {
    "fasterrcnn_resnet50_fpn": {"box_score_thresh": 0.02, "rpn_post_nms_top_n_test": 50, **SMALL},
    "retinanet_resnet50_fpn": {"score_thresh": 0.3, **SMALL},
    "ssdlite320_mobilenet_v3_large": {"score_thresh": 0.2, "topk_candidates": 20},
}
SIZES = ((120, 160), (200, 140), (64, 300))


def model_and_script(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> tuple[torch.nn.Module, torch.jit.ScriptModule]:
    """Return a model with random weights whose layers give numbers of variance 1, so that it detects
    something, and its script. The first call of that sets some of its attributes."""
    torch.manual_seed(0)
    made = getattr(vision.torchvision().models.detection, name)
    model = made(weights=None, weights_backbone=None, **options).eval()

    def scale(layer: torch.nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        layer.weight.data /= out.std()
        return out / out.std()

    layers = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    hooks = [layer.register_forward_hook(scale) for layer in layers]
    for layer in layers:
        if layer.bias is not None:
            torch.nn.init.zeros_(layer.bias)
    with torch.no_grad():
        model([torch.rand(3, 120, 160)])
        for hook in hooks:
            hook.remove()
        script = torch.jit.script(model.to(dtype))
        script([torch.rand(3, *SIZES[0], dtype=dtype)])
    return model, script


def image(size: tuple[int, int]) -> list[torch.Tensor]:
    return [torch.rand(3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))]


@pytest.mark.drawn
@pytest.mark.parametrize("name", MODELS)
def test_detections(name: str, tmp_path: Path) -> None:
    _, script = model_and_script(name, MODELS[name], torch.float64)  # rounding makes no scores change places
    exe = shapevm.compile(script, args=(image(SIZES[0]),), strategy="generic")
    assert not exe.machine.externs
    for size in SIZES:
        with torch.no_grad():
            (wanted,) = script(image(size))[1]
        (found,) = exe(image(size))[1]
        assert len(wanted["scores"]) > 10, "nothing to compare"
        assert torch.equal(found["labels"], wanted["labels"])
        torch.testing.assert_close(found["scores"], wanted["scores"], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found["boxes"], wanted["boxes"], rtol=1e-5, atol=1e-3)
    exe.save(tmp_path / "model.svm")
    given = {"images.0": image(SIZES[2])[0].numpy()}
    in_runner = in_the_runner(given, tmp_path)
    for key, array in found.items():
        assert np.array_equal(in_runner[f"1.0.{key}"], array.numpy())
