"""Merging adjacent loops of a spec: fewer, longer loops, and matmuls with all their rows in one loop.

Loops i and i+1 merge when every access uses both as neighbouring whole axes of a buffer (which then becomes
one axis), or neither. The loops of a matmul on which B does not depend are all loops over rows, in any order:
the order in which most of them merge is chosen. Loops of one trip are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import sympy

from ...jit.families.matmul.spec import Matmul, ProductSpec
from ...jit.spec import Body, Buffer, Index, Instr, KernelSpec, Nest
from ..ir.dims import equal, product
from ..ir.graph import Graph, SymbolInfo
from ..ir.ranges import always_at_most
from .access import Access, Shape
from .launches import unbound_kernels

Spec = KernelSpec[sympy.Expr]
Instrs = Body[sympy.Expr]
Product = Matmul[sympy.Expr]
Looped = Nest[sympy.Expr] | ProductSpec[sympy.Expr]
Place = Index[sympy.Expr]


def collapse(graph: Graph) -> None:
    """Merge the loops of every kernel. A matmul whose row loop is chosen by sizes at run time gets the
    attribute `exchanged` (`compiler.lower.launches`)."""
    for node in unbound_kernels(graph):
        chosen, other = exchange(collapsed(node.attrs["spec"]), graph.symbols)
        node.attrs["spec"] = chosen
        if other is not None:
            assert isinstance(chosen, Matmul)
            node.attrs["exchanged"] = (other, (), chosen.product.m, other.product.m)


def collapsed(spec: Spec) -> Spec:
    """Return `spec` with all mergeable loops merged (of nests and matmuls; others are unchanged)."""
    if not isinstance(spec, Nest | ProductSpec):
        return spec
    merged = _merged(spec)
    if not isinstance(merged, Matmul) or not merged.product.batch:
        return merged
    return _most_rows(_without_unit_axes(_without_single_trips(merged)))


def _most_rows(spec: Product) -> Product:
    """Return `spec` merged, its loops in the order that leaves the fewest and, of known sizes, the most rows.

    As it is, where no order is better.
    """
    best, rows = _merged_product(spec), _row_loops(spec)
    for order in permutations(rows):
        found = _merged_product(_reordered(spec, rows, order))
        if len(found.product.batch) < len(best.product.batch) or (
            len(found.product.batch) == len(best.product.batch) and _has_more_rows(found, best)
        ):
            best = found
    return best


def exchange(spec: Spec, symbols: Mapping[str, SymbolInfo]) -> tuple[Spec, Product | None]:
    """Return `spec` with the longest possible row loop, and, if sizes decide at run time which of two is
    longer, the product with the other one.

    `symbols`: the ranges of sizes. A tile of a kernel has rows of one loop only.
    """
    if not isinstance(spec, Matmul):
        return spec, None
    for loop in _row_loops(spec)[:-1]:
        size = spec.product.batch[loop]
        if always_at_most(size, spec.product.m, symbols):
            continue
        other = _exchanged(spec, loop)
        if always_at_most(spec.product.m, size, symbols):
            return exchange(other, symbols)
        return spec, other
    return spec, None


def _exchanged(spec: Product, loop: int) -> Product:
    """Return `spec` with one of its batch loops over rows as m."""
    m = len(spec.product.batch)
    return _reordered(spec, (loop, m), (m, loop))


def _has_more_rows(one: Product, other: Product) -> bool:
    return (
        isinstance(one.product.m, int)
        and isinstance(other.product.m, int)
        and one.product.m > other.product.m
    )


def _row_loops(spec: Product) -> list[int]:
    """Return the loops of batch and m on which B does not depend."""
    used = {item.loop for item in spec.product.b_index}
    return [loop for loop in range(len(spec.product.batch) + 1) if loop not in used]


def _renumbered(loop: int | None, after: Mapping[int, int]) -> int | None:
    """Return the number of a loop `after` a change; None stays None."""
    return None if loop is None else after.get(loop, loop)


def _reordered(spec: Product, loops: Sequence[int], order: Sequence[int]) -> Product:
    """Return `spec` with loop `order[i]` in the position of `loops[i]`."""
    before = list(range(len(spec.product.batch) + 1))
    for place, loop in zip(loops, order, strict=True):
        before[place] = loop
    after = {loop: place for place, loop in enumerate(before)}
    sizes = loop_sizes(spec)
    return _with_loops(
        spec,
        tuple(sizes[loop] for loop in before),
        lambda item: replace(item, loop=_renumbered(item.loop, after)),
    )


def _without_single_trips(spec: Product) -> Product:
    """Return `spec` without its loops of one trip, except one over rows if there is no longer one."""
    sizes, rows = loop_sizes(spec), _row_loops(spec)
    longer = [loop for loop in rows if not equal(sizes[loop], 1)]
    last = longer[-1] if longer else rows[-1]
    kept = [i for i, size in enumerate(sizes) if i != last and not equal(size, 1)] + [last]
    dropped = set(range(len(sizes))) - set(kept)
    if not dropped:
        return spec
    after = {loop: place for place, loop in enumerate(kept)}
    after |= {loop: loop - len(dropped) for loop in range(len(sizes), len(sizes) + 2)}

    def fix(item: Place) -> Place:
        if item.loop in dropped:
            return replace(item, loop=None, scale=1)
        return replace(item, loop=_renumbered(item.loop, after))

    return _with_loops(spec, tuple(sizes[loop] for loop in kept), fix)


def _without_unit_axes(spec: Product) -> Product:
    """Return `spec` without axes of size 1 between others."""
    dropped: dict[int, set[int]] = {}
    for buffer, index in accesses(spec):
        shape = spec.buffers[buffer].shape
        unit = {axis for axis, item in enumerate(index) if item == Index() and equal(shape[axis], 1)}
        dropped[buffer] = dropped.get(buffer, unit) & unit

    def kept(buffer: int | None, items: tuple[Any, ...]) -> tuple[Any, ...]:
        without = set() if buffer is None else dropped.get(buffer, set())
        return tuple(item for axis, item in enumerate(items) if axis not in without)

    def body(instrs: Instrs) -> Instrs:
        return tuple(replace(instr, index=kept(instr.buffer, instr.index)) for instr in instrs)

    given = spec.product
    buffers = tuple(replace(b, shape=kept(i, b.shape)) for i, b in enumerate(spec.buffers))
    return replace(spec, buffers=buffers).with_product(
        a_index=kept(given.a, given.a_index), b_index=kept(given.b, given.b_index),
        prologue=body(given.prologue), epilogue=body(given.epilogue),
    )  # fmt: skip


def _with_loops(spec: Product, sizes: Shape, fix: Callable[[Place], Place]) -> Product:
    """Return `spec` with loops of these sizes before n; `fix` maps each index to its new loop."""

    def index(items: Access) -> Access:
        return tuple(map(fix, items))

    given = spec.product
    return spec.with_product(
        batch=sizes[:-1], m=sizes[-1], a_index=index(given.a_index), b_index=index(given.b_index),
        prologue=fix_body(given.prologue, index), epilogue=fix_body(given.epilogue, index),
    )  # fmt: skip


def _merged(spec: Looped) -> Looped:
    """Return `spec` with adjacent loops merged where possible, in their present order."""
    i = 0
    while i + 1 < n_mergeable(spec):
        if can_merge(spec, i):
            spec = merge(spec, i)
        else:
            i += 1
    return spec


def _merged_product(spec: Product) -> Product:
    merged = _merged(spec)
    assert isinstance(merged, Matmul)
    return merged


def n_mergeable(spec: Looped) -> int:
    """Return the number of leading loops that may merge: all but a nest's row loop or a matmul's n."""
    if isinstance(spec, ProductSpec):
        return len(spec.product.batch) + 1
    has_row = any(instr.op.startswith("reduce.") for instr in spec.body)
    return len(spec.domain) - has_row


def loop_sizes(spec: Looped) -> Shape:
    """Return the sizes of the loops that may merge."""
    return spec.domain if isinstance(spec, Nest) else (*spec.product.batch, spec.product.m)


def instructions(spec: Looped) -> Instrs:
    """Return the instructions of every body."""
    return spec.body if isinstance(spec, Nest) else (*spec.product.prologue, *spec.product.epilogue)


def accesses(spec: Looped) -> list[tuple[int, Access]]:
    """Return (buffer, index) of every load, store and operand."""
    found = [(instr.buffer, instr.index) for instr in instructions(spec) if instr.buffer is not None]
    if isinstance(spec, ProductSpec):
        if not spec.product.prologue:
            found.append((spec.product.a, spec.product.a_index))
        if spec.product.b_layout == "rows":
            found.append((spec.product.b, spec.product.b_index))
    return found


def can_merge(spec: Looped, i: int) -> bool:
    """Return True if loops i and i+1 can be one loop."""
    sizes = loop_sizes(spec)
    if any(instr.op == "iota" and instr.loop in (i, i + 1) for instr in instructions(spec)):
        return False
    axes: dict[int, int | None] = {}
    for buffer, index in accesses(spec):
        axis = merged_axis(index, spec.buffers[buffer], i, sizes)
        if axis == -1 or axes.setdefault(buffer, axis) != axis:
            return False
    return True


def merged_axis(index: Access, buffer: Buffer[sympy.Expr], i: int, sizes: Shape) -> int | None:
    """Return the axis at which loops i, i+1 are adjacent; None: the access uses neither; -1: it forbids
    merging."""
    using = [axis for axis, item in enumerate(index) if item.loop in (i, i + 1)]
    if not using:
        return None
    if len(using) != 2 or using[1] != using[0] + 1:
        return -1
    first, second = using
    if index[first] != Index(loop=i) or index[second] != Index(loop=i + 1):
        return -1
    shape = buffer.shape
    whole = equal(shape[first], sizes[i]) and equal(shape[second], sizes[i + 1])
    return first if whole else -1


def merge(spec: Looped, i: int) -> Looped:
    """Return `spec` with loops i and i+1 merged into loop i."""
    sizes = loop_sizes(spec)
    buffers = list(spec.buffers)
    for buffer, index in dict(accesses(spec)).items():
        axis = merged_axis(index, spec.buffers[buffer], i, sizes)
        if axis is not None:
            shape = buffers[buffer].shape
            joined = (*shape[:axis], product(shape[axis : axis + 2]), *shape[axis + 2 :])
            buffers[buffer] = replace(buffers[buffer], shape=joined)
    merged = (*sizes[:i], product(sizes[i : i + 2]), *sizes[i + 2 :])
    fix = renumber(i)
    if isinstance(spec, Nest):
        return replace(spec, buffers=tuple(buffers), domain=merged, body=fix_body(spec.body, fix))
    given = spec.product
    return replace(spec, buffers=tuple(buffers)).with_product(
        batch=merged[:-1], m=merged[-1], a_index=fix(given.a_index), b_index=fix(given.b_index),
        epilogue=fix_body(given.epilogue, fix), prologue=fix_body(given.prologue, fix),
    )  # fmt: skip


def renumber(i: int) -> Callable[[Access], Access]:
    """Return the function that drops loop i+1 from accesses and moves later loops down by one."""

    def fix(index: Access) -> Access:
        kept = [item for item in index if item.loop != i + 1]
        return tuple(
            replace(item, loop=item.loop - 1) if item.loop is not None and item.loop > i + 1 else item
            for item in kept
        )

    return fix


def fix_body(body: Instrs, fix: Callable[[Access], Access]) -> Instrs:
    """Return `body` with its accesses and iotas renumbered by `fix`."""

    def one(instr: Instr[sympy.Expr]) -> Instr[sympy.Expr]:
        loop = fix((Index(loop=instr.loop),))[0].loop if instr.loop is not None else None
        if instr.op == "iota" and loop is None:  # of a loop of one trip
            return Instr("const", instr.dtype, value=0)
        return replace(instr, index=fix(instr.index), loop=loop)

    return tuple(one(instr) for instr in body)
