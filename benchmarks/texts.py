"""Embed many texts with Ray Data on one worker and on two: how much faster two are, what was compiled twice.

make integrations                                  # once: Ray, in an environment of its own
.venv/bin/shapevm compile examples/encoder.py:arguments -o minilm.svm
build/engines/bin/python benchmarks/texts.py minilm.svm --rows 200000

Texts are rows of 4 to 64 token ids, the same at every run. Each number of workers begins with an empty kernel
cache, and `strategy="jit"`: every size has exact kernels, which whoever meets it first compiles. Ray's
dashboard is off. Two cores of a Xeon need some 22 minutes for all; `--rows 40000 --workers 1`, then
`--workers 2`, is a sample in two parts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def row(index: int) -> dict[str, Any]:
    """Return a text: its number decides its length and its ids."""
    random = np.random.default_rng(index)
    ids = random.integers(1000, 30000, random.integers(4, 65))
    return {"id": index, "input_ids": ids, "attention_mask": np.ones_like(ids)}


def worker_class() -> type:
    """Return an actor that tells of each row where it was embedded and what its worker had compiled."""
    from shapevm.integrations.ray import RayModel

    class Embedder(RayModel):
        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            found, size = super().__call__(batch), len(batch["id"])
            (output,) = (found[value.name] for value in self.model.executable.outputs)
            stats = self.model.executable.stats()
            counts = {"pid": os.getpid(), "compiled": stats.compiled, "cached": stats.from_cache}
            norms = np.array([float(np.linalg.norm(vector)) for vector in output])
            return {"norm": norms, **{name: np.full(size, value) for name, value in counts.items()}}

    return Embedder


def embed(ray: Any, model: str, n_rows: int, n_workers: int) -> dict[str, Any]:
    """Run the job with workers of one thread each; return its seconds and what was compiled."""
    start = time.monotonic()
    rows = ray.data.range(n_rows).map(lambda item: row(int(item["id"])))
    found = rows.map_batches(
        worker_class(),
        fn_constructor_args=[model],
        fn_constructor_kwargs={"strategy": "jit", "copy": False, "max_rows": 1},
        batch_size=256,
        num_cpus=1,
        concurrency=n_workers,
    )
    compiled: dict[int, int] = {}
    n_found = 0
    for batch in found.iter_batches(batch_size=4096):
        assert np.allclose(batch["norm"], 1, atol=1e-4)
        n_found += len(batch["pid"])
        for pid, count in zip(batch["pid"], batch["compiled"], strict=True):
            compiled[int(pid)] = max(compiled.get(int(pid), 0), int(count))
    assert n_found == n_rows, f"{n_found} results for {n_rows} texts"
    return {"workers": n_workers, "seconds": time.monotonic() - start, "compiled": compiled}


def main() -> None:
    """Print a line for each number of workers, then how they compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    model = str(Path(arguments.model).resolve())
    os.chdir(tempfile.gettempdir())  # workers would import the sources from the repository's folder
    import ray

    seconds = {}
    for n_workers in arguments.workers:
        with tempfile.TemporaryDirectory() as cache:
            own = {"SHAPEVM_CACHE_DIR": cache, "SHAPEVM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            ray.init(
                num_cpus=4, include_dashboard=False, runtime_env={"env_vars": own}, logging_level="error"
            )
            ray.data.DataContext.get_current().enable_progress_bars = False
            found = embed(ray, model, arguments.rows, n_workers)
            ray.shutdown()
            entries = sum(1 for _ in Path(cache).glob("??/*"))
        seconds[n_workers] = found["seconds"]
        in_all = sum(found["compiled"].values())
        print(f"{found}: {in_all} compilations, {entries} entries in the cache", flush=True)
    for n_workers in arguments.workers[1:]:
        ratio = seconds[arguments.workers[0]] / seconds[n_workers]
        print(f"{n_workers} workers: {ratio:.2f} times {arguments.workers[0]}")


if __name__ == "__main__":
    main()
