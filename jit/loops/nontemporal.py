"""Nontemporal stores, which bypass the caches: for outputs that are too large to stay there until they are
read.

A line that is stored whole is then not read before it is written, which saves a third of a copy's traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..llvm.abi import resolve
from ..llvm.access import memory_element
from ..llvm.dtypes import DTYPES
from ..llvm.function import Function, Int, Value, least, most
from ..llvm.prefetch import LINE_BYTES, prefetch, unread
from ..spec import Instr
from .bodies import LANES, BodyEmitter, Position, is_along
from .loops import Loops

AHEAD = 4096  # bytes: where a pass over memory reads next
LEAST_BYTES = 16 << 20  # of an output; less may still be in the last cache when it is read


def bypasses(f: Function, loops: Loops, bodies: BodyEmitter, stores: Sequence[Instr]) -> Value | bool:
    """Return whether a nest's `stores` along its last loop go past the caches: where sizes are known.

    Elsewhere both ways would be code of every kernel, for sizes that are rare.
    """
    last = len(loops.domain) - 1
    along = [i for i in stores if any(place.loop == last for place in i.index)]
    is_known = all(isinstance(size, int) for size in bodies.sizes)
    return is_known and can_bypass_caches(f, bodies, along, last, LEAST_BYTES)


def read_ahead(
    f: Function,
    bodies: BodyEmitter,
    ids: Sequence[int],
    at: Position,
    n_bytes: int = AHEAD,
    level: int = 3,
) -> None:
    """Prefetch the data that the loads among `ids` along the innermost loop read `n_bytes` later, see
    `jit.llvm.prefetch`. A gathered row ends before that, and the next one may be anywhere."""
    last = len(at.loops) - 1
    for i in ids:
        instr = bodies.body[i]
        if instr.op == "load" and is_along(instr, last):
            assert instr.buffer is not None
            element = memory_element(instr.dtype)
            place = f.add(bodies.offset(i, at), n_bytes // DTYPES[instr.dtype].bytes)
            prefetch(f, unread(f, bodies.addresses[instr.buffer], place, element), level)


def either_way(f: Function, bypasses: Value | bool, run: Callable[[bool], None]) -> None:
    """Emit `run(True)` and a fence where stores go past the caches, `run(False)` elsewhere."""

    def past() -> None:
        f.takes("nontemporal")
        run(True)
        f.fence()

    f.either(bypasses, past, lambda: run(False))


def can_bypass_caches(
    f: Function, bodies: BodyEmitter, stores: Sequence[Instr], last: int, n_least: int
) -> Value | bool:
    """Return whether all `stores` are contiguous along the loop `last` in whole lines, in outputs of
    `n_least` bytes."""
    answer: Value | bool = bool(stores)
    for store in stores:
        assert store.buffer is not None
        buffer = bodies.buffers[store.buffer]
        n_bytes = DTYPES[buffer.dtype].bytes
        sizes = [resolve(size, bodies.sizes) for size in buffer.shape]
        total: Int = n_bytes
        for size in sizes:
            total = f.mul(total, size)
        top = most(total)
        is_small = top is not None and top < n_least
        if not is_along(store, last) or is_small or n_bytes * LANES % LINE_BYTES:
            return False
        pitch = f.mul(sizes[-1], n_bytes) if len(sizes) > 1 else 0
        answer = _and(f, answer, _is_aligned(f, bodies.addresses[store.buffer], pitch))
        if least(total) < n_least:
            answer = _and(f, answer, f.less(n_least - 1, total))
    return answer


def _is_aligned(f: Function, address: Value, pitch: Int) -> Value:
    """Return whether an address and the bytes from one row to the next are whole lines."""
    bits = f.op("i64", f"ptrtoint ptr {address.name} to i64")
    low = f.op("i64", f"or i64 {bits.name}, {f.i64(pitch).name}")
    low = f.op("i64", f"and i64 {low.name}, {LINE_BYTES - 1}")
    return f.op("i1", f"icmp eq i64 {low.name}, 0")


def _and(f: Function, a: Value | bool, b: Value) -> Value | bool:
    if isinstance(a, bool):
        return b if a else False
    return f.op("i1", f"and i1 {a.name}, {b.name}")
