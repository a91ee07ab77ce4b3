"""Convolutions whose numbers of rows and of outputs differ, as in the bytecode of an attacker: kernels for
any sizes do nothing but report it, those for known sizes are refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ArtifactError, KernelError
from shapevm.vm.program import SizeRange

from ....vm.kernels import with_code
from ....vm.test_machine import load
from ...operations import HOST_TARGETS
from . import test_conv, test_depthwise, test_planes, test_quads, test_winograd

CANARIES = 1 << 16  # elements on both sides of the result
UNTOUCHED = 77
BIG = 1 << 32

N, H, W, OUT_H, OUT_W, ROWS = (s.Dim(i) for i in range(6))


def open_sizes(spec: Conv) -> Conv:
    """Return a spec of `test_conv` with sizes that a launch gives for the width and its outputs too."""
    image, weight, added, result = spec.buffers
    buffers = (
        dataclasses.replace(image, shape=(N, H, W, image.shape[-1])),
        weight,
        added,
        dataclasses.replace(result, shape=(ROWS, result.shape[-1])),
    )
    window = dataclasses.replace(spec.window, out=(OUT_H, OUT_W))
    return dataclasses.replace(spec, n_dims=6, buffers=buffers, window=window).with_product(m=ROWS)


SPECS: dict[str, Conv] = {
    "planes": test_planes.conv("dense"),
    "winograd": test_winograd.conv(16, 32),
    "depthwise": test_depthwise.conv("3x3"),
    "narrow groups": test_depthwise.conv("groups of 4"),
    "product": open_sizes(test_conv.conv("3x3", "panels")),
    "patches": open_sizes(test_conv.conv("transposed", "rows")),
    "quads": open_sizes(test_quads.of_bytes("3x3")),
}
#: (images, height, width, lines and columns of outputs, rows); right ones of the first are 162
WRONG = {
    "few rows": (2, 9, 9, 9, 9, 5),
    "no rows": (2, 9, 9, 9, 9, 0),
    "a row too few": (2, 9, 9, 9, 9, 161),
    "a row too many": (2, 9, 9, 9, 9, 163),
    "no lines of outputs": (2, 9, 9, 0, 9, 162),
    "no columns of outputs": (2, 9, 9, 9, 0, 162),
    "no images": (0, 9, 9, 9, 9, 162),
    "2**64 outputs": (BIG, 0, 9, BIG, 1, 0),
    "2**65 outputs for 2**65 modulo 2**64": (BIG, 0, 9, BIG, 2, 0),
    "negative outputs": (1, 9, 9, -2, -3, 6),
    "negative outputs once": (1, 9, 9, -1, 9, 9),
}


def memory(spec: Conv, dims: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the buffers, the result in the middle of canaries, and the result with its canaries."""
    shapes = [[dims[x.index] if isinstance(x, s.Dim) else x for x in b.shape] for b in spec.buffers]
    arrays = [np.ones(shape, DTYPES[b.dtype].numpy) for shape, b in zip(shapes, spec.buffers, strict=True)]
    size = arrays[3].size
    whole = np.full(size + 2 * CANARIES, UNTOUCHED, arrays[3].dtype)
    arrays[3] = whole[CANARIES : CANARIES + size].reshape(shapes[3])
    return arrays, whole


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("name", SPECS)
def test_wrong_sizes_touch_nothing(name: str, target: str) -> None:
    spec = SPECS[name]
    kernel = Kernel(compile_kernel(spec, None, target))
    for dims in WRONG.values():
        buffers, whole = memory(spec, dims)
        with pytest.raises(ValueError, match=r"kernel: \d+ rows given for \d+ outputs of its images"):
            kernel.run(buffers, dims, [(0, 1), (1, 3)])
        assert (whole == UNTOUCHED).all(), dims


@pytest.mark.parametrize("name", SPECS)
def test_sizes_of_0_touch_nothing(name: str) -> None:
    spec = SPECS[name]
    kernel = Kernel(compile_kernel(spec, None))
    for dims in ((2, 9, 9, 0, 9, 0), (2, 9, 9, 9, 0, 0), (0, 9, 9, 9, 9, 0), (2, 0, 0, 0, 0, 0)):
        buffers, whole = memory(spec, dims)
        kernel.run(buffers, dims, [(0, 1), (1, 3)])
        exact = Kernel(compile_kernel(spec, dims))
        exact.run(buffers, dims, [(0, 1), (1, 3)])
        assert (whole == UNTOUCHED).all(), dims


@pytest.mark.parametrize("name", SPECS)
def test_right_sizes_write_all_rows(name: str) -> None:
    spec, dims = SPECS[name], (2, 9, 9, 9, 9, 162)
    buffers, whole = memory(spec, dims)
    Kernel(compile_kernel(spec, None)).run(buffers, dims)
    assert (buffers[3] != UNTOUCHED).all()
    assert (whole[:CANARIES] == UNTOUCHED).all() and (whole[-CANARIES:] == UNTOUCHED).all()


@pytest.mark.parametrize("name", SPECS)
def test_code_for_ranges_compares_too(name: str) -> None:
    spec = SPECS[name]
    key = (SizeRange(1, 4), 9, 9, 9, 9, SizeRange(1, 1000))
    kernel = Kernel(compile_kernel(spec, key))
    for rows in (5, 161, 163):
        dims = (2, 9, 9, 9, 9, rows)
        buffers, whole = memory(spec, dims)
        with pytest.raises(ValueError, match=f"{rows} rows given for 162 outputs"):
            kernel.run(buffers, dims)
        assert (whole == UNTOUCHED).all()


@pytest.mark.parametrize("name", SPECS)
def test_known_sizes_that_differ_are_refused(name: str) -> None:
    spec = SPECS[name]
    for dims in WRONG.values():
        with pytest.raises(ValueError, match=r"rows for \d+ outputs of its images|sizes are >= 0"):
            compile_kernel(spec, dims)
    with pytest.raises(ArtifactError, match=r"m is 161; it must be 162 rows, with its batch"):
        from_json(to_json(static(spec, 161)))
    assert from_json(to_json(static(spec, 162)))


def static(spec: Conv, rows: int) -> Conv:
    """Return a spec whose number of images and outputs is known."""
    image, *others = spec.buffers
    known = dataclasses.replace(image, shape=(2, *image.shape[1:]))
    window = dataclasses.replace(spec.window, out=(9, 9))
    return dataclasses.replace(spec, buffers=(known, *others), window=window).with_product(m=rows)


@pytest.mark.parametrize(("rows", "columns"), [(5, 9), (163, 9), (162, 0)])
def test_a_program_is_told(rows: int, columns: int) -> None:
    text = f"""
input "x": f32[2, 9, 9, 96]
input "w": f32[9, 96]
output "y"
kernel k0 "conv" (6 dims, f32[n0, n1, n2, 96], f32[9, 96], f32[n5, 96], out f32[n5, 96]) = \
{json.dumps(to_json(SPECS["depthwise"]))}
function "main" (2 params, 1 results)
  int r2 2
  int r3 9
  int r4 {columns}
  int r5 {rows}
  int r6 96
  alloc r7 f32 (r5, r6)
  alloc r8 f32 (r5, r6)
  kernel k0 (r2, r3, r3, r3, r4, r5) (r0, r1, r7, r8)
  return (r8)
""".replace("\\\n", "")
    images, weight = np.ones((2, 9, 9, 96), "f4"), np.ones((9, 96), "f4")
    with load(with_code(assemble(text))) as m:
        for _ in range(2):
            with pytest.raises(KernelError, match=r"rows for \d+ outputs .*the program's sizes are wrong"):
                m.call([images, weight])
