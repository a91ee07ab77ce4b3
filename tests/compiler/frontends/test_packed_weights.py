"""Layers of torch.ao with packed weights: those of `quantize_dynamic` compile, others are refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from shapevm.compiler.frontends.packed_weights import parameters
from torch import nn

import shapevm
from shapevm.reports.inspect import inspection

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.ao import quantization
    from torch.ao.quantization import quantize_fx

ROWS = torch.export.Dim("rows", min=1, max=64)
NATIVE = shapevm.Options(fallback="error")
pytestmark = pytest.mark.filterwarnings("ignore")


def perceptron() -> nn.Module:
    """Return two linear layers, one of them without bias."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(97, 40), nn.ReLU(), nn.Linear(40, 33, bias=False)).eval()


CONFIGURATIONS = {
    "one scale": {"qconfig_spec": {nn.Linear}, "dtype": torch.qint8},
    "a scale a channel": {"qconfig_spec": {nn.Linear: quantization.per_channel_dynamic_qconfig}},
    "half": {"qconfig_spec": {nn.Linear}, "dtype": torch.float16},
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_linear_layers_of_quantize_dynamic(name: str, tmp_path: Path) -> None:
    model = quantization.quantize_dynamic(perceptron(), **CONFIGURATIONS[name])
    layers = list(model)
    exe = shapevm.compile(model, (torch.randn(5, 97),), dynamic_shapes=({0: ROWS},), options=NATIVE)
    assert list(model) == layers and type(model[0]).__name__ == "Linear"
    exe.save(tmp_path / "model.svm")
    held = [(row["name"], row["format"]) for row in inspection(tmp_path / "model.svm")["rounded_weights"]]
    wanted = [("0.weight", "u8 x int8"), ("2.weight", "u8 x int8")] if name != "half" else []
    assert held == wanted
    for rows in (1, 5, 33):
        for x in (torch.randn(rows, 97), torch.rand(rows, 97), torch.zeros(rows, 97)):
            # A last bit of the first layer may round an activation of the second to the step beside it.
            torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=0.02)
            torch.testing.assert_close(exe(x).mean(), model(x).mean(), rtol=1e-3, atol=1e-4)


def test_a_layer_alone_and_fused_with_relu() -> None:
    x = torch.randn(5, 97)
    mapping = quantization.QConfigMapping().set_global(quantization.default_dynamic_qconfig)
    fused = quantize_fx.convert_fx(quantize_fx.prepare_fx(perceptron(), mapping, x))
    alone = quantization.quantize_dynamic(perceptron(), {nn.Linear})[0]
    for model in (fused, alone):
        exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize("steps", [127, 255])
def test_parameters_are_pytorch_own(steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for power in range(-44, 38):
        rows = torch.randn(6, 20, generator=generator) * 10.0**power
        rows[1], rows[2] = rows[1].abs(), -rows[2].abs()
        rows[3] += rows[3].abs().max()
        rows[4] = 0
        for x in rows:
            scale, zero = parameters(x, float(steps))
            wanted = torch._choose_qparams_per_tensor(x, steps == 127)
            assert (float(scale), int(zero)) == (pytest.approx(wanted[0], rel=1e-6), wanted[1])


def test_other_layers_are_refused_in_one_sentence() -> None:
    x = torch.randn(5, 97)
    mapping = quantization.get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(perceptron(), mapping, x)
    prepared(x)
    with pytest.raises(shapevm.UnsupportedOp) as raised:
        shapevm.compile(quantize_fx.convert_fx(prepared), (x,))
    assert str(raised.value) == (
        "module '0' (torch.ao.nn.intrinsic.quantized.LinearReLU): torch.export cannot trace layers whose "
        "weights are packed for PyTorch's own kernels, but for the linear layers of quantize_dynamic; "
        "quantise with prepare_pt2e and convert_pt2e, or torchao's quantize_"
    )


class Quantising(nn.Module):
    """Gives a tensor of PyTorch's quantised dtypes on the way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Round x."""
        return torch.quantize_per_tensor(x, 0.05, 10, torch.quint8).dequantize()


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (None, "aten.quantize_per_tensor.default: no kernel computes in PyTorch's quint8; quantise with "),
        (({0: ROWS},), "torch.export cannot trace aten.dequantize.self, whose result PyTorch cannot tell"),
    ],
)
def test_quantised_tensors_are_refused_in_one_sentence(shapes: object, said: str) -> None:
    with pytest.raises(shapevm.UnsupportedOp) as raised:
        shapevm.compile(Quantising(), (torch.randn(5, 97),), dynamic_shapes=shapes)
    text = str(raised.value)
    assert text.startswith(said) and "prepare_pt2e" in text
    assert "test_packed_weights.py:" in text and "\n" not in text
