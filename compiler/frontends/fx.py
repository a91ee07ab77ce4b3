"""torch.fx.GraphModules: traced ATen graphs become Graphs directly, others through torch.export.

make_fx and AOTAutograd make ATen graphs: calls of ATen overloads whose `meta["val"]` holds fake tensors. The
assumptions of the fake tensors' ShapeEnv about sizes become the contract.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...calls.pytree import LEAF, Structure, distinct, form, to_json
from ..ir.errors import UnsupportedOp
from ..ir.graph import Graph, Value
from ..ops import build as B
from ..ops.conditions import add_guard
from .control import RULES
from .dynamic_shapes import axis_dim, int_symbols
from .export import export_model
from .exported_program import decomposition_table, import_program
from .functional import changes_memory, with_selects
from .fx_nodes import FxImporter, is_operator, overload_of, source_of
from .guards import narrow, parts_of
from .importer import find_converter
from .nodes import node_argument
from .numbers import define_roundings
from .symbols import Symbols

_COPY = "aten.copy_.default"  # at the end of a functional graph: an input's new value


def import_graph_module(
    module: torch.fx.GraphModule,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    fallback: str = "error",
    random: str = "native",
) -> Graph:
    """Return the graph of `module`. An ATen graph needs no `args`; `dynamic_shapes` then only names sizes.

    Raises the errors of `import_program`, and those of torch.export for a module that it cannot export.
    """
    if is_aten(module):
        traced = module if is_plain(module) else retrace(module)
        return GraphModuleImporter(traced, "main", dynamic_shapes, fallback == "torch").run()
    exported = export_model(module, args, kwargs, dynamic_shapes)
    return import_program(exported, dynamic_shapes=dynamic_shapes, fallback=fallback, random=random)


def is_graph_module(model: Any) -> bool:
    """Return True for a torch.fx.GraphModule."""
    return isinstance(model, torch.fx.GraphModule)


def is_aten(module: torch.fx.GraphModule) -> bool:
    """Return True for a graph of ATen calls with fake results, inputs included."""
    if any(node.op in ("call_module", "call_method") for node in module.graph.nodes):
        return False
    traced = [node for node in module.graph.nodes if node.op == "placeholder" or is_operator(node)]
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return all("val" in node.meta for node in traced) and all(map(_is_aten_call, calls))


def _is_aten_call(node: torch.fx.Node) -> bool:
    is_number = isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)
    return isinstance(node.target, torch._ops.OperatorBase) or node.target is operator.getitem or is_number


def is_plain(module: torch.fx.GraphModule) -> bool:
    """Return True if no call changes its arguments, except for new values of inputs, and all have a
    converter."""
    calls = [node for node in module.graph.nodes if is_operator(node) and not _is_new_value(node)]
    return all(
        not node.target._schema.is_mutable and find_converter(overload_of(node)) is not None
        for node in calls
        if isinstance(node.target, torch._ops.OpOverload)
    )


def _is_new_value(node: torch.fx.Node) -> bool:
    return str(node.target) == _COPY and node_argument(node).op == "placeholder"


def retrace(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return `module` without calls that change their arguments, and decomposed as far as possible."""
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    functional = torch.func.functionalize(with_selects(module), remove="mutations")
    trace = make_fx(
        functional,
        decomposition_table=decomposition_table(changes_memory(module)),
        tracing_mode="symbolic",
        _allow_non_fake_inputs=True,
    )
    made = trace(*inputs)
    olds = [node for node in module.graph.nodes if node.op == "placeholder"]
    for old, new in zip(olds, (n for n in made.graph.nodes if n.op == "placeholder"), strict=True):
        new.target = old.target  # it names the input
    return made


class GraphModuleImporter(FxImporter):
    """Imports a functional ATen graph."""

    control = RULES

    def __init__(
        self,
        module: torch.fx.GraphModule,
        name: str = "main",
        dynamic_shapes: Any = None,
        may_call_torch: bool = False,
    ) -> None:
        self.module = module
        placeholders = self._placeholders()
        self._env = shape_env_of(placeholders)
        ranges = self._env.var_to_range if self._env is not None else {}
        sizes = named_sizes(placeholders, dynamic_shapes)
        ints = int_symbols(node.meta["val"] for node in placeholders)
        super().__init__(name, Symbols(sizes, ranges, ints=ints), may_call_torch)
        self._changed: dict[torch.fx.Node, Any] = {}  # new values of inputs

    def _placeholders(self) -> list[torch.fx.Node]:
        return self.module.graph.find_nodes(op="placeholder")

    def run(self) -> Graph:
        """Import everything; the graph is called like the module."""
        self._begin(self._placeholders(), {})
        for condition in self._assumed():
            if not narrow(self.graph.symbols, condition):
                add_guard(self.builder, condition, f"tracing assumed {condition}")
        names = self.graph.inputs
        signature = {"positional": list(names), "parameters": dict.fromkeys(names, LEAF)}
        self.graph.structure["inputs"] = to_json(signature)
        self.import_nodes(self.module)
        found = self.module.graph.output_node().args[0]
        structure = structure_of_result(found)
        self.graph.structure["outputs"] = to_json(structure)
        self.graph.outputs = [path or "output" for path in form(structure).paths()]
        self.graph.body.results = [self.output_value(self.values[node]) for node in _nodes(found)]
        assert form(structure).n_leaves == len(self.graph.body.results)
        self._add_changed()
        return self.graph

    def run_part(
        self,
        inputs: Sequence[torch.fx.Node],
        constants: Mapping[torch.fx.Node, torch.Tensor],
        results: Sequence[torch.fx.Node],
    ) -> Graph:
        """Import the computation of `results` (a flat list) from the placeholders `inputs`; `constants` has
        the values of others. Assumptions of tracing are checked by the caller, not here."""
        self._begin(inputs, constants)
        for condition in self._assumed():
            narrow(self.graph.symbols, condition)
        self.import_nodes(self.module)
        if self._changed:
            raise UnsupportedOp("the graph changes an input in place; functionalise it first")
        self.graph.outputs = [f"output.{i}" for i in range(len(results))]
        self.graph.body.results = [self.output_value(self.values[node]) for node in results]
        return self.graph

    def _begin(
        self, inputs: Sequence[torch.fx.Node], constants: Mapping[torch.fx.Node, torch.Tensor]
    ) -> None:
        self.require_all(self.module)
        for node in inputs:
            if node.meta["val"] is not None:
                self.values[node] = self.add_input(str(node.target), node)
        for node, tensor in constants.items():
            self.values[node] = self.add_constant(tensor, str(node.target))

    def is_own(self, node: torch.fx.Node) -> bool:
        """See FxImporter."""
        return _is_new_value(node) or super().is_own(node)

    def _import_node(self, node: torch.fx.Node) -> Any:
        return self._change(node) if _is_new_value(node) else super()._import_node(node)

    def _change(self, node: torch.fx.Node) -> Value:
        """Note an input's new value, which later nodes use."""
        target, source = node_argument(node, 0), node_argument(node, 1)
        self.builder.source = source_of(node)
        wanted = self.type_of(target.meta["val"])
        new = B.expand(self.builder, B.cast_to(self.builder, self.values[source], wanted.dtype), wanted.shape)
        self._changed.setdefault(target, self.values[target])
        self.values[target] = new
        return new

    def _add_changed(self) -> None:
        """Outputs after those of the user: new values of inputs that the module changes."""
        params = dict(zip(self.graph.body.params, self.graph.inputs, strict=True))
        changed = {params[old]: self.values[node] for node, old in self._changed.items()}
        if changed:
            self.graph.structure["changed"] = list(changed)
        behind = [f"changed.{name}" for name in changed]
        self.graph.outputs = [*distinct(self.graph.outputs, behind), *behind]
        self.graph.body.results += [self.output_value(value) for value in changed.values()]

    def _assumed(self) -> Iterator[Any]:
        """Yield the assumptions of tracing about the inputs' sizes, as conditions."""
        known = set(self.symbols.contract)
        for guard in self._env.guards if self._env is not None else ():
            expr = guard.expr.xreplace(self._env.replacements) if self._env is not None else guard.expr
            if not self.symbols.knows(expr):
                continue  # of sizes that no input of this graph has
            found = define_roundings(self.builder, expr, self.symbols, {})
            condition = self.symbols.translate(expr)
            for part in parts_of(condition):
                if part is not sympy.true and {str(s) for s in part.free_symbols} <= known | found:
                    yield part


def shape_env_of(nodes: Sequence[torch.fx.Node]) -> ShapeEnv | None:
    """Return the ShapeEnv of the sizes of `nodes`, None if all sizes are numbers."""
    for node in nodes:
        found = node.meta["val"]
        sizes = found.shape if isinstance(found, torch.Tensor) else [found]
        for size in sizes:
            if isinstance(size, torch.SymInt | torch.SymFloat):
                return size.node.shape_env
    return None


def named_sizes(placeholders: Sequence[torch.fx.Node], dynamic_shapes: Any) -> list[tuple[Any, Any]]:
    """Return (size, the user's Dim or None) of every symbolic axis, plain symbols first. `dynamic_shapes`: by
    input's name, or in their order."""
    found = []
    for i, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(dynamic_shapes, Mapping):
            dims = dynamic_shapes.get(str(node.target))
        else:
            dims = dynamic_shapes[i] if dynamic_shapes and i < len(dynamic_shapes) else None
        sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
        pairs = [(size, axis_dim(dims, axis)) for axis, size in enumerate(sizes)]
        found += [(size, dim) for size, dim in pairs if isinstance(size, torch.SymInt)]
    return sorted(found, key=lambda pair: not pair[0].node.expr.is_Symbol)


def structure_of_result(found: Any) -> Structure:
    """Return the structure of an output node's argument. Raises UnsupportedOp for other containers."""
    if isinstance(found, torch.fx.Node):
        return LEAF
    if isinstance(found, list | tuple):
        kind = "list" if isinstance(found, list) else "tuple"
        return {kind: [structure_of_result(item) for item in found]}
    if isinstance(found, Mapping) and all(isinstance(key, str) for key in found):
        return {"dict": {key: structure_of_result(item) for key, item in found.items()}}
    if found is None or isinstance(found, bool | int | float | str):
        return {"constant": found}
    raise UnsupportedOp(f"the graph returns a {type(found).__name__}; return tensors, tuples, lists or dicts")


def _nodes(found: Any) -> Iterator[torch.fx.Node]:
    if isinstance(found, torch.fx.Node):
        yield found
    elif isinstance(found, Mapping):
        for item in found.values():
            yield from _nodes(item)
    elif isinstance(found, list | tuple):
        for item in found:
            yield from _nodes(item)
