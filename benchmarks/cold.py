"""Sizes that come once: each contestant from a fresh start, one core, everybody's preparation apart.

shapevm compiles exact kernels in the background meanwhile, or runs code for any size, as `auto` decides.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from measure import Figure, seconds
from peers import Item, contestants, missing
from sentences import compile_bert, dynamic_shapes, example_inputs, load_bert, random_inputs, sentence_lengths
from vision import make, vision

import shapevm

N_SENTENCES, N_IMAGES = 200, 27
SIDES = (5, 10)  # of an image, in steps of 32


def compared(what: str, runners: dict[str, Any], items: Sequence[Item]) -> Figure:
    """Return how long each contestant takes for all items."""
    totals = {}
    for name, run in runners.items():
        totals[name] = seconds(lambda run=run: [run(item) for item in items])
        gc.collect()
    best = min((name for name in totals if name != "shapevm"), key=lambda name: totals[name])
    text = ", ".join(f"{name} {total:.2f}" for name, total in totals.items())
    gain = totals[best] / totals["shapevm"]
    return Figure(f"{what}, cold (s)", f"{text}: {gain:.2f}x the best", "at least 1.25x")


def sentences() -> Figure:
    """N_SENTENCES sentences of random length."""
    model = load_bert()
    items = [random_inputs(1, length) for length in sentence_lengths(N_SENTENCES)]
    with contestants(model, compile_bert(model), example_inputs(), dynamic_shapes(), cold=True) as runners:
        return compared(f"{N_SENTENCES} sentences of random length", runners, items)


def images() -> Figure:
    """ResNet-50 on images of N_IMAGES sizes, each once."""
    model, (least, most) = make("resnet50"), SIDES
    height, width = (torch.export.Dim(name, min=least, max=most) for name in ("height", "width"))
    shapes = {"x": {2: 32 * height, 3: 32 * width}}
    sizes = list(product(range(least, most + 1), repeat=2))
    chosen = random.Random(0).sample(sizes, N_IMAGES)
    items = [{"x": torch.randn(1, 3, 32 * h, 32 * w)} for h, w in chosen]
    example = {"x": torch.randn(1, 3, 192, 224)}
    exe = shapevm.compile(model, kwargs=example, dynamic_shapes=shapes)
    with contestants(model, exe, example, shapes, cold=True) as runners:
        return compared(f"ResNet-50 on images of {N_IMAGES} sizes", runners, items)


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode(), shapevm.settings.scope(cache=False):
        return [sentences(), *([images()] if vision.is_installed() else []), *missing()]
