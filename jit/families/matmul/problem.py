"""A product as its variants see it: a spec with resolved sizes, on a target, with a register tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....vm.program import KernelKey, SizeRange
from ...llvm.abi import resolve
from ...llvm.constant_pool import FromSize
from ...llvm.function import Bounded, Function, Int, Value, most
from ...loops.bodies import LANES
from ...spec import Size
from . import amx, amx_bytes
from .arithmetic import PAIRS, QUADS, Arithmetic, arithmetic_of
from .chunks import WHOLE, Pieces, is_chunked
from .grouped import Groups, groups_of
from .layouts import layout_of
from .schedules import PANEL, Schedule
from .spec import ProductSpec
from .sums import BLOCK

A_BYTES = 1024 * 1024  # of A in a block of rows: it should stay in the second-level cache beside two panels
MAX_BLOCK, MIN_BLOCK = 224, 84  # rows
STEP_BYTES = 4  # of A and of B that a step multiplies if A is narrow
USUAL_STEPS = 512  # of a sum, if their number is unknown


@dataclass(frozen=True)
class Problem:
    """A product whose sizes are resolved: `k` steps for each of `batch` x `m` x `n` sums, of `sizes`.

    `schedule`: the register tile. `block`: rows of a tile of the kernel. `has_tiles`: the target has AMX, and
    the product may be large enough for it. `register_bytes`: of all the target's vector registers together.
    `groups`: if A's rows are patches of an image, the number of groups, of `n` columns each; else 0.
    `pieces`: the layout of the steps of a sum.
    """

    spec: ProductSpec
    sizes: Sequence[Int]
    schedule: Schedule
    m: Int
    n: Int
    k: Int
    batch: Sequence[Int]
    block: int
    has_tiles: bool
    register_bytes: int
    groups: int = 0
    pieces: Pieces = WHOLE

    @property
    def m_loop(self) -> int:
        """The number of the loop over rows; those before it are the batch loops."""
        return len(self.spec.product.batch)

    @property
    def n_loop(self) -> int:
        """The number of the loop over columns."""
        return self.m_loop + 1

    @property
    def k_loop(self) -> int:
        """The number of the loop over steps."""
        return self.m_loop + 2

    @property
    def width(self) -> int:
        """The columns of a tile of the kernel."""
        return max(PANEL, LANES * self.schedule.vectors)

    @property
    def columns(self) -> Size:
        """The columns of a group, or all columns without groups, as a size of the spec."""
        n = self.spec.product.n
        return n // self.groups if self.groups and isinstance(n, int) else n

    @property
    def arithmetic(self) -> Arithmetic:
        """How A's and B's elements are multiplied."""
        if self.grouped is not None:
            return self.grouped.arithmetic
        dtype = self.spec.buffers[self.spec.product.b].dtype
        return arithmetic_of(layout_of(self.spec).arithmetic or dtype)

    @property
    def has_dots(self) -> bool:
        """Whether a step multiplies several bytes by bytes or bf16 by bf16, without groups."""
        return layout_of(self.spec).has_dots

    @property
    def is_pairs(self) -> bool:
        """Whether bf16 are multiplied by bf16."""
        return layout_of(self.spec).arithmetic == PAIRS

    @property
    def grouped(self) -> Groups | None:
        """The layout of B if groups of steps have separate scales."""
        return grouped_of(self.spec)

    @property
    def in_panels(self) -> bool:
        """Whether B is a weight in panels."""
        return not layout_of(self.spec).in_place

    @property
    def is_narrow(self) -> bool:
        """Whether B is a weight in panels whose elements are widened when they are read."""
        return self.in_panels and self.arithmetic.is_widened

    @property
    def rows_in_place(self) -> int:
        """The rows of a tile of the kernel up to which B is read in place rather than from a copy."""
        return self.schedule.rows_in_place if self.is_narrow else self.schedule.rows

    @property
    def has_copy(self) -> bool:
        """Whether scratch has room for a copy of a tile's columns of B."""
        return not self.in_panels or (self.is_narrow and self.grouped is None)

    @property
    def copied_steps(self) -> Int:
        """The steps of such a copy: a chunk's if a weight's sums have chunks."""
        return BLOCK if self.in_panels and not self.pieces.piece and is_chunked(self.k) else self.k

    @property
    def prepares_rows(self) -> bool:
        """Whether A's rows are prepared in scratch before the first tile of a block."""
        return self.groups > 0 or bool(self.spec.product.prologue) or self.is_represented

    @property
    def is_represented(self) -> bool:
        """Whether A's rows of f32 are represented by integers."""
        return self.grouped is not None and self.grouped.is_represented

    @property
    def slabs(self) -> amx.Slabs | None:
        """The slabs of long rows on AMX tiles, in exact code."""
        plain = not (self.batch or self.has_dots or self.grouped or self.prepares_rows)
        if not (self.has_tiles and plain and isinstance(self.m, int) and isinstance(self.k, int)):
            return None
        return amx.slabs_of(self.m, self.k, self.block)

    @property
    def is_exact(self) -> bool:
        """Whether all sizes are known."""
        return all(isinstance(size, int) for size in self.sizes)

    @property
    def is_one_block(self) -> bool:
        """Whether a tile of the kernel is known to have all rows."""
        top = most(self.m)
        return top is not None and top <= self.block


def problem_of(
    f: Function, spec: ProductSpec, sizes: Sequence[Int], schedule: Schedule, row: int | None = None
) -> Problem:
    """Return the problem of `spec` for the target of `f`; call in the entry block.

    `row`: the elements that a row of A takes in the caches (None: its steps).
    """
    given = spec.product
    m, n, k = (resolve(size, sizes) for size in (given.m, given.n, given.k))
    batch = [resolve(size, sizes) for size in given.batch]
    k = f.udiv(k, layout_of(spec).together)
    has_tiles = may_use_tiles(f, spec, m)
    if row is None:
        row = k if isinstance(k, int) else USUAL_STEPS
    block = _rows_on_tiles(spec, m, k) if has_tiles else block_rows(m, row, schedule.rows)
    return Problem(spec, sizes, schedule, m, n, k, batch, block, has_tiles, f.register_bytes)


def unread_sizes(spec: ProductSpec, dims: KernelKey) -> list[Int]:
    """Return the sizes of `spec` as a generator sees them for `dims`, without loading run-time sizes."""
    found: list[Int] = []
    for known in (None,) * spec.n_dims if dims is None else dims:
        if isinstance(known, SizeRange):
            found.append(Bounded("i64", "", known.min, known.max, known.multiple_of))
        else:
            found.append(Value("i64", "") if known is None else known)
    return found


def is_f32_panels(spec: ProductSpec) -> bool:
    """Whether B is a weight of f32 in panels."""
    return layout_of(spec).is_plain and spec.buffers[spec.product.b].dtype == "f32"


def widened_dtype(spec: ProductSpec) -> str:
    """Return the dtype of B's elements if it is a weight that is widened as it is read, else ""."""
    groups = grouped_of(spec)
    if groups is not None:
        return groups.dtype if groups.is_widened and groups.together == 1 else ""
    dtype = spec.buffers[spec.product.b].dtype
    return dtype if layout_of(spec).is_plain and dtype != "f32" else ""


def grouped_of(spec: ProductSpec) -> Groups | None:
    """Return the layout of B if groups of steps have separate scales, None for other layouts."""
    given, layout = spec.product, layout_of(spec)
    if not layout.planes or not isinstance(given.k, int):
        return None
    shape = spec.buffers[given.b].shape
    if len(shape) != 3 or not (isinstance(shape[1], int) and isinstance(shape[2], int)):
        return None
    return groups_of(given.k, shape[1], shape[2], layout.beside, layout.planes)


def uses_tiles(spec: ProductSpec) -> bool:
    """Return True if a target with AMX tiles uses them for `spec`, with enough rows.

    Rows of f32 only if the spec allows it (`bf16x6`), and not for overlapping windows, which are read in the
    image: an element would be split once for each of several rows.
    """
    layout = layout_of(spec)
    if layout.planes:
        groups = grouped_of(spec)
        has_long_groups = groups is not None and groups.planes == 1 and groups.steps >= amx.STEP
        return has_long_groups and (layout.together > 1 or spec.bf16x6)
    if layout.arithmetic == QUADS:
        return isinstance(spec.product.k, int) and spec.product.k >= amx_bytes.LEAST_K
    if layout.arithmetic == PAIRS:
        return spec.product.k != 0
    is_float = layout.is_plain and spec.buffers[spec.product.b].dtype in amx.PLANES
    return is_float and spec.bf16x6 and not spec.repeats_lhs


def may_use_tiles(f: Function, spec: ProductSpec, m: Int) -> bool:
    """Whether code for `m` rows on the function's target may use AMX tiles."""
    return f.has_tiles and fits_tiles(spec, m)


def fits_tiles(spec: ProductSpec, m: Int) -> bool:
    """Whether code for `m` rows may use AMX tiles on a target that has them."""
    if not uses_tiles(spec):
        return False
    layout, k = layout_of(spec), spec.product.k
    steps = k // layout.together if isinstance(k, int) else layout.enough.steps
    return not layout.enough.few(m, steps)


def _rows_on_tiles(spec: ProductSpec, m: Int, k: Int) -> int:
    """Return the rows of a tile of the kernel on AMX tiles."""
    if (together := layout_of(spec).together) > 1:
        assert isinstance(spec.product.k, int)
        return amx.block_rows(m, spec.product.k * STEP_BYTES // together, amx_bytes.ROWS_BYTES)
    return amx.block_rows(m, amx.PLANES_OF_ELEMENT * (k if isinstance(k, int) else 1024))


def block_rows(m: Int, row: int, most_rows: int) -> int:
    """Return the rows of a tile of the kernel, of `row` elements each, from the sizes alone: whole row tiles
    of `most_rows`, or evenly split if M is known."""
    fit = A_BYTES // (4 * max(row, 1)) // most_rows * most_rows
    limit = max(MIN_BLOCK, min(MAX_BLOCK, fit)) // most_rows * most_rows
    if not isinstance(m, int):
        return FromSize(limit, f"rows({row.origin})") if isinstance(row, FromSize) else limit
    return -(-m // max(-(-m // limit), 1)) or 1
