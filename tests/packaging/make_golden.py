"""Write the golden files of the artifact's format: `make_golden.py`. Those of a release stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from shapevm.vm.layout import FORMAT_VERSION

import shapevm

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


def main() -> None:
    """Write format-N.svm and, with inputs and outputs, format-N.npz."""
    options = shapevm.Options(target="x86-64-v3", sizes=[{"rows": 2}])
    rows = torch.export.Dim("rows", min=1, max=64)
    with shapevm.compile(
        Model().eval(), (torch.zeros(2, 4),), dynamic_shapes=({0: rows},), options=options
    ) as exe:
        exe.save(FOLDER / f"format-{FORMAT_VERSION}.svm")
        arrays = {}
        for n in (1, 2, 5):
            x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
            y, best = exe.using("generic")(x)
            arrays |= {f"x{n}": x, f"y{n}": y, f"best{n}": best}
        np.savez_compressed(FOLDER / f"format-{FORMAT_VERSION}.npz", **arrays)


if __name__ == "__main__":
    main()
