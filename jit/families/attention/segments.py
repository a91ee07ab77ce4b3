"""Attention over segments: the tiles of each one's tokens. The offsets are data, which may be anything: the
bounds taken from them ascend and lie within the tokens, so segments do not overlap and nothing beside the
tokens is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...llvm.function import Int, Value
from .emission import Emission, Head
from .parts import call_part, clear_rows


def each_tile(emission: Emission, tile: Callable[[Head, Head, Int], None]) -> None:
    """Emit `tile(head, the next tile's head, block)` for the kernel's tiles that have queries: blocks behind
    the end of a segment have none. Clear the tokens in no segment."""
    f, problem = emission.f, emission.problem
    begin, end = f.params[3:5]
    with f.when(f.less(begin, end)), f.loop(begin, end, carried=[_before(emission, begin)]) as loop:
        batch, following, block = emission.places(loop.index)
        first = _bound(emission, batch[0], loop.carried[0])
        after = _bound(emission, _next(emission, batch[0]), first)
        length = f.minimum(f.sub(after, first), problem.q_len)
        head = Head(batch, first, length, length)
        with f.when(f.less(block, 1)):
            _clear_others(emission, head, after)
        with f.when(f.less(f.mul(block, problem.block), length)):
            begins = f.select(f.less(batch[0], following[0]), after, first)
            tile(head, Head(following, begins, length, length), block)
        loop.next(first)


def _before(emission: Emission, tile: Int) -> Value:
    """Return the greatest of the offsets before that of a tile's segment, at least 0."""
    f = emission.f
    (segment, *_), _ = emission.place(tile)
    with f.loop(0, segment, carried=[f.i64(0)]) as scan:
        scan.next(f.i64(f.maximum(scan.carried[0], _offset(emission, scan.index))))
    return scan.results[0]


def _offset(emission: Emission, number: Int) -> Value:
    assert emission.offsets is not None
    return emission.f.load("i64", emission.f.at(emission.offsets, "i64", number), align=8)


def _next(emission: Emission, segment: Int) -> Int:
    """Return the number of the offset at which a segment ends."""
    f = emission.f
    return f.minimum(f.add(segment, 1), f.sub(emission.problem.n_offsets, 1))


def _bound(emission: Emission, number: Int, least: Value) -> Value:
    """Return the token at offset `number`: at least `least`, at most behind the last."""
    f = emission.f
    return f.i64(f.minimum(f.maximum(_offset(emission, number), least), emission.problem.tokens))


def _clear_others(emission: Emission, head: Head, after: Value) -> None:
    """Clear the results of tokens in no segment: those that a segment is too long for, before the first
    segment and behind the last."""
    f, problem, segment = emission.f, emission.problem, head.batch[0]
    is_last = f.less(f.sub(problem.batch[0], 2), segment)
    _clear(emission, head.batch, f.add(head.first, head.q_len), f.select(is_last, problem.tokens, after))
    _clear(emission, head.batch, 0, f.select(f.less(segment, 1), head.first, 0))


def _clear(emission: Emission, batch: Sequence[Int], begin: Int, end: Int) -> None:
    f, problem, out = emission.f, emission.problem, emission.operands.out
    rows, stride = f.i64(f.sub(end, begin)), f.i64(out.stride(problem.row_loop))
    call_part(f, "clear_rows", clear_rows, out.at([*batch, begin]), rows, stride, problem.v_dim)
