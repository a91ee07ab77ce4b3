"""Weights that registers hold: the bits of any other tile, for every tier, target and split of the tiles."""

from __future__ import annotations

import numpy as np
import pytest
from shapevm.jit.compiler import assembly, compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul import variants
from shapevm.jit.families.matmul.register_resident import ROWS

from ..nest.test_nest import HOST_TARGETS
from .test_matmul import M, arrays, dense, expected

WIDEST = HOST_TARGETS[0]


@pytest.mark.parametrize("n, k", [(16, 16), (1, 1), (7, 13), (16, 5), (17, 8), (32, 8), (32, 1)])
@pytest.mark.parametrize("epilogue", ["", "bias relu residual", "bias tanh"])
def test_bits_are_those_of_other_tiles(monkeypatch, n: int, k: int, epilogue: str) -> None:
    spec = dense(M, n, k, epilogue)
    sizes = (0, 1, ROWS - 1, ROWS, 2 * ROWS + 3, 241)
    targets = [WIDEST] if "tanh" in epilogue else HOST_TARGETS  # a target's tanh may have bits of its own
    codes = [compile_kernel(spec, None, target) for target in targets]
    codes += [compile_kernel(spec, (m,), WIDEST) for m in sizes]
    others = tuple(variant for variant in variants.TILES if variant.name != "register-resident")
    monkeypatch.setattr(variants, "TILES", others)
    other = Kernel(compile_kernel(spec, None, WIDEST))
    for m in sizes:
        buffers, b = arrays(spec, m)
        other.run(buffers, (m,))
        wanted = buffers[2].copy()
        np.testing.assert_allclose(wanted, expected(buffers, b, epilogue), rtol=1e-5, atol=1e-5 * (k + 1))
        for code in codes:
            if code.exact_dims in (None, (m,)):
                kernel, tiles = Kernel(code), Kernel(code).n_tiles((m,))
                for ranges in (None, [(t, t + 1) for t in range(tiles)]):
                    buffers[2][...] = np.nan
                    kernel.run(buffers, (m,), ranges)
                    assert np.array_equal(buffers[2], wanted)


def test_only_weights_that_registers_hold() -> None:
    def has_micro_kernel(n: int, k: int) -> bool:
        return "micro_" in assembly(dense(M, n, k), (64,), "x86-64-v4")

    assert not has_micro_kernel(16, 16) and not has_micro_kernel(32, 8)
    assert has_micro_kernel(16, 17) and has_micro_kernel(32, 9) and has_micro_kernel(33, 4)
