"""Language models beside llama.cpp, in turn in one run, on one core and on two.

    python benchmarks/llm.py model.gguf --peer PYTHON [--rounds 5] [--cores 1 2] [--precision i16]

PYTHON is an interpreter whose environment has the packages `xllamacpp` and `gguf`. `llm_files.py` writes
files with random weights. The share of the read stream counts the bytes of the file's weights once a token,
whoever reads them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from decode import pages, read_stream
from measure import Figure, median, seconds

WORKER = str(Path(__file__).with_name("llm_worker.py"))
PREFILL, KNOWN, DECODE, EACH = 512, 448, 32, 16
OURS, THEIRS = "shapevm", "llama.cpp"
#: The measurements: names, arguments.
TASKS: dict[str, tuple[int, ...]] = {
    "decode": (DECODE,), "prefill": (PREFILL,), "cached": (PREFILL, KNOWN), "one_by_one": (EACH,),
    "together": (EACH,),
}  # fmt: skip


class Worker:
    """A contestant in its own process."""

    def __init__(self, python: str, name: str, path: str, cores: list[int]) -> None:
        self._process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, cores)), python, WORKER, name, path, str(len(cores))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._answer()
        self._process.send_signal(signal.SIGSTOP)

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended: {self._process.args!r}")
        return line

    def ask(self, what: str, *arguments: int) -> float:
        """Return what a measurement gives. Between measurements the process is stopped: threads of an idle
        server would take time from the other contestant on the same core."""
        assert self._process.stdin
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        found = float(json.loads(self._answer()))
        self._process.send_signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        assert self._process.stdin
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        self._process.wait()


def weight_bytes(path: str) -> int:
    """Return the bytes of a file's weights."""
    from shapevm.llm.gguf import read_gguf

    return sum(place.n_bytes for place in read_gguf(path).places.values())


def saved(path: str, folder: str, precision: str) -> str:
    """Compile a file's model in another process, whose memory is not measured; return its artifact."""
    from llm_worker import CACHE

    made = Path(folder, f"{Path(path).stem}-{precision}.svm")
    if not made.exists():
        options = f"options=Options(precision={precision!r})"
        opened = f"llm.from_pretrained({path!r}, cache_tokens={CACHE}, {options})"
        code = f"from shapevm import Options, llm; {opened}.save({str(made)!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
    return str(made)


def stream(cores: list[int]) -> float:
    """Return the bytes a second that the cores read together, asking for lines ahead or not: some cores read
    twice as fast if left alone."""
    return max(_stream(cores, asks) for asks in (True, False))


def _stream(cores: list[int], asks: bool) -> float:
    size = 128 << 20
    runs = [read_stream(pages(size, huge=True), asks) for _ in cores]

    def together() -> None:
        threads = [threading.Thread(target=run) for run in runs]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    together()
    return size * len(cores) / min(seconds(together) for _ in range(7))


def measured(path: str, artifact: str, peer: str, cores: list[int], rounds: int) -> dict[str, Any]:
    """Return the medians of each contestant's measurements, by its name."""
    workers = {
        OURS: Worker(sys.executable, OURS, artifact, cores),
        THEIRS: Worker(peer, THEIRS, path, cores),
    }
    times: dict[str, dict[str, list[float]]] = {name: {task: [] for task in TASKS} for name in workers}
    for at in range(rounds + 1):
        for task, arguments in TASKS.items():
            for name, worker in workers.items():
                found = worker.ask(task, *arguments)
                if at:  # the first round warms up
                    times[name][task].append(found)
    results: dict[str, Any] = {
        name: {task: median(each) for task, each in tasks.items()} for name, tasks in times.items()
    }
    for name, worker in workers.items():
        results[name]["peak"] = worker.ask("peak")
        worker.close()
    return results


def figures_of(path: str, artifact: str, peer: str, cores: list[int], rounds: int) -> list[Figure]:
    """Return the figures of a file's model on some cores."""
    found, size = measured(path, artifact, peer, cores, rounds), weight_bytes(path)
    ours, theirs, reads = found[OURS], found[THEIRS], stream(cores)
    where = f"{Path(path).stem}, {len(cores)} core{'s' if len(cores) > 1 else ''}"

    def pair(task: str, unit: float = 1e3) -> str:
        return f"{ours[task] * unit:.1f} / {theirs[task] * unit:.1f} ms, {theirs[task] / ours[task]:.2f}x"

    shares = [size / each["decode"] / reads for each in (ours, theirs)]
    gains = [each["one_by_one"] / each["together"] for each in (ours, theirs)]
    rates = [8 * EACH / each["together"] for each in (ours, theirs)]
    firsts = [each["cached"] / each["prefill"] for each in (ours, theirs)]
    return [
        Figure(f"{where}: a token of one sequence, shapevm / llama.cpp", pair("decode"), "at least 1.2x"),
        Figure(f"{where}: share of the read stream, {reads / 1e9:.1f} GB/s",
               f"{shares[0]:.0%} / {shares[1]:.0%}", "at least 85%"),
        Figure(f"{where}: {PREFILL} tokens of a prompt", pair("prefill"), "at least 1.5x"),
        Figure(f"{where}: 8 sequences together against one by one",
               f"{gains[0]:.2f}x / {gains[1]:.2f}x; {rates[0]:.0f} / {rates[1]:.0f} tokens/s", "at least 4x"),
        Figure(f"{where}: first token with {KNOWN} of {PREFILL} known, of its time without",
               f"{firsts[0]:.2f}x / {firsts[1]:.2f}x", "at most 0.2x"),
        Figure(f"{where}: peak memory, of the file's weights",
               f"{ours['peak'] / size:.2f}x / {theirs['peak'] / size:.2f}x ({ours['peak'] / 1e6:.0f} MB)",
               "at most 1.15x of weights and cache"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--peer", required=True, help="an interpreter that has xllamacpp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", default="f32", help="of products' activations: f32, i16")
    parser.add_argument("--folder", help="where the artifact is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        artifact = saved(options.file, options.folder or scratch, options.precision)
        usable = sorted(os.sched_getaffinity(0))
        for n in options.cores:
            for each in figures_of(options.file, artifact, options.peer, usable[:n], options.rounds):
                print(f"{each.what}: {each.figure} ({each.goal})", flush=True)


if __name__ == "__main__":
    main()
