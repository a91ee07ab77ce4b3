"""PyTorch's original functions that pack and pad sequences (see `packed`)."""

from __future__ import annotations

from typing import Any

import torch

_VF: Any = torch._VF
PACK, PAD = _VF._pack_padded_sequence, _VF._pad_packed_sequence
