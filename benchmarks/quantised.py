"""int8 and int4: a layer of a language model and the sentence encoder, against f32 and others, one core.

Activations are quantised row by row at run time (`torchao`'s Int8DynamicActivationInt8Weight and
Int8DynamicActivationIntxWeight, ONNX Runtime's `quantize_dynamic`), or stay f32 while weights are small
integers (`shapevm.Options(weights="int8")`, `"int4"`). ONNX Runtime's MatMulNBits quantises them too, at its
accuracy level 4.
"""

from __future__ import annotations

import copy
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from bounds import reading
from measure import SHORT, Figure, Run, interleaved, median, ratio
from peers import (
    Item,
    Runner,
    export_onnx,
    first_array,
    is_installed,
    missing,
    onnxruntime_runner,
    openvino_runner,
)
from quantised_models import onnx_static
from sentences import compile_bert, dynamic_shapes, example_inputs, load_bert, random_inputs
from shapevm.jit.measure.roofline import fma_peak

import shapevm

K, N = 2048, 5632  # of a small language model's feed-forward layer
ROWS = (1, 4, 16, 128)
GROUP = 32  # steps of int4 weights that share a scale
#: Bytes of a weight with its share of a scale.
BYTES = {"int8": 1, "int8 weights": 1, "int4": 0.5 + 4 / GROUP, "int4 weights": 0.5 + 4 / GROUP}
BYTES["int4, groups of 128"] = 0.5 + 4 / (4 * GROUP)
LENGTHS = (16, 128) if SHORT else (16, 64, 128, 256)
ROUNDS = 5 if SHORT else 25
VNNI = 4  # products of bytes in the time of one in f32, by AVX-512 VNNI
STREAM = 1 << 26  # elements that are read to know the memory's speed
ROW = torch.export.Dim("rows", min=1, max=256)


def quantised(model: torch.nn.Module, group: int = 0) -> torch.nn.Module:
    """Return a copy of a model whose linear layers have int8 activations, and int8 weights, or int4 ones with
    a scale for `group` steps."""
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8DynamicActivationIntxWeightConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup

    made, config = copy.deepcopy(model), Int8DynamicActivationInt8WeightConfig()
    if group:
        granularity = PerGroup(group)
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=granularity
        )
    quantize_(made, config)
    return made


def onnx_nibbles(model: torch.nn.Module, example: Item, shapes: object, folder: Path) -> Runner:
    """Return a call of ONNX Runtime with int4 weights in groups, and activations quantised at run time."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    plain, made = folder / "plain4.onnx", folder / "int4.onnx"
    export_onnx(model, example, shapes, plain)
    quantizer = MatMulNBitsQuantizer(onnx.load(plain), block_size=GROUP, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(made))
    return onnxruntime_runner(made)


def onnx_quantised(model: torch.nn.Module, example: Item, shapes: object, folder: Path) -> Runner:
    """Return a call of ONNX Runtime with int8 weights and activations quantised at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain, made = folder / "plain.onnx", folder / "int8.onnx"
    export_onnx(model, example, shapes, plain)
    quantize_dynamic(plain, made, weight_type=QuantType.QInt8)
    return onnxruntime_runner(made)


class Layer(torch.nn.Module):
    """The layer, with a named argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(K, N, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply rows by the weight."""
        return self.linear(x)  # type: ignore[no-any-return]


def layer(folder: Path) -> list[Figure]:
    """One linear layer at several numbers of rows."""
    torch.manual_seed(0)
    model, example = Layer().eval(), {"x": torch.randn(5, K)}
    options = {"kwargs": example, "dynamic_shapes": {"x": {0: ROW}}, "strategy": "generic"}
    runners: dict[str, Runner] = {
        "f32": _call(shapevm.compile(model, **options)),
        "int8 weights": _call(shapevm.compile(model, **options, options=shapevm.Options(weights="int8"))),
        "int8": _call(shapevm.compile(quantised(model), **options)),
        "int4 weights": _call(shapevm.compile(model, **options, options=shapevm.Options(weights="int4"))),
        "int4": _call(shapevm.compile(quantised(model, GROUP), **options)),
        "int4, groups of 128": _call(shapevm.compile(quantised(model, 4 * GROUP), **options)),
        "eager f32": lambda item: model(**item),
    }
    if is_installed("onnxruntime"):
        runners["ONNX Runtime int8"] = onnx_quantised(model, example, {"x": {0: ROW}}, folder)
        runners["ONNX Runtime int4"] = onnx_nibbles(model, example, {"x": {0: ROW}}, folder)
    return [_at(runners, rows) for rows in ROWS]


def _call(exe: shapevm.Executable) -> Runner:
    return lambda item: exe(**item)


def _at(runners: dict[str, Runner], rows: int) -> Figure:
    """Compare the contestants at so many rows: with the speed of memory at one, with VNNI's at many."""
    item = {"x": torch.randn(rows, K)}
    peak, peak_flops = fma_peak()
    stream, n_bytes = reading(STREAM)
    runs: dict[str, Run] = {name: partial(run, item) for name, run in runners.items()}
    times = interleaved({**runs, "peak": peak, "stream": stream}, ROUNDS)
    text = ", ".join(f"{name} {median(times[name]) * 1e3:.2f}" for name in runs)
    flops = 2.0 * rows * K * N / (VNNI * peak_flops)
    names = tuple(BYTES) if rows == 1 else ("int8", "int4", "int4, groups of 128")
    shares = [
        K * N * BYTES[name] / n_bytes * ratio(times, "stream", name)
        if rows == 1
        else flops * ratio(times, "peak", name)
        for name in names
    ]
    limit = "of the stream" if rows == 1 else "of VNNI's peak"
    share = ", ".join(f"{name} {x:.0%}" for name, x in zip(names, shares, strict=True))
    gains = []
    for name in ("int8", "int4"):
        peer = f"ONNX Runtime {name}"
        against = [f"{ratio(times, 'f32', name):.2f}x own f32"]
        against += [f"{ratio(times, peer, name):.2f}x ONNX Runtime's"] if peer in runs else []
        gains.append(f"{name} {' and '.join(against)}")
    goals = {1: "90 % of the stream, int4 85 %", 128: "85 % of VNNI's peak, int4 55 %, of 128 70 %"}
    goal = goals.get(rows, "no slower than f32")
    figure = f"{text}; {limit}: {share}; {'; '.join(gains)}"
    return Figure(f"{rows} x {K} x {N} (ms)", figure, goal)


def encoder(folder: Path) -> list[Figure]:
    """The sentence encoder in int8 against f32."""
    model = load_bert()
    int8 = quantised(model)
    exes = {"f32": compile_bert(model, "generic"), "int8": compile_bert(int8, "generic")}
    runners: dict[str, Runner] = {name: _call(exe) for name, exe in exes.items()}
    if is_installed("onnxruntime"):
        runners["ONNX Runtime int8"] = onnx_quantised(model, example_inputs(), dynamic_shapes(), folder)
        if is_installed("openvino"):
            runners["OpenVINO int8"] = _openvino_static(model, folder / "encoder.onnx")
    found = []
    for length in LENGTHS:
        item = random_inputs(1, length)
        runs: dict[str, Run] = {name: partial(run, item) for name, run in runners.items()}
        times = interleaved(runs, ROUNDS)
        text = ", ".join(f"{name} {median(times[name]) * 1e3:.2f}" for name in runs)
        gains = ", ".join(f"{ratio(times, name, 'int8'):.2f}x {name}" for name in runs if name != "int8")
        found.append(
            Figure(f"encoder, length {length} (ms)", f"{text}: int8 {gains}", "2x f32, 1.2x the peer")
        )
    item = random_inputs(1, 64)
    ours, theirs = (first_array(result) for result in (exes["int8"](**item), int8(**item)))
    worst = float(np.abs(ours - theirs).max())
    return [*found, Figure("greatest difference to eager's int8", f"{worst:.1e}")]


def _openvino_static(model: torch.nn.Module, path: Path) -> Runner:
    """Return a call of OpenVINO with static activations: the same model with activations quantised at run
    time takes it 2.5 times as long."""
    samples = [random_inputs(1, length) for length in LENGTHS]
    onnx_static(model, [example_inputs(), *samples], path, dynamic_shapes(), ("MatMul", "Gemm"))
    return openvino_runner(path.with_suffix(".int8.onnx"))


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    if find_spec("torchao") is None:
        return [Figure("torchao is not installed", "not measured")]
    with torch.inference_mode(), tempfile.TemporaryDirectory() as name:
        return [*layer(Path(name)), *encoder(Path(name)), *missing()]
