"""Emission: a lowered graph becomes a VM program (`vm.program`).

Sizes are ints in registers: a dimension expression is computed where it is first needed, then kept. Tensor
constants are fetched where they are used. The results of kernels are allocated just before the launch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import sympy

from ...jit.spec import KernelSpec, to_json
from ...vm.builder import FunctionBuilder, Label, ProgramBuilder
from ...vm.isa import DTYPES, TAGS
from ...vm.program import Constant, EntryPoint, Kernel, KernelObject, Program
from ..ir.dims import DimExpr, floordiv, simplify, symbol
from ..ir.errors import UnsupportedOp, VerifyError
from ..ir.graph import Block, Builder, Graph, Node, Value, is_named
from ..ir.types import INT, ListType, ScalarType, TensorType, TupleType, Type, parse_type
from ..lower.launches import launches_of
from .contract import Contract, contract_of, outputs_of, share_symbols
from .registers import Code

Compile = Callable[[KernelSpec], Sequence[KernelObject]]
INITIAL_STATE = "initial_state"  # a function of programs that have state
IMMEDIATE = 1 << 31  # ints below it (in magnitude) are operands of `int`, others constants


def emit(
    graph: Graph,
    compile: Compile | None = None,
    functions: Mapping[str, Graph] | None = None,
    others: Sequence[Graph] = (),
) -> Program:
    """Return the program of a lowered graph, which is main. `compile` gives the code objects of a spec
    (None: the program has none).

    `functions` are the targets of `call` nodes; `others` the entry points besides main, by the names of their
    graphs, with the same state. Raises the errors of `contract_of`, and UnsupportedOp for ops without an
    instruction.
    """
    builder = ProgramBuilder()
    entries = {"main": graph, **{each.name: each for each in others}}
    graphs = {**entries, **(functions or {})}
    if graph.state:
        graphs[INITIAL_STATE] = state_graph(graph)
    shared = share_symbols([contract_of(each) for each in entries.values()])
    contracts = dict(zip(entries, shared, strict=True))
    contracts |= {name: contract_of(each) for name, each in graphs.items() if name not in entries}
    writers = {
        name: builder.function(name, len(c.inputs) + len(c.symbols), len(graphs[name].outputs))
        for name, c in contracts.items()
    }
    tables = _Tables(builder, compile, bool(others))
    for name, each in graphs.items():
        emitter = FunctionEmitter(each, contracts[name], tables, writers)
        emitter.function().write(writers[name])
    meta: dict[str, Any] = {"name": graph.name, "structure": graph.structure}
    if others:
        meta["functions"] = {each.name: each.structure for each in others}
    rounded = {row["name"]: row for each in entries.values() for row in each.rounding.rows()}
    if rounded:
        meta["weights"] = list(rounded.values())
    if graph.pack:
        meta["packed"] = graph.pack
    points = [
        EntryPoint(index, contract.inputs, outputs_of(each, contract))
        for index, (each, contract) in enumerate(zip(entries.values(), shared, strict=True))
    ]
    return builder.finish(shared[0].symbols, points, meta)


def state_graph(graph: Graph) -> Graph:
    """Return the function that computes the initial state of a program."""
    made = Graph(INITIAL_STATE, outputs=list(graph.state))
    builder = Builder(made)
    made.body.results = [_first(builder, *value, name) for name, value in graph.state.items()]
    return made


def _first(b: Builder, value: Any, type: str, name: str) -> Value:
    """Return the initial value of a state: an array of a dtype, else a string or list of that type. An array
    of zeros is no constant, so that caches take no room in the artifact."""
    if type not in DTYPES:
        return _plain(b, value, parse_type(type), name)
    if np.ascontiguousarray(value).reshape(-1).view(np.uint8).any():
        return b.constant(value, type, name)
    return b.one("full", value=0, dtype=type, shape=value.shape)


def _plain(b: Builder, value: Any, type: Type, name: str) -> Value:
    if isinstance(type, TensorType):
        return b.constant(value, type.dtype, name)
    if isinstance(type, TupleType):
        items = zip(value, type.elements, strict=True)
        return b.one("tuple", *(_plain(b, item, inner, name) for item, inner in items))
    if isinstance(type, ListType):
        made = b.one("list", element=type.element)
        for item in value:
            made = b.one("append", made, _plain(b, item, type.element, name))
        return made
    return b.size(value) if type == INT else b.one("literal", value=value)


class _Tables:
    """The program's kernels and tensor constants; each spec is compiled once. `is_shared`: equal constants
    are merged."""

    def __init__(self, program: ProgramBuilder, compile: Compile | None, is_shared: bool) -> None:
        self.program, self.compile, self.is_shared = program, compile, is_shared
        self._kernels: dict[KernelSpec, int] = {}
        self._constants: dict[Value, int] = {}
        self._contents: dict[tuple[Any, ...], int] = {}

    def kernel(self, spec: KernelSpec, label: str, source: str) -> int:
        """Return the index of the kernel of `spec`."""
        if spec not in self._kernels:
            objects = tuple(self.compile(spec)) if self.compile is not None else ()
            row = Kernel(to_json(spec), spec.n_dims, spec.buffers, label, source, objects)
            self._kernels[spec] = self.program.kernel(row)
        return self._kernels[spec]

    def constant(self, value: Value) -> int:
        """Return the index of the tensor that a constant node defines."""
        if value not in self._constants:
            attrs = value.definition.attrs
            constant = Constant.tensor(attrs["array"], attrs["dtype"], attrs.get("name", ""))
            put = self._shared if self.is_shared else self.program.constant
            self._constants[value] = put(constant)
        return self._constants[value]

    def _shared(self, constant: Constant) -> int:
        """Return the index of a tensor of these bits: each function packs the weights separately."""
        array = np.ascontiguousarray(constant.value)
        key = (constant.dtype, array.shape, hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest())
        if key not in self._contents:
            self._contents[key] = self.program.constant(constant)
        return self._contents[key]


class FunctionEmitter:
    """Writes one function. `self.sizes` holds the registers of the dimension expressions computed so far."""

    def __init__(
        self,
        graph: Graph,
        contract: Contract,
        tables: _Tables,
        functions: Mapping[str, FunctionBuilder],
    ) -> None:
        self.graph, self.contract, self.tables, self.functions = graph, contract, tables, functions
        n_inputs = len(contract.inputs)
        self.code = Code(n_inputs + len(contract.symbols))
        self.values: dict[Value, int] = {value: i for i, value in enumerate(graph.body.params)}
        self.sizes: dict[DimExpr, int] = {
            symbol(row.name): n_inputs + i for i, row in enumerate(contract.symbols)
        }

    def function(self) -> Code:
        """Return the function's code."""
        for row, value in zip(self.contract.inputs, self.graph.body.params, strict=True):
            if isinstance(value.type, ListType):
                self._expect_items(self.values[value], value.type.element, row.name)
        for guard in self.contract.guards:
            equal = self.code.result("eq", a=self.size(guard.left), b=self.size(guard.right))
            self.code.op("guard", cond=equal, message=guard.message)
        self._nodes(self.graph.body)
        results = tuple(map(self.register, self.graph.body.results))
        self.code.op("return", values=results)
        return self.code

    def _expect_items(self, register: int, element: Type, name: str) -> None:
        """Check the elements of an input list, which the contract does not describe."""
        if isinstance(element, TensorType):
            self.code.op(
                "expect_items",
                a=register, tag=TAGS["tensor"], dtype=element.dtype, rank=element.rank, what=name,
            )  # fmt: skip
        elif isinstance(element, ScalarType):
            self.code.op("expect_items", a=register, tag=TAGS[element.kind], dtype="bool", rank=0, what=name)

    def _nodes(self, block: Block) -> None:
        for node in block.nodes:
            self.code.source = node.source
            rule = _RULES.get(node.op)
            if rule is None:
                raise UnsupportedOp(
                    f"{node.op}: no instruction does this; lower the graph first", source=node.source
                )
            rule(self, node)
            self._remember_sizes(node)
        self.code.source = ""

    def _remember_sizes(self, node: Node) -> None:
        """A result that names a size, such as u0, holds that size's value from now on."""
        for result in node.results:
            if is_named(result) and result in self.values:
                self.sizes[cast(ScalarType, result.type).expr] = self.values[result]

    # values and sizes

    def register(self, value: Value) -> int:
        """Return the register that holds `value`; a constant is fetched into a new one."""
        if value not in self.values:
            node = value.definition
            if node.op == "size":
                return self.size(node.attrs["dim"])
            if node.op == "literal":
                return self._literal(node.attrs["value"])
            return self.code.result("const", value=self.tables.constant(value))
        return self.values[value]

    def _literal(self, value: Any) -> int:
        if value is None:
            return self.code.result("none")
        return self.code.result("const", value=self.tables.program.constant(Constant(value)))

    def size(self, dim: DimExpr) -> int:
        """Return the register that holds the value of `dim`."""
        if dim not in self.sizes:
            simple = simplify(dim)
            self.sizes[dim] = self._compute_size(simple) if simple not in self.sizes else self.sizes[simple]
            self.sizes[simple] = self.sizes[dim]
        return self.sizes[dim]

    def _compute_size(self, dim: DimExpr) -> int:
        if isinstance(dim, int):
            if -IMMEDIATE <= dim < IMMEDIATE:
                return self.code.result("int", value=dim)
            return self.code.result("const", value=self.tables.program.constant(Constant(dim)))
        numerator, denominator = dim.as_numer_denom()
        if denominator != 1:
            return self._fold("floordiv", (numerator, denominator))
        if isinstance(dim, sympy.Pow):
            return self._fold("mul", (dim.base,) * int(dim.exp))
        if isinstance(dim, sympy.Add):
            return self._sum(dim)
        opcode = _FUNCTIONS.get(dim.func)
        if opcode is None:
            raise VerifyError(f"size {dim}: {dim.func} has no instruction, or {dim} is not defined here")
        return self._fold(opcode, dim.args)

    def _fold(self, opcode: str, args: Sequence[Any]) -> int:
        first, *rest = (self.size(arg) for arg in args)
        for register in rest:
            first = self.code.result(opcode, a=first, b=register)
        return first

    def _sum(self, dim: sympy.Add) -> int:
        """Add the positive terms, then subtract the others."""
        plus = [term for term in dim.args if not term.could_extract_minus_sign()]
        minus = [-term for term in dim.args if term.could_extract_minus_sign()]
        total = self._fold("add", plus) if plus else self.size(0)
        for term in minus:
            total = self.code.result("sub", a=total, b=self.size(term))
        return total

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the registers of a tensor's sizes."""
        return tuple(map(self.size, value.tensor.shape))

    # kernels and memory

    def kernel(self, node: Node) -> None:
        """Allocate the results and launch."""
        spec = node.attrs["spec"]
        reads = iter([self.register(arg) for arg in node.present])
        if node.attrs.get("in_place"):
            self.values[node.result] = self.register(node.arg(0))
            writes = iter([self.values[node.result]])
        else:
            writes = iter([self._allocate(result) for result in node.results])
        buffers = tuple(next(writes) if buffer.is_output else next(reads) for buffer in spec.buffers)
        own, *others = [(spec, tuple(map(self.size, dims))) for spec, dims in launches_of(node)]
        if not others:
            self._launch(node, *own, buffers)
            return
        rows, other_rows = map(self.size, node.attrs["exchanged"][2:])
        self._launch_if("le", other_rows, rows, lambda: self._launch(node, *own, buffers))
        self._launch_if("lt", rows, other_rows, lambda: self._launch(node, *others[0], buffers))

    def _launch(self, node: Node, spec: KernelSpec, dims: tuple[int, ...], buffers: tuple[int, ...]) -> None:
        index = self.tables.kernel(spec, node.attrs.get("label", ""), node.source)
        self.code.op("kernel", kernel=index, dims=dims, buffers=buffers)

    def _launch_if(self, compare: str, a: int, b: int, launch: Callable[[], None]) -> None:
        """Launch if two sizes compare this way. The launch's operands must already be computed."""
        end = Label()
        self.code.op("branch", cond=self.code.result(compare, a=a, b=b), otherwise=end)
        launch()
        self.code.place(end)

    def _allocate(self, value: Value) -> int:
        sizes = self.shape(value)
        self.values[value] = self.code.result("alloc", dtype=value.tensor.dtype, sizes=sizes)
        return self.values[value]

    def zeros(self, node: Node) -> None:
        """Memory is zeros until it is written; passes make kernels of other values."""
        if node.attrs["value"] != 0:
            raise UnsupportedOp(f"full of {node.attrs['value']}: lower the graph first", source=node.source)
        self._allocate(node.result)

    def view(self, node: Node) -> None:
        """A reshape: the same storage under other sizes."""
        a = self.register(node.arg(0))
        self.values[node.result] = self.code.result("view", a=a, sizes=self.shape(node.result))

    def part(self, node: Node) -> None:
        """Some elements in the same memory, with their own sizes."""
        a, begin = self.register(node.arg(0)), self.size(node.attrs["begin"])
        self.values[node.result] = self.code.result("part", a=a, begin=begin, sizes=self.shape(node.result))

    def free(self, node: Node) -> None:
        """Free storage."""
        self.code.op("free", values=tuple(self.register(value) for value in node.args if value is not None))

    def skip(self, node: Node) -> None:
        """Constants and sizes become instructions where they are used."""

    # control

    def branch(self, node: Node) -> None:
        """if: both blocks move their results to the same registers."""
        otherwise, end = Label(), Label()
        self.code.op("branch", cond=self.register(node.arg(0)), otherwise=otherwise)
        results = tuple(self.code.register() for _ in node.results)
        then, other = node.regions
        self._move(results, self._region(then))
        self.code.op("jump", target=end)
        self.code.place(otherwise)
        self._move(results, self._region(other))
        self.code.place(end)
        self.values.update(zip(node.results, results, strict=True))

    def loop(self, node: Node) -> None:
        """while: the carried values stay in separate registers."""
        start, end = Label(), Label()
        carried = tuple(self.code.register() for _ in node.results)
        self._move(carried, [self.register(arg) for arg in node.present])
        cond, body = node.regions
        self.code.place(start)
        self.values.update(zip(cond.params, carried, strict=True))
        (proceed,) = self._region(cond)
        self.code.op("branch", cond=proceed, otherwise=end)
        self.values.update(zip(body.params, carried, strict=True))
        self._move(carried, self._region(body))
        self.code.op("jump", target=start)
        self.code.place(end)
        self.values.update(zip(node.results, carried, strict=True))

    def _region(self, block: Block) -> list[int]:
        """Write a block; return its results' registers. Sizes computed inside are forgotten afterwards."""
        outer = dict(self.sizes)
        for value in block.params:
            if is_named(value):
                self.sizes[cast(ScalarType, value.type).expr] = self.values[value]
        self._nodes(block)
        results = [self.register(value) for value in block.results]
        self.sizes = outer
        return results

    def _move(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Move in parallel: a source that is a target of another move is saved first."""
        moves = [(t, s) for t, s in zip(targets, sources, strict=True) if t != s]
        overwritten = {t for t, _ in moves}
        saved = {
            s: self.code.result("move", a=s) for s in dict.fromkeys(s for _, s in moves) if s in overwritten
        }
        for target, source in moves:
            self.code.op("move", d=target, a=saved.get(source, source))

    def call(self, node: Node) -> None:
        """Call another function with the args, then the values of its symbols."""
        name = node.attrs["function"]
        if name not in self.functions:
            raise UnsupportedOp(
                f"call of {name!r}: functions are {', '.join(self.functions)}", source=node.source
            )
        args = [self.register(arg) for arg in node.present]
        args += map(self.size, node.attrs.get("symbols", ()))
        index = self.tables.program.function_index(self.functions[name])
        self.code.op("call", function=index, results=self._define(node.results), args=tuple(args))

    def extern(self, node: Node) -> None:
        """Call a function of the host; its results must have the graph's types."""
        if node.attrs.get("dps"):
            args = tuple(self.register(arg) for arg in node.present)
            outputs = tuple(self._allocate(value) for value in node.results)
            self.code.op("call_dps", name=node.attrs["name"], outputs=outputs, args=args)
            return
        args = tuple(self.register(arg) for arg in node.present)
        sizes = node.attrs.get("sizes", ())
        named, given = node.results[: len(sizes)], node.results[len(sizes) :]
        results = self._define(given)
        self.code.op("call_packed", name=node.attrs["name"], results=results, args=args)
        for value, (name, result, axis) in zip(named, sizes, strict=True):
            self.values[value] = self.code.result("dim", a=results[result], axis=axis)
            self.sizes[symbol(name)] = self.values[value]
        for value, register in zip(given, results, strict=True):
            if isinstance(value.type, TensorType):
                shape, what = self.shape(value), node.attrs["name"]
                self.code.op("expect", a=register, dtype=value.type.dtype, sizes=shape, what=what)

    def get(self, node: Node) -> None:
        """An element of a container, and the sizes of a tensor that it names."""
        a, key = map(self.register, node.present)
        *named, result = node.results
        self.values[result] = self.code.result("get", a=a, key=key)
        for value, (_, axis) in zip(named, node.attrs.get("sizes", ()), strict=True):
            self.values[value] = self.code.result("dim", a=self.values[result], axis=axis)

    def _define(self, values: Sequence[Value]) -> tuple[int, ...]:
        registers = tuple(self.code.register() for _ in values)
        self.values.update(zip(values, registers, strict=True))
        return registers

    def guard(self, node: Node) -> None:
        """Stop with a message, which may be a computed string, unless a bool holds."""
        if len(node.args) == 2:
            self.code.op("require", cond=self.register(node.arg(0)), message=self.register(node.arg(1)))
            return
        self.code.op("guard", cond=self.register(node.arg(0)), message=node.attrs["message"])

    # plain values

    def item(self, node: Node) -> None:
        """One element of a tensor."""
        at = tuple(map(self.size, node.attrs.get("at", ())))
        self.values[node.result] = self.code.result("item", a=self.register(node.arg(0)), at=at)

    def simple(self, node: Node) -> None:
        """An op with its own instruction: its arguments and attrs are the instruction's operands."""
        opcode, names = _INSTRUCTIONS[node.op]
        args = [self.register(arg) for arg in node.present]
        if names in ("values", "items", "args"):
            operands: dict[str, Any] = {names: tuple(args)}
        else:
            operands = dict(zip(names.split(), args, strict=True))
        attrs = {name: node.attrs[name] for name in ("dtype", "axis", "function") if name in node.attrs}
        self.values[node.result] = self.code.result(opcode, **operands, **attrs)


#: Graph op -> (opcode, operand names of its args; "values", "items", "args": one list of all).
_INSTRUCTIONS: dict[str, tuple[str, str]] = {
    **{
        f"int_{name}": (name, "a b")
        for name in ["add", "sub", "mul", "floordiv", "mod", "min", "max", "eq", "ne", "lt", "le"]
    },
    **{f"wrapping_{name}": (f"wrapping_{name}", "a b") for name in ["add", "sub", "mul"]},
    **{f"float_{name}": (f"f{name}", "a b") for name in ["add", "sub", "mul", "div"]},
    **{f"float_{name}": (name, "a b") for name in ["eq", "ne", "lt", "le"]},
    "to_float": ("to_float", "a"),
    "to_int": ("to_int", "a"),
    "bool_and": ("and", "a b"),
    "bool_or": ("or", "a b"),
    "bool_not": ("not", "a"),
    "scalar": ("scalar", "a"),
    "tuple": ("tuple", "values"),
    "list": ("list", "values"),
    "dict": ("dict", "items"),
    "len": ("len", "a"),
    "distinct": ("distinct", "a"),
    "append": ("append", "a value"),
    "list_set": ("set", "a index value"),
    "list_slice": ("slice", "a begin end"),
    "str_eq": ("eq", "a b"),
    "str_ne": ("ne", "a b"),
    "str_lt": ("lt", "a b"),
    "str_le": ("le", "a b"),
    "str_concat": ("concat", "a b"),
    "to_str": ("format", "a"),
    "string": ("text", "args"),
}

_RULES: dict[str, Callable[[FunctionEmitter, Node], None]] = {
    "kernel": FunctionEmitter.kernel,
    "reshape": FunctionEmitter.view,
    "free": FunctionEmitter.free,
    "constant": FunctionEmitter.skip,
    "size": FunctionEmitter.skip,
    "literal": FunctionEmitter.skip,
    "if": FunctionEmitter.branch,
    "while": FunctionEmitter.loop,
    "call": FunctionEmitter.call,
    "extern": FunctionEmitter.extern,
    "get": FunctionEmitter.get,
    "guard": FunctionEmitter.guard,
    "item": FunctionEmitter.item,
    "part": FunctionEmitter.part,
    "full": FunctionEmitter.zeros,
    **dict.fromkeys(_INSTRUCTIONS, FunctionEmitter.simple),
}

_FUNCTIONS: dict[Any, str] = {
    sympy.Mul: "mul", floordiv: "floordiv", sympy.Mod: "mod", sympy.Min: "min", sympy.Max: "max",
}  # fmt: skip
