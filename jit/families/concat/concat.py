"""The Concat family: several nests that fill one output.

The tiles are those of the output, as if one nest wrote it. Of every piece with m tiles, tile t of n does
those from t * m // n to (t + 1) * m // n - 1: any partition of the tiles divides every piece, and adjacent
pieces of the output are written together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....vm.program import Work
from ...llvm.abi import Generated, check_schedule, resolve
from ...llvm.dtypes import DTYPES
from ...llvm.function import Function, Int
from ...loops.bodies import load_addresses
from ...loops.tiling import TILE_BYTES, count_tiles, tile_cost, tiles_of
from ...spec import Buffer, Index, Instr, Nest
from ..nest.nest import Emitter
from .spec import Concat, Piece


def emit(f: Function, spec: Concat, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Concat; see `abi.Generator`. The one schedule is "pieces"."""
    check_schedule("concat", schedule, ["pieces"])
    out = next(i for i, buffer in enumerate(spec.buffers) if buffer.is_output)
    addresses = load_addresses(f, len(spec.buffers))
    whole = Emitter(f, _fill(spec.buffers[out]), sizes, TILE_BYTES // 2, [addresses[out]])
    pieces = [
        Emitter(
            f, Nest(spec.n_dims, spec.buffers, p.domain, p.body), sizes, _tile_bytes(spec, out, p, sizes),
            addresses,
        )
        for p in spec.pieces
        if not any(resolve(size, sizes) == 0 for size in p.domain)
    ]  # fmt: skip
    n_tiles = count_tiles(f, whole.loops, whole.plans)
    counts = [count_tiles(f, piece.loops, piece.plans) for piece in pieces]
    with f.loop(f.params[3], f.params[4]) as tile:
        for piece, count in zip(pieces, counts, strict=True):
            begin = _share(f, tile.index, count, n_tiles)
            piece.emit(begin, _share(f, f.add(tile.index, 1), count, n_tiles))
    weight = max((piece.weight for piece in pieces), default=1)
    scratch = tuple(term for piece in pieces for term in piece.work.scratch)
    cost = tile_cost(whole.loops, whole.plans, weight)
    return Generated(Work(tiles_of(whole.loops, whole.plans), scratch, cost), "pieces")


def _fill(out: Buffer) -> Nest:
    """Return the nest that writes zeros to all of `out`: its tiles are the kernel's."""
    index = tuple(Index(loop=i) for i in range(len(out.shape)))
    value = False if out.dtype == "bool" else 0
    body = (Instr("const", out.dtype, value=value), Instr("store", out.dtype, (0,), buffer=0, index=index))
    return Nest(0, (out,), out.shape, body)


def _share(f: Function, tile: Int, count: Int, n_tiles: Int) -> Int:
    """Return the first of a piece's `count` tiles in tile number `tile` of `n_tiles`: tile * count // n_tiles
    by products that stay below n_tiles**2, however many tiles a piece has."""
    if count == n_tiles:
        return tile
    whole, rest = f.udiv(count, n_tiles), f.urem(count, n_tiles)
    return f.add(f.mul(tile, whole), f.udiv(f.mul(tile, rest), n_tiles))


def _tile_bytes(spec: Concat, out: int, piece: Piece, sizes: Sequence[Int]) -> int:
    """Return the traffic of a piece's tile: its share of an output tile's.

    Along axes that are whole in an output tile, the piece is narrower than the output.
    """
    shape = [resolve(size, sizes) for size in spec.buffers[out].shape]
    (store,) = (i for i in piece.body if i.op == "store")
    elements = TILE_BYTES // 2 // DTYPES[spec.buffers[out].dtype].bytes
    tile_bytes = TILE_BYTES
    for axis, place in enumerate(store.index):
        inner = shape[axis:]
        width = 1 if place.loop is None else resolve(piece.domain[place.loop], sizes)
        if not all(isinstance(size, int) for size in (width, *inner)):
            continue
        if 0 < prod(inner) <= elements and axis > 0:  # type: ignore[arg-type]
            tile_bytes = max(tile_bytes * width // shape[axis], 1)  # type: ignore[operator]
    return tile_bytes
