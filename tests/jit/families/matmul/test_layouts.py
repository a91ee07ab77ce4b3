"""Weight layouts: each row unpacks what it packs, and a spec names one."""

import numpy as np
import pytest
from shapevm.jit.decode import SpecError
from shapevm.jit.families.matmul.layouts import (
    LAYOUTS,
    PANELS,
    TAPS,
    Layout,
    check_of_products,
    layout_of,
    pack_columns,
)
from shapevm.jit.families.matmul.usual import usual_product

#: Of a weight before it is packed, by the dtype of the packed one.
NUMPY = {"f32": np.float32, "bf16": np.uint16, "i8": np.int8, "u8": np.int8}
K, GROUPS = 128 * TAPS**2, TAPS**2


def weight(row: Layout, n: int) -> np.ndarray:
    """Return a weight [K, n] that the row packs."""
    values = np.random.default_rng(n).integers(-7, 8, (K, n))
    return values.astype(NUMPY[row.dtypes[0]])


@pytest.mark.parametrize("n", [1, 31, 32, 65])
@pytest.mark.parametrize("row", LAYOUTS.values(), ids=lambda row: row.name)
def test_a_row_unpacks_what_it_packs(row: Layout, n: int) -> None:
    given = weight(row, n)
    if not row.planes:
        assert np.array_equal(row.unpack(row.pack(given), K, n), given)
        return
    scales = np.random.default_rng(1).random((GROUPS, n), np.float32)
    wanted = given.astype(np.float64) * np.repeat(scales, K // GROUPS, 0)
    assert np.array_equal(row.unpack(row.pack(given, scales), K, n), wanted)


@pytest.mark.parametrize("row", [row for row in LAYOUTS.values() if not row.planes], ids=lambda row: row.name)
def test_groups_of_columns_are_packed_separately(row: Layout) -> None:
    given = weight(row, 3 * 40)
    if not row.in_place:
        parts = np.split(pack_columns(row.name, given, 3), 3)
        found = np.concatenate([row.unpack(part, K, 40) for part in parts], 1)
        assert np.array_equal(found, given)


def test_a_spec_names_a_row() -> None:
    spec = usual_product(64, 32)
    assert layout_of(spec).name == PANELS
    with pytest.raises(
        SpecError, match="b_layout is 'heap'; it must be one of rows, panels, winograd, quads"
    ):
        layout_of(spec.with_product(b_layout="heap"))


def test_a_layout_of_convolutions_is_none_of_products() -> None:
    with pytest.raises(SpecError, match="b_layout is 'winograd'; it must be one of rows, panels, quads"):
        check_of_products(usual_product(64, 32).with_product(b_layout="winograd"))
