"""A convolution's rows of A copied into scratch, if an image is expanded or rows must be whole.

The copy is contiguous along the channels, and along the last axis' taps if those are adjacent; it costs one
load and store per vector of K against F / 16 multiply-adds per element of K. Elements outside of the image
are written as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES, tail_mask
from ...spec import Terms
from ..matmul.arithmetic import VECTOR
from ..matmul.lanes import load, tail
from ..matmul.problem import Problem
from ..matmul.strides import Strides
from .pixels import Geometry

UNROLL = 4  # vectors in one iteration of a copy
SHORT = 2 * LANES  # elements that are copied without a loop


class Patches:
    """A block of rows of A in scratch at `place`: each one patch, `stride` elements apart.

    Construct it in the entry block.
    """

    has_whole_groups = True

    def __init__(self, f: Function, problem: Problem, geometry: Geometry, image: Value, place: Value) -> None:
        self.f, self.problem = f, problem
        self.geometry, self.window = geometry, geometry.window
        self.image = image
        self.place = place
        self.stride = f.mul(f.ceildiv(problem.k, LANES), LANES)
        window = geometry.window
        dense = window.groups == 1 and window.dilation[-1] == window.expansion[-1] == 1
        self.joins = dense and window.kernel[-1] > 1  # the last axis' taps are adjacent

    def of(self, strides: Strides) -> Strides:
        """See `lhs.Lhs`."""
        return replace(strides, lda=self.stride)

    def scratch(self) -> Terms:
        """Return the scratch (see `CodeObject`) that the rows take."""
        row = 4 * self.problem.block
        return (row, (self.problem.spec.product.k,)), (row * LANES + 4 * LANES, ())

    def at(self, batch: Sequence[Int], m0: Int) -> Value:
        """Return the address of row `m0`, the first of the block."""
        return self.place

    def prepare(self, outer: Sequence[Int], m0: Int, rows: Int) -> None:
        """Emit the copy of `rows` rows from `m0` on; `outer`: the group and the batch loops."""
        f, geometry = self.f, self.geometry
        group, *batch = outer
        first = geometry.row(f, batch, m0)
        source = f.at(self.image, "float", f.mul(group, geometry.width))
        with f.loop(0, rows) as r:
            image, *position = f.unravel(f.add(first, r.index), geometry.out)
            row = f.at(self.place, "float", f.mul(r.index, self.stride))
            inside = f.op("i1", f"icmp ult i64 {f.i64(image).name}, {f.i64(self.geometry.n_images).name}")
            self._axis(0, position, source, row, image, inside)

    def _axis(
        self, axis: int, position: list[Int], source: Value, row: Value, before: Int, inside: Value
    ) -> None:
        """Emit the taps of `axis` and those after it.

        `before`: the image's row-major position over the axes so far; `inside`: it is within the image;
        `row`: the destination of the taps' elements.
        """
        f, window = self.f, self.window
        if axis == len(position):
            self._copy(source, row, before, inside, self.geometry.width)
            return
        start = f.sub(f.mul(position[axis], window.stride[axis]), window.low[axis])
        if axis == len(position) - 1 and self.joins:
            self._joined(start, source, row, before, inside)
            return
        taps = 1
        for size in window.kernel[axis + 1 :]:
            taps *= size
        step = f.mul(self.geometry.width, taps)
        with f.loop(0, window.kernel[axis]) as tap:
            place = f.add(start, f.mul(tap.index, window.dilation[axis]))
            at, within = self._place(axis, place)
            both = f.op("i1", f"and i1 {inside.name}, {within.name}")
            there = f.add(f.mul(before, self.geometry.extent[axis]), at)
            self._axis(axis + 1, position, source, f.at(row, "float", f.mul(tap.index, step)), there, both)

    def _place(self, axis: int, place: Int) -> tuple[Int, Value]:
        """Return (the element along `axis` at `place`, whether there is one)."""
        f, expansion = self.f, self.window.expansion[axis]
        if expansion == 1:
            return place, self._within(axis, place)
        value = f.i64(place).name
        at = f.op("i64", f"sdiv i64 {value}, {expansion}")
        rest = f.op("i64", f"srem i64 {value}, {expansion}")
        whole = f.op("i1", f"icmp eq i64 {rest.name}, 0")
        return at, f.op("i1", f"and i1 {whole.name}, {self._within(axis, at).name}")

    def _within(self, axis: int, place: Int) -> Value:
        f = self.f
        return f.op("i1", f"icmp ult i64 {f.i64(place).name}, {f.i64(self.geometry.extent[axis]).name}")

    def _joined(self, start: Int, source: Value, row: Value, before: Int, inside: Value) -> None:
        """Emit the taps of the last axis, as one segment of the image if all of them are inside."""
        f, taps = self.f, self.window.kernel[-1]
        size = self.geometry.extent[-1]
        end = f.add(start, taps)
        low = f.op("i1", f"icmp sge i64 {f.i64(start).name}, 0")
        high = f.op("i1", f"icmp sle i64 {f.i64(end).name}, {f.i64(size).name}")
        whole = f.op("i1", f"and i1 {low.name}, {high.name}")
        apart = f.op("i1", f"xor i1 {whole.name}, true")
        line = f.mul(before, size)
        with f.when(whole):
            self._copy(source, row, f.add(line, start), inside, f.mul(self.geometry.width, taps))
        with f.when(apart), f.loop(0, taps) as tap:
            place = f.add(start, tap.index)
            both = f.op(
                "i1", f"and i1 {inside.name}, {self._within(len(self.geometry.extent) - 1, place).name}"
            )
            there = f.at(row, "float", f.mul(tap.index, self.geometry.width))
            self._copy(source, there, f.add(line, place), both, self.geometry.width)

    def _copy(self, source: Value, row: Value, element: Int, inside: Value, count: Int) -> None:
        """Emit the copy of `count` elements, from the pixel `element` on, or zeros if not `inside`.

        Up to LANES - 1 elements after them are overwritten: they are copied later, or unused.
        """
        f = self.f
        address = f.at(source, "float", f.mul(element, self.geometry.channels))
        if isinstance(count, int) and count <= SHORT:
            self._copy_short(address, row, inside, count)
            return
        safe = f.select(inside, address, source)
        taken = f.select(inside, count, 0)
        copy_or_zero(f, row, safe, taken, count)

    def _copy_short(self, address: Value, row: Value, inside: Value, count: int) -> None:
        """Emit the copy of a few vectors, in place of a call."""
        f = self.f
        for place in range(0, count, LANES):
            there = tail_mask(f, min(count - place, LANES))
            value = load(f, f.at(address, "float", place), there, inside)
            f.store(value, f.at(row, "float", place), align=4)


def copy_or_zero(f: Function, to: Value, source: Value, taken: Int, count: Int) -> None:
    """Copy `taken` elements, followed by zeros up to `count`, rounded up to LANES."""
    f.call_part("copy_or_zero", _define_copy, to, source, f.i64(taken), f.i64(count))


def _define_copy(g: Function) -> None:
    """to[0 .. count rounded up to LANES) = from[0 .. taken), then zeros."""
    to, source, taken, count = g.params
    step = LANES * UNROLL
    many, whole = g.mul(g.udiv(taken, step), step), g.mul(g.udiv(taken, LANES), LANES)
    for begin, end, vectors in ((0, many, UNROLL), (many, whole, 1)):
        with g.loop(begin, end, LANES * vectors) as i:
            for v in range(vectors):
                at = g.add(i.index, LANES * v)
                value = g.load(VECTOR, g.at(source, "float", at), align=4)
                g.store(value, g.at(to, "float", at), align=4)
    with g.loop(whole, count, LANES) as i:
        value = load(g, g.at(source, "float", i.index), tail(g, g.sub(taken, i.index)))
        g.store(value, g.at(to, "float", i.index), align=4)
