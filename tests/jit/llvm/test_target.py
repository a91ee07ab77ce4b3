"""What the targets' instruction sets have, as their manuals say."""

from __future__ import annotations

import pytest
from shapevm.jit.llvm.target import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_vector_registers(name: str) -> None:
    """AVX-512 has 32 registers of 64 bytes, AVX2 16 of 32, AArch64 32 of 16."""
    target = TARGETS[name]
    wanted = {"x86-64-v4": (64, 32), "x86-64-v3": (32, 16), "aarch64": (16, 32)}
    family = next(known for known in wanted if name.startswith(known))
    assert (target.vector_bytes, target.n_vector_registers) == wanted[family]


def test_bases_are_targets() -> None:
    for target in TARGETS.values():
        assert target.base in ("", *TARGETS)
