"""What profiling costs: calls under `exe.profile()` against calls without, in turn, by processor time.

python benchmarks/profiling.py minilm.svm [PAIRS]
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

import shapevm

CALLS = {16: 40, 128: 6}  # of one measurement, by length


def measure(exe: shapevm.Executable, length: int, n_pairs: int) -> tuple[float, list[float]]:
    """Return the milliseconds of a call without a profile, and for each pair the ratio of with to without."""
    ids = np.full((1, length), 2000)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def seconds() -> float:
        start = time.process_time()
        for _ in range(CALLS[length]):
            exe.run(inputs)
        return time.process_time() - start

    def profiled() -> float:
        with exe.profile():
            return seconds()

    seconds()
    off, ratios = [], []
    for pair in range(n_pairs):
        first, second = (profiled, seconds) if pair % 2 else (seconds, profiled)
        times = {first: first(), second: second()}
        off.append(times[seconds])
        ratios.append(times[profiled] / times[seconds])
    return 1e3 * min(off) / CALLS[length], ratios


def main(path: str, n_pairs: int) -> None:
    """Print a line for each length."""
    shapevm.set_threads(1)
    with shapevm.load(path, strategy="bucket") as exe:
        for length in CALLS:
            ms, ratios = measure(exe, length, n_pairs)
            low, middle, high = statistics.quantiles(ratios, n=4)
            shown = f"profiled {middle:.4f} of it ({low:.4f} to {high:.4f}, {n_pairs} pairs)"
            print(f"length {length}: {ms:.3f} ms; {shown}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60)
