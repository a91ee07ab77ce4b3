"""torch.export: an nn.Module or ExportedProgram becomes a Graph.

Sizes are symbolic dimensions throughout: an integer of the exported graph is its expression, not a value.
torch.export's facts about its symbols (ranges, divisibility) become the graph's contract.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
import sympy
import torch
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ...calls.pytree import distinct, form, read_signature, to_json
from ..ir.dims import simplify
from ..ir.errors import ArchiveError, UnsupportedOp
from ..ir.graph import Graph, Value
from ..ir.types import TensorType
from ..ops.conditions import add_guard
from ..ops.random import STATE as RANDOM
from ..ops.random import add_generator
from .control import RULES
from .ctc import LOSSES, losses_are_traced
from .decompositions import DECOMPOSITIONS, mistyped, typed_as_eager
from .dtypes import dtype_name
from .dynamic_shapes import int_symbols, named_sizes, user_inputs
from .export import sizes_are_alike
from .functional import changes_memory, functional, may_share, with_module, with_selects
from .fx_nodes import FxImporter, array_of, is_operator
from .guards import Shapes, changes, excludes_0_and_1, narrow, parse_guard, parts_of, shown_guard
from .importer import find_converter
from .layout_reads import inputs_asked
from .parts import taken_apart
from .symbols import Symbols
from .torch_versions import keep_checks
from .tree import by_guarded_path, signature_of, structure_of

keep_checks()
_LOG = logging.getLogger("shapevm")


def load_program(path: str | os.PathLike[str]) -> ExportedProgram:
    """Return the ExportedProgram of a .pt2 file. Raises ArchiveError if torch.export.load refuses it."""
    try:
        return torch.export.load(path)
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(". ")
        raise ArchiveError(
            f"{os.fspath(path)} cannot be read by torch.export.load of torch {torch.__version__}: {reason}; "
            "write it with torch.export.save of this version"
        ) from error


def decomposition_table(is_changing: bool = False) -> Any:
    """Return torch's decompositions of operators that have no converter here. Those that draw random numbers
    are not decomposed, because that would change the draws. `is_changing`: memory is changed in place, so
    that what may be a view, as the result of einsum, is to be shown as one."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        is_random = torch.Tag.nondeterministic_seeded in getattr(overload, "tags", ())
        is_known = find_converter(str(overload)) is not None
        if is_random or overload in LOSSES or (is_known and not (is_changing and may_share(overload))):
            del table[overload]
    table.update(DECOMPOSITIONS)
    return table


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without in-place operators and decomposed by `decomposition_table`."""
    table = decomposition_table(changes_memory(program.graph_module))
    before = _fixed_sizes(user_inputs(program))
    with sizes_are_alike(), losses_are_traced(), typed_as_eager(program.graph), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch's own, on copying its programs
        made = _remove_effect_tokens(program.run_decompositions(table))  # nodes keep their order as it is
    for (name, axis), size in _fixed_sizes(user_inputs(made)).items():
        if (name, axis) not in before:
            _LOG.warning("dynamic_shapes: axis %d of %s is always %d: PyTorch fixes it", axis, name, size)
    return made


def _fixed_sizes(inputs: Sequence[torch.fx.Node]) -> dict[tuple[str, int], int]:
    """Return the axes of inputs, as (input, axis), that have one size, with it. torch's functional form of
    other views than an unbind's, such as windows of unfold, may fix more."""
    return {
        (node.name, axis): int(size)
        for node in inputs
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        for axis, size in enumerate(value.shape)
        if isinstance(size, int) or size.node.maybe_as_int() is not None
    }


def _in_known_operators(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without in-place operators and with operators without a converter decomposed. Raises
    UnsupportedOp if torch fails to trace them, as it may if an example's size is 0."""
    program = with_module(program, with_selects(program.graph_module))
    try:
        with sizes_are_alike():
            plain = None if mistyped(program.graph) else functional(taken_apart(program, decomposition_table))
            return plain or decompose(program)
    except AssertionError as error:
        raise UnsupportedOp(
            f"PyTorch cannot trace the parts of the program's operators ({type(error).__name__}: {error}): "
            "export it with example sizes of 2 or more"
        ) from error
    except RuntimeError as error:
        found = re.search(r"target=torch\.ops\.([\w.]+)", str(error))
        if found is None:
            raise
        raise UnsupportedOp(
            f"PyTorch cannot take {found[1]} apart, which the program calls; write it in other operators"
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
    for operators that cannot be compiled, "torch" calls PyTorch, "error" refuses them. `random`: the source
    of random numbers, "native" the program, from a seed that is its state, or "torch" PyTorch. `least`: the
    lower bound of unspecified ranges, which the caller checks at 0 and 1; None: torch.export's, which is 2.

    Raises UnsupportedOp naming every operator that cannot be compiled, ShapeError or DtypeError with the
    model's line.
    """
    guards = getattr(program, "_guards_code", None)
    in_rows = inputs_asked(program)
    plain = _in_known_operators(program)
    importer = ProgramImporter(plain, name, dynamic_shapes, guards, fallback == "torch", least)
    return importer.run(random == "native" and any(map(_draws, plain.graph.nodes)), in_rows)


def _opened(ranges: Mapping[Any, Any], ints: Set[str]) -> dict[Any, Any]:
    """Return torch's ranges without the bound of 0 that the export gives ints: guards state the
    requirements."""
    return {
        key: ValueRanges(-int_oo, found.upper) if str(key) in ints and found.lower == 0 else found
        for key, found in ranges.items()
    }


def _target(spec: InputSpec | OutputSpec) -> str:
    """Return the name of the parameter or buffer of an input or output of the program."""
    assert spec.target is not None
    return spec.target


def _draws(node: torch.fx.Node) -> bool:
    return is_operator(node) and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


class ProgramImporter(FxImporter):
    """Imports one decomposed ExportedProgram; `guards`: the assumptions of tracing, in torch's form.
    `may_call_torch`: PyTorch is called for operators that cannot be compiled. `least`: see `import_program`.
    """

    control = RULES

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
        self._generator: Value | None = None  # the initial state of random numbers

    def run(self, draws: bool = False, in_rows: Sequence[int] = ()) -> Graph:
        """Import everything and return the graph. `draws`: with a generator of random numbers. `in_rows`:
        positions of inputs that calls must give row by row."""
        nodes = list(self.program.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self.require_all(self.program.graph_module)
        self._add_inputs(placeholders)
        self.graph.require_rows(self.values[placeholders[i]] for i in in_rows)
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
        self.graph.structure["inputs"] = text = to_json(signature)
        taken = [f"state.{name}" for name in (*changed, RANDOM)]
        names = iter(distinct(read_signature(text).paths(), taken))
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
        self.builder.generator = self._generator = add_generator(self.graph, int(seed))

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
        """Sizes that tracing found to be constant, such as those of broadcast axes, become that number."""
        shapes, fixed = self._shapes(), {}
        for text in self.guards:
            condition = parse_guard(text, shapes, self.graph.symbols)
            for part in parts_of(condition):
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
        """Put the assumptions of tracing about sizes into the contract, or check them at every call."""
        found, shapes = [], self._shapes()
        for text in self.guards:
            condition = parse_guard(text, shapes, self.graph.symbols)
            found += [(part, text) for part in parts_of(condition) if part is not sympy.true]
        sizes = {str(part.lhs) for part, _ in found if isinstance(part, sympy.Ge) and part.rhs == 0}
        tried = self.symbols.tried - (self.symbols.ints - sizes)  # an int that must be >= 0 is used as a size
        found = [(part, text) for part, text in found if excludes_0_and_1(part) not in tried]
        before = dict(self.graph.symbols)
        left = [(part, text) for part, text in found if not narrow(self.graph.symbols, part)]
        for name in before.keys() - self.symbols.of_user:
            if words := changes(before[name], self.graph.symbols[name]):
                _LOG.info("dynamic_shapes: %s is %s in this model", name, " and ".join(words))
        for condition, text in left:
            add_guard(self.builder, condition, f"the model needs {shown_guard(text, shapes)}")

    def _shapes(self) -> Shapes:
        """Return the inputs' shapes under the paths that guards name them by."""
        params = self.graph.body.params  # the state follows them
        types = (value.type for value in params)
        sizes = (t.shape if isinstance(t, TensorType) else getattr(t, "expr", None) for t in types)
        return by_guarded_path(self.program, sizes)

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
        self.graph.outputs = [path or "output" for path in form(structure).paths()]
        self.graph.body.results = [self.output_value(leaf) for leaf in leaves]
        self._add_changes(new)

    def _add_changes(self, new: dict[str, Any]) -> None:
        """Outputs after those of the user: new values of inputs that the model changes, and of its state."""
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
