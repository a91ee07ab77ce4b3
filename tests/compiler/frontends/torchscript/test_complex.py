"""Complex tensors in TorchScript programs, scripted and traced, at several sizes, with nothing called in
PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.torchscript.operators.decomposed import decomposed
from torch import Tensor
from torch.testing import assert_close

import shapevm

from .programs import x


def filtered(signal: Tensor) -> Tensor:
    found = torch.fft.rfft(signal, dim=-1)
    places = torch.arange(found.shape[-1], device=signal.device)
    found = found * (places < 3) * torch.exp(-1j * places)
    found[..., 0] = 0
    found[..., 1:2] *= 2
    return torch.fft.irfft(found, n=signal.shape[-1])


def windows_of_a_signal(signal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    window = torch.hann_window(8)
    found = torch.stft(signal, 8, 4, window=window, return_complex=True)
    return torch.view_as_real(found), found.imag.mT, torch.istft(found, 8, 4, window=window)


def rotated(query: Tensor, angles: Tensor) -> Tensor:
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(query.reshape(query.shape[0], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(1)


def operators(real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    z = torch.complex(real, imaginary)
    pairs = torch.stack([z, z.conj()], 0).transpose(0, 1).reshape(-1, 2)
    pairs[0] = 1.0
    pairs.mul_(2j)
    wide = torch.cat([pairs, torch.zeros_like(pairs)], 1)
    wide[:, 1] = pairs[:, 0]
    found = wide.sum(0) / (1 + 2j)
    if z.is_complex() and not z.is_floating_point() and z.dim() == 2:
        found = found * z.numel()
    exact = z.to(torch.complex128)
    return (
        torch.view_as_real(found),
        z.abs(),
        torch.view_as_real(torch.pow(exact, 2)),
        torch.view_as_real(torch.nn.functional.pad(z, [1, 2])),
        torch.view_as_real(torch.fft.fft2(z)),
    )


PROGRAMS: dict[Any, list[tuple[Any, ...]]] = {
    filtered: [(x(2, 8),), (x(3, 13),), (x(1, 5),)],
    windows_of_a_signal: [(x(3, 32),), (x(1, 40),)],
    rotated: [(x(5, 8), x(5, 4)), (x(2, 6), x(2, 3)), (x(1, 2), x(1, 1))],
    operators: [(x(3, 2), x(3, 2) - 1), (x(1, 4), x(1, 4)), (x(7, 1), x(7, 1))],
}


@torch.jit.script
def in_branches_and_loops(signal: Tensor, n: int) -> Tensor:
    found = torch.fft.fft(signal)
    if n > 2:
        found = found[1:] * 1j
        found[0] += 1
    for step in range(n):
        found = torch.cat([found, found[:1] * step])
        found.mul_(0.5j)
    return torch.view_as_real(found)


def test_branches_and_loops() -> None:
    with shapevm.compile(in_branches_and_loops, args=(x(4), 3)) as exe:
        for args in ((x(4), 3), (x(7), 0), (x(1), 2), (x(2), 9)):
            assert_close(exe(*args), in_branches_and_loops(*args), rtol=1e-4, atol=1e-5)


def in_a_list(signal: Tensor) -> Tensor:
    parts = [torch.fft.fft(signal) * i for i in range(signal.size(0))]
    return torch.view_as_real(torch.stack(parts))


def test_a_list_of_run_time_length_holds_none() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match=r"a complex tensor; hold torch\.view_as_real of it"):
        shapevm.compile(torch.jit.script(in_a_list), args=(x(4),))


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_complex(function: Any, how: str) -> None:
    calls = PROGRAMS[function]
    if how == "script":
        program = torch.jit.script(function)
    else:
        program = torch.jit.trace(function, calls[0])
    with shapevm.compile(program, args=calls[0], strategy="generic") as exe:
        assert "PyTorch" not in str(exe)
        for args in calls:
            assert_close(exe(*args), program(*args), rtol=1e-4, atol=1e-5)


def product_of_complex(left: Tensor, right: Tensor) -> Tensor:
    made = torch.tensordot(torch.view_as_complex(left), torch.view_as_complex(right), ([1], [0]))
    return torch.view_as_real(made)


@pytest.mark.parametrize("is_narrowed", [False, True])
def test_a_product_of_complex_tensors(is_narrowed: bool, monkeypatch: Any, caplog: Any) -> None:
    """It is taken apart by torch, whose assumption that no size is 1 changes nothing, or has a log line."""
    caplog.set_level("INFO", "shapevm")
    if is_narrowed:
        monkeypatch.setitem(decomposed.__globals__, "are_alike", lambda *_: False)
    args = torch.randn(4, 3, 2), torch.randn(3, 5, 2)
    program = torch.jit.trace(product_of_complex, args)
    with shapevm.compile(program, args=args, strategy="generic") as exe:
        for n, k in [(4, 3), (2, 2)] if is_narrowed else [(0, 3), (1, 3), (4, 1), (2, 2)]:
            given = args[0][:n, :k], args[1][:k]
            assert_close(exe(*given), product_of_complex(*given), rtol=1e-4, atol=1e-5)
    assert ("aten.tensordot.default takes only sizes with Ne(s0, 1)" in caplog.text) is is_narrowed


def test_complex_outputs_are_refused() -> None:
    def both(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return x, [torch.fft.fft(x)]

    with pytest.raises(shapevm.DtypeError, match="an output is complex, which cannot be compiled"):
        shapevm.compile(torch.jit.script(both), (torch.randn(4),))
