"""Loops over ranges; the innermost one in steps of LANES, unrolled, with a masked tail.

`chunk(index, mask, state)` emits the work of the lanes index .. index + LANES - 1 (those in `mask`, None:
all) and returns the next carried state. With an int count the trips are known and no test for empty parts
remains; so they are where all counts that may be have as many chunks (sizes that round up to the same
multiple of LANES): the last one is masked then, all lanes or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..llvm.constants import LANES, tail_mask
from ..llvm.function import Function, Int, Value
from .tiling import Range

State = list[Value]
Chunk = Callable[[Int, Value | None, State], State]


def strip(f: Function, part: Range, unroll: int, chunk: Chunk, state: Sequence[Value] = ()) -> State:
    """Emit `chunk` over `part`, `unroll` chunks per trip of the main loop; return the state."""
    rounded_up = 0 if isinstance(part.count, int) else f.ceildiv(part.count, LANES)
    if isinstance(rounded_up, int) and rounded_up and not part.is_multiple(LANES):
        before = Range(part.begin, (rounded_up - 1) * LANES)
        values = strip(f, before, unroll, chunk, state)
        last, remaining = before.end(f), f.sub(part.count, before.count)
        return chunk(last, tail_mask(f, remaining), values)
    whole, main = (rounded_down(f, part, step) for step in (LANES, LANES * unroll))
    after_main, after_whole = f.add(part.begin, main), f.add(part.begin, whole)
    values = _trips(f, part.begin, after_main, main, unroll, chunk, list(state))
    if unroll > 1 and not part.is_multiple(LANES * unroll):
        values = _trips(f, after_main, after_whole, f.sub(whole, main), 1, chunk, values)
    if part.is_multiple(LANES):
        return values
    return _tail(f, after_whole, part, f.sub(part.count, whole), chunk, values)


def each(
    f: Function, parts: Sequence[Range], inner: Callable[[tuple[Int, ...]], None], outer: tuple[Int, ...] = ()
) -> None:
    """Run `inner` at each place in `parts`, as nested loops inside those at `outer`.

    No function here refers to itself: such a cycle would keep a kernel's whole emission until the garbage
    collector comes by.
    """
    if not parts:
        inner(outer)
        return
    part, *rest = parts
    if part.count == 1:
        each(f, rest, inner, (*outer, part.begin))
        return
    with f.loop(part.begin, part.end(f)) as loop:
        each(f, rest, inner, (*outer, loop.index))


def rounded_down(f: Function, part: Range, step: int) -> Int:
    """Return the iterations of `part` in whole steps."""
    return part.count if part.is_multiple(step) else f.mul(f.udiv(part.count, step), step)


def _trips(f: Function, begin: Int, end: Int, count: Int, unroll: int, chunk: Chunk, state: State) -> State:
    """Emit the whole chunks from begin to end, `count` iterations."""
    step = LANES * unroll
    if isinstance(count, int) and count <= step:
        for u in range(count // LANES):
            state = chunk(f.add(begin, LANES * u), None, state)
        return state
    with f.loop(begin, end, step, state) as loop:
        inside = loop.carried
        for u in range(unroll):
            inside = chunk(f.add(loop.index, LANES * u), None, inside)
        loop.next(*inside)
    return loop.results


def _tail(f: Function, begin: Int, part: Range, remaining: Int, chunk: Chunk, state: State) -> State:
    """Emit the last chunk, of `remaining` < LANES iterations."""
    if isinstance(remaining, int):
        return chunk(begin, tail_mask(f, remaining), state) if remaining else state
    with f.loop(begin, part.end(f), LANES, state) as loop:  # one trip or none
        loop.next(*chunk(loop.index, tail_mask(f, remaining), loop.carried))
    return loop.results
