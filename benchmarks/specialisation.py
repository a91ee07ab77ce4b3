"""Specialisation: a second process, a baked table in the runner, tiers beside each other, adversaries."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import Figure, median, seconds
from shapevm.vm.artifact import read, write

import shapevm
from shapevm.calls.profiles import Profile
from shapevm.calls.profiles import read as read_profile
from shapevm.specialise.bake import all_exact, bake
from shapevm.specialise.buckets import add_cells, cells
from shapevm.specialise.kernel_store import open_store

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from encoder import SentenceEncoder, dynamic_shapes, example_inputs

LENGTHS = range(8, 129)
N_SENTENCES = 400
BUDGET = 2_000_000  # bytes of code
N_STREAM_SAMPLES = 24  # of the stream, evenly by length
N_LENGTHS = 12  # of a second process, evenly among those of the stream
N_TURNS = 3
RANGES = [(8, 14), (15, 28), (29, 64), (65, 128)]  # up to 14 rows are one row tile
TIER_LENGTHS = (8, 11, 13, 16, 17, 23, 31, 32, 33, 47, 50, 64, 65, 77, 97, 126, 128)
TIER_ROUNDS = 42
STREAM = range(4, 196)  # lengths of the adversarial streams

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
    met = sorted(set(zipf_lengths()))
    lengths = ",".join(map(str, met[:: len(met) // N_LENGTHS]))
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", SECOND, str(artifact), lengths]
    found = []
    for _ in range(1 + N_TURNS):
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append(done.stdout.split())
    compiled, ratios = sum(int(row[0]) for row in found[1:]), [float(row[1]) for row in found[1:]]
    return Figure(
        f"{N_TURNS} processes with the shapes of one before: kernels compiled; first / warm call, median",
        f"{compiled}; {median(ratios):.2f}", "0; at most 1.3",
    )  # fmt: skip


def runner_ms(artifact: Path, folder: Path, length: int) -> float:
    """Return the least milliseconds of a call in the runner."""
    np.save(folder / "ids.npy", np.ones((1, length), np.int64))
    command = [str(shapevm.runner_path()), str(artifact), "--threads", "1", "--repeat", "12"]
    for name in ("input_ids", "attention_mask"):
        command += ["--input", f"{name}={folder / 'ids.npy'}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"min ([\d.]+) ms", printed)
    assert found is not None, printed
    return float(found[1])


def recorded(exe: shapevm.Executable, lengths: list[int], path: Path) -> Profile:
    """Return the profile of calls at these lengths."""
    with shapevm.record(exe) as recording:
        for length in lengths:
            call(exe, length)
    recording.save(path)
    return read_profile(path)


def call(exe: shapevm.Executable, length: int, strategy: str | None = None) -> object:
    """Run one sentence."""
    ids = torch.ones(1, length, dtype=torch.long)
    return (exe if strategy is None else exe.using(strategy))(input_ids=ids, attention_mask=ids)


def baked_table(exe: shapevm.Executable, artifact: Path, folder: Path) -> Figure:
    """A table baked for a recorded stream of lengths against exact code for all of them, in the runner."""
    lengths = zipf_lengths()
    profile = recorded(exe, lengths, folder / "profile.json")
    program, store = read(artifact), open_store()
    baked = bake(program, profile, store, BUDGET)
    write(baked.program, folder / "baked.svm")
    write(all_exact(program, store, profile), folder / "exact.svm")
    files = {"baked": folder / "baked.svm", "exact": folder / "exact.svm", "generic": artifact}
    total = dict.fromkeys(files, 0.0)
    for i in range(N_STREAM_SAMPLES):  # by calls: each stands for as many
        length = sorted(lengths)[(2 * i + 1) * len(lengths) // (2 * N_STREAM_SAMPLES)]
        turns = [{n: runner_ms(path, folder, length) for n, path in files.items()} for _ in range(N_TURNS)]
        for name in total:
            total[name] += min(turn[name] for turn in turns)
    return Figure(
        f"a table baked for {len(lengths)} sentences of {len(set(lengths))} lengths (Zipf), in shapevm-run: "
        "bytes of kernels; time / all exact (generic code alone)",
        f"{baked.n_bytes / 1e6:.2f} MB; {total['baked'] / total['exact']:.3f} "
        f"({total['generic'] / total['exact']:.3f})", "at most 2 MB; at most 1.05",
    )  # fmt: skip


def tiers(artifact: Path, folder: Path) -> list[Figure]:
    """Code of ranges of lengths and generic code against exact code, the whole model."""
    program, store = read(artifact), open_store()
    wanted = {
        "exact": [{"batch": 1, "length": length} for length in TIER_LENGTHS],
        "bucket": cells({"batch": [1], "length": RANGES}, program.symbols),
        "generic": [],
    }
    programs = {}
    for name, found in wanted.items():
        write(add_cells(program, store, found), folder / f"{name}.svm")
        programs[name] = shapevm.load(folder / f"{name}.svm", strategy="bucket")
    ratios: dict[str, list[float]] = {"bucket": [], "generic": []}
    total = dict.fromkeys(programs, 0.0)
    for length in TIER_LENGTHS:
        for exe in programs.values():
            call(exe, length)
        turns = [
            {name: seconds(partial(call, programs[name], length)) for name in turned(list(programs), i)}
            for i in range(TIER_ROUNDS)
        ]
        for name in total:
            total[name] += min(turn[name] for turn in turns)
        for name, found in ratios.items():
            found.append(median([turn[name] / turn["exact"] for turn in turns]))
    for name, exe in programs.items():
        ran = exe.stats().tier()  # of a kernel that depends on the batch only, the bucket is its one size
        assert name in ran and ("generic" in ran) == (name == "generic"), (name, ran)
        exe.close()
    shown = {
        name: f"{total[name] / total['exact']:.3f}; {median(found):.3f}; {max(found):.3f}"
        for name, found in ratios.items()
    }
    what = f"against exact code at {len(TIER_LENGTHS)} lengths: all together; median; worst"
    ranges = ", ".join(f"{low}..{high}" for low, high in RANGES)
    return [
        Figure(f"code of the ranges {ranges} {what}", shown["bucket"], "at most 1.08"),
        Figure(f"code of any length {what}", shown["generic"], "at most 1.15"),
    ]


def turned(names: list[str], by: int) -> list[str]:
    """Return the names, another one first each time: the first finds other things in the caches."""
    by %= len(names)
    return names[by:] + names[:by]


def adversaries(artifact: Path) -> Figure:
    """Streams that never pay for exact code: `auto` against `generic`, nothing in the disk cache."""
    lengths, times = list(STREAM), []
    random.Random(0).shuffle(lengths)
    hot = shapevm.settings.hot_calls + 1
    for stream in (lengths, [length for length in lengths for _ in range(hot)][: len(lengths)]):
        total = dict.fromkeys(("auto", "generic"), 0.0)
        with shapevm.settings.scope(cache=False):
            programs = {name: shapevm.load(artifact, strategy=name) for name in total}
        for exe in programs.values():
            call(exe, 1)  # the weights are read
        for i, length in enumerate(stream):
            for name in list(total)[:: 1 if i % 2 else -1]:
                total[name] += seconds(partial(call, programs[name], length))
        for exe in programs.values():
            exe.close()
        times.append(total["auto"] / total["generic"])
    return Figure(
        f"auto against generic, nothing in the cache: {len(lengths)} lengths, none twice; each {hot} times, "
        "then never again", f"{times[0]:.3f}; {times[1]:.3f}", "at most 1.03",
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
            return [
                second_process(artifact, folder), baked_table(exe, artifact, folder),
                *tiers(artifact, folder), adversaries(artifact),
            ]  # fmt: skip
