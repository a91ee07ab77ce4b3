"""Control flow: torch's operators that take functions become `if` and `while` nodes.

`cond` and `while_loop` are these nodes; `map` and `scan` are loops over the rows of their inputs, whose
results are put into place row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch

from ..ir.errors import UnsupportedOp
from ..ir.graph import Block, Node, Value
from ..ir.types import ScalarType, TensorType, Type
from ..ops import build as B
from ..ops.loops import Step, block, for_each, require_types, row_of, with_row
from .flex import flex_attention
from .fx_nodes import ControlRule, FxImporter
from .nodes import node_argument


def _cond(importer: FxImporter, node: torch.fx.Node) -> list[Any]:
    b = importer.builder
    condition = _truth(importer, node.args[0])
    operands = _operands(importer, node, 3)
    graphs = [importer.values[node_argument(node, i)] for i in (1, 2)]
    blocks = [_block(importer, [], partial(importer.import_region, graph, operands)) for graph in graphs]
    wanted = _result_types(importer, node)
    require_types(str(node.target), "a branch returns", wanted, *blocks)
    return list(b.insert(Node("if", [condition], regions=blocks), wanted))


def _while_loop(importer: FxImporter, node: torch.fx.Node) -> list[Any]:
    b = importer.builder
    graphs = [importer.values[node_argument(node, i)] for i in (0, 1)]
    carried = [importer.output_value(operand) for operand in _operands(importer, node, 2)]
    rest = _operands(importer, node, 3)
    wanted = _result_types(importer, node)

    def block(graph: torch.fx.GraphModule, is_condition: bool) -> Block:
        holes = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
        params = [Value(b.graph.new_name("p"), _type(importer, hole)) for hole in holes[: len(carried)]]

        def results() -> list[Any]:
            made = importer.import_region(graph, [*map(_operand, params), *rest])
            return [_truth(importer, made[0])] if is_condition else made

        return _block(importer, params, results)

    blocks = [block(graph, i == 0) for i, graph in enumerate(graphs)]
    require_types(str(node.target), "its body returns", wanted, blocks[1])
    require_types(str(node.target), "it starts with", wanted, Block(results=carried))
    return [_operand(result) for result in b.insert(Node("while", carried, regions=blocks), wanted)]


def _map(importer: FxImporter, node: torch.fx.Node) -> list[Any]:
    xs, rest = _operands(importer, node, 1), _operands(importer, node, 2)
    graph = importer.values[node_argument(node)]
    wanted = [cast(TensorType, type) for type in _result_types(importer, node)]

    def step(row: Value, made: list[Value]) -> list[Value]:
        rows = importer.import_region(graph, [*(row_of(importer.builder, x, row) for x in xs), *rest])
        return [with_row(importer.builder, whole, part, row) for whole, part in zip(made, rows, strict=True)]

    return _for_each(importer, node, B.shape_of(xs[0])[0], _empty(importer, wanted), step)


def _scan(importer: FxImporter, node: torch.fx.Node) -> list[Any]:
    init, xs = _operands(importer, node, 1), _operands(importer, node, 2)
    rest = _operands(importer, node, 3)
    graph = importer.values[node_argument(node)]
    wanted = [cast(TensorType, type) for type in _result_types(importer, node)][len(init) :]

    def step(row: Value, made: list[Value]) -> list[Value]:
        state, wholes = made[: len(init)], made[len(init) :]
        rows = [row_of(importer.builder, x, row) for x in xs]
        found = importer.import_region(graph, [*state, *rows, *rest])
        parts = zip(wholes, found[len(init) :], strict=True)
        return [*found[: len(init)], *(with_row(importer.builder, whole, part, row) for whole, part in parts)]

    return _for_each(importer, node, B.shape_of(xs[0])[0], [*init, *_empty(importer, wanted)], step)


#: Operators that take functions, by name.
RULES: dict[str, ControlRule] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "map_impl": _map,
    "scan": _scan,
    "flex_attention": flex_attention,
}


# Loops over rows ------------------------------------------------------------------------------------


def _for_each(
    importer: FxImporter, node: torch.fx.Node, length: Any, carried: Sequence[Value], step: Step
) -> list[Any]:
    def values(row: Value, made: list[Value]) -> list[Value]:
        return [importer.output_value(leaf) for leaf in step(row, made)]

    return for_each(importer.builder, length, carried, values, str(node.target))


def _empty(importer: FxImporter, types: Sequence[TensorType]) -> list[Value]:
    return [B.full(importer.builder, 0, type.dtype, type.shape) for type in types]


# Blocks ---------------------------------------------------------------------------------------------


def _block(importer: FxImporter, params: list[Value], results: Callable[[], list[Any]]) -> Block:
    """Return the block that `results` fills."""
    return block(importer.builder, params, lambda: [importer.output_value(leaf) for leaf in results()])


def _operands(importer: FxImporter, node: torch.fx.Node, position: int) -> list[Any]:
    """Return the items of a call's argument that is a list; it may be left out."""
    args = node.args[position] if position < len(node.args) else ()
    assert isinstance(args, Sequence)
    return [importer.values_of(arg) for arg in args]


def _truth(importer: FxImporter, condition: Any) -> Value:
    """Return a predicate as a bool value."""
    b, found = importer.builder, condition
    if isinstance(condition, torch.fx.Node):
        found = importer.values[condition]
    if isinstance(found, torch.SymBool):
        return importer.truth_of(found)
    if isinstance(found, bool):
        return b.one("literal", value=found)
    return b.one("item", B.cast_to(b, found, "bool")) if _is_tensor(found) else found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Value) and isinstance(value.type, TensorType)


def _operand(value: Value) -> Any:
    """Return a value in the importer's form: an int with a name is its symbol."""
    known = isinstance(value.type, ScalarType) and value.type.expr is not None
    return value.type.expr if known else value  # type: ignore[union-attr]


def _type(importer: FxImporter, found: Any) -> Type:
    if isinstance(found, torch.Tensor):
        return importer.type_of(found)
    if isinstance(found, torch.SymInt) and found.node.expr.is_Symbol:
        return ScalarType("int", importer.symbols.dim(found))
    raise UnsupportedOp(
        f"control flow hands on {found!r}; only tensors, and ints that change, can be compiled"
    )


def _result_types(importer: FxImporter, node: torch.fx.Node) -> list[Type]:
    return [_type(importer, found) for found in node.meta["val"]]
