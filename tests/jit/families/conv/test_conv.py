"""The Conv family against the numpy definition: equal bits from every tier, tile split and target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.matmul.spec import MatrixProduct
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec

from ...tiers import by_target, check_tiers, conv_arrays

N, H, OUT, ROWS = (s.Dim(i) for i in range(4))
LOOPS = tuple(s.Index(loop=i) for i in range(2))

Case = tuple[int, ...]
#: (width, C, F, kernel, stride, dilation, expansion, low, high, groups)
CASES: dict[str, Case] = {
    "3x3": (7, 16, 37, 3, 1, 1, 1, 1, 1, 1),
    "stem": (23, 3, 64, 7, 2, 1, 1, 3, 3, 1),
    "1x1 strided": (9, 33, 40, 1, 2, 1, 1, 0, 0, 1),
    "dilated": (11, 5, 70, 3, 1, 3, 1, 3, 2, 1),
    "groups": (6, 12, 99, 3, 1, 1, 1, 1, 0, 3),
    "groups of whole panels": (5, 8, 64, 3, 1, 1, 1, 1, 1, 2),
    "transposed": (5, 4, 6, 4, 1, -1, 2, -1, 2, 1),
    "no channels": (4, 0, 3, 3, 1, 1, 1, 1, 1, 1),
}


def conv(case: str, layout: str, cases: dict[str, Case] = CASES) -> Conv:
    """relu(conv(x) + bias) of images [N, H, width, C]; rows are joined, H and N are run-time sizes."""
    width, c, f, kernel, stride, dilation, expansion, low, high, groups = cases[case]
    k = kernel * kernel * c // groups
    panels = groups * -(-(f // groups) // 32)
    buffers = (
        s.Buffer("f32", (N, H, width, c)),
        s.Buffer("f32", (panels, k, 32) if layout == "panels" else (k, f)),
        s.Buffer("f32", (f,)),
        s.Buffer("f32", (ROWS, f), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=2, index=(LOOPS[1],)),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("const", "f32", value=0.0),
        s.Instr("maximum", "f32", (2, 3)),
        s.Instr("store", "f32", (4,), buffer=3, index=LOOPS),
    )
    window = Window(
        (OUT, out_size(cases[case], width)),
        (kernel, kernel),
        (stride, stride),
        (dilation, dilation),
        (expansion, expansion),
        (low, low),
        groups,
    )
    b_index = () if layout == "panels" else (s.Index(loop=2), LOOPS[1])
    return Conv(4, buffers, MatrixProduct((), ROWS, f, k, 0, (), 1, b_index, layout, epilogue), window=window)


def out_size(case: Case, size: int) -> int:
    _, _, _, kernel, stride, dilation, expansion, low, high, _ = case
    back = abs(dilation) * (kernel - 1) if dilation < 0 else 0
    return ((size - 1) * expansion + 1 + low + back + high - abs(dilation) * (kernel - 1) - 1) // stride + 1


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("case", CASES)
def test_generic_and_exact_agree_with_the_definition_and_each_other(case: str, layout: str) -> None:
    spec = conv(case, layout)
    sizes = ((n, h, out_size(CASES[case], h)) for n, h in ((2, 5), (1, 1), (0, 4), (3, 17)))
    along = int(spec.window.out[1])  # type: ignore[arg-type]
    dims = [(n, h, out, n * out * along) for n, h, out in sizes if out > 0]
    check_tiers(spec, dims, conv_arrays, 3, rtol=2e-5, atol=2e-5)


def test_targets_and_schedules_agree() -> None:
    results = by_target(conv("3x3", "panels"), (2, 9, 9, 126), conv_arrays, 3)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_padding_is_zero_whatever_lies_there() -> None:
    spec, dims = conv("3x3", "panels"), (2, 3, 3, 42)
    buffers = conv_arrays(spec, dims)
    buffers[0][1] = np.nan
    Kernel(compile_kernel(spec, dims)).run(buffers, dims)
    assert np.isfinite(buffers[3][:21]).all() and np.isnan(buffers[3][21:]).any()


def test_text_and_json_are_exact() -> None:
    for case in CASES:
        spec = conv(case, "panels")
        assert parse_spec(format_spec(spec)) == spec
        assert from_json(to_json(spec)) == spec


def test_what_does_not_fit_is_refused() -> None:
    spec = conv("groups", "panels")
    uneven = dataclasses.replace(spec, window=dataclasses.replace(spec.window, groups=5))
    with pytest.raises(ValueError, match="99 output channels do not divide into 5 groups"):
        compile_kernel(uneven, None)
    flat = dataclasses.replace(spec, window=dataclasses.replace(spec.window, kernel=(3,)))
    with pytest.raises(ValueError, match="an axis for each one of the image"):
        compile_kernel(flat, None)
    with pytest.raises(ValueError, match="schedule 'wide' is unknown"):
        compile_kernel(spec, None, schedule="wide")
