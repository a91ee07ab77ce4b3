"""`bits="portable"`: functions of numbers that have the same bits on every target.

Its other effects are decided elsewhere: products are not multiplied as bf16 (`round_products`), their
rounding does not depend on targets (`Rounding.targets` is empty), and only functions that every machine
computes exactly are folded (`fold_constants`).
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from ...jit.math.table import BY_TARGET
from ...jit.spec import Body, map_bodies
from ..ir.graph import Graph
from ..lower.launches import unbound_kernels


def use_portable_functions(graph: Graph) -> None:
    """Let kernels call the portable forms of functions that depend on the target."""
    if graph.rounding.is_portable:
        for node in unbound_kernels(graph):
            node.attrs["spec"] = map_bodies(node.attrs["spec"], _portable)


def _portable(body: Body[sympy.Expr]) -> Body[sympy.Expr]:
    return tuple(replace(instr, op=BY_TARGET.get(instr.op, instr.op)) for instr in body)
