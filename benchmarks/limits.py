"""Kernels beside what bounds them: attention beside the FMA peak, what walks memory beside a copy of it.

Peak and copy are measured in turn with each kernel, and the share is the median over the turns: both limits
change by the minute on a machine shared with others. Operands of a memory-bound kernel take MEGABYTES each,
more than the caches hold; the copy is numpy's, which writes past the caches too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from kernels import aligned, attention_spec, prepare, random
from measure import Figure, Run, median, seconds
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.measure.roofline import fma_peak
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read
from torch.nn import functional as F

import shapevm

HEADS, HEAD_DIM = 12, 64
LENGTHS = (64, 128, 197, 256, 512, 1024, 2048)
WIDTHS = (768, 4096)
MEGABYTES = 64
ROUNDS, SECONDS = 9, 0.01  # of every figure; of a kernel or its limit in one round
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy": torch.clone,
    "gelu": F.gelu,
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
}


class Pointwise(torch.nn.Module):
    """A function of a tensor as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def kernel_of(function: Callable[[torch.Tensor], torch.Tensor], rows: int, width: int) -> Kernel:
    """Return the one kernel that `function` on [rows, width] is compiled to, for these sizes."""
    exe = shapevm.compile(Pointwise(function), (torch.zeros(rows, width),), strategy="generic")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function.svm"
        exe.save(path)
        (kernel,) = read(path).kernels
    return Kernel(compile_kernel(from_json(kernel.spec), ()))


def large(rows: int, width: int) -> np.ndarray:
    """Return memory of MEGABYTES in use."""
    row = np.random.default_rng(0).standard_normal(width).astype(np.float32)
    return aligned(np.broadcast_to(row, (rows, width)))


def beside(limit: Run, run: Run) -> tuple[float, list[float]]:
    """Return the median seconds of `run`, and by round those of `limit` over them."""
    repeats = {one: max(1, int(SECONDS / min(seconds(one) for _ in range(3)))) for one in (limit, run)}
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for one, found in zip((limit, run), times, strict=True):
            calls = range(repeats[one])
            found.append(seconds(lambda one=one, calls=calls: [one() for _ in calls]) / len(calls))
    return median(times[1]), [top / time for top, time in zip(*times, strict=True)]


def streams() -> list[Figure]:
    """Kernels that read an operand and write another, beside a copy."""
    found = []
    for width in WIDTHS:
        rows = (MEGABYTES << 20) // (4 * width)
        x, out, target = (large(rows, width) for _ in range(3))
        for name, function in FUNCTIONS.items():
            run = prepare(kernel_of(function, rows, width), [x, out], ())
            time, shares = beside(lambda target=target, x=x: np.copyto(target, x), run)
            text = f"{2 * x.nbytes / time / 1e9:.1f} GB/s, {median(shares):.0%} of a copy"
            found.append(Figure(f"{name} of rows of {width}, {MEGABYTES} MB", text, "at least 85%"))
    return found


def attention() -> list[Figure]:
    """Attention with a mask, beside the FMA peak."""
    peak, peak_flops = fma_peak()
    spec, found = attention_spec(HEADS, HEAD_DIM), []
    for length in LENGTHS:
        q, k, v, out = (random(length, HEADS, HEAD_DIM) for _ in range(4))
        mask = aligned(np.zeros(length, np.float32))
        kernel = Kernel(compile_kernel(spec, (length,)))
        time, ratios = beside(peak, prepare(kernel, [q, k, v, out, mask], (length,)))
        flops = 4.0 * HEADS * length * length * HEAD_DIM
        shares = [flops / peak_flops * ratio for ratio in ratios]
        text = f"{flops / time / 1e9:.0f} GFLOP/s, {median(shares):.0%} of the FMA peak"
        found.append(Figure(f"attention, {HEADS} heads of {HEAD_DIM}, length {length}", text, "at least 75%"))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    return [*attention(), *streams()]
