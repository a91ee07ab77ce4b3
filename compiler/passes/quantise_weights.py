"""`weights="int8"`, `weights="int4"`: constant weights of matrix products become small integers with scales.

Under int8 a column has one scale, which maps its greatest magnitude to 127 and multiplies the product's sums.
Under int4 each GROUP successive steps of a column have one, which maps them to -8 .. 7; weights whose steps
are not a multiple of GROUP get a scale for each column and byte integers. Weights that are not finite, or
already hold byte integers, are unchanged, and so are those that would change by more than
`Rounding.max_error`, or whose products would be slower than in f32 (`slower_than_f32`, `SLOWER_FROM`).
`Rounding.weights` records the outcome for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...jit.families.matmul import digits
from ..ir.dims import product
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.ranges import bounds
from ..ir.rounding import RoundedWeight, Rounding
from ..lower.weights import slower_than_f32
from ..ops import build as B
from .move_scales import by_groups
from .rewrite import rewrite

MAX_INTEGER = 127
GROUP = 32  # steps that share a scale under int4
LEAST, GREATEST = -8, 7  # integers of four bits
TINY = "a scale would be a subnormal number"

#: Rows of f32 from which a product by a weight in a format is slower than in f32, by target. Measured
#: with weights in the second-level cache (benchmarks/log/quantised.md); others are not slower.
SLOWER_FROM = {"int4": {"x86-64-v4": 96, "x86-64-v4-vnni": 96}}

Quantised = tuple[np.ndarray, np.ndarray]  # integers and scales


def quantise_weights(graph: Graph) -> None:
    """Quantise the weights of products, if `Graph.rounding` requires it."""
    if graph.rounding.dtype not in FORMATS:
        return
    known: dict[Value, Quantised | None] = {}  # a weight may have several readers
    rewrite(graph, lambda b, node: _by_integers(b, node, known) if node.op == "matmul" else None)


def _by_integers(b: Builder, node: Node, known: dict[Value, Quantised | None]) -> Value | None:
    """Return a product by a constant as one by integers and their scales."""
    weight = node.arg(1)
    if weight.node is None or weight.node.op != "constant" or weight.tensor.dtype != "f32":
        return None
    name = str(weight.node.attrs["name"])
    if weight not in known:
        known[weight] = _chosen(b.graph.rounding, name, weight.node.attrs["array"], _least_rows(b, weight))
    found = known[weight]
    if found is None:
        return None
    integers, scales = found
    if scales.ndim == 2:
        return by_groups(b, node.arg(0), name, integers, scales)
    result = b.one("matmul", node.arg(0), b.constant(integers, "f32", name))
    return B.pointwise(b, "mul", result, b.constant(scales, "f32", f"{name}.scale"))


def _least_rows(b: Builder, weight: Value) -> int:
    """Return the least number of rows of products by a weight."""
    found = [product(B.shape_of(user.arg(0))[:-1]) for user in weight.users if user.op == "matmul"]
    return min((bounds(rows, b.graph.symbols)[0] or 0 for rows in found), default=0)


def _slower(dtype: str, shape: Sequence[int], rows: int, targets: Sequence[str]) -> str:
    """Return why a format does not pay for products of at least `rows` rows with a weight of `shape`, "" if
    it does."""
    if len(shape) == 2 and digits.multiply_bytes(targets):
        k, n = shape
        return slower_than_f32(k, n, GROUP if dtype == "int4" else digits.steps(k), rows, targets)
    limits = SLOWER_FROM.get(dtype, {})
    name = next((name for name in targets if rows >= limits.get(name, rows + 1)), "")
    return f"on {name} products of {limits[name]} rows and more are slower than in f32" if name else ""


def _chosen(rounding: Rounding, name: str, weight: np.ndarray, rows: int) -> Quantised | None:
    """Return a weight in the smallest format, starting with the requested one, whose error is allowed and
    which is not slower than f32 for at least `rows` rows; None if it stays in f32. Notes the choice and the
    reason."""
    reasons = [rounding.reasons[name]] if name in rounding.reasons else []
    names = list(FORMATS)
    for dtype in names[names.index(rounding.dtype) :]:
        if slower := _slower(dtype, weight.shape, rows, rounding.targets):
            reasons.append(f"{dtype}: {slower}")
            continue
        found = FORMATS[dtype](weight)
        if isinstance(found, str):
            reasons.append(f"{dtype}: {found}")
            continue
        error = error_of(weight, *found)
        if rounding.max_error is None or error <= rounding.max_error:
            _note(rounding, name, weight, found, error, "; ".join(reasons))
            return found
        reasons.append(f"{dtype}: its error would be {error:.2g}, above {rounding.max_error:g}")
    if slower:  # int8, the last of them
        rounding.in_f32.add(name)
    _note(rounding, name, weight, None, 0.0, "; ".join(reasons))
    return None


def _note(
    rounding: Rounding, name: str, weight: np.ndarray, found: Quantised | None, error: float, reason: str
) -> None:
    shape = tuple(map(int, weight.shape))
    if found is None:
        held, size = "f32", 4 * weight.size
    else:
        held = f"int4, groups of {GROUP}" if found[1].ndim == 2 else "int8"
        size = n_bytes(*found)
    rounding.weights[name] = RoundedWeight(name, shape, held, size, error, reason)


def n_bytes(integers: np.ndarray, scales: np.ndarray) -> int:
    """Return the bytes of integers and scales in the storage format of products."""
    return (integers.size // 2 if scales.ndim == 2 else integers.size) + 4 * scales.size


def error_of(weight: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> float:
    """Return the norm of the rounding error relative to the weight's norm."""
    wide = scales if scales.ndim == 1 else np.repeat(scales, GROUP, axis=0)
    changed = np.linalg.norm(integers * wide - weight, axis=0).astype(np.float64)
    whole = np.linalg.norm(weight, axis=0).astype(np.float64)
    return float(np.linalg.norm(changed) / np.linalg.norm(whole)) if whole.any() else 0.0


def quantised(weight: np.ndarray) -> Quantised | str:
    """Return the integers of a weight [K, N], in f32, and the scale of each column, or why there are none."""
    if reason := _why_not(weight):
        return reason
    greatest = np.abs(weight).max(0)
    scales = _scales(greatest / np.float32(MAX_INTEGER), greatest == 0)
    if scales is None:
        return TINY
    return np.rint(weight / scales).astype(np.float32) + np.float32(0), scales  # no zero is negative


def quantised_in_groups(weight: np.ndarray) -> Quantised | str:
    """Return the integers of a weight [K, N], in i8 from -8 to 7, and the scales [K / GROUP, N], or why there
    are none."""
    if reason := _why_not(weight):
        return reason
    if weight.shape[0] % GROUP:
        return f"its {weight.shape[0]} steps are no multiple of {GROUP}"
    groups = weight.reshape(-1, GROUP, weight.shape[1])
    ends = groups.max(1) / np.float32(GREATEST), groups.min(1) / np.float32(LEAST)
    scales = _scales(np.maximum(*ends), (groups == 0).all(1))
    if scales is None:
        return TINY
    integers = np.clip(np.rint(groups / scales[:, None]), LEAST, GREATEST)
    return integers.astype(np.int8).reshape(weight.shape), scales


def _why_not(weight: np.ndarray) -> str:
    """Return why a weight cannot be rounded to integers, "" if it can, that is, if it is a matrix of finite
    numbers that are not already byte integers."""
    if weight.ndim != 2 or not weight.size:
        return "it is no matrix with elements"
    if not np.isfinite(weight).all():
        return "a number is not finite"
    is_large = np.abs(weight).max() > MAX_INTEGER
    return (
        ""
        if is_large or not np.array_equal(weight, np.rint(weight))
        else "its numbers are integers of a byte"
    )


def _scales(steps: np.ndarray, are_zeros: np.ndarray) -> np.ndarray | None:
    """Return scales of such steps, 1 for zeros; None if one is not a normal number."""
    scales: np.ndarray = np.where(are_zeros, np.float32(1), steps).astype(np.float32)
    return scales if (scales >= np.finfo(np.float32).tiny).all() else None


#: By dtype, in the order of their errors: a weight's integers and scales, or why there are none.
FORMATS: dict[str, Callable[[np.ndarray], Quantised | str]] = {"int4": quantised_in_groups, "int8": quantised}
