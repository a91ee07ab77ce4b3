"""Operators without a converter, such as einsum, in terms of others: torch's own decomposition is traced on
tensors without data whose sizes are symbols, and imported in the operator's place."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_map

from ....ir.dims import DimExpr, simplify, symbol
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.conditions import add_guard
from ...dtypes import DTYPES, dtype_name
from ...exported_program import decomposition_table
from ...fx_nodes import array_of
from ...importer import find_converter
from ...symbols import Symbols
from ..values.values import is_size
from .arguments import is_layout

if TYPE_CHECKING:
    from ..importer import ScriptImporter

_HINTS = (
    5,
    7,
    11,
    13,
    17,
    19,
    23,
    29,
    31,
    37,
    41,
    43,
)  # for sizes of which the example says nothing
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def can_decompose(overload: str, args: Sequence[Any]) -> bool:
    """Return True for an operator that torch may take apart, given tensors and plain values alone."""
    space, name, suffix = overload.split(".")
    packet = getattr(getattr(torch.ops, space), name, None)
    found = getattr(packet, suffix, None) if packet is not None else None
    return found is not None and not any(is_size(x) for x in args)


def decomposed(importer: ScriptImporter, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Import an operator in parts; return its results. Raises UnsupportedOp naming it where a part has no
    converter either, or torch cannot trace it."""
    tracing = _Tracing(importer)
    space, name, suffix = overload.split(".")
    target = getattr(getattr(getattr(torch.ops, space), name), suffix)
    given = tree_map(tracing.fake, (list(args), _plain(kwargs)))

    def call(*tensors: Any) -> Any:
        found = dict(zip(map(id, tracing.fakes), tensors, strict=True))
        positional, keywords = tree_map(lambda x: found.get(id(x), x), given)
        return target(*positional, **keywords)

    try:
        with fx_config.patch(backed_size_oblivious=True), tracing.mode, torch.no_grad():  # type: ignore[attr-defined]
            traced = _traced(call, tracing.fakes)
    except Exception as error:  # whatever torch raises
        first = str(error).splitlines()[:1]
        raise UnsupportedOp(f"{overload} has no converter, and torch cannot take it apart: {first}") from None
    if not all(find_converter(str(part)) for part in _targets(traced)):
        importer.require([(overload, importer.builder.source)])
    tracing.require(overload)
    return _Parts(importer, tracing, traced).run()


def _traced(call: Callable[..., Any], fakes: Sequence[Any]) -> torch.fx.GraphModule:
    """Return the graph of a call, in which nothing is changed in place."""
    table = decomposition_table()
    made = make_fx(call, decomposition_table=table)(*fakes)
    if any(target._schema.is_mutable for target in _targets(made)):
        with enable_python_dispatcher():  # in C++ no size may be a symbol there
            made = make_fx(torch.func.functionalize(made, remove="mutations"), decomposition_table=table)(
                *fakes
            )
    return made


def _targets(traced: torch.fx.GraphModule) -> set[torch._ops.OpOverload]:
    """Return the operators in a graph, reading sizes apart."""
    found = {node.target for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    return found - {torch.ops.aten.sym_size.int}


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    found = {name: x for name, x in kwargs.items() if not is_layout(name)}
    return {name: _TORCH[x] if name == "dtype" and isinstance(x, str) else x for name, x in found.items()}


class _Tracing:
    """Tensors without data for graph values. `values` and `fakes` are in the same order."""

    def __init__(self, importer: ScriptImporter) -> None:
        self.importer = importer
        self.env = ShapeEnv(specialize_zero_one=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        self.values: list[Value] = []
        self.fakes: list[Any] = []
        self.symbols = Symbols([], {})
        self._ours: dict[Any, DimExpr] = {}  # by the symbol that stands for it
        self._hints: dict[DimExpr, int] = {}

    def fake(self, x: Any) -> Any:
        """Return the tensor without data of a value; anything else as it is."""
        if not isinstance(x, Value):
            return x
        if x not in self.values:
            self.values.append(x)
            self.fakes.append(self._made(x))
        return self.fakes[self.values.index(x)]

    def _made(self, x: Value) -> Any:
        shape = B.shape_of(x)
        kinds = [DimDynamic.STATIC if isinstance(dim, int) else DimDynamic.DYNAMIC for dim in shape]
        example = torch.empty(tuple(map(self._hint, shape)), dtype=_TORCH[B.dtype_of(x)], device="meta")
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        source = ConstantSource(f"x{len(self.fakes)}")
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            example = torch.empty(example.shape, dtype=example.dtype)
        made = self.mode.from_tensor(example, symbolic_context=context, source=source)
        for size, dim in zip(made.shape, shape, strict=True):
            if isinstance(size, torch.SymInt):
                self._ours[symbol(str(self.symbols.dim(size)))] = dim
        return made

    def _hint(self, dim: DimExpr) -> int:
        """Return a size for tracing: the example's, or one that no other size has."""
        if isinstance(dim, int):
            return dim
        example = self.importer.inputs.example_of(dim)
        if example is not None:
            return example
        return self._hints.setdefault(dim, _HINTS[len(self._hints) % len(_HINTS)])

    def dim(self, size: Any) -> DimExpr:
        """Return a size of torch's as ours."""
        return self.in_ours(self.symbols.dim(size))

    def in_ours(self, expr: Any) -> Any:
        """Return an expression or condition over our sizes."""
        found = sympy.sympify(expr).subs(self._ours, simultaneous=True)
        return found if isinstance(found, sympy.logic.boolalg.Boolean) else simplify(found)

    def require(self, overload: str) -> None:
        """Make what tracing assumed of sizes part of the contract, or a check of every call."""
        for guard in self.env.guards:
            condition = self.in_ours(self.symbols.translate(guard.expr))
            if isinstance(condition, sympy.Eq):
                self.importer.require_equal(condition.lhs, condition.rhs)
            add_guard(
                self.importer.builder, condition, f"{overload.split('.')[1]}: it must hold that {condition}"
            )


class _Parts:
    """Imports a traced graph."""

    def __init__(self, importer: ScriptImporter, tracing: _Tracing, traced: torch.fx.GraphModule) -> None:
        self.importer, self.tracing, self.traced = importer, tracing, traced
        self.found: dict[torch.fx.Node, Any] = {}

    def run(self) -> Any:
        """Return the results."""
        inputs = iter(self.tracing.values)
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self.found[node] = next(inputs)
            elif node.op == "output":
                return self._argument(node.args[0])
            else:
                self.found[node] = self._call(node)
        raise AssertionError("a traced graph has an output")

    def _call(self, node: torch.fx.Node) -> Any:
        if node.op == "get_attr":
            return self.importer.constant(*array_of(getattr(self.traced, str(node.target))), "")
        if isinstance(node.meta.get("val"), torch.SymInt | int):
            return self.tracing.dim(node.meta["val"])
        args = [self._argument(x) for x in node.args]
        if node.target is operator.getitem:
            return args[0][args[1]]
        kwargs = {k: None if is_layout(k) else self._argument(x) for k, x in node.kwargs.items()}
        return self.importer.call(str(node.target), args, kwargs)

    def _argument(self, x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            return self.found[x]
        if isinstance(x, list | tuple):
            return [self._argument(item) for item in x]
        if isinstance(x, torch.SymInt):
            return self.tracing.dim(x)
        return dtype_name(x) if isinstance(x, torch.dtype) else x
