"""Operators without a kernel, called in PyTorch: `extern` nodes. Their implementation is
`shapevm.program.torch_host`.

Every argument of the overload's schema becomes a value: tensors and sizes unchanged, numbers, strings, names
of dtypes and None as literals, lists as tuples. If PyTorch makes a tensor whose size depends on data, the
size of its result defines the symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import sympy
import torch

from ...vm.externs import find_extern
from ..ir.dims import DimExpr, symbols_of
from ..ir.errors import UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.types import BOOL, FLOAT, ScalarType, TensorType, Type
from ..ops import build as B
from ..ops.complex import DTYPES as PARTS
from ..ops.complex import Complex, view_as_complex, view_as_real
from .dtypes import complex_name, dtype_name
from .layout import memory_order, restored
from .nodes import node_argument, operator_of
from .traced_layout import NOT_AS_TRACED, lies_as_traced
from .views import is_certain_view

COMPLEX = "complex"  # as in `shapevm.program.torch_host`
_TORCH = ("aten", "prims", "prim", "quantized", "_c10d_functional", "inductor", "higher_order")
_LITERALS = (bool, float, str)
#: They read the storage of their argument, whose layout is lost here if it is not contiguous.
_OF_STORAGE = ("aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter", "aten::resize")


def name_of(overload: Any) -> str:
    """Return the host function's name of a torch overload, such as "aten::sort.default"."""
    return f"{overload._schema.name}.{overload._overloadname}"


def is_custom(overload: Any) -> bool:
    """Return True for an operator of a user's library: a plug-in may have it."""
    return overload.namespace not in _TORCH


def is_declared(overload: Any) -> bool:
    """Return True for an operator that `shapevm.extern` declares."""
    return isinstance(overload, torch._ops.OpOverload) and find_extern(name_of(overload)) is not None


def is_complex(node: torch.fx.Node) -> bool:
    """Return True if a node has complex arguments or results."""
    inputs = [arg.meta.get("val") for arg in node.all_input_nodes]
    dtypes = [
        leaf.dtype for leaf in leaves([*inputs, node.meta.get("val")]) if isinstance(leaf, torch.Tensor)
    ]
    dtypes += [arg for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, torch.dtype)]
    return any(dtype.is_complex for dtype in dtypes)


def leaves(found: Any) -> Iterator[Any]:
    """Yield the values in a fake result, without None."""
    if isinstance(found, list | tuple):
        for item in found:
            yield from leaves(item)
    elif found is not None:
        yield found


def reads_storage(node: torch.fx.Node) -> bool:
    """Return True for operators that read their argument's storage."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _OF_STORAGE


def memory_read(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the node that made the memory read by an as_strided, if it is row-major from the start; else
    None."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.name not in _OF_STORAGE[:2]:
        return None
    made = node_argument(node)
    while is_certain_view(made):
        made = node_argument(made)
    found = made.meta.get("val")
    is_plain = isinstance(found, torch.Tensor) and found.is_contiguous() and not found.storage_offset()
    return made if is_plain and lies_as_traced(made) else None


def place_read(node: torch.fx.Node) -> Any:
    """Return the offset in memory from which an as_strided reads."""
    names = [argument.name for argument in operator_of(node)._schema.arguments]
    given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    place = given.get("storage_offset")
    return given["self"].meta["val"].storage_offset() if place is None else place


def _starts_at_tensor(node: torch.fx.Node) -> bool:
    """Return True if an operator that reads storage is given no storage offset."""
    names = [argument.name for argument in operator_of(node)._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return "storage_offset" in names and given.get("storage_offset") is None


def reason_against(node: torch.fx.Node) -> str:
    """Return why the host cannot run an operator, "" if it can."""
    overload = node.target
    if not isinstance(overload, torch._ops.OpOverload):
        return "it takes functions"
    if overload._schema.is_mutable:
        return "it changes its arguments in place"
    if reads_storage(node):
        source = node.args[0]
        tensor = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
        if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
            return "it reads the storage of a tensor that is not contiguous"
        if not lies_as_traced(node_argument(node)):
            return NOT_AS_TRACED
        if tensor.storage_offset() and not _starts_at_tensor(node):
            return "it reads the storage of a tensor from another place than the tensor's first element"
    for leaf in leaves(node.meta.get("val")):
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            return f"its result is {leaf.layout}"
    return ""


class Sizes(Protocol):
    """The map from torch's sizes to ours. `contract`: those that have a value from the start."""

    @property
    def contract(self) -> Iterable[str]:
        """Their names."""

    def dim(self, size: Any) -> DimExpr:
        """Return torch's size as ours."""


class Fallback:
    """Makes the `extern` nodes of one graph. `known`: the size symbols that have a value so far."""

    def __init__(self, builder: Builder, symbols: Sizes) -> None:
        self.builder, self.symbols = builder, symbols
        self.known: set[str] = set(symbols.contract)

    def call(self, node: torch.fx.Node, args: Mapping[str, Any]) -> Any:
        """Append the call of a node's overload with arguments by name; return PyTorch's results.

        Raises UnsupportedOp or DtypeError for arguments and results that no register can hold.
        """
        overload: Any = node.target
        name, found = name_of(overload), node.meta.get("val")
        values = [self._register(name, args[argument.name]) for argument in overload._schema.arguments]
        given = list(leaves(found))
        types = tuple(self._type(name, leaf) for leaf in given)
        sizes = tuple(self._new_sizes(name, types))
        effect = torch.Tag.nondeterministic_seeded in overload.tags
        order = _order_of_draws(node) if effect else None
        if order is not None:  # numbers are drawn in memory order
            values[0] = B.permute(self.builder, values[0], order)
            types = tuple(_permuted(type, order) for type in types)
        attrs: dict[str, Any] = {"name": name, "types": types, "sizes": sizes, "effect": effect}
        if is_custom(overload) and types and not sizes and all(isinstance(t, TensorType) for t in types):
            attrs["dps"] = True
        results = self.builder.apply("extern", *values, **attrs)
        results = results[len(sizes) :]
        if order is not None:
            results = [B.permute(self.builder, result, restored(order)) for result in results]
        made = iter([self._result(leaf, result) for leaf, result in zip(given, results, strict=True)])
        return _rebuilt(found, made)

    def _result(self, leaf: Any, result: Value) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_complex():
            return view_as_complex(self.builder, result)
        if isinstance(leaf, int | torch.SymInt) and not isinstance(leaf, bool):
            return result.type.expr  # type: ignore[union-attr]  # sizes are expressions
        return result

    def _register(self, name: str, value: Any) -> Value:
        """Return the value that holds an argument."""
        if isinstance(value, Value):
            return value
        if isinstance(value, Complex):
            return self.builder.one(
                "tuple", self.builder.one("literal", value=COMPLEX), view_as_real(self.builder, value)
            )
        if value is None or isinstance(value, _LITERALS):
            return self.builder.one("literal", value=value)
        if isinstance(value, int | sympy.Expr):
            return self.builder.size(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format | torch.device):
            return self.builder.one("literal", value=str(value))
        if isinstance(value, list | tuple):
            return self.builder.one("tuple", *(self._register(name, item) for item in value))
        raise UnsupportedOp(f"{name}: an argument is a {type(value).__name__}, which no register holds")

    def _type(self, name: str, leaf: Any) -> Type:
        if isinstance(leaf, torch.Tensor):
            shape = tuple(self.symbols.dim(size) for size in leaf.shape)
            if leaf.is_complex():
                return TensorType(PARTS[complex_name(leaf.dtype)], (*shape, 2))
            return TensorType(dtype_name(leaf.dtype), shape)
        if isinstance(leaf, bool | torch.SymBool):
            return BOOL
        if isinstance(leaf, int | torch.SymInt):
            return ScalarType("int", self.symbols.dim(leaf))
        if isinstance(leaf, float | torch.SymFloat):
            return FLOAT
        raise UnsupportedOp(f"{name}: a result is a {type(leaf).__name__}, which no register holds")

    def _new_sizes(self, name: str, types: Sequence[Type]) -> Iterator[tuple[str, int, int]]:
        """Yield (symbol, result, axis) for the sizes that the results define."""
        for type in types:
            if isinstance(type, ScalarType) and isinstance(type.expr, sympy.Symbol):
                self.known.add(str(type.expr))
        tensors = [(i, type) for i, type in enumerate(types) if isinstance(type, TensorType)]
        for i, type in tensors:
            for axis, dim in enumerate(type.shape):
                if isinstance(dim, sympy.Symbol) and str(dim) not in self.known:
                    self.known.add(str(dim))
                    yield str(dim), i, axis
        for _, type in tensors:
            for dim in type.shape:
                if not symbols_of(dim) <= self.known:
                    raise UnsupportedOp(f"{name}: its result has the size {dim}, which no axis gives")


def _order_of_draws(node: torch.fx.Node) -> tuple[int, ...] | None:
    """Return the memory order of the tensor that a random operator fills elementwise, None for contiguous
    ones and other operators."""
    source = node.args[0] if node.args else None
    tensor = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    made = list(leaves(node.meta.get("val")))
    same = isinstance(tensor, torch.Tensor) and all(
        isinstance(leaf, torch.Tensor) and leaf.shape == tensor.shape for leaf in made
    )
    return memory_order(tensor) if same and len(node.all_input_nodes) == 1 else None  # type: ignore[arg-type]


def _permuted(type: Type, order: tuple[int, ...]) -> Type:
    assert isinstance(type, TensorType)
    return TensorType(type.dtype, tuple(type.shape[axis] for axis in order))


def _rebuilt(found: Any, made: Iterator[Any]) -> Any:
    if isinstance(found, list | tuple):
        return [_rebuilt(item, made) for item in found]
    return None if found is None else next(made)
