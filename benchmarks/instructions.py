"""Instructions that fixed kernels take, counted by valgrind: regressions show without timing.

    python benchmarks/instructions.py [--update]

Each model runs in `shapevm-run` under callgrind, twice, with few and with many calls; the difference is what
a call takes. Code is for x86-64-v3, which valgrind knows. More than TOLERANCE above `instructions.json` fail;
`--update` writes the file again, to be committed with the reason.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import shapevm
from shapevm.runner import runner_path

TOLERANCE = 0.02
CALLS = (3, 13)
FILE = Path(__file__).with_suffix(".json")
Model = Callable[..., torch.Tensor]


class Wrapped(torch.nn.Module):
    """A function with weights as a module."""

    def __init__(self, function: Model, *weights: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, *self.weights)


def models() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Return what is counted: name -> (model, inputs)."""
    torch.manual_seed(0)
    r = torch.randn
    heads = (r(1, 12, 37, 32), r(1, 12, 37, 32), r(1, 12, 37, 32))
    return {
        "linear, gelu": (
            Wrapped(lambda x, w, b: F.gelu(F.linear(x, w, b)), r(768, 384), r(768)),
            (r(37, 384),),
        ),
        "matmul of two inputs": (Wrapped(torch.matmul), (r(37, 64), r(64, 100))),
        "attention": (Wrapped(F.scaled_dot_product_attention), heads),
        "layer norm": (Wrapped(lambda x, w, b: F.layer_norm(x, (384,), w, b), r(384), r(384)), (r(37, 384),)),
        "softmax": (Wrapped(lambda x: torch.softmax(x, -1)), (r(64, 197),)),
        "convolution 3x3": (
            Wrapped(lambda x, w: F.relu(F.conv2d(x, w, padding=1)), r(64, 64, 3, 3)),
            (r(1, 64, 14, 14),),
        ),
        "concatenation": (Wrapped(lambda a, b: torch.cat([a, b], 1)), (r(64, 100), r(64, 28))),
        "pointwise chain": (
            Wrapped(lambda x: torch.sigmoid(x) * torch.tanh(x) + torch.exp(-x)),
            (r(64, 197),),
        ),
        "sort": (Wrapped(lambda x: torch.sort(x)[0]), (r(16, 197),)),
    }


def count(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path) -> int:
    """Return the instructions that one call takes."""
    path = folder / "m.svm"
    with torch.no_grad():
        exe = shapevm.compile(model, inputs, options=shapevm.Options(target="x86-64-v3"), strategy="generic")
    exe.save(path)
    command = [str(runner_path()), str(path)]
    for row, x in zip(exe.machine.inputs, inputs, strict=True):
        np.save(folder / f"{row.name}.npy", x.numpy())
        command += ["--input", f"{row.name}={folder / row.name}.npy"]
    few, many = (instructions([*command, "--threads", "1", "--repeat", str(n)]) for n in CALLS)
    return (many - few) // (CALLS[1] - CALLS[0])


def instructions(command: list[str]) -> int:
    """Return the instructions of a process."""
    counted = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command]
    done = subprocess.run(counted, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{' '.join(command)} fails under valgrind: {done.stderr[-2000:]}")
    return int(found[1])


def main() -> int:
    """Count, compare or update; return the exit status."""
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: instructions are not counted")
        return 0
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, inputs) in models().items():
            found[name] = count(model, inputs, Path(folder))
    if "--update" in sys.argv:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    known = json.loads(FILE.read_text())
    worse = []
    for name, n in found.items():
        change = n / known[name] - 1
        print(f"{name:24} {n:12,} {change:+.2%}")
        if change > TOLERANCE:
            worse.append(name)
    if worse:
        print(
            f"more instructions than in {FILE.name}: {', '.join(worse)}; mend it, or --update with a reason"
        )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
