"""Operators without a converter, such as einsum, in terms of others: torch's own decomposition is traced on
tensors without data, whose sizes are symbols as run-time numbers are, and imported in the operator's place.
Parts that have no converter either are called in PyTorch where that is allowed."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sympy
import torch
from torch._decomp import decomposition_table as registered_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_map

from ....ir.dims import DimExpr, simplify, symbol, symbols_of
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.complex import Complex, dtype_of
from ....ops.conditions import add_guard, is_proved
from ...decompositions import DECOMPOSITIONS
from ...dtypes import TORCH_DTYPES, element_name
from ...exported_program import decomposition_table
from ...fallback import Fallback, reason_against
from ...fx_nodes import constant_of, schema_arguments
from ...importer import find_converter
from ...nodes import operator_of
from ...symbols import Symbols
from ..values.scalars import PYTHON, scalar_op
from ..values.values import is_size, kind_of
from ..walk import Walk
from .arguments import is_layout
from .small_sizes import Sizes, are_alike, breaking
from .tied import tied

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
)  # for sizes that the example does not have
#: Python's functions of numbers -> TorchScript's names, where they differ.
_OF_NUMBERS = {"float": "Float", "int": "Int", "truediv": "div"}
#: The kinds of run-time numbers -> where the values begin with which they are traced.
_NUMBERS: dict[str, int | float] = {"int": 47, "float": 47.3}
_NO_FAKE = "its data is not allocated yet"  # an operator of C++ without a fake kernel has read its arguments
_READS_OF_SIZES = ("aten.sym_size.int", "aten.sym_numel.default")
_LOG = logging.getLogger("shapevm")


def can_decompose(overload: str) -> bool:
    """Return True for an operator that torch may decompose."""
    space, name, suffix = overload.split(".")
    packet = getattr(getattr(torch.ops, space), name, None)
    found = getattr(packet, suffix, None) if packet is not None else None
    return found is not None


def decomposed(
    importer: Walk,
    overload: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_called: bool = False,
    is_never_empty: bool = False,
) -> Any:
    """Import an operator in parts; return its results. `is_called`: PyTorch is called for the whole of it;
    `is_never_empty`: traced with other sizes where the example has 0. Raises UnsupportedOp naming it if a
    part has no converter either, or torch cannot trace it."""
    args = tied(importer.builder, overload, args)
    tracing = _Tracing(importer, is_never_empty)
    space, name, suffix = overload.split(".")
    target = getattr(getattr(getattr(torch.ops, space), name), suffix)
    given = tree_map(tracing.fake, (list(args), _plain(kwargs)))
    compute = target if is_called else DECOMPOSITIONS.get(target, target)  # torch's own would go before
    if tracing.numbers:  # whose values an operator in C++ reads
        compute = registered_decompositions.get(target, target)

    def call(*tensors: Any, compute: Any = compute) -> Any:
        found = dict(zip(map(id, tracing.fakes), tensors, strict=True))
        positional, keywords = tree_map(lambda x: found.get(id(x), x), given)
        return compute(*positional, **keywords)

    try:
        with fx_config.patch(backed_size_oblivious=True), tracing.mode, torch.no_grad():  # type: ignore[attr-defined]
            traced = _traced(call, tracing.fakes, is_called)
    except Exception as error:  # whatever torch raises
        if isinstance(error, ZeroDivisionError) and not is_never_empty:
            return decomposed(importer, overload, args, kwargs, is_called, is_never_empty=True)
        raise UnsupportedOp(
            f"{overload} has no converter, and torch cannot take it apart: {_reason(error)}"
        ) from None
    if not all(_can_import(importer, node) for node in _calls(traced)):
        importer.require([(overload, importer.builder.source)])
    is_drawn = torch.Tag.nondeterministic_seeded in target.tags
    eager = partial(call, compute=target)
    tracing.require(
        overload, lambda broken: not is_drawn and are_alike(eager, traced.forward, tracing.values, broken)
    )
    return _Parts(importer, tracing, traced, overload if is_called else "").run()


def _reason(error: Exception) -> str:
    """Return why torch did not trace an operator."""
    if isinstance(error, DynamicOutputShapeException | DataDependentOutputException):
        return "the sizes of its results, or values of which PyTorch makes numbers, depend on the data"
    if isinstance(error, UnsupportedOperatorException) or _NO_FAKE in str(error):
        return (
            "PyTorch does not know the sizes of its results for inputs of any size, which "
            "torch.library.register_fake tells it of an operator of your own"
        )
    return next(iter(str(error).splitlines()), type(error).__name__)


def _can_import(importer: Walk, node: torch.fx.Node) -> bool:
    """Return True for a part that has a converter, or that PyTorch may be called for."""
    if find_converter(str(node.target)) is not None:
        return True
    return importer.assumptions.may_call_torch and not reason_against(node)


def _traced(call: Callable[..., Any], fakes: Sequence[Any], is_whole: bool) -> torch.fx.GraphModule:
    """Return the graph of a call, in which nothing is changed in place; `is_whole`: not decomposed."""
    table = {} if is_whole else decomposition_table()
    with enable_python_dispatcher():  # in C++ no size may be a symbol
        made = make_fx(call, decomposition_table=table)(*fakes)
        if any(node.target._schema.is_mutable for node in _calls(made)):
            made = make_fx(torch.func.functionalize(made, remove="mutations"), decomposition_table=table)(
                *fakes
            )
    return made


def _calls(traced: torch.fx.GraphModule) -> list[Any]:
    """Return the calls of operators in a graph, reading sizes apart."""
    found = [node for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return [node for node in found if str(node.target) not in _READS_OF_SIZES]


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    found = {name: x for name, x in kwargs.items() if not is_layout(name)}
    is_dtype = {name: name == "dtype" and isinstance(x, str) for name, x in found.items()}
    return {name: TORCH_DTYPES[x] if is_dtype[name] else x for name, x in found.items()}


class _Tracing:
    """Tensors without data for graph values. `values` and `fakes` are in the same order."""

    def __init__(self, importer: Walk, is_never_empty: bool) -> None:
        self.importer, self.is_never_empty = importer, is_never_empty
        self.env = ShapeEnv(specialize_zero_one=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        self.values: list[Value | Complex | DimExpr] = []
        self.fakes: list[Any] = []
        self.symbols = Symbols([], {})
        self._ours: dict[Any, DimExpr] = {}  # by the symbol that represents it
        self._hints: dict[DimExpr, int] = {}
        self.numbers: set[Any] = set()  # torch's symbols of those that are no sizes

    def fake(self, x: Any) -> Any:
        """Return the tensor without data of a value, torch's symbol for a size or a run-time number; anything
        else unchanged."""
        if not isinstance(x, Value | Complex) and not is_size(x):
            return x
        if x not in self.values:
            self.values.append(x)
            make = self._symbol if is_size(x) else self._number if kind_of(x) in _NUMBERS else self._made
            self.fakes.append(make(x))
        return self.fakes[self.values.index(x)]

    def _made(self, x: Value | Complex) -> Any:
        shape = B.shape_of(x)
        kinds = [DimDynamic.STATIC if isinstance(dim, int) else DimDynamic.DYNAMIC for dim in shape]
        example = torch.empty(tuple(map(self._hint, shape)), dtype=TORCH_DTYPES[dtype_of(x)], device="meta")
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        source = ConstantSource(f"x{len(self.fakes)}")
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            example = torch.empty(example.shape, dtype=example.dtype)
        made = self.mode.from_tensor(example, symbolic_context=context, source=source)
        for size, dim in zip(made.shape, shape, strict=True):
            if isinstance(size, torch.SymInt):
                self._ours[symbol(str(self.symbols.dim(size)))] = dim
        return made

    def _symbol(self, size: DimExpr) -> torch.SymInt | int:
        hint, source = self._hint(size), ConstantSource(f"size{len(self._ours)}")
        made = self.env.create_symbol(hint, source, DimDynamic.DYNAMIC, constraint_dim=None)
        found = self.env.create_symintnode(made, hint=hint, source=source)
        self._ours[symbol(str(self.symbols.dim(found)))] = size
        return found

    def _number(self, x: Value) -> Any:
        """Return torch's symbol for a number whose value the trace must not depend on."""
        place = len(self.fakes)
        hint, source = _NUMBERS[str(kind_of(x))] + place, ConstantSource(f"number{place}")
        made = self.env.create_unspecified_symbol(hint, source, DimDynamic.DYNAMIC)
        self.numbers.add(made)
        is_int = isinstance(hint, int)
        create = self.env.create_symintnode if is_int else self.env.create_symfloatnode
        return create(made, hint=hint, source=source)

    def depends_on_numbers(self, expr: Any) -> bool:
        """Return True for an expression of torch's with a number that is no size."""
        return bool(expr.free_symbols & self.numbers)

    def _hint(self, dim: DimExpr) -> int:
        """Return a size for tracing: the example's, or one that no other size has."""
        if isinstance(dim, int):
            return dim
        example = self.importer.example_of(dim)
        if example or (example == 0 and not self.is_never_empty):
            return example
        return self._hints.setdefault(dim, _HINTS[len(self._hints) % len(_HINTS)])

    @property
    def contract(self) -> set[str]:
        """The names of the sizes that have a value before."""
        return {name for dim in self._ours.values() for name in symbols_of(dim)}

    def dim(self, size: Any) -> DimExpr:
        """Return torch's size as ours; one that only the operator's result has gets a name."""
        found = self.symbols.dim(size)
        for name in symbols_of(found):
            if symbol(name) not in self._ours:
                self._ours[symbol(name)] = symbol(self.importer.graph.new_name("n"))
        return self.in_ours(found)

    def in_ours(self, expr: Any) -> Any:
        """Return an expression or condition over our sizes."""
        found = sympy.sympify(expr).subs(self._ours, simultaneous=True)
        return found if isinstance(found, sympy.logic.boolalg.Boolean) else simplify(found)

    def require(self, overload: str, is_right_at: Callable[[Sizes], bool]) -> None:
        """Make the assumptions of tracing about sizes part of the contract, or a check of every call, except
        for those that exclude small sizes at which the trace is right."""
        if any(self.depends_on_numbers(guard.expr) for guard in self.env.guards):
            raise UnsupportedOp(f"{overload} is computed in another way for other numbers: give a constant")
        known = {name: self._hint(symbol(name)) for name in self.contract}
        found = [self.in_ours(self.symbols.translate(guard.expr)) for guard in self.env.guards]
        for condition in sorted(found, key=lambda each: not isinstance(each, sympy.Eq)):
            broken = breaking(condition, known)
            if broken and all(map(is_right_at, broken)):
                continue
            if isinstance(condition, sympy.Eq):
                _LOG.info("%s fixes sizes: %s", overload, condition)
                self.importer.require_equal(condition.lhs, condition.rhs)
            elif not is_proved(self.importer.builder, condition):
                _LOG.info("%s takes only sizes with %s", overload, condition)
            add_guard(
                self.importer.builder, condition, f"{overload.split('.')[1]}: it must hold that {condition}"
            )


class _Parts:
    """Imports a traced graph. `called`: an operator that PyTorch is called for, though it has a converter."""

    def __init__(self, importer: Walk, tracing: _Tracing, traced: torch.fx.GraphModule, called: str) -> None:
        self.importer, self.tracing, self.traced, self.called = importer, tracing, traced, called
        self.found: dict[torch.fx.Node, Any] = {}
        self._fallback = Fallback(importer.builder, tracing)

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
            found = getattr(self.traced, str(node.target))
            return constant_of(self.importer, found, "")
        size = node.meta.get("val")
        if isinstance(size, int) or (
            isinstance(size, torch.SymInt) and not self.tracing.depends_on_numbers(size.node.expr)
        ):
            return self.tracing.dim(size)
        args = [self._argument(x) for x in node.args]
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._number(node, args)
        if str(node.target) == self.called or find_converter(str(node.target)) is None:
            names = [argument.name for argument in operator_of(node)._schema.arguments]
            given = [self._given(x) for x in schema_arguments(node)]
            return self._fallback.call(node, dict(zip(names, given, strict=True)))
        kwargs = {k: None if is_layout(k) else self._argument(x) for k, x in node.kwargs.items()}
        return self.importer.call(str(node.target), args, kwargs)

    def _number(self, node: torch.fx.Node, args: list[Any]) -> Any:
        """Return the result of a Python function for numbers computed from sizes."""
        name = getattr(node.target, "__name__", "").strip("_").removeprefix("sym_")
        name = _OF_NUMBERS.get(name, name)
        if name not in PYTHON:
            raise UnsupportedOp(f"PyTorch computes {name} of sizes here, which cannot be compiled")
        return scalar_op(self.importer.builder, name, args)

    def _argument(self, x: Any) -> Any:
        """Return an argument as converters take it."""
        return element_name(x) if isinstance(x, torch.dtype) else self._given(x)

    def _given(self, x: Any) -> Any:
        """Return an argument as calls of PyTorch take it."""
        if isinstance(x, torch.fx.Node):
            return self.found[x]
        if isinstance(x, list | tuple):
            return [self._given(item) for item in x]
        return self.tracing.dim(x) if isinstance(x, torch.SymInt) else x
