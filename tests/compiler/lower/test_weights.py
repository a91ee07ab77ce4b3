"""Weights held in bf16 or f16: by themselves where that loses nothing, rounded where it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.lower.fuse import fuse
from shapevm.compiler.lower.lower import lower
from shapevm.compiler.lower.packing import pack
from shapevm.compiler.lower.weights import held
from shapevm.compiler.passes.quantise_weights import quantised, quantised_in_groups
from shapevm.jit.evaluation import bf16_to_f32, f32_to_bf16
from shapevm.jit.families.matmul.layouts import DIGITS_LAYOUT, SHORTS_LAYOUT, pack_panels
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.llvm.target import runs_here
from shapevm.jit.spec_reader import from_json
from shapevm.vm.meta import read_meta

import shapevm
from shapevm.reports.inspect import inspect_text, inspection

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
WIDENING = "x86-64-v3"  # a target that multiplies no bytes, and widens integers
DYNAMIC = ({0: torch.export.Dim("rows", min=1, max=64)},)


class Wide(torch.nn.Module):
    """A linear layer in f32 whose weight is kept in another dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(200, 40).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen and multiply."""
        return torch.nn.functional.linear(x, self.weight.float())


def weight_dtypes(exe: shapevm.Executable) -> list[str]:
    """Return the dtypes of the panels that an executable's products read."""
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    return [spec.buffers[spec.product.b].dtype for spec in specs if isinstance(spec, Matmul)]


def test_a_weight_is_held_in_the_narrowest_dtype_that_has_its_values() -> None:
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    assert held(x, "f32")[1] == "f32"
    assert held(x.astype(np.float16).astype(np.float32), "f32")[1] == "f16"
    assert held(bf16_to_f32(f32_to_bf16(x)), "f32")[1] == "bf16"
    assert held(np.array([[1.0, -np.inf], [1e-40, 3.0]], np.float32), "f32")[1] == "f32"  # a subnormal
    array, dtype = held(x, "bf16")
    assert (dtype, array.dtype) == ("bf16", np.uint16)
    np.testing.assert_allclose(bf16_to_f32(array), x, rtol=2**-8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_widened_weight_is_read_narrow(dtype: str) -> None:
    model, x = Wide(DTYPES[dtype]), torch.randn(5, 40)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, strategy="generic")
    assert weight_dtypes(exe) == [dtype]
    assert len(exe.machine.kernels) == 1
    torch.testing.assert_close(exe(x), model(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_linear_layer_in_half_precision_rounds_once(dtype: str) -> None:
    model, x = torch.nn.Linear(40, 200).to(DTYPES[dtype]), torch.randn(5, 40).to(DTYPES[dtype])
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, strategy="generic")
    assert weight_dtypes(exe) == [dtype]
    wide = torch.nn.functional.linear(x.double(), model.weight.double(), model.bias.double())
    assert (exe(x).double() - wide).abs().max() <= (model(x).double() - wide).abs().max() * 1.01


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_rounded_on_request(dtype: str) -> None:
    model, x = torch.nn.Linear(40, 200), torch.randn(5, 40)
    exe = shapevm.compile(
        model, (x,), dynamic_shapes=DYNAMIC, strategy="generic", options=shapevm.Options(weights=dtype)
    )
    assert weight_dtypes(exe) == [dtype]
    rounded = torch.nn.functional.linear(x, model.weight.to(DTYPES[dtype]).float(), model.bias)
    torch.testing.assert_close(exe(x), rounded)


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(
        shapevm.ArgumentError, match="weights 'int3' is unknown; known are f32, bf16, f16, int8"
    ):
        shapevm.compile(torch.nn.Linear(4, 4), (torch.randn(2, 4),), options=shapevm.Options(weights="int3"))


@pytest.mark.parametrize(("n", "is_view"), [(64, True), (40, False)])
def test_panels_are_not_copied_when_compiling(n: int, is_view: bool) -> None:
    graph = Graph("product")
    builder = Builder(graph)
    weight = np.random.default_rng(0).standard_normal((8, n)).astype(np.float32)
    x = graph.input("x", TensorType("f32", (3, 8)))
    product = builder.one("matmul", x, builder.constant(weight, "f32", "w"))
    graph.body.results, graph.outputs = [product], ["y"]
    for step in (fuse, lower, pack):
        step(graph)
    (kernel,) = [node for node in graph.nodes() if node.op == "kernel"]
    panels = kernel.arg(1).definition.attrs["array"]
    np.testing.assert_array_equal(panels, pack_panels(weight))
    assert np.shares_memory(panels, weight) == is_view


def test_weights_become_integers_on_request() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(40, 200), torch.nn.ReLU(), torch.nn.Linear(200, 3)
    model, x = torch.nn.Sequential(*layers), torch.randn(5, 40)
    with torch.no_grad():
        layers[0].weight[7] = 0
        layers[2].weight[0, 0] = float("inf")
    options = shapevm.Options(weights="int8", target=WIDENING)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, strategy="generic", options=options)
    assert weight_dtypes(exe) == ["i8", "f32"]  # the second is not finite
    scale = layers[0].weight.abs().amax(1, keepdim=True) / 127
    scale[scale == 0] = 1
    with torch.no_grad():
        layers[0].weight.copy_((layers[0].weight / scale).round() * scale)
        for rows in (1, 5, 33):
            x = torch.randn(rows, 40)
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_groups_of_weights_become_integers_on_request() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 3)
    model, x = torch.nn.Sequential(*layers), torch.randn(5, 64)
    options = shapevm.Options(weights="int4", target=WIDENING)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, strategy="generic", options=options)
    assert weight_dtypes(exe) == ["u8", "i8"]  # 200 steps are no groups of 32
    with torch.no_grad():
        integers, scales = quantised_in_groups(layers[0].weight.numpy().T)
        wide = integers * np.repeat(scales, 32, axis=0)
        layers[0].weight.copy_(torch.from_numpy(wide.T))
        integers, scales = quantised(layers[2].weight.numpy().T)
        layers[2].weight.copy_(torch.from_numpy((integers * scales).T))
        for rows in (1, 5, 33):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)


def test_integers_of_groups_of_weights() -> None:
    weight = np.zeros((64, 2), np.float32)
    weight[0], weight[1, 0], weight[2, 0] = 0.7, -0.8, 0.04
    integers, scales = quantised_in_groups(weight)
    np.testing.assert_allclose(scales, [[0.1, 0.1], [1, 1]], rtol=1e-6)
    np.testing.assert_array_equal(integers[:3], [[7, 7], [-8, 0], [0, 0]])
    assert integers.dtype == np.int8 and not integers[3:].any()
    for wrong, reason in (
        (np.nan, "finite"),
        (np.inf, "finite"),
        (1e-40, "subnormal"),
        (3.0, "are integers"),
    ):
        assert reason in quantised_in_groups(np.full((32, 2), wrong, np.float32))
    assert quantised_in_groups(np.full((40, 2), 0.5, np.float32)) == "its 40 steps are no multiple of 32"


def test_integers_of_weights() -> None:
    weight = np.array([[1.0, 0.0, -2.54], [-0.5, 0.0, 1.27]], np.float32)
    integers, scales = quantised(weight)
    np.testing.assert_array_equal(integers, [[127, 0, -127], [-64, 0, 64]])
    np.testing.assert_allclose(scales, [1 / 127, 1, 0.02], rtol=1e-6)
    assert not np.signbit(integers[integers == 0]).any()  # so that bytes hold them
    assert quantised(np.full((2, 2), np.nan, np.float32)) == "a number is not finite"
    assert "integers" in quantised(np.array([[3.0, -4.0]], np.float32))
    for shape in ((0, 3), (3, 0), (2, 2, 2)):
        assert "no matrix" in quantised(np.zeros(shape, np.float32))


class Layers(torch.nn.Module):
    """Products: one that int4 changes little, one that it changes much, one whose steps are no groups."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.even = torch.nn.Linear(64, 96, bias=False)
        self.uneven = torch.nn.Linear(96, 40)
        self.odd = torch.nn.Linear(40, 8)
        with torch.no_grad():
            self.even.weight.copy_(torch.randint(-7, 8, (96, 64)) * 0.125 + 0.001 * torch.randn(96, 64))
            self.even.weight[:, ::32] = 0.875
            self.uneven.weight.fill_(0.0612)
            self.uneven.weight[:, ::32] = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.odd(self.uneven(self.even(x)).relu())


@pytest.mark.parametrize(
    ("weights", "max_error", "formats"),
    [
        ("int4", None, ["int4, groups of 32", "int4, groups of 32", "int8"]),
        ("int4", 0.03, ["int4, groups of 32", "int8", "int8"]),
        ("int4", 0.0001, ["f32", "f32", "f32"]),
        ("int8", 0.006, ["int8", "f32", "int8"]),
    ],
)
def test_weights_that_rounding_would_change_too_much_are_rounded_less(
    weights: str, max_error: float | None, formats: list[str], tmp_path: Path
) -> None:
    model, x = Layers(), torch.randn(5, 64)
    options = shapevm.Options(weights=weights, max_error=max_error, target=WIDENING)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, strategy="generic", options=options)
    exe.save(tmp_path / "model.svm")
    rows = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert [row["format"] for row in rows] == formats
    text = inspect_text(tmp_path / "model.svm")
    for row, layer in zip(rows, (model.even, model.uneven, model.odd), strict=True):
        assert row["shape"] == list(layer.weight.shape)[::-1] and row["name"] in text
        assert max_error is None or row["error"] <= max_error
        assert bool(row["reason"]) == (not row["format"].startswith(weights))
        with torch.no_grad():
            layer.weight.copy_(rounded(layer.weight, row["format"]))
            changed = row["error"] * torch.linalg.norm(Layers().get_submodule(name_of(model, layer)).weight)
        before = Layers().get_submodule(name_of(model, layer)).weight
        torch.testing.assert_close(torch.linalg.norm(layer.weight - before), changed, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-4)


def name_of(model: torch.nn.Module, layer: torch.nn.Module) -> str:
    return next(name for name, each in model.named_modules() if each is layer)


def rounded(weight: torch.Tensor, form: str) -> torch.Tensor:
    """Return a weight of a linear layer with what a format keeps of it."""
    if form == "f32":
        return weight
    integers, scales = (quantised if form == "int8" else quantised_in_groups)(weight.detach().numpy().T)
    wide = scales if scales.ndim == 1 else np.repeat(scales, 32, axis=0)
    return torch.from_numpy((integers * wide).T.astype(np.float32))


def test_a_list_of_weights_of_another_form_is_refused() -> None:
    row = {"name": "w", "shape": [2, 3], "format": "f32", "bytes": 24, "error": 0, "reason": ""}
    assert read_meta(json.dumps({"weights": [row]}).encode())["weights"] == [row]
    for wrong in ({}, [1], [{}], [{**row, "bytes": "1"}], [{**row, "shape": ["a"]}], [{**row, "more": 1}]):
        with pytest.raises(shapevm.ArtifactError, match="section META: weights"):
            read_meta(json.dumps({"weights": wrong}).encode())


@pytest.mark.parametrize(
    ("target", "least", "held"),
    [
        ("x86-64-v4", 1, "int4, groups of 32"),
        ("x86-64-v4", 96, "int8"),
        (("x86-64-v4", "x86-64-v3"), 96, "int8"),
        ("x86-64-v3", 96, "int4, groups of 32"),
    ],
)
def test_a_format_that_is_slower_at_all_sizes_is_not_taken(
    target: str | tuple[str, ...], least: int, held: str, tmp_path: Path
) -> None:
    model, rows = torch.nn.Linear(64, 48, bias=False).eval(), torch.export.Dim("rows", min=least, max=256)
    options = shapevm.Options(weights="int4", target=target)
    exe = shapevm.compile(model, (torch.randn(128, 64),), dynamic_shapes=({0: rows},), options=options)
    exe.save(tmp_path / "model.svm")
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert row["format"] == held
    reason = "int4: on x86-64-v4 products of 96 rows and more are slower than in f32"
    assert row["reason"] == (reason if held == "int8" else "")


@pytest.mark.parametrize(
    ("k", "n", "least", "weights", "held"),
    [
        (256, 48, 1, "int8", "f32"),
        (256, 64, 1, "int8", "int8"),
        (256, 64, 1, "int4", "int8"),
        (256, 96, 1, "int4", "int4, groups of 32"),
        (72, 512, 1, "int8", "f32"),
        (1000, 512, 1, "int8", "int8"),
        (1000, 512, 9, "int8", "f32"),
    ],
)
def test_small_weights_stay_in_f32_where_that_is_faster(
    k: int, n: int, least: int, weights: str, held: str, tmp_path: Path
) -> None:
    model, rows = torch.nn.Linear(k, n, bias=False).eval(), torch.export.Dim("rows", min=least, max=64)
    options = shapevm.Options(weights=weights, target="x86-64-v4-vnni")
    exe = shapevm.compile(model, (torch.randn(16, k),), dynamic_shapes=({0: rows},), options=options)
    exe.save(tmp_path / "model.svm")
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert row["format"] == held
    reason = f"{weights}: products with a weight of {k} x {n} are faster in f32"
    assert row["reason"] == ("" if held.startswith(weights) else reason)
    assert ("are faster in f32" in inspect_text(tmp_path / "model.svm")) == (not held.startswith(weights))


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize(
    "columns, more",
    [(128, {}), (65, {"bits": "portable"}), (65, {"target": ("x86-64-v4-vnni", "x86-64-v3")})],
)
def test_rows_are_rounded_to_i16(weights: str, columns: int, more: dict[str, Any], tmp_path: Path) -> None:
    """AVX-512 alone is faster in f32 at 65 columns."""
    model, x = torch.nn.Linear(256, columns).eval(), torch.randn(5, 256)
    exact, exe = (
        shapevm.compile(
            model, (x,), dynamic_shapes=DYNAMIC,
            options=shapevm.Options(weights=weights, precision=precision, **more),
        )
        for precision in ("f32", "i16")
    )  # fmt: skip
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    assert [spec.product.b_layout for spec in specs if isinstance(spec, Matmul)] == [SHORTS_LAYOUT]
    exe.save(tmp_path / "model.svm")
    (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert row["format"].startswith(f"i16 x {weights}")
    found, wanted = exe(x), exact(x)
    assert 0 < (found - wanted).norm() < 2.0**-14 * wanted.norm()
    assert torch.equal(exe.using("generic")(x), found)
    assert torch.equal(torch.cat([exe(row[None]) for row in x]), found)


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize(
    ("columns", "target", "is_in_digits"),
    [
        (128, "x86-64-v4-vnni", True),
        (65, "x86-64-v4-vnni", False),
        (128, ("x86-64-v4-vnni", "x86-64-v3"), False),
        (128, "x86-64-v4-amx", True),
    ],
)
def test_rows_are_multiplied_in_digits_where_all_targets_multiply_bytes(
    weights: str, columns: int, target: str | tuple[str, ...], is_in_digits: bool
) -> None:
    model, x = torch.nn.Linear(256, columns).eval(), torch.randn(5, 256)
    options = shapevm.Options(weights=weights, target=target)
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    (product,) = (spec.product for spec in specs if isinstance(spec, Matmul))
    assert (product.b_layout == DIGITS_LAYOUT) == is_in_digits
    if is_in_digits and runs_here(str(target)):
        error = (exe(x) - model(x)).norm() / model(x).norm()
        assert error < {"int8": 0.02, "int4": 0.2}[weights]


@pytest.mark.skipif(not runs_here("x86-64-v4-vnni"), reason="this CPU has no AVX512_VNNI")
def test_integers_that_were_not_rounded_are_not_multiplied_in_digits() -> None:
    """A row of f32 times a one keeps all bits, however great its other numbers are."""
    model = torch.nn.Linear(128, 128, bias=False).eval()
    with torch.no_grad():
        model.weight.copy_(torch.eye(128))
    x = torch.randn(5, 128) * torch.logspace(-20, 20, 128)
    options = shapevm.Options(weights="int8", target="x86-64-v4-vnni")
    exe = shapevm.compile(model, (x,), dynamic_shapes=DYNAMIC, options=options)
    assert torch.equal(exe(x), x)
