"""Write what the smoke test of a wheel compares: `make_artifact.py FOLDER [encoder] [TARGET ...]`.

`encoder`: MiniLM as well, with its real weights; targets: those that the artifact has code for.
"""

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


def write_encoder(folder: Path) -> None:
    """Write encoder.svm, ids.npy and embedding.npy."""
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    import encoder

    exe = shapevm.compile(**encoder.arguments())
    exe.save(folder / "encoder.svm")
    ids = np.array([101, 2759, 2088, 102])
    np.save(folder / "ids.npy", ids)
    embedding = exe.run({"input_ids": ids[None], "attention_mask": np.ones_like(ids)[None]})
    np.save(folder / "embedding.npy", next(iter(embedding.values())))


def main(folder: Path, targets: list[str]) -> None:
    """Write model.svm and, per length n, x_n.npy and y_n.npy."""
    torch.manual_seed(0)
    model = Model().eval()
    dims = {"x": {0: torch.export.Dim("n", min=1, max=4096)}}
    options = shapevm.Options(sizes=[{"n": LENGTHS[-1]}], buckets=BUCKETS, target=targets or None)
    exe = shapevm.compile(model, (torch.randn(3, 16),), dynamic_shapes=dims, options=options)
    exe.save(folder / "model.svm")
    for n in LENGTHS:
        x = torch.randn(n, 16)
        y = exe(x)
        torch.testing.assert_close(y, model(x))
        np.save(folder / f"x_{n}.npy", x.numpy())
        np.save(folder / f"y_{n}.npy", y.detach().numpy())


if __name__ == "__main__":
    place, *words = sys.argv[1:]
    main(Path(place), [word for word in words if word != "encoder"])
    if "encoder" in words:
        write_encoder(Path(place))
