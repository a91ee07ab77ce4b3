"""The RoiAlign family: bins of regions of images, LANES channels at a time.

A tile is one bin. Its sum is in the output, to which each sample adds its four pixels; positions and weights
are computed once for all channels, which are adjacent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor, report_index
from ...llvm.constants import splat
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from .spec import RoiAlign, accesses

IMAGES, REGIONS, BINS = range(3)


def emit(f: Function, spec: RoiAlign, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a RoiAlign; see `abi.Generator`. The one schedule is "channels"."""
    check_schedule("roi_align", schedule, ["channels"])
    regions = _Regions(f, spec, sizes)
    with f.loop(f.params[3], f.params[4]) as tile:
        regions.emit(tile.index)
    count, rows, columns, channels = spec.buffers[BINS].shape
    cost = ((20 * max(spec.samples, 1) ** 2 * DTYPES[regions.dtype].bytes, (channels,)),)
    return Generated(Work(((count, 1), (rows, 1), (columns, 1)), (), cost), "channels")


@dataclass(frozen=True)
class _Axis:
    """The samples of a bin along an axis of the image: `first` is where the bin starts, `step` its size, both
    vectors of one lane; `count` the number of samples, `pixels` the image's."""

    first: Vec
    step: Vec
    count: Int
    pixels: Int


@dataclass(frozen=True)
class _Place:
    """The pixels below and above a sample along an axis, and their weights (vectors of one lane)."""

    pixels: tuple[Int, Int]
    weights: tuple[Vec, Vec]


class _Regions:
    """Emits tiles; construct it in the entry block."""

    def __init__(self, f: Function, spec: RoiAlign, sizes: Sequence[Int]) -> None:
        self.f, self.spec, self.dtype = f, spec, spec.buffers[IMAGES].dtype
        self.element = DTYPES[self.dtype].memory
        self.images, self.bins = (
            [resolve(size, sizes) for size in spec.buffers[buffer].shape] for buffer in (IMAGES, BINS)
        )
        self.channels = self.bins[3]
        self.buffers = [Operand.of(f, spec, access, sizes).at([]) for access in accesses(spec)]

    def emit(self, tile: Int) -> None:
        """Emit the bin of that number."""
        f = self.f
        region, *place = f.unravel(tile, self.bins[1:3])
        out = f.at(self.buffers[BINS], self.element, f.mul(tile, self.channels))
        self._update(out, lambda index, mask, old: Vec(f, splat(f, self.dtype, 0.0)))
        values = [self._load(region, i) for i in range(5)]
        image, has_pixels = self._image(values[0])
        with f.when(has_pixels):
            y, x = (self._axis(values, axis, place[1 - axis]) for axis in (1, 0))
            self._each(y, lambda above: self._each(x, lambda left: self._add(out, image, above, left)))
            count = Vec(f, f.splat(self._scalar(self._number(f.maximum(f.mul(y.count, x.count), 1))), LANES))
            self._update(out, lambda index, mask, old: old / count)

    # Regions
    def _load(self, region: Int, i: int) -> Vec:
        place = self.f.add(self.f.mul(region, 5), i)
        raw = self.f.load(self.element, self.f.at(self.buffers[REGIONS], self.element, place))
        return Vec(self.f, self.f.splat(raw, 1))

    def _image(self, number: Vec) -> tuple[Int, Value]:
        """Return the number of a region's image, and whether that has a pixel. One that is not there is an
        error."""
        f, (batch, height, width, _) = self.f, self.images
        image = self._whole(number, 64)
        is_there = f.op("i1", f"icmp ult i64 {image.name}, {f.i64(batch).name}")
        with f.when(f.op("i1", f"xor i1 {is_there.name}, true")):
            report_index(f, image, batch)
        pixels = f.op("i1", f"and i1 {f.less(0, height).name}, {f.less(0, width).name}")
        return image, f.op("i1", f"and i1 {is_there.name}, {pixels.name}")

    def _axis(self, values: Sequence[Vec], axis: int, place: Int) -> _Axis:
        """Return the samples of the bin at `place` along an axis (0: x, 1: y)."""
        f, spec = self.f, self.spec
        half = 0.5 if spec.aligned else 0.0
        start, end = (values[1 + axis + 2 * i] * spec.scale - half for i in (0, 1))
        size = end - start
        if not spec.aligned:
            size = select(size.lt(1.0), 1.0, size)
        step = size / self._number(self.bins[2 - axis])
        first = start + self._number(place) * step
        count: Int = spec.samples or f.maximum(self._whole(step.intrinsic("ceil"), 32), 0)
        return _Axis(first, step, count, self.images[2 - axis])

    # Samples
    def _each(self, axis: _Axis, sample: Callable[[_Place], None]) -> None:
        """Emit `sample` for the samples along an axis that are in the image or at most a pixel outside."""
        f = self.f
        pixels, count = self._number(axis.pixels), self._number(axis.count)
        with f.loop(0, axis.count) as loop:
            at = axis.first + (self._number(loop.index) + 0.5) * axis.step / count
            inside = self._scalar(at.ge(-1.0) & at.le(pixels))
            with f.when(inside):
                sample(self._place(at, axis.pixels))

    def _place(self, at: Vec, pixels: Int) -> _Place:
        f, last = self.f, self.f.sub(pixels, 1)
        at = select(at.gt(0.0), at, 0.0)
        low = f.minimum(self._whole(at, 64), last)
        is_last = Vec(f, f.splat(f.op("i1", f"xor i1 {f.less(low, last).name}, true"), 1))
        part = select(is_last, 0.0, at - self._number(low))
        return _Place((low, f.minimum(f.add(low, 1), last)), (1.0 - part, part))

    def _add(self, out: Value, image: Int, y: _Place, x: _Place) -> None:
        """Emit the sum of a sample's four pixels, in every channel."""
        f, (_, height, width, _) = self.f, self.images
        weights = [
            Vec(f, f.splat(self._scalar(one * other), LANES)) for one in y.weights for other in x.weights
        ]
        starts = [
            f.at(self.buffers[IMAGES], self.element, f.mul(pixel, self.channels))
            for row in y.pixels
            for pixel in (
                f.add(f.mul(f.add(f.mul(image, height), row), width), column) for column in x.pixels
            )
        ]

        def total(index: Int, mask: Value | None, old: Vec) -> Vec:
            pixels = [Accessor(f, start, self.dtype, mask).load(Access(index, 1)) for start in starts]
            first, *rest = (weight * pixel for weight, pixel in zip(weights, pixels, strict=True))
            for term in rest:
                first = first + term
            return old + first

        self._update(out, total)

    def _update(self, out: Value, new: Callable[[Int, Value | None, Vec], Vec]) -> None:
        """Emit that each channel of a bin becomes `new(index, mask, old)`."""

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            channels = Accessor(self.f, out, self.dtype, mask)
            channels.store(Access(index, 1), new(index, mask, channels.load(Access(index, 1))))
            return state

        strip(self.f, Range(0, self.channels), 1, chunk)

    # Numbers
    def _number(self, x: Int) -> Vec:
        """Return a whole number as a float."""
        f = self.f
        return Vec(f, f.splat(f.op(self.element, f"sitofp i64 {f.i64(x).name} to {self.element}"), 1))

    def _whole(self, x: Vec, bits: int) -> Value:
        """Return a float truncated to an integer of `bits` bits; a NaN is 0."""
        f, kind = self.f, {"float": "f32", "double": "f64"}[self.element]
        found = f.call(f"i{bits}", f"llvm.fptosi.sat.i{bits}.{kind}", self._scalar(x))
        return found if bits == 64 else f.op("i64", f"sext i{bits} {found.name} to i64")

    def _scalar(self, x: Vec) -> Value:
        """Return the one lane of a vector."""
        return self.f.op(x.element, f"extractelement {x.value.type} {x.value.name}, i32 0")
