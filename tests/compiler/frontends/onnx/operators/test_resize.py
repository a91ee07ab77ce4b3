"""Resize agrees with onnxruntime at free sizes, in every mode."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import shapevm
from tests.compiler.frontends.onnx.onnx_models import agrees, compiled, model_of, node

WAYS = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
NEAREST = [({"mode": "nearest", "nearest_mode": how}, way) for how, way in product(ROUNDINGS, WAYS)]
SMOOTH = [
    (attributes, way)
    for way in WAYS
    for attributes in (
        {"mode": "linear"},
        {"mode": "cubic"},
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "antialias": 1},
    )
]


def _resized(attributes: dict[str, Any], way: str, **weights: Any) -> Any:
    given = {"scales": [], "sizes": [], **weights}
    inputs = [name if len(given[name]) else "" for name in ("scales", "sizes")]
    resize = node(
        "Resize", ["x", "", *inputs], ["y"], coordinate_transformation_mode=way, axes=[2, 3], **attributes
    )
    kinds = {"scales": np.float32, "sizes": np.int64}
    used = {name: np.array(value, kinds[name]) for name, value in given.items() if len(value)}
    return model_of([resize], {"x": ["n", 2, "h", "w"]}, used)


def _images(*shapes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    return [{"x": draw.standard_normal(shape, np.float32)} for shape in shapes]


@pytest.mark.drawn
@pytest.mark.parametrize(("attributes", "way"), NEAREST + SMOOTH, ids=str)
def test_resize_by_factors_agrees(attributes: dict[str, Any], way: str) -> None:
    model = _resized(attributes, way, scales=[1.5, 0.5])
    agrees(model, *_images((1, 2, 4, 6), (2, 2, 8, 2), (0, 2, 2, 2)), tolerance=1e-4)


@pytest.mark.drawn
@pytest.mark.parametrize(("attributes", "way"), NEAREST + SMOOTH, ids=str)
def test_resize_to_sizes_agrees(attributes: dict[str, Any], way: str) -> None:
    model = _resized(attributes, way, sizes=[7, 3])
    agrees(model, *_images((1, 2, 4, 6), (2, 2, 13, 1), (1, 2, 7, 3)), tolerance=1e-4)


def test_a_size_that_follows_from_another_input_stays_free() -> None:
    nodes = [
        node("Shape", ["like"], ["wanted"], start=2),
        node("Resize", ["x", "", "", "wanted"], ["y"], axes=[2, 3], mode="linear"),
    ]
    model = model_of(nodes, {"x": ["n", 2, "h", "w"], "like": ["n", 2, "H", "W"]})
    small, large = (each["x"] for each in _images((1, 2, 5, 3), (1, 2, 7, 11)))
    agrees(model, {"x": small, "like": large}, {"x": large, "like": small})


def test_unknown_coordinates_are_refused_by_name() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="Resize: the coordinates 'of_no_kind' are none of"):
        compiled(_resized({"mode": "linear"}, "of_no_kind", sizes=[7, 3]))


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_agrees(mode: str, padding: str) -> None:
    draw = np.random.default_rng(0)
    sample = node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding)
    model = model_of([sample], {"x": ["n", 2, "h", "w"], "grid": ["n", "H", "W", 2]})
    calls = [
        {"x": draw.standard_normal((n, 2, h, w), np.float32),
         "grid": draw.uniform(-1.3, 1.3, (n, 3, 5, 2)).astype(np.float32)}
        for n, h, w in ((1, 4, 7), (2, 1, 5), (0, 3, 3))
    ]  # fmt: skip
    agrees(model, *calls, tolerance=1e-4)
