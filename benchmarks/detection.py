"""torchvision's detection models on images of three sizes, through the TorchScript door, against eager.

torchvision's own operators do not load beside a PyTorch without CUDA, so eager runs nms and roi_align as
written in Python (`tests/models/vision_operators.py`). Eager is measured with them, and without: the time
that it spends in them is taken off, as if they cost nothing. shapevm computes them in both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import SHORT, Figure, interleaved, median, ratio

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from models import test_detection, vision

SIZES = ((240, 320), (320, 240), (200, 400))
SIDES = {"min_size": 320, "max_size": 512}
MODELS: dict[str, dict[str, Any]] = {
    "fasterrcnn_resnet50_fpn": {"box_score_thresh": 0.02, **SIDES},
    "retinanet_resnet50_fpn": {"score_thresh": 0.3, **SIDES},
    "ssdlite320_mobilenet_v3_large": {"score_thresh": 0.2},
}
ROUNDS = 1 if SHORT else 2


def detection() -> list[Figure]:
    """All three models."""
    return [_figure(name, options) for name, options in MODELS.items()]


def _figure(name: str, options: dict[str, Any]) -> Figure:
    model, script = test_detection.model_and_script(name, options, torch.float32)
    generator = torch.Generator().manual_seed(0)
    images = {size: [torch.rand(3, *size, generator=generator)] for size in SIZES}
    exe = shapevm.compile(script, args=(images[SIZES[0]],), strategy="generic")
    texts = []
    for (height, width), image in images.items():
        (found,), (wanted,) = exe(image)[1], model(image)
        if abs(len(found["boxes"]) - len(wanted["boxes"])) > len(wanted["boxes"]) // 10:
            raise AssertionError(f"{name}: {len(found['boxes'])} boxes, eager {len(wanted['boxes'])}")
        with _seconds_of_operators() as spent:
            times = interleaved({"shapevm": partial(exe, image), "eager": partial(model, image)}, ROUNDS, 1)
            inside = spent() / (ROUNDS + 1)
        ours, eager = median(times["shapevm"]), median(times["eager"])
        gain = ratio(times, "eager", "shapevm")
        less = (eager - inside) / ours
        texts.append(
            f"{height}x{width} {ours * 1e3:.0f}, {eager * 1e3:.0f}: {gain:.2f}x, {less:.2f}x without"
        )
    what = f"{name} (ms; eager with and without its nms and roi_align)"
    return Figure(what, "; ".join(texts), "1x eager at each size")


@contextmanager
def _seconds_of_operators() -> Iterator[Callable[[], float]]:
    """Return a function that returns the seconds that eager has spent in nms and roi_align since."""
    torchvision, spent = vision.torchvision(), [0.0]
    places = [(torchvision.ops.boxes, "nms"), (torchvision.ops.poolers, "roi_align")]
    originals = [getattr(module, name) for module, name in places]

    def timed(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = original(*args, **kwargs)
        spent[0] += time.perf_counter() - start
        return result

    for (module, name), original in zip(places, originals, strict=True):
        setattr(module, name, partial(timed, original))
    try:
        yield lambda: spent[0]
    finally:
        for (module, name), original in zip(places, originals, strict=True):
            setattr(module, name, original)
