"""torch.export: an nn.Module or ExportedProgram becomes a Graph.

Sizes are symbolic dimensions throughout: an integer of the exported graph is its expression, not a value.
What torch.export knows of its symbols (ranges, divisibility) becomes the graph's contract.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, cast

import numpy as np
import sympy
import torch
from torch._dynamo.exc import UserError
from torch._library.fake_impl import FakeImplCtx
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError
from torch.utils._pytree import tree_map
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ...pytree import call_paths, distinct, paths, to_json
from ..ir.dims import simplify
from ..ir.errors import UnsupportedOp
from ..ir.graph import Graph, Value
from ..ir.types import TensorType
from ..ops.conditions import add_guard
from ..ops.random import STATE as RANDOM
from .decompositions import DECOMPOSITIONS
from .dtypes import dtype_name
from .dynamic_shapes import dims_by_source, int_symbols, named_sizes, without_ones
from .early_refusal import EarlyRefusal, until_refused
from .evaluation import in_evaluation
from .export_errors import REFUSALS, cannot_run, quiet, refusal, untraceable
from .functional import functional
from .fx_nodes import FxImporter, array_of, is_operator, schema_arguments
from .guards import Shapes, excludes_0_and_1, narrow, parse_guard, shown_guard
from .importer import find_converter
from .layout import example
from .nodes import node_argument
from .packed import packing_is_traced
from .packed_weights import without_packed_weights
from .parts import taken_apart
from .recurrent import layers_are_scans
from .symbols import Symbols
from .tree import flat_positions, guarded_paths, signature_of, structure_of


def export_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Return torch.export's program of `model` in evaluation mode.

    Sizes of 0 and 1 are traced as any other (torch's `backed_size_oblivious`), so that ranges may include
    them. Where some operator of torch will not have that (a broadcast matmul asks whether a size is 1),
    tracing assumes other sizes than 0 and 1; the importer's own rules do not. Likewise where an axis of size
    1 is squeezed, on which the result's rank depends: torch.export then fixes that size, where it may. What
    it refuses for an example's size of 1 in a dynamic axis is traced with the example's rows repeated. Raises
    ShapeError and UnsupportedOp with the model's line for what torch.export refuses when no way works.
    """
    args, kwargs = with_memory_of_their_own((tuple(args), dict(kwargs or {})))
    with without_packed_weights(model) as traced:
        return _export_or_refuse(traced, args, kwargs, dynamic_shapes)


def _export_or_refuse(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    try:
        with quiet():
            return _export_in_evaluation(model, args, kwargs, dynamic_shapes)
    except REFUSALS as error:
        larger = without_ones(model.forward, args, kwargs, dynamic_shapes) if dynamic_shapes else None
        with suppress(*REFUSALS), quiet():
            if larger is not None:
                return _export_in_evaluation(model, *larger, dynamic_shapes)
        sources = dims_by_source(model.forward, args, kwargs, dynamic_shapes)
        said = refusal(error, lambda: _export_in_evaluation(model, args, kwargs, dynamic_shapes), sources)
        raise said from None
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        _call_once(model, args, kwargs)
        if isinstance(error, UnsupportedOperatorException):
            raise untraceable(error) from error
        raise


def _call_once(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ArgumentError where the model itself cannot be called with the example inputs."""
    try:
        with in_evaluation(model), torch.no_grad():
            model(*args, **kwargs)
    except Exception as error:  # whatever a model raises
        raise cannot_run(error) from error


def _export_in_evaluation(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    with in_evaluation(model):
        try:
            with until_refused():
                return _export_at_small_sizes(model, args, kwargs, dynamic_shapes)
        except EarlyRefusal:
            with torch.no_grad(), suppress(UserError, ConstraintViolationError):
                return _export(model, args, kwargs, dynamic_shapes)
        return _export_at_small_sizes(model, args, kwargs, dynamic_shapes)  # to say why it is refused


def _export_at_small_sizes(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Return the program traced at sizes that are alike, or if that is refused at others than 0 and 1."""
    try:
        with torch.no_grad(), _sizes_are_alike():
            program = _export(model, args, kwargs, dynamic_shapes)
        with torch.no_grad(), suppress(UserError, ConstraintViolationError):
            return _export(model, args, kwargs, dynamic_shapes) if _is_for_others(program) else program
        return program
    except (UserError, ConstraintViolationError) as refused:
        with torch.no_grad():
            try:
                return _export(model, args, kwargs, dynamic_shapes)
            except (UserError, ConstraintViolationError):
                raise refused from None


def with_memory_of_their_own(values: Any) -> Any:
    """Return nested arguments in which no two tensors share memory: torch.export takes those for one."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or not leaf.numel():
            return leaf
        memory = leaf.untyped_storage()._cdata
        if memory in seen:
            return leaf.detach().clone()
        seen.add(memory)
        return leaf

    return tree_map(own, values)


def _is_for_others(program: ExportedProgram) -> bool:
    """Whether a program keeps an axis that its own example's size, 1, would have had squeezed away."""
    return any(
        is_operator(node)
        and str(node.target).startswith("aten.squeeze")  # its copy as well
        and any(not isinstance(size, int) and example(size) == 1 for size in _squeezed(node))
        for node in program.graph.nodes
    )


def _squeezed(node: torch.fx.Node) -> list[int | torch.SymInt]:
    """Return the sizes of the axes that a squeeze is for."""
    shape, dims = node_argument(node).meta["val"].shape, schema_arguments(node)[1:]
    axes = dims[0] if dims and isinstance(dims[0], Sequence) else dims or range(len(shape))
    return [shape[axis] for axis in axes] if shape else []  # of a number axes 0 and -1 may be named


def _sizes_are_alike() -> AbstractContextManager[None]:
    """Return a context in which torch traces sizes of 0 and 1 as any other."""
    return cast(Any, fx_config).patch(backed_size_oblivious=True)


@contextmanager
def _found_sizes_may_be_small() -> Iterator[None]:
    """Trace sizes that the data give an operator as 0 or more. torch's older name for making one in a fake
    kernel, which torchvision's nms uses, has 2 or more unless told otherwise, and calls would fail below."""
    made = FakeImplCtx.create_unbacked_symint

    def make(context: FakeImplCtx, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        return context.new_dynamic_size(min=min, max=max)

    FakeImplCtx.create_unbacked_symint = make  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        FakeImplCtx.create_unbacked_symint = made  # type: ignore[method-assign]


def _export(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    with layers_are_scans(), packing_is_traced(), _found_sizes_may_be_small(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The tensor attributes .*_flat_weights", UserWarning
        )  # recurrent layers'
        return torch.export.export(
            model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
        )


def load_program(path: str | os.PathLike[str]) -> ExportedProgram:
    """Return the ExportedProgram of a .pt2 file. Raises what torch.export.load raises."""
    return torch.export.load(path)


def decomposition_table() -> Any:
    """Return torch's decompositions of operators that have no converter here. Those that draw random numbers
    stay whole: in parts they would draw others."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        is_random = torch.Tag.nondeterministic_seeded in getattr(overload, "tags", ())
        if is_random or find_converter(str(overload)) is not None:
            del table[overload]
    table.update(DECOMPOSITIONS)
    return table


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without in-place operators and decomposed by `decomposition_table`."""
    table = decomposition_table()
    with _sizes_are_alike(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch's own, on copying its programs
        return _remove_effect_tokens(program.run_decompositions(table))  # nodes keep their order as it is


def _in_known_operators(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without in-place operators and with those in parts that have no converter. Raises
    UnsupportedOp where torch fails to trace them, as it may where an example's size is 0."""
    try:
        with _sizes_are_alike():
            return functional(taken_apart(program, decomposition_table)) or decompose(program)
    except AssertionError as error:
        raise UnsupportedOp(
            f"PyTorch cannot trace the parts of the program's operators ({type(error).__name__}: {error}): "
            "export it with example sizes of 2 or more"
        ) from error


def import_program(
    program: ExportedProgram,
    name: str = "main",
    dynamic_shapes: Any = None,
    fallback: str = "error",
    random: str = "native",
    least: int | None = None,
) -> Graph:
    """Return the graph of `program`. `dynamic_shapes`, as given to the export, names the sizes. `fallback`:
    what becomes of operators that cannot be compiled: "torch" calls PyTorch, "error" refuses them. `random`:
    who draws random numbers, "native" the program, from a seed that is its state, or "torch" PyTorch.
    `least`: of sizes that nobody gave a range, which the caller tries out at 0 and 1; None: what torch.export
    says, which is 2.

    Raises UnsupportedOp naming every operator that cannot be compiled, ShapeError or DtypeError with the
    model's line.
    """
    guards = getattr(program, "_guards_code", None)
    plain = _in_known_operators(program)
    importer = ProgramImporter(plain, name, dynamic_shapes, guards, fallback == "torch", least)
    return importer.run(draws=random == "native" and any(map(_draws, plain.graph.nodes)))


def _opened(ranges: Mapping[Any, Any], ints: Set[str]) -> dict[Any, Any]:
    """Return torch's ranges without the bound of 0 that the export gives ints: guards say what it needs."""
    return {
        key: ValueRanges(-int_oo, found.upper) if str(key) in ints and found.lower == 0 else found
        for key, found in ranges.items()
    }


def _target(spec: InputSpec | OutputSpec) -> str:
    """Return the name of the parameter or buffer that an input or output of the program is."""
    assert spec.target is not None
    return spec.target


def _draws(node: torch.fx.Node) -> bool:
    return is_operator(node) and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


class ProgramImporter(FxImporter):
    """Imports one decomposed ExportedProgram; `guards`: what tracing assumed, as torch writes it.
    `may_call_torch`: PyTorch is called where an operator cannot be compiled. `least`: see `import_program`.
    """

    def __init__(
        self,
        program: ExportedProgram,
        name: str = "main",
        dynamic_shapes: Any = None,
        guards: Sequence[str] | None = None,
        may_call_torch: bool = False,
        least: int | None = None,
    ) -> None:
        placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        values = [node.meta.get("val") for node in placeholders]
        ints = int_symbols(values if guards is not None else ())
        ranges = _opened(program.range_constraints, ints)
        symbols = Symbols(named_sizes(program, dynamic_shapes), ranges, least, ints)
        super().__init__(name, symbols, may_call_torch)
        self.program = program
        self.guards = guards or ()
        self._generator: Value | None = None  # what random numbers begin with

    def run(self, draws: bool = False) -> Graph:
        """Import everything and return the graph. `draws`: with a generator of random numbers."""
        nodes = list(self.program.graph.nodes)
        self.require_all(self.program.graph_module)
        self._add_inputs([node for node in nodes if node.op == "placeholder"])
        if draws:
            self._add_generator()
        self._fix_sizes()
        self._add_guards()
        self.import_nodes(self.program.graph_module)
        self._add_outputs(next(node for node in nodes if node.op == "output"))
        return self.graph

    # Inputs and outputs

    def _add_inputs(self, placeholders: Sequence[torch.fx.Node]) -> None:
        specs = self.program.graph_signature.input_specs
        signature = signature_of(self.program)
        changed = {s.target for s in self.program.graph_signature.output_specs if s.kind in _STATE}
        names = iter(distinct(call_paths(signature), [f"state.{name}" for name in (*changed, RANDOM)]))
        self.graph.structure["inputs"] = to_json(signature)
        kept = []
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.target is not None and spec.target in changed:
                kept.append((node, spec))
            elif spec.kind == InputKind.USER_INPUT:
                constant = isinstance(spec.arg, ConstantArgument)
                self.values[node] = spec.arg.value if constant else self.add_input(next(names), node)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                self.values[node] = self.add_parameter(self._tensor(_target(spec)), _target(spec))
            else:
                raise UnsupportedOp(
                    f"input {spec.arg.name} is of kind {spec.kind.name}; only tensors and numbers can "
                    "be compiled"
                )

        for node, spec in kept:
            self._add_state(node, _target(spec))

    def _add_state(self, node: torch.fx.Node, target: str) -> None:
        """A buffer that calls change: an input whose values the program keeps."""
        name, tensor = f"state.{target}", self._tensor(target)
        self.graph.state[name] = array_of(tensor)
        self.graph.structure.setdefault("state", []).append(target)
        dtype_name(tensor.dtype)  # state in float8 is refused
        self.values[node] = self.graph.input(name, self.type_of(tensor))

    def _add_generator(self) -> None:
        """The seed of random numbers, torch's at first, and how many were drawn: state of the program."""
        seed = np.array(torch.initial_seed() % 2**64, np.uint64).view(np.int64)
        name = f"state.{RANDOM}"
        self.graph.state[name] = (np.array([seed, 0], np.int64), "i64")
        self.graph.structure.setdefault("state", []).append(RANDOM)
        self.builder.generator = self._generator = self.graph.input(name, TensorType("i64", (2,)))

    def _drop_generator(self) -> None:
        """Nothing was drawn."""
        name = self.graph.inputs.pop()
        self.graph.body.params.pop()
        del self.graph.state[name]
        self.graph.structure["state"].pop()
        if not self.graph.structure["state"]:
            del self.graph.structure["state"]

    def _tensor(self, target: str) -> torch.Tensor:
        found = self.program.state_dict.get(target)
        return self.program.constants[target] if found is None else found

    def _fix_sizes(self) -> None:
        """Sizes that tracing found to be one number, such as those of axes that are broadcast, become it."""
        shapes, fixed = self._shapes(), {}
        for text in self.guards:
            condition = parse_guard(text, shapes, self.graph.symbols)
            for part in condition.args if isinstance(condition, sympy.And) else (condition,):
                if isinstance(part, sympy.Eq) and part.lhs.is_Symbol and part.rhs.is_Integer:
                    fixed[part.lhs] = int(part.rhs)
        for found, value in fixed.items():
            if str(found) not in self.symbols.of_user:
                self.symbols.fix(str(found), value)
                for param in self.graph.body.params:
                    if isinstance(param.type, TensorType):
                        shape = (simplify(sympy.sympify(d).subs(found, value)) for d in param.type.shape)
                        param.type = TensorType(param.type.dtype, tuple(shape))

    def _add_guards(self) -> None:
        """Put what tracing assumed of sizes into the contract, or check it at every call."""
        found = []
        for text in self.guards:
            condition = parse_guard(text, self._shapes(), self.graph.symbols)
            parts = condition.args if isinstance(condition, sympy.And) else (condition,)
            found += [(part, text) for part in parts if part is not sympy.true]
        sizes = {str(part.lhs) for part, _ in found if isinstance(part, sympy.Ge) and part.rhs == 0}
        tried = self.symbols.tried - (self.symbols.ints - sizes)  # an int that must be >= 0 is used as a size
        found = [(part, text) for part, text in found if excludes_0_and_1(part) not in tried]
        left = [(part, text) for part, text in found if not narrow(self.graph.symbols, part)]
        for condition, text in left:
            add_guard(self.builder, condition, f"the model needs {shown_guard(text)}")

    def _shapes(self) -> Shapes:
        """Return the inputs' shapes under the paths that guards name them by."""
        params = self.graph.body.params  # behind them comes the state
        found: dict[tuple[str, ...], Any] = {}
        names = zip(guarded_paths(self.program), flat_positions(self.program), strict=True)
        for (path, position), value in zip(names, params, strict=False):
            type = value.type
            found[path] = type.shape if isinstance(type, TensorType) else getattr(type, "expr", None)
            found["flat_args", str(position)] = found[path]
        return found

    def _add_outputs(self, node: torch.fx.Node) -> None:
        every, results = self.program.graph_signature.output_specs, node.args[0]
        assert isinstance(results, Sequence)
        values = [self._argument(arg) for arg in results]
        new = {
            _target(spec): value for spec, value in zip(every, values, strict=True) if spec.kind in _CHANGES
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
        self.graph.body.results = [self.output_value(leaf) for leaf in leaves]
        self._add_changes(new)

    def _add_changes(self, new: dict[str, Any]) -> None:
        """Outputs behind those of the user: new values of inputs that the model changes, and of its state."""
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        specs = self.program.graph_signature.input_specs  # in the order of the nodes, whose names may differ
        inputs = {spec.arg.name: node for spec, node in zip(specs, placeholders, strict=True)}
        params = dict(zip(self.graph.body.params, self.graph.inputs, strict=True))
        if self._generator is not None and self.builder.generator is self._generator:
            self._drop_generator()
        state = self.graph.structure.get("state", [])
        new = {**new, RANDOM: self.builder.generator} if RANDOM in state else new
        changed = {
            params[self.values[inputs[target]]]: value for target, value in new.items() if target not in state
        }
        if changed:
            self.graph.structure["changed"] = list(changed)
        pairs = [(f"changed.{name}", value) for name, value in changed.items()]
        pairs += [(f"state.{target}", new[target]) for target in state]
        behind = [name for name, _ in pairs]
        self.graph.outputs = [*distinct(self.graph.outputs, behind), *behind]
        self.graph.body.results += [self.output_value(value) for _, value in pairs]


#: Outputs that are new values of buffers; and those, or of inputs.
_STATE = tuple(kind for kind in OutputKind if kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"))
_CHANGES = (*_STATE, OutputKind.USER_INPUT_MUTATION)
