"""State space models in PyTorch alone (`mambapy`)."""

from __future__ import annotations

import torch
from mambapy import jamba, mamba
from mambapy.pscan import pscan

SMALL = {"d_model": 8, "n_layers": 2, "d_state": 4}


def _words() -> tuple[torch.Tensor]:
    return (torch.randint(0, 20, (2, 6)),)


def _sequence(length: int = 6) -> tuple[torch.Tensor]:
    return (torch.randn(2, length, 8),)


class _Step(torch.nn.Module):
    """One step of generation with its caches."""

    def __init__(self):
        super().__init__()
        self.block = mamba.MambaBlock(mamba.MambaConfig(**SMALL))

    def forward(self, x, state, inputs):
        y, (state, inputs) = self.block.step(x, (state, inputs))
        return y, state, inputs


PROGRAMS = {
    "Mamba": lambda: (mamba.Mamba(mamba.MambaConfig(**SMALL, pscan=False)), _sequence(), {}),
    "Mamba with a parallel scan": lambda: (mamba.Mamba(mamba.MambaConfig(**SMALL)), _sequence(8), {}),
    "Mamba with inner norms": lambda: (
        mamba.Mamba(mamba.MambaConfig(**SMALL, pscan=False, inner_layernorms=True)),
        _sequence(),
        {},
    ),
    "MambaBlock": lambda: (mamba.MambaBlock(mamba.MambaConfig(**SMALL, pscan=False)), _sequence(), {}),
    "step of a MambaBlock": lambda: (
        _Step(),
        (torch.randn(2, 8), torch.randn(2, 16, 4), torch.randn(2, 16, 3)),
        {},
    ),
    "RMSNorm": lambda: (mamba.RMSNorm(8), _sequence(), {}),
    "pscan": lambda: (pscan, (torch.rand(2, 8, 3, 4), torch.randn(2, 8, 3, 4)), {}),
    "language model": lambda: (
        torch.nn.Sequential(
            torch.nn.Embedding(20, 8),
            mamba.Mamba(mamba.MambaConfig(**SMALL, pscan=False)),
            torch.nn.Linear(8, 20),
        ),
        _words(),
        {},
    ),
    "Jamba": lambda: (
        jamba.Jamba(
            jamba.JambaLMConfig(
                d_model=8,
                n_layers=4,
                mlp_size=16,
                attn_layer_offset=1,
                attn_layer_period=2,
                expert_layer_offset=1,
                expert_layer_period=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                num_experts=2,
                num_experts_per_tok=1,
                d_state=4,
                vocab_size=20,
                pscan=False,
            )
        ),
        _sequence(),
        {},
    ),
}
