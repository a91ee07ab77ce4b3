"""Import torchvision with the CPU build of PyTorch, for which its C++ operators are not built."""

from __future__ import annotations

import torch


def has_operators() -> bool:
    """Whether torchvision's operators are there; TorchScript compiles it."""
    return True


try:
    import torchvision
except RuntimeError:  # its library is for another build of PyTorch, so its operators are declared here
    _LIBRARY = torch.library.Library("torchvision", "DEF")
    _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARY.define("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor")
    import torchvision

    torchvision.extension._has_ops = has_operators

__all__ = ["torchvision"]
