"""Reading the arguments of FX nodes."""

from __future__ import annotations

import torch


def node_argument(node: torch.fx.Node, position: int = 0) -> torch.fx.Node:
    """Return the argument at `position`, which is a node."""
    found = node.args[position]
    assert isinstance(found, torch.fx.Node), f"{node.name}: argument {position} is {found!r}, no node"
    return found
