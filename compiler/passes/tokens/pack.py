"""Packed text: a program for a padded batch of token rows also gets a way that computes the valid tokens
only.

A mask [batch, length] says which tokens are valid. The program becomes an `if`: where each row has its valid
tokens in front and enough of the batch is padding, its `then` computes rows, one for each valid token
(`rows`), else the program runs as it was. Both give the same bits at valid tokens, because no operator that
is rewritten mixes tokens but attention within a row, and masked keys add exact zeros there. Results are 0
at padding, unless the program says what they are.

Values that do not depend on an embedding are computed once, before the `if`.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import sympy

from ...ir.dims import equal, simplify
from ...ir.errors import UnsupportedOp
from ...ir.graph import Block, Builder, Graph, Node, Value, detach
from ...ir.promotion import is_float
from ...ir.types import TensorType
from ...ops import OPS
from ...ops import build as B
from ...ops.gather import holding
from .rows import Batch, Packer, Rows, Unpackable

log = logging.getLogger("shapevm")
#: The packed way is taken where at most this share of the batch is valid: it gathers rows, the padded way
#: does not.
SHARE = (15, 16)
#: Kinds of operators that kernels compute as they read their results.
CHEAP = ("view", "source", "pointwise")


def pack_tokens(graph: Graph) -> None:
    """Pack the tokens of a graph whose `pack` names its mask, or is "auto"; `pack` then names the mask, or
    says why tokens stay padded. Raises UnsupportedOp if the mask is named and an operator has no rule."""
    if not graph.pack:
        return
    masks = [x for x in graph.body.params if _is_mask(x) and graph.pack in ("auto", x.name)]
    if not masks and graph.pack != "auto":
        raise UnsupportedOp(
            f"pack: {graph.pack!r} is no mask; it must be an input [batch, length] of integers or bools "
            'whose sizes are free, or "auto"'
        )
    found = "tokens stay padded: no input is a mask [batch, length]"
    for mask in masks:
        try:
            _pack(graph, mask)
        except _Refused as error:
            if graph.pack != "auto":
                raise UnsupportedOp(f"pack: {error}", source=error.node.source) from None
            found = str(error)
        else:
            found = mask.name
            break
    if found not in graph.inputs:
        log.info("pack: %s", found)
    graph.pack = found


class _Refused(Exception):
    def __init__(self, mask: Value, node: Node, why: object) -> None:
        self.node = node
        where = f" ({node.source})" if node.source else ""
        super().__init__(f"tokens stay padded under {mask.name!r}, because of {node.op}{where}: {why}")


def _is_mask(x: Value) -> bool:
    if not isinstance(x.type, TensorType) or x.type.rank != 2 or is_float(x.type.dtype):
        return False
    batch, length = x.type.shape
    return isinstance(batch, sympy.Symbol) and isinstance(length, sympy.Symbol) and batch != length


def _pack(graph: Graph, mask: Value) -> None:
    """Rewrite the graph; where it cannot be, leave it as it is and raise _Refused."""
    body, given = graph.body, list(graph.body.nodes)
    moved = _dependent(graph, mask)
    chosen = set(moved)
    then = Block()
    body.nodes = [node for node in given if node not in chosen]
    shared = len(body.nodes)
    node = moved[-1] if moved else given[-1]
    try:
        if not moved or graph.state:
            raise Unpackable("nothing is embedded" if not moved else "the program has state")
        outer, b = Builder(graph), Builder(graph, then)
        lengths, offsets, is_prefix = _prefixes(outer, mask)
        valid = B.cast_to(outer, mask, "bool")
        packer = Packer(b, outer, Batch(mask, valid, holding(b, valid), offsets))
        embedded = [x for x in graph.body.params if _is_embedded(x, mask)]
        packer.rows |= {x: _valid_rows(packer, x) for x in embedded}
        for node in moved:
            b.source = node.source
            _rewrite(packer, node)
        then.results = [_result(packer, x) for x in body.results]
    except Unpackable as error:
        for made in (*then.nodes, *body.nodes[shared:]):
            detach(made)
        body.nodes = given
        raise _Refused(mask, node, error) from None
    condition = _condition(outer, [is_prefix, *packer.conditions], lengths, mask)
    otherwise = Block(nodes=moved, results=list(body.results))
    types = [x.type for x in body.results]
    branch = Node("if", [condition], regions=[then, otherwise])
    body.results = outer.insert(branch, types)
    _sink(graph, branch)


def _sink(graph: Graph, branch: Node) -> None:
    """Move nodes before the `if` that only its ways need into these; what both need and no kernel computes
    alone is in both. A value outside is in memory, and kernels do not compute what they read."""
    body, home = graph.body, {node: region for region in branch.regions for node in region.nodes}
    kept = {x for block in (body, *branch.regions) for x in block.results}
    for node in reversed(body.nodes[: body.nodes.index(branch)]):
        users = {home.get(user) for result in node.results for user in result.users}
        if not users or None in users or not _is_cheap(node) or not kept.isdisjoint(node.results):
            continue
        body.nodes.remove(node)
        for region in branch.regions:
            if region not in users:
                continue
            if len(users) > 1 and region is branch.regions[0]:
                _copy(graph, node, region, home)
            else:
                region.nodes.insert(0, node)
                home[node] = region


def _is_cheap(node: Node) -> bool:
    """Whether kernels compute a node as they read it; tensors of fixed sizes are folded to constants."""
    if node.op not in OPS or OPS[node.op].kind not in CHEAP or node.op == "constant":
        return False
    return node.op == "full" or any(not isinstance(size, int) for size in node.result.tensor.shape)


def _copy(graph: Graph, node: Node, region: Block, home: dict[Node, Block]) -> None:
    """Put a copy of a node in front of a region, whose nodes then use it."""
    made = Builder(graph, region, 0)
    made.source = node.source
    (old,) = node.results
    (new,) = made.apply(node.op, *node.args, **node.attrs)
    home[new.definition] = region
    for user in dict.fromkeys(user for user in old.users if home.get(user) is region):
        user.set_args([new if arg is old else arg for arg in user.args])


# What is packed -----------------------------------------------------------------------------------------


def _axes(x: Value, mask: Value) -> tuple[int, int] | None:
    """Return a value's axes of rows and tokens, if it has one of each."""
    found = []
    for size in mask.tensor.shape:
        axes = [axis for axis, each in enumerate(x.tensor.shape) if equal(each, size)]
        if len(axes) != 1:
            return None
        found += axes
    return found[0], found[1]


def _is_embedding(node: Node, mask: Value) -> bool:
    """Whether a node reads a table of floats by tokens."""
    if node.op != "gather" or node.attrs["axis"] != 0 or not is_float(node.result.tensor.dtype):
        return False
    return _axes(node.arg(1), mask) is not None


def _dependent(graph: Graph, mask: Value) -> list[Node]:
    """Return the nodes that embed tokens or depend on embedded ones, in order."""
    known = {x for x in graph.body.params if _is_embedded(x, mask)}
    found = []
    for node in graph.body.nodes:
        if _is_embedding(node, mask) or any(arg in known for arg in _read(node)):
            known.update(node.results)
            found.append(node)
    return found


def _is_embedded(x: Value, mask: Value) -> bool:
    """Whether an input is embedded tokens."""
    return isinstance(x.type, TensorType) and is_float(x.type.dtype) and _axes(x, mask) is not None


def _read(node: Node) -> list[Value]:
    """Return the values that a node and its regions read."""
    inner = [arg for region in node.regions for each in region.nodes for arg in _read(each)]
    return [*node.present, *inner, *(x for region in node.regions for x in region.results)]


def _valid_rows(packer: Packer, x: Value) -> Rows:
    """Return the valid rows of a value that has axes of rows and tokens."""
    axes = _axes(x, packer.batch.mask)
    assert axes is not None
    return Rows(packer.packed(x, *axes), *axes)


def _rewrite(packer: Packer, node: Node) -> None:
    if node.regions or any(not isinstance(result.type, TensorType) for result in node.results):
        raise Unpackable("it is control flow, or finds a size in tokens")
    is_made = any(arg in packer.rows or arg in packer.whole for arg in node.present)
    if is_made or not _is_embedding(node, packer.batch.mask):
        packer.node(node)
        return
    table, index = node.present
    rows = _valid_rows(packer, index)
    packer.rows[node.result] = replace(rows, value=packer.b.one("gather", table, rows.value, axis=0))


def _result(packer: Packer, x: Value) -> Value:
    if x not in packer.rows:
        return packer.whole.get(x, x)
    return packer.padded(packer.rows[x], x.tensor.rank)


# When -----------------------------------------------------------------------------------------------------


def _prefixes(b: Builder, mask: Value) -> tuple[Value, Value, Value]:
    """Return the rows' lengths i64[batch], their offsets i64[batch + 1], and whether each row is ones, then
    zeros (bool[])."""
    n_rows, length = mask.tensor.shape
    lengths = B.reduce(b, "reduce_sum", B.cast_to(b, mask, "i64"), [1], False)
    ends = B.reshape(b, b.one("scan", B.reshape(b, lengths, (1, n_rows, 1)), function="sum"), (n_rows,))
    offsets = B.concat(b, [B.full(b, 0, "i64", (1,)), ends], 0)
    shape = (n_rows, length)
    column = B.expand(b, B.add_axis(b, lengths, 1), shape)
    wanted = B.pointwise(b, "lt", B.expand(b, B.iota(b, length), shape), column)
    same = B.pointwise(b, "eq", B.cast_to(b, wanted, mask.tensor.dtype), mask)
    return lengths, offsets, B.reduce(b, "reduce_all", same, [0, 1], False)


def _condition(b: Builder, required: list[Value], lengths: Value, mask: Value) -> Value:
    """Return whether the packed way is taken: `required` holds, no row is empty, and it pays."""
    n_rows, length = mask.tensor.shape
    least = B.pointwise(b, "gt", lengths, 0)
    total = B.reduce(b, "reduce_sum", lengths, [0], False)
    share = B.pointwise(b, "mul", total, SHARE[1])
    pays = B.pointwise(b, "le", share, B.full(b, simplify(n_rows * length * SHARE[0]), "i64"))
    found = B.reduce(b, "reduce_all", least, [0], False)
    for condition in (*required, pays):
        found = B.pointwise(b, "and", found, condition)
    return b.one("item", found)
