"""The Nms family: non-maximum suppression of boxes that come best first.

One tile: whether a box stays depends on all previous ones. Each box that stays is compared with LANES later
ones at a time; the result is the list of boxes that stay so far, so no other memory is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec, select
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from .spec import Nms, accesses


def emit(f: Function, spec: Nms, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Nms; see `abi.Generator`. The one schedule is "lanes"."""
    check_schedule("nms", schedule, ["lanes"])
    boxes = _Boxes(f, spec, sizes)
    with f.when(f.less(f.params[3], f.params[4])):
        boxes.emit()
    cost = ((16 * DTYPES[boxes.dtype].bytes, (spec.count,)),)
    return Generated(Work((), (), cost), "lanes")


class _Boxes:
    """Emits the comparisons; construct it in the entry block."""

    def __init__(self, f: Function, spec: Nms, sizes: Sequence[Int]) -> None:
        touched = accesses(spec)
        self.f, self.count = f, resolve(spec.count, sizes)
        self.dtype = spec.buffers[touched.corners.buffer].dtype
        self.corners, threshold, kept = (Operand.of(f, spec, access, sizes) for access in touched)
        self.kept = kept.at([])
        self.threshold = Vec(f, f.splat(f.load("double", threshold.at([]), align=8), LANES))

    def emit(self) -> None:
        """Emit all comparisons."""
        f = self.f

        def keep(index: Int, mask: Value | None, state: State) -> State:
            Accessor(f, self.kept, "bool", mask).store(Access(index, 1), Vec(f, splat(f, "bool", True)))
            return state

        strip(f, Range(0, self.count), 1, keep)
        with f.loop(0, self.count) as box:
            stays = f.load("i8", f.at(self.kept, "i8", box.index))
            with f.when(f.op("i1", f"icmp ne i8 {stays.name}, 0")):
                self._suppress(box.index)

    def _suppress(self, box: Int) -> None:
        """Emit that a box suppresses later ones."""
        f = self.f
        one = self._load(box, 0, None)
        area = _area(one)
        first = f.add(box, 1)

        def chunk(index: Int, mask: Value | None, state: State) -> State:
            others = self._load(index, 1, mask)
            width, height = _common(one, others, 0), _common(one, others, 1)
            both = width * height
            quotient = both / (area + _area(others) - both)
            wide = quotient if self.dtype == "f64" else quotient.convert("fpext", "double")
            kept = Accessor(f, self.kept, "bool", mask)
            stay = kept.load(Access(index, 1)) & ~wide.gt(self.threshold)
            kept.store(Access(index, 1), stay)
            return state

        strip(f, Range(first, f.sub(self.count, first)), 1, chunk)

    def _load(self, index: Int, stride: int, mask: Value | None) -> list[Vec]:
        """Load x1, y1, x2, y2 of the boxes at `index`, one or LANES of them."""
        source = Accessor(self.f, self.corners.base, self.dtype, mask)
        places = [self.corners.offset([corner, index]) for corner in range(4)]
        return [source.load(Access(place, stride)) for place in places]


def _area(box: Sequence[Vec]) -> Vec:
    return (box[2] - box[0]) * (box[3] - box[1])


def _common(one: Sequence[Vec], others: Sequence[Vec], axis: int) -> Vec:
    """Return the size of the overlap of boxes along an axis, at least 0."""
    low = select(one[axis].lt(others[axis]), others[axis], one[axis])
    high = select(others[axis + 2].lt(one[axis + 2]), others[axis + 2], one[axis + 2])
    size = high - low
    return select(size.gt(0.0), size, 0.0)
