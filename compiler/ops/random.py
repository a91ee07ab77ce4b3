"""Random numbers: Philox (Salmon et al., 2011) of a key and a counter, which are state of the program.

Every draw uses one counter per element, so a program's numbers follow from its seed and the previous calls,
on every target and with any number of threads. They differ from eager PyTorch's, whose generator is
sequential.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log1p, nan, pi
from typing import Any

import numpy as np

from ..ir.dims import DimExpr, product
from ..ir.errors import DtypeError, ShapeError, UnsupportedOp
from ..ir.graph import Builder, Graph, Value
from ..ir.promotion import DEFAULT_FLOAT, is_float
from ..ir.types import TensorType
from . import build as B
from .declare import Composite, Op
from .sort import argsort, first_of

OPS: tuple[Op, ...] = ()

STATE = "random:philox"  # i64[2]: the key (seed) and the next counter
SELU_LOW = 1.7580993408473766  # what SELU tends to far below 0, negated
_BITS = {"f16": 11, "bf16": 8, "f32": 24}  # of a uniform number below 1


def add_generator(graph: Graph, seed: int) -> Value:
    """Add the state of random numbers to a graph's inputs: an i64 seed, and how many were drawn."""
    name = f"state.{STATE}"
    graph.state[name] = (np.array([seed, 0], np.int64), "i64")
    graph.structure.setdefault("state", []).append(STATE)
    return graph.input(name, TensorType("i64", (2,)))


def bits(b: Builder, shape: Sequence[DimExpr]) -> Value:
    """Return 64 random bits for each element of `shape`, as i64; the generator advances.

    Raises UnsupportedOp if the program has no generator.
    """
    if b.generator is None:
        raise UnsupportedOp("random numbers here are PyTorch's: this graph has no generator of its own")
    count = product(shape)
    key, first = (B.take(b, b.generator, 0, i, 1) for i in (0, 1))
    line = b.one("iota", start=0, step=1, length=B.simplify(count), dtype="i64")
    counters = B.pointwise(b, "add", line, first)
    found = b.one("philox", counters, B.expand(b, key, B.shape_of(counters)))
    b.generator = B.concat(b, [key, B.pointwise(b, "add", first, count)], 0)
    return B.reshape(b, found, shape)


def _low(b: Builder, random: Value, n_bits: int) -> Value:
    return B.pointwise(b, "and", random, 2**n_bits - 1)


def _high(b: Builder, random: Value) -> Value:
    return _low(b, B.pointwise(b, "shr", random, 32), 32)


def uniform(b: Builder, shape: Sequence[DimExpr], dtype: str) -> Value:
    """Return numbers from 0 to below 1, uniform over multiples of a power of 2."""
    if not is_float(dtype):
        raise DtypeError(f"random numbers: the dtype is {dtype}; it must be a float")
    random = bits(b, shape)
    if dtype == "f64":
        whole = _low(b, B.pointwise(b, "shr", random, 11), 53)
        return B.pointwise(b, "mul", B.cast_to(b, whole, "f64"), 2.0**-53)
    n = _BITS[dtype]
    whole = B.cast_to(b, _low(b, random, n), "f32")
    return B.cast_to(b, B.pointwise(b, "mul", whole, 2.0**-n), dtype)


def normal(b: Builder, shape: Sequence[DimExpr], dtype: str) -> Value:
    """Return normal numbers of mean 0 and deviation 1 (Box and Muller)."""
    if not is_float(dtype):
        raise DtypeError(f"random numbers: the dtype is {dtype}; it must be a float")
    if dtype == "f64":
        radius = B.pointwise(b, "sub", 1.0, uniform(b, shape, "f64"))
        turn = uniform(b, shape, "f64")
    else:
        random = bits(b, shape)
        radius, turn = (B.cast_to(b, part, "f32") for part in (_high(b, random), _low(b, random, 32)))
        radius = B.pointwise(b, "mul", B.pointwise(b, "add", radius, 1.0), 2.0**-32)
        turn = B.pointwise(b, "mul", turn, 2.0**-32)
    length = b.one("sqrt", B.pointwise(b, "mul", b.one("log", radius), -2.0))
    found = B.pointwise(b, "mul", length, b.one("cos", B.pointwise(b, "mul", turn, 2 * pi)))
    return B.cast_to(b, found, dtype)


def exponential_numbers(b: Builder, shape: Sequence[DimExpr], dtype: str) -> Value:
    """Return -log(1 - u): exponential numbers of rate 1."""
    u = uniform(b, shape, dtype)
    return B.in_f32(b, lambda v: b.one("neg", b.one("log1p", b.one("neg", v))), u)


def _integers(b: Builder, shape: Sequence[DimExpr], low: DimExpr, high: DimExpr, dtype: str) -> Value:
    """Return integers from low to below high, uniform up to 2^-32 of their number or better."""
    span = B.simplify(high - low)
    if isinstance(span, int) and span <= 0:
        raise ShapeError(f"random integers: from {low} to below {high} there are none; raise the bound")
    random = bits(b, shape)
    if isinstance(span, int) and span <= 2**31:
        offset = B.pointwise(b, "shr", B.pointwise(b, "mul", _high(b, random), span), 32)
    else:
        offset = B.pointwise(b, "mod", _low(b, random, 63), span)
    return B.cast_to(b, B.pointwise(b, "add", offset, low), dtype)


# torch's overloads: new tensors -------------------------------------------------------------------


def rand(b: Builder, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Numbers from 0 to below 1."""
    return uniform(b, size, dtype or DEFAULT_FLOAT)


def rand_like(b: Builder, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    """Numbers from 0 to below 1 in x's shape."""
    return uniform(b, B.shape_of(x), dtype or B.dtype_of(x))


def randn(b: Builder, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any) -> Value:
    """Normal numbers."""
    return normal(b, size, dtype or DEFAULT_FLOAT)


def randn_like(b: Builder, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    """Normal numbers in x's shape."""
    return normal(b, B.shape_of(x), dtype or B.dtype_of(x))


def _integer(dtype: Any) -> str:
    """Return a dtype; the default of PyTorch's schema, a number, is i64."""
    return dtype if isinstance(dtype, str) else "i64"


def randint(b: Builder, high: DimExpr, size: Sequence[DimExpr], *, dtype: Any = None, **_: Any) -> Value:
    """Integers from 0 to below high."""
    return _integers(b, size, 0, high, _integer(dtype))


def randint_low(
    b: Builder, low: DimExpr, high: DimExpr, size: Sequence[DimExpr], *, dtype: Any = None, **_: Any
) -> Value:
    """Integers from low to below high."""
    return _integers(b, size, low, high, _integer(dtype))


def randint_like(b: Builder, x: Value, high: DimExpr, *, dtype: str | None = None, **_: Any) -> Value:
    """Integers from 0 to below high in x's shape."""
    return _integers(b, B.shape_of(x), 0, high, dtype or B.dtype_of(x))


def randint_like_low(
    b: Builder, x: Value, low: DimExpr, high: DimExpr, *, dtype: str | None = None, **_: Any
) -> Value:
    """Integers from low to below high in x's shape."""
    return _integers(b, B.shape_of(x), low, high, dtype or B.dtype_of(x))


def randperm(b: Builder, n: DimExpr, *, dtype: Any = None, **_: Any) -> Value:
    """The integers below n in a random order."""
    return B.cast_to(b, argsort(b, bits(b, (n,)), 0), _integer(dtype))


# torch's overloads: in the shape of an argument ---------------------------------------------------


def uniform_between(b: Builder, x: Value, low: float = 0.0, high: float = 1.0, **_: Any) -> Value:
    """Numbers from low to below high in x's shape and dtype."""
    u = uniform(b, B.shape_of(x), B.dtype_of(x))
    return B.pointwise(b, "add", B.pointwise(b, "mul", u, high - low), float(low))


def _scaled(b: Builder, mean: B.Tensorlike, std: B.Tensorlike, shape: Any, dtype: str) -> Value:
    """Normal numbers of a mean and a deviation."""
    found = B.pointwise(b, "mul", normal(b, shape, dtype), std, dtype=dtype)
    return B.pointwise(b, "add", found, mean, dtype=dtype)


def normal_of(b: Builder, x: Value, mean: float = 0.0, std: float = 1.0, **_: Any) -> Value:
    """Normal numbers of a mean and a deviation in x's shape and dtype."""
    return _scaled(b, float(mean), float(std), B.shape_of(x), B.dtype_of(x))


def normal_tensors(b: Builder, mean: B.Tensorlike, std: B.Tensorlike = 1.0, **_: Any) -> Value:
    """Normal numbers, each with its own mean and deviation."""
    given = [x for x in (mean, std) if isinstance(x, Value)]
    shape = B.broadcast_shape("normal", [B.shape_of(x) for x in given])
    return _scaled(b, mean, std, shape, B.dtype_of(given[0]))


def normal_numbers(
    b: Builder, mean: float, std: float, size: Sequence[DimExpr], *, dtype: str | None = None, **_: Any
) -> Value:
    """Normal numbers of a mean and a deviation."""
    return _scaled(b, float(mean), float(std), size, dtype or DEFAULT_FLOAT)


def log_normal(b: Builder, x: Value, mean: float = 1.0, std: float = 2.0, **_: Any) -> Value:
    """e to the power of normal numbers in x's shape and dtype."""
    return b.one("exp", normal_of(b, x, mean, std))


def exponential(b: Builder, x: Value, rate: float = 1.0, **_: Any) -> Value:
    """Exponential numbers of a rate in x's shape and dtype."""
    found = exponential_numbers(b, B.shape_of(x), B.dtype_of(x))
    return B.pointwise(b, "mul", found, 1.0 / rate)


def cauchy(b: Builder, x: Value, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Value:
    """Cauchy's distribution in x's shape and dtype."""
    u = B.pointwise(b, "sub", uniform(b, B.shape_of(x), B.dtype_of(x)), 0.5)
    found = b.one("tan", B.pointwise(b, "mul", u, pi))
    return B.pointwise(b, "add", B.pointwise(b, "mul", found, float(sigma)), float(median))


def geometric(b: Builder, x: Value, p: float, **_: Any) -> Value:
    """The number of trials of probability p until one succeeds, in x's shape and dtype."""
    if not 0 < p < 1:
        raise ShapeError(f"geometric: p is {p}; it must be above 0 and below 1")
    found = B.pointwise(b, "mul", exponential_numbers(b, B.shape_of(x), "f64"), -1 / log1p(-p))
    whole = B.pointwise(b, "maximum", b.one("ceil", found), 1.0)
    return B.cast_to(b, whole, B.dtype_of(x))


# Chances ------------------------------------------------------------------------------------------


def chance(b: Builder, shape: Sequence[DimExpr], p: B.Tensorlike) -> Value:
    """Return a mask that holds with probability p."""
    dtype = B.dtype_of(p) if isinstance(p, Value) and B.dtype_of(p) == "f64" else "f32"
    return B.pointwise(b, "lt", uniform(b, shape, dtype), p, dtype=dtype)


def bernoulli(b: Builder, p: Value, **_: Any) -> Value:
    """1 with the probability given by an element, else 0."""
    return B.cast_to(b, chance(b, B.shape_of(p), p), B.dtype_of(p))


def bernoulli_p(b: Builder, x: Value, p: B.Tensorlike = 0.5, **_: Any) -> Value:
    """1 with probability p, else 0, in x's shape and dtype."""
    return B.cast_to(b, chance(b, B.shape_of(x), p), B.dtype_of(x))


def _kept(b: Builder, op: str, x: Value, p: float, shape: Sequence[DimExpr]) -> Value:
    """Return a mask that is False with probability p."""
    if not 0 <= p <= 1:
        raise ShapeError(f"{op}: p is {p}; it must be in 0 .. 1")
    return chance(b, shape, 1.0 - p)


def dropout(b: Builder, x: Value, p: float, train: bool | None = True) -> Value:
    """x with elements dropped with probability p and the others scaled up accordingly; x itself outside
    of training."""
    return native_dropout(b, x, p, train)[0] if train and p else x


def native_dropout(b: Builder, x: Value, p: float, train: bool | None = True) -> tuple[Value, Value]:
    """Like `dropout`, with the mask of kept elements."""
    if not (train or train is None) or not p:
        return x, B.full(b, True, "bool", B.shape_of(x))
    mask = _kept(b, "dropout", x, p, B.shape_of(x))
    return _grown(b, x, mask, p), mask


def _grown(b: Builder, x: Value, mask: Value, p: float) -> Value:
    factor = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return B.pointwise(b, "mul", B.pointwise(b, "mul", x, B.cast_to(b, mask, B.dtype_of(x))), factor)


def _channels(x: Value) -> list[DimExpr]:
    """Return the shape of a mask of whole channels."""
    shape = B.shape_of(x)
    return [size if axis < 2 else 1 for axis, size in enumerate(shape)]


def feature_dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    """As `dropout` of whole channels."""
    return _grown(b, x, _kept(b, "dropout", x, p, _channels(x)), p) if train and p else x


def _alpha(b: Builder, x: Value, p: float, train: bool, shape: Sequence[DimExpr]) -> Value:
    """Dropped elements get a value that preserves SELU's mean and deviation."""
    if not train or not p:
        return x
    mask = B.cast_to(b, _kept(b, "alpha_dropout", x, p, shape), B.dtype_of(x))
    if p == 1:
        return B.pointwise(b, "mul", x, B.full(b, 0, B.dtype_of(x)))
    a = ((SELU_LOW**2 * p + 1) * (1 - p)) ** -0.5
    dropped = B.pointwise(b, "mul", B.pointwise(b, "sub", mask, 1.0), SELU_LOW * a)
    offset = B.pointwise(b, "add", dropped, SELU_LOW * a * p)
    return B.pointwise(b, "add", B.pointwise(b, "mul", B.pointwise(b, "mul", x, mask), a), offset)


def alpha_dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    """Dropout for SELU."""
    return _alpha(b, x, p, train, B.shape_of(x))


def feature_alpha_dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    """Dropout of whole channels for SELU."""
    return _alpha(b, x, p, train, _channels(x))


def rrelu(
    b: Builder, x: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Value:
    """x, or for negative elements x times a random slope; outside of training times the mean slope."""
    slope: B.Tensorlike = (lower + upper) / 2
    if training:
        slope = uniform_between(b, x, lower, upper)
    return B.where(b, B.pointwise(b, "le", x, 0.0), B.pointwise(b, "mul", x, slope), x)


def multinomial(b: Builder, p: Value, n: int, replacement: bool = False, **_: Any) -> Value:
    """The indices of `n` draws along the last axis, with probabilities proportional to the weights."""
    *outer, length = B.shape_of(p)
    rows = B.cast_to(b, B.reshape(b, p, [product(outer), length]), "f64")
    count = B.shape_of(rows)[0]
    if not replacement:  # the race of exponential clocks; a weight of 0 never rings
        clocks = exponential_numbers(b, (count, length), "f64")
        rate = B.pointwise(b, "div", rows, B.pointwise(b, "maximum", clocks, 1e-300))
        return B.reshape(b, first_of(b, "multinomial", rate, 1, n, True)[1], [*outer, n])
    ends = B.reshape(
        b, b.one("scan", B.reshape(b, rows, (count, length, 1)), function="sum"), (count, length)
    )
    total = B.take(b, ends, 1, B.simplify(length - 1), 1)
    at = B.pointwise(b, "mul", uniform(b, (count, n), "f64"), total)
    below = b.one("nextafter", *B.broadcast(b, "multinomial", [total, B.full(b, 0, "f64", (count, 1))]))
    at = B.pointwise(b, "minimum", at, below)
    return B.reshape(b, b.one("search", ends, at, right=True), [*outer, n])


def checked_multinomial(b: Builder, p: Value, n: int, replacement: bool = False, **_: Any) -> Value:
    """As `multinomial`, of weights that must be finite and at least 0, and in no row all 0."""
    right = B.pointwise(b, "and", B.pointwise(b, "ge", p, 0.0), B.pointwise(b, "lt", p, inf))
    total = B.reduce(b, "reduce_sum", B.where(b, right, p, nan), [len(B.shape_of(p)) - 1], False)
    is_right = B.pointwise(b, "gt", total, 0.0)
    every = B.reduce(b, "reduce_all", is_right, range(len(B.shape_of(total))), False)
    name = dict(zip(b.graph.body.params, b.graph.inputs, strict=True)).get(p, "the probabilities")
    message = f"multinomial: {name} must be finite and at least 0, and not all 0 in a row"
    b.apply("guard", b.one("item", every), message=message)
    return multinomial(b, p, n, replacement)


def _each(expand: Callable[..., Any], *overloads: str) -> Composite:
    return Composite(tuple(f"aten.{overload}" for overload in overloads), expand)


def philox(b: Builder, counters: Value, key: Value) -> Value:
    """Return 64 random bits of each counter i64[n] under a key i64[1]; no generator takes part."""
    return b.one("philox", counters, B.expand(b, key, B.shape_of(counters)))


COMPOSITES: tuple[Composite, ...] = (
    Composite(("shapevm.philox.default",), philox),
    _each(rand, "rand.default"),
    _each(rand_like, "rand_like.default"),
    _each(randn, "randn.default"),
    _each(randn_like, "randn_like.default"),
    _each(randint, "randint.default"),
    _each(randint_low, "randint.low"),
    _each(randint_like, "randint_like.default"),
    _each(randint_like_low, "randint_like.low_dtype"),
    _each(randperm, "randperm.default"),
    _each(uniform_between, "uniform.default"),
    _each(normal_of, "normal_functional.default"),
    _each(normal_tensors, "normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor"),
    _each(normal_numbers, "normal.float_float"),
    _each(log_normal, "log_normal.default"),
    _each(exponential, "exponential.default"),
    _each(cauchy, "cauchy.default"),
    _each(geometric, "geometric.default"),
    _each(bernoulli, "bernoulli.default"),
    _each(bernoulli_p, "bernoulli.p", "bernoulli.Tensor"),
    _each(dropout, "dropout.default"),
    _each(native_dropout, "native_dropout.default"),
    _each(feature_dropout, "feature_dropout.default"),
    _each(alpha_dropout, "alpha_dropout.default"),
    _each(feature_alpha_dropout, "feature_alpha_dropout.default"),
    _each(rrelu, "rrelu.default"),
    _each(checked_multinomial, "multinomial.default"),
)
