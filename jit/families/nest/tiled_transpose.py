"""Pointwise nests that read one operand along the last loop and another across it, like a transposition.

Such a nest is done in blocks of 16 values of the transposed loop by 16 of the last one: operands along the
transposed loop are loaded along it, transposed in registers and stored: by copies at the destination, else in
scratch, from which the body reads along the last loop. The remainder at the edges of a tile is a block that
overlaps others, if sizes are known and nothing changes in place; else it is filled element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...llvm.abi import RT_SCRATCH
from ...llvm.access import memory_element
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES, prefetch, unread
from ...llvm.transpose import transpose
from ...llvm.vector import AVX512_BYTES
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...loops.loops import Loops
from ...loops.nontemporal import can_bypass_caches
from ...loops.strip_mining import each, rounded_down
from ...loops.tiling import Range
from ...spec import Instr, Terms
from .quarters import N_BYTES, Rows, emit_block

BLOCK = LANES * LANES
FEW_SETS = 1024  # bytes from row to row, or a multiple, at which a block's lines share few sets of a cache
SET_BYTES = 4096  # from line to line that share one set
MUCH = 4  # times as long: rows written are then much longer than those read
LEFT = 4  # rows or columns after whole blocks from which a block is faster
STREAM_BYTES = 4 << 20  # outputs of at least this many bytes bypass the caches


def transposed_loads(loops: Loops, transposed: int | None) -> list[int]:
    """Return the loads that are contiguous along the loop `transposed` and strided along the last one."""
    last = len(loops.domain) - 1
    found = []
    for i, instr in enumerate(loops.body):
        if instr.op != "load" or any(x.value is not None for x in instr.index) or not instr.index:
            continue
        *outer, inner = instr.index
        along = [x for x in outer if x.loop == transposed]
        if inner.loop == transposed and inner.scale == 1 and not along and any(x.loop == last for x in outer):
            found.append(i)
    return found


def is_copy(loops: Loops) -> bool:
    """Whether the body is a load and a store along the last loop."""
    return [i.op for i in loops.body] == ["load", "store"] and _lies_along(
        loops.body[1], len(loops.domain) - 1
    )


def may_repeat(loops: Loops, transposed: int, crossing: Sequence[int]) -> bool:
    """Whether a body may run twice: it reads nothing elementwise, as from an array changed in place, except
    the transposed loads."""
    last = len(loops.domain) - 1
    for i, instr in enumerate(loops.body):
        read = {place.loop for place in instr.index} if instr.op == "load" and i not in crossing else set()
        if {transposed, last} <= read:
            return False
    return True


def _lies_along(store: Instr, loop: int) -> bool:
    """Return whether a store is contiguous along `loop`."""
    *outer, inner = store.index
    is_direct = all(place.value is None for place in store.index)
    return is_direct and (inner.loop, inner.scale) == (loop, 1) and all(x.loop != loop for x in outer)


def scatters_writes(read: int, written: int) -> bool:
    """Whether blocks advance along the rows that they read, for rows this many bytes apart: if rows written
    do not map to few sets of the first-level cache, and are whole lines and not much longer than those read,
    or the latter map to few sets; or if only the latter map to one set."""
    falls_on_one = read % SET_BYTES == 0 and written % SET_BYTES != 0
    are_short_lines = written % LINE_BYTES == 0 and written <= MUCH * read
    falls_on_few = written % FEW_SETS == 0
    return falls_on_one or (not falls_on_few and (are_short_lines or read % (2 * FEW_SETS) == 0))


@dataclass(frozen=True)
class Transposition:
    """A part (source, stride, target, [pitch]): the columns of 16 rows of 16 elements, `stride` elements
    apart, become rows `pitch` elements apart at `target`.

    `n_bytes`: of an element. `reads_ahead`, `writes_ahead`: it prefetches the lines that the next blocks read
    or write; each is in a separate row, which the hardware prefetcher does not predict. `streams`: its stores
    of whole lines bypass the caches.
    """

    element: str
    n_bytes: int
    reads_ahead: bool = False
    writes_ahead: bool = False
    streams: bool = False

    def call(self, f: Function, source: Value, stride: Int, target: Value, pitch: Int | None = None) -> None:
        """Call it; without a pitch its rows are contiguous, as in scratch."""
        name = "transpose" if pitch is None else "stream" if self.streams else "copy"
        places = [source, f.i64(stride), target, *([] if pitch is None else [f.i64(pitch)])]
        f.call_part(f"{name}_{self.element}", self._define, *places)

    def _define(self, part: Function) -> None:
        source, stride, target, *rest = part.params
        pitch = rest[0] if rest else LANES
        sources, targets = (
            [part.at(first, self.element, part.mul(step, row)) for row in range(LANES)]
            for first, step in ((source, stride), (target, pitch))
        )
        n_ahead = max(LANES, LINE_BYTES // self.n_bytes)
        for place in [*(sources if self.reads_ahead else []), *(targets if self.writes_ahead else [])]:
            prefetch(part, unread(part, place, n_ahead, self.element), 3)
        if self.n_bytes == N_BYTES and not self.streams and part.register_bytes < AVX512_BYTES:
            emit_block(part, self.element, Rows(source, stride), Rows(target, pitch))
            return
        columns = transpose(part, [part.load(vector(self.element, LANES), place) for place in sources])
        for value, place in zip(columns, targets, strict=True):
            (part.stream if self.streams else part.store)(value, place)


class Places(NamedTuple):
    """The positions of the loads and stores of such a nest."""

    f: Function
    bodies: BodyEmitter
    transposed: int
    last: int

    def at(self, outer: tuple[Int, ...], transposed: Int, last: Int) -> Position:
        """Return the position for two values of the crossing loops, and `outer` of the others."""
        values = {self.transposed: transposed, self.last: last}
        return Position(tuple(values.get(i, value) for i, value in enumerate(outer)))

    def stride(self, i: int, at: Position, loop: int) -> Int:
        """Return the stride in elements of load or store i at `at` along `loop`."""
        f = self.f
        loops = tuple(f.add(value, int(n == loop)) for n, value in enumerate(at.loops))
        return f.sub(self.bodies.offset(i, replace(at, loops=loops)), self.bodies.offset(i, at))

    def address(self, i: int, at: Position) -> Value:
        """Return the address of load or store i at `at`."""
        buffer = self.bodies.addresses[self.bodies.body[i].buffer or 0]
        return self.f.at(buffer, self.element(i), self.bodies.offset(i, at))

    def element(self, i: int) -> str:
        """Return the LLVM type in memory of load or store i."""
        return memory_element(self.bodies.body[i].dtype)


class Blocks:
    """Emits the blocks of such a nest; construct it in the entry block. `scratch`: the code object's. `asks`:
    whether copies prefetch the lines of the next blocks."""

    def __init__(
        self, f: Function, loops: Loops, bodies: BodyEmitter, transposed: int, loads: list[int], asks: bool
    ) -> None:
        self.f = f
        self.bodies, self.asks = bodies, asks
        self.transposed, self.loads = transposed, loads
        self.crossing = Places(f, bodies, transposed, len(loops.domain) - 1)
        self.hoisted = bodies.hoistable(transposed)
        self.is_copy = is_copy(loops)
        self.overlaps = self._overlaps(loops)
        self.places: dict[int, Value] = {}
        self.scratch: Terms = () if self.overlaps and self.is_copy else self._take_scratch()
        self.bypasses = self._streams()

    def _overlaps(self, loops: Loops) -> bool:
        """Return whether the remainder after whole blocks is done by blocks that overlap these: if an element
        may be stored twice, and sizes are known to be large enough."""
        both = (loops.domain[loop] for loop in (self.transposed, self.crossing.last))
        sizes = [size for size in both if isinstance(size, int) and size >= LANES]
        found = len(sizes) == 2 and (self.is_copy or self._pays(loops, sizes))
        if found:
            self.f.takes("overlapping")
        return found

    def _pays(self, loops: Loops, sizes: Sequence[int]) -> bool:
        """Return whether a body may run twice for some elements, and a whole block is faster than the
        remainder by itself."""
        left = [size % LANES for size in sizes]
        return may_repeat(loops, self.transposed, self.loads) and all(n == 0 or n >= LEFT for n in left)

    def _take_scratch(self) -> Terms:
        """Give each transposed load a block of scratch; return the code object's scratch."""
        place, total = self.f.load("ptr", self.f.at(self.f.params[2], "i8", RT_SCRATCH), align=8), 0
        for i in self.loads:
            n_bytes = BLOCK * DTYPES[self.bodies.body[i].dtype].bytes
            self.places[i] = place
            place, total = self.f.at(place, "i8", n_bytes), total + n_bytes
        return ((total, ()),)

    def _streams(self) -> Value | bool:
        """Return whether stores bypass the caches.

        They do if there is one output, too large for the near caches, and every stored vector is whole cache
        lines: these are far apart, and each would be read before it is written, at memory latency.
        """
        stores = [i for i in self.bodies.body if i.op == "store"]
        return len(stores) == 1 and can_bypass_caches(
            self.f, self.bodies, stores, self.crossing.last, STREAM_BYTES
        )

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""
        others = [
            part if i not in (self.transposed, self.crossing.last) else Range(0, 1)
            for i, part in enumerate(parts)
        ]
        each(
            self.f, others, lambda outer: self._tile(outer, parts[self.transposed], parts[self.crossing.last])
        )

    @contextmanager
    def _steps(self, part: Range, after: Int) -> Iterator[Int]:
        """Emit a loop over the starts of the blocks of `part`: the whole ones, up to `after`, or, if blocks
        overlap, all, the last of which ends at the part's end."""
        f, end = self.f, part.end(self.f)
        with f.loop(part.begin, end if self.overlaps else after, LANES) as step:
            is_whole = part.is_multiple(LANES) or not self.overlaps
            yield step.index if is_whole else f.minimum(step.index, f.sub(end, LANES))

    def _tile(self, outer: tuple[Int, ...], transposed: Range, last: Range) -> None:
        """Emit the whole blocks, then the remainder: the ends of their columns and the last rows."""
        f = self.f
        after, ends = (f.add(part.begin, rounded_down(f, part, LANES)) for part in (transposed, last))

        def along_writes() -> None:
            with self._steps(transposed, after) as i, self._steps(last, ends) as j:
                self._block(self.crossing.at(outer, i, j), False)

        def along_reads(bypasses: bool) -> None:
            with self._steps(last, ends) as j, self._steps(transposed, after) as i:
                self._block(self.crossing.at(outer, i, j), bypasses)

        def nontemporal() -> None:
            along_reads(True)
            f.fence()

        reads_first = not self.asks and self._scatters_writes()
        f.either(self.bypasses, nontemporal, (lambda: along_reads(False)) if reads_first else along_writes)
        if self.overlaps:
            return
        first, end = transposed.begin, last.end(f)
        if last.is_multiple(LANES):
            if transposed.is_multiple(LANES):
                return
            first, ends = after, last.begin
        with f.loop(first, transposed.end(f), LANES) as i:
            start = ends if transposed.is_multiple(LANES) else self._start(i.index, after, ends, last.begin)
            with f.loop(start, end, LANES) as j:
                counts = f.sub(transposed.end(f), i.index), f.sub(end, j.index)
                self._edge(self.crossing.at(outer, i.index, j.index), *(f.minimum(n, LANES) for n in counts))

    def _scatters_writes(self) -> bool:
        """Whether blocks without prefetching advance along the rows that they read."""
        if not self.is_copy:
            return False
        load, store = self.bodies.ids
        at = self.crossing.at((0,) * (self.crossing.last + 1), 0, 0)
        read = self.crossing.stride(load, at, self.crossing.last)
        written = self.crossing.stride(store, at, self.transposed)
        if not (isinstance(read, int) and isinstance(written, int)):
            return False
        n_bytes = DTYPES[self.bodies.body[0].dtype].bytes
        return scatters_writes(read * n_bytes, written * n_bytes)

    def _start(self, index: Int, after: Int, ends: Int, begin: Int) -> Int:
        """Return the start of the remainder of the rows at `index`: after whole blocks, if any."""
        f = self.f
        is_whole = f.less(index, after)
        return f.select(is_whole, ends, begin)

    def _block(self, at: Position, bypasses: bool) -> None:
        f = self.f
        for i in self.loads:
            source, stride = self.crossing.address(i, at), self.crossing.stride(i, at, self.crossing.last)
            element, n_bytes = self.crossing.element(i), DTYPES[self.bodies.body[i].dtype].bytes
            if not self.is_copy:
                Transposition(element, n_bytes).call(f, source, stride, self.places[i])
                continue
            store = self.bodies.ids[-1]
            target, pitch = self.crossing.address(store, at), self.crossing.stride(store, at, self.transposed)
            part = Transposition(element, n_bytes, self.asks, self.asks and not bypasses, bypasses)
            part.call(f, source, stride, target, pitch)
        if not self.is_copy:
            self._body(replace(at, bypasses=bypasses), LANES)

    def _edge(self, at: Position, rows: Int, columns: Int) -> None:
        f = self.f
        first, last = at.loops[self.transposed], at.loops[self.crossing.last]
        with f.loop(0, columns, nonempty=True) as column, f.loop(0, rows, nonempty=True) as row:
            here = {self.transposed: f.add(first, row.index), self.crossing.last: f.add(last, column.index)}
            place = Position(tuple(here.get(i, value) for i, value in enumerate(at.loops)))
            for i in self.loads:
                n_bytes = DTYPES[self.bodies.body[i].dtype].bytes
                element = f.load(self.crossing.element(i), self.crossing.address(i, place), align=n_bytes)
                f.store(element, self._place(i, f.add(f.mul(row.index, LANES), column.index)), align=1)
        self._body(replace(at, mask=tail_mask(f, columns)), rows)

    def _body(self, at: Position, rows: Int) -> None:
        """Emit the body for `rows` values of the transposed loop from `at`, with the transposed operands in
        scratch."""
        f = self.f
        given = self.bodies.emit(self.hoisted, at)
        first, ids = at.loops[self.transposed], [i for i in self.bodies.ids if i not in given]
        with f.loop(0, rows, nonempty=True) as row:
            values = dict(given)
            for i in self.loads:
                raw = f.load(vector(self.crossing.element(i), LANES), self._place(i, f.mul(row.index, LANES)))
                values[i] = self.bodies.registers(i, raw)
            here = f.add(first, row.index)
            loops = tuple(here if i == self.transposed else value for i, value in enumerate(at.loops))
            self.bodies.emit(ids, replace(at, loops=loops), values)

    def _place(self, i: int, element: Int) -> Value:
        return self.f.at(self.places[i], self.crossing.element(i), element)
