"""Blocks and small detectors (`ultralytics`)."""

from __future__ import annotations

from typing import Any

import torch
from ultralytics.nn import modules
from ultralytics.nn.tasks import ClassificationModel, DetectionModel
from ultralytics.utils import ops
from ultralytics.utils.metrics import bbox_iou


def _block(name: str, *args: Any, shape: tuple[int, ...] = (2, 8, 12, 12)) -> Any:
    return lambda: (getattr(modules, name)(*args), (torch.randn(shape),), {})


def _detector(name: str) -> Any:
    return lambda: (DetectionModel(name, nc=2, verbose=False).fuse(False), (torch.rand(1, 3, 64, 64),), {})


def _classifier() -> Any:
    return ClassificationModel("yolov8n-cls.yaml", nc=5, verbose=False), (torch.rand(1, 3, 64, 64),), {}


def _boxes() -> torch.Tensor:
    corner = 8 * torch.rand(4, 2)
    return torch.cat([corner, corner + 1 + 4 * torch.rand(4, 2)], 1)


PROGRAMS = {
    "Conv": _block("Conv", 8, 6, 3, 2),
    "DWConv": _block("DWConv", 8, 8, 3),
    "GhostConv": _block("GhostConv", 8, 8),
    "Focus": _block("Focus", 8, 6),
    "C2f": _block("C2f", 8, 8, 1, True),
    "C3": _block("C3", 8, 8),
    "C3k2": _block("C3k2", 8, 8),
    "C3TR": _block("C3TR", 8, 8),
    "C2PSA": _block("C2PSA", 128, 128, shape=(1, 128, 4, 4)),
    "A2C2f": _block("A2C2f", 64, 64, 1, True, 1, shape=(1, 64, 4, 4)),
    "SPPF": _block("SPPF", 8, 8),
    "CBAM": _block("CBAM", 8),
    "RepConv": _block("RepConv", 8, 8),
    "AIFI": _block("AIFI", 16, 32, 2, shape=(2, 16, 5, 5)),
    "HGBlock": _block("HGBlock", 8, 4, 8),
    "DFL": _block("DFL", 4, shape=(2, 16, 7)),
    "Proto": _block("Proto", 8, 6, 4),
    "yolov8n": _detector("yolov8n.yaml"),
    "yolo11n": _detector("yolo11n.yaml"),
    "yolov8n-cls": _classifier,
    "bbox_iou": lambda: (lambda a, b: bbox_iou(a, b, xywh=False, CIoU=True), (_boxes(), _boxes()), {}),
    "xyxy2xywh": lambda: (ops.xyxy2xywh, (_boxes(),), {}),
}
