"""Prefetching by row tiles of attention: the keys and values of the next block, or of the next tile."""

from __future__ import annotations

from dataclasses import dataclass

from ...llvm.function import Int, Value
from ...llvm.prefetch import unread
from .emission import Emission, Keys, Queries, RowTile
from .parts import prefetch_rows
from .problem import KEY_BLOCK

MAX_AHEAD = 16  # keys of the next head that a row tile prefetches


@dataclass(frozen=True)
class Ahead:
    """The next tile's keys and values, and how many of them each row tile prefetches."""

    keys: Value
    values: Value
    share: Int


def ahead_of(emission: Emission, queries: Queries, keys: Keys) -> Ahead:
    """Return the prefetches of a tile's row tiles: the next block of keys, or the next tile's first (none if
    that is the same)."""
    f, problem, rows = emission.f, emission.problem, queries.rows
    head, following = queries.head, queries.following
    nexts: list[Value] = []
    for operand in (emission.operands.k, emission.operands.v):
        there = operand.at([*following.batch, 0, following.first])
        if not isinstance(keys.is_last, bool):
            here = operand.at([*head.batch, 0, head.first])
            step = operand.stride(problem.key_loop)
            after = unread(f, here, f.mul(f.add(keys.begin, KEY_BLOCK), step))
            there = f.select(keys.is_last, there, after)
        nexts.append(there)
    if problem.is_one and isinstance(problem.q_len, int) and problem.q_len > problem.block:
        return Ahead(nexts[0], nexts[1], 0)
    wanted = f.add(f.udiv(f.mul(keys.count, problem.tile.rows), f.maximum(rows, 1)), 1)
    share = f.minimum(wanted, MAX_AHEAD)
    if problem.is_one and not isinstance(problem.q_len, int):
        is_one = f.less(problem.q_len, problem.block + 1)
        share = f.select(is_one, share, 0)
    return Ahead(nexts[0], nexts[1], share)


def read_ahead(emission: Emission, tile: RowTile, ahead: Ahead) -> None:
    """Prefetch a row tile's share of the next tile's keys and values."""
    f, problem = emission.f, emission.problem
    if ahead.share == 0:
        return
    begin = f.mul(tile.number, ahead.share)
    count = f.minimum(ahead.share, f.sub(f.minimum(problem.k_len, KEY_BLOCK), begin))
    for first, operand, dim in (
        (ahead.keys, emission.operands.k, problem.head_dim),
        (ahead.values, emission.operands.v, problem.v_dim),
    ):
        stride = operand.stride(problem.key_loop)
        prefetch_rows(f, unread(f, first, f.mul(begin, stride)), count, stride, dim, 2)
