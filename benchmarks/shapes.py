"""A million distinct shapes: what does not grow, and what one more shape costs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from measure import Figure

import shapevm
from shapevm.promises.stress import Flat, many_shapes

N_SHAPES = 1_000_000
CODE_BYTES = 64 << 20  # the default cap
GREATEST = 1024  # of each size


class Rows(torch.nn.Module):
    """A row reduction and pointwise work over two sizes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: f32[n, m]."""
        h = torch.softmax(x, -1) * 2 + x
        return h, h.sum(-1)


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    n, m = (torch.export.Dim(name, min=1, max=GREATEST) for name in "nm")
    options = {"dynamic_shapes": ({0: n, 1: m},), "strategy": "generic"}
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder, "rows.svm")
        with shapevm.compile(Rows(), (torch.randn(3, 5),), **options) as exe:
            exe.save(artifact)
        flat = many_shapes(artifact, N_SHAPES, CODE_BYTES)
    return report(flat)


def report(flat: Flat) -> list[Figure]:
    """Return what a run has shown."""
    early, late = flat.call_seconds
    return [
        Figure(
            f"{flat.shapes:,} distinct 2-d shapes, {CODE_BYTES >> 20} MiB for code: growth of resident "
            "memory after warm-up", f"{flat.growth:+.1%}", "at most 5 %",
        ),
        Figure(
            "a call at a new shape from Python, warm-up over; at the end",
            f"{early * 1e6:.0f}; {late * 1e6:.0f} us", "flat",
        ),
        Figure(
            "kernels compiled; evicted; results of exact code with other bits than generic code's",
            f"{flat.compiled:,}; {flat.evicted:,}; {flat.wrong}", "0 wrong",
        ),
    ]  # fmt: skip
