"""The graph interpreter: the meaning of a graph, by the operators' numpy references. Slow and simple.

f16 and bf16 tensors are float32 arrays here, rounded to their dtype after every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from .ir.dims import evaluate
from .ir.errors import GuardError, ShapeError
from .ir.graph import Block, Graph, Node, Value
from .ir.types import ScalarType, TensorType, Type
from .ops import OPS
from .ops.rules import COMPUTE

Symbols = dict[str, int]
Host = Mapping[str, Callable[..., Sequence[Any]]]


def run(graph: Graph, inputs: Sequence[Any], host: Host | None = None) -> list[Any]:
    """Return the outputs of `graph` for `inputs` (arrays in storage form: bf16 as uint16; plain values as
    they are).

    `host`: the functions that `extern` nodes name. Raises ShapeError if an input violates its type or the
    contract of a symbol, or if a result's shape differs from the graph's.
    """
    symbols = bind_symbols(graph, inputs)
    values: dict[Value, Any] = {}
    for param, value in zip(graph.body.params, inputs, strict=True):
        values[param] = decode(value, param.type)
    _run_nodes(graph.body, values, symbols, host or {})
    return [encode(values[result], result.type) for result in graph.body.results]


def bind_symbols(graph: Graph, inputs: Sequence[Any]) -> Symbols:
    """Return the size symbols' values, from the inputs' sizes and ints; check the contract."""
    symbols: Symbols = {}
    shapes = [
        (name, param.type.shape, np.shape(value))
        for name, param, value in zip(graph.inputs, graph.body.params, inputs, strict=True)
        if isinstance(param.type, TensorType)
    ]
    for param, value in zip(graph.body.params, inputs, strict=True):
        if isinstance(param.type, ScalarType) and isinstance(param.type.expr, sympy.Symbol):
            symbols[str(param.type.expr)] = value
    for name, shape, actual in shapes:
        if len(shape) != len(actual):
            raise ShapeError(f"input {name}: its rank is {len(actual)}; it must be {len(shape)}")
        for dim, size in zip(shape, actual, strict=True):
            if isinstance(dim, sympy.Symbol):
                symbols.setdefault(str(dim), size)
            elif isinstance(dim, sympy.Expr) and len(dim.free_symbols) == 1:
                solve_size(dim, size, symbols)
    for name, shape, actual in shapes:
        for axis, (dim, size) in enumerate(zip(shape, actual, strict=True)):
            if evaluate(dim, symbols) != size:
                raise ShapeError(
                    f"input {name}: dimension {axis} is {size}; it must be {dim} = {evaluate(dim, symbols)}"
                )
    for name, value in symbols.items():
        info = graph.symbols.get(name)
        if info is not None and not info.min <= value <= (info.max if info.max is not None else value):
            raise ShapeError(f"size {name} is {value}; it must be in {info.min} .. {info.max}")
    return symbols


def solve_size(dim: sympy.Expr, size: int, symbols: Symbols) -> None:
    """Set the symbol of the linear expression `dim` such that it equals `size`, if that is an integer."""
    (unknown,) = dim.free_symbols
    slope = dim.coeff(unknown, 1)
    if str(unknown) not in symbols and sympy.expand(dim - slope * unknown).is_Integer:
        rest = size - int(sympy.expand(dim - slope * unknown))
        symbols[str(unknown)] = rest // int(slope)


def _run_nodes(block: Block, values: dict[Value, Any], symbols: Symbols, host: Host) -> None:
    for node in block.nodes:
        args = [None if arg is None else values[arg] for arg in node.args]
        results = (
            _CONTROL[node.op](node, args, values, symbols, host)
            if node.op in _CONTROL
            else evaluate_node(node, args, symbols)
        )
        for result, value in zip(node.results, results, strict=True):
            values[result] = _check(node, value, result.type, symbols)
            if isinstance(result.type, ScalarType) and isinstance(result.type.expr, sympy.Symbol):
                symbols[str(result.type.expr)] = value


def evaluate_node(node: Node, args: Sequence[Any], symbols: Symbols) -> list[Any]:
    """Return the values of a node that has no regions; f16 and bf16 results are rounded."""
    attrs = {name: _known(value, symbols) for name, value in node.attrs.items()}
    found = OPS[node.op].reference(args, attrs)
    values = [found] if len(node.results) == 1 else found
    return [round_to(value, result.type) for value, result in zip(values, node.results, strict=True)]


def _known(value: Any, symbols: Symbols) -> Any:
    """Return an attribute with its dimension expressions replaced by their values."""
    if isinstance(value, sympy.Expr):
        return evaluate(value, symbols)
    return tuple(_known(item, symbols) for item in value) if isinstance(value, tuple) else value


def _check(node: Node, value: Any, type: Type, symbols: Symbols) -> Any:
    if isinstance(type, TensorType):
        value = np.asarray(value)
        wanted = tuple(evaluate(dim, symbols) for dim in type.shape)
        if value.shape != wanted or value.dtype != COMPUTE[type.dtype]:
            raise ShapeError(
                f"{node.op}: the result is {value.dtype} {list(value.shape)}; its type {type} means "
                f"{COMPUTE[type.dtype]} {list(wanted)}" + (f" ({node.source})" if node.source else "")
            )
    return value


# Regions and calls --------------------------------------------------------------------------------


def _run_block(
    block: Block, args: Sequence[Any], values: dict[Value, Any], symbols: Symbols, host: Host
) -> list[Any]:
    values.update(zip(block.params, args, strict=True))
    _run_nodes(block, values, symbols, host)
    return [values[result] for result in block.results]


def _if(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    return _run_block(node.regions[0 if args[0] else 1], args[1:], values, symbols, host)


def _fused(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    return _run_block(node.regions[0], args, values, symbols, host)


def _while(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    condition, body = node.regions
    while _run_block(condition, args, values, symbols, host)[0]:
        args = _run_block(body, args, values, symbols, host)
    return args


def _call(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    graph: Graph = node.attrs["function"]
    stored = [encode(arg, param.type) for arg, param in zip(args, graph.body.params, strict=True)]
    outputs = run(graph, stored, host)
    return [decode(value, result.type) for value, result in zip(outputs, graph.body.results, strict=True)]


def _extern(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    stored = [
        value if arg is None else encode(value, arg.type) for value, arg in zip(args, node.args, strict=True)
    ]
    outputs = host[node.attrs["name"]](*stored)
    sizes = [np.shape(outputs[result])[axis] for _, result, axis in node.attrs.get("sizes", ())]
    symbols.update(zip((name for name, _, _ in node.attrs.get("sizes", ())), sizes, strict=True))
    given = zip(outputs, node.results[len(sizes) :], strict=True)
    return [*sizes, *(decode(value, result.type) for value, result in given)]


def _guard(node: Node, args: list[Any], values: dict[Value, Any], symbols: Symbols, host: Host) -> list[Any]:
    if not args[0]:
        raise GuardError(args[1] if len(args) > 1 else node.attrs["message"], source=node.source)
    return []


_CONTROL = {
    "guard": _guard,
    "if": _if,
    "while": _while,
    "fused": _fused,
    "call": _call,
    "extern": _extern,
}


# f16 and bf16 -------------------------------------------------------------------------------------


def round_to(value: Any, type: Type) -> Any:
    """Return a tensor rounded to its dtype (float32 arrays for f16 and bf16); others unchanged."""
    if not isinstance(type, TensorType) or type.dtype not in ("f16", "bf16"):
        return value
    return decode(encode(value, type), type)


def encode(value: Any, type: Type) -> Any:
    """Return a tensor in storage form: f16 as float16, bf16 as uint16 bits (nearest, ties to even; NaN is
    0x7FC0)."""
    if not isinstance(type, TensorType):
        return value
    if type.dtype == "f16":
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(np.float16)
    if type.dtype != "bf16":
        return np.asarray(value)
    bits = np.ascontiguousarray(value, dtype=np.float32).reshape(np.shape(value)).view(np.uint32)
    rounded = ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FC0), rounded)


def decode(value: Any, type: Type) -> Any:
    """Return a tensor for computing, from storage form; plain values unchanged."""
    if not isinstance(type, TensorType):
        return value
    if type.dtype == "bf16":
        return (np.asarray(value).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(value).astype(COMPUTE[type.dtype], copy=False)
