"""Winograd's convolution of bytes: the integers of the definition, on every target and tier."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv import winograd_bytes
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.conv.winograd_bytes_parts import (
    EDGE,
    EDGE_APART,
    EDGE_SIDE,
    INVERSE,
    SHIFT,
    outputs_along,
    pixels_along,
    pixels_of_edge_along,
    taps_along,
)
from shapevm.jit.families.conv.winograd_points import SIDE, TAPS, TILE
from shapevm.jit.families.matmul.layouts import pack_columns
from shapevm.jit.families.matmul.spec import MatrixProduct
from shapevm.jit.llvm.target import TARGETS
from shapevm.jit.reference import evaluate

from ...operations import HOST_TARGETS
from ...tiers import all_equal, by_target

VARIANT = "winograd-bytes"
#: (images, height, width, channels, columns, padding): tiles at every side partly outside, several blocks of
#: tiles, parts of a panel, channels of half a vector, more padding than a tap reaches, tiles of 1 or 2
#: outputs at the lower edge, the right one, both.
CASES = (
    (1, 28, 29, 64, 64, (1, 1)), (2, 17, 19, 32, 37, (1, 1)), (3, 13, 31, 96, 70, (0, 1)),
    (1, 23, 16, 160, 16, (2, 0)), (1, 12, 41, 64, 1, (1, 5)), (7, 8, 11, 128, 33, (1, 1)),
    (1, 14, 14, 64, 37, (1, 1)), (1, 13, 16, 32, 70, (1, 1)), (1, 20, 9, 96, 64, (1, 1)),
    (1, 5, 6, 64, 8, (1, 1)),
)  # fmt: skip


def conv(case: tuple[int, int, int, int, int, tuple[int, int]]) -> Conv:
    """out[row, f] = conv(x) + added[f], in i32."""
    n_images, height, across, c, n, low = case
    out = (height + 2 * low[0] - 2, across + 2 * low[1] - 2)
    m, k, loops = n_images * out[0] * out[1], TAPS * TAPS * c, (s.Index(loop=0), s.Index(loop=1))
    buffers = (
        s.Buffer("u8", (n_images, height, across, c)),
        s.Buffer("i8", (-(-n // 32), k // 4, 32, 4)),
        s.Buffer("i32", (n,)),
        s.Buffer("i32", (m, n), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "i32"),
        s.Instr("load", "i32", buffer=2, index=(loops[1],)),
        s.Instr("add", "i32", (0, 1)),
        s.Instr("store", "i32", (2,), buffer=3, index=loops),
    )
    one = (1, 1)
    window = Window(out, (TAPS, TAPS), one, one, one, low)
    return Conv(0, buffers, MatrixProduct((), m, n, k, 0, (), 1, (), "quads", epilogue), window)


def arrays(spec: Conv, dims: tuple[int, ...], weight: np.ndarray | None = None) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    image, _, added, result = (b.shape for b in spec.buffers)
    k, n = spec.product.k, spec.product.n
    columns = rng.integers(-128, 128, (k, n)).astype(np.int8) if weight is None else weight  # type: ignore[arg-type]
    return [
        rng.integers(0, 256, image).astype(np.uint8),  # type: ignore[arg-type]
        pack_columns("quads", columns, 1),
        rng.integers(-1000, 1000, added).astype(np.int32),  # type: ignore[arg-type]
        np.full(result, 77, np.int32),  # type: ignore[arg-type]
    ]


def variants(spec: Conv, target: str) -> tuple[str, ...]:
    return compile_kernel(spec, (), target).variants


def matrix(transform: object, size: int) -> np.ndarray:
    """Return the matrix of a linear function of `size` numbers."""
    columns = [transform(list(row)) for row in np.eye(size, dtype=int)]  # type: ignore[operator]
    return np.array(columns).T


def test_transforms_are_exact_in_16_bits_and_undone_modulo_2_to_the_32() -> None:
    pixels, taps = matrix(pixels_along, SIDE), matrix(taps_along, TAPS)
    outputs = matrix(outputs_along, SIDE)
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (SIDE, SIDE)), rng.integers(-128, 128, (TAPS, TAPS))
    products = (pixels @ x @ pixels.T) * (taps @ w @ taps.T)
    found = outputs @ products @ outputs.T
    wanted = [[(x[i : i + TAPS, j : j + TAPS] * w).sum() for j in range(TILE)] for i in range(TILE)]
    assert np.array_equal(found, 900 * np.array(wanted))
    wrapped = (found * INVERSE).astype(np.int32) >> SHIFT  # modulo 2**32
    assert np.array_equal(wrapped, wanted)
    both = np.kron(pixels, pixels)
    edge = matrix(pixels_of_edge_along, EDGE_SIDE)
    assert abs(edge).sum(1).max() < abs(pixels).sum(1).max()
    products = (edge @ x[:EDGE_SIDE] @ pixels.T) * (taps[:EDGE_SIDE] @ w @ taps.T)
    found = outputs[::EDGE_APART, :EDGE_SIDE] @ products @ outputs.T
    assert np.array_equal(found, 900 * np.array(wanted)[:EDGE])
    assert 255 * np.maximum(both, 0).sum(1).max() == 255 * np.maximum(-both, 0).sum(1).max() == 24990
    assert 128 * abs(np.kron(taps, taps)).sum(1).max() == 28800 < 1 << 15


@pytest.mark.parametrize("case", CASES)
def test_integers_are_exact_on_every_target_and_schedule(
    case: tuple[int, int, int, int, int, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it pays or not."""
    monkeypatch.setattr(winograd_bytes, "GAIN", 0.0)
    spec = conv(case)
    wanted = arrays(spec, ())
    evaluate(spec, (), wanted)
    assert all_equal([wanted[3], *by_target(spec, (), arrays, 3)])
    for target in HOST_TARGETS:
        code = compile_kernel(spec, (), target)
        assert (VARIANT in code.variants) is (TARGETS[code.target].quad_cost > 0)
        kernel, found = Kernel(code), arrays(spec, ())
        kernel.run(found, (), [(t, t + 1) for t in range(kernel.n_tiles(()))][::-1])
        assert np.array_equal(found[3], wanted[3])


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_the_greatest_sums_are_exact(sign: int) -> None:
    """All weights -128 or 127, or both in turn, under pixels of 255 and most channels."""
    spec = conv((1, 16, 15, winograd_bytes.MAX_CHANNELS, 32, (1, 1)))
    signs = np.full((spec.product.k, 32), sign) if sign else np.where(np.arange(9 * 1024 * 32) % 5 < 2, 1, -1)  # type: ignore[call-overload]
    weight = np.where(signs > 0, 127, -128).astype(np.int8).reshape(-1, 32)
    wanted = arrays(spec, (), weight)
    wanted[0][...] = 255
    evaluate(spec, (), wanted)
    for target in HOST_TARGETS:
        found = arrays(spec, (), weight)
        found[0][...] = 255
        Kernel(compile_kernel(spec, (), target)).run(found, ())
        assert np.array_equal(found[3], wanted[3])


def test_it_is_taken_where_it_pays() -> None:
    vnni, plain = "x86-64-v4-vnni", "x86-64-v3"
    of_resnet = ((56, 64, True), (28, 128, True), (14, 256, True), (7, 512, False))
    for side, c, wanted in (*of_resnet, (13, 256, True), (3, 64, False)):
        assert (VARIANT in variants(conv((1, side, side, c, c, (1, 1))), vnni)) is wanted
    for side, c, wanted in ((28, 128, True), (7, 512, True), (3, 64, False)):
        assert (VARIANT in variants(conv((1, side, side, c, c, (1, 1))), plain)) is wanted


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "x86-64-v3-vnni", "aarch64", "aarch64-i8mm"])
def test_other_targets_multiply_bytes(target: str) -> None:
    """Tiles are faster, and of the others it was not measured."""
    spec = conv(CASES[0])
    assert VARIANT not in compile_kernel(spec, (), target).variants


def test_other_convolutions_multiply_bytes() -> None:
    spec, target = conv((1, 28, 28, 64, 64, (1, 1))), "x86-64-v4-vnni"
    assert VARIANT in variants(spec, target)
    window = spec.window
    for change in ({"stride": (1, 2)}, {"dilation": (2, 1)}, {"expansion": (2, 2)}):
        other = dataclasses.replace(spec, window=dataclasses.replace(window, **change))  # type: ignore[arg-type]
        assert VARIANT not in variants(other, target)
    for channels in (48, winograd_bytes.MAX_CHANNELS + 32):
        assert VARIANT not in variants(conv((1, 28, 28, channels, 64, (1, 1))), target)
    assert VARIANT not in variants(conv((0, 28, 28, 64, 64, (1, 1))), target)


def test_code_of_any_size_has_the_same_bits() -> None:
    spec, rows = conv((1, 28, 28, 64, 64, (1, 1))), s.Dim(0)
    buffers = (*spec.buffers[:3], dataclasses.replace(spec.buffers[3], shape=(rows, 64)))
    images = dataclasses.replace(spec.buffers[0], shape=(s.Dim(1), 28, 28, 64))
    generic = dataclasses.replace(spec, n_dims=2, buffers=(images, *buffers[1:])).with_product(m=rows)
    found = []
    for kernel, dims in (
        (Kernel(compile_kernel(spec, ())), ()),
        (Kernel(compile_kernel(generic, None)), (784, 1)),
        (Kernel(compile_kernel(generic, (784, 1))), (784, 1)),
    ):
        given = arrays(spec, ())
        kernel.run(given, dims)
        found.append(given[3])
    assert VARIANT not in compile_kernel(generic, None).variants
    assert all_equal(found)
