"""Random programs about numbers of all dtypes, all tiers against the references: some that never change."""

from __future__ import annotations

import pytest

from .random_check import failures

PARTS, SEEDS = 20, 1000


@pytest.mark.drawn
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int) -> None:
    assert not failures("numbers", range(part, SEEDS, PARTS))
