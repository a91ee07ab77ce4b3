"""Windows of signals and ranges of numbers with run-time lengths and steps."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program((5, True), (8, False), (1, True), (1, False), (0, True), (2, False), (-1, True))
def windows_of_a_length(n: int, periodic: bool) -> list[Tensor]:
    made = [torch.hann_window(n, periodic), torch.hamming_window(n, periodic)]
    made += [torch.bartlett_window(n, periodic)]
    return made + [torch.blackman_window(n, periodic), torch.kaiser_window(n, periodic)]


@program((5, 0.5, 0.4, 12.0), (8, 0.3, 0.6, 3.0), (1, 0.5, 0.5, 0.0))
def windows_with_numbers(n: int, alpha: float, beta: float, sharp: float) -> tuple[Tensor, Tensor]:
    wide = torch.kaiser_window(n, True, sharp, dtype=torch.float64)
    return torch.hamming_window(n, True, alpha, beta), wide


@program((x(16),), (x(5),), (x(1),))
def a_signal_under_a_window(a: Tensor) -> Tensor:
    return a * torch.hann_window(a.size(0)) + torch.hamming_window(16).sum()


@program((8, 0.5), (5, 1.0), (1, 2.0))
def frequencies(n: int, d: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.fft.fftfreq(n, d), torch.fft.rfftfreq(n, d), torch.fft.fftshift(torch.fft.fftfreq(n))


@program((0.0, 1.0, 5, 2.0), (2.0, -1.0, 1, 10.0), (0.0, 3.0, 0, 3.0), (0.0, 7.0, 4, 0.5))
def lines_of_powers(start: float, end: float, n: int, base: float) -> tuple[Tensor, Tensor]:
    return torch.logspace(start, end, n, base), torch.linspace(start, end, n)
