"""shapevm beside the runtimes that people use instead, in one process, in turn, on one core.

Contestants that are not installed are left out and named. `pip install shapevm[peers]` brings them.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Figure, interleaved, median, ratio, seconds
from sentences import (
    compile_bert,
    dynamic_shapes,
    example_inputs,
    load_bert,
    random_inputs,
    sentence_lengths,
    warm,
)

import shapevm

Item = dict[str, torch.Tensor]
Runner = Callable[[Item], object]
LENGTHS = (16, 64, 128, 256)
NEEDS = {"onnxruntime": ("onnxruntime", "onnx", "onnxscript"), "openvino": ("openvino", "onnx", "onnxscript")}


def is_installed(name: str) -> bool:
    """Return True where everything that a contestant needs can be imported."""
    return all(find_spec(package) is not None for package in NEEDS[name])


def export_onnx(model: torch.nn.Module, args: Item, shapes: Any, path: Path) -> None:
    """Write the ONNX file that ONNX Runtime and OpenVINO read."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (),
            path,
            kwargs=args,
            dynamic_shapes=shapes,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def onnxruntime_session(path: Path) -> Any:
    """Return a session of ONNX Runtime's CPU provider with all graph optimisations, one thread."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnxruntime_runner(path: Path) -> Runner:
    """Return a call of ONNX Runtime."""
    session = onnxruntime_session(path)
    names = [given.name for given in session.get_inputs()]
    return lambda item: session.run(None, {name: item[name].numpy() for name in names})


def openvino_runner(path: Path, precision: str = "f32") -> Runner:
    """OpenVINO's CPU plugin in `precision` (its default may be lower than f32), one thread, for latency."""
    import openvino as ov

    core = ov.Core()
    config = {
        "INFERENCE_NUM_THREADS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    compiled = core.compile_model(core.read_model(path), "CPU", config)
    names = [given.any_name for given in compiled.inputs]
    request = compiled.create_infer_request()
    return lambda item: request.infer({name: item[name].numpy() for name in names}, share_inputs=True)


def inductor_runner(model: torch.nn.Module) -> Runner:
    """torch.compile for dynamic shapes, weights frozen into the code (packed for its matmuls)."""
    from torch._inductor import config

    config.freezing = True
    compiled = torch.compile(model, dynamic=True)
    return lambda item: compiled(**item)


@contextmanager
def contestants(
    model: torch.nn.Module, exe: shapevm.Executable, example: Item, shapes: Any, cold: bool = False
) -> Iterator[dict[str, Runner]]:
    """Yield everything that can run `model` here, shapevm and PyTorch eager first.

    `cold`: none has seen any shape; torch.compile is left out, which compiles for most of a minute then.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        runners: dict[str, Runner] = {
            "shapevm": lambda item: exe(**item),
            "eager": lambda item: model(**item),
        }
        if any(map(is_installed, NEEDS)):
            export_onnx(model, example, shapes, path)
        if is_installed("onnxruntime"):
            runners["ONNX Runtime"] = onnxruntime_runner(path)
        if is_installed("openvino"):
            runners["OpenVINO"] = openvino_runner(path)
        if not cold:
            runners["torch.compile, frozen"] = inductor_runner(model)
        yield runners


def check(runners: dict[str, Runner], item: Item) -> None:
    """Raise where a contestant computes something else than eager."""
    wanted = first_array(runners["eager"](item))
    for name, run in runners.items():
        worst = float(np.abs(first_array(run(item)) - wanted).max())
        if worst > 1e-3:
            raise AssertionError(f"{name} differs from eager by {worst}")


def first_array(result: Any) -> np.ndarray:
    """Return the first result as an array."""
    first: Any = result if isinstance(result, torch.Tensor) else result[0]
    return first.numpy() if isinstance(first, torch.Tensor) else np.asarray(first)


def compared(what: str, runners: dict[str, Runner], item: Item, rounds: int = 21) -> Figure:
    """Warm calls, everybody in turn."""
    runs = {name: partial(run, item) for name, run in runners.items()}
    times = interleaved(runs, rounds)
    best = min((name for name in runs if name != "shapevm"), key=lambda name: median(times[name]))
    text = ", ".join(f"{name} {median(found) * 1e3:.2f}" for name, found in times.items())
    return Figure(f"{what} (ms)", f"{text}: {ratio(times, best, 'shapevm'):.2f}x the best", "at least 1.25x")


def encoder_latency(model: torch.nn.Module) -> list[Figure]:
    """The encoder at four lengths."""
    exe = compile_bert(model)
    with contestants(model, exe, example_inputs(), dynamic_shapes()) as runners:
        check(runners, random_inputs(1, 37))
        for length in LENGTHS:
            warm(exe, random_inputs(1, length))
        return [compared(f"warm call at length {n}", runners, random_inputs(1, n)) for n in LENGTHS]


def cold_stream(model: torch.nn.Module) -> list[Figure]:
    """200 sentences of random length, each contestant from a fresh start, everybody's preparation apart."""
    items = [random_inputs(1, length) for length in sentence_lengths(200)]
    totals: dict[str, float] = {}
    with (
        shapevm.settings.scope(cache=False),
        contestants(model, compile_bert(model), example_inputs(), dynamic_shapes(), cold=True) as runners,
    ):
        for name, run in runners.items():
            totals[name] = seconds(lambda run=run: [run(item) for item in items])
            gc.collect()
    best = min((name for name in totals if name != "shapevm"), key=lambda name: totals[name])
    text = ", ".join(f"{name} {total:.2f}" for name, total in totals.items())
    gain = totals[best] / totals["shapevm"]
    return [
        Figure("200 sentences of random length, cold (s)", f"{text}: {gain:.2f}x the best", "at least 1.4x")
    ]


def missing() -> list[Figure]:
    """Name the contestants that are not there."""
    absent = [name for name in NEEDS if not is_installed(name)]
    return [Figure("not installed, so not measured", ", ".join(absent))] if absent else []


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    model = load_bert()
    with torch.inference_mode():
        return [*encoder_latency(model), *cold_stream(model), *missing()]
