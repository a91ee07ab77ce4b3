"""How long one exact kernel of the encoder takes to compile: LLVM text, parsing, code, linking."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from measure import Figure, median, percentile

import shapevm

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from encoder import dynamic_shapes, example_inputs, load_bert


def figures() -> list[Figure]:
    """Compile every kernel of the encoder for 12 shapes; return the figures."""
    sizes = [
        {"batch": b, "length": n}
        for b, n in (
            (1, 1),
            (1, 5),
            (1, 16),
            (1, 37),
            (1, 64),
            (1, 128),
            (1, 197),
            (1, 512),
            (2, 33),
            (4, 61),
            (8, 128),
            (32, 17),
        )
    ]
    with shapevm.settings.scope(cache=False, strategy="generic"):
        seconds = kernel_seconds(sizes)
    text = f"{median(seconds) * 1e3:.1f} / {percentile(seconds, 0.99) * 1e3:.1f} ms ({len(seconds)} kernels)"
    return [Figure("one exact kernel, median / p99", text, "at most 6 / 40 ms")]


def kernel_seconds(sizes: list[dict[str, int]]) -> list[float]:
    """Return the seconds of each kernel's compilation."""
    from shapevm.build import exact_dims, import_model, run_passes
    from shapevm.specialise import open_store

    with torch.no_grad():
        graph = import_model(load_bert(), (), example_inputs(), dynamic_shapes())
    run_passes(graph)
    store = open_store()
    for spec, dims in exact_dims(graph, sizes).items():
        for values in dims:
            store.record(spec, values)
    return list(store.stats.seconds)
