"""Workarounds for older versions of torch, each with the last version that needs it."""

from __future__ import annotations

import torch
from torch.fx.node import has_side_effect

#: Operators whose results beyond the first have wrong shapes in a trace.
MISTRACED = ("aten.lstm.input",)  # 2.12


def keep_checks() -> None:
    """Keep the check of LAPACK's status, which has no result, from being removed as dead code. 2.12"""
    has_side_effect(torch.ops.aten._linalg_check_errors.default)
