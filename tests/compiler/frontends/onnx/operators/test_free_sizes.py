"""Operators at free sizes agree with onnxruntime: loops, sums of products, pools, suppression of boxes."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import shapevm
from tests.compiler.frontends.onnx.onnx_models import agrees, compiled, model_of, node

DRAW = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape, np.float32)


def _graph(nodes: list[Any], inputs: dict[str, int], outputs: list[str]) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(name, kind, [] if name in "ic" else None)
            for name, kind in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )


@pytest.mark.parametrize(
    "equation", ["bij,bjk->bik", "bij,bkj->ikb", "...ij,jk->...ik", "bij,bik", "bij,bij->b"]
)
def test_einsum(equation: str) -> None:
    left, right = equation.partition("->")[0].split(",")
    sizes = {"b": (1, 3, 2), "i": (2, 1, 5), "j": (4, 3, 1), "k": (3, 7, 2)}
    texts = [text.replace("...", "b") for text in (left, right)]
    model = model_of(
        [node("Einsum", ["x", "y"], ["z"], equation=equation)],
        {name: list(text) for name, text in zip("xy", texts, strict=True)},
        outputs=["z"],
    )
    calls = [
        {name: _floats(*(sizes[c][i] for c in text)) for name, text in zip("xy", texts, strict=True)}
        for i in range(3)
    ]
    agrees(model, *calls)


def test_einsum_of_a_diagonal_and_three_operands() -> None:
    nodes = [node("Einsum", ["x", "y", "z"], ["w"], equation="ii,ij,jk->k")]
    model = model_of(nodes, {"x": ["n", "n"], "y": ["n", "m"], "z": ["m", 3]}, outputs=["w"])
    for n, m in ((2, 3), (1, 5)):
        agrees(model, {"x": _floats(n, n), "y": _floats(n, m), "z": _floats(m, 3)})


def test_a_triangle_whose_diagonal_is_computed() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["height"]),
        node("Sub", ["k", "height"], ["first"]),
        node("Trilu", ["x", "first"], ["z"], upper=0),
        node("Trilu", ["x", "k"], ["w"]),
    ]
    model = model_of(
        nodes,
        {"x": ["n", "m"], "k": []},
        {"zero": np.array(0, np.int64)},
        outputs=["z", "w"],
        dtypes={"k": TensorProto.INT64},
    )
    for n, m, k in ((4, 3, 3), (2, 5, -1), (1, 1, 0)):
        agrees(model, {"x": _floats(n, m), "k": np.array(k, np.int64)})


def test_loop_until_its_condition_fails() -> None:
    body = _graph(
        [
            node("Mul", ["v", "two"], ["w"]),
            node("ReduceMax", ["w"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["on"]),
        ],
        {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT},
        ["on", "w", "w"],
    )
    body.node.append(node("Identity", ["w"], ["row"]))
    body.output[2].name = "row"
    weights = {"two": np.float32(2), "limit": np.float32(50), "trips": np.int64(20), "yes": np.array(True)}
    model = model_of([node("Loop", ["trips", "yes", "x"], ["y", "rows"], body=body)], {"x": ["n"]}, weights,
                     ["y", "rows"])  # fmt: skip
    agrees(model, {"x": np.float32([1, 2])}, {"x": np.float32([30])}, {"x": np.float32([1, 1, 7])})


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loop_of_run_time_length(trips: int) -> None:
    body = _graph(
        [node("Identity", ["c"], ["d"]), node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
         node("Add", ["v", "f"], ["w"]), node("Mul", ["w", "w"], ["row"])],
        {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT},
        ["d", "w", "row"],
    )  # fmt: skip
    model = model_of([node("Loop", ["trips", "", "x"], ["y", "rows"], body=body)], {"trips": [], "x": ["n"]},
                     None, ["y", "rows"], dtypes={"trips": TensorProto.INT64})  # fmt: skip
    if trips:
        agrees(model, *({"trips": np.array(trips), "x": _floats(n)} for n in (3, 1)))
        return
    with compiled(model) as exe:
        y, rows = exe(np.array(0), np.ones(3, np.float32))
    assert y.shape == (3,) and rows.shape == (0, 3)  # onnxruntime gives rows of no elements


def test_a_loop_whose_value_grows_is_written_out() -> None:
    body = _graph(
        [node("Identity", ["c"], ["d"]), node("Concat", ["v", "v"], ["w"], axis=0)],
        {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT},
        ["d", "w"],
    )
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    agrees(model_of([loop], {"x": ["n"]}, {"trips": np.int64(3)}), {"x": _floats(2)}, {"x": _floats(0)})


@pytest.mark.parametrize("ways", [(0, 0), (1, 1)])
def test_scan(ways: tuple[int, int]) -> None:
    body = _graph(
        [node("Add", ["s", "row"], ["t"]), node("Neg", ["t"], ["out"])],
        {"s": TensorProto.FLOAT, "row": TensorProto.FLOAT},
        ["t", "out"],
    )
    scan = node("Scan", ["s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                scan_output_axes=[1], scan_input_directions=[ways[0]],
                scan_output_directions=[ways[1]])  # fmt: skip
    model = model_of([scan], {"s0": ["n"], "x": ["n", "time"]}, None, ["y", "rows"])
    agrees(model, *({"s0": _floats(n), "x": _floats(n, time)} for n, time in ((3, 4), (1, 7), (2, 1))))


def test_branches_of_other_sizes() -> None:
    ways = [
        _graph([node("Concat", ["x"] * n, [name], axis=0)], {}, [name])
        for n, name in ((2, "two"), (3, "three"))
    ]
    nodes = [node("If", ["c"], ["y"], then_branch=ways[0], else_branch=ways[1])]
    model = model_of(nodes, {"c": [], "x": ["n"]}, dtypes={"c": TensorProto.BOOL})
    agrees(model, *({"c": np.array(c), "x": _floats(n)} for c in (True, False) for n in (0, 1, 5)))


@pytest.mark.parametrize("attributes", [
    {"pads": [1, 0, 0, 1], "count_include_pad": 1}, {"pads": [1, 0, 0, 1]}, {"dilations": [2, 1]},
    {"ceil_mode": 1, "strides": [2, 2]}, {"ceil_mode": 1, "strides": [2, 2], "pads": [0, 1, 1, 0]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "LpPool"])
def test_pools(op: str, attributes: dict[str, Any]) -> None:
    used = {
        key: value for key, value in attributes.items() if key != "count_include_pad" or op == "AveragePool"
    }
    pool = node(op, ["x"], ["y"], kernel_shape=[2, 3], **used)
    model = model_of([pool], {"x": ["n", 2, "h", "w"]}, version=22)
    agrees(
        model, *({"x": _floats(n, 2, h, w)} for n, h, w in ((1, 6, 7), (2, 3, 4), (0, 5, 5))), tolerance=1e-4
    )


@pytest.mark.parametrize("order", [0, 1])
def test_places_of_maxima(order: int) -> None:
    pool = node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2, 3], pads=[1, 0, 0, 1], storage_order=order)
    model = model_of([pool], {"x": ["n", 2, "h", "w"]}, None, ["y", "at"])
    agrees(model, *({"x": _floats(n, 2, h, w)} for n, h, w in ((1, 6, 7), (2, 3, 4))))


@pytest.mark.parametrize("is_centred", [0, 1])
def test_suppression(is_centred: int) -> None:
    weights = {"most": [3], "overlap": np.float32([0.4]), "least": np.float32([0.2])}
    suppress = node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["y"],
                    center_point_box=is_centred)  # fmt: skip
    model = model_of([suppress], {"boxes": ["b", "n", 4], "scores": ["b", "classes", "n"]}, weights)
    calls = [
        {"boxes": DRAW.uniform(0, 1, (b, n, 4)).astype(np.float32),
         "scores": DRAW.uniform(0, 1, (b, c, n)).astype(np.float32)}
        for b, c, n in ((1, 1, 20), (2, 3, 13), (1, 2, 1))
    ]  # fmt: skip
    agrees(model, *calls)


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": 0, "sorted": 0}], ids=str)
def test_unique(attributes: dict[str, int]) -> None:
    outputs = ["y", "first", "back", "counts"]
    model = model_of([node("Unique", ["x"], outputs, **attributes)], {"x": ["n", 2]}, None, outputs)
    agrees(model, *({"x": np.float32(DRAW.integers(0, 3, (n, 2)))} for n in (7, 1, 13)))


def test_random_numbers_have_their_distribution() -> None:
    nodes = [node("RandomNormalLike", ["x"], ["y"], mean=3.0, scale=2.0), node("Bernoulli", ["p"], ["z"])]
    model = model_of(nodes, {"x": ["n"], "p": ["n"]}, None, ["y", "z"])
    with compiled(model) as exe:
        x, p = np.zeros(20000, np.float32), np.full(20000, 0.3, np.float32)
        (first, chance), (second, _) = exe(x, p), exe(x, p)
    assert abs(first.mean() - 3) < 0.1 and abs(first.std() - 2) < 0.1
    assert abs(chance.mean() - 0.3) < 0.02 and set(np.unique(chance)) == {0, 1}
    assert not np.array_equal(first, second)


def test_random_numbers_in_a_loop_are_refused() -> None:
    body = _graph(
        [node("Identity", ["c"], ["d"]), node("RandomNormalLike", ["v"], ["w"])],
        {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT},
        ["d", "w"],
    )
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    with pytest.raises(shapevm.UnsupportedOp, match="random numbers within a branch or loop"):
        compiled(model_of([loop], {"trips": [], "x": ["n"]}, dtypes={"trips": TensorProto.INT64}))


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_the_greatest_of_regions(mode: str) -> None:
    made = node("RoiAlign", ["x", "rois", "images"], ["y"], mode="max", coordinate_transformation_mode=mode,
                output_height=2, output_width=3, sampling_ratio=2, spatial_scale=0.5)  # fmt: skip
    inputs = {"x": ["n", 3, "h", "w"], "rois": ["count", 4], "images": ["count"]}
    model = model_of([made], inputs, dtypes={"images": TensorProto.INT64})
    calls = []
    for n, h, w, count in ((2, 9, 7, 5), (1, 1, 1, 1), (1, 4, 30, 0)):
        corners = np.sort(DRAW.uniform(-6, 2 * max(h, w) + 6, (count, 2, 2)), 1).reshape(count, 4)
        images = DRAW.integers(0, n, count)
        calls.append(
            {"x": DRAW.random((n, 3, h, w), np.float32), "rois": np.float32(corners), "images": images}
        )
    agrees(model, *calls)


@pytest.mark.parametrize("has_ends", [False, True])
def test_a_scan_of_a_batch(has_ends: bool) -> None:
    """Version 8: items of a batch end where `sequence_lens` says, and zeros follow."""
    body = _graph(
        [node("Add", ["s", "row"], ["t"]), node("Neg", ["t"], ["out"])],
        {"s": TensorProto.FLOAT, "row": TensorProto.FLOAT},
        ["t", "out"],
    )
    ends = {"ends": ["n"]} if has_ends else {}
    scan = node("Scan", ["ends" if has_ends else "", "s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1,
                directions=[0 if has_ends else 1])  # fmt: skip
    shapes = {**ends, "s0": ["n", 3], "x": ["n", "time", 3]}
    model = model_of([scan], shapes, None, ["y", "rows"], 8, {"ends": TensorProto.INT64})
    with compiled(model) as exe:
        for n, time in ((1, 1), (3, 5), (0, 4), (2, 0)):
            start, x, lens = _floats(n, 3), _floats(n, time, 3), np.minimum(np.arange(n) + 2, time)
            y, rows = exe(*([lens] if has_ends else []), start, x)
            steps = np.cumsum(x if has_ends else x[:, ::-1], 1, dtype=np.float32) + start[:, None]
            seen = np.arange(time) < (lens[:, None] if has_ends else time)
            wanted = [[start[i], *steps[i]][lens[i] if has_ends else time] for i in range(n)]
            np.testing.assert_allclose(y, np.reshape(wanted, (n, 3)), 1e-5, 1e-5)
            np.testing.assert_allclose(rows, np.where(seen[..., None], -steps, 0), 1e-5, 1e-5)
