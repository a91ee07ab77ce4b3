"""GGUF's formats: their values, and products and tables of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from shapevm.jit.families.matmul.layouts import GROUPED

from shapevm import nn
from shapevm.llm.gguf.blocks import FORMATS, Format, array_of

QUANTISED = {number: row for number, row in FORMATS.items() if row.parts}
K, N = 512, 70
EDGES = np.array([0, 1, 0x8000, 0x3C00, 0xBC00, 0x0400], np.uint16)  # of scales in f16


def blocks(row: Format, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random blocks: every bit of their integers, and scales of usual sizes, zeros among them."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 256, (n, row.n_bytes), np.uint8)
    halves = rng.normal(0, 0.01, (n, 2)).astype("<f2")
    halves[: len(EDGES), 0] = EDGES.view("<f2")[: len(halves)]
    at = {"Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208]}.get(row.name, [0])
    at = [0, 2] if row.name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else at
    for which, place in enumerate(at):
        made[:, place : place + 2] = halves[:, which : which + 1].view(np.uint8)
    return made


def weight(number: int, n: int, k: int = K) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return a weight [n, k] in a format, and its values."""
    row = FORMATS[number]
    data = blocks(row, n * k // row.elements)
    values = dequantize(data, GGMLQuantizationType(number)).reshape(n, k)
    return array_of(row, data.reshape(-1), (n, k)), values


@pytest.mark.parametrize("number", QUANTISED, ids=lambda number: FORMATS[number].name)
def test_values_are_those_of_the_package(number: int) -> None:
    found, values = weight(number, 40)
    if found.zeros is None:
        np.testing.assert_array_equal(found.values(), values)
    else:  # one more rounding, of the size of the greatest part
        parts = np.abs(found.scales) * (np.abs(found.zeros) + 31)
        most = np.repeat(parts, K // parts.shape[1], 1) * 2.0**-22
        assert (np.abs(found.values() - values.astype(np.float64)) <= most).all()


@pytest.mark.parametrize(("number", "kind"), [(0, np.float32), (1, np.float16)])
def test_plain_numbers(number: int, kind: Any) -> None:
    x = np.arange(-6, 6, dtype=kind)
    np.testing.assert_array_equal(array_of(FORMATS[number], x.view(np.uint8), (3, 4)), x.reshape(3, 4))


def test_bf16_is_widened() -> None:
    x = np.array([1.5, -2.0, 3e38], np.float32)
    bits = (x.view(np.uint32) >> 16).astype("<u2")
    found = array_of(FORMATS[30], bits.view(np.uint8), (3,))
    np.testing.assert_array_equal(found, (bits.astype(np.uint32) << 16).view(np.float32))


class Tied(nn.Module):
    """A table that is also the weight of a product."""

    def __init__(self, n: int, k: int) -> None:
        self.table = nn.Embedding(n, k)

    def forward(self, x: Any, ids: Any) -> Any:
        return nn.tensor.call("aten.linear.default", x, self.table.weight), self.table(ids)


@pytest.mark.parametrize("number", QUANTISED, ids=lambda number: FORMATS[number].name)
def test_products_and_tables(number: int, tmp_path: Path) -> None:
    """Products of some rows are those of float64, each row has the bits that it has alone, and rows of the
    table are its values."""
    n, k = (600, 768)
    found, values = weight(number, n, k)
    model = Tied(n, k)
    model.table.weight.array = found
    exe = nn.compile(
        model, {"x": ("rows", k), "ids": (("length",), "i64")}, {"rows": (1, 64), "length": (1, 8)}
    )
    exe.save(tmp_path / "tied.svm")
    assert (tmp_path / "tied.svm").stat().st_size < 3 * n * k  # integers in the table and in the product
    program = exe.program()
    is_of_bytes = int(found.integers.max()) - int(found.integers.min()) > 15
    if is_of_bytes and any(f'"{GROUPED}"' in kernel.spec for kernel in program.kernels):  # one for both
        assert "table.weight" not in {constant.name for constant in program.constants}
    rng = np.random.default_rng(1)
    x, ids = rng.normal(size=(64, k)).astype(np.float32), np.array([0, 5, n - 1])
    wide = values.astype(np.float64)
    alone = [exe(x[r : r + 1], ids)[0] for r in range(7)]
    for rows in (1, 2, 7, 64):
        product, taken = exe(x[:rows], ids)
        scale = np.abs(x[:rows]).astype(np.float64) @ np.abs(wide).T
        offsets = 0.0 if found.zeros is None else np.abs(found.scales * found.zeros).max() * k
        assert (np.abs(product - x[:rows] @ wide.T) <= 2.0**-19 * (scale + offsets)).all()
        for r in range(min(rows, 7)):
            np.testing.assert_array_equal(product[r], alone[r][0])
        np.testing.assert_allclose(taken, found.values()[ids], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("number", FORMATS, ids=lambda number: FORMATS[number].name)
@pytest.mark.parametrize("shape", [(0, 256), (2, 0)])
def test_tensors_without_elements(number: int, shape: tuple[int, int]) -> None:
    assert array_of(FORMATS[number], np.zeros(0, np.uint8), shape).shape == shape
