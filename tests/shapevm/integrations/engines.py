"""Run one engine over rows of different sizes and print a line of JSON for each result.

python engines.py ENGINE MODEL N FOLDER: a worker kills itself in the middle, once, and leaves FOLDER/killed.
See test_engines.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ENGINE, MODEL, N, FOLDER = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])


def row(index: int) -> dict[str, Any]:
    return {"id": index, "x": np.full(index % 9, index, np.float32)}


#: Each Python process of an engine reads this as it starts: who meets the row in the middle dies, once.
MORTAL = """
from shapevm.integrations.rows import RowModel

def run(self, rows, run=RowModel.run):
    if any({middle} in row.get("x", ()) for row in rows):
        import os, pathlib, signal
        try:
            pathlib.Path({marker!r}).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            pass
    return run(self, rows)

RowModel.run = run
"""


def make_workers_mortal() -> None:
    """Let a worker of the engine that is started next die in the middle."""
    text = MORTAL.format(middle=N // 2, marker=str(FOLDER / "killed"))
    (FOLDER / "sitecustomize.py").write_text(text)
    os.environ.update(PYTHONPATH=str(FOLDER), PYSPARK_PYTHON=sys.executable)


def show(index: Any, total: Any, **more: Any) -> None:
    print(json.dumps({"id": int(index), "sum": float(total), **more}), flush=True)


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Two machines that share nothing but a kernel cache."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for name in ("a", "b"):
        own = {"SHAPEVM_CACHE_DIR": str(FOLDER / name), "SHAPEVM_CACHE_URL": f"file://{FOLDER}/shared"}
        cluster.add_node(num_cpus=2, resources={name: 2}, env_vars=own, object_store_memory=1 << 28)
    ray.init(address=cluster.address, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    assert len(ray.nodes()) == 2
    yield ray
    ray.shutdown()
    cluster.shutdown()


def run_ray() -> None:
    make_workers_mortal()
    from shapevm.integrations.ray import RayModel

    with ray_cluster() as ray:
        rows = ray.data.range(N).map(lambda item: row(int(item["id"])))
        found = rows.map_batches(RayModel, fn_constructor_args=[MODEL], batch_size=4, concurrency=2)
        for item in found.take_all():
            show(item["id"], item["sum"])


def run_ray_caches() -> None:
    """All rows on machine "a" by one worker, then all on machine "b" by two."""
    from shapevm.integrations.ray import RayModel

    class Counting(RayModel):
        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            found, size = super().__call__(batch), len(batch["id"])
            stats, maps = self.model.executable.stats(), Path("/proc/self/maps").read_text().splitlines()
            inodes = [int(line.split()[4]) for line in maps if line.endswith(".svm")] or [0]
            counts = {"compiled": stats.compiled, "cached": stats.from_cache}
            state = {**counts, "pid": os.getpid(), "mapped": inodes[0]}
            return {**found, **{name: np.full(size, value) for name, value in state.items()}}

    def run_on(ray: Any, machine: str, n_workers: int) -> None:
        found = (
            ray.data.range(N)
            .map(lambda item: row(int(item["id"])))
            .map_batches(
                Counting,
                fn_constructor_args=[MODEL],
                fn_constructor_kwargs={"strategy": "jit", "copy": False, "max_rows": 1},
                batch_size=4,
                resources={machine: 1},
                concurrency=n_workers,
            )
        )
        for item in found.take_all():
            more = {key: int(item[key]) for key in ("compiled", "cached", "pid", "mapped")}
            show(item["id"], item["sum"], machine=machine, **more)

    with ray_cluster() as ray:
        run_on(ray, "a", 1)
        run_on(ray, "b", 2)


def run_serve() -> None:
    """Ask for all rows at once, kill a replica, and ask again for what was lost, as a client does."""
    import ray
    from ray import serve
    from ray.exceptions import RayActorError

    from shapevm.integrations.ray import deployment

    make_workers_mortal()
    ray.init(address="local", num_cpus=4, object_store_memory=1 << 28, logging_level="error")
    handle = serve.run(deployment(MODEL, replicas=2))
    waiting = {i: handle.remote(row(i)) for i in range(N)}
    while waiting:
        answers, waiting = waiting, {}
        for index, answer in answers.items():
            try:
                show(index, answer.result(timeout_s=120)["sum"])
            except RayActorError:
                waiting[index] = handle.remote(row(index))
    try:
        handle.remote({"id": -1, "y": 1}).result()
    except Exception as error:
        print(json.dumps({"error": str(error)}))
    serve.shutdown()


#: Beam's runners on one machine: this process is the worker; worker processes; a job service with such ones.
BEAM_RUNNERS = {
    "beam": ("FnApiRunner", []),
    "beam_processes": ("FnApiRunner", ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]),
    "beam_portable": (
        "PortableRunner",
        [
            "--job_endpoint=embed",
            "--environment_type=beam:env:harness_subprocess_python:v1",
            f"--environment_config={sys.executable} -m apache_beam.runners.worker.sdk_worker_main",
        ],
    ),
}


def run_beam() -> None:
    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference
    from apache_beam.options.pipeline_options import PipelineOptions

    from shapevm.integrations.beam import BeamModel

    make_workers_mortal()
    if ENGINE == "beam":
        exec((FOLDER / "sitecustomize.py").read_text())
    runner, options = BEAM_RUNNERS[ENGINE]
    with beam.Pipeline(runner, PipelineOptions(options)) as pipeline:
        rows = pipeline | beam.Create([row(i) for i in range(N)]) | beam.Reshuffle()
        lines = rows | RunInference(BeamModel(MODEL)) | beam.Map(line_of)
        lines | beam.io.WriteToText(str(FOLDER / "out"))
    for path in FOLDER.glob("out*"):
        for line in path.read_text().splitlines():
            index, total, pid = line.split()
            show(index, total, is_elsewhere=int(pid) != os.getpid())


def line_of(result: Any) -> str:
    import os

    return f"{result.example['id']} {float(result.inference['sum'])} {os.getpid()}"


def run_spark() -> None:
    make_workers_mortal()
    from pyspark.sql import SparkSession

    from shapevm.integrations.spark import row_udf

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    frame = spark.createDataFrame([(i, row(i)["x"].tolist()) for i in range(N)], "id long, x array<float>")
    result = row_udf(MODEL, inputs=["x"], return_type="sum float, running array<float>", batch_size=8)
    for item in frame.repartition(4).select("id", "x", result("x").alias("found")).collect():
        assert len(item["found"]["running"]) == len(item["x"])
        show(item["id"], item["found"]["sum"])
    spark.stop()


if __name__ == "__main__":
    engines = {"ray": run_ray, "ray_caches": run_ray_caches, "serve": run_serve, "spark": run_spark}
    {**engines, **dict.fromkeys(BEAM_RUNNERS, run_beam)}[ENGINE]()
