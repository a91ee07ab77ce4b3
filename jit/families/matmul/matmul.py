"""The Matmul family: panels of B against row tiles of A, with the epilogue applied before the only
store.

A tile of the kernel is a block of rows times the columns of one micro-kernel: one or two panels of PANEL.
Inside it (`row_tiles`) a micro-kernel leaves a row tile's sums in scratch (first-level cache), the epilogue
reads them from there, once for the code's sake: its instructions appear once per kernel and not once per
accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...llvm.abi import RT_SCRATCH, Generated, check_schedule, resolve
from ...llvm.conversion import widened
from ...llvm.dtypes import DTYPES, vector
from ...llvm.function import Function, Int, Value, most
from ...llvm.vector import Vec
from ...loops.affine import Affine, affine
from ...loops.bodies import LANES, BodyEmitter
from ...spec import Size, Term
from . import amx
from .amx_tiles import OnTiles, Planes
from .arithmetic import QUADS, arithmetic_of
from .epilogue import Epilogue, RowTile
from .gemv import GEMV_PANELS, Gemv
from .lhs import Computed, InPlace, scratch_of
from .microkernel import (
    PANEL,
    SCHEDULES,
    Ending,
    Schedule,
    Strides,
    default_schedule,
    load,
    narrow_schedules,
    tail,
)
from .register_resident import RegisterResident, fits_registers
from .row_tiles import WHOLE, Finish, Pieces, RowTiles
from .spec import Matmul

A_BYTES = 1024 * 1024  # of A in a block of rows: it should stay in the second-level cache beside two panels
MAX_BLOCK, MIN_BLOCK = 224, 84  # rows
PART_SIZE = 8192  # rows times steps of a tile that is a part: its loop over row tiles divides at run time
SHORT = 128  # steps of sums of which a trip through scratch takes a tenth of the time; code is longer without
LAYOUTS = ("rows", "panels", "quads")  # of B
PANEL_DTYPES = (
    "f32",
    "bf16",
    "f16",
    "i8",
)  # of a weight in panels; the narrow ones are widened when they are read


def pack_quads(weight: np.ndarray) -> np.ndarray:
    """Return a [K, N] weight as [ceil(N / PANEL), K / 4, PANEL, 4]; K is a multiple of 4."""
    panels = pack_panels(weight)
    n_panels, k, _ = panels.shape
    return np.ascontiguousarray(panels.reshape(n_panels, k // 4, 4, PANEL).swapaxes(2, 3))


def pack_panels(weight: np.ndarray) -> np.ndarray:
    """Return a [K, N] weight as [ceil(N / PANEL), K, PANEL], the last panel padded with zeros."""
    (k, n), whole = weight.shape, weight.shape[1] // PANEL
    panels = np.zeros((-(-n // PANEL), k, PANEL), weight.dtype)
    panels[:whole] = as_panels(weight[:, : whole * PANEL])
    if n % PANEL:
        panels[whole, :, : n % PANEL] = weight[:, whole * PANEL :]
    return panels


def as_panels(weight: np.ndarray) -> np.ndarray:
    """Return a [K, N] weight as `pack_panels` does, in the memory where it lies; N is a multiple of PANEL."""
    k, n = weight.shape
    return weight.reshape(k, n // PANEL, PANEL).transpose(1, 0, 2)


def emit(f: Function, spec: Matmul, sizes: Sequence[Int], schedule: str | None) -> Generated:
    """Emit the kernel of a Matmul; see `abi.Generator`. Schedules: those of `microkernel`."""
    name = schedule or choose_schedule(f, spec, resolve(spec.m, sizes))
    check_schedule("matmul", name, fitting_schedules(spec, f.has_tiles))
    _check(spec)
    return _Matmul(f, spec, sizes, SCHEDULES[name]).emit(name)


def _check(spec: Matmul) -> None:
    is_quads = spec.b_layout == "quads"
    takes = {"b": ("i8",) if is_quads else PANEL_DTYPES if spec.b_layout == "panels" else ("f32",)}
    if not spec.prologue:
        takes["a"] = ("u8",) if is_quads else ("f32",)
    if is_quads and (not isinstance(spec.k, int) or spec.k % 4):
        raise ValueError(f"matmul kernel: k is {spec.k} in layout 'quads'; it must be a multiple of 4")
    for role, dtypes in sorted(takes.items()):
        dtype = spec.buffers[spec.a if role == "a" else spec.b].dtype
        if dtype not in dtypes:
            raise ValueError(
                f"matmul kernel: {role} is {dtype}; it must be {' or '.join(dtypes)} (cast it first)"
            )
    if spec.b_layout not in LAYOUTS:
        raise ValueError(
            f"matmul kernel: b_layout is {spec.b_layout!r}; it must be one of {', '.join(LAYOUTS)}"
        )


def extension(spec: Matmul) -> str:
    """Return the extension for which code of `spec` differs: see `Target`."""
    return "vnni" if spec.b_layout == "quads" else "amx" if uses_tiles(spec) else ""


def uses_tiles(spec: Matmul) -> bool:
    """Return True where a target with AMX tiles computes `spec` with them, for enough rows."""
    return spec.b_layout == "panels" and spec.buffers[spec.b].dtype == "f32"


def fitting_schedules(spec: Matmul, has_tiles: bool) -> tuple[str, ...]:
    """Return the schedules that a product can be compiled with; AMX tiles are one panel wide."""
    return narrow_schedules() if has_tiles and uses_tiles(spec) else tuple(SCHEDULES)


def choose_schedule(f: Function, spec: Matmul, m: Int) -> str:
    """Return the name of the register tile for the function's target.

    AMX tiles take one panel at a time. A tall tile takes all of a few rows, so B is read once. Of few
    columns they have sums enough to hide an addition's latency.
    """
    name, top = default_schedule(f), most(m)
    is_low = top is not None and top <= SCHEDULES[name].rows
    return name if is_low or (f.has_tiles and uses_tiles(spec)) else widest_schedule(f, spec)


def widest_schedule(f: Function, spec: Matmul) -> str:
    """Return the name of the register tile for many rows: it reads the least, and is no wider than the
    columns."""
    name = default_schedule(f)
    return "6x64" if name == "14x32" and not (isinstance(spec.n, int) and spec.n <= PANEL) else name


class _Matmul:
    """The state of one emission; constructed in the entry block. `pieces`: how the steps come."""

    pieces: Pieces = WHOLE

    def __init__(self, f: Function, spec: Matmul, sizes: Sequence[Int], schedule: Schedule) -> None:
        self.f, self.spec, self.sizes, self.schedule = f, spec, sizes, schedule
        self.m, self.n, self.k = (resolve(size, sizes) for size in (spec.m, spec.n, spec.k))
        self.batch = [resolve(size, sizes) for size in spec.batch]
        if spec.b_layout == "quads":
            self.k = f.udiv(self.k, 4)  # a step takes four
        self.m_loop = len(spec.batch)
        self.n_loop, self.k_loop = self.m_loop + 1, self.m_loop + 2
        self.bodies = BodyEmitter(f, spec.epilogue, spec.buffers, sizes, vector_loop=self.n_loop)
        self.b: Affine | None = None
        if spec.b_layout == "rows":
            self.b = affine(f, spec.buffers[spec.b], spec.b_index, sizes)
            if self.b.stride(self.n_loop) != 1:
                raise ValueError(
                    "matmul kernel: B's n axis must be its last (stride 1) in layout 'rows'; copy B first"
                )
        self.dtype = QUADS if spec.b_layout == "quads" else spec.buffers[spec.b].dtype
        arithmetic = arithmetic_of(self.dtype)
        self.element = arithmetic.element
        self.is_narrow = self.b is None and arithmetic.is_widened
        self.has_copy = self.b is not None or self.is_narrow  # of a tile's columns of B, in scratch
        self.width = max(PANEL, LANES * schedule.vectors)  # columns of a tile
        self.has_tiles = f.has_tiles and uses_tiles(spec) and not amx.few(self.m, self.k)
        self.block = amx.block_rows(self.m, self.k) if self.has_tiles else self._block(schedule.rows)
        self.epilogue = Epilogue(f, spec, sizes, self.width, self.bodies)
        self.rows = RowTiles(f, self.m, self.block, self.k, self.width, schedule, arithmetic, self.pieces)
        self.gemv = Gemv(f, self.m, self.k, schedule, arithmetic)
        self.has_gemv = type(spec) is Matmul and self.b is None and not spec.batch and self.gemv.limit > 0
        self.sums_bytes = self.rows.sums_bytes(in_panels=self.b is None)
        if self.has_gemv:
            self.sums_bytes = max(self.sums_bytes, self.gemv.sums_bytes())
        self.sums = f.load("ptr", f.at(f.params[2], "i8", RT_SCRATCH), align=8)
        if self.has_copy or spec.prologue or type(spec) is not Matmul:
            # Not in other kernels: parts of those for other numbers of rows would differ in it.
            self.packed = f.at(self.sums, "i8", self.sums_bytes)
        if self.has_tiles:
            self.planes = Planes.behind(f, self.sums, self.k, self.block)
            self.packed = self.planes.end
        self.lhs = self._lhs(sizes)
        lda, panel = self.lhs.stride, f.mul(self.k, PANEL)
        self.strides = Strides(lda, PANEL, self.width, self.k, b_panel=panel if self.width > PANEL else 0)
        if self.b is not None:
            self.in_place = Strides(lda, self.b.stride(self.k_loop), self.width, self.k)
        self.row_strides = Strides(lda, self.width, self.width, self.k)
        self.resident: RegisterResident | None = None
        if isinstance(self.n, int) and isinstance(self.k, int) and fits_registers(f, spec, self.n, self.k):
            self.resident = RegisterResident(f, spec, self.bodies, self.n, self.k, lda)

    def _lhs(self, sizes: Sequence[Int]) -> InPlace | Computed:
        """Return where A's rows come from; those of a prologue lie in scratch behind the panel of B."""
        f, spec = self.f, self.spec
        if not spec.prologue:
            return InPlace(f, spec, sizes, self.bodies.addresses)
        panel = f.mul(self.k, self.width) if self.has_copy else 0
        return Computed(f, spec, sizes, f.at(self.packed, "float", panel))

    def _block(self, most: int) -> int:
        """Return the rows of a tile, from the sizes alone."""
        return self._even_block(self.k if isinstance(self.k, int) else 512, most)

    def _even_block(self, row: int, most: int) -> int:
        """Return the rows of a tile, of `row` elements each: evenly split where M is known."""
        fit = A_BYTES // (4 * max(row, 1)) // most * most
        limit = max(MIN_BLOCK, min(MAX_BLOCK, fit)) // most * most
        if not isinstance(self.m, int):
            return limit
        return -(-self.m // max(-(-self.m // limit), 1)) or 1

    def emit(self, name: str) -> Generated:
        f, spec = self.f, self.spec
        if self.has_tiles:
            f.either(amx.is_much(f, self.m, self.k), self._emit_on_tiles, self._emit_tiles)
        else:
            self._emit_tiles()
        tiles: list[tuple[Size, int]] = [
            *((size, 1) for size in spec.batch),
            (spec.m, self.block),
            (spec.n, self.width),
        ]
        scratch: list[Term] = [(self.sums_bytes, ())]
        if self.has_copy:
            scratch.append((self.width * 4, (spec.k,)))
        if self.has_tiles:
            scratch += amx.scratch_of(spec, self.block)
        scratch += scratch_of(spec, self.block)
        per_k = self.block * (2 * self.width + len(spec.prologue))
        cost = ((per_k, (spec.k,)), (8 * self.block * self.width * len(spec.epilogue), ()))
        return Generated(tuple(tiles), tuple(scratch), cost, name)

    def _emit_tiles(self) -> None:
        """Emit the loop over the kernel's tiles, on FMAs."""
        f = self.f
        begin = self._emit_gemv() if self.has_gemv else f.params[3]
        with f.loop(begin, f.params[4]) as tile:
            *batch, m_block, panel = self._decode(tile.index)
            m0, n0 = f.mul(m_block, self.block), f.mul(panel, self.width)
            rows = self.m if self._one_block() else f.minimum(self.block, f.sub(self.m, m0))
            f.either(
                self._is_new_block(tile.index, panel),
                lambda: self.lhs.prepare(batch, m0, rows),
                lambda: None,
            )
            self._columns(batch, m0, rows, panel, n0, self._tile)

    def _emit_gemv(self) -> Value:
        """Where there are few rows, emit GEMV_PANELS panels at a time; return the first tile that is left."""
        f, m = self.f, self.m
        run = GEMV_PANELS * PANEL // self.width
        end = f.minimum(f.params[4], f.udiv(self.n, self.width))
        n_runs = f.op("i64", f"sdiv i64 {f.i64(f.sub(end, f.params[3])).name}, {run}")
        is_few = f.is_less(m, self.gemv.limit + 1)
        if is_few is not False:
            f.takes("gemv")
        if isinstance(is_few, Value):
            n_runs = f.select(is_few, n_runs, 0)
        with f.when(f.less(0, n_runs)):
            self.lhs.prepare([], 0, m)
        with f.loop(0, n_runs) as at:
            first = f.add(f.params[3], f.mul(at.index, run))
            self.gemv.multiply(self.strides, self.lhs.at([], 0), self._panels(first), m, self.sums)
            with f.loop(0, GEMV_PANELS * PANEL, self.width) as place:
                n0 = f.add(f.mul(first, self.width), place.index)
                sums = f.at(self.sums, "float", place.index)
                self.epilogue.emit(RowTile([], 0, m, n0), sums, GEMV_PANELS * PANEL)
        done = f.mul(f.maximum(n_runs, 0), run)
        return f.i64(f.add(f.params[3], done))

    def _emit_on_tiles(self) -> None:
        """Emit the loop over the kernel's tiles, on AMX tiles."""
        f = self.f
        f.takes("amx")
        tiles = OnTiles(f, self.k, self.lhs, self.epilogue, self.planes)
        amx.configure(f)
        with f.loop(f.params[3], f.params[4]) as tile:
            *batch, m_block, panel = self._decode(tile.index)
            m0, n0 = f.mul(m_block, self.block), f.mul(panel, self.width)
            rows = self.m if self._one_block() else f.minimum(self.block, f.sub(self.m, m0))

            is_new = self._starts_block(tile.index, panel)
            f.either(is_new, lambda: tiles.prepare(batch, m0, rows), lambda: None)
            self._columns(batch, m0, rows, panel, n0, self._on_tiles(tiles))
        amx.release(f)

    def _on_tiles(self, tiles: OnTiles) -> Callable[..., None]:
        """Return what emits a tile of the kernel on AMX tiles."""

        def tile(batch: list[Int], m0: Int, rows: Int, panel: Int, n0: Int, columns: Int | None) -> None:
            tiles.multiply(RowTile(batch, m0, rows, n0, columns), self._panels(panel))

        return tile

    def _starts_block(self, tile: Value, panel: Int) -> Value | bool:
        """Whether `tile` is the first of this run of tiles that reads its block of rows."""
        f = self.f
        if isinstance(panel, int):
            return True
        first = f.op("i1", f"icmp eq i64 {tile.name}, {f.params[3].name}")
        leading = f.op("i1", f"icmp eq i64 {panel.name}, 0")
        return f.op("i1", f"or i1 {first.name}, {leading.name}")

    def _is_new_block(self, tile: Value, panel: Int) -> Value | bool:
        """Whether `tile` is the first of this run of tiles that reads its block of rows and A is computed."""
        return bool(self.spec.prologue) and self._starts_block(tile, panel)

    def _one_block(self) -> bool:
        top = most(self.m)
        return top is not None and top <= self.block

    def _decode(self, tile: Value) -> list[Int]:
        """Return each batch loop's value, the block of rows and the panel of tile number `tile`."""
        f = self.f
        counts = [*self.batch, f.ceildiv(self.m, self.block), f.ceildiv(self.n, self.width)]
        return f.unravel(tile, counts[1:])

    def _columns(
        self, batch: list[Int], m0: Int, rows: Int, panel: Int, n0: Int, tile: Callable[..., None]
    ) -> None:
        """Emit a tile: by whole vectors if all its columns are there, masked if it is the last."""
        f, n, width = self.f, self.n, self.width
        narrow = isinstance(n, int) and n < width
        is_partial: Value | bool = narrow
        left: Int = n if narrow else f.sub(n, n0)
        if not narrow and not (isinstance(n, int) and n % width == 0):
            is_partial = f.less(left, width)
            left = n % width if isinstance(n, int) else left
        f.either(
            is_partial,
            lambda: tile(batch, m0, rows, panel, n0, left),
            lambda: tile(batch, m0, rows, panel, n0, None),
        )

    def _tile(self, batch: list[Int], m0: Int, rows: Int, panel: Int, n0: Int, columns: Int | None) -> None:
        """Emit one tile of `rows` x `columns` (None: all of `width`).

        B in place is copied to scratch, unless a single row tile would read it, or it is masked.
        """
        f = self.f
        tile, a = RowTile(batch, m0, rows, n0, columns), self.lhs.at(batch, m0)
        finish, sums = self._finish(tile), self.sums
        few = f.is_less(rows, self.rows.most + 1)
        if self.b is None:
            panels = self._panels(panel)

            def widened() -> None:
                f.takes("widened")
                b = self._widen(panels, columns)
                self.rows.from_rows(self.row_strides, a, b, rows, columns, sums, finish)

            f.either(
                few if self.is_narrow else True,
                lambda: self._call_from_panels(tile, a, panels),
                widened,
            )
            return
        base = self.bodies.addresses[self.spec.b]
        source = f.at(base, "float", self.b.offset(f, {**dict(enumerate(batch)), self.n_loop: n0}))
        step = self.b.stride(self.k_loop)

        def in_place() -> None:
            f.takes("in-place")
            self.rows.in_place(self.in_place, a, source, rows, sums, finish)

        def packed() -> None:
            f.takes("packed")
            b = self._pack(source, step, columns)
            self.rows.from_rows(self.row_strides, a, b, rows, columns, sums, finish)

        f.either(
            few if columns is None else False,
            in_place,
            packed,
        )

    def _finish(self, tile: RowTile) -> Finish:
        """Return what becomes of the row tiles of `tile`: its epilogue."""
        f = self.f

        def done(begin: Int, count: Int, sums: Value) -> None:
            self.epilogue.emit(tile._replace(m0=f.add(tile.m0, begin), rows=count), sums)

        def soon(begin: Int, count: Int) -> None:
            if tile.columns is None:
                self.epilogue.prefetch(tile._replace(m0=f.add(tile.m0, begin), rows=count))

        def ending(begin: Int, count: Int) -> Ending:
            return self.epilogue.ending(tile._replace(m0=f.add(tile.m0, begin), rows=count))

        is_short = isinstance(self.k, int) and self.k <= SHORT and tile.columns is None
        return Finish(done, soon, ending if is_short and self.epilogue.is_simple else None)

    def _from_panels(self, tile: RowTile, a: Value, panels: Value) -> None:
        """Emit a tile from A's rows at `a` and a weight's panels."""
        self.f.takes("panels")
        finish = self._finish(tile)
        is_new = self._is_new(tile.n0)
        self.rows.from_panels(self.strides, a, panels, tile.rows, tile.columns, self.sums, finish, is_new)

    def _is_new(self, n0: Int) -> Value | bool:
        """Whether tiles of columns from `n0` on are the first to read their rows of A, a block of several."""
        f = self.f
        is_dense = isinstance(self.lhs, InPlace) and self.lhs.stride == self.k
        if not is_dense or self._one_block():
            return False
        is_first = True if isinstance(self.n, int) and self.n <= self.width else f.is_less(n0, 1)
        if isinstance(self.m, int) or isinstance(is_first, bool):
            return is_first
        is_much = f.less(self.block, self.m)
        return f.op("i1", f"and i1 {is_first.name}, {is_much.name}")

    def _has_part(self) -> bool:
        """Whether tiles are a part: in an exact kernel of several row tiles, where they are large enough."""
        m, k = self.m, self.k
        is_exact = type(self) is _Matmul and all(isinstance(size, int) for size in self.sizes)
        if not (is_exact and isinstance(m, int) and isinstance(k, int)):
            return False
        return m > self.rows.most and min(m, self.block) * k >= PART_SIZE

    def _call_from_panels(self, tile: RowTile, a: Value, panels: Value) -> None:
        """The same, from registers or by a part if there is one.

        The part knows of the number of rows only how large a row tile may be, so kernels for other numbers of
        rows mostly have the same one.
        """
        if self.resident is not None:
            self.f.takes("register-resident")
            self.resident.emit(tile, a, panels)
            return
        if not self._has_part():
            self._from_panels(tile, a, panels)
            return
        f, columns = self.f, tile.columns
        place = tile.arguments(f)
        passed = [columns] if isinstance(columns, Value) else []

        def body(g: Function) -> None:
            there = type(self)(g, self.spec, self.sizes, self.schedule)
            left, right, *rest = g.params[3:]
            known = rest[-1] if passed else columns
            there._from_panels(RowTile.of(rest[: len(place)], known), left, right)

        name = "tile_x" if passed else f"tile_{columns or 'all'}"
        f.call_part(name, body, *f.params[:3], a, panels, *place, *passed)

    def _panels(self, panel: Int) -> Value:
        """Return the address of B's packed panels for tile number `panel` of a block of rows."""
        base = self.bodies.addresses[self.spec.b]
        return self.f.at(base, self.element, self.f.mul(panel, self.f.mul(self.k, self.width)))

    def _pack(self, source: Value, step: Int, columns: Int | None) -> Value:
        """Copy k rows of `width` columns (`columns` of them there, the others 0) to scratch; return where."""
        f = self.f
        places = range(0, self.width, LANES)
        masks = [None if columns is None else tail(f, f.sub(columns, place)) for place in places]
        with f.loop(0, self.k) as k:
            row = f.at(source, "float", f.mul(k.index, step))
            place = f.at(self.packed, "float", f.mul(k.index, self.width))
            for at, mask in zip(places, masks, strict=True):
                f.store(load(f, f.at(row, "float", at), mask), f.at(place, "float", at), align=4)
        return self.packed

    def _widen(self, panels: Value, columns: Int | None) -> Value:
        """Copy a tile's panels to scratch in f32, `width` columns a row; return where."""
        f, kind = self.f, DTYPES[self.dtype]
        n_panels = self.width // PANEL
        if isinstance(columns, int):  # those that are not there are not read
            n_panels = min(n_panels, -(-columns // PANEL))
        with f.loop(0, self.k) as k:
            row = f.at(self.packed, "float", f.mul(k.index, self.width))
            for at in range(0, n_panels * PANEL, LANES):
                panel = f.mul(self.k, at // PANEL * PANEL)
                place = f.add(panel, f.add(f.mul(k.index, PANEL), at % PANEL))
                narrow = f.load(
                    vector(kind.memory, LANES), f.at(panels, kind.memory, place), align=kind.bytes
                )
                f.store(widened(Vec(f, narrow), self.dtype).value, f.at(row, "float", at), align=4)
        return self.packed
