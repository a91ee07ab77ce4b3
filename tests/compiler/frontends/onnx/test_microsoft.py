"""Operators of the domain com.microsoft: ONNX Runtime's values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import shapevm
from tests.compiler.frontends.onnx.onnx_models import model_of, node
from tests.compiler.frontends.onnx.peers import byte_weights, expected, same

RNG = np.random.default_rng(0)
I32, I64 = onnx.TensorProto.INT32, onnx.TensorProto.INT64


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def check(
    op: str,
    inputs: Mapping[str, Sequence[Any]],
    weights: Mapping[str, Any],
    sets: Sequence[Sequence[np.ndarray]],
    names: str,
    outputs: Sequence[str] = ("y",),
    dtypes: Mapping[str, int] | None = None,
    **attributes: Any,
) -> None:
    """Compare an operator with inputs of these names, separated by spaces, "-" for none."""
    given = ["" if name == "-" else name for name in names.split()]
    made = node(op, given, list(outputs), domain="com.microsoft", **attributes)
    model = model_of([made], inputs, weights, [name for name in outputs if name], dtypes=dtypes)
    with shapevm.compile(model) as exe:
        same(exe, model, *sets, atol=2e-5)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "BiasGelu", "QuickGelu"])
def test_activations(op: str) -> None:
    names = "x b" if op in ("FastGelu", "BiasGelu") else "x"
    check(op, {"x": ["n", 8]}, {"b": floats(8)}, [[floats(3, 8)], [floats(1, 8)]], names)


def test_products() -> None:
    inputs = {"x": ["n", 8, "m"]}
    sets = [[floats(2, 8, 3)], [floats(1, 8, 1)]]
    check("FusedMatMul", inputs, {"w": floats(5, 8)}, sets, "x w", alpha=0.5, transA=1, transB=1)
    check("FusedGemm", {"x": ["n", 8]}, {"w": floats(8, 5), "b": floats(5)}, [[floats(3, 8)]], "x w b",
          activation="LeakyRelu", activation_alpha=0.2)  # fmt: skip


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_params": [0.2]},
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ],
)
def test_convolutions(attributes: dict[str, Any]) -> None:
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4)}
    sets = [[floats(n, 3, 5, n + 3), floats(n, 4, 3, n + 1)] for n in (1, 2)]
    check("FusedConv", {"x": ["n", 3, 5, "v"], "z": ["n", 4, 3, "u"]}, weights, sets, "x w b z", **attributes)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("bits", "k"), [(4, 64), (4, 80), (8, 64)])
def test_weights_of_blocks(bits: int, k: int, has_zeros: bool) -> None:
    n, block = 24, 32
    count = -(-k // block)
    weights: dict[str, Any] = {
        "w": RNG.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8),
        "s": (floats(n, count) ** 2 / 10).astype(np.float32),
        "z": RNG.integers(0, 256, (n, -(-count * bits // 8))).astype(np.uint8),
    }
    sets = [[floats(2, rows, k)] for rows in (1, 3)]
    settings = {"K": k, "N": n, "bits": bits, "block_size": block}
    names = "x w s z" if has_zeros else "x w s"
    made = node("MatMulNBits", names.split(), ["y"], domain="com.microsoft", **settings)
    model = model_of([made], {"x": [2, "rows", k]}, weights)
    with shapevm.compile(model) as exe:
        same(exe, model, *sets, atol=2e-3 if bits == 4 else 2e-2)


def test_normalisations() -> None:
    inputs = {"x": ["n", "length", 8], "skip": ["n", "length", 8]}
    weights = {"g": floats(8), "b": floats(8), "bias": floats(8)}
    sets = [[floats(n, length, 8), floats(n, length, 8)] for n, length in ((1, 1), (2, 3))]
    results = ["y", "", "", "total"]
    check("SkipLayerNormalization", inputs, weights, sets, "x skip g b bias", results, epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", inputs, weights, sets, "x skip g bias", results, epsilon=1e-5)


def test_embeddings() -> None:
    weights = {
        "words": floats(11, 8),
        "places": floats(9, 8),
        "kinds": floats(2, 8),
        "g": floats(8),
        "b": floats(8),
    }
    inputs = {name: ["n", "length"] for name in ("ids", "segments", "mask")}

    def drawn(n: int, length: int) -> list[np.ndarray]:
        return [RNG.integers(0, high, (n, length)).astype(np.int32) for high in (11, 2, 2)]

    check("EmbedLayerNormalization", inputs, weights, [drawn(1, 1), drawn(3, 7)],
          "ids segments words places kinds g b mask", ["y", "counts"],
          dict.fromkeys(inputs, I32))  # fmt: skip


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotations(interleaved: int) -> None:
    weights = {"cos": floats(16, 4), "sin": floats(16, 4)}
    inputs = {"x": ["n", "length", 24], "p": ["n", "length"]}
    sets = [[floats(n, length, 24), RNG.integers(0, 16, (n, length))] for n, length in ((1, 1), (2, 5))]
    check("RotaryEmbedding", inputs, weights, sets, "x p cos sin", dtypes={"p": I64}, interleaved=interleaved)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("has_past", [False, True])
def test_attention(unidirectional: int, has_past: bool) -> None:
    weights = {"w": floats(16, 48) / 4, "b": floats(48)}
    inputs = {"x": ["n", "length", 16], "mask": ["n", "keys"]}
    inputs |= {"past": [2, "n", 4, "before", 4]} if has_past else {}
    sets = []
    for n, length, before in ((1, 1, 3), (2, 5, 2)):
        mask = np.ones((n, length + before * has_past), np.int32)
        mask[:, :1] = 0
        sets.append([floats(n, length, 16), mask, *([floats(2, n, 4, before, 4)] if has_past else [])])
    if not has_past:
        sets = sets[1:]
    names = "x w b mask past" if has_past else "x w b mask"
    check("Attention", inputs, weights, sets, names, ["y", "present"] if has_past else ["y"], {"mask": I32},
          num_heads=4, unidirectional=unidirectional)  # fmt: skip


def test_several_heads() -> None:
    inputs = {"q": ["n", "length", 16], "k": ["n", "keys", 16], "v": ["n", "keys", 16], "mask": ["n", "keys"]}
    sets = []
    for n, length, keys in ((1, 1, 1), (2, 5, 7)):
        mask = np.ones((n, keys), np.int32)
        mask[:, keys // 2 + 1 :] = 0
        sets.append([floats(n, length, 16), floats(n, keys, 16), floats(n, keys, 16), mask])
    check(
        "MultiHeadAttention",
        inputs,
        {"b": floats(48)},
        sets,
        "q k v b mask",
        dtypes={"mask": I32},
        num_heads=4,
    )


@pytest.mark.parametrize("rotary", [0, 1])
def test_groups_of_queries(rotary: int) -> None:
    inputs: dict[str, Any] = {
        "q": ["n", "length", 64], "k": ["n", "length", 32], "v": ["n", "length", 32],
        "pk": ["n", 2, "before", 16], "pv": ["n", 2, "before", 16], "ends": ["n"], "total": [1],
    }  # fmt: skip
    sets = []
    for n, length, before in ((1, 5, 0), (2, 1, 7)):
        sets.append([
            floats(n, length, 64), floats(n, length, 32), floats(n, length, 32),
            floats(n, 2, before, 16), floats(n, 2, before, 16),
            np.full(n, length + before - 1, np.int32), np.array([length + before], np.int32),
        ])  # fmt: skip
    angles = np.outer(np.arange(16), 0.3 ** np.arange(8))
    weights = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    names = "q k v pk pv ends total" + (" cos sin" if rotary else "")
    check("GroupQueryAttention", inputs, weights, sets, names, ["y", "present_k", "present_v"],
          {"ends": I32, "total": I32}, num_heads=4, kv_num_heads=2, do_rotary=rotary)  # fmt: skip


def test_prompts_that_are_padded_at_their_ends() -> None:
    """The results before a sequence's end are those of the sequence."""
    made = node("GroupQueryAttention", ["q", "k", "v", "", "", "ends", "total"], ["y"],
                domain="com.microsoft", num_heads=4, kv_num_heads=2)  # fmt: skip
    inputs = {"q": ["n", "l", 64], "k": ["n", "l", 32], "v": ["n", "l", 32], "ends": ["n"], "total": [1]}
    model = model_of([made], inputs, dtypes={"ends": I32, "total": I32})
    given = [floats(3, 6, 64), floats(3, 6, 32), floats(3, 6, 32)]
    ends = np.array([5, 0, 3], np.int32)
    with shapevm.compile(model) as exe:
        (wanted,) = expected(model, [*given, ends, np.array([6], np.int32)])
        found = exe(*given, ends, np.array([6], np.int32))
        for one, other, end in zip(found, wanted, ends, strict=True):
            np.testing.assert_allclose(one[: end + 1], other[: end + 1], 1e-4, 2e-5)
        with pytest.raises(shapevm.Error, match="seqlens_k . 1 must be at most the positions"):
            exe(*given, ends + 1, np.array([6], np.int32))


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_of_integers(unidirectional: int) -> None:
    def bytes_of(*shape: int) -> np.ndarray:
        return RNG.integers(0, 255, shape).astype(np.uint8)

    weights = {
        "w": byte_weights(RNG, 32, 96), "b": floats(96),
        "x_scale": np.float32(0.01), "w_scale": np.float32(0.02),
        "x_zero": np.uint8(120), "w_zero": np.int8(3),
    }  # fmt: skip
    sets = [[bytes_of(2, 5, 32), np.array([5, 3], np.int32)], [bytes_of(1, 1, 32), np.array([1], np.int32)]]
    check("QAttention", {"x": ["n", "length", 32], "mask": ["n"]}, weights, sets,
          "x w b x_scale w_scale mask x_zero w_zero", dtypes={"x": onnx.TensorProto.UINT8, "mask": I32},
          num_heads=4, unidirectional=unidirectional)  # fmt: skip


def test_convolutions_of_channels_last() -> None:
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4)}
    settings: dict[str, Any] = {"pads": [1, 0, 1, 2], "strides": [2, 1]}
    last = node("NhwcConv", ["x", "w", "b"], ["y"], domain="com.microsoft", **settings)
    first = node("Conv", ["x", "w", "b"], ["y"], **settings)
    x = floats(2, 5, 7, 3)
    (wanted,) = expected(model_of([first], {"x": ["n", 3, "h", "v"]}, weights), [x.transpose(0, 3, 1, 2)])
    with shapevm.compile(model_of([last], {"x": ["n", "h", "v", 3]}, weights)) as exe:
        np.testing.assert_allclose(exe(x), wanted.transpose(0, 2, 3, 1), 1e-4, 1e-5)


def test_sequences_of_other_lengths_are_refused() -> None:
    inputs: dict[str, Any] = {"q": ["n", 1, 32], "k": ["n", 1, 16], "v": ["n", 1, 16], "ends": ["n"]}
    made = node("GroupQueryAttention", ["q", "k", "v", "", "", "ends", "total"], ["y"],
                domain="com.microsoft", num_heads=4, kv_num_heads=2)  # fmt: skip
    model = model_of([made], inputs, {"total": np.int32([3])}, dtypes={"ends": I32})
    with (
        shapevm.compile(model) as exe,
        pytest.raises(shapevm.Error, match="seqlens_k . 1 must be at most the positions"),
    ):
        exe(floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16), np.array([0, 2], np.int32))
