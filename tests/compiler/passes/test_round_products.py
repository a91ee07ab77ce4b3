"""Products of bf16: under `precision="bf16"`, and where a program's operands are bf16 anyway."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.llvm.target import find_target, host_target
from shapevm.jit.spec_reader import from_json
from torch import nn

import shapevm
from shapevm.reports.inspect import inspect_text, inspection

AMX = "x86-64-v4-amx"
ROWS = torch.export.Dim("rows", min=1, max=512)
needs_bf16 = pytest.mark.skipif(not find_target(host_target()).pairs, reason="this CPU multiplies no bf16")
BF16 = shapevm.Options(precision="bf16")


def layouts(exe: shapevm.Executable) -> list[str]:
    """Return how the products of a program read their right operand."""
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    return [spec.product.b_layout for spec in specs if isinstance(spec, ProductSpec)]


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return what bf16 keeps of numbers, in f64."""
    return x.detach().bfloat16().double()


def check(found: torch.Tensor, wanted: torch.Tensor, terms: torch.Tensor) -> None:
    """Compare sums in f32 with those in f64; `terms`: the sums of the terms' magnitudes."""
    assert found.shape == wanted.shape and found.dtype == torch.float32
    assert ((found.double() - wanted).abs() <= 4e-7 * terms + 1e-30).all()


@needs_bf16
@pytest.mark.parametrize("k", [2, 34, 256, 770])
@pytest.mark.parametrize("n", [1, 31, 96])
def test_a_linear_layer_multiplies_rounded_operands(k: int, n: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(k, n)
    exe = shapevm.compile(layer, (torch.randn(3, k),), dynamic_shapes=({0: ROWS},), options=BF16)
    assert layouts(exe) == ["pairs"]
    for rows in (1, 2, 17, 130):
        for x in (torch.randn(rows, k), torch.randn(k, rows).T, torch.randn(2 * rows, k + 1)[::2, 1:]):
            left, weight = rounded(x), rounded(layer.weight).T
            terms = left.abs() @ weight.abs() + layer.bias.abs()
            found = exe(x)
            check(found, left @ weight + layer.bias.detach().double(), terms)
            assert torch.equal(exe(x[rows // 2 :][:1]), found[rows // 2 :][:1])  # whatever the batch


@needs_bf16
@pytest.mark.parametrize("shape", [(8,), (0, 8), (1, 8), (2, 3, 8), (2, 0, 8)])
def test_shapes_of_inputs(shape: tuple[int, ...]) -> None:
    layer, x = nn.Linear(8, 5), torch.randn(shape)
    exe = shapevm.compile(layer, (x,), options=BF16)
    left, weight = rounded(x), rounded(layer.weight).T
    check(exe(x), left @ weight + layer.bias.detach().double(), left.abs() @ weight.abs() + 1)


CONVS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "1x1": (lambda: nn.Conv2d(16, 40, 1), "pairs"),
    "3x3": (lambda: nn.Conv2d(16, 40, 3, padding=1), "pairs"),
    "strided": (lambda: nn.Conv2d(6, 33, 3, stride=2), "pairs"),
    "dilated": (lambda: nn.Conv2d(6, 33, 3, dilation=2, padding=2), "pairs"),
    "groups": (lambda: nn.Conv2d(64, 64, 3, groups=2), "pairs"),
    "transposed": (lambda: nn.ConvTranspose2d(6, 10, 3, stride=2), "pairs"),
    "a line": (lambda: nn.Conv1d(6, 10, 3), "pairs"),
    "odd channels": (lambda: nn.Conv2d(3, 8, 3), "panels"),
    "depthwise": (lambda: nn.Conv2d(32, 32, 3, groups=32), "rows"),
}


@needs_bf16
@pytest.mark.parametrize("case", CONVS)
def test_convolutions(case: str) -> None:
    torch.manual_seed(0)
    make, layout = CONVS[case]
    model = make()
    weight = model.weight
    channels = weight.shape[0] if case == "transposed" else weight.shape[1] * model.groups
    x = torch.randn(2, channels, *[9] * (weight.ndim - 2))
    batch = torch.export.Dim("batch", min=1, max=8)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: batch},), options=BF16)
    assert layouts(exe) == [layout] or (layout == "panels" and layouts(exe) == ["rows"])
    if layout != "pairs":
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)
        return
    model = model.double()
    with torch.no_grad():
        weight.copy_(weight.float().bfloat16())
    wanted = model(rounded(x))
    with torch.no_grad():
        model.weight.copy_(model.weight.abs())
        model.bias.copy_(model.bias.abs())
    check(exe(x), wanted, model(rounded(x).abs()))
    assert torch.equal(exe(x[1:]), exe(x)[1:])


class Block(nn.Module):
    """A transformer's parts: normalisation, a product that is used three times, a residual."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.qkv = nn.LayerNorm(64), nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(self.norm(x)).unflatten(-1, (4, 16)).transpose(-2, -3) for layer in self.qkv)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2)
        return x + self.down(nn.functional.gelu(self.up(x)))


@needs_bf16
def test_every_tier_thread_count_and_the_runner_have_the_same_bits(tmp_path: Path) -> None:
    model, x = Block().eval(), torch.randn(2, 33, 64)
    options = shapevm.Options(precision="bf16", sizes=[{"rows": 33}], buckets={"rows": [(17, 64)]})
    exe = shapevm.compile(model, (x,), dynamic_shapes=({1: ROWS},), options=options)
    assert layouts(exe) == ["pairs"] * 3  # those of q, k and v are alike
    wanted = exe(x)
    torch.testing.assert_close(wanted, model(x), rtol=0.02, atol=0.02)
    assert not torch.equal(wanted, model(x))
    path = tmp_path / "model.svm"
    exe.save(path)
    for strategy in ("generic", "bucket", "jit"):
        with shapevm.load(path, strategy=strategy) as loaded:
            assert torch.equal(loaded(x), wanted)
    for threads in (1, 2, 3):
        with shapevm.settings.scope(threads=threads), shapevm.load(path) as loaded:
            assert torch.equal(loaded(x), wanted)
    np.savez(tmp_path / "in.npz", **dict(zip([i.name for i in exe.machine.inputs], [x.numpy()], strict=True)))
    command = [shapevm.runner_path(), path, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz"]
    subprocess.run(command, check=True)
    (found,) = np.load(tmp_path / "out.npz").values()
    np.testing.assert_array_equal(found, wanted.numpy())


def report(exe: shapevm.Executable, tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Return format and reason of the weights that `inspect` lists."""
    path = tmp_path / "model.svm"
    exe.save(path)
    rows = inspection(path)["rounded_weights"]
    assert all(row["name"] in inspect_text(path) for row in rows)
    return {row["name"]: (row["format"], row["reason"]) for row in rows}


@needs_bf16
def test_weights_that_stay_say_why(tmp_path: Path) -> None:
    layers = [nn.Linear(7, 8), nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(4, 4)]
    with torch.no_grad():
        layers[1].weight[0, 0] = float("inf")
        layers[2].weight.fill_(3)
    exe = shapevm.compile(nn.Sequential(*layers), (torch.randn(5, 7),), options=BF16)
    assert list(report(exe, tmp_path).values()) == [
        ("f32", "bf16: its 7 steps are no multiple of 2"),
        ("f32", "bf16: a number is not finite"),
        ("f32", "bf16: its numbers are integers of a byte"),
        ("bf16 x bf16", ""),
    ]


@needs_bf16
def test_max_error(tmp_path: Path) -> None:
    model, x = nn.Linear(64, 32), torch.randn(5, 64)
    options = shapevm.Options(precision="bf16", max_error=0.001)
    exe = shapevm.compile(model, (x,), options=options)
    torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)
    ((form, reason),) = report(exe, tmp_path).values()
    assert form == "f32" and reason.startswith("bf16: its error would be 0.002") and "above 0.001" in reason
    exe = shapevm.compile(model, (x,), options=shapevm.Options(precision="bf16", max_error=0.004))
    assert layouts(exe) == ["pairs"]


@needs_bf16
@pytest.mark.parametrize(
    ("weights", "columns", "held"),
    [
        ("bf16", 32, "pairs"),
        ("int8", 128, "grouped_digits"),
        ("int4", 128, "grouped_digits"),
        ("int8", 32, "pairs"),
        ("int4", 32, "pairs"),
    ],
)
def test_beside_rounded_weights(weights: str, columns: int, held: str, tmp_path: Path) -> None:
    """Weights that are integers keep activations in f32; those that are too small to become integers do not.
    Weights in bf16 are what products read anyway."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 16, columns))
    x = torch.randn(3, 8, 6, 6)
    options = shapevm.Options(precision="bf16", weights=weights, target="x86-64-v4-bf16")
    exe = shapevm.compile(model, (x,), options=options)
    assert layouts(exe) == ["pairs", held]
    torch.testing.assert_close(exe(x), model(x), rtol=0.1, atol=0.1)
    formats = [form for form, _ in report(exe, tmp_path).values()]
    assert sorted(formats)[0] == "bf16 x bf16" and len(formats) == 2


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4-vnni", "aarch64", (AMX, "x86-64-v3")])
def test_a_target_without_instructions_for_bf16(target: str, tmp_path: Path) -> None:
    """Few rows are widened; more stay in f32."""
    for rows, layout in ((1, "pairs"), (5, "panels")):
        options = shapevm.Options(precision="bf16", target=target)
        program = shapevm.compile(nn.Linear(64, 32), (torch.randn(rows, 64),), options=options)
        program.save(tmp_path / "model.svm")
        (row,) = inspection(tmp_path / "model.svm")["rounded_weights"]
        assert (row["format"] == "bf16 x bf16") == (layout == "pairs")
        name = target if isinstance(target, str) else target[1]
        assert (f"{name} has no instruction for it" in row["reason"]) == (layout == "panels")


@needs_bf16
def test_torch_compile_takes_it() -> None:
    model, x = nn.Linear(64, 32).eval(), torch.randn(5, 64)
    with torch.no_grad():
        found = torch.compile(model, backend="shapevm", options={"precision": "bf16"})(x)
        plain = torch.compile(model, backend="shapevm")(x)
    assert not torch.equal(found, plain)
    torch.testing.assert_close(found, plain, rtol=0.02, atol=0.02)


@needs_bf16
def test_a_model_in_bf16_multiplies_bf16_by_itself() -> None:
    """Its products are exact, so nothing is rounded that eager does not round."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 40)).bfloat16().eval()
    x = torch.randn(20, 64).bfloat16()
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},))
    assert layouts(exe) == ["pairs", "pairs"]
    torch.testing.assert_close(exe(x), model(x))
    conv = nn.Conv2d(8, 16, 3).bfloat16().eval()
    image = torch.randn(2, 8, 9, 9).bfloat16()
    exe = shapevm.compile(conv, (image,))
    assert layouts(exe) == ["pairs"]
    torch.testing.assert_close(exe(image), conv(image))


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(shapevm.ArgumentError, match="precision 'tf32' is unknown; known are f32, i16, bf16"):
        shapevm.Options(precision="tf32")


class UnderAutocast(nn.Module):
    """A linear layer in f32 whose operands autocast rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply bf16."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@needs_bf16
def test_weights_under_autocast_are_rounded_once() -> None:
    torch.manual_seed(0)
    model, x = UnderAutocast().eval(), torch.randn(20, 64)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},))
    assert layouts(exe) == ["pairs"]
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    others = [b for spec in specs if not isinstance(spec, ProductSpec) for b in spec.buffers]
    assert not [b for b in others if 96 in b.shape]
    torch.testing.assert_close(exe(x), model(x))
