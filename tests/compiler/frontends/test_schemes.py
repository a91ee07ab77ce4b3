"""Schemes of quantisation that kernels do not read: one sentence says which, where, and what happens."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
    MappingType,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup, PerRow, PerTensor
from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

import shapevm
from shapevm.reports.inspect import inspection

ROWS = torch.export.Dim("rows", min=1, max=64)
#: For a target that multiplies no bytes: integers stay integers there, however few they are.
WIDENING = shapevm.Options(fallback="error", target="x86-64-v3")


def compiled(model: torch.nn.Module, x: torch.Tensor) -> shapevm.Executable:
    """Return a model compiled for any number of rows; its values are eager's."""
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=WIDENING)
    for rows in (1, 5, 33):
        x = torch.randn(rows, *x.shape[1:])
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-4)
    return exe


def quantised(config: object, width: int = 96) -> torch.nn.Module:
    """Return a linear layer that torchao has quantised."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 40)).eval()
    quantize_(model, config)
    return model


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the logger of shapevm warned of."""
    found = [record for record in caplog.records if record.name == "shapevm"]
    return [record.getMessage() for record in found if record.levelno >= logging.WARNING]


def weights(exe: shapevm.Executable, folder: Path) -> list[dict]:
    """Return what `inspect` says of the weights."""
    exe.save(folder / "model.svm")
    return inspection(folder / "model.svm")["rounded_weights"]


@pytest.mark.parametrize(
    ("dtype", "group", "held"),
    [
        (torch.int4, 48, "int4, groups of 16"),
        (torch.int4, 96, "int4, groups of 32"),
        (torch.int2, 32, "int4, groups of 32"),
        (torch.int8, 32, "int8, groups of 32"),
    ],
)
def test_groups_of_any_multiple_have_kernels(
    dtype: torch.dtype, group: int, held: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = quantised(IntxWeightOnlyConfig(dtype, PerGroup(group)), 192)
    (row,) = weights(compiled(model, torch.randn(5, 192)), tmp_path)
    assert (row["format"], row["reason"]) == (held, "") and not told(caplog)


def test_other_groups_are_held_in_f32(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exe = compiled(quantised(IntxWeightOnlyConfig(torch.int4, PerGroup(24))), torch.randn(5, 96))
    (row,) = weights(exe, tmp_path)
    assert row["format"] == "f32" and row["bytes"] == 4 * 96 * 40
    (line,) = told(caplog)
    assert line == row["reason"]
    assert line.startswith("linear by '") and line.endswith(
        "no kernel reads a weight in int4, groups of 24, as it is, since kernels read groups of 16 steps and "
        "their multiples; it is held in f32"
    )


class WrongAxis(torch.nn.Module):
    """A linear layer whose weight has a scale for each input channel."""

    def __init__(self) -> None:
        super().__init__()
        self.q = torch.nn.Buffer(torch.randint(-128, 128, (40, 96), dtype=torch.int8))
        self.scale = torch.nn.Buffer(torch.rand(96) + 0.1)
        self.zero = torch.nn.Buffer(torch.zeros(96, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.q, self.scale, self.zero, 1, -128, 127, torch.int8
        )
        return torch.nn.functional.linear(x, weight)


def test_scales_along_the_wrong_axis(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exe = compiled(WrongAxis(), torch.randn(5, 96))
    (row,) = weights(exe, tmp_path)
    assert row["format"] == "f32" and "int8, a scale for each step" in row["reason"]
    assert "test_schemes.py:" in row["reason"]
    assert told(caplog) == [row["reason"]]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
@pytest.mark.parametrize("granularity", [PerAxis(0), PerGroup(32)])
@pytest.mark.parametrize("has_bytes", [False, True])
def test_zero_points_cost_no_bits(
    dtype: torch.dtype, granularity: object, has_bytes: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = IntxWeightOnlyConfig(dtype, granularity, mapping_type=MappingType.ASYMMETRIC)
    if has_bytes:
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=dtype, weight_granularity=granularity, weight_mapping_type=MappingType.ASYMMETRIC
        )
    model = quantised(config)
    exe = compiled(model, torch.randn(5, 96))
    (row,) = weights(exe, tmp_path)
    held = (
        "int8" if isinstance(granularity, PerAxis) else f"int{4 if dtype == torch.int4 else 8}, groups of 32"
    )
    assert row["format"] == ("u8 x " if has_bytes else "") + held
    assert not row["reason"] and not told(caplog)


@pytest.mark.parametrize("mapping", [MappingType.SYMMETRIC, MappingType.ASYMMETRIC])
@pytest.mark.parametrize(("dtype", "held"), [(torch.int8, "int8"), (torch.int4, "int4")])
def test_scales_of_each_place_of_a_window(
    dtype: torch.dtype, held: str, mapping: MappingType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3)).eval()
    config = IntxWeightOnlyConfig(dtype, PerAxis(0), mapping)
    quantize_(model, config, lambda module, _: isinstance(module, torch.nn.Conv2d))
    (row,) = weights(compiled(model, torch.randn(4, 8, 9, 9)), tmp_path)
    assert row["format"] == "f32" and told(caplog) == [row["reason"]]
    assert (
        row["reason"].startswith("conv by '")
        and f"a weight in {held}, a scale for each step" in row["reason"]
    )
    assert " of module '0': no kernel" in row["reason"] and row["reason"].endswith(
        "since a channel has several scales, or one that is not finite; it is held in f32"
    )


class OneLinear(torch.nn.Module):
    """A linear layer, called from a line of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(97, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.nn.functional.linear(x, self.linear.weight, self.linear.bias)


@pytest.mark.parametrize("granularity", [PerRow(), PerTensor()])
def test_weights_in_float8_are_held_in_f32(
    granularity: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = OneLinear().eval()
    quantize_(model, Float8WeightOnlyConfig())
    if isinstance(granularity, PerTensor):
        model.linear.weight = torch.nn.Parameter(
            Float8Tensor.from_hp(torch.randn(40, 97), granularity=granularity), requires_grad=False
        )
    (row,) = weights(compiled(model, torch.randn(5, 97)), tmp_path)
    scales = "one scale" if isinstance(granularity, PerTensor) else "a scale for each column"
    (line,) = told(caplog)
    assert re.fullmatch(
        r"matmul by 'linear\.parametrizations\.weight\.original0' at test_schemes\.py:\d+: "
        "no kernel reads a weight in "
        f"float8_e4m3fn, {scales}, as it is; it is held in f32",
        line,
    )
    assert (row["name"], row["reason"]) == ("linear.parametrizations.weight.original0", line)
    assert (row["shape"], row["format"], row["bytes"], row["error"]) == ([97, 40], "f32", 4 * 97 * 40, 0.0)


def test_a_module_of_torch_itself_is_named(caplog: pytest.LogCaptureFixture) -> None:
    compiled(quantised(Float8WeightOnlyConfig()), torch.randn(5, 96))
    (line,) = told(caplog)
    weight = "0.parametrizations.weight.original0"
    assert line.startswith(f"matmul by {weight!r} of module '0': no kernel reads a weight in float8_e4m3fn")


class Widened(torch.nn.Module):
    """A table in float8 that a program widens and multiplies by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(torch.randn(7, 96).to(torch.float8_e5m2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply, column by column."""
        return x * self.table.float().sum(0)


def test_float8_without_a_scale(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (row,) = weights(compiled(Widened(), torch.randn(5, 96)), tmp_path)
    assert (row["name"], row["shape"], row["format"]) == ("table", [7, 96], "f32")
    assert told(caplog) == [row["reason"]]
    assert row["reason"].startswith("sum by 'table' at test_schemes.py:")
    assert "a weight in float8_e5m2, no scale, as it is" in row["reason"]


class InFloat8(torch.nn.Module):
    """Rounds its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Round x."""
        return x.to(torch.float8_e5m2).float()


def test_activations_in_float8_are_refused_in_one_sentence() -> None:
    x = torch.randn(5, 96)
    with pytest.raises(shapevm.UnsupportedOp) as raised:
        shapevm.compile(InFloat8(), (x,), dynamic_shapes=({0: ROWS},))
    assert "aten." in str(raised.value) and "test_schemes.py:" in str(raised.value)
    assert "no kernel computes in float8_e5m2; quantise activations to int8, or" in str(raised.value)
    with pytest.raises(shapevm.DtypeError, match="float8_e5m2 cannot be compiled"):
        shapevm.compile(torch.nn.Flatten(), (x.to(torch.float8_e5m2),))
