"""The blocks that a sum of products is cut into, as the definition of its bits."""

from __future__ import annotations

import pytest
from shapevm.jit.families.matmul.sums import (
    ACCURATE_CHAIN,
    BLOCK,
    CHAIN,
    LONG,
    block_of_pieces,
    block_of_short,
    blocks,
)


@pytest.mark.parametrize(
    ("k", "chain", "size"),
    [
        (0, CHAIN, 0), (16, CHAIN, 0), (17, CHAIN, 16), (32, CHAIN, 16), (33, CHAIN, 32), (383, CHAIN, 32),
        (16, ACCURATE_CHAIN, 0), (32, ACCURATE_CHAIN, 16), (33, ACCURATE_CHAIN, 16),
        (383, ACCURATE_CHAIN, 16), (383, 0, 0),
    ],
)  # fmt: skip
def test_block_of_a_short_sum(k: int, chain: int, size: int) -> None:
    assert block_of_short(k, chain) == size


def test_blocks_of_a_long_sum() -> None:
    assert list(blocks(LONG - 1)) == [range(LONG - 1)]
    assert list(blocks(LONG)) == [range(at, at + BLOCK) for at in range(0, LONG, BLOCK)]
    assert list(blocks(LONG + 1))[-1] == range(LONG, LONG + 1)


def test_blocks_are_whole_pieces_or_even_parts_of_one() -> None:
    assert block_of_pieces(27) == 108 and block_of_pieces(BLOCK) == BLOCK
    assert block_of_pieces(192) == 96 and block_of_pieces(BLOCK + 1) == 80
    assert [len(b) for b in blocks(2 * 192, 192)] == [96] * 4
