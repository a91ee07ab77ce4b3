"""The Nonzero family: the indices of a mask's true elements, in order.

One tile: an element's destination depends on all previous ones. LANES elements of the mask become the bits of
a number; the indices of those that are set are stored contiguously (`llvm.masked.compressstore`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat_int
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.vector import Vec
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from .spec import Nonzero, accesses


def emit(f: Function, spec: Nonzero, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Nonzero; see `abi.Generator`. The one schedule is "chunks"."""
    check_schedule("nonzero", schedule, ["chunks"])
    length, count = (resolve(size, sizes) for size in (spec.length, spec.count))
    mask, out = (Operand.of(f, spec, access, sizes).at([]) for access in accesses(spec))

    def chunk(index: Int, lanes: Value | None, state: State) -> State:
        held = Accessor(f, mask, "bool", lanes).load(Access(index, 1))
        return [_add(f, out, held, index, state[0], count)]

    with f.when(f.less(f.params[3], f.params[4])):
        (found,) = strip(f, Range(0, length), 1, chunk, [Value("i64", "0")])
        with f.loop(found, count) as rest:
            f.store(Value("i64", "-1"), f.at(out, "i64", rest.index), align=8)
    cost = ((DTYPES["bool"].bytes, (spec.length,)), (DTYPES["i64"].bytes, (spec.count,)))
    return Generated(Work((), (), cost), "chunks")


def _add(f: Function, out: Value, held: Vec, index: Int, found: Value, count: Int) -> Value:
    """Store the indices index + lane of true lanes after the first `found`, at most `count` in all; return
    the new number."""
    bits = f.op(f"i{LANES}", f"bitcast {held.value.type} {held.value.name} to i{LANES}")
    n = f.call(f"i{LANES}", f"llvm.ctpop.i{LANES}", bits)
    after = f.i64(f.add(found, f.op("i64", f"zext i{LANES} {n.name} to i64")))
    fits = f.op("i1", f"icmp sle i64 {after.name}, {f.i64(count).name}")
    with f.when(fits):
        places = splat_int(f, index, step=1)
        start = f.at(out, "i64", found)
        f.call("void", f"llvm.masked.compressstore.v{LANES}i64", places, start, held.value)
    with f.when(f.op("i1", f"xor i1 {fits.name}, true")):
        _add_some(f, out, bits, index, found, count)
    return f.i64(f.minimum(after, count))


def _add_some(f: Function, out: Value, bits: Value, index: Int, found: Value, count: Int) -> None:
    """Store indices one by one up to `count`."""
    wide = f.op("i64", f"zext i{LANES} {bits.name} to i64")
    with f.loop(0, LANES, 1, [found]) as lane:
        bit = f.op("i64", f"lshr i64 {wide.name}, {lane.index.name}")
        is_set = f.op("i1", f"trunc i64 {bit.name} to i1")
        wanted = f.op("i1", f"and i1 {is_set.name}, {f.less(lane.carried[0], count).name}")
        with f.when(wanted):
            f.store(f.i64(f.add(index, lane.index)), f.at(out, "i64", lane.carried[0]), align=8)
        step = f.op("i64", f"zext i1 {wanted.name} to i64")
        lane.next(f.i64(f.add(lane.carried[0], step)))
