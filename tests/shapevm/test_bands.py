"""Kernels in bands of lines: the same bits as whole ones, whatever the sizes, threads and tiers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.vm import artifact as artifacts
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.assembler import assemble
from shapevm.vm.load_options import LoadOptions
from shapevm.vm.machine import Machine
from torch import nn

import shapevm
from shapevm.build.text_files import program_text
from shapevm.settings import settings


class Residual(nn.Module):
    """An inverted residual as MobileNetV2 has it."""

    def __init__(self, channels: int, wide: int, out: int, stride: int, taps: int = 3) -> None:
        super().__init__()
        self.wide = nn.Conv2d(channels, wide, 1)
        self.depthwise = nn.Conv2d(wide, wide, taps, stride, taps // 2, groups=wide)
        self.narrow = nn.Conv2d(wide, out, 1)
        self.is_added = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.narrow(torch.relu(self.depthwise(torch.relu(self.wide(x)))))
        return x + y if self.is_added else y


class Net(nn.Module):
    """A stem and blocks; what the first block gives is a result as well if `is_kept`."""

    def __init__(self, is_kept: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.first = Residual(16, 48, 24, 1)
        self.rest = nn.Sequential(Residual(24, 72, 24, 1), Residual(24, 72, 16, 2, 5))
        self.is_kept = is_kept

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.first(torch.relu(self.stem(x)))
        rest = self.rest(first).mean((2, 3))
        return (first, rest) if self.is_kept else (rest,)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = shapevm.get_threads()
    shapevm.set_threads(1)
    yield
    shapevm.set_threads(before)


#: (batch, height, width): images larger than a cache, also where lines are no multiple of a tile's.
SIZES = ((1, 320, 352), (2, 262, 278), (1, 2, 9000), (3, 500, 34), (1, 64, 64))


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program of Net with code for any sizes."""
    path = str(tmp_path_factory.mktemp("bands") / "net.svm")
    torch.manual_seed(0)
    sizes = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    with shapevm.compile(Net().eval(), (torch.randn(2, 3, 40, 48),), dynamic_shapes={"x": sizes}) as exe:
        exe.save(path)
    return path


def runs_of(exe: shapevm.Executable) -> int:
    """How often several kernels ran in bands."""
    line = next(line for line in exe.metrics().splitlines() if line.startswith("shapevm_band_runs_total"))
    return int(line.rsplit(" ", 1)[1])


def image(*sizes: int) -> np.ndarray:
    batch, height, width = sizes
    return np.random.default_rng(0).standard_normal((batch, 3, height, width)).astype(np.float32)


@pytest.mark.parametrize("strategy", ["generic", "jit"])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_bands_have_the_bits_of_whole_kernels(artifact: str, strategy: str, n_threads: int) -> None:
    shapevm.set_threads(n_threads)
    with settings.scope(bands="never"):
        whole = shapevm.load(artifact, strategy=strategy)
    with settings.scope(bands="always"):
        exe = shapevm.load(artifact, strategy=strategy)
    with whole, exe:
        for sizes in SIZES[:2] if strategy == "jit" else SIZES:
            x = image(*sizes)
            assert exe(x)[0].tobytes() == exe(x)[0].tobytes() == whole(x)[0].tobytes(), sizes
        assert runs_of(whole) == 0 and runs_of(exe) >= 2 * (len(SIZES[:2]) if n_threads == 1 else 1)


def test_what_the_caller_gets_is_written_whole() -> None:
    torch.manual_seed(0)
    model, x = Net(is_kept=True).eval(), image(1, 320, 320)
    with (
        settings.scope(bands="always"),
        shapevm.compile(model, (torch.from_numpy(x),), strategy="jit") as exe,
    ):
        first, rest = exe(x)
        assert runs_of(exe) > 0
    with settings.scope(bands="never"), shapevm.compile(model, (torch.from_numpy(x),), strategy="jit") as exe:
        wanted = exe(x)
    assert first.tobytes() == wanted[0].tobytes() and rest.tobytes() == wanted[1].tobytes()
    np.testing.assert_allclose(first, model(torch.from_numpy(x))[0].detach().numpy(), rtol=1e-3, atol=1e-4)


def test_auto_tries_both_ways(artifact: str) -> None:
    """Of eight runs of a chain four are in bands; later ones go the way that took less time."""
    x = image(1, 320, 352)
    with settings.scope(bands="always"), shapevm.load(artifact, strategy="generic") as exe:
        wanted = exe(x)[0].tobytes()
        n_chains = runs_of(exe)
    with settings.scope(bands="auto"), shapevm.load(artifact, strategy="generic") as exe:
        assert all(exe(x)[0].tobytes() == wanted for _ in range(8))
        assert runs_of(exe) == 4 * n_chains > 0
        assert all(exe(x)[0].tobytes() == wanted for _ in range(3))
        assert runs_of(exe) - 4 * n_chains in range(3 * n_chains + 1)


def test_a_profile_has_each_kernel(artifact: str) -> None:
    """While launches are looked at, each kernel runs by itself."""
    x = image(1, 320, 352)
    with settings.scope(bands="always"), shapevm.load(artifact, strategy="generic") as exe:
        exe(x)
        n_before = runs_of(exe)
        with exe.profile() as profile:
            exe(x)
        assert runs_of(exe) == n_before > 0
        labels = {row.label for row in profile.kernels}
    assert len(labels) > 3


def test_a_call_in_bands_can_be_stopped(artifact: str) -> None:
    """The runtime looks between bands whether the call is to end."""
    x = image(4, 599, 599)
    with settings.scope(bands="always"):
        free, bound = (shapevm.load(artifact, strategy="generic", timeout=t) for t in (None, 0.001))
    with free, bound:
        wanted = free(x)[0].tobytes()
        with pytest.raises(TimeoutError):
            bound(x)
        assert free(x)[0].tobytes() == wanted


class Outer(nn.Module):
    """Convolutions of an image whose sides are those of two vectors: a call of few bytes may need many."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 1), nn.ReLU(), nn.Conv2d(16, 4, 1))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.layers(a * b).mean((2, 3))


def test_sizes_of_no_machine_do_not_hold_up_a_trace() -> None:
    """The limit of memory refuses them; laying out their bands, up to 2^36 of them, took minutes to days."""
    side = torch.export.Dim.AUTO
    args = torch.randn(1, 1, 40, 1), torch.randn(1, 1, 1, 48)
    with (
        settings.scope(bands="always", memory_mib=100),
        shapevm.compile(
            Outer().eval(), args, dynamic_shapes={"a": {2: side}, "b": {3: side}}, strategy="generic"
        ) as exe,
    ):
        for n in (1 << 14, 1 << 17, 1 << 20):
            with pytest.raises(shapevm.errors.LimitExceeded, match="memory_max"):
                exe(np.ones((1, 1, n, 1), np.float32), np.ones((1, 1, 1, n), np.float32))


def test_rings_count_as_memory(artifact: str) -> None:
    """Where the limit has no room for them, kernels run whole: not later than without bands is it reached."""
    x = image(1, 320, 352)
    with settings.scope(bands="never"), shapevm.load(artifact, strategy="generic") as exe:
        wanted = exe(x)[0].tobytes()

    def runs_within(n_bytes: int) -> int:
        with settings.scope(bands="always"):
            exe = shapevm.load(artifact, strategy="generic", memory=n_bytes)
        with exe:
            assert exe(x)[0].tobytes() == wanted
            return runs_of(exe)

    low, high = 1 << 20, 1 << 30  # the least limit within which the call runs
    while high - low > 1024:
        middle = (low + high) // 2
        try:
            runs_within(middle)
            high = middle
        except shapevm.errors.LimitExceeded:
            low = middle
    assert runs_within(high) == 0 and runs_within(2 * high) > 0


class Behind(nn.Module):
    """Two convolutions between kernels that take no lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(16, 48, 1), nn.ReLU(), nn.Conv2d(48, 16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.cumsum(1)).amax((2, 3))


def overwritten(text: str) -> str:
    """Have the last product of the text of Behind write over the image that the first one reads."""
    n = re.search(r"(\d+) registers", text).group(1)
    lines = text.replace(f"{n} registers", f"{int(n) + 1} registers").splitlines()
    products = [i for i, line in enumerate(lines) if "; " in line and 'launch "matmul' in line]
    first, last = products[0], products[-1]
    image = re.search(r"buffers=\((r\d+),", lines[first]).group(1)
    result = re.search(r"(r\d+)\) +;", lines[last]).group(1)
    lines[last] = lines[last].replace(f"{result})  ", f"r{n})  ", 1)
    behind = next(i for i in range(last + 1, len(lines)) if "launch" in lines[i])
    lines[behind] = lines[behind].replace(f"({result},", f"(r{n},", 1)
    return "\n".join([*lines[: first + 1], f"  move d=r{n} a={image}", *lines[first + 1 :]])


def test_an_image_that_is_overwritten_runs_whole(tmp_path: Path) -> None:
    """A program may write results over the image that an earlier step reads: a thread that begins in the
    middle needs lines of it that another has written over."""
    torch.manual_seed(0)
    x = torch.randn(1, 16, 320, 320)
    with shapevm.compile(Behind().eval(), (x,), strategy="generic") as exe:
        exe.save(tmp_path / "behind.svm")
    text, arrays = program_text(tmp_path / "behind.svm")
    found = []
    for way, program in itertools.product(("never", "always"), (text, overwritten(text))):
        data = artifacts.to_bytes(assemble(program, arrays))
        with settings.scope(bands=way), shapevm.load(data, strategy="generic") as exe:
            found.append((exe(x.numpy()).tobytes(), runs_of(exe)))
    assert len({bits for bits, _ in found}) == 1
    assert [runs for _, runs in found] == [0, 0, 1, 0]


def test_unknown_ways_are_refused(artifact: str) -> None:
    with pytest.raises(shapevm.errors.ArgumentError, match="bands"), settings.scope(bands="often"):
        shapevm.load(artifact)
    with pytest.raises(
        shapevm.errors.ArgumentError, match="bands 'often' is unknown; known are auto, always"
    ):
        Machine.open(artifact, LoadOptions(bands="often"))
    with Machine.open(artifact, LoadOptions(strategy="generic")) as machine:
        error = ffi.new("svm_error *")
        assert lib.svm_use_bands(machine._handle.pointer, 3, error) and b"must be 0 to 2" in ffi.string(
            error.message
        )
