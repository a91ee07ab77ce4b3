"""Small ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from shapevm.compiler.frontends.onnx.importer import Narrowing, import_model
from shapevm.compiler.frontends.onnx.reader import read_model

from shapevm.build.compile import compile_graphs


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    weights: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    version: int = 20,
    dtypes: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a model. `inputs`: shapes by name, of f32 unless `dtypes` says otherwise."""
    dtypes = dtypes or {}
    graph = helper.make_graph(
        nodes,
        "main",
        [
            helper.make_tensor_value_info(name, dtypes.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


node = helper.make_node


def compiled(model: onnx.ModelProto, constants: Mapping[str, Any] | None = None) -> Any:
    """Return the program of a model with generic kernels. `constants`: inputs that
    are the same in every call."""
    narrowing = Narrowing(constants=constants or {})
    return compile_graphs(lambda: [import_model(read_model(model), narrowing=narrowing)], "generic")


def agrees(model: onnx.ModelProto, *calls: Mapping[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """Compare a model's results with onnxruntime's, for each call's inputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    with compiled(model) as exe:
        for inputs in calls:
            found = exe(*inputs.values())
            found = found if isinstance(found, tuple) else (found,)
            shapes = {name: array.shape for name, array in inputs.items()}
            for one, other in zip(found, session.run(None, dict(inputs)), strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape), shapes
                np.testing.assert_allclose(one, other, tolerance, tolerance, err_msg=str(shapes))
