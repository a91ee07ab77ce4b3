"""Products of `x[i]` by a constant, in each iteration of a loop, become one product of `x` before the loop,
of which each iteration takes its part: the weights are read once rather than in every iteration. A row's bits
do not depend on other rows, so results stay the same. A constant row that is added to the product moves too.

This applies to loops over all of `x`, `for i in range(x.size(0))` without `break`; otherwise unneeded rows
would be multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from ..ir.dims import DimExpr
from ..ir.graph import Block, Builder, Graph, Node, Value, is_named
from .rewrite import while_loops


def hoist_products(graph: Graph) -> None:
    """Move such products before their loops."""
    for block, loop in while_loops(graph.body):
        _hoist(graph, block, loop)


def _hoist(graph: Graph, block: Block, loop: Node) -> None:
    counts = _counts(loop)
    body = loop.regions[1]
    for node in list(body.nodes):
        part = _part(node, body) if node.op == "matmul" and counts else None
        if part is None or counts.get(part.index) != part.whole.tensor.shape[0]:
            continue
        before = Builder(graph, block, block.nodes.index(loop))
        before.source = node.source
        weight = node.arg(1).definition
        product = before.one("matmul", part.whole, before.one("constant", **weight.attrs))
        end, bias = _biased(graph, body, node)
        if bias is not None:
            row = before.one("constant", **bias.attrs)
            product = before.one("add", product, before.one("expand", row, shape=product.tensor.shape))
        inside = Builder(graph, body, body.nodes.index(end))
        inside.source = node.source
        own = inside.one("slice", product, axis=0, start=part.index, length=1, step=1)
        graph.replace(end.result, inside.one("reshape", own, shape=end.result.tensor.shape))
        for gone in dict.fromkeys((end, node)):  # users first
            gone.set_args([])
            body.nodes.remove(gone)


def _biased(graph: Graph, body: Block, product: Node) -> tuple[Node, Node | None]:
    """Return the node that adds a constant row to a product as its only user, and that constant; else the
    product itself and None."""
    users = product.result.users
    is_alone = len(users) == 1 and all(product.result not in block.results for block in graph.blocks())
    is_added = is_alone and users[0].op == "add" and users[0] in body.nodes
    if not is_added or users[0].arg(0) is not product.result:
        return product, None
    row = users[0].arg(1).node
    constant = row.arg(0).node if row is not None and row.op == "expand" else None
    if constant is None or constant.op != "constant":
        return product, None
    is_row = constant.result.tensor.shape == product.result.tensor.shape[-1:]
    return (users[0], constant) if is_row else (product, None)


def _counts(loop: Node) -> dict[DimExpr, DimExpr]:
    """Return the symbols that count through all of 0 .. n - 1 in a loop, each with its n."""
    condition, body = loop.regions
    found = {}
    for i, (start, param) in enumerate(zip(loop.present, body.params, strict=True)):
        index = _int(param) if is_named(param) else None
        if index is not None and _int(start) == 0:
            end = _end(loop, condition.params[i])
            if end is not None and _int(body.results[i]) == index + 1:
                found[index] = end
    return found


def _end(loop: Node, counter: Value) -> DimExpr | None:
    """Return n if the loop continues exactly while `counter` < n."""
    condition, body = loop.regions
    (value,) = condition.results
    if value.node is not None and value.node.op == "bool_and":
        first, value = value.node.present
        if first not in condition.params:
            return None
        place = condition.params.index(first)
        if not (_is_true(loop.arg(place)) and _is_true(body.results[place])):
            return None
    is_less = value.node is not None and value.node.op == "int_lt" and value.node.arg(0) is counter
    return _int(value.definition.arg(1)) if is_less else None


def _is_true(value: Value) -> bool:
    return value.node is not None and value.node.op == "literal" and value.node.attrs["value"] is True


def _int(value: Value) -> DimExpr | None:
    """Return the int that a value has by its type."""
    found = getattr(value.type, "expr", None)
    return None if found is None else sympy.sympify(found)


@dataclass(frozen=True)
class _Part:
    """`whole[index]`, with `whole` [n, .., k] from outside of the loop."""

    whole: Value
    index: DimExpr


def _part(product: Node, body: Block) -> _Part | None:
    """Return the part that a product multiplies by a constant."""
    value, weight = product.arg(0), product.arg(1)
    is_plain = weight.node is not None and weight.node.op == "constant" and weight.tensor.rank == 2
    if not is_plain or len(product.present) != 2:
        return None
    k = value.tensor.shape[-1]
    while value.node is not None and value.node.op == "reshape" and value.node in body.nodes:
        value = value.node.arg(0)
    node = value.node
    if node is None or node.op != "slice" or node not in body.nodes:
        return None
    whole, attrs = node.arg(0), node.attrs
    is_outside = whole.node not in body.nodes if whole.node is not None else whole not in body.params
    is_one = attrs["axis"] == 0 and attrs["length"] == 1 and whole.tensor.rank > 1
    fits = is_outside and is_one and whole.tensor.shape[-1] == k
    return _Part(whole, sympy.sympify(attrs["start"])) if fits else None
