"""Convolutions, compiled: the values of eager PyTorch at every batch size, side and tier."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapevm

from .compiled import check
from .test_torch import Function

f32, f16, bf16, f64 = torch.float32, torch.float16, torch.bfloat16, torch.float64

AUTO = torch.export.Dim.AUTO


def weight(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    """Return fixed weights in -1 .. 1."""
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=f64) * 1.7).reshape(shape).to(dtype)


IMAGE = ((("n", 4, 7, 6), f32),)
WIDE = (((2, 4, "n", 6), f32),)
CHANNELS = ((("n", 16, 7, 6), f32),)
LINE = ((("n", 4, 9), f32),)
SIZES = (6, 3, 17)  # of a side

Case = tuple[str, Callable[..., Any], Any]
CASES: list[Case] = [
    ("3x3", lambda x: F.conv2d(x, weight(5, 4, 3, 3), weight(5), padding=1), IMAGE),
    ("no bias", lambda x: F.conv2d(x, weight(33, 4, 2, 3)), IMAGE),
    ("stride", lambda x: F.conv2d(x, weight(5, 4, 3, 3), stride=(2, 3), padding=(2, 0)), IMAGE),
    ("dilation", lambda x: F.conv2d(x, weight(5, 4, 3, 2), dilation=(2, 3), padding=(1, 2)), IMAGE),
    ("pointwise", lambda x: F.conv2d(x, weight(5, 4, 1, 1), weight(5)), IMAGE),
    ("pointwise strided", lambda x: F.conv2d(x, weight(5, 4, 1, 1), stride=2), IMAGE),
    ("pointwise padded", lambda x: F.conv2d(x, weight(5, 4, 1, 1), weight(5), padding=1), IMAGE),
    ("groups", lambda x: F.conv2d(x, weight(66, 2, 3, 3), groups=2, padding=1), IMAGE),
    ("narrow groups", lambda x: F.conv2d(x, weight(16, 8, 3, 3) / 9, weight(16), groups=2), CHANNELS),
    ("depthwise", lambda x: F.conv2d(x, weight(4, 1, 3, 3), weight(4), groups=4, padding=1), IMAGE),
    ("depthwise strided", lambda x: F.conv2d(x, weight(4, 1, 3, 5), groups=4, stride=2, padding=2), IMAGE),
    ("depthwise wider", lambda x: F.conv2d(x, weight(8, 1, 3, 3), groups=4, dilation=2), IMAGE),
    ("winograd", lambda x: F.conv2d(x, weight(21, 16, 3, 3) / 12, weight(21), padding=1).relu(), CHANNELS),
    (
        "winograd, partly padded",
        lambda x: F.conv2d(x, weight(9, 16, 3, 3) / 12, padding=(0, 1)),
        CHANNELS,
    ),
    ("few pixels, strided", lambda x: F.conv2d(x, weight(9, 16, 3, 3) / 12, stride=2, padding=1), CHANNELS),
    (
        "few pixels, dilated",
        lambda x: F.conv2d(x, weight(64, 64, 3, 3) / 24, weight(64), padding=2, dilation=2),
        (((1, 64, 7, 7), f32),),
    ),
    ("same", lambda x: F.conv2d(x, weight(3, 4, 4, 3), padding="same", dilation=(1, 2)), IMAGE),
    ("valid", lambda x: F.conv2d(x, weight(3, 4, 4, 3), padding="valid"), IMAGE),
    ("line", lambda x: F.conv1d(x, weight(5, 4, 5), weight(5), stride=2, padding=2), LINE),
    ("volume", lambda x: F.conv3d(x, weight(3, 2, 3, 2, 1), padding=(1, 0, 2)), ((("n", 2, 4, 3, 5), f32),)),
    ("unbatched", lambda x: F.conv2d(x[0], weight(5, 4, 3, 3), weight(5)), (((1, 4, "n", 6), f32),)),
    ("transposed", lambda x: F.conv_transpose2d(x, weight(4, 5, 3, 3), weight(5)), IMAGE),
    (
        "transposed strided",
        lambda x: F.conv_transpose2d(x, weight(4, 5, 4, 3), stride=(2, 3), padding=(1, 2), output_padding=1),
        IMAGE,
    ),
    (
        "transposed groups",
        lambda x: F.conv_transpose2d(x, weight(4, 3, 3, 3), weight(6), groups=2, dilation=2, padding=3),
        IMAGE,
    ),
    ("transposed line", lambda x: F.conv_transpose1d(x, weight(4, 5, 3), stride=4), LINE),
    (
        "transposed volume",
        lambda x: F.conv_transpose3d(x, weight(2, 3, 2, 2, 2), stride=2),
        ((("n", 2, 3, 2, 3), f32),),
    ),
    ("bf16", lambda x: F.conv2d(x, weight(5, 4, 3, 3, dtype=bf16)), ((("n", 4, 7, 6), bf16),)),
    ("computed weight", lambda x: F.conv2d(x, weight(5, 4, 3, 3) * x.amax()), (((2, 4, "n", 6), f32),)),
]
HIGH: list[Case] = [
    ("side", lambda x: F.conv2d(x, weight(5, 4, 3, 3), weight(5), padding=1), WIDE),
    ("strided side", lambda x: F.conv2d(x, weight(5, 4, 3, 3), weight(5), stride=2), WIDE),
    ("depthwise side", lambda x: F.conv2d(x, weight(4, 1, 3, 3), groups=4, stride=2, padding=1), WIDE),
    (
        "transposed blocks",
        lambda x: F.conv_transpose2d(x, weight(4, 5, 2, 3), weight(5), stride=(2, 3)),
        WIDE,
    ),
    ("transposed side", lambda x: F.conv_transpose2d(x, weight(4, 5, 3, 3), stride=2, padding=1), WIDE),
    (
        "twice",
        lambda x: F.conv2d(F.conv2d(x, weight(8, 4, 3, 3), padding=1).relu(), weight(5, 8, 2, 2)),
        WIDE,
    ),
]


@pytest.mark.parametrize(("function", "specs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_batch_size(function: Callable[..., Any], specs: Any) -> None:
    sizes = (6, 4, 17) if any("n" in shape[2:] for shape, _ in specs) else (6, 1, 0)
    check(function, specs, sizes)


@pytest.mark.parametrize(("function", "specs"), [c[1:] for c in HIGH], ids=[c[0] for c in HIGH])
def test_every_side(function: Callable[..., Any], specs: Any) -> None:
    check(function, specs, SIZES)


def test_a_dtype_without_kernels_is_left_to_pytorch() -> None:
    model, x = nn.Conv2d(2, 3, 3).double(), torch.randn(1, 2, 4, 4, dtype=f64)
    torch.testing.assert_close(shapevm.compile(model, (x,))(x), model(x))


class Residual(nn.Module):
    """Two convolutions with batch norms, a shortcut, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 7, 2, 3, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.second = nn.Conv2d(16, 16, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(16, 16, 1, bias=False)
        self.head = nn.Linear(16, 5)
        for norm in self.norms:
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.first(x))), 3, 2, 1)
        x = F.relu(self.norms[1](self.second(x)) + self.norms[2](self.shortcut(x)))
        return self.head(x.mean((2, 3)))


def test_a_residual_network_at_any_shape() -> None:
    torch.manual_seed(0)
    model = Residual().eval()
    sizes = {i: torch.export.Dim(f"s{i}", min=low, max=64) for i, low in ((0, 1), (2, 16), (3, 16))}
    exe = shapevm.compile(model, (torch.randn(2, 3, 32, 40),), dynamic_shapes=(sizes,))
    for shape in ((1, 3, 32, 32), (3, 3, 17, 45), (2, 3, 64, 16)):
        x = torch.randn(*shape)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)


def taps(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return a weight of shape [channels of x, *shape] that depends on x's size only."""
    n = x.shape[1] * torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=f32) * 1.7).to(x.dtype).reshape(x.shape[1], *shape)


def modulated(x: torch.Tensor, stride: int = 1) -> torch.Tensor:
    """Each image of the batch under a weight of its own: groups are the batch."""
    n, c, height, width = x.shape
    w = (weight(5, 4, 3, 3, dtype=x.dtype)[None] * x.mean((2, 3))[:, None, :, None, None]).flatten(0, 1)
    made = F.conv2d(x.reshape(1, n * c, height, width), w, stride=stride, padding=1, groups=n)
    return made.reshape(n, 5, made.shape[2], made.shape[3])


def modulated_up(x: torch.Tensor) -> torch.Tensor:
    n, c, height, width = x.shape
    w = (weight(4, 5, 3, 3)[None] * x.mean((2, 3))[:, :, None, None, None]).flatten(0, 1)
    made = F.conv_transpose2d(x.reshape(1, n * c, height, width), w, stride=2, groups=n)
    return made.reshape(n, 5, made.shape[2], made.shape[3])


GROUPS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...], torch.dtype]] = {
    "line": (lambda x: F.conv1d(x, taps(x, 1, 3), padding=1, groups=x.shape[1]), (2, 4, 9), f32),
    "image": (lambda x: F.conv2d(x, taps(x, 1, 3, 2), taps(x), 2, groups=x.shape[1]), (2, 4, 7, 6), f32),
    "same": (lambda x: F.conv2d(x, taps(x, 1, 3, 2), padding="same", groups=x.shape[1]), (2, 4, 7, 6), f32),
    "volume": (lambda x: F.conv3d(x, taps(x, 1, 2, 2, 2), groups=x.shape[1]), (2, 4, 3, 5, 4), f32),
    "unbatched": (lambda x: F.conv2d(x[0], taps(x, 1, 3, 3), groups=x.shape[1]), (1, 4, 7, 6), f32),
    "transposed line": (lambda x: F.conv_transpose1d(x, taps(x, 2, 3), groups=x.shape[1]), (2, 4, 9), f32),
    "transposed": (
        lambda x: F.conv_transpose2d(x, taps(x, 1, 3, 3), None, 2, 1, 1, x.shape[1], 2), (2, 4, 7, 6), f32,
    ),
    "transposed volume": (
        lambda x: F.conv_transpose3d(x, taps(x, 1, 2, 2, 2), groups=x.shape[1]), (2, 4, 3, 5, 4), f32,
    ),
    "pairs": (lambda x: F.conv1d(x, taps(x, 2, 3), groups=x.shape[1] // 2), (2, 4, 9), f32),
    "batch": (modulated, (2, 4, 7, 6), f32),
    "batch in f64": (modulated, (2, 4, 7, 6), f64),
    "batch, transposed": (modulated_up, (2, 4, 7, 6), f32),
    "f16": (lambda x: F.conv1d(x, taps(x, 1, 3), groups=x.shape[1]), (2, 4, 9), f16),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_groups_that_a_call_tells(name: str) -> None:
    function, shape, dtype = GROUPS[name]
    axes, native = {0: AUTO, 1: AUTO, 2: AUTO}, shapevm.Options(fallback="error")
    axes = {
        axis: size for axis, size in axes.items() if shape[axis] != 1 and (axis != 1 or "batch" not in name)
    }
    example = weight(*shape, dtype=dtype)
    model = Function(function)
    with shapevm.compile(model, (example,), dynamic_shapes=((axes,),), options=native) as exe:
        for n, channels, side in ((2, 4, 7), (1, 2, 6), (5, 8, 11), (3, 4, 5)):
            sizes = [(n, channels, side)[axis] if axis in axes else size for axis, size in enumerate(shape)]
            x = weight(*sizes, dtype=dtype)
            tolerance = {f16: 4e-3, f64: 1e-12}.get(dtype, 2e-5)
            torch.testing.assert_close(exe(x), model(x), rtol=tolerance, atol=tolerance)


def test_groups_that_do_not_divide_the_channels() -> None:
    def pairs(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, weight(x.shape[1] * 3, dtype=f32).reshape(x.shape[1], 1, 3), groups=like.shape[0])

    x = torch.randn(2, 4, 9)
    shapes = (({1: AUTO}, {0: AUTO}),)
    with shapevm.compile(Function(pairs), (x, torch.zeros(4)), dynamic_shapes=shapes) as exe:
        torch.testing.assert_close(exe(x, torch.zeros(4)), pairs(x, torch.zeros(4)))
        with pytest.raises(shapevm.Error, match="must be|groups"):
            exe(x, torch.zeros(3))


STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "kernel of a call": lambda x, k: F.conv1d(x, k[:, None].expand(-1, 4, -1), padding=k.shape[1] // 2),
    "padding": lambda x, k: F.conv1d(x, taps(x, 4, 3), padding=k.shape[1]),
    "stride": lambda x, k: F.conv1d(x, taps(x, 4, 3), stride=k.shape[1]),
    "transposed, padding": lambda x, k: F.conv_transpose1d(x, taps(x, 2, 7), padding=k.shape[1]),
    "transposed, stride": lambda x, k: F.conv_transpose1d(x, taps(x, 2, 3), None, k.shape[1], 0, 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_a_call_tells(name: str) -> None:
    model, native = Function(STEPS[name]), shapevm.Options(fallback="error")
    shapes = (({0: AUTO, 2: AUTO}, {1: AUTO}),)
    example = torch.randn(2, 4, 9), torch.randn(3, 3)
    with shapevm.compile(model, example, dynamic_shapes=shapes, options=native) as exe:
        for batch, side, step in ((2, 9, 3), (1, 8, 2), (3, 7, 5)):
            args = torch.randn(batch, 4, side), torch.randn(3, step)
            torch.testing.assert_close(exe(*args), model(*args), rtol=2e-5, atol=2e-5)
        if "stride" in name:
            with pytest.raises(shapevm.Error, match="must be at least 1|must be smaller than stride"):
                exe(torch.randn(2, 4, 9), torch.randn(3, 0))
