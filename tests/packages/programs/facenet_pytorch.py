"""Networks that find and recognise faces (`facenet_pytorch`)."""

from __future__ import annotations

from typing import Any

import torch
from facenet_pytorch import InceptionResnetV1
from facenet_pytorch.models import inception_resnet_v1 as blocks
from facenet_pytorch.models import mtcnn
from facenet_pytorch.models.utils import detect_face


def _of(make: Any, *shape: int) -> Any:
    return lambda: (make(), (torch.randn(shape),), {})


def _boxes() -> torch.Tensor:
    corner = 8 * torch.rand(5, 2)
    return torch.cat([corner, corner + 1 + 4 * torch.rand(5, 2), torch.rand(5, 1)], 1)


PROGRAMS = {
    "PNet": _of(lambda: mtcnn.PNet(pretrained=False), 2, 3, 24, 24),
    "RNet": _of(lambda: mtcnn.RNet(pretrained=False), 2, 3, 24, 24),
    "ONet": _of(lambda: mtcnn.ONet(pretrained=False), 2, 3, 48, 48),
    "BasicConv2d": _of(lambda: blocks.BasicConv2d(3, 4, 3, 2), 2, 3, 15, 15),
    "Block35": _of(blocks.Block35, 1, 256, 6, 6),
    "Mixed_6a": _of(blocks.Mixed_6a, 1, 256, 9, 9),
    "InceptionResnetV1": _of(lambda: InceptionResnetV1(classify=True, num_classes=5), 1, 3, 96, 96),
    "rerec": lambda: (detect_face.rerec, (_boxes(),), {}),
}
