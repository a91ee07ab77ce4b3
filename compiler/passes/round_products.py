"""`precision="bf16"`: products and convolutions by constant weights multiply operands rounded to bf16.

Sums stay in f32. If a program's operands are bf16 anyway, its products are exact and nothing is rounded: this
needs no option. Both become products of bf16, whose kernels use the target's instructions for them
(`jit.families.matmul`, layout "pairs"). A product stays in f32 if its form has no such kernel, if a weight is
not finite, if it would change by more than `Rounding.max_error`, or if it would be slower (`SLOWER_FROM`).
`Rounding.weights` records the outcome for each weight.
"""

from __future__ import annotations

from math import hypot

import numpy as np

from ...jit.evaluation import bf16_to_f32, f32_to_bf16
from ...jit.families.matmul.layouts import LAYOUTS, PAIRS_LAYOUT
from ...jit.llvm.target import find_target
from ..ir.dims import product
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.ranges import bounds
from ..ir.rounding import RoundedWeight, Rounding
from ..lower.packing import has_depthwise_kernel
from ..lower.specs import window_of
from ..lower.weights import held
from ..ops import OPS
from ..ops import build as B
from .rewrite import rewrite

STEPS = LAYOUTS[PAIRS_LAYOUT].together
FORM = "bf16 x bf16"
ACTIVATION_ERROR = 2.0**-9  # at most, of a number that is rounded to bf16


def round_products(graph: Graph) -> None:
    """Convert products to bf16 if their operands are bf16, or may be rounded to it."""
    rewrite(graph, lambda b, node: _product(b, node) if node.op in ("matmul", "conv") else None)


def _product(b: Builder, node: Node) -> Value | None:
    """Return a product of f32 by a constant as one of bf16, or None; notes the outcome for the weight."""
    x, weight = node.arg(0), node.arg(1)
    if {x.tensor.dtype, weight.tensor.dtype} != {"f32"} or len(node.present) != 2 or not _is_constant(weight):
        return None
    rounding, name = b.graph.rounding, str(weight.definition.attrs["name"])
    array: np.ndarray = weight.definition.attrs["array"]
    rounds = rounding.precision == "bf16"
    narrow = None if rounding.is_portable else _narrow(b, x)
    if not rounds and narrow is None:
        return None
    pairs = f32_to_bf16(array)
    error = error_of(array, pairs)
    if not rounds and error:
        return None
    error = error if narrow is not None else hypot(error, ACTIVATION_ERROR)
    reason = _why_not(node, array) or _too_wrong(rounding, error) or _slower(node, b.graph)
    if rounds:
        _note(rounding, name, array, "" if reason else FORM, error, reason)
    if reason:
        return None
    left = B.cast_to(b, x, "bf16") if narrow is None else narrow
    return b.one(node.op, left, b.constant(pairs, "bf16", name), **node.attrs)


def _is_constant(weight: Value) -> bool:
    return weight.node is not None and weight.node.op == "constant" and len(B.shape_of(weight)) == 2


def _narrow(b: Builder, x: Value) -> Value | None:
    """Return the bf16 value from which `x` was widened, moved like `x`; None if there is none."""
    views: list[Node] = []
    while x.node is not None and x.node.op in OPS and OPS[x.node.op].kind == "view" and x.node.op != "cast":
        views.append(x.node)
        x = x.node.arg(0)
    if x.node is None or x.node.op != "cast" or x.node.arg(0).tensor.dtype != "bf16":
        return None
    found = x.node.arg(0)
    for view in reversed(views):
        found = b.one(view.op, found, *view.args[1:], **view.attrs)
    return found


def _why_not(node: Node, weight: np.ndarray) -> str:
    """Return why a product has no kernel for bf16, "" if it has."""
    x, (k, n) = node.arg(0), weight.shape
    if not np.isfinite(weight).all():
        return "a number is not finite"
    if not weight.size:
        return "it has no elements"
    if held(weight, "f32")[1] == "i8":
        return "its numbers are integers of a byte"
    if node.op == "matmul":
        return f"its {k} steps are no multiple of {STEPS}" if k % STEPS else ""
    channels = B.shape_of(x)[-1]
    if node.attrs["planes"] or not isinstance(channels, int):
        return "the image's channels come first"
    if has_depthwise_kernel(window_of(node), False, channels, n):
        return "its groups are too narrow"
    if channels // node.attrs["groups"] % STEPS:
        return f"the {channels // node.attrs['groups']} channels of a group are no multiple of {STEPS}"
    return ""


def error_of(weight: np.ndarray, pairs: np.ndarray) -> float:
    """Return the norm of the rounding error relative to the weight's norm."""
    with np.errstate(invalid="ignore", over="ignore"):
        changed, whole = (float(np.linalg.norm(x)) for x in (bf16_to_f32(pairs) - weight, weight))
    return changed / whole if whole else 0.0


def _too_wrong(rounding: Rounding, error: float) -> str:
    limit = rounding.max_error
    if limit is None or error <= limit:
        return ""
    return f"its error would be {error:.2g}, above {limit:g}"


def _slower(node: Node, graph: Graph) -> str:
    """Return why products of bf16 would be slower than of f32, "" if they are not."""
    rows = bounds(product(B.shape_of(node.result)[:-1]), graph.symbols)[1]
    if rows is not None and rows < SLOWER_FROM:
        return ""
    name = next((name for name in graph.rounding.targets if not find_target(name).pairs), "")
    text = f"{name} has no instruction for it, and products of {SLOWER_FROM} rows and more are slower"
    return text if name else ""


#: Rows from which products are slower than in f32 on targets that must widen bf16.
SLOWER_FROM = 2


def _note(rounding: Rounding, name: str, weight: np.ndarray, form: str, error: float, reason: str) -> None:
    """Note the outcome for a weight, unless one was noted before, for example as integers."""
    k, n = map(int, weight.shape)
    if form:
        before = rounding.weights[name].reason if name in rounding.weights else ""
        rounding.weights[name] = RoundedWeight(name, (k, n), form, 2 * weight.size, error, before)
    elif name not in rounding.weights:
        rounding.weights[name] = RoundedWeight(name, (k, n), "f32", 4 * weight.size, 0.0, f"bf16: {reason}")
