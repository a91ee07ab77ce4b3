"""Programs of torchao's and PyTorch's quantisers: eager's values, natively, and weights held as integers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.families.matmul.problem import grouped_of
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.llvm.target import runs_here
from shapevm.jit.spec_reader import from_json
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8StaticActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup, PerRow, PerTensor
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

import shapevm
from shapevm.pytorch import dynamo
from shapevm.reports.inspect import inspection
from shapevm.runner import runner_path

NATIVE = shapevm.Options(fallback="error")
#: For a target that multiplies no bytes: integers stay integers there, however few they are.
WIDENING = shapevm.Options(fallback="error", target="x86-64-v3")
ROWS = torch.export.Dim("rows", min=1, max=64)
INT4 = torch.int4
CONFIGURATIONS = {
    "int8": (Int8WeightOnlyConfig(), "i8"),
    "int4, groups": (IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerGroup(32)), "i4, groups of 32"),
    "int4, channels": (IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerAxis(0)), "i8"),
    "int8, channels": (IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)), "i8"),
    "int4, groups, dynamic activations": (
        Int8DynamicActivationIntxWeightConfig(weight_dtype=INT4, weight_granularity=PerGroup(32)),
        "u8 x i4, groups of 32",
    ),
    "int4, channels, dynamic activations": (
        Int8DynamicActivationIntxWeightConfig(weight_dtype=INT4, weight_granularity=PerAxis(0)),
        "u8 x i8",
    ),
    "int8, dynamic activations": (Int8DynamicActivationInt8WeightConfig(), "u8 x i8"),
}


def perceptron(width: int = 96) -> torch.nn.Module:
    """Return two linear layers, one of them without bias."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(width, 160), torch.nn.ReLU(), torch.nn.Linear(160, 40, bias=False)
    return torch.nn.Sequential(*layers).eval()


def weight_dtypes(exe: shapevm.Executable) -> set[str]:
    """Return the dtypes of the weights that an executable's products read, of both operands for integers."""
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    products = [spec for spec in specs if isinstance(spec, ProductSpec)]
    return {_weight_dtype(product) for product in products}


def _weight_dtype(spec: ProductSpec) -> str:
    if spec.product.b_layout == "quads":
        return "u8 x i8"
    groups = grouped_of(spec)
    if groups is None:
        return spec.buffers[spec.product.b].dtype
    factor = "u8 x " if spec.product.b_layout == "grouped_quads" else ""
    return f"{factor}{groups.dtype}, groups of {groups.steps}"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_torchao(name: str, tmp_path: Path) -> None:
    configuration, dtype = CONFIGURATIONS[name]
    model, x = perceptron(), torch.randn(5, 96)
    quantize_(model, configuration)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=WIDENING)
    assert weight_dtypes(exe) == {dtype}
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        for rows in (1, 2, 7, 33, 64):
            x = torch.randn(rows, 96)
            # A last bit of the first layer may round an activation of the second to the step beside it.
            atol = 2e-3 if name.endswith("groups, dynamic activations") else 1e-5
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=atol)
            assert torch.equal(loaded(x), exe(x))
            assert torch.equal(exe(x[:1]), exe(x)[:1])


@pytest.mark.parametrize(
    ("name", "held"), [("int8", "i8, groups of 128"), ("int4, groups", "i4, groups of 32")]
)
def test_torchao_weights_of_products_that_are_faster_in_f32(name: str, held: str, tmp_path: Path) -> None:
    model, x, target = perceptron(256), torch.randn(5, 256), "x86-64-v4-vnni"
    quantize_(model, CONFIGURATIONS[name][0])
    options = shapevm.Options(fallback="error", target=target)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=options)
    assert weight_dtypes(exe) == {held, "f32"}  # of the first layer, in digits, and of the second
    exe.save(tmp_path / "model.svm")
    first, second = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert (first["format"], first["reason"]) == (name if name == "int8" else "int4, groups of 32", "")
    assert (second["format"], second["bytes"]) == ("f32", 4 * 160 * 40)
    assert second["reason"] == "products with a weight of 160 x 40 are faster in f32"
    if runs_here(target):
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
        same_in_runner(exe, x, tmp_path)


@pytest.mark.parametrize("width", [96, 2048])
def test_groups_with_dynamic_activations_differ_in_last_bits(width: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(width, 40, bias=False)).eval()
    quantize_(model, CONFIGURATIONS["int4, groups, dynamic activations"][0])
    x = torch.randn(5, width)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    for rows in (1, 7, 33):
        x = torch.randn(rows, width).relu()
        torch.testing.assert_close(exe(x), model(x), rtol=1e-6, atol=1e-6)


def test_zero_points_of_groups_take_rows_sums_off() -> None:
    config = IntxWeightOnlyConfig(
        weight_dtype=INT4, granularity=PerGroup(32), mapping_type=MappingType.ASYMMETRIC
    )
    model, x = perceptron(), torch.randn(5, 96)
    quantize_(model, config)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=WIDENING)
    assert weight_dtypes(exe) == {"i4, groups of 32", "f32"}
    torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [95, 97, 3])
def test_integer_products_of_any_length(width: int) -> None:
    model, x = perceptron(width), torch.randn(5, 2, width)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    for rows in (1, 4):
        x = torch.randn(rows, 2, width)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-6, atol=1e-6)


def test_int_mm() -> None:
    y = torch.randint(-128, 128, (40, 24), dtype=torch.int8)

    class Product(torch.nn.Module):
        """Products by a constant and by an argument."""

        def __init__(self) -> None:
            super().__init__()
            self.y = torch.nn.Buffer(y)

        def forward(self, x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """Multiply."""
            return torch._int_mm(x, self.y), torch._int_mm(x, z)

    for dtype, low in ((torch.int8, -128), (torch.uint8, 0)):
        x = torch.randint(low, low + 256, (33, 40), dtype=dtype)
        x[0], x[1] = low, low + 255
        exe = shapevm.compile(Product(), (x, y), dynamic_shapes=({0: ROWS}, None), options=NATIVE)
        for found, wanted in zip(exe(x, y), Product()(x, y), strict=True):
            assert found.dtype == torch.int32 and torch.equal(found, wanted)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[shapevm.Executable]:
    """Return a list that takes the executables that torch.compile makes."""
    made, compiled_by = [], dynamo._executable

    def noted(*args: Any) -> shapevm.Executable:
        made.append(compiled_by(*args))
        return made[-1]

    monkeypatch.setattr(dynamo, "_executable", noted)
    torch._dynamo.reset()
    return made


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_torchao_under_torch_compile(name: str, made: list[shapevm.Executable]) -> None:
    """PyTorch takes torchao's operators apart before the graph is ours."""
    configuration, dtype = CONFIGURATIONS[name]
    model = torch.nn.Sequential(torch.nn.Linear(96, 41)).eval()
    quantize_(model, configuration)
    options = {"fallback": "error", "target": WIDENING.target}
    compiled = torch.compile(model, backend="shapevm", dynamic=True, options=options)
    for rows in (3, 1, 7):
        x = torch.randn(rows, 96)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert made and all(weight_dtypes(exe) == {dtype} for exe in made)


def test_dynamic_pt2e_under_torch_compile(made: list[shapevm.Executable]) -> None:
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=True))
    model, x = perceptron(), torch.randn(5, 96)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: ROWS},)).module()
    prepared = prepare_pt2e(exported, quantizer)
    prepared(x)
    model = convert_pt2e(prepared)
    compiled = torch.compile(model, backend="shapevm", dynamic=True, options={"fallback": "error"})
    for rows in (3, 1, 7):
        x = torch.randn(rows, 96)
        with torch.no_grad():
            # A last bit of the first layer may round an activation of the second to the step beside it.
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=2e-3)
    assert made and all(weight_dtypes(exe) == {"u8 x i8"} for exe in made)


@pytest.mark.parametrize("has_zero", [False, True])
def test_torchao_with_static_activations(has_zero: bool, tmp_path: Path) -> None:
    config = Int8StaticActivationInt8WeightConfig(
        act_quant_scale=torch.tensor([[0.03]]),
        act_quant_zero_point=torch.tensor([[5]], dtype=torch.int8) if has_zero else None,
        granularity=[PerTensor(), PerRow()],
        act_mapping_type=MappingType.ASYMMETRIC if has_zero else MappingType.SYMMETRIC,
        set_inductor_config=False,
    )
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(96, 40)).eval(), torch.randn(5, 96)
    quantize_(model, config)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    assert weight_dtypes(exe) == {"u8 x i8"}
    exe.save(tmp_path / "model.svm")
    for rows in (1, 7, 33):
        x = 2 * torch.randn(rows, 96)  # some are beyond the range
        torch.testing.assert_close(exe(x), model(x), rtol=1e-6, atol=1e-6)
        same_in_runner(exe, x, tmp_path)


def is_convolution(module: torch.nn.Module, _: str) -> bool:
    """Whether torchao is to quantise a module."""
    return isinstance(module, torch.nn.Conv2d)


@pytest.mark.parametrize("config", [Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig()])
def test_torchao_computes_no_convolution_in_int8(config: object) -> None:
    """docs/usage.md says so; a torchao that does needs a test of its values."""
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3)).eval()
    quantize_(model, config, is_convolution)
    with pytest.raises(NotImplementedError, match=r"aten\.convolution"):
        model(torch.randn(4, 8, 9, 9))


@pytest.mark.parametrize("mapping", [MappingType.SYMMETRIC, MappingType.ASYMMETRIC])
@pytest.mark.parametrize("dtype", [torch.int8, INT4])
def test_torchao_weights_of_convolutions_are_widened_once(
    dtype: torch.dtype, mapping: MappingType, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3)).eval(), torch.randn(4, 8, 9, 9)
    quantize_(model, IntxWeightOnlyConfig(dtype, PerAxis(0), mapping), is_convolution)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    assert {buffer.dtype for spec in specs for buffer in spec.buffers} == {"f32"}  # none widens at a call
    exe.save(tmp_path / "model.svm")
    for rows in (1, 5):
        x = torch.randn(rows, 8, 9, 9)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
        same_in_runner(exe, x, tmp_path)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_weights_of_bf16_models_stay_integers(name: str) -> None:
    configuration, dtype = CONFIGURATIONS[name]
    model, x = torch.nn.Sequential(torch.nn.Linear(96, 41)).eval().bfloat16(), torch.randn(5, 96).bfloat16()
    quantize_(model, configuration)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=WIDENING)
    assert weight_dtypes(exe) == {dtype}
    for rows in (1, 7, 33):
        x = torch.randn(rows, 96).bfloat16()
        torch.testing.assert_close(exe(x), model(x), rtol=0.02, atol=0.02)


def test_groups_larger_than_those_of_kernels_are_several() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(512, 40)).eval(), torch.randn(5, 512)
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerGroup(256)))
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=WIDENING)
    assert weight_dtypes(exe) == {"i4, groups of 128"}
    torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_quantised_embedding_is_dequantised_row_by_row() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 64))
    config = IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerGroup(32))
    quantize_(model, config, lambda m, _: isinstance(m, torch.nn.Embedding))
    ids = torch.randint(0, 50, (3, 7))
    exe = shapevm.compile(model, (ids,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    assert torch.equal(exe(ids), model(ids))
    buffers = [buffer for kernel in exe.machine.kernels for buffer in from_json(kernel.spec).buffers]
    assert [b.shape for b in buffers if b.dtype == "i8"] == [(50, 64)]  # and no table in f32
    assert not [b.shape for b in buffers if b.dtype == "f32" and b.shape[0] == 50 and b.shape[1:] != (2,)]


class Residual(torch.nn.Module):
    """A convolution, one with a residual, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 3, padding=1)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify images [n, 3, h, w]."""
        y = torch.relu(self.first(x))
        y = torch.relu(self.second(y) + y)
        return self.last(y.mean((2, 3)))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_torchao_in_the_runner(name: str, tmp_path: Path) -> None:
    model, x = perceptron(), torch.randn(5, 96)
    quantize_(model, CONFIGURATIONS[name][0])
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    exe.save(tmp_path / "model.svm")
    for rows in (1, 7, 40):
        same_in_runner(exe, torch.randn(rows, 96), tmp_path)


def same_in_runner(exe: shapevm.Executable, x: torch.Tensor, folder: Path) -> None:
    """Assert that `shapevm-run` gives an executable's bits for the artifact model.svm."""
    (given,), (result,) = exe.inputs, exe.outputs
    np.save(folder / "x.npy", x.numpy())
    command = [runner_path(), folder / "model.svm", "--input", f"{given.name}={folder / 'x.npy'}"]
    done = subprocess.run([*command, "--output", folder / "out.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(folder / "out.npz")[result.name]
    np.testing.assert_array_equal(found, exe(x).numpy())


CONV_CONFIGURATIONS = {
    "int8": Int8WeightOnlyConfig(),
    "int8, channels": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
    "int8, dynamic activations": Int8DynamicActivationInt8WeightConfig(),
}


@pytest.mark.parametrize("name", CONV_CONFIGURATIONS)
def test_torchao_beside_convolutions(name: str, tmp_path: Path) -> None:
    """What torchao does not quantise stays as it is."""
    model, x = Residual().eval(), torch.randn(4, 3, 16, 16)
    quantize_(model, CONV_CONFIGURATIONS[name])
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    exe.save(tmp_path / "model.svm")
    for rows in (1, 4):
        x = torch.randn(rows, 3, 16, 16)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-4)
        same_in_runner(exe, x, tmp_path)


EMBEDDING_CONFIGURATIONS = {
    "int4, groups": IntxWeightOnlyConfig(weight_dtype=INT4, granularity=PerGroup(32)),
    "int8, rows": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
    "int4, zero points": IntxWeightOnlyConfig(
        weight_dtype=INT4, granularity=PerGroup(32), mapping_type=MappingType.ASYMMETRIC
    ),
}


@pytest.mark.parametrize("name", EMBEDDING_CONFIGURATIONS)
def test_embeddings_in_the_runner(name: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(50, 64))
    quantize_(model, EMBEDDING_CONFIGURATIONS[name], lambda m, _: isinstance(m, torch.nn.Embedding))
    ids = torch.randint(0, 50, (3, 7))
    exe = shapevm.compile(model, (ids,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    exe.save(tmp_path / "model.svm")
    for rows in (1, 5):
        ids = torch.randint(0, 50, (rows, 7))
        assert torch.equal(exe(ids), model(ids))
        same_in_runner(exe, ids, tmp_path)


def test_weights_that_pt2e_has_not_rounded_yet(tmp_path: Path) -> None:
    """The program rounds its own weights: that is done when compiling."""
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    torch.manual_seed(0)
    x = torch.randn(4, 8, 6, 6)
    layers = torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 10)
    model = torch.nn.Sequential(*layers).eval()
    prepared = prepare_pt2e(torch.export.export(model, (x,), dynamic_shapes=({0: ROWS},)).module(), quantizer)
    prepared(x)
    converted = convert_pt2e(prepared, fold_quantize=False)
    exe = shapevm.compile(converted, (x,), dynamic_shapes=({0: ROWS},), options=NATIVE)
    assert weight_dtypes(exe) == {"u8 x i8"}
    exe.save(tmp_path / "model.svm")
    rows = inspection(tmp_path / "model.svm")["rounded_weights"]
    assert [(row["name"], row["format"]) for row in rows] == [
        ("0.weight", "u8 x int8"), ("3.weight", "u8 x int8")
    ]  # fmt: skip
    for rows in (1, 4, 9):
        x = torch.randn(rows, 8, 6, 6)
        torch.testing.assert_close(exe(x), converted(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_pt2e(is_dynamic: bool, tmp_path: Path) -> None:
    model, shape = (perceptron(), (96,)) if is_dynamic else (Residual().eval(), (3, 16, 16))
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic))
    x = torch.randn(4, *shape)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: ROWS},)).module()
    prepared = prepare_pt2e(exported, quantizer)
    prepared(x)
    converted = convert_pt2e(prepared)
    program = torch.export.export(converted, (x,), dynamic_shapes=({0: ROWS},))
    exe = shapevm.compile(program, options=NATIVE)
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    products = [spec for spec in specs if isinstance(spec, ProductSpec)]
    assert len(products) == (2 if is_dynamic else 3)
    assert {spec.product.b_layout for spec in products} == {"quads"}
    exe.save(tmp_path / "model.svm")
    for rows in (1, 4, 9):
        x = torch.randn(rows, *shape)
        same_in_runner(exe, x, tmp_path)
        # Floats beside a step's middle are rounded to one side or the other, as the order of sums decides.
        torch.testing.assert_close(exe(x), converted(x), rtol=1e-3, atol=0.03)
