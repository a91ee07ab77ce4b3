"""Floats of 8 bits: no kernel reads them, so constants in float8 are held in f32, which represents them
exactly.

Nothing is computed in float8: an operator may move such a constant or convert it to a wider dtype.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import torch

from ..ir.errors import UnsupportedOp
from ..ir.graph import Graph
from ..ir.rounding import RoundedWeight
from ..ops import build as B
from .dtypes import dtype_name
from .nodes import module_of

_LOG = logging.getLogger("shapevm")
DTYPES = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("float8_"))
MOVES = frozenset(
    f"aten.{name}"
    for name in ("t", "transpose", "permute", "view", "reshape", "expand", "slice", "select", "unsqueeze")
    + ("squeeze", "detach", "alias", "clone", "contiguous", "_unsafe_view")
)
CONVERSIONS = frozenset(("aten.to", "aten._to_copy"))
CHECK = "aten._assert_tensor_metadata"
COLUMNS_FIRST = frozenset(("linear", "embedding"))  # operators whose weight is [columns, steps]
SourceOf = Callable[[torch.fx.Node], str]


def is_float8(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor in float8."""
    return isinstance(value, torch.Tensor) and value.dtype in DTYPES


def is_float8_check(node: torch.fx.Node, overload: str) -> bool:
    """Whether `node` checks that a constant is in float8, which is independent of its storage."""
    return overload.startswith(CHECK) and _dtype_of(node) is not None


def check_float8(node: torch.fx.Node, overload: str, source: str) -> None:
    """Raise UnsupportedOp if `node` computes in float8."""
    dtype = _dtype_of(node)
    is_move = name_of(node) in MOVES and bool(_given(node))
    if dtype is not None and not is_move and not is_widened(node):
        advice = "quantise activations to int8, or weights alone to float8"
        raise UnsupportedOp(f"{overload}: no kernel computes in {dtype}; {advice}", source=source)


def is_widened(node: torch.fx.Node) -> bool:
    """Whether `node` converts a constant in float8 to a wider dtype."""
    return name_of(node) in CONVERSIONS and bool(_given(node)) and not is_float8(node.meta.get("val"))


def note_float8(graph: Graph, node: torch.fx.Node, args: Sequence[Any], source_of: SourceOf) -> None:
    """Note that a weight which `node` converts from float8 is held in a wider dtype, and log it with the
    operator that computes with it and its line. `args`: the node's, in `graph`."""
    if not is_widened(node):
        return
    name = B.name_of_constant(args[0])
    path = _to_reader(node)
    weight, reader = path[-2].meta["val"], path[-1]
    operator = name_of(reader).rpartition(".")[2]
    columns = 0 if operator in COLUMNS_FIRST else -1
    source = source_of(reader)
    module = "" if source else module_of(reader)
    where = f" at {source}" if source else f" of {module}" if module else ""
    held = dtype_name(weight.dtype)
    scheme = f"{_dtype_of(node)}, {_scales(path, columns)}"
    reason = f"no kernel reads a weight in {scheme}, as it is; it is held in {held}"
    reason = f"{operator} by {name!r}{where}: {reason}"
    _LOG.warning("%s", reason)
    shape = tuple(map(int, weight.shape if columns else weight.shape[::-1]))
    n_bytes = weight.numel() * weight.element_size()
    graph.rounding.weights[name] = RoundedWeight(name, shape, held, n_bytes, 0.0, reason)


def _to_reader(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return `node` and the nodes that move, convert and scale its result, up to the operator that computes
    with it, or the program's output."""
    path = [node]
    while len(path) == 1 or name_of(path[-1]) in MOVES | CONVERSIONS or _is_scaled(path[-1], path[-2]):
        readers = [user for user in path[-1].users if not name_of(user).startswith(CHECK)]
        if not readers:
            break
        path.append(readers[0])
    return path if len(path) > 1 else [node, node]


def _is_scaled(node: torch.fx.Node, weight: torch.fx.Node) -> bool:
    """Whether `node` multiplies a weight by scales, which have fewer elements."""
    scale = _factor(node, weight)
    return scale is not None and scale.numel() < weight.meta["val"].numel()


def _factor(node: torch.fx.Node, weight: torch.fx.Node) -> torch.Tensor | None:
    """Return the factor by which `node` multiplies `weight`, None if it does not multiply tensors."""
    factors = [arg.meta.get("val") for arg in node.all_input_nodes if arg is not weight]
    is_product = name_of(node) == "aten.mul" and len(factors) == 1 and isinstance(factors[0], torch.Tensor)
    return factors[0] if is_product else None


def _scales(path: Sequence[torch.fx.Node], columns: int) -> str:
    """Return which elements of a weight share a scale, as text; its columns are axis `columns`."""
    found = [_factor(node, weight) for weight, node in pairwise(path[:-1])]
    scale = next((factor for factor in found if factor is not None), None)
    if scale is None:
        return "no scale"
    if scale.numel() == 1:
        return "one scale"
    if scale.numel() == path[-2].meta["val"].shape[columns]:
        return "a scale for each column"
    return f"scales of shape {list(map(int, scale.shape))}"


def name_of(node: torch.fx.Node) -> str:
    """Return the operator that a node calls without its overload, such as "aten.mul"."""
    return str(node.target).rpartition(".")[0] if node.op == "call_function" else node.op


def _given(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the arguments in float8."""
    return [arg for arg in node.all_input_nodes if is_float8(arg.meta.get("val"))]


def _dtype_of(node: torch.fx.Node) -> str | None:
    """Return the float8 dtype of `node`'s arguments or results, None if there is none."""
    values = [*(arg.meta.get("val") for arg in node.all_input_nodes), node.meta.get("val")]
    return next((str(x.dtype).removeprefix("torch.") for x in values if is_float8(x)), None)
