"""Quantised ONNX models: ONNX Runtime's values, by kernels of integers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import shapevm
from shapevm.reports.inspect import inspection
from tests.compiler.frontends.onnx.onnx_models import model_of, node
from tests.compiler.frontends.onnx.peers import byte_weights, same

RNG = np.random.default_rng(0)
U8, I8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
MICROSOFT = "com.microsoft"
FACTORS: dict[str, Any] = {
    "s": np.float32(0.03), "z": np.uint8(120), "ys": np.float32(0.5), "yz": np.uint8(100),
    "ws": RNG.uniform(0.01, 0.1, 24).astype(np.float32), "wz": np.zeros(24, np.int8),
}  # fmt: skip


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def u8(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def formats(exe: shapevm.Executable, tmp_path: Path) -> list[str]:
    """Return the formats of a program's weights."""
    exe.save(tmp_path / "model.svm")
    return [row["format"] for row in inspection(tmp_path / "model.svm")["rounded_weights"]]


QDQ = [
    node("QuantizeLinear", ["x", "s", "z"], ["q"]),
    node("DequantizeLinear", ["q", "s", "z"], ["d"]),
]


@pytest.mark.parametrize(
    ("op", "shape", "axis", "attributes"),
    [
        ("MatMul", (16, 24), 1, {}),
        ("Gemm", (24, 16), 0, {"transB": 1}),
        ("Gemm", (16, 24), 1, {}),
        ("Conv", (24, 16, 3, 3), 0, {"pads": [1, 1, 1, 1]}),
    ],
)
def test_pairs_around_products_reach_kernels_of_integers(
    op: str, shape: tuple[int, ...], axis: int, attributes: dict[str, Any], tmp_path: Path
) -> None:
    weights = {**FACTORS, "w": byte_weights(RNG, *shape)}
    nodes = [
        *QDQ,
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=axis),
        node(op, ["d", "dw"], ["y"], **attributes),
    ]
    spatial = ["h", "v"] if op == "Conv" else []
    model = model_of(nodes, {"x": ["n", 16, *spatial]}, weights)
    with shapevm.compile(model) as exe:
        same(exe, model, *([floats(n, 16, *[n + 3] * len(spatial))] for n in (1, 2, 5)), atol=1e-3)
        assert formats(exe, tmp_path) == ["u8 x int8"]


@pytest.mark.parametrize(
    ("scale", "zero", "attributes"),
    [
        (np.float32(0.1), np.uint8(7), {}),
        (np.float32(0.1), np.int16(-7), {}),
        (np.array([0.1], np.float32), np.array([-3], np.int8), {}),
        (np.array([0.1, 0.2, 0.3, 0.7], np.float32), np.array([1, 2, 3, 4], np.uint8), {"axis": 1}),
        (np.array([0.1, 0.2, 0.3, 0.7], np.float32), np.array([1, 2, 3, 4], np.int8), {"axis": -2}),
        (floats(3, 2, 5) ** 2 + 0.1, i8(3, 2, 5), {"axis": 1, "block_size": 2}),
    ],
)
def test_a_tensor_and_back(scale: np.ndarray, zero: np.ndarray, attributes: dict[str, Any]) -> None:
    model = model_of(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
            node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
        ],
        {"x": [3 if scale.ndim == 3 else "n", 4, 5]},
        {"s": scale, "z": zero},
        outputs=["q", "y"],
        version=21,
    )
    with shapevm.compile(model) as exe:
        same(exe, model, *([floats(n, 4, 5) * 40] for n in ((3,) if scale.ndim == 3 else (1, 3))))


def test_integers_that_no_tensor_has_are_refused() -> None:
    model = model_of([node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=onnx.TensorProto.INT4)],
                     {"x": ["n"]}, FACTORS, version=21)  # fmt: skip
    with pytest.raises(shapevm.UnsupportedOp, match="the result of QuantizeLinear is of type INT4; use one"):
        shapevm.compile(model)


@pytest.mark.parametrize(
    ("weight", "zero"),
    [
        (byte_weights(RNG, 16, 24), np.int8(3)),
        (u8(16, 24), np.uint8(128)),
        (u8(16, 24), np.uint8(77)),
        (u8(16, 24), u8(24)),
    ],
)
def test_products_of_inputs_quantised_at_run_time(weight: np.ndarray, zero: Any, tmp_path: Path) -> None:
    model = model_of(
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "scale", "qz"]),
            node("MatMulInteger", ["q", "w", "qz", "wz"], ["y"]),
        ],
        {"x": ["n", 3, 16]},
        {"w": weight, "wz": zero},
        outputs=["y", "scale", "qz"],
    )
    with shapevm.compile(model) as exe:
        same(exe, model, [floats(2, 3, 16)], [np.zeros((1, 3, 16), np.float32)], [floats(5, 3, 16) + 9])
        assert formats(exe, tmp_path) == ["u8 x int8"]


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(("dtype", "group"), [(U8, 1), (I8, 1), (U8, 16)])
def test_convolutions_of_integers(dtype: int, group: int, is_known: bool, tmp_path: Path) -> None:
    draw = u8 if dtype == U8 else i8
    weights = {"w": byte_weights(RNG, 16, 16 // group, 3, 3), **({"z": draw()} if is_known else {})}
    model = model_of(
        [node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 0, 2, 1], group=group)],
        {"x": ["n", 16, "h", "v"], **({} if is_known else {"z": []})},
        weights,
        dtypes={"x": dtype, "z": dtype},
    )
    with shapevm.compile(model) as exe:
        for n, side in ((1, 3), (2, 7)):
            same(exe, model, [draw(n, 16, side, side), *([] if is_known else [np.array(draw())])])
        assert formats(exe, tmp_path) == ["u8 x f32" if group > 1 else "u8 x int8"]


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_weight_with_any_zero_point(kernel: int, tmp_path: Path) -> None:
    """Its integers without the zero point need nine bits; chains of such nodes compile in linear time."""
    nodes, name = [], "x"
    for i in range(24):
        nodes += [
            node("DynamicQuantizeLinear", [name], [f"q{i}", f"s{i}", f"z{i}"]),
            node("ConvInteger", [f"q{i}", "w", f"z{i}", "wz"], [f"i{i}"], pads=[kernel // 2] * 4),
            node("Cast", [f"i{i}"], [f"f{i}"], to=1),
            node("Mul", [f"f{i}", f"s{i}"], [f"m{i}"]),
            node("Mul", [f"m{i}", "ys"], [f"x{i}"]),
        ]
        name = f"x{i}"
    weights = {"w": u8(8, 8, kernel, kernel), "wz": np.uint8(101), "ys": np.float32(0.003)}
    model = model_of(nodes, {"x": ["n", 8, "h", "v"]}, weights, [name])
    with shapevm.compile(model) as exe:
        assert formats(exe, tmp_path) == ["u8 x int8"]
    first = model_of(nodes[:2], {"x": ["n", 8, "h", "v"]}, weights, ["i0"])
    with shapevm.compile(first) as exe:
        same(exe, first, *([floats(n, 8, side, side)] for n, side in ((1, 3), (2, 7))))


def test_a_product_of_two_run_time_matrices() -> None:
    names = ["x", "w", "xz", "wz"]
    inputs: dict[str, Any] = {"x": ["n", "m", "k"], "w": ["n", "k", 5], "xz": [], "wz": []}
    model = model_of([node("MatMulInteger", names, ["y"])], inputs, dtypes=dict.fromkeys(names, U8))
    with shapevm.compile(model) as exe:
        for n, m, k in ((1, 1, 1), (2, 3, 700), (0, 3, 4)):
            same(exe, model, [u8(n, m, k), u8(n, k, 5), np.array(u8()), np.array(u8())])
        made = exe(u8(1, 4, 0), u8(1, 0, 5), np.array(u8()), np.array(u8()))  # ONNX Runtime's is garbage
        assert made.shape == (1, 4, 5)
        assert not made.any()


@pytest.mark.parametrize(
    ("op", "weight", "attributes"),
    [
        ("QLinearMatMul", byte_weights(RNG, 16, 24), {}),
        ("QLinearConv", byte_weights(RNG, 24, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("QLinearConv", byte_weights(RNG, 24, 16, 3, 3), {"strides": [2, 1], "bias": True}),
    ],
)
def test_products_between_quantised_tensors(
    op: str, weight: np.ndarray, attributes: dict[str, Any], tmp_path: Path
) -> None:
    names = ["x", "s", "z", "w", "ws", "wz", "ys", "yz"]
    names += ["bias"] if attributes.pop("bias", False) else []
    weights = {**FACTORS, "w": weight, "bias": RNG.integers(-999, 999, 24).astype(np.int32)}
    spatial = ["h", "v"] if weight.ndim == 4 else []
    model = model_of(
        [node(op, names, ["y"], **attributes)], {"x": ["n", 16, *spatial]}, weights, dtypes={"x": U8}
    )
    with shapevm.compile(model) as exe:
        same(exe, model, *([u8(n, 16, *[n + 3] * len(spatial))] for n in (1, 3)), atol=1)
        assert formats(exe, tmp_path) == ["u8 x int8"]


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("QLinearAdd", (5,), {}),
        ("QLinearMul", (5,), {}),
        ("QLinearSigmoid", (5,), {}),
        ("QLinearLeakyRelu", (5,), {"alpha": 0.1}),
        ("QLinearSoftmax", (5,), {"axis": -1, "opset": 13}),
        ("QLinearGlobalAveragePool", (3, 6, 5), {}),
        ("QLinearAveragePool", (3, 6, 5), {"kernel_shape": [2, 2]}),
    ],
)
def test_operators_between_quantised_tensors(
    op: str, shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    inputs = ["x", "v"] if op in ("QLinearAdd", "QLinearMul") else ["x"]
    names = [name for each in inputs for name in (each, "s", "z")]
    model = model_of(
        [node(op, [*names, "ys", "yz"], ["y"], domain=MICROSOFT, **attributes)],
        {name: ["n", *shape] for name in inputs},
        FACTORS,
        dtypes=dict.fromkeys(inputs, U8),
    )
    with shapevm.compile(model) as exe:
        same(exe, model, [u8(4, *shape) for _ in inputs], [u8(1, *shape) for _ in inputs], atol=1)


def test_tensors_of_different_scales_are_joined() -> None:
    names = ["ys", "yz", "x", "s", "z", "v", "ys", "yz"]
    model = model_of(
        [node("QLinearConcat", names, ["y"], domain=MICROSOFT, axis=1)],
        {"x": ["n", 3], "v": ["n", 2]},
        FACTORS,
        dtypes={"x": U8, "v": U8},
    )
    with shapevm.compile(model) as exe:
        same(exe, model, [u8(4, 3), u8(4, 2)], atol=1)


@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products_of_integers_in_floats(op: str, tmp_path: Path) -> None:
    is_dynamic = op == "DynamicQuantizeMatMul"
    names = ["x", "w", "ws", "wz", "bias"] if is_dynamic else ["x", "w", "s", "ws", "z", "wz", "bias"]
    model = model_of(
        [node(op, names, ["y"], domain=MICROSOFT)],
        {"x": ["n", 3, 16]},
        {**FACTORS, "w": byte_weights(RNG, 16, 24), "bias": floats(24)},
        dtypes={} if is_dynamic else {"x": U8},
    )
    draw = floats if is_dynamic else u8
    with shapevm.compile(model) as exe:
        same(exe, model, [draw(2, 3, 16)], [draw(1, 3, 16)], atol=1e-3)
        assert formats(exe, tmp_path) == ["u8 x int8"]
