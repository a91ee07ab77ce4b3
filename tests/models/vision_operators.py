"""torchvision's operators in plain PyTorch, as its C++ has them: beside a PyTorch without CUDA that cannot be
loaded. Importing this module defines them."""

from __future__ import annotations

import torch

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
}
for _name, _schema in _SCHEMAS.items():
    torch.library.define(f"torchvision::{_name}", _schema)


def has_operators() -> bool:
    """Whether torchvision's operators are there; TorchScript compiles it."""
    return True


@torch.library.impl("torchvision::nms", "CPU")
def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """The places of the boxes that stay, best first."""
    order = scores.sort(stable=True, descending=True)[1]
    boxes = boxes[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    stays = torch.ones(len(boxes), dtype=torch.bool)
    for i in range(len(boxes)):
        if stays[i]:
            rest = boxes[i + 1 :]
            low = torch.where(boxes[i, :2] < rest[:, :2], rest[:, :2], boxes[i, :2])
            high = torch.where(rest[:, 2:] < boxes[i, 2:], rest[:, 2:], boxes[i, 2:])
            size = torch.where(high - low > 0, high - low, 0)
            both = size[:, 0] * size[:, 1]
            union = areas[i] + areas[i + 1 :] - both
            stays[i + 1 :] &= ~((both / union).double() > threshold)
    return order[stays]


@torch.library.impl("torchvision::roi_align", "CPU")
def roi_align(
    images: torch.Tensor, rois: torch.Tensor, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> torch.Tensor:
    """Regions of images, in rows by columns means of samples."""
    made = images.new_zeros(len(rois), images.shape[1], rows, columns)
    for roi, out in zip(rois, made, strict=True):
        y, n_y = _places(roi[2], roi[4], scale, rows, ratio, aligned)
        x, n_x = _places(roi[1], roi[3], scale, columns, ratio, aligned)
        image = images[int(roi[0])]
        low_y, high_y, part_y, in_y = _between(y, image.shape[1])
        low_x, high_x, part_x, in_x = _between(x, image.shape[2])

        def at(place_y: torch.Tensor, place_x: torch.Tensor, image: torch.Tensor = image) -> torch.Tensor:
            return image[:, place_y][:, :, place_x]

        found = (1 - part_y)[:, None] * (1 - part_x) * at(low_y, low_x)
        found = found + (1 - part_y)[:, None] * part_x * at(low_y, high_x)
        found = found + part_y[:, None] * (1 - part_x) * at(high_y, low_x)
        found = found + part_y[:, None] * part_x * at(high_y, high_x)
        found = torch.where(in_y[:, None] & in_x, found, 0)
        if n_y and n_x:
            out[:] = found.reshape(-1, rows, n_y, columns, n_x).sum((2, 4)) / (n_y * n_x)
    return made


def _places(
    start: torch.Tensor, end: torch.Tensor, scale: float, bins: int, ratio: int, aligned: bool
) -> tuple[torch.Tensor, int]:
    """Return the places of all samples along an axis, and how many a bin has."""
    half = 0.5 if aligned else 0.0
    start, end = start * scale - half, end * scale - half
    size = end - start if aligned else (end - start).clamp(min=1)
    count = ratio if ratio > 0 else max(int((size / bins).ceil()), 0)
    inner = (torch.arange(count, dtype=start.dtype) + 0.5) * (size / bins) / max(count, 1)
    return (start + torch.arange(bins, dtype=start.dtype)[:, None] * (size / bins) + inner).reshape(-1), count


def _between(at: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    """Return the pixels below and above places, how far between them these are, and which are inside."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.long().clamp(max=size - 1)
    part = torch.where(low < size - 1, at - low, 0)
    return low, (low + 1).clamp(max=size - 1), part, inside


@torch.library.register_fake("torchvision::roi_align")
def _roi_align_fake(
    images: torch.Tensor, rois: torch.Tensor, scale: float, rows: int, columns: int, ratio: int, aligned: bool
) -> torch.Tensor:
    return images.new_empty(rois.shape[0], images.shape[1], rows, columns)
