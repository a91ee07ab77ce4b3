"""Kernels beside what bounds them: attention beside the FMA peak, what walks memory beside a copy of it.

Peak and copy are measured in turn with the kernels, in the same run. Operands of a memory-bound kernel take
MEGABYTES each, more than the caches hold; the copy is numpy's, which writes past the caches too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from kernels import Run, aligned, attention_spec, fma_peak, medians, prepare, random
from measure import Figure
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.spec import from_json
from shapevm.vm.reader import read
from torch.nn import functional as F

import shapevm

HEADS, HEAD_DIM = 12, 64
LENGTHS = (64, 128, 197, 256, 512, 1024, 2048)
WIDTHS = (768, 4096)
MEGABYTES = 64
ROUNDS = 9
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


def streams() -> list[Figure]:
    """Kernels that read an operand and write another, beside a copy."""
    found = []
    for width in WIDTHS:
        rows = (MEGABYTES << 20) // (4 * width)
        x, out, copy = (large(rows, width) for _ in range(3))
        runs: list[Run] = [lambda copy=copy, x=x: np.copyto(copy, x)]  # type: ignore[misc]
        runs += [prepare(kernel_of(function, rows, width), [x, out], ()) for function in FUNCTIONS.values()]
        stream, *times = medians(runs, ROUNDS)
        for name, seconds in zip(FUNCTIONS, times, strict=True):
            rate = (x.nbytes + out.nbytes) / seconds
            text = f"{rate / 1e9:.1f} GB/s, {stream / seconds:.0%} of a copy"
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
        top, seconds = medians([peak, prepare(kernel, [q, k, v, out, mask], (length,))], ROUNDS)
        rate, limit = 4.0 * HEADS * length * length * HEAD_DIM / seconds, peak_flops / top
        text = f"{rate / 1e9:.0f} GFLOP/s, {rate / limit:.0%} of the FMA peak"
        found.append(Figure(f"attention, {HEADS} heads of {HEAD_DIM}, length {length}", text, "at least 75%"))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    return [*attention(), *streams()]
