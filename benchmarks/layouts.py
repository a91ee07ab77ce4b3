"""Layout changes of images, NCHW to NHWC and back, beside a copy of as many bytes (one core).

    python benchmarks/layouts.py

A copy is numpy's. Blocks ask for the lines of the next ones or not, as this machine is measured. Image and
result are the same memory in every call, so small ones are in a cache, as they are in a model behind the
layer that made them.
"""

from __future__ import annotations

import numpy as np
from kernels import Run, aligned, medians, prepare
from measure import Figure
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.tile_choice import TileChoice
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure import streams
from shapevm.jit.tuning import preferred_schedule

IMAGES = [
    (3, 224),
    (32, 112),
    (96, 56),
    (64, 56),
    (256, 56),
    (128, 28),
    (512, 28),
    (256, 14),
    (1024, 14),
    (512, 7),
]
ROUNDS = 15


def permutation(rows: int, columns: int, dtype: str = "f32") -> s.Nest:
    """y[j, i] = x[i, j] for x of [rows, columns]."""
    buffers = (s.Buffer(dtype, (rows, columns)), s.Buffer(dtype, (columns, rows), is_output=True))
    i, j = s.Index(loop=0), s.Index(loop=1)
    body = (
        s.Instr("load", dtype, buffer=0, index=(j, i)),
        s.Instr("store", dtype, (0,), buffer=1, index=(i, j)),
    )
    return s.Nest(0, buffers, (columns, rows), body)


def prepared(rows: int, columns: int, measured: TileChoice) -> tuple[Run, Run]:
    """Return a call of the kernel and a copy of as many bytes, between the same arrays."""
    spec = permutation(rows, columns)
    schedule = preferred_schedule(spec, (), host_target(), measured)
    x = aligned(np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32))
    y = aligned(np.zeros((columns, rows), np.float32))
    run = prepare(Kernel(compile_kernel(spec, (), schedule=schedule)), [x, y], ())
    run()
    assert (y == x.T).all()
    target = y.reshape(rows, columns)
    return run, lambda: np.copyto(target, x)


def figures() -> list[Figure]:
    """Return the share of a copy's speed for each image and way."""
    found, measured = [], streams.measure(host_target())
    for channels, side in IMAGES:
        for name, sizes in (("NCHW to NHWC", (channels, side**2)), ("NHWC to NCHW", (side**2, channels))):
            time, copy = medians(prepared(*sizes, measured), ROUNDS)
            text = f"{time * 1e6:.1f}, {copy * 1e6:.1f}: {copy / time:.0%} of a copy"
            found.append(
                Figure(f"{channels} x {side} x {side}, {name}: shapevm, copy (us)", text, "at least 85%")
            )
    return found


if __name__ == "__main__":
    for figure in figures():
        print(figure.what, figure.figure)
