"""How the right operand of a product lies in memory: a row for each layout, which packs a weight, unpacks it
for the reference, and says how it is multiplied.

A weight lies in panels of PANEL columns, the last one padded with zeros. Where several steps are multiplied
together, they lie side by side for each column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....vm.shares import in_shares
from ...decode import refuse
from . import amx, amx_bytes
from .arithmetic import DIGITS, PAIRS, PLANES, QUADS, SHORT_PAIRS
from .grouped import FOUR, PAIR, pack_grouped, unpacked
from .schedules import PANEL
from .spec import ProductSpec

ELEMENTS_OF_SHARE = 1 << 20  # a thread that packs fewer costs more than it saves
ROWS, PANELS, WINOGRAD, QUADS_LAYOUT, PAIRS_LAYOUT = "rows", "panels", "winograd", "quads", "pairs"
GROUPED, DIGITS_LAYOUT, SHORTS_LAYOUT = "grouped_floats", "grouped_digits", "grouped_shorts"
TAPS = 3  # along each axis of the windows that have the layout "winograd"

#: Packs a weight [K, N]; one with groups takes the scales [groups, N] as well.
Pack = Callable[..., np.ndarray]
#: Returns [K, N] of a packed weight, given K and N: its elements in memory; in f64, times the groups' scales.
Unpack = Callable[[np.ndarray, int, int], np.ndarray]


@dataclass(frozen=True)
class Layout:
    """The layout of B and its arithmetic.

    `dtypes`: of its elements in memory; those of PANELS except f32 are widened as they are read. `a`: the
    dtype of A's elements. `beside`: the adjacent steps of a column. `arithmetic`: the row of
    `arithmetic_of`; "": that of B's dtype. `sums`: the dtype of a product's sums. `planes`: if groups of
    steps have scales, the rows of limbs that represent a row of A; 0: no groups. `in_parts`: whether AMX
    tiles may multiply rows of f32 in parts (`bf16x6`). `enough`: the sizes from which those tiles pay.
    """

    name: str
    dtypes: tuple[str, ...]
    pack: Pack
    unpack: Unpack
    a: str = "f32"
    beside: int = 1
    arithmetic: str = ""
    sums: str = "f32"
    planes: int = 0
    in_parts: bool = False
    enough: amx.Enough = amx.ENOUGH

    @property
    def in_place(self) -> bool:
        """Whether B is read where it lies, by an index; otherwise it is a packed constant."""
        return self.name == ROWS

    @property
    def is_plain(self) -> bool:
        """Whether B's elements lie in panels one by one, each widened as it is read."""
        return self.name == PANELS

    @property
    def is_readable(self) -> bool:
        """Whether other kernels can read single elements of the packed B, as `lower.tying` does."""
        return self.name in (PANELS, PAIRS_LAYOUT, GROUPED, SHORTS_LAYOUT)

    @property
    def is_of_convs(self) -> bool:
        """Whether only convolutions have this layout."""
        return self.name == WINOGRAD

    @property
    def in_limbs(self) -> bool:
        """Whether a row of A is represented by several rows of limbs."""
        return self.planes > 1

    @property
    def together(self) -> int:
        """The elements of A that a step multiplies: several where they are narrow."""
        return self.beside if self.a != "f32" else 1

    @property
    def has_dots(self) -> bool:
        """Whether a step multiplies several bytes by bytes or bf16 by bf16, without groups."""
        return self.arithmetic != "" and not self.planes

    @property
    def has_chain(self) -> bool:
        """Whether the order of a sum may be chosen; see `sums`."""
        return self.arithmetic == "" and not self.planes


def layout_of(spec: ProductSpec[Any]) -> Layout:
    """Return the row of a product's right operand. Raises SpecError where there is none."""
    name = spec.product.b_layout
    if name not in LAYOUTS:
        raise refuse("b_layout", name, f"one of {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def check_of_products(spec: ProductSpec[Any]) -> None:
    """Raise SpecError for a layout that only convolutions have."""
    if layout_of(spec).is_of_convs:
        raise refuse("b_layout", spec.product.b_layout, f"one of {', '.join(_OF_PRODUCTS)}")


def pack_columns(layout: str, weight: np.ndarray, groups: int) -> np.ndarray:
    """Return a weight [K, N] in a layout; each group's columns are packed separately, in order."""
    parts = [LAYOUTS[layout].pack(part) for part in np.split(weight, groups, axis=1)]
    return np.concatenate(parts) if groups > 1 else parts[0]


def pack_panels(weight: np.ndarray) -> np.ndarray:
    """Return a weight [K, N] as [ceil(N / PANEL), K, PANEL]."""
    (k, n), whole = weight.shape, weight.shape[1] // PANEL
    panels = np.zeros((-(-n // PANEL), k, PANEL), weight.dtype)
    source = as_panels(weight[:, : whole * PANEL])

    def copy(begin: int, end: int) -> None:
        panels[begin:end] = source[begin:end]

    in_shares(whole, copy, 1 + ELEMENTS_OF_SHARE // (PANEL * max(k, 1)))
    if n % PANEL:
        panels[whole, :, : n % PANEL] = weight[:, whole * PANEL :]
    return panels


def as_panels(weight: np.ndarray) -> np.ndarray:
    """Return a weight [K, N] as `pack_panels` does, in the memory where it lies; N is a multiple of PANEL."""
    k, n = weight.shape
    return weight.reshape(k, n // PANEL, PANEL).transpose(1, 0, 2)


def _from_panels(panels: np.ndarray, k: int, n: int) -> np.ndarray:
    n_panels, _, width = panels.shape
    return panels.transpose(1, 0, 2).reshape(k, n_panels * width)[:, :n]


def _pack_beside(weight: np.ndarray, steps: int) -> np.ndarray:
    """Return a weight [K, N] as [ceil(N / PANEL), K / steps, PANEL, steps]; `steps` divides K."""
    panels = pack_panels(weight)
    n_panels, k, _ = panels.shape
    return np.ascontiguousarray(panels.reshape(n_panels, k // steps, steps, PANEL).swapaxes(2, 3))


def _from_beside(panels: np.ndarray, k: int, n: int) -> np.ndarray:
    n_panels, _, width, _ = panels.shape
    return _from_panels(panels.swapaxes(2, 3).reshape(n_panels, k, width), k, n)


def _pack_taps(weight: np.ndarray) -> np.ndarray:
    """Return the weights [9 C, N] of a convolution as panels of [C * 9, N]: a channel's taps side by side."""
    by_channel = weight.reshape(TAPS * TAPS, -1, weight.shape[1]).transpose(1, 0, 2)
    return pack_panels(by_channel.reshape(weight.shape))


def _from_taps(panels: np.ndarray, k: int, n: int) -> np.ndarray:
    columns = _from_panels(panels, k, n).reshape(k // TAPS**2, TAPS**2, n)
    return columns.transpose(1, 0, 2).reshape(k, n)


def _grouped(name: str, beside: int, planes: int, **row: Any) -> Layout:
    def unpack(packed: np.ndarray, k: int, n: int) -> np.ndarray:
        integers, scales = unpacked(packed, k, n, beside, planes)
        return integers.astype(np.float64) * np.repeat(scales, len(integers) // len(scales), 0)

    pack = partial(pack_grouped, together=beside, planes=planes)
    return Layout(name, ("u8",), pack, unpack, beside=beside, planes=planes, **row)


def _beside(name: str, dtype: str, beside: int, **row: Any) -> Layout:
    return Layout(name, (dtype,), partial(_pack_beside, steps=beside), _from_beside, beside=beside, **row)


LAYOUTS = {
    row.name: row
    for row in (
        # B is read in place: its last axis is n, with stride 1.
        Layout(ROWS, ("f32",), np.asarray, lambda rows, k, n: rows),
        Layout(PANELS, ("f32", "bf16", "f16", "i8"), pack_panels, _from_panels, in_parts=True),
        # Of convolutions only: `conv.winograd`.
        Layout(WINOGRAD, ("f32",), _pack_taps, _from_taps),
        # Bytes by bytes, exactly; bf16 by bf16, in the order of the target's instructions, on all AMX tiles.
        _beside(QUADS_LAYOUT, "i8", FOUR, a="u8", arithmetic=QUADS, sums="i32", enough=amx_bytes.ENOUGH),
        _beside(PAIRS_LAYOUT, "bf16", 2, a="bf16", arithmetic=PAIRS, enough=amx.Enough(0, 0)),
        # Small integers with scales for groups of steps: by f32, by bytes, by f32 in `digits` of a byte, by
        # f32 rounded to i16 (`shorts`).
        _grouped(GROUPED, 1, 1, in_parts=True),
        _grouped("grouped_quads", FOUR, 1, a="u8", arithmetic=QUADS, enough=amx_bytes.ENOUGH_OF_GROUPS),
        _grouped(DIGITS_LAYOUT, FOUR, PLANES, arithmetic=DIGITS),
        _grouped(SHORTS_LAYOUT, PAIR, 1, arithmetic=SHORT_PAIRS),
    )
}
_OF_PRODUCTS = [row.name for row in LAYOUTS.values() if not row.is_of_convs]
