"""The sentence encoder MiniLM-L6 (BertModel) against PyTorch eager, in one process, in turn."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch
from measure import Figure, interleaved, median, percentile, ratio, seconds
from shapevm.jit.measure.roofline import fma_peak

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from encoder import dynamic_shapes, example_inputs, load_bert, random_inputs


def compile_bert(
    model: torch.nn.Module, strategy: str = "auto", options: shapevm.Options | None = None
) -> shapevm.Executable:
    """Return the compiled transformer."""
    given = {"kwargs": example_inputs(), "dynamic_shapes": dynamic_shapes(), "strategy": strategy}
    return shapevm.compile(model, **given, options=options)


def warm(exe: shapevm.Executable, item: dict[str, torch.Tensor]) -> None:
    """Call until the exact kernels of this shape are in."""
    for _ in range(4):
        exe(**item)
    exe.wait_until_specialised()


def accuracy(model: torch.nn.Module, exe: shapevm.Executable) -> list[Figure]:
    """The greatest difference to eager over every length, and over random batches with padding."""
    worst = 0.0
    lengths = [(1, length) for length in range(1, 513)]
    chooser = random.Random(1)
    pairs = [(chooser.randint(1, 32), chooser.randint(1, 512)) for _ in range(40)]
    for batch, length in lengths + pairs:
        item = random_inputs(batch, length, padded=batch > 1)
        expected, result = model(**item), exe(**item)
        for name in ("last_hidden_state", "pooler_output"):
            worst = max(worst, float((getattr(result, name) - getattr(expected, name)).abs().max()))
    return [
        Figure(
            "lengths 1 to 512 at batch 1 and 40 random (batch, length): max abs difference to eager",
            f"{worst:.1e}",
            "at most 2e-5",
        )
    ]


def warm_latency(model: torch.nn.Module, exe: shapevm.Executable) -> list[Figure]:
    """Warm calls at four lengths."""
    figures = []
    for length in (16, 64, 128, 256):
        item = random_inputs(1, length)
        warm(exe, item)
        times = interleaved(
            {"shapevm": lambda item=item: exe(**item), "eager": lambda item=item: model(**item)}, rounds=21
        )
        ours, theirs, gain = (
            median(times["shapevm"]) * 1e3,
            median(times["eager"]) * 1e3,
            ratio(times, "eager", "shapevm"),
        )
        share = flops(length) / (ours * 1e-3) / peak_flops()
        figures.append(
            Figure(
                f"warm call at length {length}: shapevm, eager (ms); share of the FMA peak",
                f"{ours:.2f}, {theirs:.2f}: {gain:.2f}x faster; {share:.0%}",
                "at least 1.8x",
            )
        )
    return figures


def flops(length: int) -> float:
    """Return the floating-point operations of the encoder's matrix products at batch 1."""
    hidden, inner, layers = 384, 1536, 6
    return layers * (2.0 * length * (4 * hidden**2 + 2 * hidden * inner) + 4.0 * length**2 * hidden)


def peak_flops() -> float:
    """Return this core's f32 FMA operations per second, measured now."""
    run, work = fma_peak()
    return work / median([seconds(run) for _ in range(5)])


def first_calls(model: torch.nn.Module) -> list[Figure]:
    """The first call at a length never seen, against the warm call at that length."""
    exe = compile_bert(model)
    exe(**random_inputs(1, 200))
    ratios = []
    lengths = random.Random(2).sample([n for n in range(1, 513) if n != 200], 100)
    for length in lengths:
        item = random_inputs(1, length)
        first = seconds(lambda item=item: exe(**item))
        warm(exe, item)
        ratios.append(first / median([seconds(lambda item=item: exe(**item)) for _ in range(5)]))
    text = f"{median(ratios):.2f} (p99 {percentile(ratios, 0.99):.2f})"
    return [Figure("first call at a length never seen / warm call, median of 100 lengths", text, "at most 2")]


def sentence_lengths(n: int) -> list[int]:
    """Return the lengths of `n` sentences, the same at every call."""
    chooser = random.Random(3)
    return [min(512, max(1, int(chooser.lognormvariate(4.0, 0.8)))) for _ in range(n)]


def cold_stream(model: torch.nn.Module) -> list[Figure]:
    """200 sentences of random length, nothing compiled for any length before."""
    items = [random_inputs(1, length) for length in sentence_lengths(200)]
    with shapevm.settings.scope(cache=False):
        exe = compile_bert(model)
        ours = seconds(lambda: [exe(**item) for item in items])
    theirs = seconds(lambda: [model(**item) for item in items])
    distinct = len({item["input_ids"].shape[1] for item in items})
    text = f"{ours:.2f} s against {theirs:.2f} s: {theirs / ours:.2f}x faster"
    return [
        Figure(
            f"200 sentences of random length ({distinct} distinct) from a cold cache, against eager",
            text,
            "faster",
        )
    ]


def figures() -> list[Figure]:
    """Return all figures of the encoder, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    model = load_bert()
    with torch.inference_mode():
        exe = compile_bert(model)
        return [*accuracy(model, exe), *warm_latency(model, exe), *first_calls(model), *cold_stream(model)]
