"""Random valid graphs over the operator table, and what they must give.

A graph grows by one rule at a time (`random_rules`); a rule that does not fit, or whose values are no good at
a probe of the sizes, leaves no trace. What is computed in floats is *rough*: the reference runs it with
noise, so that a result's tolerance is its own sensitivity. What jumps takes only values that are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import sympy
import torch
from scipy import special
from shapevm.compiler.ir.dims import evaluate
from shapevm.compiler.ir.errors import DtypeError, ShapeError, UnsupportedOp
from shapevm.compiler.ir.graph import Builder, Graph, Node, SymbolInfo, Value, erase
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.ops import OPS
from shapevm.compiler.ops import build as B
from shapevm.compiler.reference import decode, encode, round_to
from shapevm.jit.families.scatter import reference
from shapevm.jit.llvm.target import bases, host_target
from shapevm.jit.math.table import OPS as FUNCTIONS

from .random_rules import EXACT, FLOATS, INTS, POLYNOMIALS, RULES, STEPS, Rule, S, Step, T

#: Values of s and t: none, one, primes, a large one.
SHAPES = ((5, 3), (0, 4), (1, 1), (7, 0), (2, 13), (17, 1), (31, 37), (3, 509))
ALWAYS = (("f32", (S, T)), ("i64", (S, T)), ("bool", (S, 1)))
#: Of these a graph has some.
OTHERS = {
    "numbers": (
        ("f64", (S, T)), ("f32", (T,)), ("f16", (S, T)), ("bf16", (S, T)), ("i32", (T, 5)), ("i16", (S, T)),
        ("i8", (S, 1)), ("u8", (T,)), ("f32", ()),
    ),
    "kernels": (
        ("f32", (T,)), ("f32", (2, S, 3)), ("f32", (S, 6, T, 2)), ("f32", (2, S, 8)), ("f32", (2, T, 8)),
        ("i32", (T, 5)), ("f16", (S, 8)), ("bf16", (T, 4)), ("f64", (4, S)),
    ),
}  # fmt: skip
N_OTHERS = 4
N_NOISES = 3
NOISE = 2.0**-22
SUMS = 8  # how much coarser sums of many are
MANY = 64  # products in a sum, from which on it gets coarser with their number: equal ones round one way
HAS_LOOKUPS = "x86-64-v4" in bases(host_target())
#: By how much gelu, which takes almost 1 from 1, may be off besides, as a part of its argument: a 16th of the
#: bound. Measured below 0: by the normal distribution 2^-30.1 with AVX-512 and 2^-22.1 without (eager's:
#: 2^-21.6), by tanh 2^-25.1 (eager's: 2^-25.0), silu 2^-24.1 (eager's: 2^-24.8).
CANCELS = {"none": 2.0**-33 if HAS_LOOKUPS else 2.0**-26, "tanh": 2.0**-28, "silu": 2.0**-27}
GREATEST = {
    "f64": 1.7976931348623157e308,
    "f32": 3.4028234663852886e38,
    "bf16": 3.38953138925e38,
    "f16": 65504,
}
LIMIT = 1e5
MAX_ELEMENTS = 2**22  # of a tensor: references keep all tensors of a program several times


def random_graph(seed: int, length: int, about: str) -> Graph:
    """Return the graph of a seed, of `length` rules that fit, `about` one of `RULES`; the same for every
    call. What nothing else uses are its results."""
    choose = random.Random(seed)
    inputs = (*ALWAYS, *choose.sample(OTHERS[about], N_OTHERS))
    graph = Graph(f"random{seed}", symbols={str(x): SymbolInfo(str(x), 0, 600) for x in (S, T)})
    terms = [graph.input(f"x{i}", TensorType(dtype, shape)) for i, (dtype, shape) in enumerate(inputs)]
    values: dict[Value, Any] = dict(zip(terms, inputs_of(graph, SHAPES[0], seed), strict=True))
    sizes = _sizes(SHAPES[0])
    step = Step(Builder(graph), list(terms), dict.fromkeys(terms, True), choose)
    weights, rules = zip(*RULES[about], strict=True)
    done = 0
    for _ in range(8 * length):
        done += _try(step, choose.choices(rules, weights)[0], values, sizes)
        if done == length:
            break
    used = {arg for node in graph.body.nodes for arg in node.args}
    graph.body.results = [x for x in step.terms[len(terms) :] if x not in used]
    graph.outputs = [f"y{i}" for i in range(len(graph.body.results))]
    return graph


def _sizes(shape: Sequence[int]) -> dict[str, int]:
    return dict(zip("st", shape, strict=True))


def _try(step: Step, rule: Rule, values: dict[Value, Any], sizes: dict[str, int]) -> bool:
    """Add what a rule makes, unless it does not fit or its values at the probe are no good."""
    nodes = step.b.block.nodes
    before, olds = len(nodes), [dict(known) for known in (sizes, step.exact, values)]
    try:
        made = [x for x in rule(step) if x not in values and len(B.shape_of(x)) <= 4]
        new = nodes[before:]
        if not made or any(node.op == "guard" for node in new) or not _keeps_exact(new, step.exact):
            raise ShapeError("it is not for all sizes, or jumps")
        if not all(_is_possible(x) for node in new for x in node.results):
            raise ShapeError("a size is below 0 somewhere")
        _calls(new, values, sizes)
        good = all(_is_good(values[x]) for node in new if node.op != "philox" for x in node.results)
    except (ShapeError, DtypeError, UnsupportedOp, IndexError, ZeroDivisionError):
        good = False
    if good:
        step.terms.extend(made)
        return True
    for node in reversed(nodes[before:]):
        erase(step.b.block, node)
    for old, now in zip(olds, (sizes, step.exact, values), strict=True):
        now.clear()
        now.update(old)
    return False


def _is_possible(x: Value) -> bool:
    """Whether at any of SHAPES no size of `x` is below 0, as far as they decide it, nor all are too much."""
    sizes = x.type.shape if isinstance(x.type, TensorType) else ()
    known = [d for d in sizes if not isinstance(d, sympy.Expr) or d.free_symbols <= {S, T}]
    if all(isinstance(d, int) for d in known):
        return True
    found = [[evaluate(d, _sizes(shape)) for d in known] for shape in SHAPES]
    return all(min(at) >= 0 and prod(at) <= MAX_ELEMENTS for at in found)


def _keeps_exact(nodes: Sequence[Node], exact: dict[Value, bool]) -> bool:
    """Tell for each result in `exact` whether it is; False where a step has a rough argument."""
    for node in nodes:
        is_exact = all(arg is None or exact[arg] for arg in node.args)
        if not is_exact and (node.op in STEPS or not all(_is_float(x) for x in node.results)):
            return False
        if node.op.startswith(POLYNOMIALS) and not exact[cast(Value, node.args[1])]:  # the degree
            return False
        sure = node.op in EXACT or not all(_is_float(x) for x in node.results)
        exact.update(dict.fromkeys(node.results, sure and is_exact))
    return True


def _is_float(x: Value) -> bool:
    return isinstance(x.type, TensorType) and x.type.dtype in FLOATS


def _is_good(x: Any) -> bool:
    with np.errstate(all="ignore"):
        return bool(x.size == 0 or (np.isfinite(x).all() and np.abs(x.astype(float)).max() < LIMIT))


def inputs_of(graph: Graph, shape: Sequence[int], seed: int) -> list[Any]:
    """Return inputs at a shape, in computing form: small whole numbers, or floats between -3 and 3."""
    rng, sizes = np.random.default_rng(seed), _sizes(shape)
    found = []
    for i, param in enumerate(graph.body.params):
        at = tuple(evaluate(dim, sizes) for dim in B.shape_of(param))
        dtype = B.dtype_of(param)
        whole = rng.integers(0 if dtype == "u8" else -4, 5, at)
        if dtype in FLOATS:
            numbers = rng.uniform(-3, 3, at) if i % 2 == 0 else whole
            found.append(round_to(numbers.astype(np.float64 if dtype == "f64" else np.float32), param.type))
        else:
            found.append(whole > 0 if dtype == "bool" else whole.astype(_NUMPY[dtype]))
    return found


_NUMPY = {dtype: np.dtype(f"{dtype[0]}{int(dtype[1:]) // 8}") for dtype in INTS}


def _wave(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function in f64: NaN at infinities, the definition far out, where scipy's are not exact."""

    def of(x: Any) -> Any:
        found = np.where(np.isinf(x), np.nan, function(x))
        far = np.isfinite(x) & (np.abs(x) > 1e6)
        if far.any():
            found[far] = FUNCTIONS[name].reference(np.asarray(x)[far])
        return found

    return of


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda x: function(torch.as_tensor(np.array(x, order="C"))).numpy()


#: Definitions by mpmath or in Python take up to milliseconds for each element; these functions of f64 do not.
#: PyTorch's own J, Y and Ai are good to seven digits only.
_QUICK: dict[str, Callable[[Any], Any]] = {
    "erfinv": _by_torch(torch.special.erfinv),
    "erfcx": _by_torch(torch.special.erfcx),
    "ndtri": _by_torch(torch.special.ndtri),
    "log_ndtr": _by_torch(torch.special.log_ndtr),
    "bessel_j0": _wave("bessel_j0", special.j0),
    "bessel_j1": _wave("bessel_j1", special.j1),
    "bessel_y0": _wave("bessel_y0", special.y0),
    "bessel_y1": _wave("bessel_y1", special.y1),
    "bessel_k0": _by_torch(torch.special.modified_bessel_k0),
    "bessel_k1": _by_torch(torch.special.modified_bessel_k1),
    "bessel_k0e": _by_torch(torch.special.scaled_modified_bessel_k0),
    "bessel_k1e": _by_torch(torch.special.scaled_modified_bessel_k1),
    "airy_ai": _wave("airy_ai", lambda x: special.airy(x)[0]),
}
#: Of halves they are kept in f32, past whose greatest number a running product stays infinite.
_SCANS = {"sum": np.add, "prod": np.multiply}


def _scatter(node: Node, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A scatter, rounded after each update; of many, which by definition take a step each, by numpy, which
    goes in the same order."""
    base, index, source = args
    axis, mode, updates = attrs["axis"], attrs["mode"], attrs["updates"]
    base = np.broadcast_to(base, attrs["shape"])
    index, source = np.broadcast_to(index, updates), np.broadcast_to(source, updates)
    if updates[axis] <= MANY_UPDATES or mode not in ("set", *_UPDATES):
        return reference.scatter(
            base, index, source, axis, mode, lambda x: np.asarray(round_to(x, node.result.type))
        )
    out, places = np.array(base), list(np.ogrid[tuple(map(slice, updates))])
    places[axis] = index
    if mode == "set":
        out[tuple(places)] = source
    else:
        _UPDATES[mode].at(out, tuple(places), source)
    return out


_UPDATES = {"sum": np.add, "max": np.maximum}
MANY_UPDATES = 4096


def _reference(node: Node, args: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """Return the results of a node by its operator's definition."""
    if node.op in _QUICK:
        made = _QUICK[node.op](np.asarray(args[0], np.float64)).astype(args[0].dtype)
    elif node.op == "scan" and attrs["function"] in _SCANS and B.dtype_of(node.args[0]) in ("f16", "bf16"):
        made = _SCANS[attrs["function"]].accumulate(args[0], axis=1)
    elif node.op == "scatter":
        made = _scatter(node, args, attrs)
    else:
        made = OPS[node.op].reference(args, attrs)
    made = [made] if len(node.results) == 1 else made
    return [np.asarray(round_to(x, result.type)) for x, result in zip(made, node.results, strict=True)]


#: A node with its attributes at sizes.
Call = tuple[Node, dict[str, Any]]


def _calls(nodes: Sequence[Node], values: dict[Value, Any], sizes: dict[str, int]) -> list[Call]:
    """Evaluate nodes: add their results to `values`, and sizes that are found in data to `sizes`."""
    calls: list[Call] = []
    with np.errstate(all="ignore"):
        for node in nodes:
            attrs = {name: _known(value, sizes) for name, value in node.attrs.items()}
            results = _reference(node, [None if x is None else values[x] for x in node.args], attrs)
            if node.op == "item":
                sizes[node.attrs["symbol"]] = int(results[0])
            values.update(zip(node.results, results, strict=True))
            calls.append((node, attrs))
    return calls


def _known(value: Any, sizes: Mapping[str, int]) -> Any:
    """Return an attribute with its dimensions at `sizes`."""
    if isinstance(value, sympy.Expr):
        return evaluate(value, sizes)
    return tuple(_known(item, sizes) for item in value) if isinstance(value, tuple) else value


def _noisy(calls: Sequence[Call], values: Mapping[Value, Any], seed: int) -> dict[Value, Any]:
    """Return the values of calls where what is rough is off by a little; of the others, those of `values`."""
    noise = np.random.default_rng(seed)
    found: dict[Value, Any] = {}
    with np.errstate(all="ignore"):
        for node, attrs in calls:
            is_rough = node.op not in EXACT and all(map(_is_float, node.results))
            if not is_rough and not any(x in found for x in node.args):
                continue
            args = [None if x is None else found[x] if x in found else values[x] for x in node.args]
            coarse = _coarseness(node, args)
            if is_rough and coarse > 1:
                args = [_off(arg, x, noise, coarse) for arg, x in zip(args, node.args, strict=True)]
            for result, value in zip(node.results, _reference(node, args, attrs), strict=True):
                found[result] = _off(value, result, noise, coarse) if is_rough else value
                if node.op in ("gelu", "gelu_erf", "silu", "silu_exp"):
                    form = "silu" if node.op.startswith("silu") else node.attrs.get("approximate", "none")
                    part = CANCELS[form]
                    found[result] = found[result] + part * np.abs(args[0])
                elif node.op == "layer_norm":
                    axes = tuple(range(-node.attrs["n_axes"], 0))
                    found[result] = np.where(_overflows(args[0], axes, True), np.nan, found[result])
                elif node.op == "var":
                    over = _overflows(args[0], node.attrs["axes"], node.attrs["keepdim"])
                    found[result] = np.where(over, np.nan, found[result])
                elif node.op == "reduce_prod":  # infinite in some orders, NaN where a zero comes later
                    greatest = np.prod(
                        np.maximum(np.abs(args[0]), 1), axis=-1, keepdims=True, dtype=np.float64
                    )
                    found[result] = np.where(greatest > GREATEST["f32"], np.nan, found[result])
                elif node.op == "scatter" and B.dtype_of(result) in ("f16", "bf16"):
                    found[result] = found[result] + _rounded_on_the_way(node, attrs, args[2])
    return found


def _rounded_on_the_way(node: Node, attrs: Mapping[str, Any], x: Any) -> float:
    """Return how far sums of halves are off that are rounded after each number; NaN where that is open."""
    n = attrs["updates"][attrs["axis"]] if attrs["mode"] == "sum" else 0
    if n > MANY_UPDATES:  # small numbers are lost beside large sums, but not in f32, where `_scatter` adds
        return np.nan
    return n * _scale(node.result) * float(np.max(np.abs(x), initial=0)) / 64


def _overflows(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Where the squares of a variance are past f32's greatest number together. A normalisation's are in
    PyTorch too, which gives 0 or NaN there, by the length of its vectors; its variance adds up in f64, ours
    in f32. The definitions are in f64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=axes, keepdims=True)
    return np.sum(np.square(centred), axis=axes, keepdims=keepdims) > GREATEST["f32"]


def _coarseness(node: Node, args: Sequence[Any]) -> float:
    """Return how much coarser than rounding a node is: it adds up, or rounds on the way. Products are added
    up one after the other."""
    if OPS[node.op].kind == "pointwise":
        return 1
    of, axis = _ADDED_UP.get(node.op, (0, None))
    return SUMS * (1 if axis is None else max(1, args[of].shape[axis] / MANY))


#: (argument, axis) whose elements are the products of a sum.
_ADDED_UP = {"matmul": (0, -1), "linear": (0, -1), "conv": (1, 0), "attention": (1, -2)}


def _off(value: Any, of: Value | None, noise: np.random.Generator, coarse: float) -> Any:
    """Return what floats may be where they are rounded: none of them is what it was."""
    if of is None or not _is_float(of):
        return value
    amount = noise.uniform(-1, 1, value.shape)
    amount += np.copysign(0.5, amount)  # between 0.5 and 1.5, of either sign
    return (value * (1 + _scale(of, coarse) * amount)).astype(value.dtype)


def _scale(of: Value, coarse: float = 1) -> float:
    """Return how much rounding floats takes, relative to them."""
    return {"f16": 2.0**-10, "bf16": 2.0**-7}.get(B.dtype_of(of), coarse * NOISE)


def expected(graph: Graph, shape: Sequence[int], inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (value, tolerance) of every output at a shape, by the operators' references. `inputs`: in
    computing form. The reciprocal of what may be 0 may be anything."""
    values = dict(zip(graph.body.params, inputs, strict=True))
    calls = _calls(graph.body.nodes, values, _sizes(shape))
    noisy = [_noisy(calls, values, i) for i in range(N_NOISES)]
    found = []
    for result in graph.body.results:
        value = values[result]
        if result not in noisy[0]:
            found.append((value, np.zeros(value.shape)))
            continue
        with np.errstate(all="ignore"):
            off = np.max([np.abs(run[result] - value) for run in noisy], axis=0)
            most = np.max(np.abs(value), initial=0, where=np.isfinite(value))
            own = 2 * _scale(result) * np.abs(value)
            is_open = np.isnan(off)
            if result.node.op == "reciprocal":
                is_open |= 16 * off >= np.abs(value)
            found.append((value, np.where(is_open, np.inf, 16 * off + own + 2.0**-20 * most)))
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
        if _is_float(result):  # what may be past the greatest number may be infinite
            is_past = np.abs(value.astype(float)) + tolerance > GREATEST[result.type.dtype]
            near |= np.isinf(actual.astype(float)) & is_past & (np.signbit(actual) == np.signbit(value))
    bad = ~(same | near | np.isinf(tolerance))
    if not bad.any():
        return ""
    first = f"{actual[bad][0]!r} is not {value[bad][0]!r} +- {tolerance[bad][0]:g}"
    return f"{int(bad.sum())} of {bad.size}: {first}"
