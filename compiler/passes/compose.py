"""Composition: chains that an exporter or a program writes in place of a composite operator become it.

Attention has a kernel of its own; a GELU is one function instead of an erf or tanh with arithmetic around it;
a layer norm has one root and one reciprocal for each row. A chain is found from one of its nodes (`ANCHORS`).
It is replaced if nothing else uses the numbers on the way; dead nodes are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite, nan, pi, sqrt

from ..ir.dims import equal
from ..ir.graph import Block, Builder, Graph, Node, Value, replace_uses
from ..ops import build as B
from ..ops.rules import equal_shapes
from .dce import dce

LONGEST = 6  # steps from a chain's erf or tanh to its last node, and of a polynomial
DEEPEST = 3  # steps from a polynomial to its x
EXACTNESS = 1e-5  # relative, of constants, which some programs round to five digits
#: Coefficients of a polynomial in x and a function's value z, by the exponents of both.
Polynomial = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Chain:
    """The last value of a chain, and what builds the operator that replaces it."""

    last: Value
    build: Callable[[Builder], Value]


def compose(graph: Graph) -> None:
    """Replace such chains."""
    results = {value for block in graph.blocks() for value in block.results}
    replaced: dict[Value, Value] = {}
    for block in graph.blocks():
        for node in list(block.nodes):
            find = ANCHORS.get(node.op)
            chain = find(node, results) if find is not None and node.result.tensor.dtype == "f32" else None
            if chain is not None and chain.last.definition in block.nodes:
                replaced[chain.last] = _replaced(graph, block, chain)
    if replaced:
        graph.replace_results(replaced)
        dce(graph)


def _replaced(graph: Graph, block: Block, chain: Chain) -> Value:
    last = chain.last.definition
    builder = Builder(graph, block, block.nodes.index(last) + 1)
    builder.source = last.source
    new = chain.build(builder)
    replace_uses(chain.last, new)
    return new


# Values -----------------------------------------------------------------------------------------------------


def _number(value: Value) -> float | None:
    """Return the only number of a tensor, known at compile time, else None."""
    node = value.node
    while node is not None and node.op in ("expand", "reshape", "permute"):
        value = node.arg(0)
        node = value.node
    if node is not None and node.op == "constant" and node.attrs["array"].size == 1:
        return float(node.attrs["array"].reshape(-1)[0])
    found = B.uniform(value)
    return float(found) if isinstance(found, int | float) else None


def _args(value: Value, op: str) -> list[Value]:
    """Return the arguments of the operator `op` that makes a value, else nothing."""
    node = value.node
    return node.present if node is not None and node.op == op else []


def _narrow(value: Value) -> Value:
    """Return a value before its expansion along existing axes."""
    args = _args(value, "expand")
    return args[0] if args and args[0].tensor.rank == value.tensor.rank else value


def _only_user(value: Value, results: set[Value]) -> Node | None:
    """Return the only node that uses a value."""
    users = set(value.users)
    return next(iter(users)) if len(users) == 1 and value not in results else None


def _scaled(value: Value) -> tuple[Value, float]:
    """Return a tensor without the numbers by which it is multiplied, and their product."""
    for op in ("mul", "div"):
        for x, other in _pairs(value, op):
            number = _number(other)
            if number is not None and (op == "mul" or number != 0):
                inner, factor = _scaled(x)
                return inner, factor * (number if op == "mul" else 1 / number)
    return value, 1.0


def _pairs(value: Value, op: str) -> list[tuple[Value, Value]]:
    """Return the operands of a binary operator in its order, and exchanged if they may be."""
    args = _args(value, op)
    if len(args) != 2:
        return []
    return [(args[0], args[1]), (args[1], args[0])] if op in ("add", "mul") else [(args[0], args[1])]


# Attention --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """scale * q k^T with a mask, bool or added, and whether it is inverted; `more` is added to it."""

    q: Value
    keys: Value
    scale: float
    mask: Value | None = None
    is_inverted: bool = False
    more: Value | None = None


def _attention(softmax: Node, results: set[Value]) -> Chain | None:
    """softmax(scale * q k^T + mask) v. The weights of rows that are masked whole are NaN, or 0 where the
    program replaces NaN: then scores that are NaN themselves stay so, as in PyTorch's attention."""
    rank = softmax.result.tensor.rank
    weights, is_safe = _safe(softmax.result, results)
    user = _only_user(weights, results)
    if user is None or user.op != "matmul" or user.arg(0) is not weights or softmax.attrs["axis"] != rank - 1:
        return None
    values, scores = user.arg(1), _scores(softmax.arg(0), results)
    if scores is None or rank < 3 or not isfinite(scores.scale):
        return None
    batches = [B.shape_of(x)[:-2] for x in (scores.q, scores.keys, values)]
    is_alike = all(equal_shapes(batches[0], each) for each in batches)
    if not is_alike or any(x.definition.op == "constant" for x in (scores.keys, values) if x.node):
        return None

    def build(b: Builder) -> Value:
        keys = B.permute(b, scores.keys, [*range(rank - 2), rank - 1, rank - 2])
        mask = scores.mask
        if mask is not None:
            mask = b.one("not", mask) if scores.is_inverted else mask
            mask = mask if scores.more is None else b.one("add", mask, scores.more)
            mask = B.expand(b, mask, B.shape_of(softmax.result))
        return b.one("attention", scores.q, keys, values, mask, scale=scores.scale, safe=is_safe)

    return Chain(user.result, build)


def _safe(weights: Value, results: set[Value]) -> tuple[Value, bool]:
    """Return where(isnan(weights), 0, weights) and True if that is how weights are used, else these."""
    choices = [user for user in weights.users if user.op == "where"]
    if len(choices) != 1 or len(set(weights.users)) != 2 or weights in results:
        return weights, False
    condition, other, kept = choices[0].present
    is_safe = _args(condition, "isnan") == [weights] and _number(other) == 0 and kept is weights
    return (choices[0].result, True) if is_safe else (weights, False)


def _scores(value: Value, results: set[Value]) -> Scores | None:
    """Return the parts of masked scores."""
    if _only_user(value, results) is None:
        return None
    for x, other in _pairs(value, "add"):
        found = _products(x, results)
        if found is not None:
            return _masked(found, other)
        for inner, first in _pairs(x, "add") if _only_user(x, results) is not None else []:
            found = _products(inner, results)
            if found is not None:  # a bias by distance, and a mask
                return replace(found, mask=first, more=other)
    for condition, x, other in [tuple(_args(value, "where"))] if _args(value, "where") else []:
        for scores, number, is_inverted in ((x, other, False), (other, x, True)):
            found = _products(scores, results) if _number(number) == -inf else None
            if found is not None:
                return replace(found, mask=_narrow(condition), is_inverted=is_inverted)
    return _products(value, results)


def _masked(scores: Scores, mask: Value) -> Scores:
    """Return scores with a mask that is added: one that only chooses between 0 and -inf is bool."""
    choice = _args(_narrow(mask), "where")
    numbers = [_number(x) for x in choice[1:]]
    if numbers in ([0.0, -inf], [-inf, 0.0]):
        return replace(scores, mask=_narrow(choice[0]), is_inverted=numbers[0] != 0)
    return replace(scores, mask=_narrow(mask))


def _products(value: Value, results: set[Value]) -> Scores | None:
    """Return unmasked scores: a product of matrices, with numbers that scale it or its operands."""
    product, outer = _scaled(value)
    args = _args(product, "matmul")
    if not args or _only_user(product, results) is None or _only_user(value, results) is None:
        return None
    (q, left), (keys, right) = map(_scaled, args)
    return Scores(q, keys, outer * left * right)


# GELU -------------------------------------------------------------------------------------------------------

#: By the function: the form's name in PyTorch, and the polynomial in x that the function is applied to.
_GELUS: Mapping[str, tuple[str, Polynomial]] = {
    "erf": ("none", {(1, 0): sqrt(0.5)}),
    "tanh": ("tanh", {(1, 0): sqrt(2 / pi), (3, 0): 0.044715 * sqrt(2 / pi)}),
}
_WHOLE: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}  # 0.5 x + 0.5 x z


def _gelu(function: Node, results: set[Value]) -> Chain | None:
    """0.5 x (1 + z) in any order, z a function of a polynomial in x."""
    approximate, wanted = _GELUS[function.op]
    inner = function.arg(0)
    x = next((each for each in _within(inner) if _is_alike(_polynomial(inner, each, None), wanted)), None)
    if x is None:
        return None
    last = function.result
    for _ in range(LONGEST):
        user = _only_user(last, results)
        if user is None or user.op not in _STEPS:
            return None
        last = user.result
        if _is_alike(_polynomial(last, x, function.result), _WHOLE):
            return Chain(last, lambda b: b.one("gelu", x, approximate=approximate))
    return None


def _within(value: Value) -> list[Value]:
    """Return the tensors of which a value may be a polynomial."""
    found = last = [value]
    for _ in range(DEEPEST):
        last = [arg for each in last if each.node and each.node.op in _STEPS for arg in each.node.present]
        found = [*found, *last]
    return list(dict.fromkeys(each for each in found if _number(each) is None))


def _polynomial(value: Value, x: Value, z: Value | None, depth: int = LONGEST) -> Polynomial:
    """Return the coefficients of a value in x and z; {(0, 0): NaN} if it is no polynomial of these."""
    number = None if value in (x, z) else _number(value)
    if value is x or value is z:
        return {(1, 0) if value is x else (0, 1): 1.0}
    if number is not None:
        return {(0, 0): number}
    node = value.node
    if node is None or node.op not in _STEPS or not depth or len(node.present) != 2:
        return {(0, 0): nan}
    left, right = (_polynomial(arg, x, z, depth - 1) for arg in node.present)
    return _STEPS[node.op](left, right)


def _sum(left: Polynomial, right: Polynomial) -> Polynomial:
    return {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {**left, **right}}


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    made: Polynomial = {}
    for (i, j), a in left.items():
        for (k, m), c in right.items():
            made[i + k, j + m] = made.get((i + k, j + m), 0.0) + a * c
    return made


def _quotient(left: Polynomial, right: Polynomial) -> Polynomial:
    number = right.get((0, 0), 0.0) if len(right) == 1 else 0.0
    return _product(left, {(0, 0): 1 / number if number else nan})


_STEPS: Mapping[str, Callable[[Polynomial, Polynomial], Polynomial]] = {
    "add": _sum, "mul": _product, "div": _quotient,
}  # fmt: skip


def _is_alike(found: Polynomial, wanted: Polynomial) -> bool:
    return found.keys() == wanted.keys() and all(
        isclose(found[key], number, rel_tol=EXACTNESS) for key, number in wanted.items()
    )


# Layer norm -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """What a layer norm normalises: the last `n` axes of x, and with which epsilon."""

    x: Value
    n: int
    eps: float


def _layer_norm(root: Node, results: set[Value]) -> Chain | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps), times a weight and plus a bias where they follow."""
    found = _variance(root.arg(0))
    if found is None:
        return None
    rows, centred = found
    last = _normalised(root, centred, results)
    if last is None:
        return None
    shape = B.shape_of(rows.x)[-rows.n :]
    parts: dict[str, Value | None] = {"mul": None, "add": None}
    for op in parts:
        user = _only_user(last, results)
        pairs = [] if user is None or user.op != op else _pairs(user.result, op)
        part = next((_of_rows(other, shape) for value, other in pairs if value is last), None)
        if part is not None and user is not None:
            last, parts[op] = user.result, part

    def build(b: Builder) -> Value:
        weight, bias = (part if part is None else B.reshape(b, part, shape) for part in parts.values())
        return b.one("layer_norm", rows.x, weight, bias, n_axes=rows.n, eps=rows.eps)

    return Chain(last, build)


def _variance(value: Value) -> tuple[_Rows, Value] | None:
    """Return what a variance plus epsilon is of, and the centred rows."""
    for variance, other in _pairs(value, "add"):
        eps, squares = _number(other), _mean(variance)
        args = [] if squares is None else _args(squares[0], "mul")
        if eps is None or squares is None or len(set(args)) != 1:
            continue
        difference = _args(args[0], "sub")
        mean = _mean(_narrow(difference[1])) if difference else None
        if mean is not None and mean[0] is difference[0] and mean[1] == squares[1]:
            return _Rows(mean[0], mean[1], eps), args[0]
    return None


def _mean(value: Value) -> tuple[Value, int] | None:
    """Return the tensor of which a value is the mean over the last axes, which it keeps, and their number."""
    node = value.node
    if node is None or node.op != "mean" or not node.attrs["keepdim"]:
        return None
    axes, rank = sorted(node.attrs["axes"]), value.tensor.rank
    return (node.arg(0), len(axes)) if axes == list(range(rank - len(axes), rank)) and axes else None


def _normalised(root: Node, centred: Value, results: set[Value]) -> Value | None:
    """Return the quotient of centred rows by their root."""
    op, value = ("mul" if root.op == "rsqrt" else "div"), root.result
    for _ in range(3):
        user = _only_user(value, results)
        if user is None:
            return None
        if user.op == op and any(x is centred and y is value for x, y in _pairs(user.result, op)):
            return user.result
        if user.op == "reciprocal" and op == "div":
            op = "mul"
        elif user.op != "expand":
            return None
        value = user.result
    return None


def _of_rows(value: Value, shape: tuple) -> Value | None:
    """Return a weight of the elements of a row, the same for each, before its expansion."""
    inner = _args(value, "expand")
    found = inner[0] if inner else value
    sizes = B.shape_of(found)
    before = sizes[: max(0, len(sizes) - len(shape))]
    is_of_rows = len(sizes) >= len(shape) and all(map(B.is_one, before))
    return found if is_of_rows and all(map(equal, sizes[len(before) :], shape)) else None


# Transposition ----------------------------------------------------------------------------------------------


def _transposed(permute: Node, results: set[Value]) -> Chain | None:
    """The last two axes exchanged, of a tensor whose other axes are merged before and split afterwards."""
    args, user = _args(permute.arg(0), "reshape"), _only_user(permute.result, results)
    if list(permute.attrs["axes"]) != [0, 2, 1] or not args or user is None or user.op != "reshape":
        return None
    (x,) = args
    shape, rank = B.shape_of(x), x.tensor.rank
    wanted = (*shape[:-2], *shape[:-3:-1])
    if rank < 3 or not equal_shapes(shape[-2:], B.shape_of(permute.arg(0))[1:]):
        return None
    if not equal_shapes(wanted, B.shape_of(user.result)):
        return None
    return Chain(user.result, lambda b: B.permute(b, x, [*range(rank - 2), rank - 1, rank - 2]))


ANCHORS: Mapping[str, Callable[[Node, set[Value]], Chain | None]] = {
    "softmax": _attention, "erf": _gelu, "tanh": _gelu, "sqrt": _layer_norm, "rsqrt": _layer_norm,
    "permute": _transposed,
}  # fmt: skip
