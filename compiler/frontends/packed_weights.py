"""Layers of torch.ao, whose weights are packed for PyTorch's own kernels, during export.

torch.export cannot trace these. The linear layers of `quantize_dynamic` compute the same in operators that
have kernels; other layers, and tensors in PyTorch's quantised dtypes, are refused in one sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..ir.errors import UnsupportedOp

DYNAMIC = "torch.ao.nn.quantized.dynamic"
DYNAMIC_RELU = "torch.ao.nn.intrinsic.quantized.dynamic"
STEPS = 127.0  # of an activation: PyTorch leaves one bit unused, for 16-bit sums of pairs on older CPUs
SMALLEST = 6.1e-5  # a scale
ADVICE = "quantise with prepare_pt2e and convert_pt2e, or torchao's quantize_"
DTYPES = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)


@contextmanager
def without_packed_weights(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the module to export, with our layers in place of those of `quantize_dynamic`, which are restored
    afterwards. Raises UnsupportedOp, naming the layer, for others with packed weights."""
    made = {part: _DynamicLinear(part) for part in model.modules() if _is_linear(part)}
    within = {inner for part in made for inner in part.modules()}
    for path, part in model.named_modules():
        if part not in within:
            _check(path, part)
    owners = [(owner, name, part) for owner in model.modules() for name, part in owner.named_children()]
    try:
        for owner, name, part in owners:
            if part in made:
                owner._modules[name] = made[part]
        yield made.get(model, model)
    finally:
        for owner, name, part in owners:
            owner._modules[name] = part


def _is_linear(part: nn.Module) -> bool:
    module = sys.modules.get(DYNAMIC)
    return module is not None and isinstance(part, module.Linear)


def _check(path: str, part: nn.Module) -> None:
    """Raise UnsupportedOp for a layer with packed weights."""
    inner = getattr(part, "_packed_params", None)
    held = [value for each in (part, inner) if isinstance(each, nn.Module) for value in vars(each).values()]
    if not type(part).__module__.startswith("torch.ao.nn.") or not any(map(_is_packed, held)):
        return
    where = f"module {path!r}" if path else "the module"
    raise UnsupportedOp(
        f"{where} ({type(part).__module__.rpartition('.modules')[0]}.{type(part).__name__}): torch.export "
        "cannot trace layers whose weights are packed for PyTorch's own kernels, but for the linear layers "
        f"of quantize_dynamic; {ADVICE}"
    )


def check_quantised(node: torch.fx.Node, overload: str, source: str) -> None:
    """Raise UnsupportedOp if `node` uses one of PyTorch's quantised dtypes, or a tensor in it."""
    values = [each.meta.get("val") for each in node.all_input_nodes]
    found = [*node.args, *node.kwargs.values(), *(x.dtype for x in values if isinstance(x, Tensor))]
    if dtype := next((str(each).removeprefix("torch.") for each in found if _is_quantised(each)), ""):
        raise UnsupportedOp(f"{overload}: no kernel computes in PyTorch's {dtype}; {ADVICE}", source=source)


def _is_quantised(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in DTYPES


def _is_packed(value: Any) -> bool:
    return isinstance(value, torch.ScriptObject) and "PackedParams" in str(value._type())


class _DynamicLinear(nn.Module):
    """A linear layer whose input is quantised at each call, with one scale and zero point."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        import torch.ao.quantization.fx._decomposed  # noqa: F401 - defines the operators

        weight = layer.weight()
        with_relu = sys.modules.get(DYNAMIC_RELU)
        self.has_relu = with_relu is not None and isinstance(layer, with_relu.LinearReLU)
        self.bias = layer.bias()
        self.is_half = not weight.is_quantized
        if self.is_half:
            self.weight = nn.Buffer(weight.detach().half())  # rounded already
            return
        rows = len(weight)
        scales, zeros = _parameters_of(weight)
        self.weight = nn.Buffer(weight.int_repr())
        self.scales = nn.Buffer(scales.float().expand(rows).clone())
        self.zeros = nn.Buffer(zeros.expand(rows).clone())
        version = layer.version
        self.steps = STEPS if version is not None and version >= 4 else 255.0

    def forward(self, x: Tensor) -> Tensor:
        """Multiply like quantized::linear_dynamic."""
        wide = x.float()
        result = linear(wide, self.weight.float(), self.bias) if self.is_half else self._of_bytes(wide)
        return (result.relu() if self.has_relu else result).to(x.dtype)

    def _of_bytes(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        scale, zero = parameters(x, self.steps)
        q = ops.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        rounded = ops.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)
        weight = ops.dequantize_per_channel.default(
            self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
        )
        return linear(rounded, weight, self.bias)


def _parameters_of(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scales and the zero points of a weight: one, or one for each channel."""
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        return weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    return torch.tensor([weight.q_scale()]), torch.tensor([weight.q_zero_point()])


def parameters(x: Tensor, steps: float) -> tuple[Tensor, Tensor]:
    """Return the scale in f32 and the zero point in i32 that PyTorch's kernels choose for all of x."""
    least, most = x.amin().clamp(max=0.0).double(), x.amax().clamp(min=0.0).double()
    scale = (most - least) / steps
    has_none = (scale.float() == 0) | (1 / scale.float()).isinf()
    scale = torch.where(has_none, 0.1, scale)
    factor = torch.where(scale < SMALLEST, SMALLEST / scale, 1.0)
    below, above = least / scale, most / scale
    is_from_least = -below.abs() < steps - above.abs()
    zero = torch.where(is_from_least, -below, steps - above).clamp(0, steps).round().int()
    return (scale * factor).float(), zero
