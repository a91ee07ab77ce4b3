"""What `Options(bits="portable")` costs: calls of the same model with and without it, in turns, one thread.

    python benchmarks/portable.py [--turns 40]

Prints the least and the median processor time of both, and the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch
from shapevm.vm.host import set_threads

import shapevm

sys.path.insert(0, str(Path(__file__).parent.parent))


def minilm(length: int) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
    """Return arguments of `shapevm.compile` for MiniLM, and a call's."""
    from examples.encoder import arguments

    given = arguments()
    ids = torch.randint(1000, 30000, (1, length))
    return given, (ids, torch.ones_like(ids))


def resnet(side: int) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
    """Return the same for ResNet-50."""
    from tests.models.vision import torchvision

    image = torch.randn(1, 3, side, side)
    return {"model": torchvision().models.resnet50().eval(), "args": (image,)}, (image,)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    turns = parser.parse_args().turns
    set_threads(1)
    cases = {f"MiniLM, {n} tokens": (minilm, n) for n in (16, 64, 128, 256)} | {"ResNet-50": (resnet, 224)}
    for name, (make, size) in cases.items():
        given, inputs = make(size)
        exes = [
            shapevm.compile(**given, options=shapevm.Options(bits=bits), strategy="jit")
            for bits in ("target", "portable")
        ]
        times: list[list[float]] = [[], []]
        for _ in range(turns + 3):
            for exe, of in zip(exes, times, strict=True):
                start = process_time()
                exe(*inputs)
                of.append(process_time() - start)
        target, portable = (of[3:] for of in times)
        ratio = median(b / a for a, b in zip(target, portable, strict=True))
        least, most = (f"{1e3 * min(of):.2f}, {1e3 * median(of):.2f}" for of in (target, portable))
        print(f"{name}: ms (least, median) {least}; portable {most}; paired {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
