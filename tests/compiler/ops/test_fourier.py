"""Fourier transforms: PyTorch's values at every length, norm and axis, without a call of PyTorch."""

import subprocess

import numpy as np
import pytest
import torch

import shapevm
from shapevm.runner import runner_path

from .compiled import check
from .test_torch import tensor

F32, F64 = torch.float32, torch.float64
LENGTHS = (13, 1, 2, 3, 5, 8, 12, 97, 400)


def real(z):
    return torch.view_as_real(z)


def small(shape, dtype, size, i):
    """Return numbers whose transforms are about 1, to which the tolerances of `check` apply."""
    return tensor(shape, dtype, size, i) / max(size, 1)


def native(*args, **named):
    assert not check(*args, **named).machine.externs


@pytest.mark.parametrize(("dtype", "norm"), [(F32, "backward"), (F64, "ortho"), (F64, "forward")])
def test_every_length(dtype, norm):
    def forward(x, y):
        z = torch.complex(x, y)
        there, back = torch.fft.fft(z, norm=norm), torch.fft.ifft(z, norm=norm)
        return real(there), real(back), real(torch.fft.rfft(x, norm=norm))

    native(forward, [((3, "n"), dtype)] * 2, LENGTHS, make=small)


def test_half_of_a_transform():
    native(lambda x, y: torch.fft.irfft(torch.complex(x, y)), [((3, "n"), F64)] * 2, (7, 2, 3, 33))


def test_a_long_prime():
    native(lambda x: real(torch.fft.rfft(x)), [(("n",), F64)], (1009, 4))


def test_any_axes():
    def forward(x):
        both = torch.fft.rfft2(x, dim=(1, 0))
        all_of, some, middle = torch.fft.fftn(x), torch.fft.ifftn(x, dim=(0, 2)), torch.fft.fft(x, dim=1)
        return (*map(real, (both, all_of, some, middle)), real(torch.fft.fftshift(torch.fft.fft2(x))))

    native(forward, [((5, 4, 6), F64)], (1,))


@pytest.mark.parametrize("n", [1, 2, 7, 9, 24])
def test_lengths_that_are_cut_or_padded(n):
    def forward(x):
        return real(torch.fft.rfft(x, n=n)), real(torch.fft.fft(x, n=n)), torch.fft.irfft(x + 0j, n=n)

    native(forward, [(("n", 13), F64)], (2, 1))


def test_no_element_is_an_error():
    n = torch.export.Dim("n", min=0, max=9)

    class Model(torch.nn.Module):
        def forward(self, x):
            return real(torch.fft.rfft(x))

    with pytest.raises(shapevm.ShapeError, match="at n = 0 the model itself fails"):
        shapevm.compile(Model(), (torch.randn(2, 5),), dynamic_shapes=({1: n},))


# Programs ------------------------------------------------------------------------------------------------


class Spectrogram(torch.nn.Module):
    """Magnitudes of overlapping windows, and the signal again."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, x):
        found = torch.stft(x, 64, 16, window=self.window, return_complex=True)
        return found.abs(), torch.istft(found, 64, 16, window=self.window)


class SpectralConvolution(torch.nn.Module):
    """The first frequencies times a complex weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 4, 5, 5, 2))

    def forward(self, x):
        found = torch.fft.rfft2(x)
        made = torch.zeros(x.shape[0], 4, *found.shape[2:], dtype=torch.complex64)
        weight = torch.view_as_complex(self.weight)
        made[:, :, :5, :5] = torch.einsum("bihw,iohw->bohw", found[:, :, :5, :5], weight)
        return torch.fft.irfft2(made, s=x.shape[-2:])


class Rotary(torch.nn.Module):
    """Llama's rotary embedding, as it was first written."""

    def forward(self, x):
        n = x.shape[1]
        angles = torch.outer(torch.arange(n).float(), 1.0 / 10000 ** (torch.arange(0, 16, 2) / 16))
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns.view(1, n, 1, 8)).flatten(3).type_as(x)


PROGRAMS = [
    (Spectrogram, (3, 500), [(1, 64), (2, 77), (5, 1500)]),
    (SpectralConvolution, (2, 3, 12, 16), [(1, 3, 97, 13), (5, 3, 20, 21)]),
    (Rotary, (2, 7, 3, 16), [(2, 1, 3, 16), (1, 100, 3, 16)]),
]


@pytest.mark.parametrize(("kind", "example", "shapes"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_programs(kind, example, shapes):
    torch.manual_seed(0)
    model, least = kind(), 64 if kind is Spectrogram else 10 if kind is SpectralConvolution else 1
    axes = [i for i in range(len(example)) if {x[i] for x in shapes} != {example[i]}]
    sizes = {i: torch.export.Dim(f"n{i}", min=least if i else 1, max=5000) for i in axes}
    exe = shapevm.compile(model, (torch.randn(example),), dynamic_shapes=(sizes,))
    assert not exe.machine.externs
    for shape in [example, *shapes]:
        x = torch.randn(shape)
        for found, wanted in zip(*map(torch.utils._pytree.tree_leaves, (exe(x), model(x))), strict=True):
            torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)


def test_the_runner_gives_the_same_bits(tmp_path):
    exe = shapevm.compile(
        Spectrogram(), (torch.randn(2, 300),), dynamic_shapes=({1: torch.export.Dim("n", min=64, max=5000)},)
    )
    exe.save(tmp_path / "model.svm")
    x = np.random.default_rng(0).standard_normal((2, 333)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [runner_path(), "model.svm", "--input", "x=x.npy", "--output", "out.npz"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    for found, wanted in zip(np.load(tmp_path / "out.npz").values(), exe(x), strict=True):
        assert found.tobytes() == wanted.tobytes()
