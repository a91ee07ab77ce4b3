"""Work so small that what surrounds it counts: chains of tiny operators, products of few rows, single calls.

Everybody is called from Python in turn, on one core, at sizes seen before, with weights in cache. IREE joins
where `pip install iree-base-compiler iree-base-runtime` was run; it takes static shapes, its inputs already
on its device, and leaves its results there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from calls import Double
from measure import Figure, Run, median, ratio, seconds
from peers import export_onnx, is_installed, onnxruntime_session

import shapevm

WIDTH, PAIRS = 16, 50
BATCHES = (4, 16, 64)
LINEARS = ((1, 768, 768), (16, 384, 384))  # (rows, K, N)
ROUNDS, SECONDS = 25, 0.004  # of every figure; of one contestant in one round


class Chain(torch.nn.Module):
    """PAIRS products of [rows, WIDTH] by a constant, each with an activation."""

    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(PAIRS))
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def in_rounds(runs: dict[str, Run], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the seconds of a call, by round, of each contestant in turn: as many calls as take SECONDS."""
    repeats = {}
    for name, run in runs.items():
        run()
        calls = range(1 if seconds(run) > SECONDS else 20)
        for _ in calls:
            run()
        took = seconds(lambda run=run, calls=calls: [run() for _ in calls])
        repeats[name] = max(1, int(SECONDS * len(calls) / took))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            calls = range(repeats[name])
            times[name].append(seconds(lambda run=run, calls=calls: [run() for _ in calls]) / len(calls))
    return times


def compared(what: str, runs: dict[str, Run], goal: str) -> Figure:
    """Return everybody's microseconds, median and least, and the best peer's time over ours."""
    times = in_rounds(runs)
    ours = next(iter(runs))
    best = min((name for name in runs if name != ours), key=lambda name: median(times[name]))
    text = ", ".join(f"{name} {median(t) * 1e6:.1f} ({min(t) * 1e6:.1f})" for name, t in times.items())
    gain = ratio(times, best, ours)
    return Figure(f"{what}, us (least)", f"{text}: {gain:.2f}x the best of the others", goal)


# Contestants --------------------------------------------------------------------------------------------


def ours(model: torch.nn.Module, x: torch.Tensor) -> shapevm.Executable:
    """Compile with any number of rows; exact kernels for this one."""
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=4096)},))
    exe(x)
    exe.wait_until_specialised()
    return exe


def openvino_call(path: Path, x: torch.Tensor) -> Run:
    """OpenVINO's CPU plugin in f32, one thread, set for latency."""
    import openvino as ov

    core = ov.Core()
    config = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(path), "CPU", config).create_infer_request()
    array = x.numpy()
    return partial(request.infer, [array], share_inputs=True)


def iree_call(mlir: str, x: torch.Tensor) -> Run:
    """IREE, in the calling thread."""
    from iree import compiler, runtime

    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    flags += ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
    binary = compiler.compile_str(mlir, extra_args=flags)
    config = runtime.Config("local-sync")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
    return partial(module.main, runtime.asdevicearray(config.device, x.numpy()))


def chain_mlir(model: Chain, rows: int, operation: str) -> str:
    """Return the chain for IREE; `operation`: the activation of %value into %out, as MLIR."""
    kind, square = f"tensor<{rows}x{WIDTH}xf32>", f"tensor<{WIDTH}x{WIDTH}xf32>"
    lines = [f"func.func @main(%x0: {kind}) -> {kind} {{", "%zero = arith.constant 0.0 : f32"]
    lines += [f"%empty = tensor.empty() : {kind}"]
    lines += [f"%zeros = linalg.fill ins(%zero : f32) outs(%empty : {kind}) -> {kind}"]
    same = "affine_map<(i, j) -> (i, j)>"
    for i, layer in enumerate(model.layers):
        weight = layer.weight.detach().numpy().T.astype("<f4").tobytes().hex().upper()  # type: ignore[operator]
        lines += [
            f'%w{i} = arith.constant dense<"0x{weight}"> : {square}',
            f"%p{i} = linalg.matmul ins(%x{i}, %w{i} : {kind}, {square}) outs(%zeros : {kind}) -> {kind}",
            f"%x{i + 1} = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = "
            f'["parallel", "parallel"]}} ins(%p{i} : {kind}) outs(%empty : {kind}) {{',
            f"^bb0(%value: f32, %old: f32): {operation} linalg.yield %out : f32 }} -> {kind}",
        ]
    return "\n".join([*lines, f"return %x{PAIRS} : {kind} }}"])


def contestants(
    model: torch.nn.Module, x: torch.Tensor, folder: Path, mlir: Callable[[], str] | None
) -> dict[str, Run]:
    """Return a call of everything that can run `model` here, shapevm first; each gives eager's result."""
    exe, path = ours(model, x), folder / "model.onnx"
    runs: dict[str, Run] = {"shapevm": partial(exe, x), "eager": partial(model, x)}
    rows = torch.export.Dim("rows", min=1, max=4096)
    if is_installed("onnxruntime") or is_installed("openvino"):
        export_onnx(model, {"x": x}, {"x": {0: rows}}, path)
    if is_installed("onnxruntime"):
        runs["ONNX Runtime"] = partial(onnxruntime_session(path).run, None, {"x": x.numpy()})
    if is_installed("openvino"):
        runs["OpenVINO"] = openvino_call(path, x)
    if mlir is not None and find_spec("iree") is not None:
        runs["IREE"] = iree_call(mlir(), x)
    for name, run in runs.items():
        np.testing.assert_allclose(first_array(run()), model(x).numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    return runs


def first_array(result: Any) -> np.ndarray:
    """Return a contestant's first result."""
    return np.asarray(result if hasattr(result, "shape") else result[0])


# Figures ------------------------------------------------------------------------------------------------


def chains(folder: Path) -> list[Figure]:
    """Chains with a cheap activation and with one that takes most of the arithmetic."""
    activations = {
        "relu": (torch.relu, "%out = arith.maximumf %value, %zero : f32"),
        "tanh": (torch.tanh, "%out = math.tanh %value : f32"),
    }
    found = []
    for name, (activation, operation) in activations.items():
        torch.manual_seed(0)
        model = Chain(activation).eval()
        for batch in BATCHES:
            x = torch.randn(batch, WIDTH)
            runs = contestants(model, x, folder, partial(chain_mlir, model, batch, operation))
            what = f"{PAIRS} products of [{batch}, {WIDTH}] by [{WIDTH}, {WIDTH}], each with {name}"
            found.append(compared(what, runs, "at least 2x"))
    return found


def linears(folder: Path) -> list[Figure]:
    """Single products with weights in cache."""
    found = []
    for rows, k, n in LINEARS:
        model, x = torch.nn.Linear(k, n).eval(), torch.randn(rows, k)
        runs = contestants(Named(model), x, folder, None)
        found.append(compared(f"linear {rows} x {k} x {n}", runs, "at least 1.5x"))
    return found


class Named(torch.nn.Module):
    """A module whose input is called `x`."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


def single_calls(folder: Path) -> list[Figure]:
    """A model of one operator: torch tensors, and numpy arrays where a runtime takes them."""
    x = torch.randn(3, 16)
    model = Double()
    runs = contestants(model, x, folder, None)
    array, exe = x.numpy(), ours(model, x)
    with_arrays = {"shapevm": partial(exe, array)} | {
        name: run for name, run in runs.items() if name in ("ONNX Runtime", "OpenVINO")
    }
    return [
        compared("a model of one operator, torch tensors", {**runs}, "ahead of all"),
        compared("the same, numpy arrays", with_arrays, "ahead of all"),
    ]


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*chains(folder), *linears(folder), *single_calls(folder)]
