"""Separation of music (`demucs`)."""

from __future__ import annotations

import torch
from demucs.demucs import BLSTM, DConv, Demucs
from demucs.hdemucs import HDemucs
from demucs.htdemucs import HTDemucs
from demucs.spec import ispectro, spectro
from demucs.transformer import CrossTransformerEncoder

TWO = ["drums", "voice"]


def _sound(length: int = 2048) -> torch.Tensor:
    return torch.randn(1, 2, length)


PROGRAMS = {
    "Demucs": lambda: (Demucs(TWO, channels=4, depth=3, lstm_layers=1), (_sound(),), {}),
    "Demucs without LSTM": lambda: (
        Demucs(TWO, channels=4, depth=3, lstm_layers=0, resample=False),
        (_sound(),),
        {},
    ),
    "HDemucs": lambda: (HDemucs(TWO, channels=4, nfft=1024, depth=4), (_sound(4096),), {}),
    "HTDemucs": lambda: (
        HTDemucs(TWO, channels=8, nfft=512, depth=2, t_layers=2, t_heads=2, segment=1, samplerate=4096),
        (_sound(4096),),
        {},
    ),
    "DConv": lambda: (DConv(8), (torch.randn(2, 8, 30),), {}),
    "DConv with attention": lambda: (DConv(8, attn=True, heads=2), (torch.randn(2, 8, 30),), {}),
    "BLSTM": lambda: (BLSTM(8, 1), (torch.randn(2, 8, 30),), {}),
    "BLSTM in pieces": lambda: (BLSTM(8, 1, max_steps=12, skip=True), (torch.randn(2, 8, 30),), {}),
    "spectro": lambda: (lambda x: torch.view_as_real(spectro(x, 64)), (_sound(),), {}),
    "ispectro": lambda: (
        lambda x: ispectro(torch.view_as_complex(x), 16),
        (torch.randn(2, 33, 20, 2),),
        {},
    ),
    "CrossTransformerEncoder": lambda: (
        CrossTransformerEncoder(16, num_heads=2, num_layers=2, hidden_scale=2.0),
        (torch.randn(2, 16, 4, 5), torch.randn(2, 16, 12)),
        {},
    ),
}
