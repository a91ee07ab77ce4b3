"""Small models with many kinds of nodes, for damaging."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.compiler.frontends.onnx.onnx_models import model_of, node

_R = np.random.default_rng(0)


def _array(*shape: int) -> np.ndarray:
    return _R.standard_normal(shape).astype(np.float32)


def _way(name: str, op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)])


IMAGES = model_of(
    [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"], epsilon=1e-5),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("AveragePool", ["r"], ["q"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["q", "t"], ["u"], strides=[2, 2], output_padding=[1, 1]),
        node("Resize", ["u", "", "scales"], ["z"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Pad", ["z", "pads"], ["d"], mode="reflect"),
        node("GlobalAveragePool", ["d"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "m", "o"], ["y"], transB=1, alpha=0.5),
        node("ReduceMean", ["p", "axes"], ["e"], keepdims=0),
    ],
    {"x": ["batch", 3, "height", "width"]},
    {"w": _array(4, 3, 3, 3), "b": _array(4), "v": np.abs(_array(4)), "t": _array(4, 2, 3, 3),
     "scales": np.array([1, 1, 2, 2], np.float32), "pads": [0, 0, 1, 1, 0, 0, 1, 1], "m": _array(5, 2),
     "o": _array(5), "axes": [2, 3]},
    ("y", "e"),
)  # fmt: skip
TEXT = model_of(
    [
        node("Gather", ["table", "ids"], ["h"]),
        node("LayerNormalization", ["h", "s", "s"], ["n"], axis=-1),
        node("MatMul", ["n", "q"], ["a"]),
        node("Shape", ["a"], ["shape"]),
        node("Slice", ["shape", "zero", "two"], ["first"]),
        node("Concat", ["first", "heads"], ["wanted"], axis=0),
        node("Reshape", ["a", "wanted"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("Split", ["p"], ["p0", "p1"], axis=1, num_outputs=2),
        node("Mul", ["p0", "p1"], ["k"]),
        node("TopK", ["k", "one"], ["best", "places"], axis=-1),
        node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["y", "zero"], ["z"]),
        node("CumSum", ["k", "two0"], ["c"]),
        node("ScatterND", ["k", "at", "new"], ["sc"]),
        node("Where", ["w", "sc", "c"], ["out"]),
    ],
    {"ids": ["batch", "length"]},
    {"table": _array(11, 8), "s": _array(8), "q": _array(8, 8), "zero": [0], "two": [2], "heads": [2, 4],
     "one": [1], "two0": np.array(2), "at": np.array([[0, 0, 0]]), "new": _array(1, 4),
     "w": np.array([True])},
    ("z", "out"),
    dtypes={"ids": TensorProto.INT64},
)  # fmt: skip
CONTROL = model_of(
    [
        node("Shape", ["x"], ["shape"]),
        node("ReduceProd", ["shape"], ["n"], keepdims=0),
        node("Greater", ["n", "two"], ["is_long"]),
        node("If", ["is_long"], ["a"], then_branch=_way("p", "Neg"), else_branch=_way("q", "Abs")),
        node("Range", ["zero", "n", "one"], ["line"]),
        node("Cast", ["line"], ["f"], to=TensorProto.FLOAT),
        node("ConstantOfShape", ["shape"], ["ones"],
             value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        node("Expand", ["one_f", "shape"], ["e"]),
        node("Add", ["a", "ones"], ["s"]),
        node("Add", ["s", "e"], ["y"]),
        node("NonZero", ["y"], ["places"]),
        node("Identity", ["f"], ["z"]),
    ],
    {"x": ["rows", "columns"]},
    {"two": np.array(2), "zero": np.array(0), "one": np.array(1), "one_f": np.ones((1, 1), np.float32)},
    ("y", "z", "places"),
)  # fmt: skip
MODELS = (IMAGES, TEXT, CONTROL)
