"""The division of rows into tiles for micro-kernels, as even as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...llvm.function import Function, Int, least, most


def shares(count: int, most: int) -> set[int]:
    """Return the numbers of rows of the tiles that `each_tile` makes of `count` rows."""
    if count == 0:
        return set()
    n = -(-count // most)
    return {count // n, -(-count // n)}


def split(count: int, most: int) -> list[tuple[int, int]]:
    """Return the first row and the rows of each of the tiles that `each_tile` makes of `count` rows."""
    n = -(-count // most)
    base, extra = divmod(count, n)
    return [(i * base + min(i, extra), base + (i < extra)) for i in range(n)]


def row_counts(m: Int, block: int, most_rows: int) -> list[int]:
    """Return the numbers of rows that `each_tile` may make tiles of, at most `most_rows`, in blocks of
    `block` of `m` rows."""
    low, high = least(m), most(m)
    if high is None or high - low > block:
        return list(range(1, most_rows + 1))
    found = shares(block, most_rows) if high >= block else set()
    for rows in range(low, high + 1):
        found |= shares(rows % block, most_rows)
    return sorted(found)


def each_tile(f: Function, count: Int, most: int, tile: Callable[[Int, Int, Int], None]) -> None:
    """Emit a loop over `count` rows (at run time > 0) in ceil(count / most) tiles of sizes as even as
    possible.

    `tile(number, begin, rows)` emits the work of one tile.
    """
    if count == 0:
        return
    n = f.ceildiv(count, most)
    base, extra = f.udiv(count, n), f.urem(count, n)
    if n == 1:
        tile(0, 0, base)
        return
    with f.loop(0, n, carried=[f.i64(0)]) as loop:
        begin = loop.carried[0]
        rows = base
        if extra != 0:
            larger = f.less(loop.index, extra)
            rows = f.add(base, f.op("i64", f"zext i1 {larger.name} to i64"))
        tile(loop.index, begin, rows)
        loop.next(f.i64(f.add(begin, rows)))


def dispatch(f: Function, value: Int, cases: Sequence[int], emit: Callable[[int], None]) -> None:
    """Emit `emit(case)` for the one of `cases` that equals `value`, which must be one of them."""
    if len(cases) == 1 or isinstance(value, int):
        emit(value if isinstance(value, int) else cases[0])
        return
    labels = [f.label("case") for _ in cases]
    after = f.label("after")
    table = " ".join(f"i64 {case}, label %{label}" for case, label in zip(cases[1:], labels[1:], strict=True))
    f.do(f"switch i64 {value.name}, label %{labels[0]} [ {table} ]")
    for case, label in zip(cases, labels, strict=True):
        f.start(label)
        emit(case)
        f.do(f"br label %{after}")
    f.start(after)
