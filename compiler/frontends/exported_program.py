"""torch.export: an nn.Module or ExportedProgram becomes a Graph.

Sizes are symbolic dimensions throughout: an integer of the exported graph is its expression, not a value.
What torch.export knows of its symbols (ranges, divisibility) becomes the graph's contract.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
import sympy
import torch
from torch._dynamo.exc import UserError
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from ...pytree import call_paths, paths, to_json
from ..dims import DimExpr, simplify
from ..errors import DtypeError, ShapeError, UnsupportedOp, VerifyError
from ..ir import Graph, Value
from ..ops.conditions import add_guard, truth
from ..ops.rules import may_equal
from ..sizes import sizes_named
from ..types import ScalarType, TensorType
from .dtypes import dtype_name
from .fallback import Complex, Fallback, is_complex, leaves, reason_against
from .guards import Shapes, excludes_0_and_1, narrow, parse_guard, shown_guard
from .importer import Importer, find_converter
from .symbols import Symbols
from .tree import signature_of, structure_of


def export_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Return torch.export's program of `model` in evaluation mode.

    Sizes of 0 and 1 are traced as any other (torch's `backed_size_oblivious`), so that ranges may include
    them. Where some operator of torch will not have that (a broadcast matmul asks whether a size is 1),
    tracing assumes other sizes than 0 and 1; the importer's own rules do not. Raises what torch.export raises
    when neither way works.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), _sizes_are_alike():
            return _export(model, args, kwargs, dynamic_shapes)
    except (UserError, ConstraintViolationError) as refused:
        with torch.no_grad():
            try:
                return _export(model, args, kwargs, dynamic_shapes)
            except (UserError, ConstraintViolationError):
                raise refused from None
    finally:
        model.train(training)


def _sizes_are_alike() -> AbstractContextManager[None]:
    """Return a context in which torch traces sizes of 0 and 1 as any other."""
    return cast(Any, fx_config).patch(backed_size_oblivious=True)


def _export(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    return torch.export.export(
        model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
    )


def load_program(path: str | os.PathLike[str]) -> ExportedProgram:
    """Return the ExportedProgram of a .pt2 file. Raises what torch.export.load raises."""
    return torch.export.load(path)


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without in-place operators and with all operators decomposed that have no converter
    here. Those that draw random numbers stay whole: in parts they would draw others."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        is_random = torch.Tag.nondeterministic_seeded in cast(Any, overload).tags
        if is_random or find_converter(str(overload)) is not None:
            del table[overload]
    with _sizes_are_alike(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch's own, on copying its programs
        return program.run_decompositions(table)


def import_program(
    program: ExportedProgram, name: str = "main", dynamic_shapes: Any = None, fallback: str = "error"
) -> Graph:
    """Return the graph of `program`. `dynamic_shapes`, as given to the export, names the sizes. `fallback`:
    what becomes of operators that cannot be compiled: "torch" calls PyTorch, "error" refuses them.

    Raises UnsupportedOp naming every operator that cannot be compiled, ShapeError or DtypeError with the
    model's line.
    """
    guards = getattr(program, "_guards_code", None) or ()
    return ProgramImporter(decompose(program), name, dynamic_shapes, guards, fallback == "torch").run()


class ProgramImporter(Importer):
    """Imports one decomposed ExportedProgram; `guards`: what tracing assumed, as torch writes it.
    `may_call_torch`: PyTorch is called where an operator cannot be compiled."""

    def __init__(
        self,
        program: ExportedProgram,
        name: str = "main",
        dynamic_shapes: Any = None,
        guards: Sequence[str] = (),
        may_call_torch: bool = False,
    ) -> None:
        super().__init__(name)
        self.program = program
        self.guards = guards
        self.values: dict[torch.fx.Node, Any] = {}
        self._constants: dict[Any, Value] = {}  # by place and layout: tied parameters are one constant
        self.symbols = Symbols(program, dynamic_shapes)
        self.graph.symbols.update(self.symbols.contract)
        self.may_call_torch = may_call_torch
        self._fallback = Fallback(self.builder, self.symbols)
        self._node: torch.fx.Node | None = None  # the one that is being converted

    def run(self) -> Graph:
        """Import everything and return the graph."""
        nodes = list(self.program.graph.nodes)
        operators = [node for node in nodes if is_operator(node) and not is_item(node) and not is_check(node)]
        refused = [node for node in operators if not self.may_call_torch or reason_against(node)]
        self.require((overload_of(node), source_of(node)) for node in refused)
        self._add_inputs([node for node in nodes if node.op == "placeholder"])
        self._fix_sizes()
        self._add_guards()
        for node in nodes:
            if node.op == "call_function":
                self.values[node] = self._import_node(node)
        self._add_outputs(next(node for node in nodes if node.op == "output"))
        return self.graph

    # Inputs and outputs

    def _add_inputs(self, placeholders: Sequence[torch.fx.Node]) -> None:
        specs = self.program.graph_signature.input_specs
        signature = signature_of(self.program)
        names = iter(call_paths(signature))
        self.graph.structure["inputs"] = to_json(signature)
        changed = {s.target for s in self.program.graph_signature.output_specs if s.kind in _STATE}
        kept = []
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.target is not None and spec.target in changed:
                kept.append((node, spec))
            elif spec.kind == InputKind.USER_INPUT:
                constant = isinstance(spec.arg, ConstantArgument)
                self.values[node] = spec.arg.value if constant else self._add_input(next(names), node)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                self.values[node] = self._add_constant(spec)
            else:
                raise UnsupportedOp(
                    f"input {spec.arg.name} is of kind {spec.kind.name}; only tensors and numbers can "
                    "be compiled"
                )

        for node, spec in kept:
            self._add_state(node, cast(str, spec.target))

    def _add_state(self, node: torch.fx.Node, target: str) -> None:
        """A buffer that calls change: an input whose values the program keeps."""
        name, tensor = f"state.{target}", self._tensor(target)
        self.graph.state[name] = array_of(tensor)
        self.graph.structure.setdefault("state", []).append(target)
        self.values[node] = self.graph.input(name, self._type_of(tensor))

    def _tensor(self, target: str) -> torch.Tensor:
        found = self.program.state_dict.get(target)
        return self.program.constants[target] if found is None else found

    def _fix_sizes(self) -> None:
        """Sizes that tracing found to be one number, such as those of axes that are broadcast, become it."""
        shapes, fixed = self._shapes(), {}
        for text in self.guards:
            condition = parse_guard(text, shapes)
            for part in condition.args if isinstance(condition, sympy.And) else (condition,):
                if isinstance(part, sympy.Eq) and part.lhs.is_Symbol and part.rhs.is_Integer:
                    fixed[part.lhs] = int(part.rhs)
        for found, value in fixed.items():
            if str(found) not in self.symbols.of_user:
                self.symbols.fix(str(found), value)
                del self.graph.symbols[str(found)]
                for param in self.graph.body.params:
                    if isinstance(param.type, TensorType):
                        shape = (simplify(sympy.sympify(d).subs(found, value)) for d in param.type.shape)
                        param.type = TensorType(param.type.dtype, tuple(shape))

    def _add_guards(self) -> None:
        """Put what tracing assumed of sizes into the contract, or check it at every call."""
        left = []
        for text in self.guards:
            condition = parse_guard(text, self._shapes())
            parts = condition.args if isinstance(condition, sympy.And) else (condition,)
            parts = [part for part in parts if part is not sympy.true]
            parts = [part for part in parts if excludes_0_and_1(part) not in self.symbols.of_user]
            left += [(part, text) for part in parts if not narrow(self.graph.symbols, part)]
        for condition, text in left:
            add_guard(self.builder, condition, f"the model needs {shown_guard(text)}")

    def _shapes(self) -> Shapes:
        """Return the inputs' shapes under the paths that guards name them by."""
        found: dict[tuple[str | int, ...], tuple[Any, ...]] = {}
        for name, value in zip(self.graph.inputs, self.graph.body.params, strict=True):
            if isinstance(value.type, TensorType):
                first, *rest = name.split(".")
                path = [int(part) if part.isdigit() else part for part in rest]
                found[(first, *path)] = value.type.shape
        return found

    def _add_input(self, name: str, node: torch.fx.Node) -> Any:
        found = node.meta["val"]
        if isinstance(found, torch.Tensor):
            return self.graph.input(name, self._type_of(found))
        if isinstance(found, int | torch.SymInt):
            expr = self.symbols.dim(found)
            self.graph.input(name, ScalarType("int", expr))
            return expr
        raise UnsupportedOp(f"input {name} is a {type(found).__name__}; it must be a tensor or an int")

    def _add_constant(self, spec: InputSpec) -> Value | Complex:
        target = cast(str, spec.target)
        tensor = self._tensor(target)
        if tensor.is_complex():
            parts = torch.view_as_real(tensor.resolve_conj())
            return Complex(self.constant(*array_of(parts), target))
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._constants or not tensor.numel():
            self._constants[key] = self.constant(*array_of(tensor), target)
        return self._constants[key]

    def _add_outputs(self, node: torch.fx.Node) -> None:
        every = self.program.graph_signature.output_specs
        values = [self._argument(arg) for arg in cast(tuple[Any, ...], node.args[0])]
        new = {
            cast(str, spec.target): value
            for spec, value in zip(every, values, strict=True)
            if spec.kind in _CHANGES
        }
        pairs = [(spec, v) for spec, v in zip(every, values, strict=True) if spec.kind not in _CHANGES]
        for spec, _ in pairs:
            if spec.kind != OutputKind.USER_OUTPUT:
                raise UnsupportedOp(f"output {spec.arg.name} is of kind {spec.kind.name}; return tensors")
        specs, results = [spec for spec, _ in pairs], [value for _, value in pairs]
        fixed = [spec.arg.value if isinstance(spec.arg, ConstantArgument) else None for spec in specs]
        is_fixed = [isinstance(spec.arg, ConstantArgument) for spec in specs]
        structure = structure_of(
            cast(Any, self.program.call_spec.out_spec), iter(zip(is_fixed, fixed, strict=True))
        )
        self.graph.structure["outputs"] = to_json(structure)
        leaves = [result for result, skip in zip(results, is_fixed, strict=True) if not skip]
        self.graph.outputs = [path or "output" for path in paths(structure)]
        self.graph.body.results = [self._output_value(leaf) for leaf in leaves]
        self._add_changes(new)

    def _add_changes(self, new: dict[str, Any]) -> None:
        """Outputs behind those of the user: new values of inputs that the model changes, and of its state."""
        nodes = {node.name: value for node, value in self.values.items() if node.op == "placeholder"}
        params = dict(zip(self.graph.body.params, self.graph.inputs, strict=True))
        state = self.graph.structure.get("state", [])
        changed = {params[nodes[target]]: value for target, value in new.items() if target not in state}
        if changed:
            self.graph.structure["changed"] = list(changed)
        pairs = [(f"changed.{name}", value) for name, value in changed.items()]
        pairs += [(f"state.{target}", new[target]) for target in state]
        self.graph.outputs += [name for name, _ in pairs]
        self.graph.body.results += [self._output_value(value) for _, value in pairs]

    def _output_value(self, leaf: Any) -> Value:
        if isinstance(leaf, Complex):
            raise DtypeError(
                "an output is complex, which cannot be compiled: return torch.view_as_real of it"
            )
        return leaf if isinstance(leaf, Value) else self.builder.size(leaf)

    # Operators

    def _import_node(self, node: torch.fx.Node) -> Any:
        found = node.meta.get("val")
        if isinstance(found, torch.SymInt) and not is_item(node):
            return self.symbols.dim(found)
        if node.target is operator.getitem:
            container, position = node.args
            return self.values[cast(torch.fx.Node, container)][cast(int, position)]
        if not is_operator(node):
            return self._import_python(node)
        if is_item(node):
            return self._import_item(node)
        if is_check(node):
            return self._import_check(node)
        if is_complex(node):
            return self._import_complex(node)
        self._node = node
        args, kwargs = self._arguments(node)
        n_nodes = len(self.builder.block.nodes)
        self.builder.new_sizes = self._new_sizes(found)
        result = self.convert(overload_of(node), args, kwargs, source_of(node))
        made = self.builder.block.nodes[n_nodes:]
        results = [value for each in made for value in each.results]
        self._fallback.known |= {size for value in results for size in sizes_named(value)}
        self._check(node, result, found)
        return result

    def _new_sizes(self, found: Any) -> list[DimExpr]:
        """Return the symbols that the sizes of a result bring, in order."""
        sizes = [size for leaf in leaves(found) if isinstance(leaf, torch.Tensor) for size in leaf.shape]
        symbolic = [size for size in sizes if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol]
        dims = dict.fromkeys(self.symbols.dim(size) for size in symbolic)
        return [dim for dim in dims if str(dim) not in self._fallback.known]

    def can_convert_unknown(self, overload: str) -> bool:
        """Return True where PyTorch is called for the node at hand."""
        return self.may_call_torch and self._node is not None and not reason_against(self._node)

    def convert_unknown(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call PyTorch."""
        node = cast(torch.fx.Node, self._node)
        if not self.can_convert_unknown(overload):
            return super().convert_unknown(overload, args, kwargs)
        names = [argument.name for argument in cast(Any, node.target)._schema.arguments]
        given = [self.values_of(value) for value in schema_arguments(node)]
        return self._fallback.call(node, dict(zip(names, given, strict=True)))

    def _import_complex(self, node: torch.fx.Node) -> Any:
        """Complex tensors are held as their parts; only PyTorch computes with them."""
        self.builder.source, self._node = source_of(node), node
        if overload_of(node) == "aten.view_as_real.default":
            return self.values[cast(torch.fx.Node, node.args[0])].parts
        if overload_of(node) == "aten.view_as_complex.default":
            return Complex(self.values[cast(torch.fx.Node, node.args[0])])
        if not self.can_convert_unknown(overload_of(node)):
            raise UnsupportedOp(
                f"{overload_of(node)} takes or gives complex numbers, which cannot be compiled",
                source=source_of(node),
            )
        return self.convert_unknown(overload_of(node), (), {})

    def _import_item(self, node: torch.fx.Node) -> Any:
        found = node.meta["val"]
        x = self.values[cast(torch.fx.Node, node.args[0])]
        self.builder.source = source_of(node)
        if not isinstance(found, torch.SymInt):
            return self.builder.one("item", x)
        expr = self.symbols.dim(found)
        self.builder.one("item", x, symbol=str(expr))
        self._fallback.known.add(str(expr))
        low, high = self.symbols.limits(found)
        message = f"{expr}, a value read from a tensor, must be at least {low}" + (
            f" and at most {high}" if high is not None else ""
        )
        limits = [sympy.Ge(expr, low, evaluate=False)] + (
            [sympy.Le(expr, high, evaluate=False)] if high is not None else []
        )
        for limit in limits:
            self.builder.apply("guard", truth(self.builder, limit), message=message)
        return expr

    def _import_check(self, node: torch.fx.Node) -> None:
        """A check that tracing could not decide: what the contract does not prove is checked at every
        call."""
        condition, message = cast(tuple[torch.fx.Node, str], node.args)
        self.builder.source = source_of(node)
        found = self.values[condition]
        if isinstance(found, torch.SymBool):
            add_guard(self.builder, self.symbols.condition(found), message)
        elif isinstance(found, Value):
            self.builder.apply("guard", found, message=message)
        elif not found:
            raise ShapeError(f"a check of the model never holds: {message}", source=source_of(node))

    def _import_python(self, node: torch.fx.Node) -> Any:
        """Functions of Python numbers: conditions of checks; the contract and the operators check sizes."""
        if isinstance(node.meta.get("val"), torch.SymBool | torch.SymFloat | bool):
            return node.meta["val"]
        raise UnsupportedOp(
            f"{node.target} of numbers that depend on the input cannot be compiled", source=source_of(node)
        )

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments in the order of the overload's schema with defaults filled in."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        schema = cast(Any, node.target)._schema.arguments
        for argument, value in zip(schema, schema_arguments(node), strict=True):
            if argument.kwarg_only:
                keywords[argument.name] = self._argument(value)
            else:
                positional.append(self._argument(value))
        return positional, keywords

    def _argument(self, value: Any) -> Any:
        """Return an argument as converters take it (`declare.Composite`)."""
        value = self.values_of(value)
        if isinstance(value, torch.dtype):
            return dtype_name(value)
        return str(value) if isinstance(value, torch.device | torch.layout | torch.memory_format) else value

    def values_of(self, value: Any) -> Any:
        """Return an argument with our values and size expressions for nodes and symbolic ints."""
        if isinstance(value, torch.fx.Node):
            value = self.values[value]
        if isinstance(value, list | tuple):
            return [self.values_of(item) for item in value]
        if isinstance(value, torch.SymFloat):
            raise UnsupportedOp(f"the number {value.node.expr} depends on sizes: no operator takes it yet")
        return self.symbols.dim(value) if isinstance(value, torch.SymInt) else value

    def _type_of(self, tensor: torch.Tensor) -> TensorType:
        return TensorType(dtype_name(tensor.dtype), tuple(self.symbols.dim(size) for size in tensor.shape))

    def _check(self, node: torch.fx.Node, result: Any, found: Any) -> None:
        """Raise VerifyError where a converter's result has another type than PyTorch's."""
        pairs = zip(result, found, strict=False) if isinstance(result, tuple) else [(result, found)]
        for value, expected in pairs:
            if isinstance(value, Value) and isinstance(expected, torch.Tensor):
                wanted = self._type_of(expected)
                same = (
                    isinstance(value.type, TensorType)
                    and value.type.dtype == wanted.dtype
                    and value.type.rank == wanted.rank
                )
                if not same or not all(map(may_equal, cast(TensorType, value.type).shape, wanted.shape)):
                    raise VerifyError(
                        f"{overload_of(node)}: imported as {value.type}, PyTorch makes {wanted}",
                        source=source_of(node),
                    )


# The exported graph ---------------------------------------------------------------------------------


#: Outputs that are new values of buffers; and those, or of inputs.
_STATE = tuple(kind for kind in OutputKind if kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"))
_CHANGES = (*_STATE, OutputKind.USER_INPUT_MUTATION)


def is_operator(node: torch.fx.Node) -> bool:
    """Return True for calls of torch operators, those with functions as arguments (cond, map) included."""
    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return node.op == "call_function" and isinstance(node.target, kinds) and not is_size(node)


def is_size(node: torch.fx.Node) -> bool:
    """Return True for calls that read a size."""
    return str(node.target).startswith(
        ("aten.sym_size", "aten.sym_numel", "aten.sym_stride", "aten.sym_storage_offset")
    )


def is_item(node: torch.fx.Node) -> bool:
    """Return True for calls that read a tensor's element as a number."""
    return str(node.target) in ("aten.item.default", "aten._local_scalar_dense.default")


def is_check(node: torch.fx.Node) -> bool:
    """Return True for calls that check a condition on numbers."""
    return str(node.target) == "aten._assert_scalar.default"


def overload_of(node: torch.fx.Node) -> str:
    """Return the overload's name, such as "aten.add.Tensor"."""
    return str(node.target)


def schema_arguments(node: torch.fx.Node) -> list[Any]:
    """Return a call's arguments in the order of its overload's schema, defaults filled in."""
    found = []
    for i, argument in enumerate(cast(Any, node.target)._schema.arguments):
        if i < len(node.args) and not argument.kwarg_only:
            found.append(node.args[i])
        else:
            found.append(node.kwargs.get(argument.name, argument.default_value))
    return found


_TORCH = os.path.dirname(torch.__file__) + os.sep


def source_of(node: torch.fx.Node) -> str:
    """Return "file.py:31", the innermost line of the model outside of torch, or ""."""
    source = ""
    for line in (node.meta.get("stack_trace") or "").splitlines():
        line = line.strip()
        path, _, rest = line.removeprefix('File "').partition('", line ')
        is_ours = path.startswith(("<", _TORCH))  # generated code, or torch itself
        if line.startswith('File "') and not is_ours:
            source = f"{path.rsplit('/', 1)[-1]}:{rest.split(',')[0]}"
    return source


def array_of(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    """Return a tensor's elements in storage form (bf16 as uint16 bits) and its dtype."""
    dtype = dtype_name(tensor.dtype)
    tensor = tensor.detach().cpu().contiguous()
    return (tensor.view(torch.uint16) if dtype == "bf16" else tensor).numpy(), dtype
