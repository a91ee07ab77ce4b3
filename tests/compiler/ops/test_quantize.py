"""The operators of torch's quantisers: PyTorch's integers exactly, its floats within their rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from shapevm.compiler.frontends.importer import find_converter

import shapevm

Q = torch.ops.quantized_decomposed
ROWS = torch.export.Dim("rows", min=0, max=64)
SCALES, ZEROS = torch.tensor([0.1, 0.02, 0.37, 1.5]), torch.tensor([3, 0, -7, 11])
GROUP_SCALES = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
BYTES = torch.tensor([[127, -128, 3, 0], [1, 2, 3, 4], [-5, 0, 0, 9]], dtype=torch.int8)
GROUP_ZEROS = torch.tensor([[1, -2], [3, 0], [0, 5]], dtype=torch.int32)


def rows_of(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a scale and a zero point for each row."""
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-3) / 100, torch.ones(x.shape[0], 1, dtype=torch.int32)


def there_and_back_per_token(x: torch.Tensor) -> torch.Tensor:
    scale, zero = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
    q = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return Q.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32)


#: functions of x [rows, 4] in f32.
FUNCTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "per tensor": lambda x: Q.quantize_per_tensor(x, 0.037, 12, 0, 255, torch.uint8),
    "per tensor, i8": lambda x: Q.quantize_per_tensor(x, 0.01, -5, -127, 127, torch.int8),
    "per tensor, i32": lambda x: Q.quantize_per_tensor(x, 1e-5, 0, -(2**31), 2**31 - 1, torch.int32),
    "per tensor of tensors": lambda x: Q.quantize_per_tensor.tensor(
        x, torch.tensor(0.037), torch.tensor(12), 0, 255, torch.uint8
    ),
    "per tensor, limits in tensors": lambda x: Q.quantize_per_tensor.tensor2(
        x, torch.tensor(0.037), torch.tensor(12), torch.tensor(2), torch.tensor(200), torch.uint8
    ),
    "product by bytes": lambda x: torch._weight_int8pack_mm(x, BYTES, GROUP_SCALES[:, 0].contiguous()),
    "per tensor, back": lambda x: Q.dequantize_per_tensor(
        (x * 20).to(torch.uint8), 0.037, 12, 0, 255, torch.uint8
    ),
    "per tensor, back to bf16": lambda x: Q.dequantize_per_tensor(
        (x * 20).to(torch.int8), 0.037, 12, -128, 127, torch.int8, out_dtype=torch.bfloat16
    ),
    "per tensor of tensors, back": lambda x: Q.dequantize_per_tensor.tensor(
        (x * 20).to(torch.int8), torch.tensor(0.037), torch.tensor(12), -128, 127, torch.int8
    ),
    "per tensor of what a call gives": lambda x: Q.quantize_per_tensor.tensor(
        x, x.abs().sum() + 0.01, torch.tensor(3), -128, 127, torch.int8
    ),
    "per channel": lambda x: Q.quantize_per_channel(x, SCALES, ZEROS, 1, -128, 127, torch.int8),
    "per channel, back": lambda x: Q.dequantize_per_channel(
        (x * 20).to(torch.int8), SCALES, ZEROS, 1, -128, 127, torch.int8
    ),
    "per channel, f64, back": lambda x: Q.dequantize_per_channel(
        (x * 20).to(torch.int8), SCALES.double(), None, 1, -128, 127, torch.int8
    ),
    "per token": lambda x: Q.quantize_per_token(x, *rows_of(x), -128, 127, torch.int8),
    "per token, chosen": there_and_back_per_token,
    "per group": lambda x: Q.quantize_per_channel_group(
        x[:3], GROUP_SCALES, GROUP_ZEROS, -8, 7, torch.int8, 2
    ),
    "per group, back": lambda x: Q.dequantize_per_channel_group(
        (x[:3] * 3).to(torch.int8), GROUP_SCALES, GROUP_ZEROS, -8, 7, torch.int8, 2, torch.float32
    ),
    "choose": lambda x: Q.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8),
    "choose, symmetric": lambda x: Q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-6, torch.int8),
    "choose, symmetric, u8": lambda x: Q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-6, torch.uint8),
}


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        """Apply it."""
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_eager(name: str) -> None:
    torch.manual_seed(0)
    module, needs_rows = Of(FUNCTIONS[name]), 3 if "group" in name else 0
    needs_rows = max(needs_rows, 1 if "choose" in name else 0)
    rows = torch.export.Dim("rows", min=needs_rows, max=64)
    exe = shapevm.compile(
        module, (torch.randn(5, 4),), dynamic_shapes=({0: rows},), options=shapevm.Options(fallback="error")
    )
    for n in (0, 1, 3, 17):
        if n >= needs_rows:
            x = torch.randn(n, 4) * 3
            torch.testing.assert_close(exe(x), module(x))
    exact = torch.tensor([[0.5, -0.5, 1.5, 2.5]] * 3) * 0.037  # halves of a step: to even
    torch.testing.assert_close(exe(exact), module(exact))


def test_channels_that_only_a_call_tells_are_checked_there() -> None:
    """`torch.export` does not say that `Dim.AUTO` of the channels has to be the number of scales."""
    module = Of(FUNCTIONS["per channel, back"])
    exe = compiled_for_all_sizes(module, torch.randn(5, 4))
    for n in (2, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(exe(x), module(x))
    with pytest.raises(shapevm.Error, match=r"dequantize_per_channel: sizes 4 and s1 must be equal"):
        exe(torch.randn(5, 6))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.startswith("per group")])
def test_groups_of_rows_whose_length_only_a_call_tells(name: str) -> None:
    module = Of(FUNCTIONS[name])
    x = torch.randn(5, 4)
    with compiled_for_all_sizes(module, x) as exe:
        torch.testing.assert_close(exe(x), module(x))
        with pytest.raises(shapevm.Error, match=r"must be equal|the model needs .* == 6"):
            exe(torch.randn(5, 6))


def test_one_group_of_rows_whose_length_only_a_call_tells() -> None:
    def one_scale(x: torch.Tensor) -> torch.Tensor:
        return Q.quantize_per_channel_group(x, GROUP_SCALES[:, :1], GROUP_ZEROS[:, :1], -8, 7, torch.int8, 8)

    x = torch.randn(3, 4)
    with compiled_for_all_sizes(Of(one_scale), x) as exe:
        torch.testing.assert_close(exe(x), one_scale(x))
        with pytest.raises(shapevm.Error, match="axis 1 has size 9, so s1 is 9; it must be at most 7"):
            exe(torch.randn(3, 9))


def compiled_for_all_sizes(module: torch.nn.Module, x: torch.Tensor) -> shapevm.Executable:
    """Compile an exported program whose axes are all `Dim.AUTO`."""
    auto = (dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO),)
    return shapevm.compile(torch.export.export(module, (x,), dynamic_shapes=auto))


def test_every_overload_is_imported() -> None:
    schemas = torch._C._jit_get_all_schemas()
    names = {f"{s.name.replace('::', '.')}.{s.overload_name or 'default'}" for s in schemas}
    ours = {name for name in names if name.startswith("quantized_decomposed.")}
    missing = {name for name in ours if find_converter(name) is None}
    assert missing == {
        "quantized_decomposed.fake_quant_per_channel.default",  # of training
        "quantized_decomposed.choose_qparams_per_token.default",  # traced as f64, its results are f32
    }
