"""Write the newest of the golden files of the artifact's format: `make_golden.py`. Older ones stay as they
are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import shapevm
from shapevm import nn

FOLDER = Path(__file__).parent / "golden"


class Model(torch.nn.Module):
    """A product, a row-wise operation and a search. x: f32[rows, 4] -> f32[rows, 3], i64[rows]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).reshape(3, 4) / 10 - 0.5)
            self.linear.bias.copy_(torch.tensor([0.5, 0.25, 0.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.softmax(self.linear(x), dim=-1)
        return y, y.argmax(-1)


class Total(nn.Module):
    """Two functions over one state: `forward` adds x: f32[2, n] into columns, `scaled` reads them."""

    def __init__(self) -> None:
        self.total = nn.Buffer((2, 3), in_place=True)

    def forward(self, x: Any, positions: Any) -> nn.Tensor:
        self.total.update(nn.index_copy(self.total, 1, positions, x))
        return self.total + 0.0

    def scaled(self, scale: Any) -> nn.Tensor:
        return self.total * scale


def functions() -> None:
    """Write format-5.svm and, with inputs and outputs, format-5.npz: several functions."""
    options = shapevm.Options(target="x86-64-v3")
    inputs = {"x": (2, "n"), "positions": (("n",), "i64")}
    with nn.compile(Total(), inputs, functions={"scaled": {"scale": (1,)}}, options=options) as exe:
        exe.save(FOLDER / "format-5.svm")
        x, scale = np.array([[1, 2], [3, 4]], np.float32), np.array([2.5], np.float32)
        y, scaled = exe(x, np.array([2, 0])), exe.call("scaled", scale)
        np.savez_compressed(FOLDER / "format-5.npz", x=x, scale=scale, y=y, scaled=scaled)


def one_function() -> None:
    """Write format-4.svm and, with inputs and outputs, format-4.npz: what has main alone."""
    options = shapevm.Options(target="x86-64-v3", sizes=[{"rows": 2}])
    rows = torch.export.Dim("rows", min=1, max=64)
    with shapevm.compile(
        Model().eval(), (torch.zeros(2, 4),), dynamic_shapes=({0: rows},), options=options
    ) as exe:
        exe.save(FOLDER / "format-4.svm")
        arrays = {}
        for n in (1, 2, 5):
            x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
            y, best = exe.using("generic")(x)
            arrays |= {f"x{n}": x, f"y{n}": y, f"best{n}": best}
        np.savez_compressed(FOLDER / "format-4.npz", **arrays)


if __name__ == "__main__":
    functions()
