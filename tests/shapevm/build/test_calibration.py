"""Programs whose activations are bytes, with the ranges that samples have."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.llvm.target import find_target, host_target
from shapevm.jit.spec_reader import from_json

import shapevm
from shapevm.__main__ import main
from shapevm.reports.inspect import inspect_text, inspection

ROWS = torch.export.Dim("rows", min=1, max=64)
DYNAMIC = ({0: ROWS},)


class Perceptron(torch.nn.Module):
    """Two linear layers, of which the second one's input has a channel of large values."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(width, 96), torch.nn.Linear(96, 40, bias=False)
        with torch.no_grad():
            self.first.weight[7] *= 50
            self.second.weight[:, 7] /= 50

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both to x [rows, width]."""
        return self.second(torch.nn.functional.gelu(self.first(x)))


class Images(torch.nn.Module):
    """Convolutions of every kind, a residual, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
        self.depthwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.wide, self.grouped = torch.nn.Conv2d(16, 32, 1), torch.nn.Conv2d(32, 32, 3, padding=1, groups=2)
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify images [n, 3, h, w]."""
        x = torch.relu(self.norm(self.stem(x)))
        x = self.wide(torch.nn.functional.silu(self.depthwise(x)))
        x = torch.relu(x + self.grouped(x))
        return self.last(x.mean((2, 3)))


def share(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the norm of the difference as a share of the norm."""
    return float((found - wanted).detach().norm() / wanted.detach().norm())


def products(exe: shapevm.Executable) -> list[ProductSpec]:
    """Return the specs of the products and convolutions."""
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    return [spec for spec in specs if isinstance(spec, ProductSpec)]


@pytest.mark.parametrize(("weights", "limit"), [("int8", 0.05), ("int4", 0.15)])
def test_linear_layers_multiply_bytes(weights: str, limit: float, tmp_path: Path) -> None:
    model, samples = Perceptron(), [(torch.randn(64, 64),) for _ in range(4)]
    options = shapevm.Options(weights=weights, calibrate=samples)
    exe = shapevm.compile(model, (torch.randn(5, 64),), dynamic_shapes=DYNAMIC, options=options)
    assert [spec.product.b_layout in ("quads", "grouped_quads") for spec in products(exe)] == [True, True]
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        for rows in (1, 2, 17, 64):
            x = torch.randn(rows, 64)
            y = exe(x)
            assert share(y, model(x)) < limit, rows
            assert torch.equal(y, exe.using("generic")(x)) and torch.equal(y, exe.using("jit")(x))
            assert torch.equal(y, loaded(x)) and torch.equal(exe(x[:1]), y[:1])


def test_convolutions_multiply_bytes_and_images_are_held_in_them(tmp_path: Path) -> None:
    model = Images().eval()
    samples = [{"x": torch.randn(3, 3, 12, 12)} for _ in range(3)]
    options = shapevm.Options(weights="int8", calibrate=samples)
    shapes = ({0: ROWS, 2: torch.export.Dim("height", min=4, max=40)},)
    exe = shapevm.compile(model, (torch.randn(2, 3, 12, 12),), dynamic_shapes=shapes, options=options)
    stem, depthwise, wide, grouped, last = products(exe)
    assert isinstance(depthwise, Conv) and depthwise.product.b_layout == "rows"
    assert depthwise.buffers[depthwise.product.a].dtype == "u8"
    assert {spec.product.b_layout for spec in (stem, wide, grouped, last)} == {"quads"}
    assert [buffer.dtype for buffer in grouped.buffers].count("u8") == 2  # the image and what is added
    for spec in (stem, depthwise, wide):
        assert [buffer.dtype for buffer in spec.buffers if buffer.is_output] == ["u8"]
    for n, height in ((1, 4), (2, 12), (3, 33)):
        x = torch.randn(n, 3, height, 12)
        assert share(exe(x), model(x)) < 0.02
        assert torch.equal(exe(x), exe.using("jit")(x))
    exe.save(tmp_path / "model.svm")
    rows = {row["name"]: row for row in inspection(tmp_path / "model.svm")["rounded_weights"]}
    assert {rows[f"{name}.weight"]["format"] for name in ("depthwise", "wide", "grouped", "last")} == {
        "u8 x int8"
    }
    assert all(0 < row["error"] < 0.02 for row in rows.values())
    assert "u8 x int8" in inspect_text(tmp_path / "model.svm")


def test_products_that_follow_each_other_directly() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(3)]
    model, x = torch.nn.Sequential(*layers), torch.randn(64, 64)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert [spec.product.b_layout for spec in products(exe)] == ["quads"] * 3
    assert share(exe(x), model(x)) < 0.03
    convs = [torch.nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(3)]
    model, x = torch.nn.Sequential(*convs), torch.randn(2, 16, 9, 9)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert [spec.product.b_layout for spec in products(exe)] == ["quads"] * 3
    assert share(exe(x), model(x)) < 0.03


def f32_operations(spec: Any) -> list[str]:
    """Return what an epilogue computes in f32."""
    body = spec.product.epilogue
    return [x.op for x in body if x.dtype == "f32" and x.op not in ("load", "const")]


def test_what_is_done_by_channel_behind_a_product_is_one_multiply_add() -> None:
    class Scaled(torch.nn.Module):
        """A convolution, a batch norm, relu6, and another convolution."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.norm = torch.nn.Conv2d(16, 32, 1), torch.nn.BatchNorm2d(32)
            self.second = torch.nn.Conv2d(32, 16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Convolve."""
            return self.second(torch.nn.functional.relu6(4 * self.norm(self.first(x))))

    model, x = Scaled().eval(), torch.randn(2, 16, 9, 9)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    ops = f32_operations(products(exe)[0])
    assert ops == ["cast", "fma", "maximum", "minimum"]  # neither the norm nor relu6 is left
    assert share(exe(x), model(x)) < 0.02


class Residual(torch.nn.Module):
    """A block of a ResNet: two convolutions and what they are added to, an image or a third convolution."""

    def __init__(self, has_third: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.first, self.second, self.third, self.last = (
            torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(5)
        )
        self.norm, self.has_third = torch.nn.BatchNorm2d(16), has_third

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve, and add."""
        x = torch.relu(self.before(x))  # which is held in bytes, so whoever adds it dequantises it
        y = self.norm(self.second(torch.relu(self.first(x))))
        return self.last(torch.relu(y + (self.third(x) if self.has_third else x)))


def test_a_stem_and_its_pool_have_bytes() -> None:
    """The image is rounded channels first, and the pool takes maxima of bytes."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 7, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
    model, x = torch.nn.Sequential(*layers, torch.nn.Conv2d(32, 16, 3)), torch.randn(2, 3, 40, 36)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert [spec.product.b_layout for spec in products(exe)] == ["quads"] * 2
    f32 = [
        b
        for k in exe.machine.kernels
        for b in from_json(k.spec).buffers
        if b.dtype == "f32" and len(b.shape) > 2
    ]
    assert len(f32) == 2  # the image and the result
    assert share(exe(x), model(x)) < 0.02


@pytest.mark.parametrize("has_third", [False, True])
def test_a_residual_is_one_multiply_add_more(has_third: bool) -> None:
    model, x = Residual(has_third).eval(), torch.randn(2, 16, 9, 9)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    found = [f32_operations(spec) for spec in products(exe)]
    assert ["cast", "cast", "fma", "fma", "maximum", "minimum"] in [sorted(ops) for ops in found]
    held = [buffer.dtype for spec in products(exe)[:-1] for buffer in spec.buffers if buffer.is_output]
    assert set(held) == {"u8"}  # no sums are in memory
    assert share(exe(x), model(x)) < 0.03


def test_images_that_go_by_winograd_have_the_bits_of_generic_code(tmp_path: Path) -> None:
    """3 x 3 taps of 64 channels: of bytes from 0 on, of others, with a residual; in the runner as well."""
    torch.manual_seed(0)
    first, second, third = (torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))

    class Block(torch.nn.Module):
        """Three convolutions, the second of which sees negative numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = first, second, third

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Convolve images [n, 64, 30, 29]."""
            y = self.second(torch.tanh(self.first(x)))
            return self.third(torch.relu(y)) + x

    model, x = Block().eval(), torch.randn(2, 64, 30, 29)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), strategy="jit", options=options)
    y = exe(x)
    assert share(y, model(x)) < 0.03
    before = shapevm.get_threads()
    try:
        for threads in (1, 2, 3):
            shapevm.set_threads(threads)
            assert torch.equal(y, exe.using("generic")(x)) and torch.equal(y, exe(x))
    finally:
        shapevm.set_threads(before)
    exe.save(tmp_path / "model.svm")
    is_used = find_target(host_target()).quad_cost > 0
    assert ("winograd-bytes" in inspect_text(tmp_path / "model.svm")) is is_used
    np.save(tmp_path / "x.npy", x.numpy())
    (given,) = exe.inputs
    command = [shapevm.runner_path(), "model.svm", "--input", f"{given.name}=x.npy", "--output", "y.npy"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert np.array_equal(np.load(tmp_path / "y.npy"), y.numpy())


def test_smoothing_leaves_steps_for_small_channels() -> None:
    """Without it the channel of large values would take most of them."""
    model, x = Perceptron(), torch.randn(64, 64)
    hidden = torch.nn.functional.gelu(model.first(x))
    scale = (hidden.max() - hidden.min()) / 255
    coarse = model.second((hidden / scale).round() * scale)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert share(exe(x), model(x)) < share(coarse, model(x)) / 3


def test_the_error_that_inspect_tells_is_that_of_the_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(512, 64, bias=False), torch.randn(256, 512)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), options=options)
    exe.save(tmp_path / "model.svm")
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert row["error"] == pytest.approx(share(exe(x), model(x)), rel=0.15)


@pytest.mark.parametrize(("limit", "formats"), [(0.012, {"u8 x int8"}), (0.008, {"int8"})])
def test_a_layer_that_would_change_too_much_is_rounded_less(
    limit: float, formats: set[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(512, 64, bias=False), torch.randn(256, 512)
    options = shapevm.Options(weights="int8", calibrate=[(x,)], max_error=limit)
    exe = shapevm.compile(model, (x,), options=options)
    exe.save(tmp_path / "model.svm")
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert {row["format"]} == formats
    assert ("activations in u8: its error would be" in row["reason"]) == (limit < 0.01)


class Others(torch.nn.Module):
    """Layers without a form in bytes, and one with it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(12, 12, 3, groups=12)
        self.grouped, self.plain = torch.nn.Conv2d(12, 24, 3, groups=6), torch.nn.Conv2d(24, 12, 1)
        self.up, self.short = torch.nn.ConvTranspose2d(12, 8, 3, stride=2), torch.nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply all to images [n, 12, h, w]."""
        x = self.up(torch.relu(self.plain(torch.relu(self.grouped(torch.relu(self.first(x)))))))
        return self.short(x.mean((2, 3)))


def test_layers_that_stay_as_they_are_are_listed_with_the_reason(tmp_path: Path) -> None:
    model, x = Others().eval(), torch.randn(8, 12, 12, 12)
    rows = listed(model, x, tmp_path, target="x86-64-v3")  # others may leave a short weight in f32
    assert {name: row["format"] for name, row in rows.items()} == {
        "first.weight": "f32", "grouped.weight": "f32", "plain.weight": "u8 x int8", "up.weight": "f32",
        "short.weight": "int8",
    }  # fmt: skip
    assert rows["first.weight"]["bytes"] == 4 * 9 * 12 and rows["first.weight"]["error"] == 0
    assert "depthwise convolutions of an input gain nothing" in rows["first.weight"]["reason"]
    for name in ("grouped.weight", "up.weight"):
        assert "no convolution of bytes has such a window or such groups" in rows[name]["reason"]
    assert "sums of fewer than 16 products gain nothing" in rows["short.weight"]["reason"]
    assert not rows["plain.weight"]["reason"]
    rows = listed(model, x, tmp_path, max_error=1e-4)
    assert "its error would be " in rows["plain.weight"]["reason"]
    assert {row["format"] for row in rows.values()} == {"f32"}


def listed(model: torch.nn.Module, x: torch.Tensor, folder: Path, **more: Any) -> dict[str, dict]:
    """Return what `inspect` tells of each weight of a calibrated model."""
    options = shapevm.Options(weights="int8", calibrate=[(x,)], **more)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    exe.save(folder / "model.svm")
    return {row["name"]: row for row in inspection(folder / "model.svm")["rounded_weights"]}


def test_a_branch_and_state_stay_as_they_are() -> None:
    class Counting(torch.nn.Module):
        """A linear layer that counts its calls, and changes an argument in place."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(32, 16)
            self.calls = torch.nn.Buffer(torch.zeros(1))

        def forward(self, x: torch.Tensor, seen: torch.Tensor) -> dict[str, torch.Tensor]:
            """Multiply, count."""
            self.calls += 1
            seen += x.sum()
            return {"y": self.linear(x), "calls": self.calls + 0}

    model, x = Counting(), torch.randn(4, 32)
    options = shapevm.Options(weights="int8", calibrate=[(x, torch.zeros(1)), (x, torch.zeros(1))])
    exe = shapevm.compile(model, (x, torch.zeros(1)), options=options)
    (product,) = products(exe)
    assert product.product.b_layout == "quads"
    seen = torch.zeros(1)
    found = exe(x, seen)
    assert found["calls"].item() == 1 and seen.item() == pytest.approx(x.sum().item(), rel=1e-5)
    assert share(found["y"], model.linear(x)) < 0.02


def test_small_sizes_are_tried_without_rounding() -> None:
    """Inputs far outside of the samples' range are no other branch of the model."""

    class Branch(torch.nn.Module):
        """A product behind values that grow as there are fewer rows."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(32, 16, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Multiply."""
            return self.linear(x / (x.shape[0] - 0.999) ** 2)

    model, x = Branch(), torch.randn(40, 32)
    options = shapevm.Options(weights="int8", calibrate=[(x,)])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert share(exe(x), model(x)) < 0.02


def test_samples_that_are_no_arguments_are_named() -> None:
    model, x = torch.nn.Linear(32, 16), torch.randn(4, 32)
    for sample, message in (
        ({"z": x}, "calibrate: sample 1: "),
        ((x * float("nan"),), "calibrate: sample 1 has activations that are not finite"),
    ):
        options = shapevm.Options(weights="int8", calibrate=[(x,), sample])
        with pytest.raises(shapevm.ArgumentError, match=f"^{message}"):
            shapevm.compile(model, (x,), options=options)
    with pytest.raises(shapevm.ArgumentError, match="^calibrate is given, but weights is 'f32'"):
        shapevm.Options(calibrate=[(x,)])
    with pytest.raises(shapevm.ArgumentError, match="^calibrate is .* it must be a list of samples"):
        shapevm.Options(weights="int8", calibrate=[x])


def test_the_command_line_reads_samples_from_files(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(32, 16), torch.randn(4, 32)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    np.savez(tmp_path / "one.npz", input=x.numpy())
    given = ["compile", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "model.svm"), "--weights", "int8"]
    result = CliRunner().invoke(main, [*given, "--calibrate", str(tmp_path / "one.npz")])
    assert result.exit_code == 0, result.output
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert row["format"] == "u8 x int8"
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    result = CliRunner().invoke(main, [*given, "--calibrate", str(tmp_path / "bad.npz")])
    assert result.exit_code != 0 and "bad.npz is no .npz file" in result.output
