"""Gradients of convolutions, pools, padding and attention, compiled: the values of eager PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shapevm

from .compiled import check

f32, f16, bf16, f64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
aten = torch.ops.aten
SIZES = (6, 3, 17)


def weight(*shape: int, dtype: torch.dtype = f32) -> torch.Tensor:
    """Return fixed weights in -1 .. 1."""
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=f64) * 1.7).reshape(shape).to(dtype)


def ramp(like: torch.Tensor) -> torch.Tensor:
    """Return a gradient with a value of its own for every element."""
    line = torch.arange(like.numel()).reshape(like.shape)
    return ((line * 7 % 17 - 8) / 64).to(like.dtype)


def conv(
    shape: tuple[int, ...],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    extra: Any = None,
    groups: int = 1,
) -> Callable[[torch.Tensor], Any]:
    """Return the three gradients of a convolution with a weight of `shape`; `extra`: of a transposed one."""
    n = len(shape) - 2
    each = [[v] * n if isinstance(v, int) else list(v) for v in (stride, padding, dilation, extra or 0)]

    def function(x: torch.Tensor) -> Any:
        w = weight(*shape, dtype=x.dtype)
        settings = (*each[:3], extra is not None, each[3], groups)
        y = torch.convolution(x, w, None, *settings)
        return aten.convolution_backward(ramp(y), x, w, [y.shape[1]], *settings, [True] * 3)

    return function


IMAGE = ((("n", 4, 7, 6), f32),)
WIDE = (((2, 4, "n", 6), f32),)
LINE = (((2, 4, "n"), f32),)
Case = tuple[str, Callable[..., Any], Any]
CONVS: list[Case] = [
    ("3x3", conv((5, 4, 3, 3), padding=1), IMAGE),
    ("3x3 of any height", conv((5, 4, 3, 3), padding=1), WIDE),
    ("1x1", conv((5, 4, 1, 1)), WIDE),
    ("stride", conv((5, 4, 2, 3), stride=(2, 3), padding=(1, 2)), WIDE),
    ("1x1 stride", conv((5, 4, 1, 1), stride=2), WIDE),
    ("dilation", conv((5, 4, 2, 2), dilation=(2, 3)), WIDE),
    ("much padding", conv((3, 4, 1, 2), padding=(2, 3), stride=2), WIDE),
    ("groups", conv((6, 2, 3, 2), groups=2, padding=1), WIDE),
    ("depthwise", conv((8, 1, 3, 3), groups=4, padding=1, stride=2), WIDE),
    ("line", conv((5, 4, 3), stride=2, padding=2), LINE),
    ("volume", conv((3, 2, 2, 1, 2), padding=(0, 1, 1), stride=(1, 2, 1)), (((2, 2, "n", 3, 4), f32),)),
    ("transposed", conv((4, 5, 3, 3), extra=0), WIDE),
    ("transposed strided", conv((4, 5, 4, 3), stride=(2, 3), padding=(1, 2), extra=1), WIDE),
    ("transposed groups", conv((4, 3, 3, 2), stride=2, groups=2, extra=1, dilation=2), WIDE),
    ("f64", conv((5, 4, 3, 3), padding=1), (((2, 4, "n", 6), f64),)),
    ("bf16", conv((5, 4, 2, 2)), (((2, 4, "n", 4), bf16),)),
]


@pytest.mark.parametrize(("name", "function", "specs"), CONVS, ids=lambda v: v if isinstance(v, str) else "")
def test_convolutions(name: str, function: Callable[..., Any], specs: Any) -> None:
    assert check(function, specs, (6, 3, 9)).machine.externs == ()


def avg_pool(n: int, *settings: Any) -> Callable[[torch.Tensor], Any]:
    """Return the gradient of a mean over windows: kernel, stride, padding, ceil_mode, count_include_pad,
    divisor."""
    forward, backward = (getattr(aten, f"avg_pool{n}d{end}") for end in ("", "_backward"))
    return lambda x: backward(ramp(forward(x, *settings)), x, *settings)


def adaptive(n: int, *sizes: int) -> Callable[[torch.Tensor], Any]:
    """Return the gradient of a mean over as many windows as asked for."""
    forward, backward = (getattr(aten, f"_adaptive_avg_pool{n}d{end}") for end in ("", "_backward"))
    return lambda x: backward(ramp(forward(x, sizes)), x)


def replicated(n: int, *padding: int) -> Callable[[torch.Tensor], Any]:
    """Return the gradient of repeated edges."""
    forward, backward = (getattr(aten, f"replication_pad{n}d{end}") for end in ("", "_backward"))
    return lambda x: backward(ramp(forward(x, padding)), x, padding)


FIXED = (((2, 3, 7, 6), f32),)  # torch.export refuses other sizes of windows that may end outside
VOLUME = (((2, 3, "n", 5, 4), f32),)
POOLS: list[Case] = [
    ("mean", avg_pool(2, [2, 2], [2, 2], [0, 0], False, True, None), WIDE),
    ("mean overlapping", avg_pool(2, [3, 3], [2, 1], [1, 1], False, True, None), WIDE),
    ("mean without padding", avg_pool(2, [3, 3], [2, 2], [1, 1], False, False, None), WIDE),
    ("mean, ceil", avg_pool(2, [3, 2], [2, 2], [1, 0], True, True, None), FIXED),
    ("mean, ceil, without padding", avg_pool(2, [3, 2], [2, 3], [1, 1], True, False, None), FIXED),
    ("mean, divisor", avg_pool(2, [2, 3], [1, 2], [0, 1], False, True, 7), WIDE),
    ("mean, gaps", avg_pool(2, [1, 2], [3, 3], [0, 0], False, True, None), WIDE),
    ("mean of a volume", avg_pool(3, [2, 3, 2], [1, 2, 1], [1, 1, 0], False, False, None), VOLUME),
    ("mean, long windows", avg_pool(2, [3, 40], [1, 1], [1, 20], False, True, None), WIDE),
    ("mean, f16", avg_pool(2, [3, 3], [1, 1], [1, 1], False, True, None), (((2, 4, "n", 6), f16),)),
    ("mean, f64, one image", avg_pool(2, [2, 2], [1, 1], [0, 0], False, True, None), (((4, "n", 6), f64),)),
    ("adaptive", adaptive(2, 3, 4), WIDE),
    ("adaptive to one", adaptive(2, 1, 1), WIDE),
    ("adaptive, more than there are", adaptive(2, 5, 9), WIDE),
    ("adaptive, few of many", adaptive(2, 2, 1), (((1, 2, "n", 40), f32),)),
    ("adaptive volume", adaptive(3, 2, 5, 3), VOLUME),
    ("adaptive, bf16", adaptive(2, 3, 4), (((2, 4, "n", 6), bf16),)),
    ("edges of a line", replicated(1, 2, 3), LINE),
    ("edges", replicated(2, 1, 2, 3, 0), WIDE),
    ("edges, cut", replicated(2, -1, 2, 1, -2), WIDE),
    ("edges of a volume", replicated(3, 1, 1, 0, 2, 2, 1), VOLUME),
]


@pytest.mark.parametrize(("name", "function", "specs"), POOLS, ids=lambda v: v if isinstance(v, str) else "")
def test_pools(name: str, function: Callable[..., Any], specs: Any) -> None:
    assert check(function, specs, SIZES).machine.externs == ()


def attention(causal: bool = False, masked: bool = False, scale: float | None = None) -> Callable[..., Any]:
    """Return attention, the logarithms that it keeps, and its gradients. `masked`: row 1 whole."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        mask = None
        if masked:
            seen = (torch.arange(k.shape[2]) + torch.arange(4)[:, None]) % 3 != 1
            seen = seen & (torch.arange(4)[:, None] != 1)
            mask = torch.where(seen, 0.25, -torch.inf).to(q.dtype)
        how = {"attn_mask": mask, "scale": scale}
        out, logsum = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **how)
        gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            ramp(out), q, k, v, out, logsum, 0.0, causal, **how
        )
        return out, logsum.to(out.dtype), *gradients

    return function


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of q that has twice as many heads."""
    return lambda q, k, v: function(q.repeat(1, 2, 1, 1), k, v)


def queries(dtype: torch.dtype) -> Any:
    """Return the shapes of q, k and v with any number of keys."""
    return (((2, 3, 4, 8), dtype), ((2, 3, "n", 8), dtype), ((2, 3, "n", 8), dtype))


SAME = tuple(((2, 3, "n", 8), f32) for _ in range(3))
GROUPED = (((2, 6, 4, 8), f32), ((2, 3, "n", 8), f32), ((2, 3, "n", 8), f32))
MANY = (((2, "n", 4, 8), f32), ((2, "n", 3, 8), f32), ((2, "n", 3, 8), f32))
ATTENTION: list[Case] = [
    ("plain", attention(), queries(f32)),
    ("of any length", attention(), SAME),
    ("causal", attention(causal=True), SAME),
    ("causal, scaled", attention(causal=True, scale=0.5), SAME),
    ("mask that is added", attention(masked=True), queries(f32)),
    ("f64", attention(masked=True), queries(f64)),
    ("bf16", attention(), queries(bf16)),
    ("grouped", attention(), GROUPED),
    ("grouped, causal", attention(causal=True, scale=0.5), GROUPED),
    ("grouped, any number of heads", twice(attention()), MANY),
]


@pytest.mark.parametrize(
    ("name", "function", "specs"), ATTENTION, ids=lambda v: v if isinstance(v, str) else ""
)
def test_attention(name: str, function: Callable[..., Any], specs: Any) -> None:
    assert check(function, specs, SIZES).machine.externs == ()


class Attention(torch.nn.Module):
    """`attention()` as a module."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return attention()(q, k, v)


def test_attention_of_sizes_that_only_a_call_tells_to_agree() -> None:
    """`torch.export` does not say that `Dim.AUTO` of q, k and v have to agree, and PyTorch's kernel ends the
    process where a tensor is empty."""
    q, k, v = (torch.randn(2, 3, n, 8) for n in (4, 5, 5))
    auto = tuple(dict.fromkeys(range(4), torch.export.Dim.AUTO) for _ in range(3))
    program = torch.export.export(Attention(), (q, k, v), dynamic_shapes=auto)
    with shapevm.compile(program) as exe:
        for size in (8, 6):
            given = [x[..., :size] for x in (q, k, v)]
            for ours, theirs in zip(exe(*given), Attention()(*given), strict=True):
                torch.testing.assert_close(ours, theirs)
        with pytest.raises(shapevm.Error, match="must be"):
            exe(q, k, v[..., :6])
