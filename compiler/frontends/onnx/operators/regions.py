"""Boxes and regions of images: non-maximum suppression, samples at regions and at offsets."""

from __future__ import annotations

from typing import Any

from ....ir.dims import DimExpr, product, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Value
from ....ops import build as B
from ....ops.loops import for_each, row_of, with_row
from ....ops.regions import roi_align
from ....ops.resize import BILINEAR, ZEROS, sampled
from ....ops.sort import first_of
from ..rows import Call, row
from .products import each

ROI_HALF_PIXEL = 16  # the version from which RoiAlign's positions are centres


@row("NonMaxSuppression")
def _suppressed(call: Call) -> Value:
    """Rows (image, class, box), the classes of an image one after the other, each's boxes best first."""
    b, boxes, scores = call.b, call.value(0), call.value(1)
    images, classes, n = B.shape_of(scores)
    count = simplify(images * classes)
    rows = B.reshape(b, scores, [count, n])
    ordered, order = first_of(b, call.op, rows, 1, None, True)
    corners = _corners(call, boxes)
    threshold = _number(call, 3, "f64")

    def step(place: Value, made: list[Value]) -> list[Value]:
        image = B.pointwise(b, "floordiv", place, B.full(b, classes, "i64"))
        best = b.one("gather", row_of(b, corners, image), row_of(b, order, place), axis=1)
        return [with_row(b, made[0], b.one("nms", best, B.reshape(b, threshold, [1])), place)]

    (kept,) = for_each(b, count, [B.full(b, False, "bool", (count, n))], step, call.op)
    if call.has(4):
        above = B.pointwise(b, "gt", ordered, _number(call, 4, B.dtype_of(ordered)))
        kept = b.one("and", kept, above)
    rank = call.aten("cumsum", B.cast_to(b, kept, "i64"), 1)
    kept = b.one("and", kept, B.pointwise(b, "le", rank, _number(call, 2, "i64")))
    found = call.aten("nonzero", kept)
    total = B.shape_of(found)[0]
    pair, position = (B.reshape(b, B.take(b, found, 1, i, 1), [total]) for i in (0, 1))
    places = B.pointwise(b, "add", B.pointwise(b, "mul", pair, B.full(b, n, "i64")), position)
    box = b.one("gather", B.reshape(b, order, [simplify(count * n)]), places, axis=0)
    parts = [B.pointwise(b, op, pair, B.full(b, classes, "i64")) for op in ("floordiv", "mod")]
    return B.concat(b, [B.add_axis(b, part, 1) for part in (*parts, box)], 1)


def _number(call: Call, i: int, dtype: str) -> Value:
    """Return an input that is one number, 0 if it is absent."""
    if not call.has(i):
        return B.full(call.b, 0, dtype)
    return B.cast_to(call.b, B.reshape(call.b, call.value(i), []), dtype)


def _corners(call: Call, boxes: Value) -> Value:
    """Return boxes as [images, 4, count]: the least coordinates, then the greatest ones."""
    b = call.b
    parts = [B.take(b, boxes, 2, i, 1) for i in range(4)]
    if call.attr("center_point_box", 0):
        half = [B.pointwise(b, "mul", part, 0.5) for part in parts[2:]]
        low = [B.pointwise(b, "sub", x, h) for x, h in zip(parts[:2], half, strict=True)]
        high = [B.pointwise(b, "add", x, h) for x, h in zip(parts[:2], half, strict=True)]
    else:
        low = [B.pointwise(b, "minimum", parts[i], parts[i + 2]) for i in (1, 0)]
        high = [B.pointwise(b, "maximum", parts[i], parts[i + 2]) for i in (1, 0)]
    return B.permute(b, B.concat(b, [*low, *high], 2), [0, 2, 1])


@row("RoiAlign")
def _regions(call: Call) -> Value:
    mode = call.attr("mode", "avg")
    b, rois = call.b, call.value(1)
    image = B.cast_to(b, B.add_axis(b, call.value(2), 1), B.dtype_of(rois))
    default = "half_pixel" if call.version >= ROI_HALF_PIXEL else "output_half_pixel"
    is_aligned = call.attr("coordinate_transformation_mode", default) == "half_pixel"
    height, width = call.attr("output_height", 1), call.attr("output_width", 1)
    scale, samples = call.attr("spatial_scale", 1.0), call.attr("sampling_ratio", 0)
    if mode == "max" and samples > 0:
        return _greatest(call, samples, float(scale), is_aligned)
    if mode != "avg":
        raise UnsupportedOp(
            f"RoiAlign: the mode {mode!r} has no lowering; avg has, and max with a sampling_ratio"
        )
    numbered = B.concat(b, [image, rois], 1)
    return roi_align(b, call.value(0), numbered, scale, height, width, samples, is_aligned)


def _greatest(call: Call, samples: int, scale: float, is_aligned: bool) -> Value:
    """Regions whose bins are the greatest of the four weighted neighbours of all samples."""
    b, x, rois = call.b, call.value(0), call.value(1)
    batch, channels, *sizes = B.shape_of(x)
    count, bins = B.shape_of(rois)[0], (call.count("output_height", 1), call.count("output_width", 1))
    ends = [B.pointwise(b, "sub", B.pointwise(b, "mul", B.take(b, rois, 1, i, 1), scale), 0.5 * is_aligned)
            for i in range(4)]  # fmt: skip
    lines = [
        _neighbours(b, ends[1 - i], ends[3 - i], bins[i] * samples, (bins[i], sizes[i], not is_aligned))
        for i in range(2)
    ]
    image = B.reshape(b, B.cast_to(b, call.value(2), "i64"), [count, 1, 1])
    pixels = B.reshape(b, B.permute(b, x, [0, 2, 3, 1]), [product((batch, *sizes)), channels])
    made = None
    for row_at, row_weight in lines[0]:
        for at, weight in lines[1]:
            place = B.pointwise(b, "mul", B.full(b, sizes[0], "i64"), image)
            place = B.pointwise(b, "add", place, B.add_axis(b, row_at, 2))
            place = B.pointwise(b, "mul", place, B.full(b, sizes[1], "i64"))
            place = B.pointwise(b, "add", place, B.add_axis(b, at, 1))
            share = B.pointwise(b, "mul", B.add_axis(b, row_weight, 2), B.add_axis(b, weight, 1))
            value = B.pointwise(b, "mul", b.one("gather", pixels, place, axis=0), B.add_axis(b, share, 3))
            made = value if made is None else B.pointwise(b, "maximum", made, value)
    assert made is not None
    parts = B.reshape(b, made, [count, bins[0], samples, bins[1], samples, channels])
    return B.permute(b, B.reduce(b, "reduce_max", parts, [2, 4], False), [0, 3, 1, 2])


def _neighbours(
    b: Builder, low: Value, high: Value, n: int, axis: tuple[int, DimExpr, bool]
) -> list[tuple[Value, Value]]:
    """Return the two positions next to each of `n` samples between two ends [count, 1], and their weights: 0
    for samples beyond the image. `axis`: its bins, its size, and whether a region has a position at least."""
    bins, size, has_least = axis
    length = B.pointwise(b, "sub", high, low)
    length = B.pointwise(b, "maximum", length, 1.0) if has_least else length
    dtype = B.dtype_of(low)
    steps = B.pointwise(b, "add", B.cast_to(b, B.iota(b, n, 1, 2), dtype), 0.5)
    step = B.pointwise(b, "div", B.pointwise(b, "div", length, float(bins)), float(n // bins))
    place = B.pointwise(b, "add", low, B.pointwise(b, "mul", steps, step))
    last = B.full(b, simplify(size - 1), dtype)
    beyond = B.pointwise(b, "gt", place, B.full(b, size, dtype))
    outside = B.pointwise(b, "or", B.pointwise(b, "lt", place, -1.0), beyond)
    place = B.pointwise(b, "minimum", B.pointwise(b, "maximum", place, 0.0), last)
    before = b.one("floor", place)
    share = B.pointwise(b, "sub", place, before)
    after = B.pointwise(b, "minimum", B.pointwise(b, "add", before, 1.0), last)
    weights = (B.pointwise(b, "sub", 1.0, share), share)
    return [
        (B.cast_to(b, at, "i64"), B.where(b, outside, 0.0, weight))
        for at, weight in zip((before, after), weights, strict=True)
    ]


@row("DeformConv")
def _deformed(call: Call) -> Value:
    """A convolution whose taps are moved: samples of the image for each tap, multiplied by the weights."""
    b, x, weight, offset = call.b, call.value(0), call.value(1), call.value(2)
    batch, channels, *sizes = B.shape_of(x)
    n_out, depth, *kernel = B.shape_of(weight)
    if len(sizes) != 2:
        raise UnsupportedOp(f"DeformConv: images of {len(sizes)} axes have no lowering; those of 2 have")
    groups, parts, taps = call.attr("group", 1), call.attr("offset_group", 1), product(kernel)
    stride, dilation, pads = each(call, "strides", 2), each(call, "dilations", 2), each(call, "pads", 4, 0)
    outer, out = simplify(batch * parts), B.shape_of(offset)[2:]
    moved = B.reshape(b, offset, [outer, taps, 2, *out])
    points = []
    for i in range(2):
        tap = B.pointwise(b, "mul", B.iota(b, kernel[i], i, 2), dilation[i])
        tap = B.reshape(b, B.expand(b, tap, kernel), [1, taps, 1, 1])
        start = B.pointwise(b, "sub", B.pointwise(b, "mul", B.iota(b, out[i], i, 2), stride[i]), pads[i])
        base = B.cast_to(b, B.pointwise(b, "add", tap, start), B.dtype_of(moved))
        point = B.pointwise(b, "add", B.drop_axis(b, B.take(b, moved, 2, i, 1), 2), base)
        points.append(B.reshape(b, point, [outer, simplify(taps * out[0]), out[1]]))
    images = B.reshape(b, x, [outer, B.divide(channels, parts), *sizes])
    taken = sampled(b, images, points, BILINEAR, ZEROS, True)
    taken = B.reshape(b, taken, [batch, parts, B.divide(channels, parts), taps, *out])
    if call.has(4):
        mask = B.reshape(b, call.value(4), [batch, parts, 1, taps, *out])
        taken = B.pointwise(b, "mul", taken, mask)
    columns = B.reshape(b, taken, [batch, groups, simplify(depth * taps), product(out)])
    rows = B.reshape(b, weight, [1, groups, B.divide(n_out, groups), simplify(depth * taps)])
    made = B.reshape(b, call.aten("matmul", rows, columns), [batch, n_out, *out])
    if not call.has(3):
        return made
    return B.pointwise(b, "add", made, B.reshape(b, call.value(3), [1, n_out, 1, 1]))


@row("AffineGrid")
def _affine_grid(call: Call) -> Value:
    """Points of a grid from -1 to 1 (x, y(, z)), moved by each image's matrix."""
    b, theta = call.b, call.value(0)
    batch, *sizes = [size for i, size in enumerate(call.dims(1)) if i != 1]
    n, dtype = len(sizes), B.dtype_of(theta)
    corners = bool(call.attr("align_corners", 0))
    lines = []
    for axis in reversed(range(n)):
        place = B.cast_to(b, B.iota(b, sizes[axis], axis, n), dtype)
        steps = B.full(b, simplify(sizes[axis] - 1 if corners else sizes[axis]), dtype)
        if corners:
            steps = B.pointwise(b, "maximum", steps, 1.0, dtype=dtype)
        place = place if corners else B.pointwise(b, "add", place, 0.5, dtype=dtype)
        line = B.pointwise(b, "sub", B.pointwise(b, "div", B.pointwise(b, "mul", place, 2.0), steps), 1.0)
        lines.append(B.reshape(b, B.expand(b, line, sizes), [product(sizes), 1]))
    points = B.concat(b, [*lines, B.full(b, 1, dtype, (product(sizes), 1))], 1)
    made = call.aten("matmul", points, B.permute(b, B.of_size(b, call.op, theta, 0, batch), [0, 2, 1]))
    return B.reshape(b, made, [batch, *sizes, n])


@row("Col2Im")
def _col2im(call: Call) -> Value:
    """Add the columns of windows to the image from which they were taken."""
    b, x, sizes, block = call.b, call.value(0), call.dims(1), call.dims(2)
    n = len(sizes)
    batch, rows, _ = B.shape_of(x)
    channels = B.divide(rows, product(block))
    stride, dilation, pads = (
        each(call, "strides", n),
        each(call, "dilations", n),
        each(call, "pads", 2 * n, 0),
    )
    padded = [simplify(size + pads[i] + pads[i + n]) for i, size in enumerate(sizes)]
    places: Any = None
    for i in range(n):
        count = simplify(B.divide(simplify(padded[i] - dilation[i] * (block[i] - 1) - 1), stride[i]) + 1)
        tap = B.pointwise(b, "mul", B.iota(b, block[i], i, 2 * n), dilation[i])
        start = B.pointwise(b, "mul", B.iota(b, count, n + i, 2 * n), stride[i])
        place = B.pointwise(b, "add", tap, start)
        place = B.pointwise(b, "mul", place, B.full(b, product(padded[i + 1 :]), "i64"))
        places = place if places is None else B.pointwise(b, "add", places, place)
    line, images = product(B.shape_of(places)), simplify(batch * channels)
    index = B.expand(b, B.reshape(b, places, [1, line]), [images, line])
    empty = B.full(b, 0, B.dtype_of(x), (images, product(padded)))
    made = call.aten("scatter_add", empty, 1, index, B.reshape(b, x, [images, line]))
    made = B.reshape(b, made, [batch, channels, *padded])
    for i, size in enumerate(sizes):
        made = B.take(b, made, i + 2, pads[i], size)
    return made
