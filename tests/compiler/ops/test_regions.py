"""Boxes and regions of detection models, from torch to kernels, against torchvision's arithmetic."""

from typing import Any

import pytest
import torch

import shapevm
from tests.models import vision

from .compiled import check
from .test_torch import Function, f16, f32, f64

pytestmark = pytest.mark.skipif(not vision.is_installed(), reason="torchvision is not installed")
SIZES = (6, 1, 0, 17, 300)


@pytest.fixture(autouse=True, scope="module")
def operators() -> Any:
    return vision.torchvision()


def boxes(shape: Any, dtype: torch.dtype, size: int, seed: int) -> torch.Tensor:
    """Boxes that overlap, on a coarse grid so that many are equal, one of them without an area; scores with
    ties and a NaN; regions of two images, partly outside of these; images."""
    random = torch.Generator().manual_seed(seed + size)
    shape = tuple(size if each == "n" else each for each in shape)
    if shape[1:] in ((4,), (5,)):
        low = torch.randint(-3, 12, (shape[0], 2), generator=random)
        found = torch.cat([low, low + torch.randint(0, 9, (shape[0], 2), generator=random)], 1)
        image = torch.randint(0, 2, (shape[0], shape[1] - 4), generator=random)
        return torch.cat([image, found], 1).to(dtype)
    if len(shape) == 1:
        scores = torch.randint(0, 7, shape, generator=random).to(dtype)
        return torch.where(scores == 6, torch.nan, scores)
    return torch.randn(shape, generator=random).to(dtype)


@pytest.mark.parametrize("threshold", [0.5, 0.0, 1.0, -1.0])
@pytest.mark.parametrize("dtype", [f32, f64])
def test_nms(dtype: torch.dtype, threshold: float) -> None:
    exe = check(
        lambda x, scores: torch.ops.torchvision.nms(x, scores, threshold),
        ((("n", 4), dtype), (("n",), dtype)),
        SIZES,
        boxes,
    )
    assert not exe.machine.externs


def test_a_threshold_is_compared_in_f64() -> None:
    x = torch.tensor([[0.0, 0, 1, 1], [0, 0, 0.3, 1]])
    quotient = float(x[1, 2] / (1 + x[1, 2] - x[1, 2]))
    for threshold in (quotient, quotient - 1e-10):

        def stay(x: torch.Tensor, threshold: float = threshold) -> torch.Tensor:
            return torch.ops.torchvision.nms(x, x[:, 2], threshold)

        found = shapevm.compile(Function(stay), (x,))(x)
        assert found.tolist() == ([0, 1] if threshold == quotient else [0])


def test_boxes_with_nan_and_infinity() -> None:
    x = torch.tensor([[0, 0, 4, 4], [0, torch.nan, 4, 4], [1, 1, torch.inf, 3], [1, 0, 4, 4], [2, 2, 2, 2]])
    model = Function(lambda x: torch.ops.torchvision.nms(x, x[:, 0], 0.3))
    assert torch.equal(shapevm.compile(model, (x,))(x), model(x))


@pytest.mark.parametrize(
    ("dtype", "ratio", "aligned", "scale"),
    [(f32, 2, False, 0.5), (f32, 0, True, 1.0), (f64, -1, False, 2.5), (f32, 0, False, 0.1)],
)
def test_roi_align(dtype: torch.dtype, ratio: int, aligned: bool, scale: float) -> None:
    exe = check(
        lambda x, rois: torch.ops.torchvision.roi_align(x, rois, scale, 3, 2, ratio, aligned),
        (((2, 19, 9, 7), dtype), (("n", 5), dtype)),
        (6, 1, 0, 17),
        boxes,
    )
    assert not exe.machine.externs


def test_roi_align_in_f16_adds_up_in_f32() -> None:
    x, rois = boxes((2, 19, 9, 7), f16, 0, 0), boxes((5, 5), f16, 5, 0)
    model = Function(lambda x, rois: torch.ops.torchvision.roi_align(x, rois, 0.5, 3, 2, 0, True))
    found = shapevm.compile(model, (x, rois))(x, rois)
    assert torch.equal(found, model(x.float(), rois.float()).half())


def test_roi_align_of_images_of_any_size() -> None:
    model = Function(lambda x, rois: torch.ops.torchvision.roi_align(x, rois, 1.0, 2, 2, 2, False))
    height, width = torch.export.Dim("height", min=1, max=99), torch.export.Dim("width", min=1, max=99)
    rois = boxes((5, 5), f32, 5, 0)
    exe = shapevm.compile(
        model, (torch.randn(2, 3, 9, 8), rois), dynamic_shapes=(({2: height, 3: width}, None),)
    )
    for size in ((1, 1), (1, 30), (14, 3)):
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(exe(x, rois), model(x, rois))
    rois[2, 0] = 2
    with pytest.raises(IndexError, match="2"):
        exe(x, rois)


@pytest.mark.parametrize("name", ["_batched_nms_coordinate_trick", "_batched_nms_vanilla", "batched_nms"])
def test_batched_nms(name: str) -> None:
    function = getattr(vision.torchvision().ops.boxes, name)

    def forward(boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return function(boxes, scores, classes, 0.5)

    def arguments(n: int) -> tuple[torch.Tensor, ...]:
        scores = torch.randperm(n, generator=torch.Generator().manual_seed(n)).float()
        return boxes((n, 4), f32, n, 0), scores, torch.arange(n) % 5

    script = torch.jit.script(forward)
    exe = shapevm.compile(script, arguments(7), strategy="generic")
    for n in (7, 1, 0, 60, 1001, 1200):
        assert torch.equal(exe(*arguments(n)), script(*arguments(n))), n
    assert not exe.machine.externs
