"""Nests with a strided loop of few iterations, such as layout changes of images of 3 channels.

The channels of LANES pixels are as many adjacent vectors in memory. When they are read, or in a copy when
they are written, these vectors are converted to one vector of each channel in registers. The remainder after
whole vectors of pixels is done by the body, masked.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...llvm.access import memory_element
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value
from ...llvm.transpose import deinterleave, interleave
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...loops.loops import Loops
from ...loops.strip_mining import each, rounded_down
from ...loops.tiling import Range, transposed_loop
from ...spec import Index, Instr, Terms
from .tiled_transpose import transposed_loads

MAX_NARROW = 8  # iterations: each takes one shuffle less than there are


def narrow_loop(loops: Loops) -> int | None:
    """Return the loop of few iterations that such a nest crosses, None for other nests."""
    last, other = len(loops.domain) - 1, transposed_loop(loops)
    if other is None:
        return None
    loads = transposed_loads(loops, other)
    if (
        _is_narrow(loops, other)
        and loads
        and all(_is_pixel(loops, loops.body[i], last, other) for i in loads)
    ):
        return other
    load, store = loops.body[0], loops.body[-1]
    is_copy = [instr.op for instr in loops.body] == ["load", "store"] and loads == [0]
    is_crossed = is_copy and _is_narrow(loops, last) and _is_pixel(loops, store, other, last)
    return last if is_crossed and load.index[-1] == Index(loop=other) else None


def _is_narrow(loops: Loops, loop: int) -> bool:
    size = loops.domain[loop]
    return isinstance(size, int) and 1 < size <= MAX_NARROW


def _is_pixel(loops: Loops, instr: Instr, pixels: int, channels: int) -> bool:
    """Whether a load or store takes its whole last axis along `channels`, at adjacent `pixels`."""
    assert instr.buffer is not None
    *outer, row, column = instr.index if len(instr.index) > 1 else (Index(), Index())
    is_whole = loops.buffers[instr.buffer].shape[-1] == loops.domain[channels]
    is_apart = all(place.value is None and place.loop not in (pixels, channels) for place in outer)
    return is_whole and is_apart and (row, column) == (Index(loop=pixels), Index(loop=channels))


class Narrow:
    """Emits the blocks of such a nest; construct it in the entry block."""

    scratch: Terms = ()

    def __init__(self, f: Function, loops: Loops, bodies: BodyEmitter, narrow: int) -> None:
        self.f, self.loops, self.bodies, self.narrow = f, loops, bodies, narrow
        other = transposed_loop(loops)
        assert other is not None
        self.last = len(loops.domain) - 1
        self.pixels = self.last if narrow == other else other
        count = loops.domain[narrow]
        assert isinstance(count, int)
        self.count = count
        self.loads = transposed_loads(loops, other)

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops, all of the narrow one."""
        f, pixels = self.f, parts[self.pixels]
        block = self._gathered if self.narrow != self.last else self._spread
        others = [
            part if i not in (self.narrow, self.pixels) else Range(0, 1) for i, part in enumerate(parts)
        ]
        after = f.add(pixels.begin, rounded_down(f, pixels, LANES))

        def line(outer: tuple[Int, ...]) -> None:
            with f.loop(pixels.begin, after, LANES) as at:
                block(outer, at.index)
            if not pixels.is_multiple(LANES):
                self._rest(outer, after, pixels.end(f))

        each(f, others, line)

    def _at(self, outer: tuple[Int, ...], pixel: Int, channel: Int, mask: Value | None = None) -> Position:
        values = {self.pixels: pixel, self.narrow: channel}
        return Position(tuple(values.get(i, value) for i, value in enumerate(outer)), mask)

    def _gathered(self, outer: tuple[Int, ...], pixel: Int) -> None:
        """Emit the body for each channel of LANES adjacent pixels that are read."""
        bodies, given = self.bodies, dict[int, list[Value]]()
        for i in self.loads:
            places = self._side_by_side(i, self._at(outer, pixel, 0))
            given[i] = deinterleave(self.f, [self._load(i, place) for place in places])
        for channel in range(self.count):
            values = {i: bodies.registers(i, vectors[channel]) for i, vectors in given.items()}
            bodies.emit(bodies.ids, self._at(outer, pixel, channel), values)

    def _spread(self, outer: tuple[Int, ...], pixel: Int) -> None:
        """Emit the copy of LANES adjacent pixels that are written."""
        load, store = self.bodies.ids
        channels = [self._address(load, self._at(outer, pixel, channel)) for channel in range(self.count)]
        targets = self._side_by_side(store, self._at(outer, pixel, 0))
        pixels = interleave(self.f, [self._load(load, place) for place in channels])
        for value, place in zip(pixels, targets, strict=True):
            self.f.store(value, place)

    def _rest(self, outer: tuple[Int, ...], begin: Int, end: Int) -> None:
        """Emit the body for fewer than LANES pixels, in vectors along the last loop."""
        f, bodies = self.f, self.bodies
        if self.narrow != self.last:
            with f.when(f.less(begin, end)), f.loop(0, self.count) as channel:
                bodies.emit(
                    bodies.ids, self._at(outer, begin, channel.index, tail_mask(f, f.sub(end, begin)))
                )
            return
        with f.loop(begin, end) as pixel:
            bodies.emit(bodies.ids, self._at(outer, pixel.index, 0, tail_mask(f, self.count)))

    def _side_by_side(self, i: int, at: Position) -> list[Value]:
        """Return the addresses of the vectors of load or store i from `at` on."""
        first = self._address(i, at)
        return [self.f.at(first, self._element(i), LANES * number) for number in range(self.count)]

    def _address(self, i: int, at: Position) -> Value:
        buffer = self.bodies.addresses[self.bodies.body[i].buffer or 0]
        return self.f.at(buffer, self._element(i), self.bodies.offset(i, at))

    def _load(self, i: int, place: Value) -> Value:
        n_bytes = DTYPES[self.bodies.body[i].dtype].bytes
        return self.f.load(vector(self._element(i), LANES), place, align=n_bytes)

    def _element(self, i: int) -> str:
        return memory_element(self.bodies.body[i].dtype)
