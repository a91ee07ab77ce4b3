"""Images on one core: ResNet-50 of any batch and side, its layers, and torchvision's classifiers.

torch.compile is left out: it compiles for minutes here, and its convolutions are eager's.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import torch
from convolutions import GROUPED, LAYERS, Measured, measure
from measure import Figure, interleaved, median, ratio
from peers import Item, Runner, check, compared, contestants, missing
from sentences import warm

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from models import vision

IMAGES = ((1, 224), (1, 160), (1, 288), (4, 192))
#: Options besides random weights.
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "alexnet": {}, "convnext_tiny": {}, "densenet121": {}, "efficientnet_b0": {},
    "googlenet": {"init_weights": False}, "mnasnet1_0": {}, "mobilenet_v2": {}, "mobilenet_v3_large": {},
    "regnet_y_400mf": {}, "resnet18": {}, "shufflenet_v2_x1_0": {}, "squeezenet1_1": {}, "vgg11": {},
}  # fmt: skip
SIDE = 224
ROUNDS = 15


def make(name: str, **options: Any) -> torch.nn.Module:
    """Return one of torchvision's classifiers with random weights."""
    torch.manual_seed(0)
    return vision.make(name, weights=None, **options)().eval()


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
    least = f"{worst.torch / worst.ours:.2f}x ({name_of(worst)})"
    return [
        Figure("all convolutions of ResNet-50: shapevm, PyTorch (ms)", share, "at least 85%"),
        Figure("of these the one that gains least against PyTorch", least, "at least 1x"),
        *(
            Figure(
                f"{name_of(row)} in {row.layer[5]} groups: shapevm, PyTorch (us)",
                f"{row.ours * 1e6:.0f}, {row.torch * 1e6:.0f}: {row.torch / row.ours:.2f}x",
                "at least 1.5x",
            )
            for row in measure(GROUPED, 1, ROUNDS)
        ),
    ]


def name_of(row: Measured) -> str:
    """Return a layer's name."""
    side, c, f, kernel, stride, *_ = row.layer
    return f"{side}^2 {c}->{f} {kernel}x{kernel}/{stride}"


def classifiers() -> list[Figure]:
    """Each classifier on one image of 224 x 224, against the best of the other runtimes."""
    found, gains = [], []
    for name, options in CLASSIFIERS.items():
        model, item = make(name, **options), {"x": torch.randn(1, 3, SIDE, SIDE)}
        exe = shapevm.compile(model, (item["x"],), strategy="jit")
        with contestants(model, exe, item, None, cold=True) as runners:
            runners["shapevm"] = lambda item, exe=exe: exe(item["x"])
            runners["eager"] = lambda item, model=model: model(item["x"])
            check(runners, item)
            figure, gain = against_the_best(name, runners, item)
        found.append(figure)
        gains.append(gain)
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    return [
        *found,
        Figure("classifiers: geometric mean; least", f"{mean:.2f}x; {min(gains):.2f}x", "1.2x; 1x"),
    ]


def against_the_best(name: str, runners: dict[str, Runner], item: Item) -> tuple[Figure, float]:
    """Return the figure of one classifier and how many times faster than the best runtime it is."""
    times = interleaved({label: lambda run=run: run(item) for label, run in runners.items()}, ROUNDS)
    peers = [label for label in times if label not in ("shapevm", "eager")] or ["eager"]
    best = min(peers, key=lambda label: median(times[label]))
    gain = ratio(times, best, "shapevm")
    text = ", ".join(f"{label} {median(found) * 1e3:.2f}" for label, found in times.items())
    return Figure(f"{name} (ms)", f"{text}: {gain:.2f}x the best", "at least 1x"), gain


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        if not vision.is_installed():
            return [*layers(), Figure("ResNet-50 and the classifiers", "torchvision is not installed")]
        return [*resnet50(), *layers(), *classifiers(), *missing()]
