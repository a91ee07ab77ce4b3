"""Products of activations with a constant weight, x @ w + bias: both tiers beside the FMA peak, and a call
beside other runtimes.

Weights are used again at once: the small ones lie in a cache, as in a network of few layers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from kernels import linear_spec, prepare, random
from measure import Figure, Run, median, ratio
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.measure.roofline import fma_peak
from small import Named, contestants, in_rounds

import shapevm

ROWS = (16, 37, 64, 197, 256, 512, 2048)
WEIGHTS = ((256, 256), (768, 768), (768, 3072), (3072, 768), (1031, 517), (4096, 4096))  # (K, N)
MUCH = 1 << 34  # multiply-adds of a call: larger ones take minutes and tell nothing new
ROUNDS = 11
EXACT, GENERIC, GAIN = 0.90, 0.85, 1.0  # the goals: shares of the peak, times the best peer


def kernels(m: int, k: int, n: int) -> dict[str, Run]:
    """Return the kernels of one product alone, for these rows and for any."""
    spec = linear_spec(k, n, "matmul")
    buffers = [random(m, k), pack_panels(random(k, n)), random(m, n), random(n)]
    return {
        name: prepare(Kernel(compile_kernel(spec, dims)), buffers, (m,))
        for name, dims in (("exact", (m,)), ("generic", None))
    }


def product(m: int, k: int, n: int, folder: Path) -> Figure:
    """Measure one product."""
    peak, peak_flops = fma_peak()
    peers = contestants(Named(torch.nn.Linear(k, n).eval()), torch.randn(m, k), folder, None)
    times = in_rounds({"peak": peak, **kernels(m, k, n), **peers}, ROUNDS)
    flops = 2.0 * m * k * n / peak_flops
    shares = {name: flops * ratio(times, "peak", name) for name in ("exact", "generic")}
    best = min((name for name in peers if name != "shapevm"), key=lambda name: median(times[name]))
    gain = ratio(times, best, "shapevm")
    text = ", ".join(f"{name} {median(times[name]) * 1e6:.0f}" for name in peers)
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    figure = f"{parts} of the peak; {text} us: {gain:.2f}x the best"
    goal = f"exact {EXACT:.0%}, generic {GENERIC:.0%}, {GAIN:.0f}x"
    return Figure(f"{m} x {k} x {n}", figure, goal)


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    sizes = [(m, k, n) for k, n in WEIGHTS for m in ROWS if m * k * n <= MUCH]
    with torch.inference_mode(), tempfile.TemporaryDirectory() as name:
        return [product(*size, folder=Path(name)) for size in sizes]
