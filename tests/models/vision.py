"""torchvision, which lies in a folder of its own: beside a PyTorch without CUDA it can be imported only once
its operators are declared, and transformers imports whatever torchvision it finds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

#: Where `make` puts it.
FOLDER = Path(sys.prefix) / "vision"
_OPERATORS = ("nms", "qnms")


def is_installed() -> bool:
    """Whether torchvision can be imported."""
    return find_spec("torchvision") is not None or (FOLDER / "torchvision").is_dir()


def make(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    """Return a function that makes a classifier, given by the name of its function or class, with random
    weights."""
    return lambda: getattr(_models(), name)(**options)


def _models() -> Any:
    if "torchvision" not in sys.modules:
        for name in _OPERATORS:
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        sys.path.append(str(FOLDER))
    import torchvision.models

    return torchvision.models
