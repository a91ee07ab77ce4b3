"""Energies of molecules (`torchani`)."""

from __future__ import annotations

import torch
from torchani import cutoffs, nn
from torchani.aev import AEVComputer, ANIAngular, ANIRadial


def _molecules() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[0, 1, 1, 0], [1, 0, 0, -1]]), torch.rand(2, 4, 3) * 2


def _radial():
    return ANIRadial(eta=16.0, shifts=[0.9, 1.5, 2.1], cutoff=3.0)


def _angular():
    return ANIAngular(eta=8.0, zeta=32.0, shifts=[0.9, 1.8], sections=[0.2, 1.2, 2.4], cutoff=2.5)


def _computer():
    return AEVComputer(_radial(), _angular(), 2, strategy="pyaev", neighborlist="all_pairs")


def _network(width: int):
    return torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.CELU(0.1), torch.nn.Linear(8, 1))


class _Energies(torch.nn.Module):
    """Energies from species and the atoms' surroundings."""

    def __init__(self):
        super().__init__()
        self.networks = nn.ANINetworks({"H": nn.AtomicNetwork((10, 8, 1)), "O": nn.AtomicNetwork((10, 8, 1))})

    def forward(self, species, surroundings):
        return self.networks(species, surroundings)


PROGRAMS = {
    "AEVComputer": lambda: (_computer(), _molecules(), {}),
    "radial terms": lambda: (_radial(), (torch.rand(7) * 3,), {}),
    "angular terms": lambda: (_angular(), (torch.rand(2, 5) + 0.5, torch.randn(2, 5, 3)), {}),
    "cosine cutoff": lambda: (cutoffs.CutoffCosine(), (torch.rand(7), 3.0), {}),
    "smooth cutoff": lambda: (cutoffs.CutoffSmooth(), (torch.rand(7), 3.0), {}),
    "energies": lambda: (_Energies(), (_molecules()[0], torch.randn(2, 4, 10)), {}),
    "one network": lambda: (_network(10), (torch.randn(2, 4, 10),), {}),
    "AtomicNetwork": lambda: (nn.AtomicNetwork((10, 8, 1), activation="gelu"), (torch.randn(5, 10),), {}),
}
