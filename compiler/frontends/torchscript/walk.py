"""The walk over a TorchScript graph, as all that imports nodes sees it; `importer.py` has the walk itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch

from ...ir.dims import DimExpr, simplify, symbol, symbols_of
from ...ir.graph import Node
from ...ir.types import ScalarType
from ..fx_nodes import constant_of
from ..importer import Importer
from ..kinds import Script
from .bounds import Steps
from .source import attribute_of, source_of
from .values.regions import Regions, Trial
from .values.scalars import condition_of
from .values.tensors import Tensors
from .values.values import Maybe, Object, Tensor, Variant, check_read, is_run_time, kind_of


@dataclass
class Assumptions:
    """Results of earlier walks: `sizes` of inputs that are always some number or another size;
    `state`: attributes that calls change; `frozen`: arguments whose numbers and strings are constants;
    `fixed`: those for which None or presence is the example's; `doubts`: what the example could decide:
    into how many parts an axis of run-time length is unbound ("unbinding"), whether a size of 1 is broadcast
    with one that is not the inputs' ("broadcasting"); `as_example`: what it does; `may_call_torch`: PyTorch
    is called for operators without a kernel; `steps`: of all walks; `examples`: the example's sizes for which
    `sizes` may have entries, by name; `chosen`: those of `sizes` that broadcasting takes from the example;
    `squeezed`: sizes that squeezing takes to be "1" or "not 1", as in the example; `is_operator_refused`: an
    operator of tensors was refused."""

    sizes: dict[str, DimExpr] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    doubts: set[str] = field(default_factory=set)
    as_example: frozenset[str] = frozenset()
    may_call_torch: bool = False
    steps: Steps = field(default_factory=Steps)
    examples: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, DimExpr] = field(default_factory=dict)
    squeezed: dict[str, str] = field(default_factory=dict)
    is_operator_refused: bool = False

    def size(self, name: DimExpr) -> DimExpr:
        """Return a size with known facts substituted for its name."""
        while symbols_of(name) & set(self.sizes):
            known = {symbol(n): size for n, size in self.sizes.items()}
            name = simplify(sympy.sympify(name).subs(known))
        return name


class Again(Exception):
    """Something was found out that the walk should have known."""


@dataclass(frozen=True)
class Bound:
    """What the size `given` of a tensor's axis must be: `size`, or else from `low` to `high`."""

    axis: int
    given: DimExpr
    size: DimExpr | None
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Scope:
    """State of the nodes at hand: `values` of the graph, by their numbers; known `forms` of values of two
    forms, by their flags; the model's `line`, while code outside the model is imported."""

    values: dict[Any, Any] = field(default_factory=dict)
    forms: dict[Any, bool] = field(default_factory=dict)
    line: str = ""


class Walk(Importer, ABC):
    """What is known of a program while its nodes are imported in turn."""

    root: Object

    def __init__(self, script: Script, assumptions: Assumptions) -> None:
        super().__init__("main")
        self.script, self.assumptions = script, assumptions
        self.regions = Regions(self.builder, lambda x: self.tensors.read(x))
        self.tensors = Tensors(self.builder, self.run_operator, self.regions.is_open, self._note)
        self.constant_nodes: set[Node] = set()
        self.python_functions: set[str] = set()  # of which the program's operators are those of the example
        self._constants: dict[Any, Tensor] = {}
        self._scope = Scope()

    @abstractmethod
    def run_node(self, node: Any) -> None:
        """Import one node. Errors get the model's line."""

    @abstractmethod
    def run_operator(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Append an operator of graph values; sizes that it needs to be equal become so in the contract."""

    # Values

    def set(self, value: Any, found: Any) -> None:
        """Note what a value of TorchScript's graph is."""
        self._scope.values[value.unique()] = found

    def get(self, value: Any) -> Any:
        """Return the value for a value of TorchScript's graph."""
        found = self.resolved(self._scope.values[value.unique()])
        check_read(found)
        return found

    def resolved(self, found: Any) -> Any:
        """Return the form of a value of two forms, and None for what is absent, if that is known."""
        flag = found.is_other if isinstance(found, Variant) else getattr(found, "is_there", None)
        return self.in_form(found, flag, self._scope.forms[flag]) if flag in self._scope.forms else found

    def in_form(self, found: Any, flag: Any, is_other: bool) -> Any:
        """Return the form of a value when `flag` is `is_other`."""
        if isinstance(found, Variant) and found.is_other is flag:
            return found.other if is_other else found.one
        return None if isinstance(found, Maybe) and found.is_there is flag and not is_other else found

    @contextmanager
    def _within(self, **changes: Any) -> Iterator[None]:
        outer, self._scope = self._scope, replace(self._scope, **changes)
        try:
            yield
        finally:
            self._scope = outer

    def knowing(self, flag: Any, is_other: bool, run: Callable[[], list[Any]]) -> list[Any]:
        """Import while it is known which form values have."""
        with self._within(forms={**self._scope.forms, flag: is_other}):
            return [self.resolved(found) for found in run()]

    def taken_for(self, value: Any, found: Any) -> AbstractContextManager[None]:
        """Import while a value of TorchScript's graph is something else."""
        return self._within(values={**self._scope.values, value.unique(): found})

    # Nodes

    def run_block(self, block: Any, params: Sequence[Any] = ()) -> list[Any]:
        """Import the nodes of a block; return its results."""
        if params:
            for value, found in zip(block.inputs(), params, strict=True):
                self.set(value, found)
        for node in block.nodes():
            self.run_node(node)
        return [self.get(value) for value in block.outputs()]

    def run_apart(self, graph: Any, args: Sequence[Any]) -> list[Any]:
        """Import another graph, whose values have names of their own; return its results."""
        with self._within(values={}):
            return self.run_block(graph, args)

    def line_of(self, node: Any) -> str:
        """Return the model's line of a node."""
        return self._scope.line or source_of(node)

    def at_line(self, line: str) -> AbstractContextManager[None]:
        """Import code that is not the model's own, which its line calls."""
        return self._within(line=line)

    def trial(self) -> AbstractContextManager[Trial]:
        """Return a context in which what is imported is taken back."""
        return self.regions.trial(self.tensors.went_stale, self.constant_nodes)

    def message_of(self, node: Any) -> Any:
        """Return the message of prim::RaiseException; a graph value if it is computed at run time."""
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
            self._constants[key] = self.tensors.fresh(constant_of(self, tensor, name), name)
            self.constant_nodes.update(b.block.nodes[n_nodes:])
            self._constants[key].memory.birth = 0
            b.block = outer
        return self._constants[key]

    def _note(self, cell: Any) -> None:
        name = getattr(cell, "name", "")
        if name and cell.birth == 0 and name not in self.assumptions.state:
            self.assumptions.state[name] = None
            raise Again
        self.regions.note(cell)

    def keep_form(self, path: str, form: Any) -> None:
        """Give a tensor of the state a second form, or other sizes, which it has after a call."""
        self.assumptions.state[path] = form
        raise Again

    def keep_state(self, path: str) -> None:
        """Make an attribute a part of the program's state, carried from call to call."""
        if path not in self.assumptions.state:
            self.assumptions.state[path] = None
            raise Again

    # Sizes

    def known_sizes(self) -> dict[DimExpr, int]:
        """Return the sizes that equal a number in the branches at hand."""
        conditions = {
            condition_of(flag): is_so for flag, is_so in self._scope.forms.items() if is_run_time(flag)
        }
        equal = [c for c, is_so in conditions.items() if isinstance(c, sympy.Eq if is_so else sympy.Ne)]
        return {c.lhs: int(c.rhs) for c in equal if c.lhs.is_Symbol and c.rhs.is_Integer}

    @abstractmethod
    def example_of(self, size: DimExpr) -> int | None:
        """Return what a size is in the example, None where the example does not tell."""

    @abstractmethod
    def bounds_of(self, x: Tensor) -> tuple[str, list[Bound]]:
        """Return the name of an input that may be absent, and what its sizes must be where it is there."""

    @abstractmethod
    def require_equal(self, one: DimExpr, other: DimExpr) -> None:
        """Make sizes that an operator needs to be equal so, where they are sizes of the inputs, also where a
        call may not come there: nothing else can be compiled."""

    def size_of(self, x: Any) -> DimExpr:
        """Return an int as a size. A run-time value is checked to be at least 0."""
        if not is_run_time(x):
            return x
        b = self.builder
        zero = b.size(0)
        b.apply("guard", b.one("int_le", zero, x), message="an int that is used as a size must be at least 0")
        name = symbol(self.graph.new_name("n"))
        (named,) = b.insert(Node("int_max", [x, zero]), [ScalarType("int", name)])
        return named.type.expr  # type: ignore[union-attr]

    # Attributes

    @abstractmethod
    def abstract(self, found: Any, path: str) -> Any:
        """Return what a value of the model's is here."""

    @abstractmethod
    def attribute_cell(self, owner: Object, name: str) -> Any:
        """Return the cell of an attribute."""

    def attribute(self, owner: Object, name: str) -> Any:
        """Return the content of an attribute."""
        return self.resolved(self.attribute_cell(owner, name).content)

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
