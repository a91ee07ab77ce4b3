"""Write the artifact and the results that the smoke test of the wheel compares: `make_artifact.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import shapevm

#: Lengths of the input. The artifact carries exact kernels for the last one, a bucket's for the one before.
LENGTHS = (1, 5, 8)
BUCKETS = {"n": [(2, 7), "round 64 to 512"]}


class Model(torch.nn.Module):
    """A matmul, a row-wise and a pointwise operation. x: f32[n, 16] -> f32[n, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.gelu(self.linear(x)), dim=-1)


def main(folder: Path) -> None:
    """Write model.svm and, per length n, x_n.npy and y_n.npy."""
    torch.manual_seed(0)
    model = Model().eval()
    dims = {"x": {0: torch.export.Dim("n", min=1, max=4096)}}
    options = shapevm.Options(sizes=[{"n": LENGTHS[-1]}], buckets=BUCKETS)
    exe = shapevm.compile(model, (torch.randn(3, 16),), dynamic_shapes=dims, options=options)
    exe.save(folder / "model.svm")
    for n in LENGTHS:
        x = torch.randn(n, 16)
        y = exe(x)
        torch.testing.assert_close(y, model(x))
        np.save(folder / f"x_{n}.npy", x.numpy())
        np.save(folder / f"y_{n}.npy", y.detach().numpy())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
