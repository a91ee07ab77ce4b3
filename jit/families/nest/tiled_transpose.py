"""Pointwise nests that read one operand along the last loop and another across it, as a transposition does.

Such a nest is done in blocks of 16 values of the transposed loop by 16 of the last one: what lies along the
transposed loop is loaded along it, transposed in registers and put into scratch, from where the body reads it
along the last loop. At the edges of a tile the block is filled element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...llvm.abi import RT_SCRATCH
from ...llvm.access import memory_element
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value
from ...llvm.transpose import transpose
from ...loops.bodies import LANES, BodyEmitter, Position, tail_mask
from ...loops.loops import Loops
from ...loops.nontemporal import can_bypass_caches
from ...loops.strip_mining import each, rounded_down
from ...loops.tiling import Range

BLOCK = LANES * LANES
STREAM_BYTES = 4 << 20  # outputs of at least so many bytes are written past the caches


def transposed_loads(loops: Loops, transposed: int | None) -> list[int]:
    """Return the loads that lie along the loop `transposed` and are strided by the last one."""
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


def _define(element: str) -> Callable[[Function], None]:
    """Return what defines the part (source, stride, target): 16 rows of 16 elements, `stride` elements apart,
    become the rows of 16 elements at `target`."""

    def define(part: Function) -> None:
        source, stride, target = part.params
        starts = [part.at(source, element, part.mul(stride, row)) for row in range(LANES)]
        rows = [part.load(vector(element, LANES), start) for start in starts]
        for column, value in enumerate(transpose(part, rows)):
            part.store(value, part.at(target, element, column * LANES))

    return define


class Blocks:
    """Emits the blocks of such a nest; construct it in the entry block. `scratch`: the code object's."""

    variant = "tiled-transpose"

    def __init__(
        self, f: Function, loops: Loops, bodies: BodyEmitter, transposed: int, loads: list[int]
    ) -> None:
        self.f = f
        self.bodies = bodies
        self.transposed, self.last, self.loads = transposed, len(loops.domain) - 1, loads
        self.hoisted = bodies.hoistable(transposed)
        self.elements = {i: memory_element(bodies.body[i].dtype) for i in loads}
        self.places: dict[int, Value] = {}
        place = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        sizes = [BLOCK * DTYPES[bodies.body[i].dtype].bytes for i in loads]
        for i, n_bytes in zip(loads, sizes, strict=True):
            self.places[i] = place
            place = f.at(place, "i8", n_bytes)
        self.scratch = ((sum(sizes), ()),)
        self.bypasses = self._streams()

    def _streams(self) -> Value | bool:
        """Return whether stores go past the caches.

        So they do where there is one output, too large for the caches close by, and every vector stored is
        whole cache lines: these lie far from each other, and each would be read before it is written, at the
        latency of memory.
        """
        stores = [i for i in self.bodies.body if i.op == "store"]
        return len(stores) == 1 and can_bypass_caches(self.f, self.bodies, stores, self.last, STREAM_BYTES)

    def emit(self, parts: Sequence[Range]) -> None:
        """Emit the work of a tile: `parts` of the loops."""
        others = [
            part if i not in (self.transposed, self.last) else Range(0, 1) for i, part in enumerate(parts)
        ]
        each(self.f, others, lambda outer: self._tile(outer, parts[self.transposed], parts[self.last]))

    def _at(self, outer: tuple[Int, ...], transposed: Int, last: Int) -> Position:
        values = {self.transposed: transposed, self.last: last}
        return Position(tuple(values.get(i, value) for i, value in enumerate(outer)))

    def _tile(self, outer: tuple[Int, ...], transposed: Range, last: Range) -> None:
        """Emit the whole blocks, then what is left: the ends of their columns and the last rows."""
        f = self.f
        after, ends = (f.add(part.begin, rounded_down(f, part, LANES)) for part in (transposed, last))

        def blocks() -> None:
            with f.loop(transposed.begin, after, LANES) as i, f.loop(last.begin, ends, LANES) as j:
                self._block(self._at(outer, i.index, j.index), False)

        def nontemporal() -> None:
            with f.loop(last.begin, ends, LANES) as j, f.loop(transposed.begin, after, LANES) as i:
                self._block(self._at(outer, i.index, j.index), True)
            f.fence()

        f.either(self.bypasses, nontemporal, blocks)
        first, end = transposed.begin, last.end(f)
        if last.is_multiple(LANES):
            if transposed.is_multiple(LANES):
                return
            first, ends = after, last.begin
        with f.loop(first, transposed.end(f), LANES) as i:
            start = ends if transposed.is_multiple(LANES) else self._start(i.index, after, ends, last.begin)
            with f.loop(start, end, LANES) as j:
                counts = f.sub(transposed.end(f), i.index), f.sub(end, j.index)
                self._edge(self._at(outer, i.index, j.index), *(f.minimum(n, LANES) for n in counts))

    def _start(self, index: Int, after: Int, ends: Int, begin: Int) -> Int:
        """Return where what is left of the rows at `index` starts: behind whole blocks, if there were any."""
        f = self.f
        is_whole = f.less(index, after)
        return f.select(is_whole, ends, begin)

    def _block(self, at: Position, bypasses: bool) -> None:
        f = self.f
        following = replace(at, loops=(*at.loops[: self.last], f.add(at.loops[self.last], 1)))
        for i in self.loads:
            first, element = self.bodies.offset(i, at), self.elements[i]
            stride = f.i64(f.sub(self.bodies.offset(i, following), first))
            source = f.at(self._source(i), element, first)
            f.call_part(f"transpose_{element}", _define(element), source, stride, self.places[i])
        self._body(replace(at, bypasses=bypasses), LANES)

    def _edge(self, at: Position, rows: Int, columns: Int) -> None:
        f = self.f
        first, last = at.loops[self.transposed], at.loops[self.last]
        with f.loop(0, columns, nonempty=True) as column, f.loop(0, rows, nonempty=True) as row:
            here = {self.transposed: f.add(first, row.index), self.last: f.add(last, column.index)}
            place = Position(tuple(here.get(i, value) for i, value in enumerate(at.loops)))
            for i in self.loads:
                source = f.at(self._source(i), self.elements[i], self.bodies.offset(i, place))
                element = f.load(self.elements[i], source, align=DTYPES[self.bodies.body[i].dtype].bytes)
                f.store(element, self._place(i, f.add(f.mul(row.index, LANES), column.index)), align=1)
        self._body(replace(at, mask=tail_mask(f, columns)), rows)

    def _body(self, at: Position, rows: Int) -> None:
        """Emit the body for `rows` values of the transposed loop from `at`, what crosses being in scratch."""
        f = self.f
        given = self.bodies.emit(self.hoisted, at)
        ids = [i for i in self.bodies.ids if i not in given]
        first = at.loops[self.transposed]
        with f.loop(0, rows, nonempty=True) as row:
            values = dict(given)
            for i in self.loads:
                kind = vector(self.elements[i], LANES)
                raw = f.load(kind, self._place(i, f.mul(row.index, LANES)), align=1)
                values[i] = self.bodies.registers(i, raw)
            here = f.add(first, row.index)
            loops = tuple(here if i == self.transposed else value for i, value in enumerate(at.loops))
            self.bodies.emit(ids, replace(at, loops=loops), values)

    def _source(self, i: int) -> Value:
        return self.bodies.addresses[self.bodies.body[i].buffer or 0]

    def _place(self, i: int, element: Int) -> Value:
        return self.f.at(self.places[i], self.elements[i], element)
