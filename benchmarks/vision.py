"""Images on one core: ResNet-50 of any batch and side, and its layers.

torch.compile is left out: it compiles for minutes here, and its convolutions are eager's.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import torch
from convolutions import GROUPED, LAYERS, OTHERS, candidates, measure
from layer_peers import measure_peers
from measure import Figure
from peers import check, compared, contestants, missing
from sentences import warm

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from models import vision

IMAGES = ((1, 224), (1, 160), (1, 288), (4, 192))
ROUNDS = 15


def make(name: str, **options: Any) -> torch.nn.Module:
    """Return one of torchvision's classifiers with random weights; a head of zeros would hide every error."""
    torch.manual_seed(0)
    model = vision.make(name, weights=None, **options)().eval()
    for weight in model.parameters():
        if weight.dim() > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)
    return model


def resnet50() -> list[Figure]:
    """ResNet-50, batch and side dynamic."""
    model = make("resnet50")
    batch, half = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("half", min=5, max=10)
    shapes = {"x": {0: batch, 2: 32 * half, 3: 32 * half}}
    example = {"x": torch.randn(2, 3, 192, 192)}
    exe = shapevm.compile(model, kwargs=example, dynamic_shapes=shapes)
    found = []
    with contestants(model, exe, example, shapes, cold=True) as runners:
        check(runners, example)
        for n, side in IMAGES:
            item = {"x": torch.randn(n, 3, side, side)}
            warm(exe, item)
            found.append(compared(f"ResNet-50 at {n} x {side} x {side}", runners, item, rounds=ROUNDS))
    return found


def layers() -> list[Figure]:
    """ResNet-50's layers beside PyTorch's channels-last ones; those in groups."""
    rows = list(measure(LAYERS, 1, ROUNDS))
    ours, torchs, peak = (
        sum(row.layer[-1] * getattr(row, name) for row in rows) for name in ("ours", "torch", "peak")
    )
    worst = min(rows, key=lambda row: row.torch / row.ours)
    share = (
        f"{ours * 1e3:.1f}, {torchs * 1e3:.1f}; {peak / ours:.0%} of the FMA peak by the definition's flops"
    )
    least = f"{worst.torch / worst.ours:.2f}x ({name_of(worst.layer)})"
    return [
        Figure("all convolutions of ResNet-50: shapevm, PyTorch (ms)", share, "at least 85%"),
        Figure("of these the one that gains least against PyTorch", least, "at least 1x"),
        *(
            Figure(
                f"{name_of(row.layer)}: shapevm, PyTorch (us)",
                f"{row.ours * 1e6:.0f}, {row.torch * 1e6:.0f}: {row.torch / row.ours:.2f}x",
                "at least 1.5x",
            )
            for row in measure(GROUPED, 1, ROUNDS)
        ),
    ]


def against_peers() -> list[Figure]:
    """Each of ResNet-50's layers beside the same node of other runtimes, those in groups and of other
    networks."""
    found, gains = [], []
    for layer in (*LAYERS, *GROUPED, *OTHERS):
        (ours, theirs), *_ = candidates(1, layer)
        times = measure_peers(layer, {"shapevm": ours, "PyTorch": theirs}, ROUNDS)
        gains.append(min(time for name, time in times.items() if name != "shapevm") / times["shapevm"])
        text = ", ".join(f"{name} {time * 1e6:.0f}" for name, time in times.items())
        found.append(Figure(f"{name_of(layer)} (us)", f"{text}: {gains[-1]:.2f}x the best", "at least 1x"))
    n_as_fast = sum(gain >= 1 for gain in gains)
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    text = f"{n_as_fast} of {len(gains)}; least {min(gains):.2f}x, geometric mean {mean:.2f}x"
    goal = "all; least 0.97x, mean 1.25x"
    return [*found, Figure("layers at least as fast as the best of the others", text, goal)]


def name_of(layer: tuple[int, ...]) -> str:
    """Return a layer's name."""
    side, c, f, kernel, stride, groups, *_ = layer
    return f"{side}^2 {c}->{f} {kernel}x{kernel}/{stride}" + (f" in {groups} groups" if groups > 1 else "")


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        if not vision.is_installed():
            return [*layers(), *against_peers(), Figure("ResNet-50", "torchvision is not installed")]
        return [*resnet50(), *layers(), *against_peers(), *missing()]
