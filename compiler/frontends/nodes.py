"""Reading FX nodes: the operator and the arguments of a call."""

from __future__ import annotations

import torch


def node_argument(node: torch.fx.Node, position: int = 0) -> torch.fx.Node:
    """Return the argument at `position`, which is a node."""
    found = node.args[position]
    assert isinstance(found, torch.fx.Node), f"{node.name}: argument {position} is {found!r}, no node"
    return found


def operator_of(node: torch.fx.Node) -> torch._ops.OpOverload:
    """Return the operator that a node calls."""
    assert isinstance(node.target, torch._ops.OpOverload), f"{node.name} calls {node.target}, no operator"
    return node.target


def module_of(node: torch.fx.Node) -> str:
    """Return "module 'encoder.0'" for a node of a module, which has no line if it is one of torch's own; ""
    for a node outside of modules."""
    names = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return f"module {names[-1]!r}" if names else ""
