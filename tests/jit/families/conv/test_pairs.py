"""Convolutions of bf16: sums in f32 of exact products, with equal bits on every tier and tile split."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.layouts import pack_columns
from shapevm.jit.reference import evaluate
from shapevm.jit.text import format_spec, parse_spec

from ...tiers import check_tiers
from ..matmul.test_pairs import TARGETS
from .test_conv import ROWS, conv, out_size
from .test_quads import CASES as BYTES

CASES = BYTES | {
    "whole tiles": (16, 32, 33, 3, 1, 1, 1, 1, 1, 1),
    "whole tiles, strided": (16, 64, 40, 3, 2, 1, 1, 1, 1, 1),
}


def of_bf16(case: str) -> Conv:
    """out[row, f] = conv(x) + added[f] in f32 of images and weights in bf16."""
    plain = conv(case, "panels", CASES)
    groups, n, k = plain.window.groups, int(plain.product.n), int(plain.product.k)
    buffers = (
        dataclasses.replace(plain.buffers[0], dtype="bf16"),
        s.Buffer("bf16", (groups * -(-(n // groups) // 32), k // 2, 32, 2)),
        s.Buffer("f32", (n,)),
        s.Buffer("f32", (ROWS, n), is_output=True),
    )
    return dataclasses.replace(plain, buffers=buffers).with_product(b_layout="pairs")


def arrays(spec: Conv, dims: tuple[int, ...]) -> list[np.ndarray]:
    """Return random buffers: image, weight, what is added, result."""
    rng = np.random.default_rng(0)
    n, k = int(spec.product.n), int(spec.product.k)
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    image = f32_to_bf16(rng.standard_normal(shapes[0], np.float32))
    weight = f32_to_bf16(rng.standard_normal((k, n), np.float32))
    added = rng.standard_normal(n).astype(np.float32)
    packed = pack_columns("pairs", weight, spec.window.groups)
    return [image, packed, added, np.full(shapes[3], np.nan, np.float32)]


def dims_of(case: str, spec: Conv) -> list[tuple[int, ...]]:
    """Return dims of images of several sizes."""
    sizes = ((n, h, out_size(CASES[case], h)) for n, h in ((2, 5), (1, 1), (0, 4), (3, 17)))
    along = int(spec.window.out[1])  # type: ignore[arg-type]
    return [(n, h, out, n * out * along) for n, h, out in sizes if out > 0]


@pytest.mark.parametrize("case", CASES)
def test_every_tier_has_the_same_bits(case: str) -> None:
    spec = of_bf16(case)
    check_tiers(spec, dims_of(case, spec), arrays, 3, 1e-5, 1e-4)
    assert parse_spec(format_spec(spec)) == spec


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_every_target(case: str, target: str) -> None:
    spec = of_bf16(case)
    dims = dims_of(case, spec)[-1]
    found, wanted = arrays(spec, dims), arrays(spec, dims)
    Kernel(compile_kernel(spec, dims, target)).run(found, dims)
    evaluate(spec, dims, wanted)
    np.testing.assert_allclose(found[3], wanted[3], 1e-5, 1e-4)


def test_lines_are_read_where_steps_are_cut_as_in_patches() -> None:
    for case, variant in (("whole tiles", "padded"), ("many channels", "patches")):
        spec = of_bf16(case)
        rows = 2 * 16 * int(spec.window.out[1])  # type: ignore[arg-type]
        code = compile_kernel(spec, (2, 16, 16, rows), "x86-64-v4-amx")
        assert set(code.variants) == {variant, "amx-bytes"}


def test_channels_that_are_no_pairs_are_refused() -> None:
    spec = of_bf16("3x3")
    image = dataclasses.replace(spec.buffers[0], shape=(*spec.buffers[0].shape[:-1], 17))
    with pytest.raises(ValueError, match="17 channels in 1 groups; pairs take multiples of 2 in each"):
        compile_kernel(dataclasses.replace(spec, buffers=(image, *spec.buffers[1:])), None)
