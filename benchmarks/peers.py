"""shapevm beside the runtimes that people use instead, in one process, in turn, on one core.

Contestants that are not installed are left out and named. `pip install shapevm[peers]` brings them.
"""

from __future__ import annotations

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
from measure import Figure, interleaved, median, ratio
from sentences import (
    compile_bert,
    dynamic_shapes,
    example_inputs,
    flops,
    load_bert,
    random_inputs,
    warm,
)
from shapevm.jit.measure.roofline import fma_peak

import shapevm

Item = dict[str, torch.Tensor]
Runner = Callable[[Item], object]
GOALS = {16: "at least 1.5x", 64: "at least 1.3x", 128: "at least 1.25x", 256: "at least 1.25x"}  # by length
FEW = 16  # tokens, of which products wait for weights
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


def openvino_request(path: Path, precision: str = "f32") -> tuple[Any, list[str]]:
    """Return a request of OpenVINO's CPU plugin in `precision` (its default may be lower), one thread,
    set for latency, and the names of its inputs."""
    import openvino as ov

    core = ov.Core()
    config = {
        "INFERENCE_NUM_THREADS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    compiled = core.compile_model(core.read_model(path), "CPU", config)
    return compiled.create_infer_request(), [given.any_name for given in compiled.inputs]


def openvino_runner(path: Path, precision: str = "f32") -> Runner:
    """Return a call of OpenVINO in `precision`."""
    request, names = openvino_request(path, precision)
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


def compared(
    what: str, runners: dict[str, Runner], item: Item, goal: str = "at least 1.25x", rounds: int = 21
) -> Figure:
    """Warm calls, everybody in turn."""
    runs = {name: partial(run, item) for name, run in runners.items()}
    times = interleaved(runs, rounds)
    best = min((name for name in runs if name != "shapevm"), key=lambda name: median(times[name]))
    text = ", ".join(f"{name} {median(found) * 1e3:.2f}" for name, found in times.items())
    return Figure(f"{what} (ms)", f"{text}: {ratio(times, best, 'shapevm'):.2f}x the best", goal)


def bound_of_few(model: torch.nn.Module, exe: shapevm.Executable) -> Figure:
    """The call of FEW tokens beside what it cannot do without: reading the layers' weights, or arithmetic."""
    from decode import pages, read_stream

    item, layers = random_inputs(1, FEW), model.encoder.layer  # type: ignore[union-attr]
    n_weights = sum(p.numel() for p in layers.parameters() if p.dim() == 2)  # type: ignore[union-attr]
    n_bytes, (peak, work) = 4 * n_weights, fma_peak()
    streamed = pages(4 * n_bytes, huge=True)
    times = interleaved(
        {"call": lambda: exe(**item), "stream": read_stream(streamed), "peak": peak}, rounds=21
    )
    call, stream, arithmetic = (median(times[name]) for name in ("call", "stream", "peak"))
    stream, arithmetic = stream / 4, arithmetic * flops(FEW) / work
    return Figure(
        f"length {FEW} (ms): {n_bytes / 1e6:.0f} MB of weights at the read stream, arithmetic at the peak",
        f"{stream * 1e3:.2f}, {arithmetic * 1e3:.2f}; a call {call * 1e3:.2f}: "
        f"{max(stream, arithmetic) / call:.0%} of the greater, {(stream + arithmetic) / call:.0%} of both",
    )


def encoder_latency(model: torch.nn.Module) -> list[Figure]:
    """The encoder at four lengths."""
    exe = compile_bert(model)
    with contestants(model, exe, example_inputs(), dynamic_shapes()) as runners:
        check(runners, random_inputs(1, 37))
        for length in GOALS:
            warm(exe, random_inputs(1, length))
        found = [
            compared(f"warm call at length {n}", runners, random_inputs(1, n), goal)
            for n, goal in GOALS.items()
        ]
    return [*found, bound_of_few(model, exe)]


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
        return [*encoder_latency(model), *missing()]
