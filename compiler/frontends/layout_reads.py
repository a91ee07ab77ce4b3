"""Programs that ask how a tensor lies in memory: its strides, its place, or whether it is contiguous.

A trace holds the answers as plain numbers, which are those of torch's fake kernels. So an operator without a
result stands in the traced program for each question of the model's. The answers hold where eager gives them
too, for inputs that lie row by row.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.node import has_side_effect
from torch.overrides import TorchFunctionMode

from ..ir.errors import UnsupportedOp
from .fx_nodes import all_nodes, source_of
from .importer import register_converter
from .nodes import node_argument
from .traced_layout import ASKED, inputs_that_decide, lies_as_traced

_QUESTIONS = (
    torch.Tensor.stride, torch.Tensor.is_contiguous, torch.Tensor.storage_offset, torch.Tensor.dim_order,
)  # fmt: skip
_TORCH = os.path.dirname(torch.__file__) + os.sep
_ON_THE_WAY = ("__torch_function__", "handle_torch_function")  # from the model to the mode below
_READ = "shapevm::layout_read"
register_converter("shapevm.layout_read.default", lambda builder, x: None)


def inputs_asked(program: ExportedProgram) -> list[int]:
    """Return the positions of the placeholders whose layout decides an answer.

    Raises UnsupportedOp, with the model's line, where eager may give another answer than the trace.
    """
    asked = [node for node in all_nodes(program.graph_module) if _is_question(node)]
    inputs: list[torch.fx.Node] = []
    for node in asked:
        found = inputs_that_decide(node_argument(node))
        is_certain = lies_as_traced(node_argument(node)) and all(
            each.graph is program.graph and each.meta["val"].is_contiguous() for each in found
        )
        if not is_certain:
            raise UnsupportedOp(ASKED, source=source_of(node))
        inputs += found
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"] if inputs else []
    return [i for i, node in enumerate(placeholders) if node in inputs]


def _is_question(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name == _READ


@cache
def _operator() -> Any:
    """Register the operator, which takes some milliseconds, for the first model that asks."""
    torch.library.custom_op(_READ, _nothing, mutates_args=(), schema="(Tensor x) -> ()").register_fake(
        _nothing
    )
    return has_side_effect(torch.ops.shapevm.layout_read.default)


def _nothing(x: torch.Tensor) -> None:
    """The operator has no result."""


class LayoutReads(TorchFunctionMode):
    """While a model is traced, its questions are noted in the trace; torch's own decide no values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _QUESTIONS and not _caller(func.__name__).startswith(_TORCH):
            _operator()(args[0])
        return func(*args, **(kwargs or {}))


def _caller(name: str) -> str:
    """Return the file of the code that called torch's function of this name."""
    frame = sys._getframe(2)
    while frame.f_code.co_name in (name, *_ON_THE_WAY) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename
