"""Constant folding: nodes whose arguments are all constant are computed at compile time.

Transpositions and reductions of weights always fold, however large: they move data once rather than at every
call, or reduce it. Products and elementwise results of f32 weights fold if they are no larger than the
largest of their constants (a table that is normalised and projected, a weight times its norm). Other nodes
fold if they have at most SMALL elements. An `expand` by itself never folds; it is folded together with a
computation whose result is no larger. A weight in f16, bf16 or i8 that products and convolutions read in f32
also folds, because panels of products are narrow again (`compiler.lower.weights`). So does one in f32 that is
rounded to f16 or bf16 for them, as under autocast. If results must have the same bits on all targets, only
functions fold that every machine computes exactly: numpy's others depend on the compiling machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from ...jit.evaluation import from_memory, to_memory
from ...jit.math.table import OPS as MATH
from ...vm.program import NUMPY_DTYPES
from ..ir.dims import symbols_of
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.types import ScalarType, TensorType
from ..ops import OPS
from .rewrite import rewrite

SMALL = 4096  # elements
MOVES = ("permute", "reshape", "slice", "divisor")  # they copy bits, for every dtype
COMPUTES = ("pointwise", "concat", "reduce", "gather", "matmul")  # kinds that fold when small
LOOKED_THROUGH = ("full", "iota", "expand")  # no constants by themselves, but computable
HALF = ("f16", "bf16")  # their rounding is left to the kernels
NARROW = (*HALF, "i8")  # dtypes from which weights are widened


def fold_constants(graph: Graph) -> None:
    """Make constant tensors `constant` nodes, and ints that are expressions of size symbols `size` nodes."""
    rewrite(graph, _constant_of)


def _constant_of(builder: Builder, node: Node) -> Value | None:
    return (_known_int(builder, node) or _folded(builder, node)) if node.op in OPS else None


def _known_int(builder: Builder, node: Node) -> Value | None:
    type = node.result.type
    if OPS[node.op].kind != "value" or node.op in ("size", "item") or not isinstance(type, ScalarType):
        return None
    if type.expr is None or not symbols_of(type.expr) <= set(builder.graph.symbols):
        return None
    return builder.size(type.expr)


def _folded(builder: Builder, node: Node) -> Value | None:
    type = node.result.type
    if not isinstance(type, TensorType) or not node.args or not _may_fold(node, type):
        return None
    if builder.graph.rounding.is_portable and not _is_exact(node):
        return None
    array = _converted(node) if _is_converted(node) else _computed(node)
    if array is None:
        return None
    array = np.asarray(array, NUMPY_DTYPES[type.dtype])  # a view of moved data: packing or writing copies it
    return builder.constant(array, type.dtype, _name(node))


def _is_exact(node: Node) -> bool:
    """Whether numpy computes the same bits on every machine."""
    function = MATH.get(node.op)
    return node.op != "matmul" and (function is None or function.ulp == (0, 0))


def _may_fold(node: Node, type: TensorType) -> bool:
    if node.op in MOVES:
        return True
    kind = OPS[node.op].kind
    is_small = kind in COMPUTES and n_elements(type) <= SMALL
    return kind == "reduce" or is_small or _is_of_weights(node, type) or _is_converted(node)


def _is_of_weights(node: Node, type: TensorType) -> bool:
    """Return True if `node` computes f32 from f32 constants, one of which is as large as its result."""
    if OPS[node.op].kind not in ("pointwise", "matmul") or type.dtype != "f32":
        return False
    constants = [arg.tensor for arg in node.present if arg.node is not None and arg.node.op == "constant"]
    sizes = [n_elements(each) for each in constants if each.dtype == "f32"]
    return bool(sizes) and n_elements(type) <= max(sizes)


def _is_converted(node: Node) -> bool:
    """Return True if `node` converts a weight of products and convolutions."""
    return _is_widened(node) or _is_narrowed(node)


def _is_widened(node: Node) -> bool:
    """Return True if `node` casts a constant of NARROW only for products and convolutions."""
    if node.op != "cast":
        return False
    (arg,) = node.present
    is_narrow = isinstance(arg.type, TensorType) and arg.type.dtype in NARROW and len(arg.type.shape) >= 2
    is_wide = node.result.tensor.dtype == "f32"
    return is_narrow and is_wide and _is_weight(node.result) and _constant(arg) is not None


def _is_weight(value: Value) -> bool:
    """Return True if `value`, perhaps moved, is used only as the right operand of products and
    convolutions."""
    return bool(value.users) and all(
        user.args[1] is value and user.args[0] is not value
        if user.op in ("matmul", "conv")
        else user.op in MOVES and _is_weight(user.result)
        for user in value.users
    )


def _is_narrowed(node: Node) -> bool:
    """Return True if `node` rounds a constant in f32 to HALF, only for products and convolutions."""
    if node.op != "cast" or node.result.tensor.dtype not in HALF:
        return False
    (arg,) = node.present
    is_constant = arg.node is not None and arg.node.op == "constant" and arg.tensor.dtype == "f32"
    return is_constant and len(arg.tensor.shape) >= 2 and _is_widened_only(node.result)


def _is_widened_only(value: Value) -> bool:
    """Return True if `value`, perhaps moved, is only cast to f32 as a weight."""
    return bool(value.users) and all(
        user.result.tensor.dtype == "f32" and _is_weight(user.result)
        if user.op == "cast"
        else user.op in MOVES and _is_widened_only(user.result)
        for user in value.users
    )


def _converted(node: Node) -> np.ndarray:
    """Return a constant of NARROW in f32, or one in f32 in HALF."""
    (arg,) = node.present
    wide = from_memory(_constant(arg), arg.tensor.dtype)
    return np.asarray(to_memory(wide, node.result.tensor.dtype))


def n_elements(type: TensorType) -> float:
    """Return the number of elements, infinite if it is not constant."""
    return float(np.prod(type.shape)) if all(isinstance(d, int) for d in type.shape) else float("inf")


def _constant(value: Value, is_reduced: bool = False, limit: float = SMALL) -> np.ndarray | None:
    """Return the constant array of `value`, if it is known and an expand does not make it larger than `limit`
    elements. `is_reduced`: it is for a reduction, so conversions and moves of a constant are folded as
    well."""
    node = value.node
    if node is None or not isinstance(value.type, TensorType):
        return None
    if node.op == "constant":
        return node.attrs["array"]
    if is_reduced and (node.op == "cast" or node.op in MOVES):
        return _computed(node, is_reduced)
    if node.op in LOOKED_THROUGH and n_elements(value.type) <= limit:
        return _computed(node)
    return None


def evaluated(value: Value) -> np.ndarray | None:
    """Return the constant array of `value`, computed by any operators and of any size, as for weights that a
    quantiser has not rounded yet. None if it depends on an input or a dtype of HALF."""
    known: dict[Value, np.ndarray] = {}
    waiting = [value]
    while waiting:
        each = waiting[-1]
        node = each.node
        if node is None or not _is_evaluated(each, node):
            return None
        unknown = [arg for arg in node.present if arg not in known]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        arrays = [arg if arg is None else known[arg] for arg in node.args]
        found = node.attrs["array"] if node.op == "constant" else _result(node, arrays)
        if found is None:
            return None
        known[each] = found
    return known[value]


def _is_evaluated(value: Value, node: Node) -> bool:
    """Whether `evaluated` computes a value from its operands, or reads it."""
    if not isinstance(value.type, TensorType) or value.type.dtype in HALF or node.op not in OPS:
        return False
    return OPS[node.op].kind in COMPUTES or node.op in ("constant", *MOVES, *LOOKED_THROUGH)


def _computed(node: Node, is_reduced: bool = False) -> np.ndarray | None:
    """Return the node's result, None if an argument or attribute is not constant or a dtype is HALF."""
    is_reduced = is_reduced or OPS[node.op].kind == "reduce"
    limit = max(SMALL, n_elements(node.result.tensor)) if OPS[node.op].kind == "pointwise" else SMALL
    arrays = [_constant(arg, is_reduced, limit) if arg is not None else None for arg in node.args]
    types = [value.type for value in (*node.args, *node.results) if value is not None]
    is_half = any(isinstance(type, TensorType) and type.dtype in HALF for type in types)
    if any(array is None for array in arrays) or (is_half and node.op not in MOVES):
        return None
    return _result(node, arrays)


def _result(node: Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the node's result by its reference, None if an attribute is a run-time size or it divides by
    zero."""
    if any(map(symbols_of, _dims(list(node.attrs.values())))):
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(ZeroDivisionError):
        warnings.simplefilter("ignore")  # numpy warns of overflow in casts, PyTorch does not
        return np.asarray(OPS[node.op].reference(arrays, node.attrs))
    return None  # calls raise it


def _dims(items: Sequence[object]) -> list:
    """Return the dimension expressions among attributes."""
    found: list = []
    for item in items:
        if isinstance(item, tuple):
            found += _dims(item)
        elif hasattr(item, "free_symbols"):
            found.append(item)
    return found


def _name(node: Node) -> str:
    """Return the name of the first argument that has one, so a folded weight keeps its name."""
    names = (arg.node.attrs.get("name", "") for arg in node.args if arg is not None and arg.node is not None)
    return next((name for name in names if name), "")
