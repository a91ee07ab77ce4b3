"""The rules by which random graphs grow: an operator with its type rule, or a few of them.

A rule raises ShapeError, DtypeError or UnsupportedOp where it does not fit the values so far. Steps
(comparisons, rounding, sorting) take only values that are exact.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.errors import DtypeError, ShapeError, UnsupportedOp
from shapevm.compiler.ir.graph import Builder, Value
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.ops import COMPOSITES, OPS
from shapevm.compiler.ops import build as B
from shapevm.compiler.ops.conv import window
from shapevm.compiler.ops.matmul import matmul as product

S, T = symbol("s"), symbol("t")

#: What jumps: a little more or less in an argument may be much more or less in the result.
STEPS = {
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "floor", "ceil", "round", "trunc"),
    *("sign", "mod", "fmod", "floordiv", "copysign", "nextafter", "mantissa", "exponent", "sort", "search"),
    *("nonzero", "item", "gcd", "shl", "shr", "philox"),
}
MOVES = {"reshape", "permute", "expand", "slice", "concat", "gather", "full", "iota", "constant", "cast"}
EXACT = STEPS | MOVES | {"where", "neg", "abs", "minimum", "maximum", "reduce_max", "reduce_min", "relu"}
_OF_THEIR_OWN = ("cast", "divisor", "place", "where", "bits", "half_bits")
POINTWISE = tuple(op for op in OPS.values() if op.kind == "pointwise" and op.name not in _OF_THEIR_OWN)
POLYNOMIALS = ("chebyshev", "hermite", "laguerre", "legendre")  # of a degree, the second argument
FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u8")
DTYPES = (*FLOATS, *INTS, "bool")


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


@cache
def _dtypes(name: str, n_args: int) -> tuple[str, ...]:
    """Return the dtypes that a pointwise operator takes."""
    found = []
    for dtype in DTYPES:
        try:
            OPS[name].infer([TensorType(dtype, ())] * n_args, {})
        except DtypeError:
            continue
        found.append(dtype)
    return tuple(found)


def pointwise(step: Step) -> Sequence[Value]:
    """Any pointwise operator on values of one dtype that broadcast."""
    op = step.choose.choice(POINTWISE)
    n_args = op.schema.split("->")[0].count("Tensor")
    exact = op.name in STEPS
    at_hand = sorted({B.dtype_of(x) for x in step.terms} & set(_dtypes(op.name, n_args)))
    if not at_hand:
        raise DtypeError(f"{op.name} takes none of the values so far")
    x = step.any(step.choose.choice(at_hand), exact=exact)
    dtype = B.dtype_of(x)
    args = [x, *(step.any(dtype, exact=exact or op.name.startswith(POLYNOMIALS)) for _ in range(n_args - 1))]
    if op.name.startswith(POLYNOMIALS):
        args = [B.pointwise(step.b, "sin", x), B.pointwise(step.b, "minimum", step.b.one("abs", args[1]), 6)]
    elif dtype in FLOATS:
        fill = {s.fill for s in op.samples if s.args[0].startswith(("f32", "bool"))}
        args = [_within(step.b, arg, fill, op.name) for arg in args]
    elif n_args > 1 and dtype != "bool" and op.name in ("floordiv", "mod", "fmod", "pow", "shl", "shr"):
        args[1] = B.pointwise(step.b, "minimum", _above(step.b, args[1], 1), 6)
        args[1] = step.b.one("divisor", args[1]) if op.name.endswith(("mod", "div")) else args[1]
    result = step.b.one(op.name, *B.broadcast(step.b, op.name, args))
    return [B.pointwise(step.b, "and", result, 7) if op.name == "philox" else result]


def _above(b: Builder, x: Value, low: float) -> Value:
    return B.pointwise(b, "maximum", x if B.dtype_of(x) == "u8" else b.one("abs", x), low)


def _within(b: Builder, x: Value, fill: set[str], name: str) -> Value:
    """Return `x` moved into the domain that an operator's samples name."""
    if name == "ndtri":
        return B.pointwise(b, "add", B.pointwise(b, "mul", b.one("sin", x), 0.375), 0.5)
    if "unit" in fill:
        return B.pointwise(b, "mul", b.one("sin", x), 0.9)
    if "normal" in fill:
        return x
    return B.pointwise(b, "add", b.one("abs", x), 1.125 if "above_one" in fill else 0.125)


def torch_composite(step: Step) -> Sequence[Value]:
    """Any of torch's operators that is written in terms of ours, of one or two tensors."""
    expand, n_args = step.choose.choice(_COMPOSITES)
    x = step.any(rank=step.choose.randint(0, 3))
    same = [x] + [y for y in step.terms if B.dtype_of(y) == B.dtype_of(x) and B.shape_of(y) == B.shape_of(x)]
    args = [x, *(step.choose.choice(same) for _ in range(n_args - 1))]
    try:
        if expand is COMPOSITES["aten.repeat_interleave.Tensor"].expand:  # how often: not below 0
            args = [_above(step.b, x, 0)]
        elif expand in _DIVISIONS and B.dtype_of(x) in INTS:  # by no 0, at whatever shape
            args[-1] = _above(step.b, args[-1], 1)
        made = expand(step.b, *args)
    except (ShapeError, DtypeError, UnsupportedOp):
        raise
    except Exception as error:  # torch checks the arguments of its operators before they come here
        raise ShapeError(f"the arguments do not fit: {error}") from error
    made = made if isinstance(made, tuple | list) else [made]
    return [value for value in made if isinstance(value, Value) and isinstance(value.type, TensorType)]


def _composites() -> list[tuple[Callable[..., Any], int]]:
    """Return what takes one or two tensors and, without more, nothing else."""
    found = {}
    for name, composite in COMPOSITES.items():
        rest = list(inspect.signature(composite.expand).parameters.values())[1:]
        needed = [x.annotation for x in rest if x.default is x.empty and x.kind != x.VAR_POSITIONAL]
        is_calm = not any(word in name for word in _RESTLESS)
        if is_calm and 0 < len(needed) < 3 and set(needed) <= {"Value", "B.Tensorlike"}:
            found[composite.expand] = len(needed)
    return list(found.items())


#: What is not of its arguments alone, or takes numbers within bounds of its own.
_RESTLESS = (
    *("empty", "rand", "bernoulli", "multinomial", "normal", "dropout", "rrelu", "poisson"),
    *("geometric", "exponential", "cauchy", "bincount", "one_hot", "nll_loss", "embedding", "histc"),
    *("take", "put", "index", "gather", "scatter"),
)
_COMPOSITES = _composites()
_DIVISIONS = {
    composite.expand
    for name, composite in COMPOSITES.items()
    if name.split(".")[1] in ("floor_divide", "remainder", "fmod", "div")
}


def where(step: Step) -> Sequence[Value]:
    x = step.any()
    args = [step.any("bool"), x, step.any(B.dtype_of(x))]
    return [step.b.one("where", *B.broadcast(step.b, "where", args))]


def cast(step: Step) -> Sequence[Value]:
    x = step.any(exact=True)
    to = step.choose.choice(DTYPES)
    if B.dtype_of(x) in FLOATS and to not in (*FLOATS, "bool"):  # other numbers become anything
        small = B.pointwise(step.b, "lt", step.b.one("abs", x), 100)
        x = B.where(step.b, small, x, B.full(step.b, 3, B.dtype_of(x)))
    return [B.cast_to(step.b, x, to)]


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
    kind = step.choose.choice(("full", "iota", "constant"))
    if kind == "full":
        return [B.full(step.b, step.choose.choice((0, 2, -3)), step.choose.choice(("f32", "i64")), (1, T))]
    return [weights(step, 3, 5)] if kind == "constant" else [B.iota(step.b, step.choose.choice((S, T)), 0, 1)]


def weights(step: Step, *shape: int) -> Value:
    """A constant matrix."""
    rng = np.random.default_rng(step.choose.randrange(100))
    return step.b.constant(rng.uniform(-1, 1, shape).astype(np.float32), "f32")


def reduce(step: Step) -> Sequence[Value]:
    op = step.choose.choice([op for op in OPS.values() if op.kind == "reduce"])
    x = step.any(rank=1)
    axes = sorted(step.choose.sample(range(len(B.shape_of(x))), step.choose.randint(1, len(B.shape_of(x)))))
    return [B.reduce(step.b, op.name, x, axes, step.choose.random() < 0.5)]


def composite(step: Step) -> Sequence[Value]:
    name = step.choose.choice(("mean", "var", "softmax", "log_softmax", "layer_norm", "relu", "silu", "gelu"))
    x = step.any(*FLOATS, rank=1)
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
    x = step.any(*FLOATS, *INTS, exact=function in ("max", "min"), rank=1)
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
    x = step.any(*FLOATS, *INTS, exact=True, rank=2)
    rows = B.reshape(step.b, x, [B.product(B.shape_of(x)[:-1]), B.shape_of(x)[-1]])
    in_order, _ = step.b.apply("sort", rows, keep=B.shape_of(rows)[1], descending=False)
    return step.b.apply("search", in_order, rows, right=step.choose.random() < 0.5)


def matmul(step: Step) -> Sequence[Value]:
    x = step.any(*FLOATS, *INTS, rank=2)
    y = step.any(B.dtype_of(x), rank=2)
    x, y = _rows(step, x), _rows(step, y)
    if step.choose.random() < 0.5 or B.shape_of(x)[0] == B.shape_of(y)[0]:
        x = B.permute(step.b, x, [1, 0])
    return [product(step.b, x, y)]


def _rows(step: Step, x: Value) -> Value:
    """Return `x` with two axes."""
    return B.reshape(step.b, x, [B.product(B.shape_of(x)[:-1]), B.shape_of(x)[-1]])


def linear(step: Step) -> Sequence[Value]:
    x = step.any("f32", rank=1)
    width = B.shape_of(x)[-1]
    if not isinstance(width, int):
        same = [y for y in step.terms if B.dtype_of(y) == "f32" and B.shape_of(y)[-1:] == (width,)]
        found = [y for y in same if len(B.shape_of(y)) == 2]
        if not found:
            raise ShapeError("nothing is as wide")
        return [step.b.one("linear", x, step.choose.choice(found), None)]
    n = step.choose.choice((1, 7, 33))
    weight = weights(step, n, width)
    bias = B.reshape(step.b, weights(step, n, 1), [n]) if step.choose.random() < 0.5 else None
    return [step.b.one("linear", x, weight, bias)]


def conv(step: Step) -> Sequence[Value]:
    """A window over the axis s or t and another one, channels last."""
    x = step.any("f32", rank=3)
    n_axes, choose = len(B.shape_of(x)) - 2, step.choose
    channels = B.shape_of(x)[-1]
    if not isinstance(channels, int) or channels > 16:
        raise ShapeError("the channels are not known or many")
    kernel = [choose.choice((1, 2, 3)) for _ in range(n_axes)]
    dilation = [choose.choice((1, 1, 2)) for _ in kernel]
    groups = channels if choose.random() < 0.3 and channels else 1
    low = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]  # there is a window at any size
    attrs = {"stride": tuple(choose.choice((1, 2)) for _ in kernel), "dilation": tuple(dilation)}
    if choose.random() < 0.4:  # what is special: Winograd's form, for one
        kernel, low, attrs = [3] * n_axes, [1] * n_axes, {}
        x = B.pad(step.b, x, [(0, 0), *((1, 0) for _ in kernel), (0, 0)])
    weight = weights(step, int(np.prod(kernel)) * channels // groups, groups * choose.choice((1, 3, 8)))
    high = tuple(amount % 3 for amount in low)
    return [
        step.b.one("conv", x, weight, **window(kernel, groups=groups, low=tuple(low), high=high, **attrs))
    ]


def attention(step: Step) -> Sequence[Value]:
    """Rows of one value look at those of another that is as wide."""
    x = step.any("f32", rank=2)
    same = [
        y
        for y in step.terms
        if B.dtype_of(y) == "f32"
        and len(B.shape_of(y)) == len(B.shape_of(x))
        and B.shape_of(y)[:-2] == B.shape_of(x)[:-2]
        and B.shape_of(y)[-1] == B.shape_of(x)[-1]
    ]
    k = step.choose.choice(same)
    fits = [y for y in same if B.shape_of(y) == B.shape_of(k)]
    mask = None
    if step.choose.random() < 0.4:
        wanted = (*B.shape_of(x)[:-1], B.shape_of(k)[-2])
        mask = B.expand(step.b, step.any("bool", exact=True), wanted)
    q, k = (B.pointwise(step.b, "sin", y) for y in (x, k))
    return [step.b.one("attention", q, k, step.choose.choice(fits), mask, scale=0.5, safe=True)]


def found(step: Step) -> Sequence[Value]:
    """What has a size that the data tell."""
    x = step.any(exact=True, rank=1)
    name = step.choose.choice(("nonzero", "masked_select", "_unique2", "nonzero_static"))
    if name == "masked_select":
        return [_call(step, name, x, step.any("bool", exact=True))]
    if name == "_unique2":
        values, inverse, counts = _call(step, name, x, True, True, True)
        return [values, inverse, counts]
    return [_call(step, name, x, **({"size": 6} if name == "nonzero_static" else {}))]


def _call(step: Step, name: str, *args: Any, **attrs: Any) -> Any:
    return COMPOSITES[f"aten.{name}.default"].expand(step.b, *args, **attrs)


def move(step: Step) -> Sequence[Value]:
    """Views and copies as torch has them."""
    x = step.any(rank=2)
    axis, choose = step.axis(x), step.choose
    return [
        choose.choice(
            (
                lambda: _call(step, "roll", x, [choose.choice((1, -2))], [axis]),
                lambda: _call(step, "repeat", x, [1 + (i == axis) for i in range(len(B.shape_of(x)))]),
                lambda: _call(step, "stack", [x, x], axis),
                lambda: _call(step, "constant_pad_nd", x, [1, choose.choice((0, 2))], 1),
                lambda: _call(step, "flip", x, [axis]),
            )
        )()
    ]


def gather(step: Step) -> Sequence[Value]:
    table, index = step.any(rank=1), step.any("i64", exact=True)
    axis = step.axis(table)
    size = B.shape_of(table)[axis]
    if not isinstance(size, int) or size == 0 or len(B.shape_of(index)) > 2:
        raise ShapeError("an index may have no place")
    within = B.pointwise(step.b, "mod", index, size)
    placed = step.b.one("place", within, index, size=size)
    return [step.b.one("gather", table, placed, axis=axis)]


def scatter(step: Step) -> Sequence[Value]:
    rows = _rows(step, x := step.any(*FLOATS, *INTS, rank=2))
    n, width = B.shape_of(rows)
    index = B.pointwise(step.b, "mod", B.iota(step.b, n, 0, 2), 3)
    base = B.full(step.b, 1, B.dtype_of(x), (1, 1))
    mode = step.choose.choice(("sum", "set", "max") if step.exact[x] else ("sum", "set"))
    return [step.b.one("scatter", base, index, rows, axis=0, mode=mode, shape=(3, width), updates=(n, width))]


def boxes(step: Step) -> Sequence[Value]:
    """Which boxes, of corners at exact places, non-maximum suppression keeps; as many as the last axis has:
    the definition takes the square of their number."""
    x = step.any("f32", "f64", exact=True, rank=1)
    n = B.shape_of(x)[-1]
    flat = B.reshape(step.b, x, [1, B.product(B.shape_of(x))])
    flat = B.concat(step.b, [flat, B.full(step.b, 1, B.dtype_of(x), (1, n))], 1)
    places = _above(step.b, B.take(step.b, flat, 1, 0, n), 0)
    low = B.pointwise(step.b, "minimum", places, 50)
    corners = [low, low, *(B.pointwise(step.b, "maximum", places, high) for high in (2, 4))]
    threshold = B.full(step.b, step.choose.choice((0.125, 0.5, 1.0)), "f64", (1,))
    return [step.b.one("nms", B.concat(step.b, corners, 0), threshold)]


def regions(step: Step) -> Sequence[Value]:
    """Samples of regions of an image that has a row and a column at least."""
    rows = _rows(step, x := step.any("f32", "f64", rank=2))
    n, width = B.shape_of(rows)
    dtype = B.dtype_of(x)
    image = B.concat(step.b, [B.full(step.b, 1, dtype, (1, width)), rows], 0)
    image = B.reshape(step.b, image, [1, 1, n + 1, width])
    places = B.cast_to(step.b, B.iota(step.b, 5, 1, 2), dtype)
    places = B.expand(step.b, B.pointwise(step.b, "mul", places, 0.375), (3, 5))
    attrs = {"scale": 1.0, "samples": step.choose.choice((0, 2)), "aligned": step.choose.random() < 0.5}
    return [step.b.one("roi_align", image, places, bins=(2, 3), **attrs)]


Rules = tuple[tuple[int, Rule], ...]
#: Rules with their weights, by what the graphs are about: numbers of all dtypes, or kernels of all families.
RULES: dict[str, Rules] = {
    "numbers": (
        (14, pointwise), (6, torch_composite), (2, where), (4, cast), (1, permute), (1, expand), (1, cut),
        (1, source), (3, reduce), (3, composite), (1, scan), (1, sort), (1, matmul), (1, scatter),
    ),
    "kernels": (
        (5, pointwise), (2, torch_composite), (1, where), (1, cast), (2, permute), (2, merge), (1, expand),
        (2, cut), (2, move), (2, concat), (1, source), (2, reduce), (2, composite), (2, scan), (1, sort),
        (1, search), (2, matmul), (2, linear), (2, conv), (2, attention), (1, gather), (1, scatter),
        (1, found), (1, boxes), (1, regions),
    ),
}  # fmt: skip
