"""Walks the graph of a TorchScript program, node by node, as an interpreter does.

Everything that does not depend on calls is decided here: loops over modules are unrolled, and branches on
ranks, dtypes and attributes are resolved. Every axis of every input is a separate size, until an operator
needs two of them to be equal, or one to be a number: then that becomes part of the contract, and the walk
restarts.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any

import sympy
import torch

from ...ir.dims import DimExpr, simplify, symbol, symbols_of
from ...ir.errors import DtypeError, Error, ShapeError, UnsupportedOp
from ...ir.graph import Graph
from ..importer import find_converter
from ..kinds import Script
from . import operators, primitives
from .flow import branches, loops, optionals, variants
from .inputs import Inputs, outputs_of
from .source import attribute_of
from .state import State
from .values.values import Dict, List, Maybe, Member, Object, Tensor, Variant
from .walk import Again, Assumptions, Bound, Walk

_LOG = logging.getLogger("shapevm")
MAX_ASSUMPTIONS = 1000
MAX_ALONE = 8  # sizes of inputs that are individually fixed to the example's
REFUSALS = (UnsupportedOp, ShapeError, DtypeError)


_PLAIN = bool | int | float | complex | str | torch.dtype | torch.device
_CONTROL = {"prim::If": branches.import_if, "prim::Loop": loops.import_loop}
#: Nodes that pass values of two forms on unchanged.
_TAKES_FORMS = ("prim::If", "prim::Loop", "prim::SetAttr", "prim::TupleConstruct", "prim::ListConstruct")


def _is_operator_of_optional(kind: str, given: Sequence[Any]) -> bool:
    return kind.startswith("aten::") and any(isinstance(x, Maybe) for x in given)


def import_script(
    script: Script, dynamic_shapes: Any = None, least: int | None = None, fallback: str = "error"
) -> Graph:
    """Return the graph of a program. `dynamic_shapes`: in torch.export's form; None: every axis of every
    input has any size. `least`: the lower bound of unspecified ranges. `fallback`: "torch" to call PyTorch
    for operators without a kernel, if the program cannot be compiled otherwise.

    Numbers and strings among the arguments are run-time values if the program can be compiled that way; else
    one of them, or all, are constants. Raises UnsupportedOp naming the unsupported operation, ShapeError or
    DtypeError, with the model's line.
    """
    run = partial(_import, script, dynamic_shapes, least)
    ways = [run, partial(run, may_call_torch=True)] if fallback == "torch" else [run]
    reasons: list[Error] = []
    for way in ways:
        try:
            return _import_as_given(script, way)
        except REFUSALS as refused:
            reasons.append(refused)
    for way in ways:
        graph = _import_narrowed(way, reasons[0])
        if graph is not None:
            return graph
    raise reasons[0] from None


def _import_narrowed(run: Callable[..., Graph], reason: Error) -> Graph | None:
    """Return the graph of a program for fewer sizes than all, with a log line; None if it is also refused for
    the example's sizes."""
    first, found = Assumptions(), None
    with suppress(*REFUSALS):
        run(first)
    if not first.examples or not first.is_operator_refused:
        return None
    sizes: dict[str, DimExpr] = dict(first.examples)
    with suppress(*REFUSALS):
        found = run(Assumptions(sizes=dict(sizes)))
    for fewer in _narrowed(first.examples) if found is not None else ():
        with suppress(*REFUSALS):
            found, sizes = run(Assumptions(sizes=dict(fewer))), fewer
            break
    if found is not None:
        shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        _LOG.warning("sizes are as in the example: %s; %s", shown, reason)
    return found


def _narrowed(examples: Mapping[str, int]) -> Iterator[dict[str, DimExpr]]:
    """Yield sets of sizes to fix to the example's: single ones, then equal ones as one."""
    if len(examples) <= MAX_ALONE:
        yield from ({name: size} for name, size in examples.items())
    firsts: dict[int, str] = {}
    ties = {name: firsts.setdefault(size, name) for name, size in examples.items()}
    tied: dict[str, DimExpr] = {name: symbol(first) for name, first in ties.items() if name != first}
    if tied:
        yield tied


def _import_as_given(script: Script, run: Callable[..., Graph]) -> Graph:
    """Return the graph of a program with as few constant arguments as possible."""
    everything = frozenset(script.arguments)
    first = Assumptions()
    try:
        return run(first)
    except REFUSALS as refused:
        reason = refused
    every = frozenset(first.doubts)
    for doubts in (chosen for n in range(len(every)) for chosen in combinations(sorted(every), n + 1)):
        with suppress(*REFUSALS):
            return run(Assumptions(as_example=frozenset(doubts)))
    for names in _fixed(script):
        try:
            graph = run(Assumptions(fixed=names, as_example=every))
        except REFUSALS as refused:
            reason = refused
        else:
            _LOG.info("None and lengths are the example's: %s; %s", ", ".join(sorted(names)), reason)
            return graph
    for names in _frozen(script):
        try:
            graph = run(Assumptions(frozen=names, fixed=everything, as_example=every))
        except REFUSALS:
            continue
        _LOG.warning("constants of the program, not given by calls: %s; %s", ", ".join(sorted(names)), reason)
        return graph
    raise reason


def _fixed(script: Script) -> Iterator[frozenset[str]]:
    """Yield sets of arguments to fix to the example's None or length, small sets first."""
    lists = frozenset(path.partition(".")[0] for path in script.varying())
    options = {name for name, type in script.types().items() if optionals.inner_type(type) is not None}
    yield from (found for found in (lists, lists | options) if found)


def _frozen(script: Script) -> Iterator[frozenset[str]]:
    """Yield sets of arguments to try as constants, small sets first."""
    plain = {name: x for name, x in script.arguments.items() if isinstance(x, bool | int | float | str)}
    yield from (
        frozenset([name]) for name in sorted(plain, key=lambda name: not isinstance(plain[name], str))
    )
    texts = frozenset(name for name, x in plain.items() if isinstance(x, str))
    if 1 < len(texts) < len(plain):
        yield texts
    if len(plain) != 1:
        yield frozenset(script.arguments)


def _import(
    script: Script,
    dynamic_shapes: Any,
    least: int | None,
    assumptions: Assumptions,
    may_call_torch: bool = False,
) -> Graph:
    assumptions.may_call_torch = may_call_torch
    for _ in range(MAX_ASSUMPTIONS):
        importer = ScriptImporter(script, dynamic_shapes, least, assumptions)
        try:
            graph = importer.run()
        except Again:
            continue
        if assumptions.chosen:
            _LOG.info("broadcasting as in the example: %s", importer.inputs.shown(assumptions.chosen))
        squeezed = {n: x for n, x in sorted(assumptions.squeezed.items()) if n not in assumptions.sizes}
        if squeezed:
            _LOG.info("squeezing as in the example: %s", importer.inputs.shown(squeezed))
        if importer.python_functions:
            names = ", ".join(sorted(importer.python_functions))
            _LOG.warning("loops and branches of Python functions are as in the example: %s", names)
        return graph
    raise UnsupportedOp(f"more than {MAX_ASSUMPTIONS} sizes of the inputs depend on each other")


class ScriptImporter(Walk):
    """Imports one program once."""

    def __init__(
        self, script: Script, dynamic_shapes: Any, least: int | None, assumptions: Assumptions
    ) -> None:
        super().__init__(script, assumptions)
        self.inputs = Inputs(self, dynamic_shapes, least)
        self.state = State(self)
        self.builder.assume = self._assume

    def run(self) -> Graph:
        """Import everything."""
        graph = self.script.graph
        module, *names = list(graph.inputs()) if self.script.module is not None else [None, *graph.inputs()]
        self.root = Object(self.script.module, "")
        if module is not None:
            self.set(module, self.root)
        for value, found in zip(names, self.inputs.add(), strict=True):
            self.set(value, found)
        free = {name: n for name, n in self.inputs.examples.items() if not self.inputs.is_fixed(name)}
        self.assumptions.examples = free
        results = self.run_block(graph)
        self.state.find_changes()
        outputs_of(self, self.inputs, self.state, results[0] if len(results) == 1 else tuple(results))
        return self.graph

    # Nodes

    def run_node(self, node: Any) -> None:
        """See Walk."""
        kind, line = node.kind(), self.line_of(node)
        self.builder.source = line
        self.assumptions.steps.count()
        handler = _CONTROL.get(kind) or primitives.HANDLERS.get(kind)
        try:
            given = [self.get(value) for value in node.inputs()]
            if kind not in _TAKES_FORMS and any(isinstance(x, Variant) for x in given):
                found = variants.import_both(self, node, given)
            elif kind not in optionals.TAKES_OPTIONALS and _is_operator_of_optional(kind, given):
                found = optionals.import_both(self, node, given)
            else:
                found = (handler or operators.import_operator)(self, node)
        except Error as error:
            error.source = error.source or line
            raise
        for value, result in zip(node.outputs(), found, strict=True):
            self.set(value, result)

    def run_operator(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """See Walk."""
        return operators.run(self, overload, args, kwargs)

    def can_convert_unknown(self, overload: str) -> bool:
        """Return True if PyTorch may be called for an operator whose converter refuses its arguments."""
        return self.assumptions.may_call_torch and find_converter(overload) is not None

    def convert_unknown(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call PyTorch."""
        if not self.can_convert_unknown(overload):
            return super().convert_unknown(overload, args, kwargs)
        return operators.decomposed(self, overload, args, kwargs, is_called=True)

    # What operators need of sizes

    def _assume(self, condition: Any) -> None:
        """Make equality of input sizes part of the contract, if it holds for the example."""
        if len(self.regions.blocks) == 1:
            self._keep(condition)

    def _keep(self, condition: Any) -> None:
        parts = condition.args if isinstance(condition, sympy.Or) else (condition,)
        if len(parts) > 1 and not self.inputs.decide(condition):  # nor is 1 more than the example's size
            self.assumptions.doubts.add("broadcasting")
            if "broadcasting" not in self.assumptions.as_example:
                return
        for part in sorted(parts, key=lambda part: -len(part.free_symbols)):  # equal sizes before sizes of 1
            found = self._solved(part)
            if found is not None:
                name, size = found
                self.assumptions.sizes[name] = size
                if isinstance(condition, sympy.Or) or size == 1:
                    self.assumptions.chosen[name] = size
                raise Again

    def _solved(self, condition: Any) -> tuple[str, DimExpr] | None:
        """Return a size of the inputs and its value, for an equation that the example satisfies."""
        if not isinstance(condition, sympy.Eq) or not self.inputs.holds(condition):
            return None
        difference = sympy.expand(condition.lhs - condition.rhs)
        candidates = sorted(
            difference.free_symbols,
            key=lambda s: (
                not self.inputs.is_open(str(s)),
                self.inputs.is_of_user(str(s)),
                -self.inputs.order(str(s)),
            ),
        )
        for candidate in candidates:
            coefficient = difference.coeff(candidate)
            rest = difference - coefficient * candidate
            if (
                coefficient in (1, -1)
                and not rest.has(candidate)
                and not self.inputs.is_of_user(str(candidate))
                and (
                    self.inputs.is_open(str(candidate)) or not any(map(self.inputs.is_open, symbols_of(rest)))
                )
            ):
                return str(candidate), simplify(-rest * coefficient)
        return None

    def example_of(self, size: DimExpr) -> int | None:
        """See Walk."""
        return self.inputs.example_of(size)

    def bounds_of(self, x: Tensor) -> tuple[str, list[Bound]]:
        """See Walk."""
        return self.inputs.bounds_of(x)

    def require_equal(self, one: DimExpr, other: DimExpr) -> None:
        """See Walk."""
        if simplify(sympy.sympify(one) - sympy.sympify(other)) != 0:
            self._keep(sympy.Eq(sympy.sympify(one), sympy.sympify(other), evaluate=False))

    # Attributes

    def attribute_cell(self, owner: Object, name: str) -> Any:
        """See Walk."""
        if name not in owner.attributes:
            path = f"{owner.path}.{name}" if owner.path else name
            found = self._state_or_constant(attribute_of(owner.script, name), path)
            cell = primitives.Attribute(found, 0, path)
            owner.attributes[name] = cell
            if isinstance(found, List | Dict):
                self.state.watch(cell, path, found)
        return owner.attributes[name]

    def _state_or_constant(self, found: Any, path: str) -> Any:
        if path in self.assumptions.state:
            return self.state.add(path, found)
        return self.abstract(found, path)

    def abstract(self, found: Any, path: str) -> Any:
        """Return the importer's value for a value of the model."""
        if isinstance(found, torch.Tensor):
            return self.tensor_constant(found, path)
        if isinstance(found, enum.Enum):
            return Member(type(found), list(type(found)).index(found))
        if isinstance(found, tuple):
            return tuple(self._state_or_constant(x, f"{path}.{i}") for i, x in enumerate(found))
        if isinstance(found, list):
            return List([self._state_or_constant(x, f"{path}.{i}") for i, x in enumerate(found)], 0)
        if isinstance(found, dict):
            return Dict({key: self._state_or_constant(x, f"{path}.{key}") for key, x in found.items()}, 0)
        if found is None or isinstance(found, _PLAIN):
            return str(found) if isinstance(found, torch.device) else found
        if hasattr(found, "getattr") or isinstance(found, torch._C.ScriptObject | torch._C.ScriptModule):
            return Object(found, path)
        if torch.jit._state._get_script_class(type(found)) is not None:  # an instance of the Python class
            return Object(found, path)
        raise UnsupportedOp(f"{path} is a {type(found).__name__}, which cannot be compiled")
