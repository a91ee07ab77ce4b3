"""The graph IR: one data type from import to bytecode.

A `Graph` has a body `Block`: parameters, nodes in execution order, results. A `Node` applies an op (a name
declared in `compiler.ops`) to values; `attrs` are static data (ints, floats, bools, strings, dimensions,
numpy arrays, types, kernel specs, tuples of these). Control flow is a node with regions: `if` (cond; blocks
then, else), `while` (carried values; blocks cond, body). Every value has one definition (SSA) and a type.
Passes change graphs in place through the methods here, which keep `Value.users` right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from .dims import DimExpr, symbol
from .rounding import Rounding
from .types import ScalarType, TensorType, Type

#: Computes the types of an operator's results from its arguments' types (None: absent) and its attributes.
TypeRule = Callable[[Sequence[Type | None], dict[str, Any]], Sequence[Type]]
#: What the names of sizes that data decide begin with, if a builder gives them.
FOUND = "found"
#: The type rule of every operator by its name. `compiler.ops` fills it, so the IR imports no operator.
TYPE_RULES: dict[str, TypeRule] = {}


class Value:
    """An SSA value. `name` is unique in its graph. `node` is its definition, None for a block parameter."""

    def __init__(self, name: str, type: Type, node: Node | None = None) -> None:
        self.name = name
        self.type = type
        self.node = node
        self.users: list[Node] = []  # one entry per use as an argument; block results are not users

    @property
    def definition(self) -> Node:
        """The node that defines the value, which must not be a block parameter."""
        assert self.node is not None, f"%{self.name} is a parameter"
        return self.node

    @property
    def tensor(self) -> TensorType:
        """The type of the value, which is a tensor."""
        assert isinstance(self.type, TensorType), f"%{self.name} is {self.type}, no tensor"
        return self.type

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Node:
    """One application of `op`. `args` may hold None for an absent optional argument."""

    def __init__(
        self,
        op: str,
        args: Sequence[Value | None],
        attrs: dict[str, Any] | None = None,
        regions: Sequence[Block] = (),
        source: str = "",
    ) -> None:
        self.op = op
        self.args: list[Value | None] = []
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.regions = list(regions)
        self.source = source  # "file.py:31" of the user's model, or ""
        self.results: list[Value] = []
        self.set_args(args)

    def arg(self, position: int) -> Value:
        """Return the argument at `position`, which is present."""
        value = self.args[position]
        assert value is not None, f"{self.op} has no argument {position}"
        return value

    @property
    def present(self) -> list[Value]:
        """The arguments that are present."""
        return [value for value in self.args if value is not None]

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def set_args(self, args: Sequence[Value | None]) -> None:
        """Replace all arguments."""
        for value in self.args:
            if value is not None:
                value.users.remove(self)
        self.args = list(args)
        for value in self.args:
            if value is not None:
                value.users.append(self)

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.results))} = {self.op}({', '.join(map(repr, self.args))})"


def replace_uses(old: Value, new: Value) -> None:
    """Make every use of `old` as an argument a use of `new`."""
    for node in list(old.users):
        node.set_args([new if arg is old else arg for arg in node.args])


def is_named(value: Value) -> bool:
    """Return True if the type of `value`, an int, is a size symbol, which this value defines."""
    return isinstance(value.type, ScalarType) and isinstance(value.type.expr, sympy.Symbol)


@dataclass(eq=False)
class Block:
    """A straight list of nodes with parameters and results."""

    params: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class SymbolInfo:
    """The contract of a size symbol: min <= value (<= max), a multiple of `multiple_of`. A size is at least
    0; an int input may be negative: `min` is INT_MIN if it is unbounded.

    `why`: the model's line that requires it.
    """

    name: str
    min: int = 0
    max: int | None = None
    multiple_of: int = 1
    why: str = ""


@dataclass
class Graph:
    """A function: `inputs` and `outputs` name the body's parameters and results.

    `symbols`: the sizes of the contract. `structure`: the map from flat inputs and outputs to the caller's
    nested ones (JSON data), opaque to the compiler. `state`: the initial values, by name, of the last inputs,
    which the program keeps between calls: arrays with their dtype, or strings, and tuples for lists, with
    their type. `rounding`: of the weights of matrix products. `accurate`: products are summed in short
    chains, without algorithms whose sums are less exact than sequential fused multiply-adds (such as
    Winograd's), and factors stay apart from weights (`fold_scales`). `pack`: the input that masks padded
    tokens, "auto" for any that does, or "" (`passes.tokens`, which leaves the result there).
    """

    name: str
    body: Block = field(default_factory=Block)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    symbols: dict[str, SymbolInfo] = field(default_factory=dict)
    structure: dict[str, Any] = field(default_factory=dict)
    state: dict[str, tuple[Any, str]] = field(default_factory=dict)
    rounding: Rounding = field(default_factory=Rounding)
    accurate: bool = False
    pack: str = ""
    _n_values: int = 0
    _names: set[str] = field(default_factory=set)

    def new_name(self, hint: str = "") -> str:
        """Return a fresh value name."""
        self._n_values += 1
        name = f"{hint or 'v'}{self._n_values}"
        return name if name not in self._names else self.new_name(hint)

    def take_name(self, name: str) -> str:
        """Return `name` and reserve it, so that `new_name` does not return it."""
        self._names.add(name)
        return name

    def input(self, name: str, type: Type) -> Value:
        """Append a parameter to the body."""
        value = Value(self.take_name(name), type)
        self.body.params.append(value)
        self.inputs.append(name)
        return value

    def require_rows(self, values: Iterable[Value]) -> None:
        """Note those that are inputs: calls must give them row by row, as the program reads their memory."""
        names = dict(zip(self.body.params, self.inputs, strict=True))
        found = [names[value] for value in values if value in names]
        if found:
            self.structure["in_rows"] = list(dict.fromkeys([*self.structure.get("in_rows", []), *found]))

    def nodes(self, block: Block | None = None) -> Iterator[Node]:
        """Yield every node, nodes of regions before the node that contains them."""
        for node in list((block or self.body).nodes):
            for region in node.regions:
                yield from self.nodes(region)
            yield node

    def replace(self, old: Value, new: Value) -> None:
        """Make every use of `old`, block results included, a use of `new`."""
        replace_uses(old, new)
        self.replace_results({old: new})

    def replace_results(self, new: Mapping[Value, Value]) -> None:
        """Replace block results by `new`, transitively: once for all replacements of a pass, because it walks
        the whole graph."""

        def last(value: Value) -> Value:
            while value in new:
                value = new[value]
            return value

        for block in self.blocks() if new else ():
            block.results = list(map(last, block.results))

    def blocks(self) -> Iterator[Block]:
        """Yield the body and every region's block."""
        pending = [self.body]
        while pending:
            block = pending.pop()
            yield block
            pending += [region for node in block.nodes if node.regions for region in node.regions]


class Builder:
    """Appends nodes to a block, inferring result types from the op's declaration."""

    def __init__(self, graph: Graph, block: Block | None = None, position: int | None = None) -> None:
        self.graph = graph
        self.block = block or graph.body
        self.position = position  # None: at the end; else nodes are inserted here, in order
        self.source = ""
        self.new_sizes: list[DimExpr] = []  # a frontend's names for the next operator's data-dependent sizes
        self.n_results: int | None = None  # the number of results of the next operator when traced
        self.places: dict[Value, Value] = {}  # indices of true elements, by mask
        #: Called with each condition on sizes that calls would check: a frontend may make it part of the
        #: contract. If set, sizes that may be 1 broadcast as in PyTorch.
        self.assume: Callable[[Any], None] | None = None
        self.generator: Value | None = None  # of random numbers (`ops.random`), if a frontend provides one

    def take_size(self) -> DimExpr:
        """Return the symbol for a data-dependent size of an operator: a frontend's, or a new one."""
        return self.new_sizes.pop(0) if self.new_sizes else symbol(self.graph.new_name(FOUND))

    def insert(self, node: Node, types: Sequence[Type], hint: str = "") -> list[Value]:
        """Insert `node` with results of `types`; return them."""
        node.source = node.source or self.source
        node.results = [Value(self.graph.new_name(hint), t, node) for t in types]
        if self.position is None:
            self.block.nodes.append(node)
        else:
            self.block.nodes.insert(self.position, node)
            self.position += 1
        return node.results

    def apply(self, op: str, *args: Value | None, **attrs: Any) -> list[Value]:
        """Append op(args, attrs) and return its results. Raises the errors of the op's type rule."""
        given = [arg.type if arg is not None else None for arg in args]
        types = TYPE_RULES[op](given, attrs)  # before the node becomes a user of its arguments
        return self.insert(Node(op, args, attrs), types)

    def one(self, op: str, *args: Value | None, **attrs: Any) -> Value:
        """Append op(args, attrs) and return its only result."""
        (value,) = self.apply(op, *args, **attrs)
        return value

    def constant(self, array: np.ndarray, dtype: str, name: str = "") -> Value:
        """Append a constant tensor; bf16 is stored as uint16 bits."""
        return self.one("constant", array=array, dtype=dtype, name=name)

    def size(self, dim: DimExpr) -> Value:
        """Append the int value of a dimension."""
        return self.one("size", dim=dim)


def copied(graph: Graph) -> Graph:
    """Return a copy of `graph` that passes may change; it shares the arrays of constants."""
    arrays = [node.attrs["array"] for node in graph.nodes() if node.op == "constant"]
    return deepcopy(graph, {id(array): array for array in arrays})


def erase(block: Block, node: Node) -> None:
    """Remove `node`, its regions included, from `block`; its results must be unused."""
    detach(node)
    block.nodes.remove(node)


def detach(node: Node) -> None:
    """Remove all uses by `node` and the nodes of its regions."""
    for region in node.regions:
        for inner in region.nodes:
            detach(inner)
    node.set_args([])
