"""Walks the graph of a TorchScript program, node by node, as an interpreter does.

What calls need not decide is decided here: loops over modules are gone, and so are branches on ranks,
dtypes and attributes. Every axis of every input is a size of its own, until an operator needs two of them
to be equal, or one to be a number: then that becomes part of the contract, and the walk begins anew.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sympy
import torch

from ...ir.dims import DimExpr, simplify, symbol, symbols_of
from ...ir.errors import DtypeError, Error, ShapeError, UnsupportedOp
from ...ir.graph import Graph, Node
from ...ir.types import ScalarType
from ..fx_nodes import array_of
from ..importer import Importer
from ..kinds import Script
from . import operators, primitives
from .bounds import Steps
from .flow import branches, loops, optionals, regions, variants
from .inputs import Inputs, outputs_of
from .source import attribute_of, source_of
from .state import State
from .values import nested
from .values.tensors import Tensors
from .values.values import Dict, List, Maybe, Member, Object, Tensor, Variant, is_run_time, kind_of

_LOG = logging.getLogger("shapevm")
MAX_ASSUMPTIONS = 1000


@dataclass
class Assumptions:
    """What was found out in earlier walks: `sizes` of inputs that are always some number or another size;
    `state`: attributes that calls change; `frozen`: arguments whose numbers and strings are constants;
    `fixed`: those of which None and what is there are the example's; `unbinds`: axes of a length that a call
    tells are unbound, `unbinds_as_example`: into as many parts as in the example; `steps`: of all walks."""

    sizes: dict[str, DimExpr] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    unbinds: bool = False
    unbinds_as_example: bool = False
    steps: Steps = field(default_factory=Steps)

    def size(self, name: DimExpr) -> DimExpr:
        """Return a size with what is known of it in place of its name."""
        while symbols_of(name) & set(self.sizes):
            known = {symbol(n): size for n, size in self.sizes.items()}
            name = simplify(sympy.sympify(name).subs(known))
        return name


_CONTROL = {"prim::If": branches.import_if, "prim::Loop": loops.import_loop}
#: Nodes that hand values of two forms on as they are.
_TAKES_FORMS = ("prim::If", "prim::Loop", "prim::SetAttr", "prim::TupleConstruct", "prim::ListConstruct")


def _is_operator_of_optional(kind: str, given: Sequence[Any]) -> bool:
    return kind.startswith("aten::") and any(isinstance(x, Maybe) for x in given)


class _Again(Exception):
    """Something was found out that the walk should have known."""


def import_script(script: Script, dynamic_shapes: Any = None, least: int | None = None) -> Graph:
    """Return the graph of a program. `dynamic_shapes`: as torch.export takes it; None: every axis of
    every input is of any size. `least`: of sizes that nobody gave a range.

    Numbers and strings among the arguments are given by calls where the program can be compiled so; else
    one of them, or all, are constants. Raises UnsupportedOp naming what cannot be compiled, ShapeError or
    DtypeError, with the model's line.
    """
    everything = frozenset(script.arguments)
    first = Assumptions()
    try:
        return _import(script, dynamic_shapes, least, first)
    except (UnsupportedOp, ShapeError, DtypeError) as refused:
        reason = refused
    if first.unbinds:
        with suppress(UnsupportedOp, ShapeError, DtypeError):
            return _import(script, dynamic_shapes, least, Assumptions(unbinds_as_example=True))
    for names in _fixed(script):
        try:
            known = Assumptions(fixed=names, unbinds_as_example=first.unbinds)
            graph = _import(script, dynamic_shapes, least, known)
        except (UnsupportedOp, ShapeError, DtypeError) as refused:
            reason = refused
        else:
            _LOG.info("None and lengths are the example's: %s; %s", ", ".join(sorted(names)), reason)
            return graph
    for names in _frozen(script):
        try:
            known = Assumptions(frozen=names, fixed=everything, unbinds_as_example=first.unbinds)
            graph = _import(script, dynamic_shapes, least, known)
        except (UnsupportedOp, ShapeError, DtypeError):
            continue
        _LOG.warning("constants of the program, not given by calls: %s; %s", ", ".join(sorted(names)), reason)
        return graph
    raise reason


def _fixed(script: Script) -> Iterator[frozenset[str]]:
    """Yield sets of arguments to try with the None or the length of the example: fewer ones first."""
    lists = frozenset(path.partition(".")[0] for path in script.varying())
    options = {name for name, type in script.types().items() if optionals.inner_type(type) is not None}
    yield from (found for found in (lists, lists | options) if found)


def _frozen(script: Script) -> Iterator[frozenset[str]]:
    """Yield sets of arguments to try as constants: fewer ones first."""
    plain = {name: x for name, x in script.arguments.items() if isinstance(x, bool | int | float | str)}
    yield from (
        frozenset([name]) for name in sorted(plain, key=lambda name: not isinstance(plain[name], str))
    )
    texts = frozenset(name for name, x in plain.items() if isinstance(x, str))
    if 1 < len(texts) < len(plain):
        yield texts
    if len(plain) != 1:
        yield frozenset(script.arguments)


def _import(script: Script, dynamic_shapes: Any, least: int | None, assumptions: Assumptions) -> Graph:
    for _ in range(MAX_ASSUMPTIONS):
        try:
            return ScriptImporter(script, dynamic_shapes, least, assumptions).run()
        except _Again:
            continue
    raise UnsupportedOp(f"more than {MAX_ASSUMPTIONS} sizes of the inputs depend on each other")


class ScriptImporter(Importer):
    """Imports one program once."""

    def __init__(
        self, script: Script, dynamic_shapes: Any, least: int | None, assumptions: Assumptions
    ) -> None:
        super().__init__("main")
        self.script, self.assumptions = script, assumptions
        self.regions = regions.Regions(self)
        self.tensors = Tensors(self.builder, partial(operators.run, self), self.regions.is_open, self._note)
        self.inputs = Inputs(self, dynamic_shapes, least)
        self.state = State(self)
        self.constant_nodes: set[Node] = set()
        self._constants: dict[Any, Tensor] = {}
        self._values: dict[Any, Any] = {}
        self._line = ""  # of the model, while code that is not its own is imported
        self._forms: dict[Any, bool] = {}  # of values of two forms, by what tells
        self.builder.assume = self._assume

    def run(self) -> Graph:
        """Import everything."""
        graph = self.script.graph
        module, *names = list(graph.inputs()) if self.script.module is not None else [None, *graph.inputs()]
        self.root = Object(self.script.module, "")
        if module is not None:
            self._values[module.unique()] = self.root
        for value, found in zip(names, self.inputs.add(), strict=True):
            self._values[value.unique()] = found
        results = self.run_block(graph)
        self.state.find_changes()
        outputs_of(self, results[0] if len(results) == 1 else tuple(results))
        return self.graph

    # Nodes

    def get(self, value: Any) -> Any:
        """Return what a value of TorchScript's graph is."""
        found = self.resolved(self._values[value.unique()])
        nested.check_read(found)
        return found

    def resolved(self, found: Any) -> Any:
        """Return the form of a value where it is known which of two it has."""
        if isinstance(found, Variant) and found.is_other in self._forms:
            return found.other if self._forms[found.is_other] else found.one
        return found

    def in_form(self, found: Any, flag: Any, is_other: bool) -> Any:
        """Return the form that a value has where `flag` is `is_other`."""
        if isinstance(found, Variant) and found.is_other is flag:
            return found.other if is_other else found.one
        return found

    def knowing(self, flag: Any, is_other: bool, run: Callable[[], list[Any]]) -> list[Any]:
        """Import while it is known which form values have."""
        outer = self._forms
        self._forms = {**outer, flag: is_other}
        try:
            return [self.resolved(found) for found in run()]
        finally:
            self._forms = outer

    @contextmanager
    def taken_for(self, value: Any, found: Any) -> Iterator[None]:
        """Import while a value of TorchScript's graph is something else."""
        outer, self._values = self._values, {**self._values, value.unique(): found}
        try:
            yield
        finally:
            self._values = outer

    def run_block(self, block: Any, params: Sequence[Any] = ()) -> list[Any]:
        """Import the nodes of a block; return its results."""
        if params:
            for value, found in zip(block.inputs(), params, strict=True):
                self._values[value.unique()] = found
        for node in block.nodes():
            self.run_node(node)
        return [self.get(value) for value in block.outputs()]

    def run_apart(self, graph: Any, args: Sequence[Any]) -> list[Any]:
        """Import another graph, whose values have names of their own; return its results."""
        outer, self._values = self._values, {}
        try:
            return self.run_block(graph, args)
        finally:
            self._values = outer

    def run_node(self, node: Any) -> None:
        """Import one node. Errors get the model's line."""
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
            self._values[value.unique()] = result

    def line_of(self, node: Any) -> str:
        """Return the model's line of a node."""
        return self._line or source_of(node)

    @contextmanager
    def at_line(self, line: str) -> Iterator[None]:
        """Import code that is not the model's own, which its line calls."""
        outer, self._line = self._line, line
        try:
            yield
        finally:
            self._line = outer

    def trial(self) -> Any:
        """Return a context in which what is imported is taken back."""
        return regions.trial(self)

    def message_of(self, node: Any) -> Any:
        """Return the message of prim::RaiseException; a graph value where a call tells it."""
        found = self.get(node.inputsAt(0))
        if kind_of(found) == "str" and is_run_time(found):
            return found
        return found if isinstance(found, str) and found else "the model raises an exception"

    def call(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Import an operator of graph values."""
        return self.convert(overload, args, kwargs, self.builder.source)

    # Constants and state

    def tensor_constant(self, tensor: torch.Tensor, name: str) -> Tensor:
        """Return a tensor of the model, made once, before everything else."""
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else name
        if key not in self._constants:
            b = self.builder
            outer, b.block = b.block, self.graph.body
            n_nodes = len(b.block.nodes)
            self._constants[key] = self.tensors.fresh(self.constant(*array_of(tensor), name), name)
            self.constant_nodes.update(b.block.nodes[n_nodes:])
            self._constants[key].memory.birth = 0
            b.block = outer
        return self._constants[key]

    def _note(self, cell: Any) -> None:
        name = getattr(cell, "name", "")
        if name and cell.birth == 0 and name not in self.assumptions.state:
            self.assumptions.state[name] = None
            raise _Again
        self.regions.note(cell)

    def keep_form(self, path: str, form: Any) -> None:
        """Give a tensor of the state a second form, or other sizes, which it has after a call."""
        self.assumptions.state[path] = form
        raise _Again

    def keep_state(self, path: str) -> None:
        """Make an attribute a part of the program's state, which calls hand on."""
        if path not in self.assumptions.state:
            self.assumptions.state[path] = None
            raise _Again

    # What operators need of sizes

    def _assume(self, condition: Any) -> None:
        """Make it part of the contract that sizes of the inputs are equal, where the example says so."""
        if len(self.regions.blocks) == 1:
            self._keep(condition)

    def _keep(self, condition: Any) -> None:
        for part in condition.args if isinstance(condition, sympy.Or) else (condition,):
            found = self._solved(part)
            if found is not None:
                self.assumptions.sizes[found[0]] = found[1]
                raise _Again

    def _solved(self, condition: Any) -> tuple[str, DimExpr] | None:
        """Return a size of the inputs and what it is, for an equation that the example fulfils."""
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

    def require_equal(self, one: DimExpr, other: DimExpr) -> None:
        """Make sizes that an operator needs to be equal so, where they are sizes of the inputs, also where a
        call may not come there: nothing else can be compiled."""
        if simplify(sympy.sympify(one) - sympy.sympify(other)) != 0:
            self._keep(sympy.Eq(sympy.sympify(one), sympy.sympify(other), evaluate=False))

    # Attributes

    def attribute(self, owner: Object, name: str) -> Any:
        """Return the content of an attribute."""
        return self.resolved(self.attribute_cell(owner, name).content)

    def attribute_cell(self, owner: Object, name: str) -> Any:
        """Return the cell of an attribute."""
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

    def initial(self, path: str) -> Any:
        """Return the value that an attribute of the model has before the first call."""
        found = self.script.module
        while path:
            if isinstance(found, list | tuple | dict):
                keys = found if isinstance(found, dict) else range(len(found))
                key = next(k for k in keys if path == str(k) or path.startswith(f"{k}."))
                found, path = found[key], path[len(str(key)) + 1 :]
            else:
                name, _, path = path.partition(".")
                found = attribute_of(found, name)
        return found

    def abstract(self, found: Any, path: str) -> Any:
        """Return what a value of the model's is here."""
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
        if found is None or isinstance(found, bool | int | float | str | torch.dtype | torch.device):
            return str(found) if isinstance(found, torch.device) else found
        if hasattr(found, "getattr") or isinstance(found, torch._C.ScriptObject | torch._C.ScriptModule):
            return Object(found, path)
        if torch.jit._state._get_script_class(type(found)) is not None:  # an instance of the Python class
            return Object(found, path)
        raise UnsupportedOp(f"{path} is a {type(found).__name__}, which cannot be compiled")

    def size_of(self, x: Any) -> DimExpr:
        """Return an int as a size. One that only a call tells must be at least 0 there."""
        if not is_run_time(x):
            return x
        b = self.builder
        zero = b.size(0)
        b.apply("guard", b.one("int_le", zero, x), message="an int that is used as a size must be at least 0")
        name = symbol(self.graph.new_name("n"))
        (named,) = b.insert(Node("int_max", [x, zero]), [ScalarType("int", name)])
        return named.type.expr  # type: ignore[union-attr]
