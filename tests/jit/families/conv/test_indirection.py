"""Convolutions whose rows are read in the image: equal bits with patches, and from every tier and target."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv import conv
from shapevm.jit.families.conv.reference import group_columns, patches
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.matmul.layouts import layout_of
from shapevm.jit.families.matmul.spec import MatrixProduct
from shapevm.jit.families.matmul.sums import products

from ...operations import HOST_TARGETS
from ...tiers import all_equal, by_target, check_tiers, conv_arrays

N, OUT, *SIDES = (s.Dim(i) for i in range(5))

#: (axes, C, F, kernel, stride, dilation, low, groups): of one axis in turn
CASES = {
    "a part of a tap in a chunk": (2, 160, 70, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    "uneven parts": (2, 520, 64, (1, 1), (2, 2), (1, 1), (0, 0), 1),
    "taps of a chunk": (2, 59, 64, (3, 3), (2, 1), (1, 2), (1, 2), 1),
    "one row tile's chunk of taps": (2, 128, 33, (2, 2), (3, 2), (1, 1), (0, 1), 1),
    "groups": (2, 46, 74, (5, 3), (1, 2), (1, 1), (2, 0), 2),
    "taps backwards": (2, 7, 64, (3, 3), (1, 1), (-1, -1), (-2, -2), 1),
    "few columns": (2, 64, 17, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    "a line": (1, 96, 65, (7,), (2,), (1,), (3,), 1),
    "a space": (3, 5, 40, (2, 3, 2), (1, 2, 2), (1, 1, 1), (0, 1, 1), 1),
    "most taps": (2, 1, 66, (8, 8), (1, 1), (1, 1), (4, 4), 1),
    "too many taps": (2, 1, 66, (13, 5), (1, 1), (1, 1), (6, 2), 1),
}
IN_PLACE = [case for case in CASES if case != "too many taps"]


def conv_spec(case: str, layout: str = "panels") -> Conv:
    """conv(x) + residual of images [N, sides.., C] with all sizes but channels at run time; N is a loop of
    its own."""
    axes, c, f, kernel, stride, dilation, low, groups = CASES[case]
    k = prod(kernel) * c // groups
    panels = groups * -(-(f // groups) // 32)
    at = tuple(s.Index(loop=i) for i in range(3))
    buffers = (
        s.Buffer("f32", (N, *SIDES[:axes], c)),
        s.Buffer("f32", (panels, k, 32) if layout == "panels" else (k, f)),
        s.Buffer("f32", (N, OUT, f)),
        s.Buffer("f32", (N, OUT, f), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=2, index=at),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("store", "f32", (2,), buffer=3, index=at),
    )
    out = tuple(s.Dim(5 + i) for i in range(axes))
    window = Window(out, kernel, stride, dilation, (1,) * axes, low, groups)
    b_index = () if layout == "panels" else (s.Index(loop=3), at[2])
    return Conv(
        8, buffers, MatrixProduct((N,), OUT, f, k, 0, (), 1, b_index, layout, epilogue), window=window
    )


def dims_of(case: str, n: int, *sides: int) -> tuple[int, ...]:
    """Return the sizes for images of `sides`, as much padded behind as before."""
    axes, _, _, kernel, stride, dilation, low, _ = CASES[case]
    reach = [abs(d) * (taps - 1) for taps, d in zip(kernel, dilation, strict=True)]
    pads = [before + back if d < 0 else before for before, d, back in zip(low, dilation, reach, strict=True)]
    parts = zip(sides, pads, reach, stride, strict=False)
    out = [(side + 2 * pad - back - 1) // step + 1 for side, pad, back, step in parts]
    given = [*sides[:axes], *[1] * (3 - axes)]
    return (n, prod(out), *given, *out, *[1] * (3 - axes))


@pytest.mark.parametrize("case", CASES)
def test_generic_and_exact_agree_with_the_definition_and_each_other(case: str) -> None:
    spec = conv_spec(case)
    sizes = ((2, 13, 11, 5), (1, 37, 41, 3), (0, 9, 9, 9), (3, 6, 7, 4))
    check_tiers(spec, [dims_of(case, *size) for size in sizes], conv_arrays, 3, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("case", IN_PLACE)
def test_bits_are_those_of_patches(case: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, dims = conv_spec(case, layout), dims_of(case, 2, 15, 19, 4)
    results = by_target(spec, dims, conv_arrays, 3)
    monkeypatch.setattr(conv, "fits_indirection", lambda f, spec: False)
    patches = conv_arrays(spec, dims)
    Kernel(compile_kernel(spec, dims, HOST_TARGETS[-1])).run(patches, dims)
    assert all_equal([patches[3], *results])


@pytest.mark.parametrize("layout", ["panels", "rows"])
@pytest.mark.parametrize("case", CASES)
def test_sums_have_the_order_of_the_definition(case: str, layout: str) -> None:
    """Blocks are whole taps or even parts of one, whether rows are read in the image or copied."""
    spec, dims = conv_spec(case, layout), dims_of(case, 1, 11, 8, 3)
    buffers = conv_arrays(spec, dims)
    groups, columns = spec.window.groups, spec.product.n // spec.window.groups
    rows = patches(spec.window, [dims[size.index] for size in spec.window.out], buffers[0])
    weights = group_columns(buffers[1], layout_of(spec), groups, spec.product.k, columns)
    sums = np.moveaxis(products(rows, weights, conv.piece_of(spec)), 0, 1).reshape(buffers[2].shape)
    for code in (compile_kernel(spec, None, HOST_TARGETS[-1]), compile_kernel(spec, dims, HOST_TARGETS[-1])):
        Kernel(code).run(buffers, dims)
        assert np.array_equal(buffers[3], sums + buffers[2])
