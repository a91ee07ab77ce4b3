"""ONNX Runtime as the reference of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import shapevm

#: int8 weights are below it: without dot products of bytes, ONNX Runtime saturates sums of two products of
#: u8 by int8 at 16 bits.
EXACT_BYTES = 128 if "vnni" in Path("/proc/cpuinfo").read_text() else 64


def byte_weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random int8 weights whose products ONNX Runtime adds exactly on this machine."""
    return rng.integers(-EXACT_BYTES, EXACT_BYTES, shape).astype(np.int8)


def expected(model: onnx.ModelProto | str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return ONNX Runtime's results, without its optimisations of graphs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, ["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def same(
    exe: shapevm.Executable, model: onnx.ModelProto | str, *sets: Sequence[np.ndarray], atol: float = 0.0
) -> None:
    """Assert that results are ONNX Runtime's for sets of inputs, within `atol` and its relative error."""
    for inputs in sets:
        found = exe(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        wanted = expected(model, inputs)
        assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in wanted]
        for one, other in zip(found, wanted, strict=True):
            exact = other.dtype.kind != "f"
            np.testing.assert_allclose(
                one.astype(np.float64), other.astype(np.float64), rtol=0 if exact else 1e-4, atol=atol
            )
