"""Recurrent layers of ONNX models: ONNX Runtime's values at any length and batch."""

from typing import Any

import numpy as np
import onnx
import pytest

import shapevm
from tests.compiler.frontends.onnx.onnx_models import model_of, node
from tests.compiler.frontends.onnx.peers import byte_weights, same

RNG = np.random.default_rng(0)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
I32 = onnx.TensorProto.INT32
OWN = {
    "LSTM": ["HardSigmoid", "Softsign", "LeakyRelu"],
    "GRU": ["HardSigmoid", "Softsign"],
    "RNN": ["ThresholdedRelu"],
}


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape, np.float32) / 2).astype(np.float32)


def layer(op: str, ways: int, given: str = "", layout: int = 0, **attributes: Any) -> onnx.ModelProto:
    """Return a model of one layer of 5 inputs and 6 outputs. `given`: letters of the optional inputs, b(ias),
    l(engths), h(idden), c(ell), p(eepholes)."""
    n = GATES[op]
    weights = {"w": floats(ways, n * 6, 5), "r": floats(ways, n * 6, 6)}
    weights |= {"b": floats(ways, 2 * n * 6)} if "b" in given else {}
    weights |= {"p": floats(ways, 3 * 6)} if "p" in given else {}
    batch_first = bool(layout)
    inputs: dict[str, Any] = {"x": ["batch", "length", 5] if batch_first else ["length", "batch", 5]}
    inputs |= {"l": ["batch"]} if "l" in given else {}
    inputs |= {each: [ways, "batch", 6] for each in "hc" if each in given}
    names = ["x", "w", "r", *(each if each in given else "" for each in "blhcp"[: 5 if op == "LSTM" else 3])]
    attributes |= {"layout": layout} if layout else {}
    outputs = ["y", "last", "cell"][: 3 if op == "LSTM" else 2]
    made = node(op, names, outputs, hidden_size=6, **attributes)
    return model_of([made], inputs, weights, outputs, version=14, dtypes={"l": I32})


def arguments(model: onnx.ModelProto, length: int, batch: int) -> list[np.ndarray]:
    sizes = {"length": length, "batch": batch}
    made = []
    for each in model.graph.input:
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in each.type.tensor_type.shape.dim]
        is_lengths = each.name == "l"
        made.append(RNG.integers(1, length + 1, shape).astype(np.int32) if is_lengths else floats(*shape))
    return made


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ("", {}),
        ("bh", {"direction": "reverse"}),
        ("blhc", {"direction": "bidirectional"}),
        ("b", {"clip": 0.2}),
        ("bhc", {"own": True}),
        ("bp", {"input_forget": 1}),
        ("bh", {"linear_before_reset": 1}),
    ],
    ids=str,
)
def test_layers(op: str, given: str, attributes: dict[str, Any]) -> None:
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    kept = {key: value for key, value in attributes.items() if key not in ("own", "input_forget")}
    kept = kept if op == "GRU" else {key: kept[key] for key in kept if key != "linear_before_reset"}
    if "own" in attributes:
        kept |= {"activations": OWN[op], "activation_alpha": [0.3, 0.4]}
    if op == "LSTM" and "input_forget" in attributes:
        kept |= {"input_forget": 1}
    allowed = given if op == "LSTM" else given.replace("c", "").replace("p", "")
    model = layer(op, ways, allowed, **kept)
    with shapevm.compile(model) as exe:
        sets = [arguments(model, length, batch) for length, batch in ((1, 1), (4, 3), (7, 2))]
        same(exe, model, *sets, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_batches_that_come_first(op: str) -> None:
    """ONNX Runtime refuses them, so the reference is the layer with permuted tensors."""
    model, other = layer(op, 1, "b", layout=1), layer(op, 1, "b")
    del other.graph.initializer[:]
    other.graph.initializer.extend(model.graph.initializer)
    x = floats(3, 4, 5)
    with shapevm.compile(model) as exe, shapevm.compile(other) as plain:
        made, last, *_ = exe(x)
        wanted, wanted_last, *_ = plain(x.transpose(1, 0, 2).copy())
        np.testing.assert_array_equal(made, wanted.transpose(2, 0, 1, 3))
        np.testing.assert_array_equal(last, wanted_last.transpose(1, 0, 2))


def test_no_steps() -> None:
    model = layer("GRU", 1, "h")
    with shapevm.compile(model) as exe:
        h = floats(1, 2, 6)
        made, last = exe(np.zeros((0, 2, 5), np.float32), h)
        assert made.shape == (0, 1, 2, 6)
        np.testing.assert_array_equal(last, h)


def test_functions_without_a_lowering_are_named() -> None:
    with pytest.raises(
        shapevm.UnsupportedOp, match="RNN: the activation 'Affine' cannot be compiled; use one"
    ):
        shapevm.compile(layer("RNN", 1, activations=["Affine"]))


@pytest.mark.parametrize("ways", [1, 2])
def test_quantised_weights(ways: int) -> None:
    scales = {name: np.full(ways, 0.01, np.float32) for name in ("ws", "rs")}
    zeros = {name: np.zeros(ways, np.int8) for name in ("wz", "rz")}
    weights = {
        "w": byte_weights(RNG, ways, 5, 24),
        "r": byte_weights(RNG, ways, 6, 24),
        "b": floats(ways, 48),
        **scales,
        **zeros,
    }
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    direction = "bidirectional" if ways == 2 else "forward"
    made = node("DynamicQuantizeLSTM", names, ["y", "last", "cell"], domain="com.microsoft", hidden_size=6,
                direction=direction)  # fmt: skip
    model = model_of([made], {"x": ["length", "batch", 5]}, weights, ["y", "last", "cell"], version=14)
    with shapevm.compile(model) as exe:
        same(exe, model, *(arguments(model, length, 1) for length in (1, 4, 9)), atol=1e-5)
