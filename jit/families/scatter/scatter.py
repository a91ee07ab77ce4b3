"""The Scatter family: a copy of the base, then updates in order at positions chosen by an index. If the
output has the base's memory, nothing is copied.

Updates of one position must not be reordered, so a tile is one position of all axes before the chosen one,
with all updates that may reach it; if another axis is the last one, the tile is also a block of that axis,
whose lanes never conflict. The chosen axis' loop runs in order inside. A bad index is reported like a
gather's, and memory stays safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...loops.bodies import BodyEmitter, Position
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ...spec import Body, Buffer, Index, Instr, Size, Terms
from .spec import SCATTER_MODES, Scatter

BLOCK = 512  # positions of the last axis in a tile
BASE, INDEX, SOURCE, OUT = range(4)


def emit(f: Function, spec: Scatter, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Scatter; see `abi.Generator`. The one schedule is "slices"."""
    check_schedule("scatter", schedule, ["slices"])
    shape = spec.buffers[OUT].shape
    last = len(shape) - 1
    outer = [(size, 1) for size in shape[: spec.axis]]
    tiles = (*outer, (shape[last], BLOCK)) if last > spec.axis else tuple(outer)
    slices = _Slices(f, spec, sizes)
    with f.loop(f.params[3], f.params[4]) as tile:
        slices.emit(_places(f, tiles, sizes, tile.index))
    return Generated(Work(tiles, (), _cost(spec)), "slices")


def _places(f: Function, tiles: Sequence[tuple[Size, int]], sizes: Sequence[Int], tile: Value) -> list[Int]:
    """Return the number of tile `tile` along each of `tiles`."""
    counts = [f.ceildiv(resolve(size, sizes), divisor) for size, divisor in tiles]
    return f.unravel(tile, counts[1:]) if counts else []


def _cost(spec: Scatter) -> Terms:
    """Return the bytes that a tile reads and writes."""
    n_bytes = DTYPES[spec.buffers[OUT].dtype].bytes
    last = len(spec.updates) - 1
    width = BLOCK if last > spec.axis else 1
    inner = slice(spec.axis, last if last > spec.axis else last + 1)
    return (
        (2 * n_bytes * width, spec.buffers[OUT].shape[inner]),
        ((3 * n_bytes + 8) * width, spec.updates[inner]),
    )


def copy_of(spec: Scatter) -> Body:
    """Return the copy of the base as a body over the axes of the output."""
    dtype, shape = spec.buffers[OUT].dtype, spec.buffers[OUT].shape
    every = tuple(Index(loop=a) for a in range(len(shape)))
    load = Instr("load", dtype, buffer=BASE, index=_along(spec.buffers[BASE], shape))
    return load, Instr("store", dtype, (0,), buffer=OUT, index=every)


def body_of(spec: Scatter) -> Body:
    """Return one update as a body over the loops `updates`; its last instruction is the store."""
    dtype = spec.buffers[OUT].dtype
    at_index, at_source = (_along(spec.buffers[b], spec.updates) for b in (INDEX, SOURCE))
    body = [
        Instr("load", spec.buffers[INDEX].dtype, buffer=INDEX, index=at_index),
        Instr("load", dtype, buffer=SOURCE, index=at_source),
    ]
    place = tuple(Index(value=0) if a == spec.axis else Index(loop=a) for a in range(len(spec.updates)))
    combine = SCATTER_MODES[spec.mode]
    if combine:
        body += [Instr("load", dtype, buffer=OUT, index=place), Instr(combine, dtype, (2, 1))]
    return (*body, Instr("store", dtype, (len(body) - 1,), buffer=OUT, index=place))


def _along(buffer: Buffer, loops: Sequence[Size]) -> tuple[Index, ...]:
    """Return the access of a buffer whose axes are as long as `loops`, or 1."""
    return tuple(
        Index() if size == 1 else Index(loop=a)
        for a, (size, _) in enumerate(zip(buffer.shape, loops, strict=True))
    )


class _Slices:
    """Emits tiles; construct it in the entry block."""

    def __init__(self, f: Function, spec: Scatter, sizes: Sequence[Int]) -> None:
        self.f, self.axis = f, spec.axis
        shape = spec.buffers[OUT].shape
        self.last = len(shape) - 1
        self.shape = [resolve(size, sizes) for size in shape]
        self.updates = [resolve(size, sizes) for size in spec.updates]
        in_lanes = self.last if self.last > self.axis else None
        base, out = (f.load("ptr", f.at(f.params[0], "ptr", b), align=8) for b in (BASE, OUT))
        self.is_apart = f.op("i1", f"icmp ne ptr {base.name}, {out.name}")
        self.copy = BodyEmitter(f, copy_of(spec), spec.buffers, sizes, vector_loop=self.last)
        self.update = BodyEmitter(f, body_of(spec), spec.buffers, sizes, vector_loop=in_lanes)

    def emit(self, places: Sequence[Int]) -> None:
        """Emit the tile at `places`: of the axes before the chosen one, then the block of the last axis."""
        outer = tuple(places[: self.axis])
        block = places[self.axis] if self.last > self.axis else None
        with self.f.when(self.is_apart):
            self._each(outer, self.shape, self._copy(block))
        self._if_updated(outer, 0, lambda: self._each(outer, self.updates, self._update(block)))

    def _if_updated(self, outer: tuple[Int, ...], a: int, run: Callable[[], None]) -> None:
        """Emit `run` for a slice inside the updates, which may be fewer than out's places along an axis."""
        if a == len(outer):
            run()
        elif self.updates[a] == self.shape[a]:
            self._if_updated(outer, a + 1, run)
        else:
            with self.f.when(self.f.less(outer[a], self.updates[a])):
                self._if_updated(outer, a + 1, run)

    def _each(
        self, outer: tuple[Int, ...], extents: Sequence[Int], inner: Callable[[tuple[Int, ...]], None]
    ) -> None:
        """Run `inner` at each place of the axes from the chosen one up to the last, without it."""
        if len(outer) == self.last:
            inner(outer)
            return
        with self.f.loop(0, extents[len(outer)]) as loop:
            self._each((*outer, loop.index), extents, inner)

    def _block(self, block: Int | None, extent: Int) -> Range:
        """Return the part of the last axis that a tile does; of `extent` places there."""
        if block is None:
            return Range(0, extent)
        f = self.f
        begin = f.mul(block, BLOCK)
        left = f.sub(extent, begin)
        if extent != self.shape[self.last]:  # the updates may end before the block begins
            left = f.maximum(left, 0)
        return Range(begin, f.minimum(BLOCK, left))

    def _copy(self, block: Int | None) -> Callable[[tuple[Int, ...]], None]:
        part = self._block(block, self.shape[self.last])
        return lambda outer: self._strip(self.copy, outer, part, 0)

    def _update(self, block: Int | None) -> Callable[[tuple[Int, ...]], None]:
        if block is not None:
            part = self._block(block, self.updates[self.last])
            return lambda outer: self._strip(self.update, outer, part, 2)
        return self._one_by_one

    def _strip(self, bodies: BodyEmitter, outer: tuple[Int, ...], part: Range, n_inputs: int) -> None:
        """Emit `bodies` along the last axis; of its first `n_inputs` what is fixed there is read once."""
        fixed = bodies.hoistable(self.last, range(n_inputs))
        given = bodies.emit(fixed, Position((*outer, 0)))

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            bodies.emit(bodies.ids, Position((*outer, index), mask), given)
            return state

        strip(self.f, part, 1, chunk)

    def _one_by_one(self, outer: tuple[Int, ...]) -> None:
        with self.f.loop(0, self.updates[self.last]) as loop:
            self.update.emit(self.update.ids, Position((*outer, loop.index)))
