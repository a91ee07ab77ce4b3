"""Constant folding: nodes whose arguments are all constant are computed when compiling.

Weights' transpositions and reductions always fold, however large: they move data once, not at every call, or
make less of it. Products and elementwise results of f32 weights fold where they are no larger than the
largest constant that they are made of (a table that is normalised and projected, a weight times its norm).
Other nodes fold while they do not make the program larger than SMALL elements each. An `expand` by itself
never folds; it is looked through where something no larger is computed from it. A weight in
f16, bf16 or i8 that products and convolutions take in f32 folds as well: panels of products are narrow again
(`compiler.lower.weights`). So does one in f32 that is rounded to f16 or bf16 for them, as under autocast.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ...jit.evaluation import from_memory, to_memory
from ...vm.program import NUMPY_DTYPES
from ..ir.dims import symbols_of
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.types import ScalarType, TensorType
from ..ops import OPS
from .rewrite import rewrite

SMALL = 4096  # elements
MOVES = ("permute", "reshape", "slice")  # they copy bits, for every dtype
COMPUTES = ("pointwise", "concat", "reduce", "gather", "matmul")  # kinds that fold when small
LOOKED_THROUGH = ("full", "iota", "expand")  # no constants by themselves, but computable
HALF = ("f16", "bf16")  # their rounding is the kernels' affair
NARROW = (*HALF, "i8")  # what weights are widened from


def fold_constants(graph: Graph) -> None:
    """Make constant tensors `constant` nodes, and ints that are known in size symbols `size` nodes."""
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
    array = _converted(node) if _is_converted(node) else _computed(node)
    if array is None:
        return None
    array = np.asarray(array, NUMPY_DTYPES[type.dtype])  # of a move a view: packing or writing copies it
    return builder.constant(array, type.dtype, _name(node))


def _may_fold(node: Node, type: TensorType) -> bool:
    if node.op in MOVES:
        return True
    kind = OPS[node.op].kind
    is_small = kind in COMPUTES and n_elements(type) <= SMALL
    return kind == "reduce" or is_small or _is_of_weights(node, type) or _is_converted(node)


def _is_of_weights(node: Node, type: TensorType) -> bool:
    """Return True where `node` makes f32 of constants in f32, one of which is as large as its result."""
    if OPS[node.op].kind not in ("pointwise", "matmul") or type.dtype != "f32":
        return False
    constants = [arg.tensor for arg in node.present if arg.node is not None and arg.node.op == "constant"]
    sizes = [n_elements(each) for each in constants if each.dtype == "f32"]
    return bool(sizes) and n_elements(type) <= max(sizes)


def _is_converted(node: Node) -> bool:
    """Return True where `node` converts a weight of products and convolutions."""
    return _is_widened(node) or _is_narrowed(node)


def _is_widened(node: Node) -> bool:
    """Return True where `node` casts a constant of NARROW for products and convolutions alone."""
    if node.op != "cast":
        return False
    (arg,) = node.present
    is_narrow = isinstance(arg.type, TensorType) and arg.type.dtype in NARROW and len(arg.type.shape) >= 2
    is_wide = node.result.tensor.dtype == "f32"
    return is_narrow and is_wide and _is_weight(node.result) and _constant(arg) is not None


def _is_weight(value: Value) -> bool:
    """Return True where `value`, perhaps moved, is only ever the right operand of products and
    convolutions."""
    return bool(value.users) and all(
        user.args[1] is value and user.args[0] is not value
        if user.op in ("matmul", "conv")
        else user.op in MOVES and _is_weight(user.result)
        for user in value.users
    )


def _is_narrowed(node: Node) -> bool:
    """Return True where `node` rounds a constant in f32 to HALF, and only what products and convolutions take
    is made of it."""
    if node.op != "cast" or node.result.tensor.dtype not in HALF:
        return False
    (arg,) = node.present
    is_constant = arg.node is not None and arg.node.op == "constant" and arg.tensor.dtype == "f32"
    return is_constant and len(arg.tensor.shape) >= 2 and _is_widened_only(node.result)


def _is_widened_only(value: Value) -> bool:
    """Return True where `value`, perhaps moved, is only ever cast to f32 as a weight."""
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
    """Return the number of elements, infinite where it is not constant."""
    return float(np.prod(type.shape)) if all(isinstance(d, int) for d in type.shape) else float("inf")


def _constant(value: Value, is_reduced: bool = False, limit: float = SMALL) -> np.ndarray | None:
    """Return the array that `value` always is, if it is known and not made larger than `limit` elements by an
    expand. `is_reduced`: it is for a reduction, which makes less of it: what converts and moves a constant is
    looked through."""
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
    """Return the array that `value` always is, made of constants by any operators and of any size: as
    quantisers write weights that they have not rounded yet. None where an input or a dtype of HALF is on the
    way."""
    node, type = value.node, value.type
    if node is None or not isinstance(type, TensorType) or type.dtype in HALF or node.op not in OPS:
        return None
    if node.op == "constant":
        return node.attrs["array"]
    is_known = OPS[node.op].kind in COMPUTES or node.op in (*MOVES, *LOOKED_THROUGH)
    if not is_known:
        return None
    arrays = [None if arg is None else evaluated(arg) for arg in node.args]
    is_constant = sum(array is not None for array in arrays) == len(node.present)
    return _result(node, arrays) if is_constant else None


def _computed(node: Node, is_reduced: bool = False) -> np.ndarray | None:
    """Return the node's result, None where an argument or attribute is not constant or a dtype is HALF."""
    is_reduced = is_reduced or OPS[node.op].kind == "reduce"
    limit = max(SMALL, n_elements(node.result.tensor)) if OPS[node.op].kind == "pointwise" else SMALL
    arrays = [_constant(arg, is_reduced, limit) if arg is not None else None for arg in node.args]
    types = [value.type for value in (*node.args, *node.results) if value is not None]
    is_half = any(isinstance(type, TensorType) and type.dtype in HALF for type in types)
    if any(array is None for array in arrays) or (is_half and node.op not in MOVES):
        return None
    return _result(node, arrays)


def _result(node: Node, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the node's result by its reference, None where an attribute is a size that a call tells."""
    if any(map(symbols_of, _dims(list(node.attrs.values())))):
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # numpy warns of overflow in casts, PyTorch does not
        return np.asarray(OPS[node.op].reference(arrays, node.attrs))


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
    """Return the name of the first argument that has one: a folded weight keeps its name."""
    names = (arg.node.attrs.get("name", "") for arg in node.args if arg is not None and arg.node is not None)
    return next((name for name in names if name), "")
