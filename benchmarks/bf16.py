"""Products of bf16, one core: `shapevm.Options(precision="bf16")` and models in bf16.

A layer against its own f32, eager and the peak of bf16; whole models against their own f32, PyTorch under
autocast and OpenVINO with its hint for bf16.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import SHORT, Figure, Run, interleaved, median, ratio
from peers import (
    Item,
    Runner,
    export_onnx,
    first_array,
    inductor_runner,
    is_installed,
    missing,
    openvino_runner,
)
from sentences import compile_bert, dynamic_shapes, example_inputs, load_bert, random_inputs
from shapevm.jit.families.matmul import amx, pair_dots
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.llvm.target import find_target, host_target
from shapevm.jit.loops.bodies import LANES
from shapevm.jit.measure.roofline import compiled, fma_peak
from vision import make, vision

import shapevm

K, N = 768, 3072
ROWS, LENGTHS = (1, 16, 128, 512), (16, 64, 128, 256)
ROUNDS = 7 if SHORT else 31
SIDE = 224
BF16 = shapevm.Options(precision="bf16")
GOALS = {1: "no slower than eager", 16: "no slower than eager"}  # of rows; of others:
MANY_GOAL = "no slower than eager, 60 % of the peak"
MODEL_GOAL = "2x f32, 1.1x the best of the others"

TRIPS, N_SUMS = 1 << 17, 20  # of the loops that measure the peak: 1 ms or more, their start takes 60 us


def bf16_peak() -> tuple[Run, float]:
    """Return a loop of products of bf16 in registers, on this machine's best unit, and its operations."""
    target = find_target(host_target())
    if target.extension == "amx":
        return tiles_peak()
    return pairs_peak() if target.pairs else fma_peak()


def tiles_peak() -> tuple[Run, float]:
    """AMX: four tiles of sums, two of rows, two of columns."""
    f = Function("kernel", [("ptr", "x")])
    amx.configure(f)
    for tile in range(4):
        f.call("void", "llvm.x86.tilezero", amx.tile_number(tile))
        f.call("void", "llvm.x86.tileloadd64", amx.tile_number(4 + tile), f.params[0], Value("i64", "64"))
    with f.loop(0, TRIPS):
        for n in range(4):
            tiles = map(amx.tile_number, (n, 4 + n // 2, 6 + n % 2))
            f.call("void", "llvm.x86.tdpbf16ps", *tiles)
    amx.release(f)
    return compiled(f, np.zeros(512, np.uint16)), 4.0 * TRIPS * 2 * 16 * 16 * 32


def pairs_peak() -> tuple[Run, float]:
    """AVX-512: sums of two products of bf16 in each lane of a register."""
    f = Function("kernel", [("ptr", "x")], pairs=find_target(host_target()).pairs)
    one = f.load(pair_dots.FLOATS, f.params[0], align=4)
    with f.loop(0, TRIPS, carried=[one] * N_SUMS) as loop:
        loop.next(*[pair_dots.dot(f, sums, one, one) for sums in loop.carried])
    for i, sums in enumerate(loop.results):
        f.store(sums, f.at(f.params[0], pair_dots.FLOATS, i), align=4)
    return compiled(f, np.zeros(N_SUMS * LANES, np.float32)), 4.0 * N_SUMS * LANES * TRIPS


def layer() -> list[Figure]:
    """A linear layer at several numbers of rows: in bf16 by itself, and of f32 that is rounded."""
    torch.manual_seed(0)
    model = torch.nn.Linear(K, N)
    x = torch.randn(5, K)
    options = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=1, max=4096)},), "strategy": "jit"}
    half = torch.nn.Linear(K, N).bfloat16()
    f32, rounded, in_bf16 = (
        shapevm.compile(model, (x,), **options),
        shapevm.compile(model, (x,), **options, options=BF16),
        shapevm.compile(half, (x.bfloat16(),), **options),
    )
    found = []
    for rows in ROWS:
        x = torch.randn(rows, K)
        narrow = x.bfloat16()
        peak, peak_flops = bf16_peak()
        runs: dict[str, Run] = {
            "f32": partial(f32, x),
            "f32 rounded to bf16": partial(rounded, x),
            "bf16": partial(in_bf16, narrow),
            "eager bf16": partial(half, narrow),
        }
        times = interleaved({**runs, "peak": peak}, ROUNDS)
        text = ", ".join(f"{name} {median(times[name]) * 1e3:.3f}" for name in runs)
        flops = 2.0 * rows * K * N / peak_flops
        shares = ", ".join(f"{name} {flops * ratio(times, 'peak', name):.0%}" for name in list(runs)[1:])
        gains = f"rounded {ratio(times, 'f32', 'f32 rounded to bf16'):.2f}x f32"
        gains += f", bf16 {ratio(times, 'eager bf16', 'bf16'):.2f}x eager"
        figure = f"{text}: {gains}; of the peak of bf16: {shares}"
        found.append(Figure(f"{rows} rows of {K} x {N} (ms)", figure, GOALS.get(rows, MANY_GOAL)))
    return found


def under_autocast(run: Runner) -> Runner:
    """Return a call under autocast to bf16."""

    def call(item: Item) -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(item)

    return call


def _against(
    what: str, exes: dict[str, shapevm.Executable], runners: dict[str, Runner], item: Item
) -> Figure:
    """Compare a model in bf16 with its own f32 and the others."""
    runs: dict[str, Run] = {name: partial(exe, **item) for name, exe in exes.items()}
    runs |= {name: partial(run, item) for name, run in runners.items()}
    times = interleaved(runs, ROUNDS)
    wanted, ours = (np.asarray(first_array(exes[name](**item)), np.float64) for name in ("f32", "bf16"))
    error = np.linalg.norm(ours - wanted) / max(np.linalg.norm(wanted), 1e-30)
    text = ", ".join(f"{name} {median(times[name]) * 1e3:.2f}" for name in runs)
    gains = ", ".join(f"{ratio(times, name, 'bf16'):.2f}x {name}" for name in runs if name != "bf16")
    return Figure(f"{what} (ms)", f"{text}: bf16 {gains}; differs from f32 by {error:.1e}", MODEL_GOAL)


def _others(
    model: torch.nn.Module, item: Item, shapes: object, path: Path, inductor: bool
) -> dict[str, Runner]:
    """Return the other contestants in bf16."""
    runners = {"eager, autocast": under_autocast(lambda item: model(**item))}
    if inductor:
        runners["torch.compile, autocast"] = under_autocast(inductor_runner(model))
    if is_installed("openvino"):
        export_onnx(model, item, shapes, path)
        runners["OpenVINO bf16"] = openvino_runner(path, "bf16")
    return runners


def encoder(folder: Path) -> list[Figure]:
    """The sentence encoder."""
    model = load_bert()
    exes = {"f32": compile_bert(model, "jit"), "bf16": compile_bert(model, "jit", BF16)}
    others = _others(model, example_inputs(), dynamic_shapes(), folder / "encoder.onnx", inductor=True)
    return [
        _against(f"encoder, length {length}", exes, others, random_inputs(1, length)) for length in LENGTHS
    ]


def images(folder: Path) -> list[Figure]:
    """Classifiers of one image."""
    if not vision.is_installed():
        return [Figure("classifiers", "torchvision is not installed")]
    found = []
    for name in ("resnet50", "vit_b_16"):
        model, item = make(name), {"x": torch.randn(1, 3, SIDE, SIDE)}
        exes = {
            label: shapevm.compile(model, kwargs=item, strategy="jit", options=options)
            for label, options in (("f32", None), ("bf16", BF16))
        }
        others = _others(model, item, None, folder / f"{name}.onnx", inductor=False)
        found.append(_against(f"{name}, one image", exes, others, item))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as name:
        return [*layer(), *encoder(Path(name)), *images(Path(name)), *missing()]
