"""Two cores against one: whole models, beside what the machine itself gives to two loops at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from measure import Figure, Run, median, seconds
from sentences import compile_bert, load_bert, random_inputs, warm
from shapevm.jit.measure.roofline import fma_peak
from vision import make

import shapevm

ROUNDS = 40
COPY_BYTES = 64 << 20
TRIPS = 5  # of the loop of multiply-adds, some 1.5 ms each
LENGTH, SIDE = 128, 224


def encoder() -> Run:
    """Return a warm call of the sentence encoder."""
    exe = compile_bert(load_bert())
    item = random_inputs(1, LENGTH)
    warm(exe, item)
    return lambda: exe(**item)


def resnet50() -> Run:
    """Return a warm call of ResNet-50."""
    item = {"x": torch.randn(1, 3, SIDE, SIDE)}
    exe = shapevm.compile(make("resnet50"), kwargs=item)
    warm(exe, item)
    return lambda: exe(**item)


def model_gain(call: Run) -> float:
    """Return how many times as fast `call` is with two threads as with one, in turn."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for threads, found in times.items():
            shapevm.set_threads(threads)
            call()
            found.append(seconds(call))
    return median([one / two for one, two in zip(times[1], times[2], strict=True)])


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy by a process that stays on it."""
    core = max(os.sched_getaffinity(0))
    program = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def machine_gain(runs: Sequence[Run]) -> float:
    """Return how much more the machine does with each of `runs` in a thread than with one of them alone."""
    with ThreadPoolExecutor(len(runs)) as pool:

        def together() -> None:
            for waiting in [pool.submit(run) for run in runs]:
                waiting.result()

        gains = []
        for _ in range(ROUNDS):
            alone = seconds(runs[0])
            gains.append(len(runs) * alone / seconds(together))
    return median(gains)


def multiply_adds() -> Run:
    """Return a loop in registers, without memory."""
    once, _ = fma_peak()

    def run() -> None:
        for _ in range(TRIPS):
            once()

    return run


def copy() -> Run:
    """Return a copy of an array far larger than the caches."""
    source, to = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return lambda: np.copyto(to, source)


def figures() -> list[Figure]:
    """Return all figures."""
    torch.set_num_threads(1)
    models = {
        f"the sentence encoder, length {LENGTH}": encoder(),
        f"ResNet-50, 1 x {SIDE} x {SIDE}": resnet50(),
    }
    loops = {"multiply-adds in registers": multiply_adds, "copies of 64 MB": copy}
    with torch.inference_mode():
        found = [Figure(name, f"{model_gain(call):.2f}", "at least 1.85") for name, call in models.items()]
        with busy_core():
            for name, call in models.items():
                label = f"{name}, beside a process that keeps one core busy"
                found.append(Figure(label, f"{model_gain(call):.2f}", "at least 1.0"))
    for name, make_loop in loops.items():
        gain = machine_gain([make_loop(), make_loop()])
        found.append(Figure(f"the machine's own: {name}, two loops at once", f"{gain:.2f}"))
    return found
