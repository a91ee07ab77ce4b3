"""Modules with the names, parameters and values of torch.nn's in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import functional as F
from .module import Buffer, Module, Parameter
from .tensor import Tensor, call


class Linear(Module):
    """x weight^T + bias."""

    def __init__(self, n_in: int, n_out: int, bias: bool = True, dtype: str = "f32") -> None:
        self.weight = Parameter((n_out, n_in), dtype)
        self.bias = Parameter((n_out,), dtype) if bias else None

    def forward(self, x: Any) -> Tensor:
        """Return the product of the last axis."""
        return call("aten.linear.default", x, self.weight, self.bias)


class Embedding(Module):
    """Rows of a table."""

    def __init__(self, n_rows: int, width: int, dtype: str = "f32") -> None:
        self.weight = Parameter((n_rows, width), dtype)

    def forward(self, indices: Any) -> Tensor:
        """Return the row of each index."""
        return call("aten.embedding.default", self.weight, indices)


class LayerNorm(Module):
    """Rows with mean 0 and variance 1, times weight, plus bias."""

    def __init__(self, width: int, eps: float = 1e-5, dtype: str = "f32") -> None:
        self.weight, self.bias, self.eps = Parameter((width,), dtype), Parameter((width,), dtype), eps

    def forward(self, x: Any) -> Tensor:
        """Normalise the last axis."""
        return call("aten.layer_norm.default", x, [x.shape[-1]], self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Rows over the root of their mean square, times weight."""

    def __init__(self, width: int, eps: float = 1e-6, dtype: str = "f32") -> None:
        self.weight, self.eps = Parameter((width,), dtype), eps

    def forward(self, x: Any) -> Tensor:
        """Normalise the last axis."""
        return call("aten.rms_norm.default", x, [x.shape[-1]], self.weight, self.eps)


class Conv2d(Module):
    """A convolution of images [batch, channels, height, width]."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.weight = Parameter((n_out, n_in // groups, kernel_size, kernel_size))
        self.bias = Parameter((n_out,)) if bias else None
        self.stride, self.padding, self.groups = [stride] * 2, [padding] * 2, groups

    def forward(self, x: Any) -> Tensor:
        """Return the convolution."""
        how = (self.stride, self.padding, [1, 1], False, [0, 0], self.groups)
        return call("aten.convolution.default", x, self.weight, self.bias, *how)


class BatchNorm2d(Module):
    """Channels normalised by the statistics of training."""

    def __init__(self, n_channels: int, eps: float = 1e-5) -> None:
        self.weight, self.bias = Parameter((n_channels,)), Parameter((n_channels,))
        self.running_mean, self.running_var = Parameter((n_channels,)), Parameter((n_channels,))
        self.num_batches_tracked = Parameter((), "i64")  # present in torch's files
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        """Normalise axis 1."""
        arrays = (self.weight, self.bias, self.running_mean, self.running_var)
        return call("aten.batch_norm.default", x, *arrays, False, 0.1, self.eps, False)


class MaxPool2d(Module):
    """The greatest value of each window."""

    def __init__(self, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Any) -> Tensor:
        """Return the windows' greatest values."""
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding)


class AdaptiveAvgPool2d(Module):
    """Means of windows, `size` of them along each axis."""

    def __init__(self, size: int) -> None:
        self.size = [size] * 2

    def forward(self, x: Any) -> Tensor:
        """Return the windows' means."""
        return call("aten.adaptive_avg_pool2d.default", x, self.size)


class MultiheadAttention(Module):
    """Self-attention of x [batch, length, width] with the parameters of torch.nn.MultiheadAttention."""

    def __init__(self, width: int, n_heads: int) -> None:
        self.in_proj_weight, self.in_proj_bias = Parameter((3 * width, width)), Parameter((3 * width,))
        self.out_proj = Linear(width, width)
        self.n_heads = n_heads

    def forward(self, x: Any, mask: Any = None, is_causal: bool = False) -> Tensor:
        """Return the attention output of each position; `mask`: as in `scaled_dot_product_attention`."""
        batch, length, width = x.shape
        both = call("aten.linear.default", x, self.in_proj_weight, self.in_proj_bias)
        both = both.reshape(batch, length, 3, self.n_heads, int(width) // self.n_heads).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(both[0], both[1], both[2], mask, is_causal)
        return self.out_proj(read.transpose(1, 2).reshape(batch, length, width))


class KVCache(Module):
    """Keys and values of the positions so far, [batch, heads, length, width], kept between calls of the
    program. A call writes only its own positions, in place."""

    def __init__(self, batch: int, n_heads: int, length: int, width: int, dtype: str = "f32") -> None:
        shape = (batch, n_heads, length, width)
        self.keys, self.values = (Buffer(shape, dtype, in_place=True) for _ in range(2))

    def forward(self, key: Any, value: Any, positions: Any) -> tuple[Any, Any]:
        """Put keys and values at their positions i64[new]; return all that the cache holds."""
        self.keys.update(F.index_copy(self.keys, 2, positions, key))
        self.values.update(F.index_copy(self.values, 2, positions, value))
        return self.keys, self.values


class ModuleList(Module):
    """Modules by their positions."""

    def __init__(self, modules: Sequence[Module]) -> None:
        vars(self).update({str(i): module for i, module in enumerate(modules)})

    def __iter__(self) -> Iterator[Module]:
        return iter(vars(self).values())

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, position: int) -> Module:
        return list(self)[position]


class Sequential(ModuleList):
    """A sequence of modules."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """Return the last module's result."""
        for module in self:
            x = module(x)
        return x
