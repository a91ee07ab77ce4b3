"""Convolutions of quantised images by quantised weights: the exact integers, for every kind of window."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.spec_reader import from_json

import shapevm

Q = torch.ops.quantized_decomposed
NATIVE = shapevm.Options(fallback="error")
BATCH, HEIGHT = torch.export.Dim("batch", min=0, max=8), torch.export.Dim("height", min=4, max=40)
SCALE = 0.125

#: (channels, outputs, kernel, stride, padding, dilation, groups)
WINDOWS = {
    "3x3": (16, 24, (3, 3), 1, 1, 1, 1),
    "1x1": (12, 33, (1, 1), 1, 0, 1, 1),
    "1x1 strided": (32, 16, (1, 1), 2, 0, 1, 1),
    "stem": (3, 24, (7, 7), 2, 3, 1, 1),
    "dilated": (5, 7, (3, 3), 1, 2, 2, 1),
    "groups": (32, 48, (3, 3), 1, 1, 1, 2),
    "groups of four": (8, 8, (3, 3), 1, 1, 1, 2),
    "groups of three": (6, 6, (3, 3), 1, 1, 1, 2),
    "depthwise": (24, 24, (3, 3), 1, 1, 1, 24),
    "depthwise strided": (17, 17, (5, 5), 2, 2, 1, 17),
}
#: dtype of the image and its zero point
IMAGES = {"u8": (torch.uint8, 0), "u8 with a zero point": (torch.uint8, 117), "i8": (torch.int8, -9)}
IN_F32 = ("groups of three",)  # no kernel takes three bytes together


class Quantised(torch.nn.Module):
    """A convolution of a dequantised image by dequantised weights."""

    def __init__(self, window: str, image: str) -> None:
        super().__init__()
        c, f, kernel, self.stride, self.padding, self.dilation, self.groups = WINDOWS[window]
        self.dtype, self.zero = IMAGES[image]
        torch.manual_seed(0)
        weight = torch.randint(-128, 128, (f, c // self.groups, *kernel), dtype=torch.int8)
        self.weight = torch.nn.Buffer(weight)
        self.scales = torch.nn.Buffer(2.0 ** -torch.randint(5, 9, (f,)))
        self.zeros = torch.nn.Buffer(torch.zeros(f, dtype=torch.int64))

    def conv(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Convolve."""
        how = (None, self.stride, self.padding, self.dilation, self.groups)
        return torch.nn.functional.conv2d(x, weight, *how)

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        """Convolve q [n, c, h, w], a quantised image."""
        limits = torch.iinfo(self.dtype)
        x = Q.dequantize_per_tensor(q, SCALE, self.zero, limits.min, limits.max, self.dtype)
        w = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return self.conv(x, w)

    def exact(self, q: torch.Tensor) -> torch.Tensor:
        """Return the result by integers; scales are powers of two, so nothing is rounded but at last."""
        sums = self.conv(q.double() - self.zero, self.weight.double())
        return (sums * SCALE * self.scales.double()[:, None, None]).float()


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("window", WINDOWS)
def test_sums_are_exact(window: str, image: str, tmp_path: Path) -> None:
    model = Quantised(window, image)
    channels, limits = WINDOWS[window][0], torch.iinfo(model.dtype)

    def random(n: int, height: int) -> torch.Tensor:
        return torch.randint(limits.min, limits.max + 1, (n, channels, height, 9), dtype=model.dtype)

    shapes = ({0: BATCH, 2: HEIGHT},)
    exe = shapevm.compile(model, (random(2, 7),), dynamic_shapes=shapes, options=NATIVE)
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    (conv,) = [spec for spec in specs if isinstance(spec, ProductSpec)]
    assert (conv.buffers[conv.product.a].dtype == "u8") == (window not in IN_F32)
    assert isinstance(conv, Conv) or window == "1x1"
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        for n, height in ((1, 4), (3, 11), (0, 5), (2, 33)):
            q = random(n, height)
            wanted = model.exact(q)
            if window in IN_F32:
                torch.testing.assert_close(exe(q), wanted, rtol=1e-5, atol=1e-4)
            else:
                assert torch.equal(exe(q), wanted)
            assert torch.equal(loaded(q), exe(q))


def test_sums_that_i32_does_not_hold_are_computed_in_f32() -> None:
    """As PyTorch computes them: integers would wrap around."""

    class Long(torch.nn.Module):
        """A product of 66,000 steps."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Buffer(torch.full((4, 70000), 127, dtype=torch.int8))
            self.scales = torch.nn.Buffer(torch.ones(4))
            self.zeros = torch.nn.Buffer(torch.zeros(4, dtype=torch.int64))

        def forward(self, q: torch.Tensor) -> torch.Tensor:
            """Multiply."""
            x = Q.dequantize_per_tensor(q, 1.0, 0, 0, 255, torch.uint8)
            w = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
            return torch.nn.functional.linear(x, w)

    q = torch.full((2, 70000), 255, dtype=torch.uint8)
    exe = shapevm.compile(Long(), (q,), options=NATIVE)
    torch.testing.assert_close(exe(q), torch.full((2, 4), 255.0 * 127 * 70000), rtol=1e-6, atol=0)
