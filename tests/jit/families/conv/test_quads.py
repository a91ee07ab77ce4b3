"""Convolutions of bytes: the integers of numpy on every target, tier and tile split."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel, target_for
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.layouts import pack_columns
from shapevm.jit.text import format_spec, parse_spec

from ...tiers import all_equal, by_target, check_tiers
from .test_conv import CASES as PLAIN
from .test_conv import LOOPS, ROWS, conv, out_size

#: As those of `test_conv`; channels of a group are whole fours.
CASES = {
    "3x3": PLAIN["3x3"],
    "1x1 strided": (9, 36, 40, 1, 2, 1, 1, 0, 0, 1),
    "stem": (23, 4, 64, 7, 2, 1, 1, 3, 3, 1),
    "dilated": (11, 8, 70, 3, 1, 3, 1, 3, 2, 1),
    "groups": (6, 12, 99, 3, 1, 1, 1, 1, 0, 3),
    "many channels": (4, 528, 33, 3, 1, 1, 1, 1, 1, 1),
    "transposed": PLAIN["transposed"],
    "whole steps": (14, 64, 70, 3, 1, 1, 1, 1, 1, 1),
    "whole steps, strided": (15, 64, 40, 3, 2, 1, 1, 1, 1, 1),
    "whole steps, dilated": (30, 128, 33, 3, 2, 2, 1, 2, 1, 1),
    "whole lines of taps": (37, 16, 64, 4, 1, 1, 1, 2, 0, 1),
    "whole stem": (40, 4, 64, 7, 2, 1, 1, 3, 3, 1),
    "whole thirds": (19, 48, 32, 3, 1, 1, 1, 1, 1, 1),
}
PADDED = [case for case in CASES if case.startswith("whole")]


def of_bytes(case: str) -> Conv:
    """out[row, f] = conv(x) in i32 of images in u8 by weights in i8."""
    plain = conv(case, "panels", CASES)
    groups, n, k = plain.window.groups, int(plain.product.n), int(plain.product.k)
    buffers = (
        dataclasses.replace(plain.buffers[0], dtype="u8"),
        s.Buffer("i8", (groups * -(-(n // groups) // 32), k // 4, 32, 4)),
        s.Buffer("i32", (n,)),
        s.Buffer("i32", (ROWS, n), is_output=True),
    )
    epilogue = (
        s.Instr("acc", "i32"),
        s.Instr("load", "i32", buffer=2, index=(LOOPS[1],)),
        s.Instr("add", "i32", (0, 1)),
        s.Instr("store", "i32", (2,), buffer=3, index=LOOPS),
    )
    return dataclasses.replace(plain, buffers=buffers).with_product(b_layout="quads", epilogue=epilogue)


def arrays(spec: Conv, dims: tuple[int, ...]) -> list[np.ndarray]:
    """Return random buffers of all bytes: image, weight, what is added, result."""
    rng = np.random.default_rng(0)
    n, k = int(spec.product.n), int(spec.product.k)
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    image = rng.integers(0, 256, shapes[0]).astype(np.uint8)
    weight = rng.integers(-128, 128, (k, n)).astype(np.int8)
    added = rng.integers(-1000, 1000, n).astype(np.int32)
    return [
        image,
        pack_columns("quads", weight, spec.window.groups),
        added,
        np.full(shapes[3], 77, np.int32),
    ]


@pytest.mark.parametrize("case", CASES)
def test_integers_are_exact_on_every_tier_and_target(case: str) -> None:
    spec = of_bytes(case)
    sizes = ((n, h, out_size(CASES[case], h)) for n, h in ((2, 5), (1, 1), (0, 4), (3, 17)))
    along = int(spec.window.out[1])  # type: ignore[arg-type]
    dims = [(n, h, out, n * out * along) for n, h, out in sizes if out > 0]
    check_tiers(spec, dims, arrays, 3, 0, 0)
    assert all_equal(by_target(spec, dims[-1], arrays, 3))
    assert parse_spec(format_spec(spec)) == spec


def test_vnni_and_the_indirection_buffer_are_used() -> None:
    spec = of_bytes("3x3")
    assert target_for(of_bytes("1x1 strided"), "x86-64-v4-amx") == "x86-64-v4-vnni"
    assert target_for(of_bytes("many channels"), "x86-64-v4-amx") == "x86-64-v4-amx"
    code = compile_kernel(spec, (1, 7, 7, 49), "x86-64-v4-vnni")
    assert {"indirection", "panels"} <= set(code.variants)


@pytest.mark.parametrize("case", PADDED)
def test_lines_are_copied_once_where_steps_are_whole(case: str) -> None:
    spec, out = of_bytes(case), out_size(CASES[case], 28)
    rows = out * int(spec.window.out[1])  # type: ignore[arg-type]
    code = compile_kernel(spec, (1, 28, out, rows), "x86-64-v4-amx")
    assert {"padded", "amx-bytes"} <= set(code.variants)
    few = out_size(CASES[case], 5)  # of many images, lines that are not there cost more than copies
    rows = 9 * few * int(spec.window.out[1])  # type: ignore[arg-type]
    code = compile_kernel(spec, (9, 5, few, rows), "x86-64-v4-amx")
    assert "padded" not in code.variants


def test_channels_that_are_no_fours_are_refused() -> None:
    spec = of_bytes("3x3")
    image = dataclasses.replace(spec.buffers[0], shape=(*spec.buffers[0].shape[:-1], 18))
    with pytest.raises(ValueError, match="18 channels in 1 groups; quads take multiples of 4"):
        Kernel(compile_kernel(dataclasses.replace(spec, buffers=(image, *spec.buffers[1:])), None))
