"""Well-formedness of graphs, as a table of rules per stage. A broken rule is a defect of a frontend or a
pass.

Stages: "imported" (any declared op), "core" (after decompose: no composites), "lowered" (kernels, views,
plain values and control flow, which `emit` accepts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy

from ..jit.spec import Dim, KernelSpec
from .ir.aliases import fresh_results
from .ir.dims import DimExpr, format_dim, product, simplify
from .ir.errors import Error, VerifyError
from .ir.graph import Block, Graph, Node, Value, is_named
from .ir.sizes import attribute_sizes, sizes_named, type_sizes
from .ir.text import MAX_SHOWN, REGION_NAMES, RESERVED_NAMES
from .ir.types import BOOL, ScalarType, TensorType, Type, types_equal
from .lower.group import group_of
from .lower.launches import is_bound, launches_of
from .lower.operands import is_alias, is_kernel_work
from .ops import OPS
from .ops.rules import may_equal

STAGES = ("imported", "core", "lowered")
UNDECLARED = frozenset(("fused", "kernel", "free"))  # made by passes, not by operators' declarations
LOWERED = frozenset(("kernel", "free", "constant", "reshape"))
Found = Iterator[tuple[Node | None, str]]
#: Kinds of operators whose attributes may be left out.
_OPTIONAL = ("value", "control")
#: Errors of a type rule for arguments and attributes that its operator does not accept: it trusts frontends.
_MISFITS = (TypeError, LookupError, AttributeError, AssertionError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class Rule:
    """`check` yields (node, sentence) for everything that breaks the rule, in a graph of one of `stages`."""

    name: str
    check: Callable[[Graph], Found]
    stages: tuple[str, ...] = STAGES


def verify(graph: Graph, stage: str, after: str = "") -> None:
    """Check the rules of `stage`. Raises VerifyError for the first broken one; `after` names a pass."""
    for rule in RULES:
        if stage in rule.stages:
            for node, sentence in rule.check(graph):
                where = f"after {after}, {rule.name}" if after else rule.name
                text = "" if node is None else str(node)
                shown = f", in {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '...'}" if text else ""
                raise VerifyError(
                    f"{where}: {sentence}{shown}", source=node.source if node is not None else ""
                )


# Structure -----------------------------------------------------------------------------------------


def check_interface(graph: Graph) -> Found:
    """Inputs and outputs have one name each."""
    for what, names, values in (
        ("inputs", graph.inputs, graph.body.params),
        ("outputs", graph.outputs, graph.body.results),
    ):
        if len(names) != len(values):
            yield None, f"{len(names)} names for {len(values)} {what} of graph {graph.name!r}"
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            yield None, f"the name {repeated[0]!r} is used for several {what} of graph {graph.name!r}"


def check_names(graph: Graph) -> Found:
    """No two values share a name."""
    seen: dict[str, Value] = {}
    for value, node in definitions(graph):
        if seen.setdefault(value.name, value) is not value:
            yield node, f"%{value.name} is the name of two values"


def definitions(graph: Graph) -> Iterator[tuple[Value, Node | None]]:
    """Yield every value that is defined, with its node (None: a parameter)."""
    for block in graph.blocks():
        for param in block.params:
            yield param, None
        for node in block.nodes:
            for result in node.results:
                yield result, node


def check_dominance(graph: Graph) -> Found:
    """Every value is defined once, by the node that it names, before its uses."""
    yield from _dominance(graph.body, set())


def _dominance(block: Block, outer: set[Value]) -> Found:
    known = set(outer)
    for param in block.params:
        if param.node is not None:
            yield param.node, f"%{param.name} is a block's parameter and a node's result"
        known.add(param)
    for node in block.nodes:
        for arg in node.args:
            if arg is not None and arg not in known:
                yield node, f"%{arg.name} is used before its definition, or outside of its region"
        for region in node.regions:
            yield from _dominance(region, known)
        for result in node.results:
            if result.node is not node or result in known:
                yield node, f"%{result.name} has another definition"
            known.add(result)
    for value in block.results:
        if value not in known:
            yield None, f"a block yields %{value.name}, which is not defined there"


def check_users(graph: Graph) -> Found:
    """`Value.users` has one entry per use as an argument."""
    uses: Counter[tuple[Value, Node]] = Counter()
    for node in graph.nodes():
        uses.update((arg, node) for arg in node.present)
    listed: Counter[tuple[Value, Node]] = Counter()
    for value, _ in definitions(graph):
        listed.update((value, user) for user in value.users)
    for value, user in (uses - listed) + (listed - uses):
        yield user, f"the users of %{value.name} do not agree with the arguments of {user.op}"


# Types and attributes ------------------------------------------------------------------------------


def check_types(graph: Graph) -> Found:
    """Results have the types that their operator's declaration infers."""
    for node in graph.nodes():
        if node.op not in OPS or node.regions:
            continue
        args, given = [arg.type if arg is not None else None for arg in node.args], types_of(node.results)
        try:
            types = OPS[node.op].infer(args, node.attrs)
            yield from _same_types(node, "has type", given, "its operator gives", types)
        except Error as error:
            yield node, str(error)
        except _MISFITS as error:
            reason = f"{type(error).__name__} ({error})"
            yield node, f"{reason}: these are not {node.op}'s arguments and attributes"


def _same_types(node: Node, what: str, types: Iterable[Type], other: str, expected: Iterable[Type]) -> Found:
    given, wanted = list(types), list(expected)
    if len(given) != len(wanted):
        yield node, f"{len(given)} values where {other} {len(wanted)}"
        return
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not types_equal(a, b):
            yield node, f"value {i} {what} {a}; {other} {b}"


def check_attributes(graph: Graph) -> Found:
    """Operators on tensors have the attributes that their schema names."""
    for node in graph.nodes():
        op = OPS.get(node.op)
        if op is not None and op.kind not in _OPTIONAL and set(node.attrs) != set(op.attributes):
            has, wanted = (", ".join(names) or "none" for names in (node.attrs, op.attributes))
            yield node, f"{node.op} has the attributes {has}; its schema has {wanted}"


def check_symbols(graph: Graph) -> Found:
    """Size symbols in types and attrs are the contract's, or were named by a value before."""
    for name, info in graph.symbols.items():
        if name != info.name or not name.isidentifier() or name in RESERVED_NAMES:
            yield None, f"{name!r} cannot be the name of a size"
        if info.max is not None and info.max < info.min:
            yield None, f"size {name!r} has min {info.min} over max {info.max}"
    yield from _symbols(graph.body, set(graph.symbols))


def _symbols(block: Block, outer: set[str]) -> Found:
    known = set(outer)
    for param in block.params:
        known |= sizes_named(param)
        yield from _unknown(None, f"%{param.name}", type_sizes(param.type), known)
    for node in block.nodes:
        for region in node.regions:
            yield from _symbols(region, known)
        yield from _unknown(node, "an attribute", attribute_sizes(node.attrs.values()), known)
        for result in node.results:
            known |= sizes_named(result)
            yield from _unknown(node, f"%{result.name}", type_sizes(result.type), known)


def _unknown(node: Node | None, what: str, names: Iterable[str], known: set[str]) -> Found:
    for name in names:
        if name not in known:
            yield node, f"{what} has the size {name!r}, which is neither the contract's nor known here"


def check_control(graph: Graph) -> Found:
    """Regions take and yield the values that their node carries."""
    for node in graph.nodes():
        results = types_of(node.results)
        if node.op != "fused" and len(node.regions) != len(REGION_NAMES.get(node.op, ())):
            yield node, f"{node.op} has {len(node.regions)} regions"
        elif node.op == "if":
            yield from _check_condition(node, node.args[0].type if node.args and node.args[0] else None)
            for region in node.regions:
                given = types_of(region.results)
                wanted = renamed(results, given)
                yield from _same_types(node, "of a region has type", given, "the result is", wanted)
        elif node.op == "while":
            cond, body = node.regions
            yield from _check_condition(node, cond.results[0].type if len(cond.results) == 1 else None)
            args = types_of(node.present)
            for what, types in (("argument", args), ("yielded", types_of(body.results))):
                wanted = renamed(results, types)
                yield from _same_types(node, f"({what}) has type", types, "the result is", wanted)
            for region in node.regions:
                params = types_of(region.params)
                wanted = renamed(results, params)
                yield from _same_types(node, "(parameter) has type", params, "the result is", wanted)


def renamed(types: Sequence[Type], others: Sequence[Type]) -> list[Type]:
    """Return `types` in terms of the sizes of `others`: a size named by an int is replaced by that of the
    corresponding int."""
    sizes = {
        one.expr: other.expr
        for one, other in zip(types, others, strict=False)
        if isinstance(one, ScalarType)
        and isinstance(other, ScalarType)
        and isinstance(one.expr, sympy.Symbol)
    }
    known = {name: size for name, size in sizes.items() if size is not None}
    return [_with_sizes(type, known) for type in types] if known else list(types)


def _with_sizes(type: Type, sizes: Mapping[sympy.Symbol, DimExpr]) -> Type:
    if not isinstance(type, TensorType):
        return type
    shape = (simplify(sympy.sympify(dim).subs(sizes, simultaneous=True)) for dim in type.shape)
    return TensorType(type.dtype, tuple(shape))


def check_known_ints(graph: Graph) -> Found:
    """An int that depends on control flow has no known value, or names a size."""
    for node in graph.nodes():
        for region in node.regions if node.op == "while" else ():
            yield from _unknown_ints(node, [*region.params, *node.results], [])
        if node.op == "if":
            yield from _unknown_ints(node, node.results, [region.results for region in node.regions])


def _unknown_ints(node: Node, values: Sequence[Value], choices: Sequence[Sequence[Value]]) -> Found:
    for i, value in enumerate(values):
        if isinstance(value.type, ScalarType) and value.type.expr is not None and not is_named(value):
            chosen = [types_of(choice)[i] for choice in choices]
            if not chosen or any(type != value.type for type in chosen):
                yield (
                    node,
                    f"%{value.name} is {value.type}, but its value depends on which way the program goes",
                )


def types_of(values: Iterable[Value]) -> list[Type]:
    """Return the values' types."""
    return [value.type for value in values]


def _check_condition(node: Node, type: Type | None) -> Found:
    if type != BOOL:
        yield node, f"the condition is {type}; it must be one bool"


# Stages --------------------------------------------------------------------------------------------


def check_declared(graph: Graph) -> Found:
    """Every op is declared."""
    for node in graph.nodes():
        if node.op not in OPS and node.op not in UNDECLARED:
            yield node, f"operator {node.op!r} is not declared"


def check_core(graph: Graph) -> Found:
    """No composite is left."""
    for node in graph.nodes():
        if node.op in OPS and OPS[node.op].kind == "composite":
            yield node, f"{node.op} must be decomposed"


def check_lowered(graph: Graph) -> Found:
    """Only nodes that `emit` accepts are left."""
    for node in graph.nodes():
        if node.op not in LOWERED and not (node.op in OPS and OPS[node.op].kind in ("value", "control")):
            yield node, f"{node.op} must be lowered to a kernel"
        if node.op == "kernel" and not is_bound(node):
            yield node, "the sizes of its spec are not bound"


def check_fused(graph: Graph) -> Found:
    """A fused node has one region without parameters, whose one result a kernel can compute."""
    for node in graph.nodes():
        if node.op != "fused":
            continue
        blocks = [(len(region.params), len(region.results)) for region in node.regions]
        if blocks != [(0, 1)] or node.args:
            yield node, "a fused node has no arguments and one region, with no parameters and one result"
            continue
        (block,) = node.regions
        yield from _same_types(
            node, "has type", types_of(node.results), "its region yields", types_of(block.results)
        )
        others = [inner for inner in block.nodes if not is_kernel_work(inner) or is_alias(inner)]
        if others:
            yield others[0], f"{others[0].op} cannot be computed inside of a kernel"
            continue
        try:
            group_of(node)
        except VerifyError as error:
            yield node, str(error)


def check_kernels(graph: Graph) -> Found:
    """A kernel's arguments and results are its spec's buffers, in order; it has a value for every Dim."""
    for node in graph.nodes():
        if node.op == "kernel":
            for spec, dims in launches_of(node):
                yield from _check_launch(node, spec, dims)


def _check_launch(node: Node, spec: KernelSpec, dims: tuple[DimExpr, ...]) -> Found:
    if len(dims) != spec.n_dims:
        yield node, f"{len(dims)} dims are given; the spec has {spec.n_dims}"
        return
    for values, is_output in ((node.args, False), (node.results, True)):
        buffers = [buffer for buffer in spec.buffers if buffer.is_output == is_output]
        if len(values) != len(buffers):
            kind = "output" if is_output else "input"
            yield node, f"{len(values)} values for {len(buffers)} {kind} buffers"
            continue
        for value, buffer in zip(values, buffers, strict=True):
            yield from _fits(node, value, buffer.dtype, _bound(buffer.shape, dims))


def _bound(shape: tuple[int | Dim, ...], dims: tuple[DimExpr, ...]) -> DimExpr:
    return product(dims[size.index] if isinstance(size, Dim) else size for size in shape)


def _fits(node: Node, value: Value | None, dtype: str, n_elements: DimExpr) -> Found:
    type = value.type if value is not None else None
    if value is None or not isinstance(type, TensorType) or type.dtype != dtype:
        yield node, f"{type} is given for a buffer of {dtype}"
    elif not may_equal(product(type.shape), n_elements):  # run-time values are checked by the launch
        n, wanted = format_dim(product(type.shape)), format_dim(simplify(n_elements))
        yield node, f"%{value.name} has {n} elements; its buffer has {wanted}"


def check_constants(graph: Graph) -> Found:
    """A constant's array has its type's shape."""
    for node in graph.nodes():
        if node.op == "constant":
            array, type = node.attrs["array"], node.result.type
            if (
                not isinstance(array, np.ndarray)
                or not isinstance(type, TensorType)
                or array.shape != type.shape
            ):
                yield node, f"the array has shape {getattr(array, 'shape', None)}; the type is {type}"


def check_results(graph: Graph) -> Found:
    """Results share no memory with inputs, constants or each other."""
    for name, value, is_fresh in zip(graph.outputs, graph.body.results, fresh_results(graph), strict=True):
        if not is_fresh:
            yield value.node, f"output {name!r} may share memory with an input, a constant or another output"


RULES: tuple[Rule, ...] = (
    Rule("interface", check_interface),
    Rule("declared", check_declared),
    Rule("names", check_names),
    Rule("dominance", check_dominance),
    Rule("users", check_users),
    Rule("attributes", check_attributes),
    Rule("constants", check_constants),
    Rule("types", check_types),
    Rule("symbols", check_symbols),
    Rule("control", check_control),
    Rule("known ints", check_known_ints),
    Rule("core", check_core, ("core", "lowered")),
    Rule("lowered", check_lowered, ("lowered",)),
    Rule("kernels", check_kernels),
    Rule("fused", check_fused),
    Rule("results", check_results, ("lowered",)),
)
