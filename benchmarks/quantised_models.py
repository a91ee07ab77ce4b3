"""Whole models with static activations in bytes (`shapevm.Options(calibrate=...)`), one core.

ResNet-50 and MobileNetV2 against their own f32 and the static int8 (QDQ) of ONNX Runtime and OpenVINO; a
token of a GPT-2 against its own bf16 weights; the memory of an artifact with int4 weights.
`benchmarks/quantised.py` shows these figures with its own.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from decode import LAYERS, decoder, first_inputs
from measure import SHORT, Figure, Run, interleaved, median, ratio
from memory import OURS, child
from peers import Item, Runner, export_onnx, is_installed, onnxruntime_runner, openvino_runner
from vision import make, vision

import shapevm
from shapevm.reports.inspect import inspection

ROUNDS = 9 if SHORT else 41
SIDE, PAST = 224, 64
GOALS = {"resnet50": "2.3x f32, 1.2x the peer", "mobilenet_v2": "1.7x f32, 1.2x the peer"}
WIDTH, DEPTH = 2048, 8  # of the layers whose memory is measured


def classifiers(folder: Path) -> list[Figure]:
    """Classifiers of one image in int8 against f32, with statistics of batch norms as if trained."""
    if not vision.is_installed():
        return [Figure("classifiers in int8", "torchvision is not installed")]
    return [_classifier(name, folder) for name in GOALS]


def _classifier(name: str, folder: Path) -> Figure:
    model, item = normalised(make(name)), {"x": torch.randn(1, 3, SIDE, SIDE)}
    options = shapevm.Options(weights="int8", calibrate=[(item["x"],)])
    exes = {
        "f32": shapevm.compile(model, (item["x"],), strategy="jit"),
        "int8": shapevm.compile(model, (item["x"],), strategy="jit", options=options),
    }
    runners: dict[str, Runner] = {label: _call(exe) for label, exe in exes.items()}
    if is_installed("onnxruntime"):
        runners["ONNX Runtime int8"] = onnx_static(model, [item], folder / f"{name}.onnx")
        if is_installed("openvino"):  # it reads the same file
            runners["OpenVINO int8"] = openvino_runner(folder / f"{name}.int8.onnx")
    runs: dict[str, Run] = {label: partial(run, item) for label, run in runners.items()}
    times = interleaved(runs, ROUNDS)
    text = ", ".join(f"{label} {median(times[label]) * 1e3:.2f}" for label in runs)
    gains = ", ".join(f"{ratio(times, label, 'int8'):.2f}x {label}" for label in runs if label != "int8")
    return Figure(f"{name}, one image (ms)", f"{text}: int8 {gains}", GOALS[name])


def _call(exe: shapevm.Executable) -> Runner:
    return lambda item: exe(*item.values())


def normalised(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model of random weights whose batch norms have the statistics of random images: values keep
    their size from layer to layer, as those of trained models do."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    model.train()
    model(torch.randn(4, 3, SIDE, SIDE))
    return model.eval()


def onnx_static(
    model: torch.nn.Module,
    samples: list[Item],
    path: Path,
    shapes: object = None,
    operators: tuple[str, ...] = (),
) -> Runner:
    """Return a call of ONNX Runtime with int8 weights for each channel and static activations, by `samples`.

    `operators`: those that are quantised, (): all that can be.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        """The samples."""

        def __init__(self) -> None:
            self.left = [{name: value.numpy() for name, value in item.items()} for item in samples]

        def get_next(self) -> dict[str, np.ndarray] | None:
            """Return the next sample."""
            return self.left.pop() if self.left else None

    plain, made = path.with_suffix(".plain.onnx"), path.with_suffix(".int8.onnx")
    export_onnx(model, samples[0], shapes, path)
    quant_pre_process(path, plain, skip_symbolic_shape=bool(shapes))
    quantize_static(
        plain,
        made,
        Samples(),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=list(operators) or None,
    )
    return onnxruntime_runner(made)


def token() -> list[Figure]:
    """A token of a GPT-2 of LAYERS layers, PAST positions behind it, by weights."""
    model, inputs = decoder(), first_inputs(7)
    past = torch.export.Dim("past", min=1, max=1023)
    shapes = {"token": None, "past": [({2: past}, {2: past}) for _ in range(LAYERS)]}
    samples = [first_inputs(length) for length in (1, 7, 40)]
    options = {
        "bf16": shapevm.Options(weights="bf16"),
        "int8": shapevm.Options(weights="int8"),
        "int4": shapevm.Options(weights="int4"),
        "int8, static": shapevm.Options(weights="int8", calibrate=samples),
        "int4, static": shapevm.Options(weights="int4", calibrate=samples),
    }
    how = {"dynamic_shapes": shapes, "strategy": "generic"}
    exes = {name: shapevm.compile(model, inputs, options=each, **how) for name, each in options.items()}
    item = first_inputs(PAST)
    times = interleaved({name: partial(exe, *item) for name, exe in exes.items()}, ROUNDS)
    text = ", ".join(f"{name} {median(found) * 1e3:.2f}" for name, found in times.items())
    gains = ", ".join(f"{name} {ratio(times, 'bf16', name):.2f}x" for name in times if name != "bf16")
    what = f"GPT-2, {LAYERS} layers: a token (ms)"
    return [Figure(what, f"{text}; against bf16: {gains}", "int8 1.7x, int4 2.5x bf16")]


def memory(folder: Path) -> list[Figure]:
    """The memory that loading and running DEPTH linear layers of WIDTH with int4 weights adds to a process,
    against weights and activations."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))).eval()
    x, found = torch.randn(16, WIDTH), []
    for name, calibrate in (("int4", ()), ("int4, static", [(x,)])):
        options = shapevm.Options(weights="int4", calibrate=calibrate)
        path = folder / "int4.svm"
        shapevm.compile(model, (x,), strategy="jit", options=options).save(path)
        inputs = folder / "inputs.npz"
        with shapevm.load(path) as exe:
            (given,) = exe.inputs
        np.savez(inputs, **{given.name: x.numpy()})
        weights = inspection(path)["weight_bytes"]
        peak, activations, _ = child("shapevm", OURS, str(path), str(inputs), "bucket")
        share = peak / (weights + activations)
        found.append(Figure(f"memory of {name} weights", f"{peak / 1e6:.1f} MB, {share:.2f}x", "1.15x"))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode(), tempfile.TemporaryDirectory() as name:
        return [*classifiers(Path(name)), *token(), *memory(Path(name))]
