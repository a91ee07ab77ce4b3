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


def is_installed() -> bool:
    """Whether torchvision can be imported."""
    return find_spec("torchvision") is not None or (FOLDER / "torchvision").is_dir()


def make(name: str, **options: Any) -> Callable[[], torch.nn.Module]:
    """Return a function that makes a classifier, given by the name of its function or class, with random
    weights."""
    return lambda: getattr(torchvision().models, name)(**options)


def torchvision() -> Any:
    """Return the package, with operators in plain PyTorch."""
    if "torchvision" not in sys.modules:
        from . import vision_operators

        sys.path.append(str(FOLDER))
        import torchvision

        torchvision.extension._has_ops = vision_operators.has_operators
        sys.modules["torchvision.ops.roi_align"]._has_ops = vision_operators.has_operators  # type: ignore[attr-defined]
    import torchvision.models

    return torchvision
