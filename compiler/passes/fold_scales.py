"""Factors of channels after convolutions and products are folded into their constant weights.

A batch norm in evaluation is a factor and a term for each channel. Multiplied into the weight's columns, the
factors cost nothing at run time, and one addition of the bias and the terms remains. Each weight is rounded
once more and each sum once less, so errors stay the same; `Graph.accurate` keeps the factors. They are also
kept if the weight has another use, if it is held in a narrow dtype, and if a weight would leave the range in
which sums are as exact as before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..ir.graph import Builder, Graph, Node, Value, replace_uses
from ..lower.access import Shape, is_unit_reshape, shape_of
from ..lower.weights import held
from ..ops import OPS
from ..ops import build as B
from .fold_constants import n_elements

LEAST, MOST = 2.0**-100, 2.0**100  # of a column's greatest weight: products of parts of it are normal numbers
MAX_DEPTH = 16  # of the computation of a factor
VIEWS = ("reshape", "permute", "expand")
STEPS = ("mul", "div", "add", "sub")


@dataclass(frozen=True)
class Chain:
    """A product, and the operations after it that multiply its columns by factors and add terms.

    `views`: the nodes in between that only move numbers. `last`: the final value. `axis`: that of its
    channels. `factor`, `term`: by channel, in f64, None if there is none. `name`: of the term.
    """

    product: Node
    last: Value
    axis: int
    views: tuple[Node, ...] = ()
    factor: np.ndarray | None = None
    term: np.ndarray | None = None
    name: str = ""

    @property
    def numbers(self) -> np.ndarray:
        """The factor, which must be present."""
        assert self.factor is not None
        return self.factor


@dataclass(frozen=True)
class Weight:
    """The source constant of a product's weight, and how the product reads it, except for a reshape that
    keeps the last axis, its channels."""

    root: Value
    moved: np.ndarray


Use = tuple[Chain, np.ndarray]  # a product's chain, and its weight


def fold_scales(graph: Graph) -> None:
    """Fold such factors. Nodes that thereby lose their users are left for `dce`."""
    if graph.accurate:
        return
    chosen = dict(_chosen(graph))
    replaced: dict[Value, Value] = {}
    for block in graph.blocks() if chosen else ():
        for position, node in reversed(list(enumerate(block.nodes))):
            if node in chosen:
                chain, weight = chosen[node]
                new = _folded(Builder(graph, block, position + 1), chain, weight)
                replace_uses(chain.last, new)
                replaced[chain.last] = new
    graph.replace_results(replaced)


# Which ----------------------------------------------------------------------------------------------------


def _chosen(graph: Graph) -> Iterator[tuple[Node, Use]]:
    """Yield the products that are folded, with their chains and new weights. All users of a constant must be
    such products with the same factors, because otherwise it would be stored twice."""
    results = {value for block in graph.blocks() for value in block.results}
    groups: dict[Value, list[Use]] = defaultdict(list)
    for node in graph.nodes():
        weight = _weight_of(node) if node.op in ("conv", "matmul") else None
        chain = None if weight is None else _chain_of(node, results)
        if weight is not None and chain is not None:
            groups[weight.root].append((chain, weight.moved))
    for root, group in groups.items():
        is_theirs = len(root.users) == len(group) and root not in results
        if is_theirs and held(root.definition.attrs["array"], "f32")[1] == "f32":
            yield from _scaled(group)


def _scaled(group: list[Use]) -> Iterator[tuple[Node, Use]]:
    """Yield the products of one constant with their new weight, if they can share it."""
    (chain, moved), *others = group
    new = _times(moved, chain.numbers) if all(_is_alike(group[0], other) for other in others) else None
    if new is not None:
        yield from ((each.product, (each, new)) for each, _ in group)


def _is_alike(one: Use, other: Use) -> bool:
    """Whether two products read a constant in the same way, with the same factors."""
    (first, x), (second, y) = one, other
    return (x.shape, x.strides) == (y.shape, y.strides) and np.array_equal(first.numbers, second.numbers)


def _times(weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Return a weight times the factors of its columns, as a matrix; None if it is not safe in f32."""
    axes = tuple(range(weight.ndim - 1))
    with np.errstate(all="ignore"):
        greatest = np.maximum(weight.max(axes), -weight.min(axes)).astype(np.float64)
        scaled = greatest * np.abs(factor)
        is_safe = (scaled == 0) | ((scaled >= LEAST) & (scaled <= MOST))
        result: np.ndarray = weight * factor.astype(np.float32)  # in the order of the weight, hence quickly
    return result.reshape(-1, len(factor)) if is_safe.all() else None


def _weight_of(product: Node) -> Weight | None:
    """Return the weight of a product, None unless it is a constant in f32 that it alone moves."""
    value = product.arg(1)
    if len(product.present) != 2 or value.tensor.dtype != "f32" or len(shape_of(value)) != 2:
        return None
    channels, moves = shape_of(value)[-1], []
    while value.node is not None and value.node.op in ("reshape", "permute") and len(value.users) == 1:
        moves.append(value.node)
        value = value.node.arg(0)
    if value.node is None or value.node.op != "constant" or not value.node.attrs["array"].size:
        return None
    while moves and moves[0].op == "reshape" and shape_of(moves[0].arg(0))[-1] == channels:
        moves.pop(0)
    array = value.node.attrs["array"]
    for move in reversed(moves):
        array = OPS[move.op].reference([array], move.attrs)
    return Weight(value, array)


def _chain_of(product: Node, results: set[Value]) -> Chain | None:
    """Return the longest chain after a product that ends with arithmetic and has a factor."""
    chain = Chain(product, product.result, len(shape_of(product.result)) - 1)
    found = None
    while chain.last not in results and len(users := list(dict.fromkeys(chain.last.users))) == 1:
        (user,) = users
        following = _moved(chain, user) if user.op in VIEWS else _computed(chain, user)
        if following is None:
            break
        chain = following
        if user.op in STEPS and chain.factor is not None:
            found = chain
    is_safe = found is not None and (found.term is None or (np.abs(found.term) <= MOST).all())
    return found if is_safe else None


def _moved(chain: Chain, view: Node) -> Chain | None:
    """Return the chain extended by a view that keeps the axis of channels."""
    old, axis = shape_of(chain.last), chain.axis
    if view.op == "permute":
        axis = list(view.attrs["axes"]).index(axis)
    elif view.op == "reshape":
        new = shape_of(view.result)
        places = (i for i, size in enumerate(new) if size == old[axis])
        found = next((i for i in places if _is_kept(old, axis, new, i)), None)
        if found is None:
            return None
        axis = found
    else:
        return None
    return replace(chain, last=view.result, axis=axis, views=(*chain.views, view))


def _is_kept(old: Shape, axis: int, new: Shape, place: int) -> bool:
    """Whether a reshape keeps an axis, perhaps at another position."""
    is_last = axis == len(old) - 1 and place == len(new) - 1
    return is_last or (
        is_unit_reshape(old[:axis], new[:place]) and is_unit_reshape(old[axis + 1 :], new[place + 1 :])
    )


def _computed(chain: Chain, node: Node) -> Chain | None:
    """Return the chain extended by arithmetic of its last value and constants of channels. A single number
    for all channels ends it, because programs round by adding and subtracting a large number."""
    if node.op not in STEPS or len(node.present) != 2:
        return None
    first, second = node.present
    other = first if second is chain.last else second
    if first is second or (first is not chain.last and node.op in ("sub", "div")):
        return None
    numbers = None if B.uniform(other) is not None else _of_channels(other, chain)
    if numbers is None:
        return None
    with np.errstate(all="ignore"):
        if node.op in ("mul", "div"):
            by = numbers if node.op == "mul" else 1 / numbers
            factor = by if chain.factor is None else chain.factor * by
            term = None if chain.term is None else chain.term * by
            return replace(chain, last=node.result, factor=factor, term=term)
        by = numbers if node.op == "add" else -numbers
    term, name = by if chain.term is None else chain.term + by, B.name_of_constant(other)
    return replace(chain, last=node.result, term=term, name=name)


def _of_channels(value: Value, chain: Chain) -> np.ndarray | None:
    """Return a constant's numbers for the channels of a chain, if it does not vary along other axes."""
    while value.node is not None and value.node.op == "expand":
        value = value.node.arg(0)
    shape, full = shape_of(value), shape_of(chain.last)
    shape = (*(1,) * (len(full) - len(shape)), *shape)
    if any(size != 1 for axis, size in enumerate(shape) if axis != chain.axis):
        return None
    channels = int(full[chain.axis])
    array = _numbers(value, channels)
    return None if array is None else np.broadcast_to(array.reshape(-1), (channels,))


def _numbers(value: Value, limit: int, depth: int = 0) -> np.ndarray | None:
    """Return the constant f32 array of a value, computed in f64; None if it has more than `limit` elements or
    is not known."""
    node = value.node
    if node is None or depth > MAX_DEPTH or value.tensor.dtype != "f32" or n_elements(value.tensor) > limit:
        return None
    if node.op == "constant":
        return np.asarray(node.attrs["array"], np.float64)
    if node.op == "full":
        return np.full(node.attrs["shape"], np.float32(node.attrs["value"]), np.float64)
    if node.op not in VIEWS and OPS[node.op].kind != "pointwise":
        return None
    arrays = [_numbers(arg, limit, depth + 1) for arg in node.present]
    if len(arrays) < len(node.args) or any(array is None for array in arrays):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(OPS[node.op].reference(arrays, node.attrs), np.float64)


# What takes their place -----------------------------------------------------------------------------------


def _folded(b: Builder, chain: Chain, weight: np.ndarray) -> Value:
    """Return the product by the new weight plus the term, with the same views."""
    product = chain.product
    b.source = product.source
    name = B.name_of_constant(product.arg(1))
    value = b.one(product.op, product.arg(0), b.constant(weight, "f32", name), **product.attrs)
    if chain.term is not None:
        value = B.pointwise(b, "add", value, b.constant(chain.term.astype(np.float32), "f32", chain.name))
    for view in chain.views:
        value = b.one(view.op, value, **view.attrs)
    return value
