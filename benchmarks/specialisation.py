"""Specialisation: a second process, a baked table in the runner, many shapes, tuning."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from measure import Figure, median

import shapevm

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from encoder import SentenceEncoder, dynamic_shapes, example_inputs

LENGTHS = range(8, 129)
N_SENTENCES = 400
BUDGET = 2_000_000  # bytes of code
N_SHAPES = 100_000
N_TURNS = 5

SECOND = """
import sys, time
import numpy as np, shapevm
shapevm.set_threads(1)
with shapevm.load(sys.argv[1], strategy="auto") as exe:
    first, warm = [], []
    for length in map(int, sys.argv[2].split(",")):
        ids = np.ones((1, length), np.int64)
        call = lambda: exe.run({"input_ids": ids, "attention_mask": ids})
        if not first:  # the weights are read
            exe.run({"input_ids": ids[:, :1], "attention_mask": ids[:, :1]})
        for times, n in ((first, 1), (warm, 9)):
            runs = []
            for _ in range(n):
                start = time.perf_counter()
                call()
                runs.append(time.perf_counter() - start)
            times.append(sorted(runs)[len(runs) // 2])
            for _ in range(3):
                call()
            exe.wait_until_specialised()
    print(exe.stats().compiled, sum(first) / sum(warm))
"""


def zipf_lengths() -> list[int]:
    """Return the lengths of a stream of sentences, a few of them often, the same at every call."""
    rng, lengths = random.Random(0), list(LENGTHS)
    rng.shuffle(lengths)
    return rng.choices(lengths, [1 / (rank + 1) for rank in range(len(lengths))], k=N_SENTENCES)


def second_process(artifact: Path, folder: Path) -> Figure:
    """A process with the shapes of one before it, whose kernels are on disk."""
    lengths = ",".join(map(str, sorted(set(zipf_lengths()))[:12]))
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", SECOND, str(artifact), lengths]
    for _ in range(2):
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    compiled, ratio = done.stdout.split()
    return Figure(
        "a second process with the shapes of the first: kernels compiled; first call / warm call",
        f"{compiled}; {float(ratio):.2f}", "0; at most 1.3",
    )  # fmt: skip


def runner_ms(artifact: Path, folder: Path, length: int) -> float:
    """Return the median milliseconds of a call in the runner."""
    np.save(folder / "ids.npy", np.ones((1, length), np.int64))
    command = [str(shapevm.runner_path()), str(artifact), "--threads", "1", "--repeat", "20"]
    for name in ("input_ids", "attention_mask"):
        command += ["--input", f"{name}={folder / 'ids.npy'}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"median ([\d.]+) ms", printed)
    assert found is not None, printed
    return float(found[1])


def baked_table(exe: shapevm.Executable, artifact: Path, folder: Path) -> Figure:
    """A table baked for a recorded stream of lengths against exact code for all of them, in the runner."""
    from shapevm.vm.artifact import read, write

    from shapevm.bake import all_exact, bake
    from shapevm.profiles import read as read_profile
    from shapevm.specialise import open_store

    lengths = zipf_lengths()
    with shapevm.record() as recorded:
        for length in lengths:
            ids = torch.ones(1, length, dtype=torch.long)
            exe(input_ids=ids, attention_mask=ids)
    recorded.save(folder / "profile.json")
    program, profile, store = read(artifact), read_profile(folder / "profile.json"), open_store()
    baked = bake(program, profile, store, BUDGET)
    write(baked.program, folder / "baked.svm")
    write(all_exact(program, store, profile), folder / "exact.svm")
    often = sorted(set(lengths), key=lambda length: -lengths.count(length))[:24]
    total = dict.fromkeys(("baked", "exact", "generic"), 0.0)
    files = {"baked": folder / "baked.svm", "exact": folder / "exact.svm", "generic": artifact}
    for length in often:
        turns = [{n: runner_ms(path, folder, length) for n, path in files.items()} for _ in range(N_TURNS)]
        for name in total:
            total[name] += lengths.count(length) * median([turn[name] for turn in turns])
    return Figure(
        f"a table baked for {len(lengths)} sentences of {len(set(lengths))} lengths (Zipf), in shapevm-run: "
        "bytes of kernels; time / all exact (generic code alone)",
        f"{baked.n_bytes / 1e6:.2f} MB; {total['baked'] / total['exact']:.3f} "
        f"({total['generic'] / total['exact']:.3f})", "at most 2 MB; at most 1.05",
    )  # fmt: skip


def many_shapes(folder: Path) -> Figure:
    """Distinct shapes of two sizes, mostly generic, under the default cap on code."""
    from shapevm.stress import many_shapes

    n, m = (torch.export.Dim(name, min=1, max=4096) for name in "nm")

    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, -1) * 2 + x

    options = {"dynamic_shapes": ({0: n, 1: m},), "strategy": "generic"}
    with shapevm.compile(Rows(), (torch.randn(3, 5),), **options) as exe:
        exe.save(folder / "rows.svm")
    flat = many_shapes(folder / "rows.svm", N_SHAPES, 64 << 20)
    return Figure(
        f"{flat.shapes:,} distinct 2-d shapes: growth of resident memory, of a call's time, after warm-up",
        f"{flat.growth:+.1%}; {flat.slowdown - 1:+.1%}", "at most 5 %; flat",
    )  # fmt: skip


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        artifact = folder / "minilm.svm"
        options = {"kwargs": example_inputs(), "dynamic_shapes": dynamic_shapes(), "strategy": "generic"}
        with shapevm.compile(SentenceEncoder().eval(), **options) as exe:
            exe.save(artifact)
            return [second_process(artifact, folder), baked_table(exe, artifact, folder), many_shapes(folder)]
