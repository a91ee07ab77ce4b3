"""The PagedAttention family: softmax(q k^T) v over pages of keys and values, page after page.

A tile is a block of tokens and a head of keys, with the group of query heads that read it: the rows. It
walks over the pages that its rows see, and each page is read from memory once, for all rows.

A row's bits depend only on its query, and on the keys and values at the positions that it sees: pages are
counted from the first position of the sequence; for each page, a score is the sum of LANES chains over the
head's size, folded by halves; the maximum so far is that of the pages before and this one; the sum of
weights, lane by lane, and the sums of values, position by position, are scaled as it grows, once a page. A
page of which a row sees nothing is skipped. So neither the other tokens of a call, nor the numbers of pages,
nor the threads matter. Values that a row does not see are never multiplied: they may be anything.

Integers are only converted: their scales multiply scores, and weights before these multiply values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from ....vm.program import Work
from ...llvm.abi import RT_SCRATCH, Generated, check_schedule, resolve
from ...llvm.access import Access, Accessor
from ...llvm.constants import splat, tail_mask
from ...llvm.conversion import cast
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int, Value
from ...llvm.prefetch import LINE_BYTES, prefetch, unread
from ...llvm.transpose import fold, rotate
from ...llvm.vector import AVX512_BYTES, Vec, fma, select
from ...loops.affine import Operand
from ...loops.bodies import LANES
from ...loops.strip_mining import State, strip
from ...loops.tiling import Range
from ...math.exponentials import F32, tanh, weight
from .spec import PAGE, PagedAttention, accesses

ROWS = 16  # of a tile, about: enough to share a page, few enough for tiles for all threads
F32_BYTES = 4
SHARED = 3 * LANES  # floats of all rows: the weights of one page, the scales of its keys and of its values
VECTOR = "<16 x float>"


class Heads(NamedTuple):
    """The numbers of heads and their sizes. `group`: the query heads that read a head of keys."""

    all: int
    of_keys: int
    group: int
    size: int
    v_size: int

    @property
    def block(self) -> int:
        """The tokens of a tile."""
        return -(-ROWS // self.group)

    @property
    def state(self) -> int:
        """The floats that a row keeps from page to page: its maximum in all lanes, the sums of its weights
        by lane, and those of its values."""
        return 2 * LANES + -(-self.v_size // LANES) * LANES


def _heads(spec: PagedAttention) -> Heads:
    shapes = (*spec.buffers[0].shape[1:], *spec.buffers[2].shape[1:])
    heads, size, kv_heads, v_size = (each for each in shapes if isinstance(each, int))
    return Heads(heads, kv_heads, heads // kv_heads, size, v_size)


def emit(f: Function, spec: PagedAttention, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a PagedAttention; see `abi.Generator`. The one schedule is "pages"."""
    check_schedule("paged_attention", schedule, ["pages"])
    heads = _heads(spec)
    tiles = _Tiles.open(f, spec, sizes)
    with f.loop(f.params[3], f.params[4]) as tile:
        block, head = f.unravel(tile.index, [heads.of_keys])
        tiles.emit(f.mul(block, heads.block), head)
    rows, pages = heads.block * heads.group, spec.buffers[3].shape[1]
    cost = ((2 * rows * PAGE * (heads.size + heads.v_size + 20), (pages,)),)
    scratch = ((F32_BYTES * (SHARED + rows * heads.state), ()),)
    tokens = spec.buffers[0].shape[0]
    return Generated(Work(((tokens, heads.block), (heads.of_keys, 1)), scratch, cost), "pages")


class Sizes(NamedTuple):
    """The sizes that a call decides; `pool`: pages of keys and values."""

    tokens: Int
    pool: Int
    sequences: Int
    pages: Int


@dataclass(frozen=True)
class _Sequence:
    """The tokens `begin` .. `end` - 1 of a tile that belong to sequence `number`; token t is at position
    `shift` + t."""

    number: Value
    begin: Int
    end: Int
    shift: Int


@dataclass(frozen=True)
class _Tiles:
    """Emits tiles. `buffers`: the addresses in the order of the spec."""

    f: Function
    spec: PagedAttention
    heads: Heads
    sizes: Sizes
    buffers: Sequence[Value]
    scratch: Value

    @staticmethod
    def open(f: Function, spec: PagedAttention, sizes: Sequence[Int]) -> _Tiles:
        """Return the emitter; call in the entry block."""
        buffers = [Operand.of(f, spec, access, sizes).at([]) for access in accesses(spec)]
        shapes = [[resolve(size, sizes) for size in buffer.shape] for buffer in spec.buffers]
        (tokens, *_), (slots, *_), _, (sequences, pages), (bounds,), *_ = shapes
        limited = f.minimum(sequences, f.sub(bounds, 1))
        pool = f.udiv(slots, PAGE)
        given = Sizes(tokens, pool, limited, pages)
        scratch = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        return _Tiles(f, spec, _heads(spec), given, buffers, scratch)

    def emit(self, begin: Int, head: Int) -> None:
        """Emit the tile of the tokens from `begin` on and a head of keys."""
        f = self.f
        end = f.minimum(f.add(begin, self.heads.block), self.sizes.tokens)
        self._clear(begin, end, head)
        with f.loop(0, self.sizes.sequences, carried=[f.i64(0)]) as loop:
            first = self._bound(loop.index, loop.carried[0])
            after = self._bound(f.add(loop.index, 1), first)
            here, there = f.maximum(first, begin), f.minimum(after, end)
            with f.when(f.less(here, there)):
                shift = f.sub(self._length(loop.index), after)
                self._attend(_Sequence(loop.index, here, there, shift), head)
            loop.next(first)

    def _bound(self, number: Int, least: Value) -> Value:
        """Return the token at offset `number`: at least `least`, at most behind the last."""
        f = self.f
        raw = f.load("i64", f.at(self.buffers[4], "i64", number), align=8)
        return f.i64(f.minimum(f.maximum(raw, least), self.sizes.tokens))

    def _length(self, sequence: Value) -> Int:
        """Return the positions of a sequence, none if there is no page."""
        f, sizes = self.f, self.sizes
        raw = f.load("i64", f.at(self.buffers[5], "i64", sequence), align=8)
        most = f.select(f.less(0, sizes.pool), f.mul(sizes.pages, PAGE), 0)
        return f.minimum(f.maximum(raw, 0), most)

    def _query_row(self, token: Int, head: Int) -> Int:
        """Return the number of the first of a token's rows that read a head of keys."""
        return self.f.add(self.f.mul(token, self.heads.all), self.f.mul(head, self.heads.group))

    def _clear(self, begin: Int, end: Int, head: Int) -> None:
        f = self.f
        with f.loop(begin, end) as token:
            start = f.mul(self._query_row(token.index, head), self.heads.v_size)
            out = f.at(self.buffers[-1], "float", start)

            def chunk(index: Int, mask: Value | None, state: State) -> State:
                Accessor(f, out, "f32", mask).store(Access(index, 1), _constant(f, 0.0))
                return state

            strip(f, Range(0, self.heads.group * self.heads.v_size), 1, chunk)

    # Pages
    def _attend(self, tokens: _Sequence, head: Int) -> None:
        """Emit the attention of a sequence's tokens."""
        f, window = self.f, self.spec.window
        self._each_row(tokens, head, lambda token, row, state: self._begin(state))
        end = f.maximum(f.add(tokens.shift, tokens.end), 0)
        seen = f.sub(f.add(tokens.shift, f.add(tokens.begin, 1)), window) if window else 0
        first, last = f.udiv(f.maximum(seen, 0), PAGE), f.ceildiv(end, PAGE)
        with f.loop(first, last) as page:
            row = self._page(tokens.number, page.index, head)
            keys, values = self._at(row)
            following = f.minimum(f.add(page.index, 1), f.sub(last, 1))
            self._prefetch(*self._at(self._page(tokens.number, following, head)))
            if self.spec.is_scaled:
                self._read_scales(row)
            with f.loop(tokens.begin, tokens.end) as token:
                until = f.sub(f.add(f.add(tokens.shift, token.index), 1), f.mul(page.index, PAGE))
                since = f.maximum(f.sub(until, window), 0) if window else 0
                here = _Page(self, keys, values, since, f.minimum(until, PAGE))
                with f.when(f.less(here.since, here.until)):
                    self._page_rows(here, tokens, token.index, head)
        self._each_row(tokens, head, lambda token, row, state: self._finish(state, row))

    def _page_rows(self, page: _Page, tokens: _Sequence, token: Int, head: Int) -> None:
        """Emit a page's contribution to a token's rows."""
        f, heads = self.f, self.heads
        row, seen = self._query_row(token, head), page.seen()
        with f.loop(0, heads.group) as member:
            query = f.at(self.buffers[0], "float", f.mul(f.add(row, member.index), heads.size))
            number = f.add(f.mul(f.sub(token, tokens.begin), heads.group), member.index)
            page.emit(query, self._state(number), seen)

    def _page(self, sequence: Value, page: Int, head: Int) -> Int:
        """Return the number of the first row, of a slot and a head, of a sequence's page."""
        f, heads, sizes = self.f, self.heads, self.sizes
        place = f.add(f.mul(sequence, sizes.pages), page)
        raw = f.load("i32", f.at(self.buffers[3], "i32", place), align=4)
        given = f.op("i64", f"sext i32 {raw.name} to i64")
        number = f.minimum(f.maximum(given, 0), f.sub(sizes.pool, 1))
        return f.add(f.mul(number, PAGE * heads.of_keys), head)

    def _at(self, row: Int) -> tuple[Value, Value]:
        """Return the addresses of a row's keys and values."""
        f, heads, element = self.f, self.heads, DTYPES[self.spec.buffers[1].dtype].memory
        keys, values = (f.mul(row, size) for size in (heads.size, heads.v_size))
        return f.at(self.buffers[1], element, keys), f.at(self.buffers[2], element, values)

    def _read_scales(self, row: Int) -> None:
        """Copy the scales of a page, which `row` begins, to where all rows find them."""
        f = self.f
        with f.loop(0, PAGE) as position:
            first = f.mul(f.add(row, f.mul(position.index, self.heads.of_keys)), 2)
            for i in range(2):
                scale = f.load("float", f.at(self.buffers[6], "float", f.add(first, i)), align=4)
                f.store(scale, f.at(self.scratch, "float", f.add(position.index, LANES * (i + 1))), align=4)

    def scales(self, of_values: bool) -> Vec:
        """Return the scales of the keys of a page's positions, or of its values."""
        return _load(self.f, self.scratch, 2 * LANES if of_values else LANES)

    def _prefetch(self, keys: Value, values: Value) -> None:
        """Prefetch a page of a head of keys and their values."""
        f, heads, dtype = self.f, self.heads, DTYPES[self.spec.buffers[1].dtype]
        with f.loop(0, PAGE) as position:
            for address, size in ((keys, heads.size), (values, heads.v_size)):
                row = unread(f, address, f.mul(position.index, heads.of_keys * size), dtype.memory)
                for line in range(0, size * dtype.bytes, LINE_BYTES):
                    prefetch(f, unread(f, row, line, "i8"), 3)

    # Rows
    def _state(self, number: Int) -> Value:
        """Return where a row's maximum and sums are; what a page has for all rows precedes them."""
        return self.f.at(self.scratch, "float", self.f.add(self.f.mul(number, self.heads.state), SHARED))

    def _each_row(self, tokens: _Sequence, head: Int, row: Callable[[Int, Int, Value], None]) -> None:
        """Emit `row(token, its number among all queries, its state)` for the rows of tokens."""
        f, group = self.f, self.heads.group
        with f.loop(tokens.begin, tokens.end) as token:
            first = self._query_row(token.index, head)
            before = f.mul(f.sub(token.index, tokens.begin), group)
            with f.loop(0, group) as member:
                state = self._state(f.add(before, member.index))
                row(token.index, f.add(first, member.index), state)

    def _begin(self, state: Value) -> None:
        """Start a row: it has seen nothing."""
        f = self.f
        f.store(splat(f, "f32", "-inf"), state, align=4)
        for first in range(LANES, self.heads.state, LANES):
            f.store(splat(f, "f32", 0.0), f.at(state, "float", first), align=4)

    def _finish(self, state: Value, row: Int) -> None:
        """Write a row's result: its sums of values over the sum of its weights."""
        f = self.f
        total = _across(f, _load(f, state, LANES), lambda a, b: a + b)
        factor = select(total.eq(0.0), 0.0, 1.0 / total)
        out = f.at(self.buffers[-1], "float", f.mul(row, self.heads.v_size))
        for first, mask in _columns(f, self.heads.v_size):
            value = _load(f, state, 2 * LANES + first) * factor
            Accessor(f, out, "f32", mask).store(Access(first, 1), value)


# The rows of a page ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Page:
    """Emits what a page adds to a row that sees its positions `since` .. `until` - 1."""

    tiles: _Tiles
    keys: Value
    values: Value
    since: Int
    until: Int

    def seen(self) -> Vec:
        """Return the lanes of the positions that are seen."""
        f = self.tiles.f
        before = Vec(f, tail_mask(f, self.since))
        return Vec(f, tail_mask(f, self.until)) & ~before

    def emit(self, query: Value, state: Value, seen: Vec) -> None:
        """Emit the contribution to the row whose query and state are there."""
        f = self.tiles.f
        scores = select(seen, self._scores(query), float("-inf"))
        before = _load(f, state, 0)
        top = _across(f, _greater(scores, before), _greater)
        base = select(top.eq(float("-inf")), 0.0, top)
        factor = weight((before - base) * F32.log2e)
        weights = weight((scores - base) * F32.log2e)
        total = fma(_load(f, state, LANES), factor, weights)
        if self.tiles.spec.is_scaled:
            weights = weights * self.tiles.scales(of_values=True)
        for value, place in (
            (top, state),
            (total, f.at(state, "float", LANES)),
            (weights, self.tiles.scratch),
        ):
            f.store(value.value, place, align=4)
        is_part = f.less(f.sub(self.until, self.since), PAGE)
        f.either(is_part, lambda: self._add(state, factor, True), lambda: self._add(state, factor, False))

    def _scores(self, query: Value) -> Vec:
        """Return the scores of the positions, one a lane."""
        f, spec = self.tiles.f, self.tiles.spec
        together = 8 if f.register_bytes == AVX512_BYTES else 4
        chains: list[Vec] = []
        for first in range(0, PAGE, together):
            chains += self._chains(query, range(first, first + together))
        sums = fold(f, [c.value for c in chains], lambda a, b: (Vec(f, a) + Vec(f, b)).value)
        scores = Vec(f, sums) * spec.scale
        if spec.is_scaled:
            scores = scores * self.tiles.scales(of_values=False)
        if spec.soft_cap:
            scores = tanh(scores / spec.soft_cap) * spec.soft_cap
        return scores

    def _chains(self, query: Value, positions: range) -> list[Vec]:
        """Return the products of the query and the keys at `positions`, by lane."""
        f, heads, dtype = self.tiles.f, self.tiles.heads, self.tiles.spec.buffers[1].dtype
        sums = [_constant(f, 0.0) for _ in positions]
        for first, mask in _columns(f, heads.size):
            queries = Accessor(f, query, "f32", mask).load(Access(first, 1))
            for i, position in enumerate(positions):
                place = position * heads.of_keys * heads.size + first
                key = cast(Accessor(f, self.keys, dtype, mask).load(Access(place, 1)), dtype, "f32")
                sums[i] = fma(key, queries, sums[i])
        return sums

    def _add(self, state: Value, factor: Vec, is_part: bool) -> None:
        """Scale the sums of values and add those of the page, a few columns at a time, by position."""
        f = self.tiles.f
        together = 8 if f.register_bytes == AVX512_BYTES else 4
        columns = list(_columns(f, self.tiles.heads.v_size))
        for start in range(0, len(columns), together):
            part = columns[start : start + together]
            places = [f.at(state, "float", 2 * LANES + first) for first, _ in part]
            sums = [(_load(f, place, 0) * factor).value for place in places]
            if is_part:
                with f.loop(self.since, self.until, carried=sums, nonempty=True) as loop:
                    loop.next(*self._weighed(loop.index, part, loop.carried))
                sums = loop.results
            else:
                for position in range(PAGE):
                    sums = self._weighed(position, part, sums)
            for value, place in zip(sums, places, strict=True):
                f.store(value, place, align=4)

    def _weighed(
        self, position: Int, columns: Sequence[tuple[int, Value | None]], sums: Sequence[Value]
    ) -> list[Value]:
        """Return the sums with the value at a position times its weight."""
        f, heads, dtype = self.tiles.f, self.tiles.heads, self.tiles.spec.buffers[2].dtype
        one = f.load("float", f.at(self.tiles.scratch, "float", position), align=4)
        factor, row = Vec(f, f.splat(one, LANES)), f.mul(position, heads.of_keys * heads.v_size)
        added = []
        for (first, mask), so_far in zip(columns, sums, strict=True):
            stored = Accessor(f, self.values, dtype, mask).load(Access(f.add(row, first), 1))
            value = cast(stored, dtype, "f32")
            added.append(fma(value, factor, Vec(f, so_far)).value)
        return added


def _constant(f: Function, number: float) -> Vec:
    return Vec(f, splat(f, "f32", number))


def _load(f: Function, base: Value, first: int) -> Vec:
    return Vec(f, f.load(VECTOR, f.at(base, "float", first), align=4))


def _columns(f: Function, size: int) -> list[tuple[int, Value | None]]:
    """Return (first column, mask) of the vectors of a head."""
    masks = (size - first for first in range(0, size, LANES))
    return [(LANES * i, None if rest >= LANES else tail_mask(f, rest)) for i, rest in enumerate(masks)]


def _greater(a: Vec, b: Vec) -> Vec:
    """Return the greater of each lane; b where a is NaN."""
    return select(a.gt(b), a, b)


def _across(f: Function, lanes: Vec, combine: Callable[[Vec, Vec], Vec]) -> Vec:
    """Return the reduction of all lanes in every lane, by halves."""
    steps = (LANES // 2**i for i in range(1, LANES.bit_length()))
    return reduce(lambda x, step: combine(x, Vec(f, rotate(f, x.value, step))), steps, lanes)
