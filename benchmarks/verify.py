"""What verifying weights costs: MiniLM-L6 loaded and called once in a fresh process, with verify="none" and
as by default, in pairs.

    python benchmarks/verify.py [PAIRS [MODEL.svm]]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys, time
import numpy as np, shapevm
from shapevm.program.opening import open_executable  # imports are not measured
ids = np.ones((1, int(sys.argv[3])), np.int64)
start = time.perf_counter()
exe = shapevm.load(sys.argv[1], strategy="generic", verify=sys.argv[2] if sys.argv[2] != "default" else None)
loaded = time.perf_counter()
exe.run({"input_ids": ids, "attention_mask": ids})
print(loaded - start, time.perf_counter() - start)
"""
LENGTHS = (16, 128, 512)


def artifact(folder: Path) -> Path:
    """Compile the encoder."""
    sys.path.append(str(Path(__file__).parent.parent / "examples"))
    from encoder import dynamic_shapes, example_inputs, load_bert

    import shapevm

    path = folder / "minilm.svm"
    shapevm.compile(
        load_bert(), kwargs=example_inputs(), dynamic_shapes=dynamic_shapes(), strategy="generic"
    ).save(path)
    return path


def seconds(path: Path, verify: str, length: int) -> tuple[float, float]:
    """Return the seconds of loading, and of loading and the first call."""
    command = [sys.executable, "-c", CHILD, str(path), verify, str(length)]
    load, whole = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(load), float(whole)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[2]) if len(sys.argv) > 2 else artifact(Path(folder))
        print(f"{path.stat().st_size / 1e6:.0f} MB, {pairs} pairs of processes")
        for length in LENGTHS:
            found = [(seconds(path, "none", length), seconds(path, "default", length)) for _ in range(pairs)]
            ratios = [with_[1] / without[1] for without, with_ in found]
            load, whole = (statistics.median(without[i] for without, _ in found) * 1e3 for i in (0, 1))
            print(
                f"length {length}: load {load:.1f} ms, load and first call {whole:.1f} ms without; "
                f"times {statistics.median(ratios):.3f} with (quartiles "
                f"{statistics.quantiles(ratios)[0]:.3f} to {statistics.quantiles(ratios)[2]:.3f})"
            )


if __name__ == "__main__":
    main()
