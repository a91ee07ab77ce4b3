"""Numbers of 8 bits: no kernel reads them, so constants in float8 are held in f32, which has all of them.

Nothing is computed in float8: an operator may move such a constant or convert it to a wider dtype.
"""

from __future__ import annotations

import logging
from typing import Any, TypeGuard

import torch

from ..ir.errors import UnsupportedOp

_LOG = logging.getLogger("shapevm")
DTYPES = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("float8_"))
MOVES = frozenset(
    f"aten.{name}"
    for name in ("t", "transpose", "permute", "view", "reshape", "expand", "slice", "select", "unsqueeze")
    + ("squeeze", "detach", "alias", "clone", "contiguous", "_unsafe_view")
)
CONVERSIONS = frozenset(("aten.to", "aten._to_copy"))


def is_float8(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor in float8."""
    return isinstance(value, torch.Tensor) and value.dtype in DTYPES


def is_float8_check(node: torch.fx.Node, overload: str) -> bool:
    """Whether `node` checks that a constant is in float8, which says nothing about what it is held in."""
    return overload.startswith("aten._assert_tensor_metadata") and _dtype_of(node) is not None


def check_float8(node: torch.fx.Node, overload: str, source: str) -> None:
    """Log that a constant in float8 that `node` converts is held in f32. Raises UnsupportedOp where
    it computes in float8."""
    dtype, name = _dtype_of(node), overload.rsplit(".", 1)[0]
    given = [arg for arg in node.all_input_nodes if is_float8(arg.meta.get("val"))]
    if dtype is None or (name in MOVES and given):
        return
    if name not in CONVERSIONS or not given or is_float8(node.meta.get("val")):
        advice = "quantise activations to int8, or weights alone to float8"
        raise UnsupportedOp(f"{overload}: no kernel computes in {dtype}; {advice}", source=source)
    where = f" at {source}" if source else ""
    _LOG.warning("%s%s: no kernel reads a weight in %s as it is; it is held in f32", overload, where, dtype)


def _dtype_of(node: torch.fx.Node) -> str | None:
    """Return the float8 that `node` takes or gives, None where there is none."""
    values = [*(arg.meta.get("val") for arg in node.all_input_nodes), node.meta.get("val")]
    return next((str(x.dtype).removeprefix("torch.") for x in values if is_float8(x)), None)
