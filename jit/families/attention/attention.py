"""The Attention family: softmax(q k^T) v for a few query rows at a time, without the length x length
matrix.

A tile is one iteration of the batch loops and a block of query rows. For each block of keys it copies them,
transposed, and their values (unless these are few, or few rows read them) into panels in scratch; then for
each row tile (see `Tile`) it computes the scores with keys along the lanes, turns them into weights and
multiplies v, all in the first- and second-level cache. A group of row tiles does each of these two steps
together, so the keys, then the values, stay in a near cache.

Weights are powers of two, 2^(unit * (score - base)), with the unit of `mask`. A row's base is 0 if its
greatest score is within +-`parts.LIMIT`: its weights and their sum are then finite regardless of the maximum.
So a row tile's scores become weights in the registers in which they were summed, with their maxima beside
them; only if a maximum is beyond the limit are the scores recomputed, stored, and their maxima taken first. A
row's bits depend only on its own scores, not on the path of its row tile.

All three sums have a fixed order: over the head dimension and over keys by ascending fused multiply-adds
(`microkernel`), the softmax's by ascending vectors of keys, then over the lanes. The division by the row's
sum is a multiplication by its reciprocal, after the sum over keys. If there are several blocks of keys, each
row keeps its greatest score and its sum from block to block, and its previous results are scaled if its base
changes (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018); so that the panels of a
block stay in the second-level cache.

Tokens of segments attend within each one (`segments`): a tile is a block of one segment's queries, and its
bits are those of the segment alone, because neither the tiles nor the blocks of keys change a row's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.function import Function, Int, Value, most
from ...llvm.prefetch import unread
from ...loops.bodies import LANES, splat
from ...spec import Size
from ..family import Variant, first_fitting
from .ahead import ahead_of, read_ahead
from .emission import RUNNING, Emission, Head, Keys, Queries, RowTile, n_running, scratch_terms
from .outputs import Outputs
from .parts import call_part, pack_keys, pack_values, prefetch_rows, write_constants
from .problem import KEY_BLOCK, TILES, Problem, choose_schedule, problem_of
from .segments import each_tile
from .spec import Attention
from .weights import Weights


def emit(f: Function, spec: Attention, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of an Attention; see `abi.Generator`. Schedules: those of `schedules`."""
    extents = spec.extents
    name = schedule or choose_schedule(f, resolve(extents.v_dim, sizes))
    check_schedule("attention", name, list(TILES))
    problem = problem_of(spec, sizes, TILES[name])
    _emit_tiles(Emission.open(f, problem))
    tiles: list[tuple[Size, int]] = [*((size, 1) for size in extents.batch), (extents.q_len, problem.block)]
    products = tuple((2 * problem.block, (extents.k_len, size)) for size in (extents.head_dim, extents.v_dim))
    cost = (*products, (20 * problem.block, (extents.k_len,)))
    return Generated(Work(tuple(tiles), scratch_terms(problem), cost), name)


# Tiles and blocks of keys ---------------------------------------------------------------------------------


def _emit_tiles(emission: Emission) -> None:
    """Emit the loop over the kernel's tiles."""
    f, problem = emission.f, emission.problem
    write_constants(f, emission.scratch.constants, emission.mask.scale)
    blocks = first_fitting(BLOCKS, problem)
    f.takes(blocks.name)

    def tile(head: Head, following: Head, block: Int) -> None:
        blocks.emit(emission, _queries(emission, head, following, block))

    if problem.spec.is_segmented:
        f.takes("segments")
        each_tile(emission, tile)
        return
    with f.loop(f.params[3], f.params[4]) as loop:
        batch, following, block = emission.places(loop.index)
        head, after = (Head(at, 0, problem.q_len, problem.k_len) for at in (batch, following))
        tile(head, after, block)


def _queries(emission: Emission, head: Head, following: Head, block: Int) -> Queries:
    """Return the rows of a tile: block number `block` of its head's."""
    f, problem, operands = emission.f, emission.problem, emission.operands
    i0, top = f.mul(block, problem.block), most(problem.q_len)
    is_all = top is not None and top <= problem.block
    rows = head.q_len if is_all else f.minimum(problem.block, f.sub(head.q_len, i0))
    q, out = (operand.at([*head.batch, f.add(head.first, i0)]) for operand in (operands.q, operands.out))
    return Queries(head, following, i0, rows, q, out)


def _one_block(emission: Emission, queries: Queries) -> None:
    """All keys at once."""
    _emit_block(emission, queries, Keys(0, queries.head.k_len, True, True))


def _many_blocks(emission: Emission, queries: Queries) -> None:
    """Block after block; the rows' previous results are kept in scratch."""
    f, k_len, running = emission.f, queries.head.k_len, emission.scratch.running
    with f.loop(0, n_running(emission.problem), RUNNING) as kept:
        top = f.at(running, "float", kept.index)
        f.store(splat(f, "f32", "-inf"), top, align=4)
        f.store(splat(f, "f32", 0.0), f.at(top, "float", LANES), align=4)
    with f.loop(0, f.maximum(k_len, 1), KEY_BLOCK) as block:
        rest = f.sub(k_len, block.index)
        is_first, is_last = f.less(block.index, 1), f.less(rest, KEY_BLOCK + 1)
        keys = Keys(block.index, f.minimum(rest, KEY_BLOCK), is_first, is_last)
        _emit_block(emission, queries, keys)


def _emit_block(emission: Emission, queries: Queries, keys: Keys) -> None:
    """Emit the contribution of a block of keys to a tile's rows."""
    f, problem, scratch = emission.f, emission.problem, emission.scratch
    weights = Weights(emission)
    values = pack(emission, queries.head, keys)
    f.store(f.i64(0), scratch.must_shift, align=8)
    if emission.mask.is_same_in_rows:
        weights.write_biases(scratch.biases, (*queries.head.batch, 0), keys, 1)
    ahead = ahead_of(emission, queries, keys)
    outputs = Outputs.of(emission, keys, values)
    lda, ldc = (x.stride(problem.row_loop) for x in (emission.operands.q, emission.operands.out))

    def weigh(tile: RowTile) -> None:
        left = f.at(queries.q, "float", f.mul(tile.begin, lda))
        read_ahead(emission, tile, ahead)
        after = unread(f, left, f.mul(tile.rows, lda))
        prefetch_rows(f, after, tile.rows, lda, problem.head_dim, 3)
        weights.emit(tile, left, (*queries.head.batch, f.add(queries.i0, tile.begin)), keys)

    def multiply(tile: RowTile) -> None:
        there = f.at(queries.out, "float", f.mul(tile.begin, ldc))
        prefetch_rows(f, there, tile.rows, ldc, problem.v_dim, 3)
        outputs.emit(tile, there)

    _row_tiles(emission, queries.rows, (weigh, multiply))


def pack(emission: Emission, head: Head, at: Keys) -> Value:
    """Copy a block of the head's keys into their panels, and its values unless they are read in place; return
    where the values are."""
    f, problem, scratch = emission.f, emission.problem, emission.scratch
    step, count = problem.key_loop, f.i64(at.count)
    firsts = []
    for operand in (emission.operands.k, emission.operands.v):
        begin = f.mul(at.begin, operand.stride(step))
        firsts.append(f.at(operand.at([*head.batch, 0, head.first]), "float", begin))
    (k, v), (of_k, of_v) = firsts, (x.stride(step) for x in (emission.operands.k, emission.operands.v))
    call_part(f, "pack_keys", pack_keys, k, scratch.keys, count, problem.head_dim, of_k, problem.key_panel)
    if problem.in_place:
        f.takes("values-in-place")
        return v
    f.takes("values-packed")
    call_part(f, "pack_values", pack_values, v, scratch.values, count, problem.v_dim, of_v, problem.panel)
    return scratch.values


def _row_tiles(emission: Emission, rows: Int, steps: Sequence[Callable[[RowTile], None]]) -> None:
    """Emit all steps of the row tiles of `rows` rows, of sizes as even as can be, group by group."""
    f, group_size = emission.f, emission.scratch.shape.group
    if rows == 0:
        return
    n = f.ceildiv(rows, emission.problem.tile.rows)
    base, extra = f.udiv(rows, n), f.urem(rows, n)
    with f.loop(0, n, group_size) as group:
        end = f.minimum(f.add(group.index, group_size), n)
        for step in steps:
            with f.loop(group.index, end, nonempty=True) as tile:
                begin = f.add(f.mul(tile.index, base), f.minimum(tile.index, extra))
                count = base
                if extra != 0:
                    is_larger = f.less(tile.index, extra)
                    count = f.add(base, f.op("i64", f"zext i1 {is_larger.name} to i64"))
                step(_row_tile(emission, tile.index, begin, count, f.sub(tile.index, group.index)))


def _row_tile(emission: Emission, number: Int, begin: Int, rows: Int, place: Int) -> RowTile:
    """Return the row tile with number `place` in its group."""
    f, scratch = emission.f, emission.scratch
    is_one, running = emission.problem.is_one, scratch.running
    return RowTile(
        number,
        begin,
        rows,
        f.at(scratch.scores, "float", f.mul(place, scratch.shape.tile_scores)),
        f.at(scratch.factors, "float", f.mul(place, LANES)),
        running if is_one else f.at(running, "float", f.mul(number, RUNNING)),
    )


#: Ways to process the keys of a tile; the first one that fits is taken.
BLOCKS: tuple[Variant[Problem, Callable[[Emission, Queries], None]], ...] = (
    Variant("one-block", lambda problem: problem.is_one, _one_block),
    Variant("online", lambda problem: True, _many_blocks),
)
