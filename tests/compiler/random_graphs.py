"""Random valid graphs over the operator table, and what they must give.

A graph grows by one rule at a time (an operator with its type rule, or a few of them); a rule that does not
fit, or whose values are no good at a probe of the sizes, leaves no trace. What is computed in floats is
*rough*: the reference runs it with noise, so that a result's tolerance is its own sensitivity. Steps
(comparisons, rounding, sorting) take only values that are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from shapevm.compiler.dims import evaluate, symbol
from shapevm.compiler.errors import DtypeError, ShapeError, UnsupportedOp
from shapevm.compiler.ir import Builder, Graph, SymbolInfo, Value, erase
from shapevm.compiler.ops import OPS
from shapevm.compiler.ops import build as B
from shapevm.compiler.reference import decode, encode, evaluate_node
from shapevm.compiler.types import TensorType

S, T = symbol("s"), symbol("t")
#: Values of s and t: none, one, primes, a large one.
SHAPES = ((5, 3), (0, 4), (1, 1), (7, 0), (2, 13), (17, 1), (31, 37), (3, 509))
INPUTS = (
    ("f32", (S, T)),
    ("f32", (T,)),
    ("f32", (2, S, 3)),
    ("i64", (S, T)),
    ("bool", (S, 1)),
    ("i32", (T, 5)),
)
NOISE = 2.0**-22
LIMIT = 1e5

STEPS = {
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "floor", "ceil", "round", "trunc"),
    *("sign", "mod", "fmod", "floordiv", "copysign", "nextafter", "mantissa", "exponent", "sort", "search"),
}
MOVES = {"reshape", "permute", "expand", "slice", "concat", "gather", "full", "iota", "constant", "cast"}
EXACT = STEPS | MOVES | {"where", "neg", "abs", "minimum", "maximum", "reduce_max", "reduce_min", "relu"}
POINTWISE = tuple(op for op in OPS.values() if op.kind == "pointwise" and op.name not in ("cast", "where"))
FLOATS = ("f32", "f64", "f16", "bf16")


@dataclass(frozen=True)
class Step:
    """What a rule may use: where to add, and the values so far."""

    b: Builder
    terms: list[Value]
    exact: dict[Value, bool]
    choose: random.Random

    def any(self, *dtypes: str, exact: bool = False, rank: int = 0) -> Value:
        """Return a value of one of `dtypes` (all), at least of `rank`, exact where asked."""
        found = [
            x
            for x in self.terms
            if (not dtypes or B.dtype_of(x) in dtypes)
            and len(B.shape_of(x)) >= rank
            and (self.exact[x] or not exact)
        ]
        if not found:
            raise ShapeError("no value fits")
        return self.choose.choice(found[-8:] if self.choose.random() < 0.6 else found)

    def axis(self, x: Value) -> int:
        """Return one of the axes of `x`."""
        return self.choose.randrange(len(B.shape_of(x)))


Rule = Callable[[Step], Sequence[Value]]


def pointwise(step: Step) -> Sequence[Value]:
    """Any pointwise operator on values of one dtype that broadcast."""
    op = step.choose.choice(POINTWISE)
    n_args = op.schema.split("->")[0].count("Tensor")
    fill = {s.fill for s in op.samples if s.args[0].startswith(("f32", "bool"))}
    exact = op.name in STEPS
    x = step.any(exact=exact)
    args = [x, *(step.any(B.dtype_of(x), exact=exact) for _ in range(n_args - 1))]
    if B.dtype_of(x) in FLOATS:
        args = [_within(step.b, arg, fill) for arg in args]
    elif (
        n_args > 1 and B.dtype_of(x) != "bool" and op.name in ("floordiv", "mod", "fmod", "pow", "shl", "shr")
    ):
        args[1] = B.pointwise(step.b, "minimum", _above(step.b, args[1], 1), 6)
    return [step.b.one(op.name, *B.broadcast(step.b, op.name, args))]


def _above(b: Builder, x: Value, low: float) -> Value:
    return B.pointwise(b, "maximum", b.one("abs", x), low)


def _within(b: Builder, x: Value, fill: set[str]) -> Value:
    """Return `x` moved into the domain that an operator's samples name."""
    if "unit" in fill:
        return B.pointwise(b, "mul", b.one("sin", x), 0.9)
    if "normal" in fill:
        return x
    return B.pointwise(b, "add", b.one("abs", x), 1.125 if "above_one" in fill else 0.125)


def where(step: Step) -> Sequence[Value]:
    x = step.any()
    args = [step.any("bool"), x, step.any(B.dtype_of(x))]
    return [step.b.one("where", *B.broadcast(step.b, "where", args))]


def cast(step: Step) -> Sequence[Value]:
    x = step.any(exact=True)
    to = FLOATS if B.dtype_of(x) in FLOATS else (*FLOATS, "i64", "i32")
    return [B.cast_to(step.b, x, step.choose.choice(to))]


def permute(step: Step) -> Sequence[Value]:
    x = step.any(rank=2)
    axes = list(range(len(B.shape_of(x))))
    step.choose.shuffle(axes)
    return [B.permute(step.b, x, axes)]


def merge(step: Step) -> Sequence[Value]:
    x = step.any(rank=2)
    shape = B.shape_of(x)
    at = step.choose.randrange(len(shape) - 1)
    return [B.reshape(step.b, x, [*shape[:at], B.product(shape[at : at + 2]), *shape[at + 2 :]])]


def expand(step: Step) -> Sequence[Value]:
    x = step.any()
    size = step.choose.choice((1, 2, S, T))
    return [B.expand(step.b, x, [size, *B.shape_of(x)])]


def cut(step: Step) -> Sequence[Value]:
    x = step.any(rank=1)
    axis = step.axis(x)
    size = B.shape_of(x)[axis]
    if isinstance(size, int) and size > 1:
        start = step.choose.randrange(size)
        return [B.take(step.b, x, axis, start, step.choose.randrange(size - start + 1))]
    if step.choose.random() < 0.5:
        return [B.flip(step.b, x, [axis])]
    return [
        B.take(
            step.b, B.pad(step.b, x, [(2 * (i == axis), 0) for i in range(len(B.shape_of(x)))]), axis, 1, size
        )
    ]


def concat(step: Step) -> Sequence[Value]:
    x = step.any(rank=1)
    same = [y for y in step.terms if y.type == x.type]
    return [B.concat(step.b, [x, step.choose.choice(same), step.choose.choice(same)], step.axis(x))]


def source(step: Step) -> Sequence[Value]:
    if step.choose.random() < 0.5:
        return [B.full(step.b, step.choose.choice((0, 2, -3)), step.choose.choice(("f32", "i64")), (1, T))]
    return [B.iota(step.b, step.choose.choice((S, T)), 0, 1)]


def reduce(step: Step) -> Sequence[Value]:
    op = step.choose.choice([op for op in OPS.values() if op.kind == "reduce"])
    x = step.any(rank=1)
    axes = sorted(step.choose.sample(range(len(B.shape_of(x))), step.choose.randint(1, len(B.shape_of(x)))))
    return [B.reduce(step.b, op.name, x, axes, step.choose.random() < 0.5)]


def composite(step: Step) -> Sequence[Value]:
    name = step.choose.choice(("mean", "var", "softmax", "log_softmax", "layer_norm", "relu", "silu", "gelu"))
    x = step.any("f32", "f64", "f16", rank=1)
    axis = step.axis(x)
    attrs: dict[str, dict[str, Any]] = {
        "mean": {"axes": (axis,), "keepdim": True},
        "var": {"axes": (axis,), "keepdim": False, "correction": 0},
        "softmax": {"axis": axis},
        "log_softmax": {"axis": axis},
        "layer_norm": {"n_axes": 1, "eps": 1e-3},
        "gelu": {"approximate": step.choose.choice(("none", "tanh"))},
    }
    args = [x, None, None] if name == "layer_norm" else [x]
    return [step.b.one(name, *args, **attrs.get(name, {}))]


def scan(step: Step) -> Sequence[Value]:
    function = step.choose.choice(("sum", "prod", "max", "min", "logsumexp"))
    x = step.any("f32", "i64", exact=function in ("max", "min"), rank=1)
    shape, axis = B.shape_of(x), step.axis(x)
    lines = B.reshape(step.b, x, [B.product(shape[:axis]), shape[axis], B.product(shape[axis + 1 :])])
    return step.b.apply("scan", lines, function=function)


def sort(step: Step) -> Sequence[Value]:
    x = step.any(exact=True, rank=1)
    *outer, length = B.shape_of(x)
    rows = B.reshape(step.b, x, [B.product(outer), length])
    values, places = step.b.apply("sort", rows, keep=length, descending=step.choose.random() < 0.5)
    return [values, places]


def search(step: Step) -> Sequence[Value]:
    x = step.any("f32", "i64", exact=True, rank=2)
    rows = B.reshape(step.b, x, [B.product(B.shape_of(x)[:-1]), B.shape_of(x)[-1]])
    in_order, _ = step.b.apply("sort", rows, keep=B.shape_of(rows)[1], descending=False)
    return step.b.apply("search", in_order, rows, right=step.choose.random() < 0.5)


def matmul(step: Step) -> Sequence[Value]:
    x, y = step.any("f32", rank=2), step.any("f32", rank=2)
    x, y = (B.reshape(step.b, z, [B.product(B.shape_of(z)[:-1]), B.shape_of(z)[-1]]) for z in (x, y))
    if step.choose.random() < 0.5 or B.shape_of(x)[0] == B.shape_of(y)[0]:
        x = B.permute(step.b, x, [1, 0])
    return [step.b.one("matmul", x, y)]


def gather(step: Step) -> Sequence[Value]:
    table, index = step.any(rank=1), step.any("i64", exact=True)
    axis = step.axis(table)
    size = B.shape_of(table)[axis]
    if not isinstance(size, int) or size == 0 or len(B.shape_of(index)) > 2:
        raise ShapeError("an index may have no place")
    return [step.b.one("gather", table, B.pointwise(step.b, "mod", index, size), axis=axis)]


def scatter(step: Step) -> Sequence[Value]:
    x = step.any("f32", "i64", rank=2)
    rows = B.reshape(step.b, x, [B.product(B.shape_of(x)[:-1]), B.shape_of(x)[-1]])
    n, width = B.shape_of(rows)
    index = B.pointwise(step.b, "mod", B.iota(step.b, n, 0, 2), 3)
    base = B.full(step.b, 1, B.dtype_of(x), (1, 1))
    mode = step.choose.choice(("sum", "set", "max") if step.exact[x] else ("sum", "set"))
    return [step.b.one("scatter", base, index, rows, axis=0, mode=mode, shape=(3, width), updates=(n, width))]


RULES: tuple[tuple[int, Rule], ...] = (
    (12, pointwise), (2, where), (2, cast), (2, permute), (2, merge), (1, expand), (2, cut),
    (2, concat), (1, source), (3, reduce), (3, composite), (2, scan), (1, sort), (1, search), (2, matmul),
    (1, gather), (1, scatter),
)  # fmt: skip


def random_graph(seed: int, length: int) -> Graph:
    """Return the graph of a seed, of about `length` rules; the same for every call."""
    choose = random.Random(seed)
    graph = Graph(f"random{seed}", symbols={str(x): SymbolInfo(str(x), 0, 600) for x in (S, T)})
    terms = [graph.input(f"x{i}", TensorType(dtype, shape)) for i, (dtype, shape) in enumerate(INPUTS)]
    values = dict(zip(terms, inputs_of(graph, SHAPES[0], seed), strict=True))
    step = Step(Builder(graph), list(terms), dict.fromkeys(terms, True), choose)
    weights, rules = zip(*RULES, strict=True)
    for _ in range(length):
        _try(step, choose.choices(rules, weights)[0], values)
    chosen = choose.sample(step.terms[len(terms) :], min(4, len(step.terms) - len(terms)))
    graph.body.results = list(dict.fromkeys([*chosen, step.terms[-1]]))
    graph.outputs = [f"y{i}" for i in range(len(graph.body.results))]
    return graph


def _try(step: Step, rule: Rule, values: dict[Value, Any]) -> None:
    """Add what a rule makes, unless it does not fit or its values at the probe are no good."""
    nodes = step.b.block.nodes
    before = len(nodes)
    try:
        made = [x for x in rule(step) if len(B.shape_of(x)) <= 4]
        if any(node.op == "guard" for node in nodes[before:]):
            raise ShapeError("it is not for all sizes")
        found = _evaluate(nodes[before:], values, dict(zip("st", SHAPES[0], strict=True)))
        good = bool(made) and all(_is_good(found[x]) for x in found)
    except (ShapeError, DtypeError, UnsupportedOp):
        good = False
    if not good:
        for node in reversed(nodes[before:]):
            erase(step.b.block, node)
        return
    values.update(found)
    for node in nodes[before:]:
        sure = node.op in EXACT or node.results[0].type.dtype not in FLOATS
        for result in node.results:
            step.exact[result] = sure and all(arg is None or step.exact[arg] for arg in node.args)
    step.terms.extend(made)


def _is_good(x: Any) -> bool:
    with np.errstate(all="ignore"):
        return bool(x.size == 0 or (np.isfinite(x).all() and np.abs(x.astype(float)).max() < LIMIT))


def inputs_of(graph: Graph, shape: Sequence[int], seed: int) -> list[Any]:
    """Return inputs at a shape, in computing form: small whole numbers, or floats between -3 and 3."""
    rng, sizes = np.random.default_rng(seed), dict(zip("st", shape, strict=True))
    found = []
    for i, param in enumerate(graph.body.params):
        at = tuple(evaluate(dim, sizes) for dim in B.shape_of(param))
        whole = rng.integers(-4, 5, at)
        dtype = B.dtype_of(param)
        kinds: dict[str, Any] = {
            "f32": (rng.uniform(-3, 3, at) if i % 2 == 0 else whole).astype(np.float32),
            "i64": whole.astype(np.int64), "i32": whole.astype(np.int32), "bool": whole > 0,
        }  # fmt: skip
        found.append(kinds[dtype])
    return found


def _evaluate(
    nodes: Sequence[Any],
    values: Mapping[Value, Any],
    sizes: dict[str, int],
    noise: np.random.Generator | None = None,
) -> dict[Value, Any]:
    """Return the values of `nodes`' results; `noise`: rough ones are off by a little."""
    found: dict[Value, Any] = {}
    with np.errstate(all="ignore"):
        for node in nodes:
            args = [None if arg is None else found[arg] if arg in found else values[arg] for arg in node.args]
            for result, value in zip(node.results, evaluate_node(node, args, sizes), strict=True):
                if noise is not None and node.op not in EXACT and result.type.dtype in FLOATS:
                    scale = {"f16": 2.0**-10, "bf16": 2.0**-7}.get(result.type.dtype, NOISE)
                    value = np.asarray(value)
                    value = (value * (1 + scale * noise.uniform(-1, 1, value.shape))).astype(value.dtype)
                found[result] = np.asarray(value)
    return found


def expected(graph: Graph, shape: Sequence[int], seed: int) -> list[tuple[Any, Any]]:
    """Return (value, tolerance) of every output at a shape, by the operators' references."""
    sizes = dict(zip("st", shape, strict=True))
    values = dict(zip(graph.body.params, inputs_of(graph, shape, seed), strict=True))
    plain = _evaluate(graph.body.nodes, values, sizes)
    noisy = [_evaluate(graph.body.nodes, values, sizes, np.random.default_rng(i)) for i in range(3)]
    found = []
    for result in graph.body.results:
        value = {**values, **plain}[result]
        if result.type.dtype not in FLOATS or result not in plain:
            found.append((value, np.zeros(value.shape)))
            continue
        with np.errstate(all="ignore"):
            off = np.max([np.abs(run[result] - value) for run in noisy], axis=0)
            most = np.max(np.abs(value), initial=0, where=np.isfinite(value))
        found.append((value, np.where(np.isnan(off), np.inf, 16 * off + 2.0**-20 * most)))
    return found


def stored(graph: Graph, arrays: Sequence[Any]) -> dict[str, Any]:
    """Return inputs by name in storage form."""
    return {
        name: encode(array, param.type)
        for name, param, array in zip(graph.inputs, graph.body.params, arrays, strict=True)
    }


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays in storage form are equal bit by bit; NaNs may be any."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        a, b = (np.where(np.isnan(x), np.array(np.nan, x.dtype), x) for x in (a, b))
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def difference(result: Value, actual: Any, value: Any, tolerance: Any) -> str:
    """Return where an output differs, "" where it does not. NaN must be where the reference has one, unless
    noise moves that."""
    actual = np.asarray(decode(actual, result.type))
    if actual.shape != value.shape:
        return f"the shape is {actual.shape}, not {value.shape}"
    with np.errstate(all="ignore"):
        same = (actual == value) | (np.isnan(actual.astype(float)) & np.isnan(value.astype(float)))
        near = np.abs(actual.astype(float) - value.astype(float)) <= tolerance
    bad = ~(same | near | np.isinf(tolerance))
    if not bad.any():
        return ""
    first = f"{actual[bad][0]!r} is not {value[bad][0]!r} +- {tolerance[bad][0]:g}"
    return f"{int(bad.sum())} of {bad.size}: {first}"
