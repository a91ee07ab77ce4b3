"""Peak resident memory of an inference process: what calls add to a process that has imported the runtime.

Each contestant runs in a process of its own: what is resident after the imports is taken off the peak of
loading the model and calling it five times. Ours is an artifact with kernels for the size, as it would be
deployed. The yardstick is what no runtime can do without: the weights, and the activations that live at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Figure
from peers import export_onnx, is_installed
from sentences import dynamic_shapes, example_inputs, load_bert, random_inputs

import shapevm

CALLS = 5
BATCH, LENGTH, SIDE = 1, 128, 224
OURS = """
exe = shapevm.load(sys.argv[1], strategy=sys.argv[3])
run = lambda: exe.run(inputs)
"""
ONNX = """
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
run = lambda: session.run(None, inputs)
"""
CHILD = """
import json, sys
import numpy as np
import {runtime}
def status(name):
    return next(int(l.split()[1]) << 10 for l in open("/proc/self/status") if l.startswith(name))
inputs = dict(np.load(sys.argv[2]))
{prepare_threads}
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = status("VmRSS")
{load}
for _ in range({calls}):
    run()
print(json.dumps([status("VmHWM") - before, {arena}, status("VmHWM")]))
"""


def child(runtime: str, load: str, *arguments: str) -> list[int]:
    """Return (peak bytes beyond the imports, bytes of activations where they are known, peak bytes) of a
    process."""
    ours = runtime == "shapevm"
    code = CHILD.format(
        runtime=runtime,
        load=load,
        calls=CALLS,
        prepare_threads="shapevm.set_threads(1)" if ours else "",
        arena="exe.stats().arena_bytes" if ours else "0",
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(
    what: str, model: torch.nn.Module, example: dict[str, Any], shapes: Any, item: dict[str, Any], sizes: Any
) -> Figure:
    """Measure one model at one size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arrays = {key: value.numpy() for key, value in item.items()}
        np.savez(folder / "inputs.npz", **arrays)
        exe = shapevm.compile(
            model,
            kwargs=example,
            dynamic_shapes=shapes,
            options=shapevm.Options(sizes=[sizes]),
            strategy="generic",
        )
        exe.save(folder / "model.svm")
        inputs = str(folder / "inputs.npz")
        peak, arena, _ = child("shapevm", OURS, str(folder / "model.svm"), inputs, "bucket")
        weights = sum(p.nbytes for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
        least = weights + arena
        text = f"{peak / 2**20:.0f} MiB, {peak / least:.2f}x of weights {weights / 2**20:.0f} "
        text += f"and activations {arena / 2**20:.0f}"
        if is_installed("onnxruntime"):
            export_onnx(model, example, shapes, folder / "model.onnx")
            theirs, *_ = child("onnxruntime", ONNX, str(folder / "model.onnx"), inputs)
            text += f"; ONNX Runtime {theirs / 2**20:.0f} MiB, {theirs / least:.2f}x"
    return Figure(
        f"{what}: peak resident memory of loading and calling", text, "at most 1.15x; less than ORT"
    )


def encoder() -> Figure:
    """The sentence encoder."""
    item = random_inputs(BATCH, LENGTH)
    sizes = {"batch": BATCH, "length": LENGTH}
    return compared("MiniLM at length 128", load_bert(), example_inputs(), dynamic_shapes(), item, sizes)


def resnet() -> Figure:
    """A ResNet-50 with random weights."""
    from transformers import ResNetConfig, ResNetModel

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ResNetModel(ResNetConfig())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).pooler_output  # type: ignore[no-any-return]

    batch, half = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("half", min=5, max=10)
    shapes = {"x": {0: batch, 2: 32 * half, 3: 32 * half}}
    example = {"x": torch.randn(2, 3, 192, 192)}
    item = {"x": torch.randn(BATCH, 3, SIDE, SIDE)}
    sizes = {"batch": BATCH, "half": SIDE // 32}
    return compared("ResNet-50 at 1 x 224", Features().eval(), example, shapes, item, sizes)


class AddOne(torch.nn.Module):
    """A program of one operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: f32[rows, 8]; returns the same shape."""
        return x + 1


def one_operator() -> Figure:
    """The whole process, imports and all, of a program of one operator."""
    example, shapes = {"x": torch.ones(4, 8)}, {"x": {0: torch.export.Dim("rows", min=1, max=64)}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = str(folder / "inputs.npz")
        np.savez(inputs, x=example["x"].numpy())
        shapevm.compile(AddOne(), kwargs=example, dynamic_shapes=shapes).save(folder / "model.svm")
        *_, peak = child("shapevm", OURS, str(folder / "model.svm"), inputs, "auto")
        text = f"{peak / 2**20:.0f} MiB"
        if is_installed("onnxruntime"):
            export_onnx(AddOne(), example, shapes, folder / "model.onnx")
            *_, theirs = child("onnxruntime", ONNX, str(folder / "model.onnx"), inputs)
            text += f"; ONNX Runtime {theirs / 2**20:.0f} MiB"
    return Figure("one operator: peak resident memory of the whole process", text, "less than ORT")


def figures() -> list[Figure]:
    """Return all figures."""
    with torch.inference_mode():
        return [encoder(), resnet(), one_operator()]
