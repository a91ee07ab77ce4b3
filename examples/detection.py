"""Find objects in images of any size: `python examples/detection.py`.

The model is torchvision's SSDlite, scripted: it takes a list of images, resizes them, and returns a dict of
boxes, labels and scores for each. torch.export refuses it, but TorchScript does not. Trained weights cannot
be downloaded everywhere, so the weights are random, and so are the objects found.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from vision import torchvision

import shapevm

SIZES = ((240, 320), (97, 160), (480, 200))


def scripted() -> torch.jit.ScriptModule:
    """Return the model as TorchScript, which keeps its five best boxes."""
    torch.manual_seed(0)
    options = {"score_thresh": 0.0, "topk_candidates": 20, "detections_per_img": 5}
    made = torchvision.models.detection.ssdlite320_mobilenet_v3_large
    return torch.jit.script(made(weights=None, weights_backbone=None, **options).eval())


def main() -> None:
    images = [[torch.rand(3, *size)] for size in SIZES]
    exe = shapevm.compile(scripted(), args=(images[0],))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detection.svm"
        exe.save(path)
        exe = shapevm.load(path)  # where neither torch nor a compiler is needed
        for image, (height, width) in zip(images, SIZES, strict=True):
            (found,) = exe(image)[1]
            boxes, scores = found["boxes"], found["scores"]
            sides = torch.tensor([width, height, width, height])
            is_inside = bool(((boxes >= 0) & (boxes <= sides)).all())
            is_sorted = bool((scores.diff() <= 0).all())
            print(f"{height} x {width}: {len(boxes)} boxes, all inside: {is_inside}, best first: {is_sorted}")


if __name__ == "__main__":
    main()
