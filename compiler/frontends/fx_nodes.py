"""FX graphs of ATen operators, the form in which all of torch's compilers pass programs.

Sizes are symbolic dimensions throughout: an integer of the traced graph is its expression, not a value.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..ir.dims import DimExpr, format_dim, symbols_of
from ..ir.errors import ShapeError, UnsupportedOp, VerifyError
from ..ir.graph import Value
from ..ir.sizes import sizes_named
from ..ir.types import ScalarType, TensorType
from ..ops import build as B
from ..ops.complex import DTYPES as PARTS
from ..ops.complex import Complex, as_output
from ..ops.conditions import add_guard, append_guard, truth
from ..ops.rules import is_opaque, may_equal
from .dtypes import DTYPE_OF, TORCH_DTYPES, complex_name, dtype_name, element_name
from .fallback import (
    Fallback,
    is_complex,
    is_declared,
    leaves,
    memory_read,
    place_read,
    reads_storage,
    reason_against,
)
from .float8 import check_float8, is_float8, is_float8_check, note_float8
from .importer import Importer
from .nodes import module_of, node_argument, operator_of
from .numbers import define_roundings, number_of, truth_of
from .packed_weights import check_quantised
from .squeezed import may_keep_axes
from .symbols import Symbols
from .torch_versions import MISTRACED
from .traced_layout import NOT_AS_TRACED, inputs_that_decide

ControlRule = Callable[["FxImporter", torch.fx.Node], list[Any]]


@dataclass
class Met:
    """The definitions of the nodes so far: `constants` by address and layout, tied parameters as one; `calls`
    of operators whose results have data-dependent sizes; `floats` that are read from tensors, by torch's
    symbol; `offsets`, the symbols of storage offsets."""

    constants: dict[Any, Value] = field(default_factory=dict)
    calls: dict[str, torch.fx.Node] = field(default_factory=dict)
    floats: dict[str, Value] = field(default_factory=dict)
    offsets: set[Any] = field(default_factory=set)


class FxImporter(Importer):
    """Imports the nodes of ATen graphs whose `meta["val"]` holds types and sizes; subclasses define inputs
    and outputs. `may_call_torch`: PyTorch is called for operators that cannot be compiled. `control`: the
    rules of operators that take functions, by name."""

    control: ClassVar[Mapping[str, ControlRule]] = {}

    def __init__(self, name: str, symbols: Symbols, may_call_torch: bool = False) -> None:
        super().__init__(name)
        self.symbols = symbols
        self.graph.symbols = symbols.contract
        self.may_call_torch = may_call_torch
        self.values: dict[torch.fx.Node, Any] = {}
        self._fallback = Fallback(self.builder, symbols)
        self._met = Met()
        self._is_elementwise = False  # values traced as numbers are tensors
        self._node: torch.fx.Node | None = None  # the one that is being converted

    def require_all(self, module: torch.fx.GraphModule) -> None:
        """Raise UnsupportedOp naming all operators of `module`, including those of functions passed to
        operators, that can be neither compiled nor called."""
        operators = [node for node in all_nodes(module) if is_operator(node) and not self.is_own(node)]
        refused = [node for node in operators if not self._may_call(node)]
        self.require((overload_of(node), source_of(node)) for node in refused)

    def _may_call(self, node: torch.fx.Node) -> bool:
        return (self.may_call_torch or is_declared(node.target)) and not reason_against(node)

    def is_own(self, node: torch.fx.Node) -> bool:
        """Return True for operators that the importer implements itself."""
        is_python = is_item(node) or is_check(node) or self.takes_functions(node) or is_dtype(node)
        return is_python or overload_of(node) == _PART or is_constant(node)

    def takes_functions(self, node: torch.fx.Node) -> bool:
        """Return True for operators that have a rule in `control`."""
        return isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in self.control

    def import_nodes(self, module: torch.fx.GraphModule) -> None:
        """Append the nodes of `module`, whose placeholders already have values."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function":
                same = self._same_call(node)
                self.values[node] = self._import_node(node) if same is None else self.values[same]

    def _same_call(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """Return an earlier call with the same arguments, of an operator whose result has a data-dependent
        size: PyTorch treats the two sizes as equal."""
        if torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
            return None
        found = self._met.calls.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
        return None if found is node else found

    def import_region(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Append a function of the model; return its results. Values that it defines are forgotten, because
        it may not run."""
        met, known, places = self._met, set(self._fallback.known), dict(self.builder.places)
        self._met = replace(met, constants=dict(met.constants), calls={})
        generator, self.builder.generator = self.builder.generator, None  # draws must happen at every call
        nodes = list(module.graph.nodes)
        holes = [node for node in nodes if node.op == "placeholder"]
        self.values.update(zip(holes, operands, strict=True))
        self._fallback.known |= {str(operand) for operand in operands if isinstance(operand, sympy.Symbol)}
        self.import_nodes(module)
        self._met, self._fallback.known = met, known
        self.builder.generator, self.builder.places = generator, places
        found = nodes[-1].args[0]
        return [self.values_of(result) for result in (found if isinstance(found, list | tuple) else [found])]

    def import_elementwise(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Like `import_region`, for a function of numbers applied to tensors."""
        self._is_elementwise = True
        try:
            return self.import_region(module, operands)
        finally:
            self._is_elementwise = False

    def _attribute(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
        found: Any = module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return self.add_constant(found, str(node.target)) if isinstance(found, torch.Tensor) else found

    # Inputs, constants, outputs

    def add_input(self, name: str, node: torch.fx.Node) -> Any:
        """Append the input of a placeholder; return its value, or the size expression of an int."""
        found = node.meta["val"]
        if isinstance(found, torch.Tensor):
            require_strided(found, f"input {name}")
            dtype_name(found.dtype)  # a dtype that is held in another one cannot be an input
            return self.graph.input(name, self.type_of(found))
        if isinstance(found, int | torch.SymInt):
            expr = self.symbols.dim(found)
            self.graph.input(name, ScalarType("int", expr))
            return expr
        raise UnsupportedOp(f"input {name} is a {type(found).__name__}; it must be a tensor or an int")

    def add_constant(self, tensor: torch.Tensor, name: str) -> Value | Complex:
        """Append a tensor of the model, unless it exists already."""
        require_strided(tensor, name)
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.is_complex():
            return constant_of(self, tensor, name)
        if key not in self._met.constants or not tensor.numel():
            self._met.constants[key] = self.constant(*array_of(tensor), name)
        return self._met.constants[key]

    def add_parameter(self, tensor: torch.Tensor, name: str) -> Any:
        """Append a tensor of the model. A tensor subclass that consists of others (such as torchao's) remains
        itself: the program reads its parts."""
        return (tensor, name) if is_traceable_wrapper_subclass(tensor) else self.add_constant(tensor, name)

    def output_value(self, leaf: Any) -> Value:
        """Return a result as a value. Raises DtypeError for a complex one."""
        return as_output(leaf) if isinstance(leaf, Value | Complex) else self.builder.size(leaf)

    # Operators

    def _import_node(self, node: torch.fx.Node) -> Any:
        special = next((convert for applies, convert in _SPECIAL if applies(node)), None)
        if special is not None:
            return special(self, node)
        found = node.meta.get("val")
        self._node, self.builder.source = node, source_of(node) or module_of(node)
        if is_float8_check(node, overload_of(node)):
            return None
        check_float8(node, overload_of(node), source_of(node))
        check_quantised(node, overload_of(node), source_of(node))
        if self.takes_functions(node):
            return self.control[str(node.target)](self, node)
        args, kwargs = self._arguments(node)
        note_float8(self.graph, node, args, source_of)
        n_nodes = len(self.builder.block.nodes)
        self.builder.new_sizes = self._new_sizes(found)
        self.builder.n_results = len(found) if isinstance(found, list | tuple) else None
        memory = memory_read(node)
        if memory is not None:
            self._note_layout(memory)
            args = [self.values[memory], *args[1:3], self._argument(place_read(node))]
        elif reads_storage(node) and reason_against(node):
            raise UnsupportedOp(f"{overload_of(node)}: {reason_against(node)}", source=source_of(node))
        if may_keep_axes(node) and isinstance(args[0], Value):
            result = B.reshape(self.builder, args[0], self.type_of(cast(torch.Tensor, found)).shape)
        else:
            result = self.convert(overload_of(node), args, kwargs, self.builder.source)
        made = self.builder.block.nodes[n_nodes:]
        results = [value for each in made for value in each.results]
        self._fallback.known |= {size for value in results for size in sizes_named(value)}
        self._name_sizes(result, found)
        return self._checked(node, result, found)

    def _import_size(self, node: torch.fx.Node) -> DimExpr:
        found = node.meta["val"]
        if str(node.target).startswith(_OFFSET) and found.node.expr.is_Symbol:
            self._met.offsets.add(found.node.expr)
        self.builder.source = source_of(node)
        define_roundings(self.builder, found.node.expr, self.symbols, self._met.floats)
        return self.symbols.dim(found)

    def _import_part(self, node: torch.fx.Node) -> Any:
        return self.values[node_argument(node)][node.args[1]]

    def _import_dtype(self, node: torch.fx.Node) -> Any:
        return torch.promote_types(*self.values_of(node.args))

    def _note_layout(self, memory: torch.fx.Node) -> None:
        """Note the inputs that must be row-major in calls, because the program reads their memory."""
        nodes = inputs_that_decide(memory)
        if any(not node.meta["val"].is_contiguous() for node in nodes):
            raise UnsupportedOp(f"as_strided: {NOT_AS_TRACED}", source=self.builder.source)
        self.graph.require_rows(self.values_of(nodes))

    def _import_constant(self, node: torch.fx.Node) -> Any:
        """Append a part of a parameter, or the tensor that an operator makes from numbers only."""
        if is_constant(node):
            self.builder.source = source_of(node)
            return self.constant(*array_of(computed(node)), "")
        (whole, name), part = self.values[node_argument(node)], str(node.args[1])
        return self.add_parameter(getattr(whole, part), f"{name}.{part}")

    def _name_sizes(self, result: Any, found: Any) -> None:
        """Sizes that tracing left open and that are known here are resolved."""
        is_one = isinstance(result, Value) and isinstance(result.type, TensorType)
        if not is_one or not isinstance(found, torch.Tensor) or result.type.rank != found.ndim:
            return
        left = set(self.builder.new_sizes)
        for ours, theirs in zip(result.type.shape, found.shape, strict=True):
            if (
                isinstance(theirs, torch.SymInt)
                and (name := self.symbols.dim_or_define(theirs, ours)) in left
            ):
                self.symbols.fix(str(name), ours)

    def _new_sizes(self, found: Any) -> list[DimExpr]:
        """Return the symbols that the sizes of a result define, in order."""
        sizes = [size for leaf in leaves(found) if isinstance(leaf, torch.Tensor) for size in leaf.shape]
        symbolic = [size for size in sizes if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol]
        dims = dict.fromkeys(self.symbols.dim(size) for size in symbolic)
        return [dim for dim in dims if str(dim) not in self._fallback.known]

    def can_convert_unknown(self, overload: str) -> bool:
        """Return True if PyTorch is called for the current node."""
        return self._node is not None and self._may_call(self._node)

    def convert_unknown(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call PyTorch."""
        node = cast(torch.fx.Node, self._node)
        if not self.can_convert_unknown(overload) and is_complex(node):
            raise UnsupportedOp(f"{overload} takes or gives complex numbers, which cannot be compiled")
        if not self.can_convert_unknown(overload):
            return super().convert_unknown(overload, args, kwargs)
        names = [argument.name for argument in operator_of(node)._schema.arguments]
        given = [self.values_of(value) for value in schema_arguments(node)]
        return self._fallback.call(node, dict(zip(names, given, strict=True)))

    def check_complete(self, overload: str, result: Any) -> None:
        """See Importer."""
        left_out = [i for i, value in enumerate(result) if value is None] if isinstance(result, tuple) else []
        users = () if self._node is None else self._node.users
        parts = [user for user in users if user.target is operator.getitem and user.users]
        used = [part.args[1] for part in parts if part.meta.get("val") is not None]
        for i in left_out:
            if i in used:
                raise UnsupportedOp(f"{overload}: its result {i} cannot be compiled")

    def _import_item(self, node: torch.fx.Node) -> Any:
        found = node.meta["val"]
        x = self.values[node_argument(node)]
        self.builder.source = source_of(node)
        if isinstance(found, torch.SymBool):
            return self._import_truth(x, found)
        if not isinstance(found, torch.SymInt):
            item = self.builder.one("item", x)
            if isinstance(found, torch.SymFloat):
                self._met.floats[str(found.node.expr)] = item
            return item
        if found.node.expr.is_Symbol and all(user.op == "output" for user in node.users):
            return self.builder.one("item", x)  # no size: any integer will do
        expr = self.symbols.dim(found)
        if not isinstance(expr, sympy.Symbol) or str(expr) in self._fallback.known:
            return self._import_known(x, expr)
        self.builder.one("item", x, symbol=str(expr))
        self._fallback.known.add(str(expr))
        low, high = self.symbols.limits(found)
        limits = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        message = f"{expr}, a value read from a tensor, must be {' and '.join(limits)}"
        for limit, bound in ((sympy.Ge, low), (sympy.Le, high)):
            if bound is not None:
                append_guard(self.builder, limit(expr, bound, evaluate=False), message)
        return expr

    def _import_known(self, x: Value, expected: DimExpr) -> DimExpr:
        """Read a number from a tensor that the program assumes to be `expected`."""
        found = self.builder.one("item", x)
        right = self.builder.one("int_eq", found, self.builder.size(expected))
        message = f"a value read from a tensor must be {format_dim(expected)}; it is "
        parts = self.builder.one("literal", value=message), self.builder.one("to_str", found)
        self.builder.apply("guard", right, self.builder.one("str_concat", *parts))
        return expected

    def _import_truth(self, x: Value, found: torch.SymBool) -> Value:
        """Read a truth value from a tensor: later nodes compute with a number that is 0 or 1, or assume its
        value."""
        condition = self.symbols.condition(found)
        if not condition.free_symbols:
            value = self.builder.one("item", x)
            right = value if condition else self.builder.one("bool_not", value)
            message = f"a value read from a tensor must be {bool(condition)}"
            self.builder.apply("guard", right, message=message)
            return value
        (number,) = map(str, condition.free_symbols)
        self.builder.one("item", B.cast_to(self.builder, x, "i64"), symbol=number)
        self._fallback.known.add(number)
        return truth(self.builder, condition)

    def _import_check(self, node: torch.fx.Node) -> None:
        """A check that tracing could not decide: unless the contract proves it, it is checked at every
        call."""
        condition, message = node_argument(node), str(node.args[1])
        self.builder.source = source_of(node)
        found = self.values[condition]
        if isinstance(found, torch.SymBool):
            if self._met.offsets & found.node.expr.free_symbols:
                return  # of a storage offset, which only torch has
            if self.has_floats(found):
                self.builder.apply("guard", self.truth_of(found), message=message)
            else:
                add_guard(self.builder, self.symbols.condition(found), message)
        elif isinstance(found, Value):
            self.builder.apply("guard", found, message=message)
        elif not found:
            raise ShapeError(f"a check of the model never holds: {message}", source=source_of(node))

    def has_floats(self, condition: torch.SymBool) -> bool:
        """Whether a condition depends on floats that were read from tensors."""
        return any(str(name) in self._met.floats for name in condition.node.expr.free_symbols)

    def truth_of(self, condition: torch.SymBool) -> Value:
        """Return the truth of a condition on numbers that are known at run time."""
        if self.has_floats(condition):
            return truth_of(self.builder, condition.node.expr, self.symbols, self._met.floats)
        return truth(self.builder, self.symbols.condition(condition))

    def _import_python(self, node: torch.fx.Node) -> Any:
        """Functions of Python numbers: conditions of checks. The contract and the operators check sizes."""
        if isinstance(node.meta.get("val"), torch.SymBool | torch.SymFloat | bool):
            return node.meta["val"]
        raise UnsupportedOp(
            f"{node.target} of numbers that depend on the input cannot be compiled", source=source_of(node)
        )

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments in the order of the overload's schema with defaults filled in."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        schema = operator_of(node)._schema.arguments
        for argument, value in zip(schema, schema_arguments(node), strict=True):
            if argument.kwarg_only:
                keywords[argument.name] = self._argument(value)
            else:
                positional.append(self._argument(value))
        return positional, keywords

    def _argument(self, value: Any) -> Any:
        """Return an argument in the form of converters (`declare.Composite`)."""
        value = self.values_of(value)
        if isinstance(value, torch.dtype):
            return element_name(value)
        return str(value) if isinstance(value, torch.device | torch.layout | torch.memory_format) else value

    def values_of(self, value: Any) -> Any:
        """Return an argument with our values and size expressions for nodes and symbolic ints."""
        if isinstance(value, torch.fx.Node):
            value = self.values[value]
        if isinstance(value, list | tuple):
            return [self.values_of(item) for item in value]
        if isinstance(value, torch.SymFloat):
            return self._number(value)
        return self.symbols.dim(value) if isinstance(value, torch.SymInt) else value

    def _number(self, value: torch.SymFloat) -> Value:
        """Return a float that depends on sizes as a 0-d tensor, which is promoted like a number."""
        made = number_of(self.builder, value.node.expr, self.symbols, self._met.floats)
        tensors = [] if self._node is None else [arg.meta.get("val") for arg in self._node.all_input_nodes]
        dtypes = {t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point}
        wanted = dtypes.pop() if len(dtypes) == 1 else torch.get_default_dtype()
        if wanted.itemsize == 2 and all(t.ndim for t in tensors if isinstance(t, torch.Tensor)):
            wanted = torch.float32  # PyTorch computes f16 and bf16 in it
        if self._node is not None and str(self._node.target).startswith(_COUNTS):
            return made
        return B.cast_to(self.builder, made, dtype_name(wanted))

    def type_of(self, tensor: torch.Tensor) -> TensorType:
        """Return the type of a fake tensor, of a complex one that of its parts; constants in float8 are held
        in f32."""
        if tensor.is_complex():
            dtype = PARTS[complex_name(tensor.dtype)]
        else:
            dtype = "f32" if is_float8(tensor) else dtype_name(tensor.dtype)
        return TensorType(dtype, tuple(self.symbols.dim(size) for size in tensor.shape))

    def _checked(self, node: torch.fx.Node, result: Any, found: Any) -> Any:
        """Return a converter's result in PyTorch's shapes. Raises VerifyError for another type."""
        if overload_of(node) == _UNTRACED or self._is_elementwise:
            return result
        if not isinstance(result, tuple):
            return self._of_type(node, result, found)
        n_traced = 1 if overload_of(node) in _MISTRACED else len(result)
        pairs = list(zip(result, found, strict=False))[:n_traced]
        return (*(self._of_type(node, *pair) for pair in pairs), *result[len(pairs) :])

    def _of_type(self, node: torch.fx.Node, value: Any, expected: Any) -> Any:
        """Return a value in PyTorch's shape. A size that tracing found to equal another one, or a number, is
        checked at every call."""
        if not isinstance(value, Value | Complex) or not isinstance(expected, torch.Tensor):
            return value
        if isinstance(value, Complex) != expected.is_complex():
            raise VerifyError(f"{overload_of(node)}: its result is {expected.dtype}", source=source_of(node))
        if isinstance(value, Complex):
            return Complex(*(self._of_shape(node, part, self.type_of(expected)) for part in value.parts))
        return self._of_shape(node, value, self.type_of(expected))

    def _of_shape(self, node: torch.fx.Node, value: Value, wanted: TensorType) -> Value:
        """Return a value, or a part of a complex one, in PyTorch's shape."""
        made = value.type
        is_alike = isinstance(made, TensorType) and made.dtype == wanted.dtype and made.rank == wanted.rank
        for axis, size in enumerate(wanted.shape if is_alike else ()):
            ours = value.tensor.shape[axis]
            is_found = not may_equal(ours, size) and not B.is_known(ours - size)
            is_simpler = is_opaque(ours) and isinstance(size, sympy.Symbol)
            if (is_found or is_simpler) and self._is_known_now(size):
                value = B.of_size(self.builder, overload_of(node), value, axis, size)
        if not is_alike or not all(map(may_equal, value.tensor.shape, wanted.shape)):
            raise VerifyError(
                f"{overload_of(node)}: imported as {made}, PyTorch makes {wanted}", source=source_of(node)
            )
        return value

    def _is_known_now(self, size: DimExpr) -> bool:
        """Whether all symbols of a size are those of inputs or were found before."""
        return symbols_of(size) <= self._fallback.known


_PART = "export.access_subclass_inner_tensor.default"
_COUNTS = "aten.arange."  # in f64, which decides the length
_UNTRACED = "aten.unique_consecutive.default"  # with a dim its traced rank is wrong
#: PyTorch traces their statistics as f32 and computes them in the dtype of the parameters.
_MISTRACED = (
    "aten._native_batch_norm_legit_functional.default",
    "aten._batch_norm_with_update_functional.default",
    *MISTRACED,
)


def require_strided(tensor: torch.Tensor, name: str) -> None:
    """Raise UnsupportedOp for a tensor without strides."""
    if tensor.layout != torch.strided:
        raise UnsupportedOp(
            f"{name} is {tensor.layout}, which no program takes: give it dense, by its method to_dense()"
        )


def all_nodes(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Yield the nodes of a module's graph and of the graphs passed to its operators."""
    for node in module.graph.nodes:
        yield node
        found = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(found, torch.fx.GraphModule):
            yield from all_nodes(found)


def is_operator(node: torch.fx.Node) -> bool:
    """Return True for calls of torch operators, including those with functions as arguments (cond, map)."""
    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return node.op == "call_function" and isinstance(node.target, kinds) and not is_size(node)


_OFFSET = "aten.sym_storage_offset"


def is_size(node: torch.fx.Node) -> bool:
    """Return True for calls that read a size."""
    return str(node.target).startswith(("aten.sym_size", "aten.sym_numel", "aten.sym_stride", _OFFSET))


def is_item(node: torch.fx.Node) -> bool:
    """Return True for calls that read a tensor's element as a number."""
    return str(node.target) in ("aten.item.default", "aten._local_scalar_dense.default")


def is_dtype(node: torch.fx.Node) -> bool:
    """Return True for calls that return a dtype, which are constants."""
    return str(node.target) == "aten.promote_types.default"


def is_check(node: torch.fx.Node) -> bool:
    """Return True for calls that check a condition on numbers."""
    return str(node.target) == "aten._assert_scalar.default"


def overload_of(node: torch.fx.Node) -> str:
    """Return the overload's name, such as "aten.add.Tensor"."""
    return str(node.target)


def schema_arguments(node: torch.fx.Node) -> list[Any]:
    """Return a call's arguments in the order of its overload's schema, defaults filled in."""
    found = []
    for i, argument in enumerate(operator_of(node)._schema.arguments):
        if i < len(node.args) and not argument.kwarg_only:
            found.append(node.args[i])
        else:
            found.append(node.kwargs[argument.name] if argument.name in node.kwargs else _default(argument))
    return found


def _default(argument: Any) -> Any:
    """Return the default of a schema's argument; that of a dtype is written as its number."""
    value = argument.default_value
    is_dtype = isinstance(value, int) and str(argument.real_type) in ("ScalarType", "Optional[ScalarType]")
    return TORCH_DTYPES[DTYPE_OF[value]] if is_dtype else value


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


#: Operators that make a tensor from numbers, which PyTorch computes at compile time.
_CONSTANTS = tuple(
    f"aten::{name}" for name in (
        "hann_window", "hamming_window", "bartlett_window", "blackman_window", "kaiser_window", "fft_fftfreq",
        "fft_rfftfreq",
    )
)  # fmt: skip


def is_constant(node: torch.fx.Node) -> bool:
    """Return True for a window of a signal, or its frequencies, whose length is known."""
    is_one = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _CONSTANTS
    return is_one and not node.all_input_nodes


def computed(node: torch.fx.Node) -> torch.Tensor:
    """Return the result of an operator without tensor arguments."""
    with unset_fake_temporarily():
        return cast(torch._ops.OpOverload, node.target)(*node.args, **{**node.kwargs, "device": "cpu"})


def constant_of(importer: Importer, tensor: torch.Tensor, name: str) -> Value | Complex:
    """Append a tensor of the model."""
    if not tensor.is_complex():
        return importer.constant(*array_of(tensor), name)
    parts = torch.view_as_real(tensor.resolve_conj()).unbind(-1)
    real, imaginary = (importer.constant(*array_of(part), name) for part in parts)
    return Complex(real, imaginary)


def array_of(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    """Return a tensor's elements in storage form (bf16 as uint16 bits) and its dtype."""
    tensor = tensor.float() if is_float8(tensor) else tensor
    dtype = dtype_name(tensor.dtype)
    tensor = tensor.detach().cpu().resolve_neg().contiguous()
    return (tensor.view(torch.uint16) if dtype == "bf16" else tensor).numpy(), dtype


def _is_known_size(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt) and not is_item(node)


#: Nodes that are not calls of converters, in order: a predicate, and the import function.
_SPECIAL: tuple[tuple[Callable[[torch.fx.Node], bool], Callable[[FxImporter, torch.fx.Node], Any]], ...] = (
    (_is_known_size, FxImporter._import_size),
    (lambda node: node.target is operator.getitem, FxImporter._import_part),
    (lambda node: not is_operator(node), FxImporter._import_python),
    (lambda node: overload_of(node) == _PART or is_constant(node), FxImporter._import_constant),
    (is_dtype, FxImporter._import_dtype),
    (is_item, FxImporter._import_item),
    (is_check, FxImporter._import_check),
)
