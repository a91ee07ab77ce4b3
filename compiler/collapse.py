"""Merging adjacent loops of a spec: fewer, longer loops, and matmuls with all their rows in one loop.

Loops i and i+1 merge when every access uses both as neighbouring whole axes of a buffer (which then becomes
one axis), or neither. Sizes are still dimension expressions here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from ..jit.spec import Buffer, Index, Instr, KernelSpec, Matmul, Nest
from .dims import equal, product

IndexTuple = tuple[Index, ...]


def collapse(spec: KernelSpec) -> KernelSpec:
    """Return `spec` with all mergeable loops merged (of nests and matmuls; others are left as they are)."""
    if not isinstance(spec, Nest | Matmul):
        return spec
    i = 0
    while i + 1 < n_mergeable(spec):
        if can_merge(spec, i):
            spec = merge(spec, i)
        else:
            i += 1
    return spec


def n_mergeable(spec: Nest | Matmul) -> int:
    """Return how many of the first loops may merge: not a nest's row loop, not a matmul's n."""
    if isinstance(spec, Matmul):
        return len(spec.batch) + 1
    has_row = any(instr.op.startswith("reduce.") for instr in spec.body)
    return len(spec.domain) - has_row


def loop_sizes(spec: Nest | Matmul) -> tuple[Any, ...]:
    """Return the sizes of the loops that may merge."""
    return spec.domain if isinstance(spec, Nest) else (*spec.batch, spec.m)


def instructions(spec: Nest | Matmul) -> tuple[Instr, ...]:
    """Return the instructions of every body."""
    return spec.body if isinstance(spec, Nest) else (*spec.prologue, *spec.epilogue)


def accesses(spec: Nest | Matmul) -> list[tuple[int, IndexTuple]]:
    """Return (buffer, index) of every load, store and operand."""
    found = [(instr.buffer, instr.index) for instr in instructions(spec) if instr.buffer is not None]
    if isinstance(spec, Matmul):
        if not spec.prologue:
            found.append((spec.a, spec.a_index))
        if spec.b_layout == "rows":
            found.append((spec.b, spec.b_index))
    return found


def can_merge(spec: Nest | Matmul, i: int) -> bool:
    """Return True where loops i and i+1 can be one loop."""
    sizes = loop_sizes(spec)
    if any(instr.op == "iota" and instr.loop in (i, i + 1) for instr in instructions(spec)):
        return False
    axes: dict[int, int | None] = {}
    for buffer, index in accesses(spec):
        axis = merged_axis(index, spec.buffers[buffer], i, sizes)
        if axis == -1 or axes.setdefault(buffer, axis) != axis:
            return False
    return True


def merged_axis(index: IndexTuple, buffer: Buffer, i: int, sizes: tuple[Any, ...]) -> int | None:
    """Return the axis where loops i, i+1 lie side by side; None: the access uses neither; -1: it forbids
    merging."""
    using = [axis for axis, item in enumerate(index) if item.loop in (i, i + 1)]
    if not using:
        return None
    if len(using) != 2 or using[1] != using[0] + 1:
        return -1
    first, second = using
    if index[first] != Index(loop=i) or index[second] != Index(loop=i + 1):
        return -1
    shape = cast(Any, buffer.shape)
    whole = equal(shape[first], sizes[i]) and equal(shape[second], sizes[i + 1])
    return first if whole else -1


def merge(spec: Nest | Matmul, i: int) -> Nest | Matmul:
    """Return `spec` with loops i and i+1 merged into loop i."""
    sizes = loop_sizes(spec)
    buffers = list(spec.buffers)
    for buffer, index in dict(accesses(spec)).items():
        axis = merged_axis(index, spec.buffers[buffer], i, sizes)
        if axis is not None:
            shape = cast(Any, buffers[buffer].shape)
            joined = (*shape[:axis], product(shape[axis : axis + 2]), *shape[axis + 2 :])
            buffers[buffer] = replace(buffers[buffer], shape=joined)
    merged = cast(Any, (*sizes[:i], product(sizes[i : i + 2]), *sizes[i + 2 :]))
    fix = renumber(i)
    if isinstance(spec, Nest):
        return replace(spec, buffers=tuple(buffers), domain=merged, body=fix_body(spec.body, fix))
    return replace(
        spec, buffers=tuple(buffers), batch=merged[:-1], m=merged[-1], epilogue=fix_body(spec.epilogue, fix),
        a_index=fix(spec.a_index), b_index=fix(spec.b_index), prologue=fix_body(spec.prologue, fix),
    )  # fmt: skip


def renumber(i: int) -> Callable[[IndexTuple], IndexTuple]:
    """Return the function that drops loop i+1 from accesses and moves later loops down by one."""

    def fix(index: IndexTuple) -> IndexTuple:
        kept = [item for item in index if item.loop != i + 1]
        return tuple(
            replace(item, loop=item.loop - 1) if item.loop is not None and item.loop > i + 1 else item
            for item in kept
        )

    return fix


def fix_body(body: tuple[Instr, ...], fix: Callable[[IndexTuple], IndexTuple]) -> tuple[Instr, ...]:
    """Return `body` with its accesses and iotas renumbered by `fix`."""

    def one(instr: Instr) -> Instr:
        loop = fix((Index(loop=instr.loop),))[0].loop if instr.loop is not None else None
        return replace(instr, index=fix(instr.index), loop=loop)

    return tuple(one(instr) for instr in body)
