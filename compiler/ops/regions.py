"""Regions of images in detection models: non-maximum suppression of boxes, and samples of regions.
The operators are torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from ...jit.families.nms import reference as boxes_kept
from ...jit.families.roi_align import reference as regions_sampled
from ..ir.dims import DimExpr, format_dim
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .gather import gather, holding
from .rules import Attrs, Types, check_dtype, same_dtype, show, tensors
from .sort import first_of


def _infer_nms(types: Types, attrs: Attrs) -> Sequence[Type]:
    corners, threshold = tensors("nms", types, 2)
    check_dtype("nms", corners.dtype, ["f32", "f64"])
    check_dtype("nms", threshold.dtype, ["f64"])
    if corners.rank != 2 or corners.shape[0] != 4 or tuple(threshold.shape) != (1,):
        raise ShapeError(
            f"nms: the corners are {show(corners.shape)} and the threshold {show(threshold.shape)}; they "
            "must be [4, count] and [1]"
        )
    return (TensorType("bool", corners.shape[1:]),)


def _infer_roi_align(types: Types, attrs: Attrs) -> Sequence[Type]:
    images, regions = tensors("roi_align", types, 2)
    check_dtype("roi_align", images.dtype, ["f32", "f64"])
    same_dtype("roi_align", (images, regions))
    if images.rank != 4 or regions.rank != 2 or regions.shape[1] != 5:
        raise ShapeError(
            f"roi_align: the images are {show(images.shape)} and the regions {show(regions.shape)}; they "
            "must have four axes and be [count, 5]"
        )
    return (TensorType(images.dtype, (regions.shape[0], *attrs["bins"], images.shape[3])),)


def _roi_align(args: Sequence[Any], attrs: Attrs) -> Any:
    images, regions = args
    wrong = regions[~((regions[:, 0] > -1) & (regions[:, 0] < len(images))), 0]
    if wrong.size:
        raise ShapeError(f"roi_align: image {wrong[0]} is not one of {len(images)}")
    rows, columns = attrs["bins"]
    return regions_sampled.roi_align(
        images, regions, (rows, columns), attrs["scale"], attrs["samples"], attrs["aligned"]
    )


OPS: tuple[Op, ...] = (
    Op(
        "nms",
        "standalone",
        "nms(Tensor corners, Tensor threshold) -> Tensor",
        "Which boxes non-maximum suppression keeps (bool): corners [4, count] are x1, y1, x2, y2 of boxes "
        "that come best first; one stays if its intersection over union with each that stays before it is "
        "at most the threshold.",
        _infer_nms,
        lambda args, attrs: boxes_kept.nms(args[0], float(args[1][0])),
        samples=(Sample(("f32[4, s0]", "f64[1]"), {}), Sample(("f64[4, 7]", "f64[1]"), {})),
        errors=(
            (
                Sample(("f32[5, 3]", "f64[1]"), {}),
                "nms: the corners are [5, 3] and the threshold [1]; they must be [4, count] and [1]",
            ),
        ),
    ),
    Op(
        "roi_align",
        "standalone",
        "roi_align(Tensor images, Tensor regions; bins, scale, samples, aligned) -> Tensor",
        "Regions [count, 5] (an image's number, x1, y1, x2, y2) of images [batch, height, width, channels], "
        "in bins[0] by bins[1] means of samples: [count, *bins, channels].",
        _infer_roi_align,
        _roi_align,
        samples=(
            Sample(
                ("f32[2, 5, s0, 3]", "f32[s1, 5]"),
                {"bins": (2, 3), "scale": 2.0, "samples": 2, "aligned": False},
                "unit",
            ),
            Sample(
                ("f64[1, 4, 4, 2]", "f64[3, 5]"),
                {"bins": (1, 2), "scale": 8.0, "samples": 0, "aligned": True},
                "unit",
            ),
        ),
        errors=(
            (
                Sample(
                    ("f32[2, 5, 6, 3]", "f32[3, 4]"),
                    {"bins": (2, 2), "scale": 1.0, "samples": 2, "aligned": False},
                ),
                "roi_align: the images are [2, 5, 6, 3] and the regions [3, 4]; they must have four axes and "
                "be [count, 5]",
            ),
        ),
    ),
)


# torchvision's operators --------------------------------------------------------------------------


def nms(b: Builder, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """The indices of the boxes that stay, best first."""
    if B.dtype_of(dets) != B.dtype_of(scores):
        raise DtypeError(
            f"nms: the boxes are {B.dtype_of(dets)} and the scores {B.dtype_of(scores)}; both must be one"
        )
    shape = B.shape_of(dets)
    if len(shape) != 2 or len(B.shape_of(scores)) != 1:
        raise ShapeError(
            f"nms: the boxes are {show(shape)} and the scores {show(B.shape_of(scores))}; they must be "
            "[count, 4] and [count]"
        )
    dets = B.of_size(b, "nms", dets, 1, 4)
    scores = B.of_size(b, "nms", scores, 0, shape[0])
    order = first_of(b, "nms", scores, 0, None, True)[1]
    corners = B.permute(b, gather(b, dets, order, 0), [1, 0])
    threshold = B.reshape(b, B.tensor_of(b, iou_threshold, "f64"), [1])
    return gather(b, order, holding(b, b.one("nms", corners, threshold)), 0)


def roi_align(
    b: Builder,
    images: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: DimExpr,
    pooled_width: DimExpr,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """Regions [count, channels, pooled_height, pooled_width] of images [batch, channels, height, width]."""
    if B.dtype_of(images) != B.dtype_of(rois):
        raise DtypeError(
            f"roi_align: the images are {B.dtype_of(images)} and the regions {B.dtype_of(rois)}; both must "
            "be one"
        )
    shape = B.shape_of(images)
    if len(shape) != 4 or len(B.shape_of(rois)) != 2:
        raise ShapeError(
            f"roi_align: the images are {show(shape)} and the regions {show(B.shape_of(rois))}; they must be "
            "[batch, channels, height, width] and [count, 5]"
        )
    rois = B.of_size(b, "roi_align", rois, 1, 5)
    for size in shape[2:]:
        add_guard(
            b,
            sympy.Ge(sympy.sympify(size), 1),
            f"roi_align: an axis of the images has size {format_dim(size)}; it must be at least 1",
        )

    def sampled(images: Value, rois: Value) -> Value:
        bins = b.one(
            "roi_align",
            B.permute(b, images, [0, 2, 3, 1]),
            rois,
            bins=(pooled_height, pooled_width),
            scale=float(spatial_scale),
            samples=max(sampling_ratio, 0),
            aligned=aligned,
        )
        return B.permute(b, bins, [0, 3, 1, 2])

    return B.in_f32(b, sampled, images, rois)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("torchvision.nms.default",), nms),
    Composite(("torchvision.roi_align.default",), roi_align),
)
