"""Classify images of any size: `python examples/image_classifier.py`.

The classifier is torchvision's ResNet-18. Trained weights cannot be downloaded everywhere, so the weights are
random. One program, saved in one file, accepts every height and width from 32 to 512.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from vision import torchvision

import shapevm

SIZES = ((1, 224, 224), (2, 97, 160), (1, 64, 333))


def main() -> None:
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    height, width = (torch.export.Dim(name, min=32, max=512) for name in ("height", "width"))
    shapes = ({0: batch, 2: height, 3: width},)
    exe = shapevm.compile(model, (torch.randn(2, 3, 128, 96),), dynamic_shapes=shapes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.svm"
        exe.save(path)
        exe = shapevm.load(path)  # where neither torch nor a compiler is needed
        for n, h, w in SIZES:
            images = torch.randn(n, 3, h, w)
            with torch.no_grad():
                wanted = model(images)
            scores = exe(images)
            best = scores.argmax(1)
            same = torch.equal(best, wanted.argmax(1))
            error = (scores - wanted).abs().max() / wanted.abs().max()
            print(
                f"{n} of {h} x {w}: classes {best.tolist()}, as PyTorch says: {same and bool(error < 1e-4)}"
            )


if __name__ == "__main__":
    main()
