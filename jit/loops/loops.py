"""Loops of a nest made few and long: sizes filled in, loops of size 1 dropped, adjacent loops merged.

The computation stays the same element for element, so does the order of a reduction (the row loop is never
merged); only the code gets shorter and its vectors fuller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..llvm.abi import resolve
from ..llvm.function import Function, Int
from ..spec import Body, Buffer, Dim, Index, Instr, Nest, Size


@dataclass(frozen=True)
class Loops:
    """A nest ready to emit.

    `domain[i]` is the size of loop i and `factors[i]` the spec's sizes whose product it is, outermost first.
    `sizes`: the values of the Dims, the spec's first, then products that merging made.
    """

    domain: tuple[Size, ...]
    factors: tuple[tuple[Size, ...], ...]
    buffers: tuple[Buffer, ...]
    body: Body
    sizes: list[Int]

    def extent(self, loop: int) -> Int:
        """Return the number of iterations of `loop`."""
        return resolve(self.domain[loop], self.sizes)


def moved_last(spec: Nest, loop: int) -> Nest:
    """Return `spec` with `loop` right before the last loop."""
    row = len(spec.domain) - 1
    order = [i for i in range(row) if i != loop] + [loop, row]
    place = {old: new for new, old in enumerate(order)}

    def moved(old: int | None) -> int | None:
        return None if old is None else place[old]

    def instr(i: Instr) -> Instr:
        return replace(i, loop=moved(i.loop), index=tuple(replace(x, loop=moved(x.loop)) for x in i.index))

    return replace(spec, domain=tuple(spec.domain[i] for i in order), body=tuple(map(instr, spec.body)))


def simplify(f: Function, spec: Nest, sizes: Sequence[Int], row: bool, columns: bool = False) -> Loops:
    """Return the loops of `spec`; `row`: the last one is the row loop and is unchanged; `columns`: the one
    before it is kept at any size.

    A nest without loops gets one of size 1. Emits the products of run-time sizes into `f`.
    """
    loops = _bind(spec, list(sizes))
    for loop in reversed(range(len(loops.domain) - row - columns)):
        if loops.domain[loop] == 1:
            loops = _drop(loops, loop)
    loops = _drop_unit_axes(loops)
    if not loops.domain:
        return replace(loops, domain=(1,), factors=((1,),))
    for loop in reversed(range(len(loops.domain) - 1 - row)):
        if _can_merge(loops, loop):
            loops = _merge(f, loops, loop)
    return loops


def _map_indices(body: Body, change: Callable[[Instr], tuple[Index, ...]]) -> Body:
    return tuple(replace(i, index=change(i)) if i.op in ("load", "store") else i for i in body)


def _bind(spec: Nest, sizes: list[Int]) -> Loops:
    """Put the known sizes in place of their Dims."""

    def bound(size: Size) -> Size:
        value = resolve(size, sizes)
        return value if isinstance(value, int) else size

    buffers = tuple(replace(b, shape=tuple(map(bound, b.shape))) for b in spec.buffers)
    body = _map_indices(spec.body, lambda i: tuple(replace(x, offset=bound(x.offset)) for x in i.index))
    domain = tuple(map(bound, spec.domain))
    return Loops(domain, tuple((size,) for size in domain), buffers, body, sizes)


def _renumber(index: Index, dropped: int) -> Index:
    if index.loop is None or index.loop < dropped:
        return index
    return (
        replace(index, loop=None, scale=1) if index.loop == dropped else replace(index, loop=index.loop - 1)
    )


def _drop(loops: Loops, loop: int) -> Loops:
    """Remove a loop of size 1: its index is 0."""

    def instr(i: Instr) -> Instr:
        if i.op == "iota" and i.loop == loop:
            return Instr("const", i.dtype, value=0)
        if i.loop is not None and i.loop > loop:
            i = replace(i, loop=i.loop - 1)
        return replace(i, index=tuple(_renumber(x, loop) for x in i.index))

    return replace(
        loops,
        domain=loops.domain[:loop] + loops.domain[loop + 1 :],
        factors=loops.factors[:loop] + loops.factors[loop + 1 :],
        body=tuple(map(instr, loops.body)),
    )


def _accesses(loops: Loops, buffer: int) -> list[tuple[Index, ...]]:
    return [i.index for i in loops.body if i.op in ("load", "store") and i.buffer == buffer]


def _drop_unit_axes(loops: Loops) -> Loops:
    """Remove the buffers' axes of size 1 that are only ever indexed by 0."""
    zero = Index()
    kept = []
    for b, buffer in enumerate(loops.buffers):
        rows = _accesses(loops, b)
        kept.append(
            [a for a, size in enumerate(buffer.shape) if size != 1 or any(x[a] != zero for x in rows)]
        )
    buffers = tuple(
        replace(b, shape=tuple(b.shape[a] for a in axes)) for b, axes in zip(loops.buffers, kept, strict=True)
    )
    body = _map_indices(loops.body, lambda i: tuple(i.index[a] for a in kept[i.buffer or 0]))
    return replace(loops, buffers=buffers, body=body)


def _pair_axis(loops: Loops, index: tuple[Index, ...], loop: int) -> int | None:
    """Return the axis a where loops `loop`, `loop` + 1 index axes a (from an offset) and a + 1 and nothing
    else.

    -1: neither of them is used. None: they cannot be merged here.
    """
    uses = [a for a, x in enumerate(index) if x.loop in (loop, loop + 1)]
    if not uses:
        return -1
    a = uses[0]
    if uses != [a, a + 1]:
        return None
    pair = (Index(loop=loop, offset=index[a].offset), Index(loop=loop + 1))
    return a if index[a : a + 2] == pair else None


def _can_merge(loops: Loops, loop: int) -> bool:
    """Whether loops `loop` and `loop` + 1 run through every buffer as one."""
    if any(i.op == "iota" and i.loop in (loop, loop + 1) for i in loops.body):
        return False
    for b, buffer in enumerate(loops.buffers):
        axes = {_pair_axis(loops, index, loop) for index in _accesses(loops, b)}
        if len(axes) > 1 or None in axes:
            return False
        for a in axes - {-1}:
            assert a is not None
            if buffer.shape[a + 1] != loops.domain[loop + 1]:
                return False
    return True


def _product(f: Function, sizes: list[Int], a: Size, b: Size) -> Size:
    """Return a * b as a Size: an int, or a new Dim of `sizes`."""
    value = f.mul(resolve(a, sizes), resolve(b, sizes))
    if isinstance(value, int):
        return value
    sizes.append(value)
    return Dim(len(sizes) - 1)


def _joined(outer: tuple[Size, ...], inner: tuple[Size, ...]) -> tuple[Size, ...]:
    """Return the factors of a merged loop; neighbours that are ints become one."""
    if isinstance(outer[-1], int) and isinstance(inner[0], int):
        return (*outer[:-1], outer[-1] * inner[0], *inner[1:])
    return outer + inner


def _merge(f: Function, loops: Loops, loop: int) -> Loops:
    """Make one loop of `loop` and `loop` + 1."""
    sizes = list(loops.sizes)
    outer, inner = loops.domain[loop : loop + 2]
    merged = _product(f, sizes, outer, inner)
    axes = {
        b: _pair_axis(loops, rows[0], loop)
        for b in range(len(loops.buffers))
        if (rows := _accesses(loops, b))
    }

    def shape(b: int, old: tuple[Size, ...]) -> tuple[Size, ...]:
        a = axes.get(b, -1)
        if a is None or a < 0:
            return old
        size = merged if old[a] == outer else _product(f, sizes, old[a], inner)
        return (*old[:a], size, *old[a + 2 :])

    def instr(i: Instr) -> Instr:
        if i.loop is not None and i.loop > loop:
            i = replace(i, loop=i.loop - 1)
        if i.op not in ("load", "store"):
            return i
        return replace(i, index=tuple(place(x) for x in i.index if x.loop != loop + 1))

    def place(x: Index) -> Index:
        if x.loop is None or x.loop < loop:
            return x
        if x.loop > loop:
            return replace(x, loop=x.loop - 1)
        return x if x.offset == 0 else replace(x, offset=_product(f, sizes, x.offset, inner))

    return Loops(
        (*loops.domain[:loop], merged, *loops.domain[loop + 2 :]),
        (*loops.factors[:loop], _joined(*loops.factors[loop : loop + 2]), *loops.factors[loop + 2 :]),
        tuple(replace(b, shape=shape(n, b.shape)) for n, b in enumerate(loops.buffers)),
        tuple(map(instr, loops.body)),
        sizes,
    )
