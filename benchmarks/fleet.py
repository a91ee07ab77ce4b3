"""The figures of docs/fleet.md: what rows, starts and kernel caches cost, in one worker and in two at once.

Processor time, which other load on the machine hardly changes. python benchmarks/fleet.py [ROWS]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def sentences(n: int) -> list[dict[str, np.ndarray]]:
    """Rows of 4 to 64 tokens, the same at every call."""
    random = np.random.default_rng(0)
    lengths = random.integers(4, 65, n)
    ids = [random.integers(1000, 30000, length) for length in lengths]
    return [{"input_ids": row, "attention_mask": np.ones_like(row)} for row in ids]


def worker(path: str, n: int, max_rows: int) -> dict[str, Any]:
    """Processor seconds: of the process until the program is loaded, of its first pass over all rows, of the
    second; and which kernels it needed."""
    import shapevm
    from shapevm.integrations.rows import RowModel

    shapevm.set_threads(1)
    model, rows = RowModel(path, strategy="jit", max_rows=max_rows), sentences(n)
    loaded = time.process_time()
    model.run(rows)
    first = time.process_time()
    model.run(rows)
    second = time.process_time()
    stats = model.executable.stats()
    counts = {"compiled": stats.compiled, "cached": stats.from_cache}
    return {"start": loaded, "first": first - loaded, "second": second - first, **counts}


def start(path: Path, n: int, max_rows: int, folder: Path, machine: str) -> subprocess.Popen[str]:
    own = {"SHAPEVM_CACHE_DIR": str(folder / machine), "SHAPEVM_CACHE_URL": str(folder / "shared")}
    command = [sys.executable, __file__, "worker", str(path), str(n), str(max_rows)]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=600)
    return json.loads(out.splitlines()[-1])


def main(n: int) -> None:
    sys.path.append(str(ROOT / "examples"))
    import encoder

    import shapevm

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "minilm.svm"
        exe = shapevm.compile(
            encoder.SentenceEncoder(),
            kwargs=encoder.example_inputs(),
            dynamic_shapes=encoder.dynamic_shapes(),
        )
        exe.save(path)
        print("artifact", path.stat().st_size, "bytes")
        for max_rows in (1, 32):
            measure(path, n, max_rows, folder / str(max_rows))


def measure(path: Path, n: int, max_rows: int, folder: Path) -> None:
    """Print what two machines and the cache between them show, and a job's prediction beside the job."""
    (folder / "shared").mkdir(mode=0o700, parents=True)
    for machine in ("first", "second"):
        print(f"max_rows {max_rows}, {machine} machine", result(start(path, n, max_rows, folder, machine)))
    entries = [file for file in (folder / "shared").rglob("*") if file.is_file()]
    print("shared cache", len(entries), "entries", sum(file.stat().st_size for file in entries), "bytes")
    alone = result(start(path, n, max_rows, folder, "second"))
    predicted = 2 * (alone["start"] + alone["first"] + alone["second"])
    both = [start(path, n, max_rows, folder, "second") for _ in range(2)]
    measured = sum(sum(found[key] for key in ("start", "first", "second")) for found in map(result, both))
    print("one worker", alone)
    print(f"two workers at once: predicted {predicted:.2f} s, measured {measured:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        print(json.dumps(worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 300)
