"""The ways to compute a product, and their selection.

Those of the table `RUNS` compute a run of tiles of the kernel, if the product is large or small enough; those
of `TILES` a tile by fused multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....vm.program import Work
from ...llvm.abi import NOTHING_PREPARED, RT_PREPARED, Generated
from ...llvm.function import Function, Int, Value
from ...loops.bodies import LANES
from ...spec import Size
from ..family import Variant
from . import amx, amx_groups, gemv, register_resident, zero_rows
from .amx_bytes_tiles import BytesOnTiles, Places
from .amx_tiles import OnTiles
from .chunks import is_chunked
from .digits import InDigits
from .epilogue import RowTile
from .gemv import gemv_of
from .grouped import GroupedTile, GroupSums, sums_bytes
from .layouts import layout_of
from .lhs import Computed, InPlace
from .lines import lines_of_rows
from .problem import Problem
from .product import Emission, KernelTile, Product
from .register_resident import RegisterResident
from .rhs import InRows, Panels
from .row_shares import row_counts
from .schedules import PANEL
from .shorts import InShorts
from .spec import Matmul

PART_SIZE = 8192  # rows times steps from which a tile is a part: its loop over row tiles divides at run time


TileCode = Callable[[Product, RowTile, Value, Value], None]
Rest = Callable[[Value], None]
RunCode = Callable[[Product, Value, Rest], None]


@dataclass(frozen=True)
class TileVariant(Variant[Problem, TileCode]):
    """A way to compute a tile by fused multiply-adds.

    `fits(problem)`: whether kernels of a problem may have such tiles. `emit(product, tile, a, b)`: the code,
    for A's rows at `a` and B's columns at `b`. `takes(problem, tile, is_few)`: whether it computes `tile`;
    `is_few`: whether it has so few rows that B is read in place.
    """

    takes: Callable[[Problem, RowTile, Value | bool], Value | bool] = lambda problem, tile, is_few: True


def emit(product: Product, schedule: str) -> Generated:
    """Emit the kernel; `schedule`: the name of its register tile."""
    fitting = [run for run in RUNS if run.fits(product.emission.problem)]

    def emit_from(number: int, begin: Value) -> None:
        fitting[number].emit(product, begin, lambda rest: emit_from(number + 1, rest))

    emit_from(0, product.emission.f.params[3])
    return _generated(product, schedule)


def _generated(product: Product, schedule: str) -> Generated:
    """Return the generator's description of the kernel."""
    problem = product.emission.problem
    spec, block, width = problem.spec, problem.block, problem.width
    outer = [problem.groups, *spec.product.batch] if problem.groups else spec.product.batch
    tiles: list[tuple[Size, int]] = [
        *((size, 1) for size in outer),
        (spec.product.m, block),
        (problem.columns, width),
    ]
    scratch = (*product.emission.scratch.terms(problem), *product.lhs.scratch())
    per_k = block * (2 * width + len(spec.product.prologue))
    cost = ((per_k, (spec.product.k,)), (8 * block * width * len(spec.product.epilogue), ()))
    lines = lines_of_rows(spec, len(outer)) if isinstance(spec, Matmul) else ()
    return Generated(Work(tuple(tiles), scratch, cost, lines), schedule)


# Runs of tiles --------------------------------------------------------------------------------------------


def _of_zeros(product: Product, begin: Value, rest: Rest) -> None:
    """All of them, if the rows of A are few and all zeros."""
    product.emission.f.takes("zero-rows")
    zeros = zero_rows.are_zeros(product)
    product.emission.f.either(zeros, lambda: zero_rows.multiply(product, begin), lambda: rest(begin))


def _on_amx(product: Product, begin: Value, rest: Rest) -> None:
    """All of them on AMX tiles, if the product is large enough."""
    f, problem = product.emission.f, product.emission.problem
    is_much = layout_of(problem.spec).enough.is_much(f, problem.m, problem.k)
    f.either(is_much, lambda: _emit_on_tiles(product, begin), lambda: rest(begin))


def _emit_on_tiles(product: Product, begin: Value) -> None:
    emission = product.emission
    f, k, planes = emission.f, emission.problem.k, emission.scratch.planes
    on_tiles: OnTiles | BytesOnTiles | amx_groups.GroupsOnTiles
    groups = emission.problem.grouped
    if isinstance(planes, amx_groups.Places):
        assert groups is not None
        f.takes("amx-groups")
        on_tiles = amx_groups.GroupsOnTiles(f, groups, product.lhs, emission.epilogue, planes)
    elif isinstance(planes, Places):
        assert isinstance(k, int)
        f.takes("amx-bytes")
        on_tiles = BytesOnTiles(f, emission.problem, product.lhs, emission.epilogue, planes)
    else:
        assert planes is not None
        f.takes("amx")
        on_tiles = OnTiles(f, k, product.lhs, emission.epilogue, planes, emission.problem.arithmetic)
    if groups is not None:
        amx_groups.configure(f, groups)
    elif isinstance(on_tiles, BytesOnTiles):
        amx.configure(f, on_tiles.rows.lie.length)
    else:
        amx.configure(f)
    if isinstance(on_tiles, OnTiles) and emission.problem.slabs is not None:
        begin = _in_slabs(product, on_tiles, begin)
    product.each_tile(begin, on_tiles.prepare, lambda tile: on_tiles.multiply(tile.at, emission.rhs.at(tile)))
    amx.release(f)


def _in_slabs(product: Product, on_tiles: OnTiles, begin: Value) -> Value:
    """Emit the leading tiles of whole blocks of a run, if there are several, slab by slab; return the start
    of the rest."""
    emission = product.emission
    f, problem, slabs = emission.f, emission.problem, emission.problem.slabs
    assert slabs is not None
    f.takes("amx-slabs")
    n_panels = f.ceildiv(problem.n, problem.width)
    first, last = f.udiv(begin, n_panels), f.udiv(f.params[4], n_panels)
    many = f.select(f.less(f.add(first, 1), last), f.sub(last, first), 0)
    count = f.select(f.less(f.urem(begin, n_panels), 1), many, 0)
    with f.loop(0, count, slabs.blocks) as at:
        m0 = f.mul(f.add(first, at.index), problem.block)
        rows = f.minimum(
            f.mul(f.minimum(slabs.blocks, f.sub(count, at.index)), problem.block), f.sub(problem.m, m0)
        )

        def each(panel: Int, tile: Callable[[RowTile, Value], None]) -> None:
            n0 = f.mul(panel, problem.width)
            product.tile([], m0, rows, panel, n0, lambda place: tile(place.at, emission.rhs.at(place)))

        on_tiles.in_slabs(m0, rows, n_panels, each)
        f.store(f.i64(NOTHING_PREPARED), f.at(f.params[2], "i8", RT_PREPARED), align=8)
    return f.i64(f.add(begin, f.mul(count, n_panels)))


def _by_gemv(product: Product, begin: Value, rest: Rest) -> None:
    """For few rows, several panels at a time; a remainder of fewer panels is left."""
    emission, lhs = product.emission, product.lhs
    f, problem, sums_at, rhs = emission.f, emission.problem, emission.scratch.sums, emission.rhs
    assert isinstance(rhs, Panels)
    m, width, few = problem.m, problem.width, gemv_of(f, problem)
    columns = few.panels * PANEL
    run = columns // width
    end = f.minimum(f.params[4], f.udiv(problem.n, width))
    n_runs = f.op("i64", f"sdiv i64 {f.i64(f.sub(end, begin)).name}, {run}")
    is_few = f.is_less(m, few.max_rows + 1)
    if is_few is not False:
        f.takes("gemv")
    if isinstance(is_few, Value):
        n_runs = f.select(is_few, n_runs, 0)
    with f.when(f.less(0, n_runs)):
        lhs.prepare([], 0, m)
    with f.loop(0, n_runs) as at:
        first = f.add(begin, f.mul(at.index, run))
        few.multiply(product.strides, lhs.at([], 0), rhs.panel(first), m, sums_at)
        if isinstance(lhs, InDigits):
            lhs.scale([], 0, 0, m, rhs.panel(first), sums_at, columns, columns)
        with f.loop(0, columns, width) as place:
            n0 = f.add(f.mul(first, width), place.index)
            sums = f.at(sums_at, "float", place.index)
            emission.epilogue.emit(RowTile([], 0, m, n0), sums, columns)
    done = f.mul(f.maximum(n_runs, 0), run)
    rest(f.i64(f.add(begin, done)))


def _tile_by_tile(product: Product, begin: Value, rest: Rest) -> None:
    """All of them, one by one."""
    prepare = product.lhs.prepare if product.emission.problem.prepares_rows else None
    product.each_tile(begin, prepare, lambda tile: emit_tile(product, tile))


#: Each that fits computes some tiles of a run and leaves the rest of them to the next one.
RUNS: tuple[Variant[Problem, RunCode], ...] = (
    Variant("zero-rows", zero_rows.fits, _of_zeros),
    Variant(
        "amx", lambda problem: problem.has_tiles and not problem.has_dots and not problem.grouped, _on_amx
    ),
    Variant("amx-bytes", lambda problem: problem.has_tiles and problem.has_dots, _on_amx),
    Variant("amx-groups", lambda problem: problem.has_tiles and problem.grouped is not None, _on_amx),
    Variant("gemv", gemv.fits, _by_gemv),
    Variant("tiles", lambda problem: True, _tile_by_tile),
)


# A tile ---------------------------------------------------------------------------------------------------


def emit_tile(product: Product, tile: KernelTile) -> None:
    """Emit one tile by the first of TILES that takes it."""
    emission = product.emission
    f, problem = emission.f, emission.problem
    a = product.lhs.at(tile.at.batch, tile.at.m0)
    is_few = f.is_less(tile.at.rows, problem.rows_in_place + 1)
    b = emission.rhs.at(tile)

    def first_of(variants: Sequence[TileVariant]) -> None:
        variant, *others = variants

        def emit() -> None:
            f.takes(variant.name)
            variant.emit(product, tile.at, a, b)

        f.either(variant.takes(problem, tile.at, is_few), emit, lambda: first_of(others))

    first_of([variant for variant in TILES if variant.fits(problem)])


def _from_registers(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From a weight in vector registers."""
    emission = product.emission
    resident = RegisterResident(emission.f, emission.problem, emission.bodies, product.lhs.stride)
    resident.emit(tile, a, b)


def _from_panels(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From a weight's panels; by a part, if tiles are.

    The part depends on the number of rows only by the size of row tiles, so kernels for other numbers of rows
    mostly share it.
    """
    f, problem = product.emission.f, product.emission.problem
    if not _has_part(product):
        _from_panels_here(product, tile, a, b)
        return
    columns, place = tile.columns, tile.arguments(f)
    passed = [columns] if isinstance(columns, Value) else []

    def body(g: Function) -> None:
        a, b, *rest = g.params[3:]
        known = rest[-1] if passed else columns
        _from_panels_here(product_of(g, problem), RowTile.of(rest[: len(place)], known), a, b)

    name = "tile_x" if passed else f"tile_{columns or 'all'}"
    f.call_part(name, body, *f.params[:3], a, b, *place, *passed)


def _from_panels_here(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    emission, finish = product.emission, product.finish(tile)
    problem, sums = emission.problem, emission.scratch.sums
    given = (tile.rows, tile.columns, sums, finish, _is_new(product, tile.n0), _is_only(problem))
    emission.row_tiles.from_panels(product.strides, a, b, *given)


def _has_part(product: Product) -> bool:
    """Whether tiles are a part: in an exact kernel of several row tiles, if they are large enough."""
    problem = product.emission.problem
    m, k = problem.m, problem.k
    if problem.groups or not (problem.is_exact and isinstance(m, int) and isinstance(k, int)):
        return False
    return m > product.emission.row_tiles.most and min(m, problem.block) * k >= PART_SIZE


def _is_only(problem: Problem) -> bool:
    """Whether there is one tile of columns, whose micro-kernels read each row once. Not in code for any
    number of rows: for 16 it would be slower."""
    m, n, width = problem.m, problem.n, problem.width
    is_whole = LANES * problem.schedule.vectors == width
    return is_whole and isinstance(m, int) and isinstance(n, int) and n <= width


def _is_new(product: Product, n0: Int) -> Value | bool:
    """Whether tiles of columns from `n0` on are the first to read their rows of A, a block of several."""
    f, problem = product.emission.f, product.emission.problem
    is_dense = isinstance(product.lhs, InPlace) and product.lhs.stride == problem.k
    if not is_dense or problem.is_one_block:
        return False
    is_first = True if isinstance(problem.n, int) and problem.n <= problem.width else f.is_less(n0, 1)
    if isinstance(problem.m, int) or isinstance(is_first, bool):
        return is_first
    is_much = f.less(problem.block, problem.m)
    return f.op("i1", f"and i1 {is_first.name}, {is_much.name}")


def _from_copy(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From a copy of B's columns in scratch."""
    emission = product.emission
    copied, strides = emission.copy(b, tile.columns), product.rows_strides(emission.problem.width)
    sums, finish = emission.scratch.sums, product.finish(tile)
    emission.row_tiles.from_rows(strides, a, copied, tile.rows, tile.columns, sums, finish)


def _widened(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From a copy of narrow panels in f32, a chunk of the steps at a time if sums have chunks."""
    emission, rhs = product.emission, product.emission.rhs
    packed, columns = emission.scratch.packed, tile.columns
    if not is_chunked(emission.problem.k):
        _from_copy(product, tile, a, b)
        return
    assert isinstance(rhs, Panels) and packed is not None

    def copy(panels: Value, steps: Int) -> Value:
        return rhs.copy(panels, columns, packed, steps)

    sums, finish = emission.scratch.sums, product.finish(tile)
    emission.row_tiles.from_panels(product.strides, a, b, tile.rows, columns, sums, finish, copy=copy)


def _in_place(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From rows of a buffer in place."""
    emission, rhs = product.emission, product.emission.rhs
    assert isinstance(rhs, InRows)
    strides, finish = product.rows_strides(rhs.step), product.finish(tile)
    emission.row_tiles.in_place(strides, a, b, tile.rows, emission.scratch.sums, finish)


def _in_groups(product: Product, tile: RowTile, a: Value, b: Value) -> None:
    """From a weight whose groups of steps have separate scales."""
    emission, problem = product.emission, product.emission.problem
    f, groups, sums, width = emission.f, problem.grouped, emission.scratch.sums, problem.width
    assert groups is not None
    there = width if tile.columns is None else tile.columns
    n_panels = min(width // PANEL, -(-there // PANEL)) if isinstance(there, int) else width // PANEL
    grouped_tile = GroupedTile(
        GroupSums(f, groups, n_panels, width),
        problem.schedule,
        tile.rows,
        product.lhs.stride,
        lambda most: row_counts(problem.m, problem.block, most),
        sums,
        f.at(sums, "i8", sums_bytes(groups, problem.block, width)),
    )
    lhs, finish = product.lhs, product.finish(tile)
    if not isinstance(lhs, InDigits):
        finish.done(0, tile.rows, grouped_tile.multiply(a, b))
        return

    def done(begin: Int, count: Int, found: Value) -> None:
        lhs.scale(tile.batch, tile.m0, begin, count, b, found, width, n_panels * PANEL)
        finish.done(begin, count, found)

    grouped_tile.each_row_tile(a, b, replace(finish, done=done))


#: The first one that takes a tile computes it. B's rows are copied to scratch, unless a single row tile would
#: read them; so are narrow panels, whose elements are thereby widened (`Schedule.tiles_in_place`).
TILES = (
    TileVariant("grouped", lambda problem: problem.grouped is not None, _in_groups),
    TileVariant("register-resident", register_resident.fits, _from_registers),
    TileVariant(
        "panels",
        lambda problem: problem.in_panels,
        _from_panels,
        lambda problem, tile, is_few: is_few if problem.is_narrow else True,
    ),
    TileVariant("widened", lambda problem: problem.in_panels, _widened),
    TileVariant(
        "in-place",
        lambda problem: not problem.in_panels,
        _in_place,
        lambda problem, tile, is_few: is_few if tile.columns is None else False,
    ),
    TileVariant("packed", lambda problem: not problem.in_panels, _from_copy),
)


def product_of(f: Function, problem: Problem) -> Product:
    """Return the product of a Matmul, whose rows of A are in a buffer or computed; call in the entry
    block."""
    emission = Emission.open(f, problem)
    lhs: InPlace | Computed | InDigits | InShorts
    if problem.spec.product.prologue:
        lhs = Computed(f, problem, emission.scratch.behind_copy(f, problem))
    else:
        lhs = InPlace(f, problem, emission.bodies.addresses)
    if problem.grouped is not None and problem.is_represented:
        represented = InShorts if problem.grouped.in_shorts else InDigits
        lhs = represented(f, problem, lhs, emission.scratch.behind_copy(f, problem))
    return Product.of(emission, lhs)
