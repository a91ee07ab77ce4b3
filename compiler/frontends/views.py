"""The operators of torch that return views of their arguments."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .nodes import node_argument, operator_of


def is_certain_view(node: torch.fx.Node) -> bool:
    """Return True if the result, or one of several, always shares memory with the first argument."""
    if node.target is operator.getitem:
        return is_certain_view(node_argument(node))
    if not isinstance(node.target, torch._ops.OpOverload) or is_composite(node.target):
        return False
    aliases = [result.alias_info for result in operator_of(node)._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def is_composite(overload: Any) -> bool:
    """Return True for an operator that is written in others: its schema is inconclusive about memory."""
    return overload._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
        overload.name(), "CompositeImplicitAutograd"
    )
