"""Row tiles have micro-kernels for the numbers of rows that turn up, and no others."""

import re

import pytest
from shapevm.jit import compiler
from shapevm.jit.families.matmul.row_shares import shares
from shapevm.jit.families.matmul.usual import usual_products

TARGET, ROWS, TALL = "x86-64-v4", 6, (13, 14)  # tall: one row tile takes them
#: By what a trip prefetches: the rows of blocks, which are split into tiles of at most ROWS.
BLOCKS = {"near": range(1, ROWS + 1), "4": range(ROWS + 1, 43), "2": range(43, 91), "1": range(91, 300)}


@pytest.mark.parametrize("ahead", BLOCKS)
def test_generic_products_have_the_rows_of_evenly_split_blocks(ahead: str) -> None:
    f, _ = compiler._generate(usual_products()[0], None, TARGET, None)
    found = {int(match[1]) for name in f.parts if (match := re.fullmatch(rf"chunk_(\d+)x4_{ahead}", name))}
    wanted = {n for rows in BLOCKS[ahead] if rows not in TALL for n in shares(rows, ROWS)}
    assert found == wanted
