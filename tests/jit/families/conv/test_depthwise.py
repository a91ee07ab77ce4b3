"""Depthwise convolutions and narrow groups: the numpy definition, equal bits from every tier and target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.matmul.spec import MatrixProduct
from shapevm.jit.tuning import schedules_of

from ...operations import HOST_TARGETS
from ...tiers import all_equal, check_padding, check_tiers
from ..lines import check_lines

N, H, W, OUT_H, OUT_W, ROWS = (s.Dim(i) for i in range(6))

#: (channels, kernel, stride, dilation, padding before, behind)
CASES = {
    "3x3": (96, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "strided": (33, (3, 5), (2, 2), (1, 1), (1, 2), (1, 2)),
    "dilated": (8, (3, 3), (1, 2), (2, 3), (2, 3), (2, 1)),
    "7x7": (16, (7, 7), (1, 1), (1, 1), (3, 3), (3, 3)),
    "no padding": (40, (2, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
    "much padding": (5, (2, 2), (1, 1), (3, 1), (4, 2), (5, 6)),
    "line": (24, (5,), (2,), (1,), (2,), (2,)),
    "groups of 2": (24, (3, 2), (2, 1), (1, 1), (1, 1), (1, 1)),
    "groups of 8": (104, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "groups of 4": (32, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
}
GROUPS = {"groups of 2": 2, "groups of 8": 8, "groups of 4": 4}  # channels of a group, else 1


def conv(case: str, joined: bool = True) -> Conv:
    """conv(x) + residual of images [N, H, W, C]; `joined`: rows are one loop, else one for each axis."""
    channels, kernel, stride, dilation, low, _ = CASES[case]
    image, out = ((H, W), (OUT_H, OUT_W)) if len(kernel) == 2 else ((W,), (OUT_W,))
    rows: tuple[s.Size, ...] = (ROWS,) if joined else (N, *out)
    loops = tuple(s.Index(loop=i) for i in range(len(rows) + 1))
    group = GROUPS.get(case, 1)
    k = int(np.prod(kernel)) * group
    buffers = (
        s.Buffer("f32", (N, *image, channels)),
        s.Buffer("f32", (k, channels)),
        s.Buffer("f32", (*rows, channels)),
        s.Buffer("f32", (*rows, channels), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=2, index=loops),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("store", "f32", (2,), buffer=3, index=loops),
    )
    window = Window(out, kernel, stride, dilation, (1,) * len(kernel), low, channels // group)
    b_index = (s.Index(loop=len(rows) + 1), loops[-1])
    return Conv(
        6,
        buffers,
        MatrixProduct(rows[:-1], rows[-1], channels, k, 0, (), 1, b_index, "rows", epilogue),
        window=window,
    )


def dims_of(case: str, n: int, h: int, w: int) -> tuple[int, ...] | None:
    """Return the values of the Dims, None where there are no outputs."""
    _, kernel, stride, dilation, low, high = CASES[case]
    sizes = (h, w)[2 - len(kernel) :]
    out = [
        (x + a + b - d * (k - 1) - 1) // step + 1
        for x, k, step, d, a, b in zip(sizes, kernel, stride, dilation, low, high, strict=True)
    ]
    down, along = (1, *out)[-2:]
    return (n, h, w, down, along, n * down * along) if min(out) > 0 else None


def arrays(spec: Conv, dims: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_generic_and_exact_agree_with_the_definition_and_each_other(case: str) -> None:
    spec = conv(case)
    sizes = [dims_of(case, *size) for size in ((2, 5, 7), (1, 1, 1), (0, 4, 4), (1, 3, 29), (2, 17, 14))]
    check_tiers(spec, [dims for dims in sizes if dims], arrays, 3, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_images_of_bytes_have_exact_sums(case: str) -> None:
    plain = conv(case)
    image = dataclasses.replace(plain.buffers[0], dtype="u8")
    spec = dataclasses.replace(plain, buffers=(image, *plain.buffers[1:]))

    def of_integers(spec: Conv, dims: tuple[int, ...]) -> list[np.ndarray]:
        rng, buffers = np.random.default_rng(0), arrays(spec, dims)
        buffers[0] = rng.integers(0, 256, buffers[0].shape).astype(np.uint8)
        buffers[1:3] = [np.rint(40 * buffer) for buffer in buffers[1:3]]
        return buffers

    sizes = [dims_of(case, *size) for size in ((2, 5, 7), (1, 1, 1), (0, 4, 4), (1, 3, 29), (2, 17, 14))]
    check_tiers(spec, [dims for dims in sizes if dims], of_integers, 3, rtol=0, atol=0)
    dims = [dims for dims in sizes if dims][-1]
    found = []
    for target in HOST_TARGETS:
        buffers, code = of_integers(spec, dims), compile_kernel(spec, dims, target)
        assert "depthwise" in code.variants
        Kernel(code).run(buffers, dims)
        found.append(buffers[3])
    assert all_equal(found)


@pytest.mark.parametrize("case", ["3x3", "line"])
def test_loops_that_are_not_joined_and_targets_give_the_same_bits(case: str) -> None:
    dims = dims_of(case, 2, 9, 13)
    assert dims is not None
    results = []
    for joined in (True, False):
        for target in HOST_TARGETS:
            spec = conv(case, joined)
            buffers = arrays(spec, dims)
            Kernel(compile_kernel(spec, dims, target)).run(buffers, dims)
            results.append(buffers[3])
    assert all_equal(results)


def test_padding_is_zero_whatever_lies_there() -> None:
    spec, dims = conv("3x3"), dims_of("3x3", 3, 3, 5)
    assert dims is not None
    check_padding(spec, dims, arrays, 3)


def test_a_long_epilogue_takes_sums_one_after_another() -> None:
    """As one of few operations does, which takes them from registers."""
    short = conv("3x3")
    acc, load, add, store = short.product.epilogue
    body = (acc, load, add, s.Instr("erf", "f32", (2,)), dataclasses.replace(store, args=(3,)))
    spec = short.with_product(epilogue=body)
    check_tiers(spec, [dims for dims in (dims_of("3x3", 2, 5, 15),) if dims], arrays, 3, rtol=2e-6, atol=2e-5)


def test_there_is_one_schedule() -> None:
    spec = conv("3x3")
    assert schedules_of(spec, None, HOST_TARGETS[0]) == ()
    with pytest.raises(ValueError, match="schedule 'wide' is unknown"):
        compile_kernel(spec, None, schedule="wide")


@pytest.mark.parametrize("case", [case for case in CASES if case != "line"])
def test_a_tile_takes_its_lines_alone(case: str) -> None:
    spec, dims = conv(case), dims_of(case, 2, 17, 14)
    assert dims is not None
    for target in HOST_TARGETS:
        for key in (None, dims):
            code = compile_kernel(spec, key, target)
            assert {row.buffer for row in code.work.lines} == {0, 2, 3}
            assert check_lines(code, dims, arrays(spec, dims)) == 2 * -(-dims[3] // 4)


def test_a_line_has_no_lines() -> None:
    assert compile_kernel(conv("line"), None).work.lines == ()
