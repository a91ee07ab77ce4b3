"""torchvision's classifiers on one image of two sizes, one core, beside other runtimes.

`--short`: the second size alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from measure import SHORT, Figure, interleaved, median, ratio
from peers import Item, Runner, check, contestants, missing
from vision import ROUNDS, make, vision

import shapevm

#: Options besides random weights.
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "alexnet": {}, "convnext_tiny": {}, "densenet121": {}, "efficientnet_b0": {},
    "googlenet": {"init_weights": False}, "mnasnet1_0": {}, "mobilenet_v2": {}, "mobilenet_v3_large": {},
    "regnet_y_400mf": {}, "resnet18": {}, "shufflenet_v2_x1_0": {}, "squeezenet1_1": {}, "vgg11": {},
}  # fmt: skip
SIDE = 224
SIDES = (160,) if SHORT else (SIDE, 160)


def classifiers(side: int) -> list[Figure]:
    """Each classifier on one image of `side` x `side`, against the best of the other runtimes."""
    found, gains = [], []
    for name, options in CLASSIFIERS.items():
        model, item = make(name, **options), {"x": torch.randn(1, 3, side, side)}
        exe = shapevm.compile(model, (item["x"],), strategy="jit")
        with contestants(model, exe, item, None, cold=True) as runners:
            runners["shapevm"] = lambda item, exe=exe: exe(item["x"])
            runners["eager"] = lambda item, model=model: model(item["x"])
            check(runners, item)
            label = f"{name} at {side} x {side}"
            figure, gain = against_the_best(label, runners, item)
        found.append(figure)
        gains.append(gain)
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    text = f"{mean:.2f}x; {min(gains):.2f}x"
    return [
        *found,
        Figure(f"classifiers at {side} x {side}: geometric mean; least", text, "1.35x; 1.05x"),
    ]


def against_the_best(
    name: str, runners: dict[str, Runner], item: Item, goal: str = "at least 1x"
) -> tuple[Figure, float]:
    """Return the figure of one classifier and how many times faster than the best runtime it is."""
    times = interleaved({label: lambda run=run: run(item) for label, run in runners.items()}, ROUNDS)
    peers = [label for label in times if label not in ("shapevm", "eager")] or ["eager"]
    best = min(peers, key=lambda label: median(times[label]))
    gain = ratio(times, best, "shapevm")
    text = ", ".join(f"{label} {median(found) * 1e3:.2f}" for label, found in times.items())
    return Figure(f"{name} (ms)", f"{text}: {gain:.2f}x the best", goal), gain


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        if not vision.is_installed():
            return [Figure("the classifiers", "torchvision is not installed")]
        return [*(figure for side in SIDES for figure in classifiers(side)), *missing()]
