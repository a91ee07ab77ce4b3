"""Walks a model's nodes in order: folds what sizes and constants decide, and calls the rows of the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx
import sympy
from onnx import AttributeProto, defs

from ....calls.pytree import LEAF, to_json
from ...ir.dims import symbol
from ...ir.errors import ArchiveError, Error, ShapeError, UnsupportedOp
from ...ir.graph import Block, Builder, Graph, SymbolInfo, Value
from ...ir.types import TensorType
from ...ops import build as B
from ...ops.random import STATE as RANDOM
from ...ops.random import add_generator
from . import operators  # noqa: F401 - fills the table
from .folds import folded
from .known import NUMPY, Known, dtype_of_array, materialised
from .reader import Model, domain_of, element_name
from .rows import ROWS, Call, Operand

MAX_SIZE = 1 << 48  # of an axis: a higher bound is none
MAX_FUNCTIONS = 16  # operators defined by others, within each other
#: Errors of computing with attributes and constants that nobody has checked.
_UNFIT = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_NEITHER = "neither a node before it nor an input or weight makes it"


@dataclass(frozen=True)
class Narrowing:
    """What is known of every call beyond the model itself. `least`: the lower bound of free sizes; `sizes`:
    of inputs, an int, a name or a Dim by (input, axis); `constants`: inputs with one value, such as the axes
    of a reduction, which are no inputs of the graph."""

    least: int = 0
    sizes: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)


def import_model(model: Model, name: str = "main", narrowing: Narrowing | None = None) -> Graph:
    """Return the graph of a model.

    Raises UnsupportedOp naming every operator that cannot be compiled, ArchiveError for a damaged graph,
    ShapeError or DtypeError with the node's name.
    """
    return OnnxImporter(model, name, narrowing or Narrowing()).run()


class OnnxImporter:
    """Imports one model (`rows.Scope`)."""

    def __init__(self, model: Model, name: str, narrowing: Narrowing) -> None:
        self.model, self._narrowing = model, narrowing
        self._graph = Graph(name)
        self.builder = Builder(self._graph)
        self.builder.assume = self._assume  # sizes that may be 1 are broadcast
        #: What the names that are visible here mean; None: an input that a call leaves out.
        self._names: dict[str, Operand | None] = {}
        #: Values of known tensors by the identities of block and tensor, with these, which keeps them alive.
        self._values: dict[tuple[int, int], tuple[Block, Known, Value]] = {}
        self._depth = 0

    def run(self) -> Graph:
        """Import everything and return the graph."""
        proto, graph = self.model.proto.graph, self._graph
        self._require(proto)
        for each in self.model.inputs:
            if each.name in self._narrowing.constants:
                array = np.asarray(self._narrowing.constants[each.name])
                self._names[each.name] = Known(array, dtype_of_array(array), each.name)
            else:
                self._names[each.name] = self._input(each)
        results = self._import_nodes(proto)
        graph.outputs = [each.name for each in proto.output]
        graph.body.results = [self.value(result) for result in results]
        names = [name for name in graph.inputs if name not in graph.state]
        if self.builder.generator is not None:
            graph.outputs.append(f"state.{RANDOM}")
            graph.body.results.append(self.builder.generator)
        signature = {"positional": names, "parameters": dict.fromkeys(names, LEAF)}
        outputs = LEAF if len(results) == 1 else {"tuple": [LEAF] * len(results)}
        graph.structure["inputs"], graph.structure["outputs"] = to_json(signature), to_json(outputs)
        return graph

    # What rows use

    def value(self, x: Operand) -> Value:
        """See Scope."""
        if isinstance(x, Value):
            return x
        key = id(self.builder.block), id(x)
        if key not in self._values:
            self._values[key] = self.builder.block, x, materialised(self.builder, x)
        return self._values[key][-1]

    def array(self, tensor: onnx.TensorProto) -> Known:
        """See Scope."""
        return self.model.array(tensor)

    def graph(self, graph: onnx.GraphProto, arguments: Sequence[Operand]) -> list[Operand]:
        """See Scope."""
        outer = dict(self._names)
        try:
            self._names.update(zip((each.name for each in graph.input), arguments, strict=False))
            return self._import_nodes(graph)
        finally:
            self._names = outer

    def block(
        self, params: list[Value], run: Callable[[], list[Operand]], dtypes: Sequence[str | None] = ()
    ) -> Block:
        """See Scope."""
        made, outer, generator = Block(params=params), self.builder.block, self.builder.generator
        self.builder.block = made
        try:
            made.results = [self.value(result) for result in run()]
            for i, dtype in enumerate(dtypes):
                if dtype is not None:
                    made.results[i] = B.cast_to(self.builder, made.results[i], dtype)
            if self.builder.generator is not generator:
                raise UnsupportedOp("random numbers within a branch or loop cannot be compiled")
        finally:
            self.builder.block = outer
        return made

    def add_generator(self, seed: int) -> None:
        """See Scope."""
        if self.builder.generator is None:
            self.builder.generator = add_generator(self._graph, seed)

    # Inputs

    def _input(self, info: onnx.ValueInfoProto) -> Value:
        what = f'input "{info.name}"'
        if not info.type.HasField("tensor_type"):
            raise UnsupportedOp(f"{what} is a {info.type.WhichOneof('value')}; only tensors can be given")
        kind = info.type.tensor_type
        if not kind.HasField("shape"):
            raise UnsupportedOp(f"{what} has no shape in the model; give it one with onnx.shape_inference")
        dtype = element_name(kind.elem_type, what)
        shape = tuple(self._size(info.name, axis, dim) for axis, dim in enumerate(kind.shape.dim))
        return self._graph.input(info.name, TensorType(dtype, shape))

    def _size(self, name: str, axis: int, dim: Any) -> Any:
        """Return a size of an input: a number, or a symbol with the name that the caller, the model or the
        axis gives."""
        given = self._narrowing.sizes.get((name, axis))
        own = dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
        if own is not None:
            if isinstance(given, int) and given != own:
                raise ShapeError(f'input "{name}": axis {axis} has size {own} in the model, not {given}')
            return own
        said = dim.dim_param if re.search(r"\w", dim.dim_param) else ""
        if isinstance(given, int):
            return given
        why = f"size {said} of the model" if said else f"axis {axis} of {name}"
        return self._symbol(getattr(given, "__name__", given) or said or f"{name}_{axis}", given, why)

    def _symbol(self, text: str, given: Any, why: str) -> Any:
        """Return the symbol of a free size; `given`: a Dim, which may have a range."""
        name = re.sub(r"\W", "_", text)
        name = name if name.isidentifier() and name.isascii() else f"size_{len(self._graph.symbols)}"
        low, high = getattr(given, "min", None), getattr(given, "max", None)
        high = None if high is None or high > MAX_SIZE else int(high)
        info = SymbolInfo(name, max(self._narrowing.least, int(low or 0)), high, why=why)
        self._graph.symbols.setdefault(name, info)
        return symbol(name)

    def _assume(self, condition: Any) -> None:
        """Make a bound of a size, which every call checks, part of the contract."""
        bounded = isinstance(condition, sympy.Le) and condition.lhs.is_Symbol and condition.rhs.is_Integer
        info = self._graph.symbols.get(str(condition.lhs)) if bounded else None
        if info is not None and self.builder.block is self._graph.body:
            high = int(condition.rhs) if info.max is None else min(info.max, int(condition.rhs))
            self._graph.symbols[info.name] = replace(info, max=high)

    # Nodes

    def _require(self, graph: onnx.GraphProto) -> None:
        """Raise UnsupportedOp naming the operators that have no row."""
        missing: dict[str, list[str]] = {}
        for node in graph.node:
            if self._row(node) is None and self._function(node) is None:
                text = f"{node.domain or 'ai.onnx'}.{node.op_type}"
                missing.setdefault(text, []).append(node.name or (node.output[0] if node.output else ""))
        if missing:
            first, *others = missing
            near = get_close_matches(first.rpartition(".")[2], [name for _, name in ROWS], n=1, cutoff=0.8)
            raise UnsupportedOp(
                f"operator {first}, version {self.model.version}, of node {missing[first][0]!r} cannot be "
                f"compiled{f' (nearest known: {near[0]})' if near else ''}"
                + (f"; nor can {len(others)} others: {', '.join(others)}" if others else "")
            )

    def _row(self, node: onnx.NodeProto) -> Any:
        return ROWS.get((domain_of(node.domain), node.op_type))

    def _import_nodes(self, graph: onnx.GraphProto) -> list[Operand]:
        """Import a graph's weights and nodes; return its results."""
        for tensor in graph.initializer:
            self._names[tensor.name] = self.array(tensor)
        if graph.sparse_initializer:
            raise UnsupportedOp("the model has sparse weights; write them as dense ones")
        for node in graph.node:
            self._import(node)
        return [self._named(each.name, f"the result {each.name!r}") for each in graph.output]

    def _named(self, name: str, what: str, may_be_absent: bool = False) -> Any:
        found = self._names.get(name)
        if found is None and not (may_be_absent and name in self._names):
            raise ArchiveError(f"{what} needs {name!r}, but {_NEITHER}")
        return found

    def _import(self, node: onnx.NodeProto) -> None:
        what = (
            f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} of {', '.join(node.output)!r}"
        )
        self.builder.source = what
        try:
            call = self._call(node, what)
            results = self._results(call, node)
        except Error as error:
            error.source = error.source or what
            raise
        except _UNFIT as error:
            raise ArchiveError(
                f"{what} has inputs or attributes that do not fit together: {error}"
            ) from error
        for name, result in zip(node.output, results, strict=False):
            if name and result is not None:
                self._names[name] = result

    def _call(self, node: onnx.NodeProto, what: str) -> Call:
        inputs = [self._named(name, what, True) if name else None for name in node.input]
        attributes = {each.name: _attribute(each) for each in node.attribute}
        domain = domain_of(node.domain)
        version = self.model.versions.get(domain, 1)
        return Call(node.op_type, domain, version, self, inputs, attributes, len(node.output))

    def _results(self, call: Call, node: onnx.NodeProto) -> Sequence[Operand | None]:
        made = folded(call)
        if made is None:
            run = self._row(node)
            made = None if run is None else run(call)
            if made is None:
                return self._import_function(call, node)
        return made if isinstance(made, tuple | list) else [made]

    # Operators that the standard defines by others

    def _function(self, node: onnx.NodeProto) -> Any:
        try:
            schema: Any = defs.get_schema(
                node.op_type, self.model.versions.get(domain_of(node.domain), 1), domain_of(node.domain)
            )
        except defs.SchemaError:
            return None
        return schema if schema.has_function or schema.has_context_dependent_function else None

    def _import_function(self, call: Call, node: onnx.NodeProto) -> Sequence[Operand | None]:
        """Import the body of an operator that the standard defines by others."""
        schema = self._function(node)
        if schema is None:
            raise UnsupportedOp(f"operator {node.op_type} cannot be compiled")
        if self._depth >= MAX_FUNCTIONS:
            raise UnsupportedOp(f"operator {node.op_type} is defined by itself")
        body = _body(schema, self.model.version, node, call)
        outer, self._names = self._names, {}
        attributes = {name: each.default_value for name, each in schema.attributes.items()}
        attributes |= {each.name: each for each in node.attribute}
        self._depth += 1
        try:
            given = [*call.inputs, *[None] * (len(body.input) - len(call.inputs))]
            self._names.update(zip(body.input, given, strict=True))
            for inner in body.node:
                self._import(_with_attributes(inner, attributes, body))
            return [self._names.get(name) for name in body.output]
        finally:
            self._depth -= 1
            self._names = outer


def _body(schema: Any, version: int, node: onnx.NodeProto, call: Call) -> Any:
    """Return the nodes by which the standard defines an operator."""
    if schema.has_function:
        text = schema.get_function_with_opset_version(_version(schema.function_opset_versions, version))
    else:
        types = []
        for i in range(len(node.input)):
            made = onnx.TypeProto()
            if call.has(i):
                element = onnx.helper.np_dtype_to_tensor_dtype(NUMPY[call.dtype(i)])
                sizes = [size if isinstance(size, int) else None for size in call.shape(i)]
                made = onnx.helper.make_tensor_type_proto(element, sizes)
            types.append(made.SerializeToString())
        at = _version(schema.context_dependent_function_opset_versions, version)
        text = schema.get_context_dependent_function_with_opset_version(at, node.SerializeToString(), types)
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    if not body.output:
        raise UnsupportedOp(f"{node.op_type}: the standard has no definition of it for these inputs")
    return body


def _version(versions: Sequence[int], version: int) -> int:
    return max((each for each in versions if each <= version), default=min(versions))


def _with_attributes(node: onnx.NodeProto, given: Mapping[str, AttributeProto], body: Any) -> onnx.NodeProto:
    """Return a node of a function's body, with those inside it, with the attributes of its call."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    defaults = {each.name: each for each in body.attribute_proto}
    del made.attribute[:]
    for each in node.attribute:
        found = (
            given.get(each.ref_attr_name, defaults.get(each.ref_attr_name)) if each.ref_attr_name else each
        )
        if found is None or not found.type:
            continue
        copied = made.attribute.add()
        copied.CopyFrom(found)
        copied.name = each.name
        for graph in (
            (copied.g, *copied.graphs) if copied.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) else ()
        ):
            inner = [_with_attributes(each, given, body) for each in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return made


def _attribute(attribute: AttributeProto) -> Any:
    """Return an attribute's value."""
    try:
        return onnx.helper.get_attribute_value(attribute)
    except ValueError as error:
        raise ArchiveError(f"attribute {attribute.name!r} cannot be read: {error}") from None
