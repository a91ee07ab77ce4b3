"""AArch64: artifacts compiled here, run by a cross-built runner under qemu, against the same program's
x86-64-v3 code: every tier, bit for bit.

Needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static: `make aarch64` installs them
and runs this file. Without them the tests are skipped, but where AARCH64_REQUIRED is set (in CI) they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.families.matmul.layouts import DIGITS_LAYOUT, SHORTS_LAYOUT
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.llvm.target import runs_here
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read
from shapevm.vm.writer import write
from torch import nn
from torch.utils._pytree import tree_flatten_with_path

import shapevm
from shapevm.build.build import build_program, import_model, run_passes
from shapevm.build.compile import compile_graphs
from shapevm.build.options import Options
from shapevm.specialise.kernel_store import open_store

from ..compiler.ops import test_segments
from ..models import zoo
from .conftest import INCLUDE, LIBRARY, RUNNER

#: Targets whose artifacts have the same bits: the one of AVX-512 where this machine runs it.
ARTIFACTS = ("x86-64-v3", "aarch64", *(["x86-64-v4"] if runs_here("x86-64-v4") else []))
COMPILER, EMULATORS = "aarch64-linux-gnu-gcc", ("qemu-aarch64-static", "qemu-aarch64")


def missing() -> str:
    """Return what is missing of the tools, "" for nothing."""
    found = [name for name in EMULATORS if shutil.which(name)]
    lacking = [] if shutil.which(COMPILER) else [COMPILER]
    return ", ".join(lacking if found else [*lacking, EMULATORS[0]])


@pytest.fixture(scope="module")
def runners(
    tmp_path_factory: pytest.TempPathFactory, build: Callable[[str, str], Path]
) -> dict[str, list[str]]:
    """Return the command of the runner by target."""
    lacking = missing()
    if lacking and not os.environ.get("AARCH64_REQUIRED"):
        pytest.skip(f"no {lacking} here: `make aarch64` installs it")
    assert not lacking, f"AARCH64_REQUIRED is set, and there is no {lacking}"
    emulator = next(name for name in EMULATORS if shutil.which(name))
    out = tmp_path_factory.mktemp("aarch64") / "shapevm-run"
    sources = [*INCLUDE, *LIBRARY, *RUNNER]
    command = [COMPILER, "-O2", "-Wall", "-Wextra", "-static", "-pthread", *sources, "-o", str(out), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    # A static program can load plug-ins of its own libc's version only, which the linker says.
    told = [line for line in done.stderr.splitlines() if not re.search("dlopen|svm_load_plugin", line)]
    assert done.returncode == 0 and told == [], (
        done.stderr
    )  # a static program loads plug-ins of its own libc only
    here = [str(build("runner", "plain"))]
    return {"x86-64-v3": here, "x86-64-v4": here, "aarch64": [emulator, str(out)]}


# Models -----------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """Embeddings, attention under a mask, layer norms, gelu, mean pooling, normalised: MiniLM in small."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 48), nn.Embedding(64, 48)
        self.qkv, self.out = nn.Linear(48, 144), nn.Linear(48, 48)
        self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(3))
        self.up, self.down = nn.Linear(48, 192), nn.Linear(192, 48)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.norms[0](self.words(ids) + self.places(torch.arange(length)))
        q, k, v = (y.view(batch, length, 3, 16).transpose(1, 2) for y in self.qkv(x).split(48, -1))
        seen = mask[:, None, None, :].bool()
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.norms[1](x + self.out(y.transpose(1, 2).reshape(batch, length, 48)))
        x = self.norms[2](x + self.down(torch.relu(self.up(x)).square().sigmoid()))
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return nn.functional.normalize(pooled, dim=-1)


class Block(nn.Module):
    """A basic block of a residual network."""

    def __init__(self, old: int, new: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(old, new, 3, stride, 1), nn.Conv2d(new, new, 3, 1, 1)
        self.norms = nn.ModuleList((nn.BatchNorm2d(new), nn.BatchNorm2d(new)))
        self.short = nn.Conv2d(old, new, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.short(x))


class Residual(nn.Module):
    """A stem of few channels, a pool, blocks by Winograd and by patches, a depthwise one: ResNet in small."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, 16, 7, 2, 3), nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.classes = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.blocks(self.pool(torch.relu(self.stem(x)))))
        return torch.softmax(self.classes(x.mean((2, 3))), -1)


class Decoder(nn.Module):
    """Causal attention, gelu by tanh, logits by the embeddings' own matrix: GPT-2 in small."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(80, 32), nn.Embedding(64, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        (length,) = ids.shape
        x = self.words(ids) + self.places(torch.arange(length))
        q, k, v = (y.view(length, 2, 16).transpose(0, 1) for y in self.qkv(self.norms[0](x)).split(32, -1))
        y = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + self.out(y.transpose(0, 1).reshape(length, 32))
        x = x + self.down(nn.functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return self.norms[2](x) @ self.words.weight.T


class Recurrent(nn.Module):
    """Two layers of an LSTM, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(12, 20, num_layers=2, bidirectional=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (h, _) = self.layers(x)
        return y, h


class Order(nn.Module):
    """Sorting, scans, scatters, searches."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = x.sort(dim=-1, stable=True)
        top, _ = x.topk(3, -1)
        sums = torch.zeros(16, x.shape[1]).index_add(0, i, x)
        seen = torch.searchsorted(values[0].contiguous(), x)
        return values, places, top, x.cumsum(0), x.cummax(1)[0], sums, seen


class Selection(nn.Module):
    """Sizes that depend on data."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.nonzero(), x[x > 0.5], torch.bincount(i), i.unique()


class Functions(nn.Module):
    """Scalar functions, integers, and halves of floats."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.abs() + 0.5
        logs = torch.stack([y.log(), y.log1p(), y.rsqrt(), y.lgamma(), y.digamma()])
        waves = torch.stack([x.sin(), x.cos(), x.exp(), x.erf(), x.expm1(), x.atan(), x.sinh()])
        bends = torch.stack([x.tanh(), x.sigmoid(), nn.functional.gelu(x), nn.functional.silu(x)])
        halves = x.half() * 3 + y.half(), (x.bfloat16() * y.bfloat16()).sum(-1)
        whole = (
            i // 7,
            i % 5,
            i * i ^ 21,
            (i >> 1) & 3,
            i.float() / 3,
            i.abs().double().sqrt(),
            x.double().exp(),
            (x * 1e12).int(),
            (x.double() * 1e30).long(),
            (i * 123456789012345).float(),
        )
        return (
            logs,
            waves,
            bends,
            *halves,
            *whole,
            x.std(-1),
            x.logsumexp(-1),
            x.softmax(-1),
            x.double().sum(-1),
        )


@dataclass(frozen=True)
class Case:
    """A model with its inputs by size. `sizes`: by the tier of the kernels that answer them."""

    model: Callable[[], nn.Module]
    arguments: Callable[[int], tuple[torch.Tensor, ...]]
    dynamic_shapes: Any
    symbol: str
    sizes: Mapping[str, int]
    bucket: tuple[int, int] = (0, 0)


def dim(name: str, least: int = 1) -> Any:
    return torch.export.Dim(name, min=least, max=64)


CASES = {
    "encoder": Case(
        Encoder,
        lambda n: (
            torch.arange(2 * n).view(2, n) * 37 % 100,
            (torch.arange(2 * n).view(2, n) % 11 < 9).long(),
        ),
        ({1: dim("length")}, {1: dim("length")}),
        "length",
        {"exact": 16, "bucket": 21, "generic": 37},
        (18, 30),
    ),
    "residual": Case(
        Residual,
        lambda n: (torch.randn(n, 3, 33, 35),),
        ({0: dim("images")},),
        "images",
        {"exact": 1, "bucket": 2, "generic": 5},
        (2, 4),
    ),
    "decoder": Case(
        Decoder,
        lambda n: (torch.arange(n) * 29 % 80,),
        ({0: dim("length")},),
        "length",
        {"exact": 1, "bucket": 8, "generic": 33},
        (5, 16),
    ),
    "lstm": Case(
        Recurrent,
        lambda n: (torch.randn(n, 3, 12),),
        ({0: dim("steps")},),
        "steps",
        {"exact": 5, "bucket": 9, "generic": 12},
        (8, 10),
    ),
    "order": Case(
        Order,
        lambda n: (torch.randn(n, 40).round(decimals=1), torch.arange(n) * 7 % 16),
        ({0: dim("rows")}, {0: dim("rows")}),
        "rows",
        {"exact": 6, "bucket": 17, "generic": 41},
        (10, 30),
    ),
    "selection": Case(
        Selection,
        lambda n: (torch.randn(n, 19), torch.arange(n) * 7 % 16),
        ({0: dim("rows")}, {0: dim("rows")}),
        "rows",
        {"generic": 23},
    ),
    "functions": Case(
        Functions,
        lambda n: (torch.randn(n, 37) * 3, torch.arange(-n, n)),
        ({0: dim("rows")}, {0: 2 * dim("rows")}),
        "rows",
        {"exact": 4, "bucket": 11, "generic": 33},
        (9, 20),
    ),
}


# Running ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=CASES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a case, its model, and its artifact by target, all with portable bits."""
    case = CASES[request.param]
    torch.manual_seed(0)
    model = case.model().eval()
    sizes = [{case.symbol: case.sizes["exact"]}] if "exact" in case.sizes else []
    buckets = {case.symbol: [case.bucket]} if "bucket" in case.sizes else {}
    shapes, options = case.dynamic_shapes, Options(bits="portable")
    graph = import_model(model, case.arguments(3), dynamic_shapes=shapes, options=options)
    run_passes(graph)
    folder = tmp_path_factory.mktemp(request.param)
    for target in ARTIFACTS:
        program = build_program(graph, open_store(target), sizes, buckets=buckets)
        assert {o.target for kernel in program.kernels for o in kernel.objects} == {target}
        write(program, folder / f"{target}.svm")
    yield case, model, folder


def results(command: list[str], model: Path, inputs: Path, out: Path, strategy: str) -> tuple[dict, str]:
    """Run an artifact; return its outputs and what it says of its call sites."""
    options = ["--input", inputs, "--output", out, "--strategy", strategy, "--threads", 2, "--stats"]
    done = subprocess.run([*command, str(model), *map(str, options)], capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    with np.load(out) as file:
        return dict(file), done.stdout


def test_bits(runners: dict[str, list[str]], built: Any, tmp_path: Path) -> None:
    case, model, folder = built
    for tier, size in case.sizes.items():
        arguments = case.arguments(size)
        names = model.forward.__code__.co_varnames[1:]
        inputs = tmp_path / "inputs.npz"
        np.savez(inputs, **{name: x.numpy() for name, x in zip(names, arguments, strict=False)})
        found = {}
        for target in ARTIFACTS:
            for strategy in ("bucket", "generic"):
                artifact, out = folder / f"{target}.svm", tmp_path / "out.npz"
                found[target, strategy], stats = results(runners[target], artifact, inputs, out, strategy)
                assert strategy == "generic" or f"] {tier}," in stats
        values = found["x86-64-v3", "generic"]
        check(values, model(*arguments))
        for key, other in found.items():
            different = [name for name in values if other[name].tobytes() != values[name].tobytes()]
            assert not different, f"size {size}: {key}"


def test_attention_over_segments(runners: dict[str, list[str]], tmp_path: Path) -> None:
    """Also with offsets that descend and lie outside, on two threads: the same bits."""
    x, offsets, masks = test_segments.inputs([5, 1, 0, 313, 31], (3,), "f32")
    for name in ARTIFACTS:
        options = Options(target=name, sizes=[{"tokens": len(x), "n": 6, "longest": 313}])
        graphs = partial(test_segments.by_segments, (3,), "f32")
        exe = compile_graphs(lambda make=graphs: [make()], "generic", options)
        exe.save(tmp_path / f"{name}.svm")
    for given in (offsets, np.array([-9, 7, 3, 40, -(1 << 63), 1 << 62])):
        np.savez(tmp_path / "inputs.npz", x=x, offsets=given, mask=masks[0])
        found = {}
        for name, strategy in product(ARTIFACTS, ("bucket", "generic")):
            files = tmp_path / f"{name}.svm", tmp_path / "inputs.npz", tmp_path / "out.npz"
            (found[name, strategy],) = results(runners[name], *files, strategy)[0].values()
        wanted = found["x86-64-v3", "generic"]
        assert np.any(wanted) and all(other.tobytes() == wanted.tobytes() for other in found.values())


#: Models of others with portable bits: all small ones, and larger classifiers that qemu computes in seconds.
ZOO = (
    zoo.SMALL_CLASSIFIERS
    | zoo.TRANSFORMERS
    | {
        name: zoo.CLASSIFIERS[name]
        for name in ("squeezenet1_0", "shufflenet_v2_x1_0", "mnasnet1_0", "googlenet", "efficientnet_b0")
    }
)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ZOO)
def test_bits_of_models(runners: dict[str, list[str]], name: str, tmp_path: Path) -> None:
    model = ZOO[name]
    module, sizes = zoo.made(model), model.shapes[0]
    leaves, _ = tree_flatten_with_path(model.inputs(**sizes))
    tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    given = {".".join(re.findall(r"\w+", "".join(map(str, path)))): x.numpy() for path, x in tensors}
    np.savez(tmp_path / "inputs.npz", **given)
    shapes, options = zoo.dynamic_shapes(model), Options(bits="portable")
    example = model.inputs(**(model.example or model.shapes[-1]))
    graph = import_model(module, kwargs=example, dynamic_shapes=shapes, options=options)
    run_passes(graph)
    found = []
    for target in ARTIFACTS:
        write(build_program(graph, open_store(target), []), tmp_path / f"{target}.svm")
        paths = (tmp_path / f"{target}.svm", tmp_path / "inputs.npz", tmp_path / "out.npz")
        found.append(results(runners[target], *paths, "generic")[0])
    for target, other in zip(ARTIFACTS, found, strict=True):
        different = [key for key in found[0] if other[key].tobytes() != found[0][key].tobytes()]
        assert not different and other.keys() == found[0].keys(), f"{target} {sizes}: {different}"
    assert all(np.unique(value).size > 1 for value in found[0].values() if value.size > 1)


def check(found: Mapping[str, np.ndarray], expected: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
    """Check that results are near PyTorch's; the files hold bf16 as bits."""
    expected = expected if isinstance(expected, tuple) else (expected,)
    for wanted, value in zip(expected, found.values(), strict=True):
        shown = torch.from_numpy(value.view(np.int16) if value.dtype == np.uint16 else value)
        near = 2e-2 if wanted.dtype == torch.bfloat16 else 2e-4
        torch.testing.assert_close(shown.view(wanted.dtype), wanted, rtol=near, atol=near)


class Layers(nn.Module):
    """Two linear layers and a convolution, whose products are of bytes once they are quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(24, 40, 3, padding=1)
        self.up, self.down = nn.Linear(40, 100), nn.Linear(100, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.conv(x.T[None])[0].T)))


@pytest.mark.parametrize("target", ["aarch64", "aarch64-dotprod", "aarch64-i8mm"])
def test_products_of_bytes(runners: dict[str, list[str]], target: str, tmp_path: Path) -> None:
    """By 16-bit numbers, by sdot and by usdot: the bits of x86-64-v3."""
    torch.manual_seed(0)
    model, found = Layers().eval(), {}
    x = torch.randn(29, 24)
    np.savez(tmp_path / "inputs.npz", x=x.numpy())
    options = Options(weights="int8", calibrate=[(x,)], fallback="error", sizes=[{"rows": 29}])
    for name in ("x86-64-v3", target):
        rows = torch.export.Dim("rows", min=1, max=64)
        exe = shapevm.compile(model, (x,), dynamic_shapes=({0: rows},), options=replace(options, target=name))
        exe.save(tmp_path / f"{name}.svm")
        program = read(tmp_path / f"{name}.svm")
        assert name in {o.target for kernel in program.kernels for o in kernel.objects}
        for strategy in ("bucket", "generic"):
            command = runners["aarch64" if name.startswith("aarch64") else name]
            artifact, out = tmp_path / f"{name}.svm", tmp_path / "out.npz"
            found[name, strategy], _ = results(command, artifact, tmp_path / "inputs.npz", out, strategy)
    wanted = found["x86-64-v3", "generic"]
    for key, values in found.items():
        assert all(values[name].tobytes() == wanted[name].tobytes() for name in wanted), key


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize(
    ("target", "precision", "layout"),
    [
        ("aarch64-dotprod", "f32", DIGITS_LAYOUT),
        ("aarch64-i8mm", "f32", DIGITS_LAYOUT),
        ("aarch64", "i16", SHORTS_LAYOUT),
    ],
)
def test_products_of_integers(
    runners: dict[str, list[str]], target: str, precision: str, layout: str, weights: str, tmp_path: Path
) -> None:
    """In limbs, by sdot and by usdot, and in i16: the bits that the same program has on this machine."""
    torch.manual_seed(0)
    model, x = nn.Linear(64, 128).eval(), torch.randn(29, 64)
    np.savez(tmp_path / "inputs.npz", input=x.numpy())
    options = Options(weights=weights, precision=precision, fallback="error", target=target)
    rows = torch.export.Dim("rows", min=1, max=64)
    exe = shapevm.compile(model, (x,), dynamic_shapes=({0: rows},), options=options)
    exe.save(tmp_path / "model.svm")
    artifact, out = tmp_path / "model.svm", tmp_path / "out.npz"
    found, _ = results(runners["aarch64"], artifact, tmp_path / "inputs.npz", out, "generic")
    (values,) = found.values()
    specs = [from_json(kernel.spec) for kernel in exe.machine.kernels]
    (spec,) = (spec for spec in specs if isinstance(spec, Matmul))
    assert spec.product.b_layout == layout
    assert values.tobytes() == np.asarray(exe(x)).tobytes()
