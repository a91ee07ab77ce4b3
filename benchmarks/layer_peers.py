"""One convolution in other runtimes: the seconds of its node alone, as their profilers tell them.

A model of one layer would be charged with bringing its image into the runtime's own order and back, which a
network does once.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from convolutions import padding
from measure import Run, seconds
from peers import is_installed

CALLS = 6  # a round
Layer = tuple[int, ...]  # as `convolutions.LAYERS`
Contestant = tuple[Run, Callable[[], list[float]]]  # a call, and the seconds of all calls so far


def write_model(path: Path, layer: Layer) -> None:
    """Write an ONNX file of relu(conv(x) + bias)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    side, c, f, kernel, stride, groups, *_ = layer
    rng, pad = np.random.default_rng(0), padding(kernel, stride)
    given = {"w": (f, c // groups, kernel, kernel), "b": (f,)}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in given.items()
    ]
    window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["sum"], **window),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    out = (side + 2 * pad - kernel) // stride + 1
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, c, side, side]), ("y", [1, f, out, out]))
    ]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def onnxruntime_layer(path: Path, image: np.ndarray) -> Contestant:
    """Return a call of ONNX Runtime, and its profile; the profile ends the session."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling, options.profile_file_prefix = True, str(path.with_suffix(""))
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def profile() -> list[float]:
        events = json.loads(Path(session.end_profiling()).read_text())
        nodes = (e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time"))
        return [e["dur"] / 1e6 for e in nodes if "Conv" in e["args"]["op_name"]]

    return lambda: session.run(None, {"x": image}), profile


def openvino_layer(path: Path, image: np.ndarray) -> Contestant:
    """Return a call of OpenVINO's CPU plugin in f32, and its profile."""
    import openvino as ov

    config = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERF_COUNT": True}
    request = ov.Core().compile_model(path, "CPU", config).create_infer_request()
    found: list[float] = []

    def run() -> None:
        request.infer({"x": image}, share_inputs=True)
        nodes = (node for node in request.profiling_info if "Conv" in node.node_type)
        found.append(sum(node.real_time.total_seconds() for node in nodes))

    return run, lambda: found


RUNTIMES = {"onnxruntime": onnxruntime_layer, "openvino": openvino_layer}


def measure_peers(layer: Layer, own: dict[str, Run], rounds: int) -> dict[str, float]:
    """Return the median seconds of each of `own`, kernels that are timed from outside, and of each installed
    runtime, in turn.

    Everybody runs CALLS times a round, and the last counts: its own data are in the caches then. Few are not
    enough: the third-level cache of some machines takes in only what came back to the second, so an image
    that nobody writes comes from memory still (96 channels at 56x56: 337, 222, 146 us; at 112x112, stride 2:
    122 us the third time, 89 the sixth), while other runtimes bring theirs into their own order just before.
    """
    side, c, *_ = layer
    image = np.random.default_rng(0).standard_normal((1, c, side, side)).astype(np.float32)
    found: dict[str, list[float]] = {name: [] for name in own}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        installed = [name for name in RUNTIMES if is_installed(name)]
        if installed:
            write_model(path, layer)
        peers = {name: RUNTIMES[name](path, image) for name in installed}
        for _ in range(rounds):
            for name, run in own.items():
                found[name] += [seconds(run) for _ in range(CALLS)]
            for call, _ in peers.values():
                for _ in range(CALLS):
                    call()
        found |= {name: profile() for name, (_, profile) in peers.items()}
    return {name: float(np.median(values[CALLS - 1 :: CALLS])) for name, values in found.items()}
