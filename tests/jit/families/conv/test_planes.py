"""Convolutions that read images channels first: the numpy definition, equal bits from every tier and target,
and those of the same image channels last."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv import planes
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.matmul.layouts import pack_columns
from shapevm.jit.families.matmul.spec import MatrixProduct

from ...tiers import all_equal, by_target, check_padding, check_tiers
from ..lines import check_lines

N, H, W, OUT_H, OUT_W, ROWS = (s.Dim(i) for i in range(6))

#: (channels, columns, kernel, stride, dilation, padding before and behind)
CASES = {
    "stem": (3, 64, (7, 7), (2, 2), (1, 1), (3, 3)),
    "small": (3, 40, (3, 3), (2, 2), (1, 1), (1, 1)),
    "dense": (2, 33, (3, 5), (1, 1), (1, 1), (1, 2)),
    "wide steps": (4, 70, (5, 11), (3, 4), (1, 1), (2, 2)),
    "dilated": (1, 20, (3, 3), (1, 2), (2, 3), (4, 5)),
    "cropped": (3, 16, (2, 2), (1, 1), (1, 1), (-1, -1)),
    "line": (4, 24, (5,), (2,), (1,), (2,)),
}
SIZES = ((2, 9, 37), (1, 1, 1), (0, 8, 8), (1, 41, 12), (3, 6, 100))


def conv(case: str, joined: bool = True, planes: bool = True, layout: str = "panels") -> Conv:
    """conv(x) + residual of images [N, C, X..]; `joined`: rows are one loop, else one for each axis."""
    channels, columns, kernel, stride, dilation, low = CASES[case]
    image, out = ((H, W), (OUT_H, OUT_W)) if len(kernel) == 2 else ((W,), (OUT_W,))
    rows: tuple[s.Size, ...] = (ROWS,) if joined else (N, *out)
    loops = tuple(s.Index(loop=i) for i in range(len(rows) + 1))
    k = int(np.prod(kernel)) * channels
    buffers = (
        s.Buffer("f32", (N, channels, *image) if planes else (N, *image, channels)),
        s.Buffer("f32", (-(-columns // 32), k, 32) if layout == "panels" else (k, columns)),
        s.Buffer("f32", (*rows, columns)),
        s.Buffer("f32", (*rows, columns), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=2, index=loops),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("store", "f32", (2,), buffer=3, index=loops),
    )
    window = Window(out, kernel, stride, dilation, (1,) * len(kernel), low)
    batch, m = rows[:-1], rows[-1]
    b_index = () if layout == "panels" else (s.Index(loop=len(rows) + 1), loops[-1])
    return Conv(
        6,
        buffers,
        MatrixProduct(batch, m, columns, k, 0, (), 1, b_index, layout, epilogue),
        window=window,
        planes=planes,
    )


def dims_of(case: str, n: int, h: int, w: int) -> tuple[int, ...] | None:
    """Return the values of the Dims, None where there are no outputs."""
    _, _, kernel, stride, dilation, low = CASES[case]
    sizes = (h, w)[2 - len(kernel) :]
    axes = zip(sizes, kernel, stride, dilation, low, strict=True)
    out = [(x + 2 * pad - d * (k - 1) - 1) // step + 1 for x, k, step, d, pad in axes]
    down, along = (1, *out)[-2:]
    return (n, h, w, down, along, n * down * along) if min(out) > 0 else None


def arrays(spec: s.KernelSpec, dims: tuple[int, ...]) -> list[np.ndarray]:
    """The same pixels, channels first or last."""
    assert isinstance(spec, Conv) and isinstance(spec.product.k, int) and isinstance(spec.product.n, int)
    rng = np.random.default_rng(0)
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    n, *rest = shapes[0]
    image = [n, *rest] if spec.planes else [n, rest[-1], *rest[:-1]]
    pixels = rng.standard_normal(image).astype(np.float32)
    first = pixels if spec.planes else np.ascontiguousarray(np.moveaxis(pixels, 1, -1))
    weight = rng.standard_normal((spec.product.k, spec.product.n)).astype(np.float32)
    weight = pack_columns("panels", weight, 1) if spec.product.b_layout == "panels" else weight
    residual = rng.standard_normal(shapes[2]).astype(np.float32)
    return [first, weight, residual, np.full(shapes[3], np.nan, np.float32)]


@pytest.mark.parametrize(("case", "layout"), [*((case, "panels") for case in CASES), ("small", "rows")])
def test_generic_and_exact_agree_with_the_definition_and_each_other(case: str, layout: str) -> None:
    sizes = [dims_of(case, *size) for size in SIZES]
    check_tiers(conv(case, layout=layout), [dims for dims in sizes if dims], arrays, 3, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", ["small", "line"])
def test_loops_that_are_not_joined_and_channels_last_give_the_same_bits(case: str) -> None:
    dims = dims_of(case, 2, 9, 37)
    assert dims is not None
    results = []
    for options in ({}, {"joined": False}, {"planes": False}, {"layout": "rows"}):
        spec = conv(case, **options)  # type: ignore[arg-type]
        buffers = arrays(spec, dims)
        Kernel(compile_kernel(spec, dims, "x86-64-v3")).run(buffers, dims)
        results.append(buffers[3])
    assert all_equal(results)


def test_targets_and_schedules_agree() -> None:
    dims = dims_of("wide steps", 1, 12, 90)
    assert dims is not None
    assert all_equal(by_target(conv("wide steps"), dims, arrays, 3))


def test_padding_is_zero_whatever_lies_there() -> None:
    spec, dims = conv("small"), dims_of("small", 3, 3, 5)
    assert dims is not None
    check_padding(spec, dims, arrays, 3)


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "groups", "fits"),
    [
        (4, (8, 16), (1, 1), 1, True),  # 512 steps
        (3, (9, 19), (1, 1), 1, False),  # 513
        (4, (3, 3), (1, 4), 1, True),
        (4, (3, 3), (1, 3), 1, False),
        (5, (3, 3), (1, 1), 1, False),
        (4, (3, 3), (1, 1), 2, False),
    ],
)
def test_which_windows_read_planes(
    channels: int, kernel: tuple[int, ...], stride: tuple[int, ...], groups: int, fits: bool
) -> None:
    attrs = {"kernel": kernel, "stride": stride, "dilation": (1, 1), "expansion": (1, 1)}
    assert planes.is_fit(channels, attrs, groups) is fits


def test_what_does_not_fit_is_refused() -> None:
    spec = conv("stem")
    window = dataclasses.replace(spec.window, stride=(2, 3))
    with pytest.raises(ValueError, match="planes are for at most 4 channels in one group"):
        compile_kernel(dataclasses.replace(spec, window=window), None)
    with pytest.raises(ValueError, match="schedule 'wide' is unknown"):
        compile_kernel(spec, None, schedule="wide")


@pytest.mark.parametrize("case", [case for case in CASES if case != "line"])
def test_a_tile_writes_its_lines_alone(case: str) -> None:
    spec, dims = conv(case), dims_of(case, 2, 41, 37)
    assert dims is not None
    for key in (None, dims):
        code = compile_kernel(spec, key)
        assert {row.buffer for row in code.work.lines} == {2, 3}
        assert check_lines(code, dims, arrays(spec, dims)) == 2 * -(-dims[3] // planes.LINES)
