"""FX graphs of ATen operators, the form in which all of torch's own compilers hand over a program.

Sizes are symbolic dimensions throughout: an integer of the traced graph is its expression, not a value.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..ir.dims import DimExpr, format_dim
from ..ir.errors import DtypeError, ShapeError, UnsupportedOp, VerifyError
from ..ir.graph import Value
from ..ir.sizes import sizes_named
from ..ir.types import ScalarType, TensorType
from ..ops import build as B
from ..ops.conditions import add_guard, truth
from ..ops.rules import may_equal
from .control import import_control, is_control
from .dtypes import DTYPE_OF, TORCH_DTYPES, dtype_name
from .fallback import (
    Complex,
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
from .numbers import number_of
from .packed_weights import check_quantised
from .squeezed import may_keep_axes
from .symbols import Symbols


class FxImporter(Importer):
    """Imports the nodes of ATen graphs whose `meta["val"]` tells types and sizes; subclasses say what their
    inputs and outputs are. `may_call_torch`: PyTorch is called where an operator cannot be compiled."""

    def __init__(self, name: str, symbols: Symbols, may_call_torch: bool = False) -> None:
        super().__init__(name)
        self.symbols = symbols
        self.graph.symbols = symbols.contract
        self.may_call_torch = may_call_torch
        self.values: dict[torch.fx.Node, Any] = {}
        self._constants: dict[Any, Value] = {}  # by place and layout: tied parameters are one constant
        self._fallback = Fallback(self.builder, symbols)
        self._floats: dict[str, Value] = {}  # read from tensors, by torch's symbol
        self._offsets: set[Any] = set()  # torch's symbols of places in memory
        self._node: torch.fx.Node | None = None  # the one that is being converted
        self._calls: dict[str, torch.fx.Node] = {}  # of operators whose results have sizes that data give

    def require_all(self, module: torch.fx.GraphModule) -> None:
        """Raise UnsupportedOp naming all operators of `module`, those of functions that it hands to operators
        included, that can neither be compiled nor called."""
        operators = [node for node in all_nodes(module) if is_operator(node) and not self.is_own(node)]
        refused = [node for node in operators if not self._may_call(node)]
        self.require((overload_of(node), source_of(node)) for node in refused)

    def _may_call(self, node: torch.fx.Node) -> bool:
        return (self.may_call_torch or is_declared(node.target)) and not reason_against(node)

    def is_own(self, node: torch.fx.Node) -> bool:
        """Return True for operators that the importer does itself."""
        is_python = is_item(node) or is_check(node) or is_control(node)
        return is_python or overload_of(node) == _PART or is_constant(node)

    def import_nodes(self, module: torch.fx.GraphModule) -> None:
        """Append what the nodes of `module` do. Its placeholders have their values already."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function":
                same = self._same_call(node)
                self.values[node] = self._import_node(node) if same is None else self.values[same]

    def _same_call(self, node: torch.fx.Node) -> torch.fx.Node | None:
        """Return the call before that had the same arguments, of an operator whose result has a size that
        data give: PyTorch takes the two sizes for one."""
        if torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
            return None
        found = self._calls.setdefault(f"{node.target} {node.args} {node.kwargs}", node)
        return None if found is node else found

    def import_region(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """Append what a function of the model does; return its results. What it brings into being is
        forgotten: it may not run."""
        constants, known = dict(self._constants), set(self._fallback.known)
        generator, self.builder.generator = self.builder.generator, None  # a draw must happen at every call
        places, calls = dict(self.builder.places), self._calls
        self._calls = {}
        nodes = list(module.graph.nodes)
        holes = [node for node in nodes if node.op == "placeholder"]
        self.values.update(zip(holes, operands, strict=True))
        self._fallback.known |= {str(operand) for operand in operands if isinstance(operand, sympy.Symbol)}
        self.import_nodes(module)
        self._constants, self._fallback.known = constants, known
        self.builder.generator, self.builder.places, self._calls = generator, places, calls
        found = nodes[-1].args[0]
        return [self.values_of(result) for result in (found if isinstance(found, list | tuple) else [found])]

    def _attribute(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
        found: Any = module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return self.add_constant(found, str(node.target)) if isinstance(found, torch.Tensor) else found

    # Inputs, constants, outputs

    def add_input(self, name: str, node: torch.fx.Node) -> Any:
        """Append the input that a placeholder is; return its value, or the size expression of an int."""
        found = node.meta["val"]
        if isinstance(found, torch.Tensor):
            require_strided(found, f"input {name}")
            dtype_name(found.dtype)  # what is held in another one is no input
            return self.graph.input(name, self.type_of(found))
        if isinstance(found, int | torch.SymInt):
            expr = self.symbols.dim(found)
            self.graph.input(name, ScalarType("int", expr))
            return expr
        raise UnsupportedOp(f"input {name} is a {type(found).__name__}; it must be a tensor or an int")

    def add_constant(self, tensor: torch.Tensor, name: str) -> Value | Complex:
        """Append a tensor of the model; one that is there already is not appended again."""
        require_strided(tensor, name)
        if tensor.is_complex():
            parts = torch.view_as_real(tensor.resolve_conj())
            return Complex(self.constant(*array_of(parts), name))
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._constants or not tensor.numel():
            self._constants[key] = self.constant(*array_of(tensor), name)
        return self._constants[key]

    def add_parameter(self, tensor: torch.Tensor, name: str) -> Any:
        """Append a tensor of the model. One that is made of others (a subclass such as torchao's) stands for
        itself: the program reads its parts."""
        return (tensor, name) if is_traceable_wrapper_subclass(tensor) else self.add_constant(tensor, name)

    def output_value(self, leaf: Any) -> Value:
        """Return a result as a value. Raises DtypeError for a complex one."""
        if isinstance(leaf, Complex):
            raise DtypeError(
                "an output is complex, which cannot be compiled: return torch.view_as_real of it"
            )
        return leaf if isinstance(leaf, Value) else self.builder.size(leaf)

    # Operators

    def _import_node(self, node: torch.fx.Node) -> Any:
        found = node.meta.get("val")
        if isinstance(found, torch.SymInt) and not is_item(node):
            if str(node.target).startswith(_OFFSET) and found.node.expr.is_Symbol:
                self._offsets.add(found.node.expr)
            return self.symbols.dim(found)
        if node.target is operator.getitem:
            return self.values[node_argument(node)][node.args[1]]
        if not is_operator(node):
            return self._import_python(node)
        if overload_of(node) == _PART or is_constant(node):
            return self._import_constant(node)
        if is_item(node):
            return self._import_item(node)
        if is_check(node):
            return self._import_check(node)
        if is_complex(node):
            return self._import_complex(node)
        self._node, self.builder.source = node, source_of(node) or module_of(node)
        if is_float8_check(node, overload_of(node)):
            return None
        check_float8(node, overload_of(node), source_of(node))
        check_quantised(node, overload_of(node), source_of(node))
        if is_control(node):
            return import_control(self, node)
        args, kwargs = self._arguments(node)
        note_float8(self.graph, node, args, source_of)
        n_nodes = len(self.builder.block.nodes)
        self.builder.new_sizes = self._new_sizes(found)
        self.builder.n_results = len(found) if isinstance(found, list | tuple) else None
        memory = memory_read(node)
        if memory is not None:
            args = [self.values[memory], *args[1:3], self._argument(place_read(node))]
        elif reads_storage(node) and reason_against(node):
            raise UnsupportedOp(f"{overload_of(node)}: {reason_against(node)}", source=source_of(node))
        if may_keep_axes(node):
            result = B.reshape(self.builder, args[0], self.type_of(cast(torch.Tensor, found)).shape)
        else:
            result = self.convert(overload_of(node), args, kwargs, self.builder.source)
        made = self.builder.block.nodes[n_nodes:]
        results = [value for each in made for value in each.results]
        self._fallback.known |= {size for value in results for size in sizes_named(value)}
        self._name_sizes(result, found)
        self._check(node, result, found)
        return result

    def _import_constant(self, node: torch.fx.Node) -> Any:
        """Append a part of a parameter, or the tensor that an operator of numbers alone makes."""
        if is_constant(node):
            self.builder.source = source_of(node)
            return self.constant(*array_of(computed(node)), "")
        (whole, name), part = self.values[node_argument(node)], str(node.args[1])
        return self.add_parameter(getattr(whole, part), f"{name}.{part}")

    def _name_sizes(self, result: Any, found: Any) -> None:
        """Sizes that tracing left open and that are known here become what they are here."""
        is_one = isinstance(result, Value) and isinstance(result.type, TensorType)
        if not is_one or not isinstance(found, torch.Tensor) or result.type.rank != found.ndim:
            return
        left = set(self.builder.new_sizes)
        for ours, theirs in zip(result.type.shape, found.shape, strict=True):
            if isinstance(theirs, torch.SymInt) and (name := self.symbols.dim(theirs)) in left:
                self.symbols.fix(str(name), ours)

    def _new_sizes(self, found: Any) -> list[DimExpr]:
        """Return the symbols that the sizes of a result bring, in order."""
        sizes = [size for leaf in leaves(found) if isinstance(leaf, torch.Tensor) for size in leaf.shape]
        symbolic = [size for size in sizes if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol]
        dims = dict.fromkeys(self.symbols.dim(size) for size in symbolic)
        return [dim for dim in dims if str(dim) not in self._fallback.known]

    def can_convert_unknown(self, overload: str) -> bool:
        """Return True where PyTorch is called for the node at hand."""
        return self._node is not None and self._may_call(self._node)

    def convert_unknown(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call PyTorch."""
        node = cast(torch.fx.Node, self._node)
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

    def _import_complex(self, node: torch.fx.Node) -> Any:
        """Complex tensors are held as their parts; only PyTorch computes with them."""
        self.builder.source, self._node = source_of(node), node
        if overload_of(node) == "aten.view_as_real.default":
            return self.values[node_argument(node)].parts
        if overload_of(node) == "aten.view_as_complex.default":
            return Complex(self.values[node_argument(node)])
        if not self.can_convert_unknown(overload_of(node)):
            raise UnsupportedOp(
                f"{overload_of(node)} takes or gives complex numbers, which cannot be compiled",
                source=source_of(node),
            )
        return self.convert_unknown(overload_of(node), (), {})

    def _import_item(self, node: torch.fx.Node) -> Any:
        found = node.meta["val"]
        x = self.values[node_argument(node)]
        self.builder.source = source_of(node)
        if isinstance(found, torch.SymBool):
            return self._import_truth(x, found)
        if not isinstance(found, torch.SymInt):
            item = self.builder.one("item", x)
            if isinstance(found, torch.SymFloat):
                self._floats[str(found.node.expr)] = item
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
                condition = truth(self.builder, limit(expr, bound, evaluate=False))
                self.builder.apply("guard", condition, message=message)
        return expr

    def _import_known(self, x: Value, expected: DimExpr) -> DimExpr:
        """Read a number from a tensor that the program assumes to be `expected`."""
        found = self.builder.one("item", x)
        right = self.builder.one("int_eq", found, self.builder.size(expected))
        message = f"a value read from a tensor must be {format_dim(expected)}"
        self.builder.apply("guard", right, message=message)
        return expected

    def _import_truth(self, x: Value, found: torch.SymBool) -> Value:
        """Read a truth value from a tensor: what follows is computed from a number that is 0 or 1, or assumes
        which of them it is."""
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
        """A check that tracing could not decide: what the contract does not prove is checked at every
        call."""
        condition, message = node_argument(node), str(node.args[1])
        self.builder.source = source_of(node)
        found = self.values[condition]
        if isinstance(found, torch.SymBool):
            if self._offsets & found.node.expr.free_symbols:
                return  # of a place in memory, which torch alone has
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
        schema = operator_of(node)._schema.arguments
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
            return self._number(value)
        return self.symbols.dim(value) if isinstance(value, torch.SymInt) else value

    def _number(self, value: torch.SymFloat) -> Value:
        """Return a float that depends on sizes as a 0-d tensor, which takes part in promotion as a number
        would."""
        made = number_of(self.builder, value.node.expr, self.symbols, self._floats)
        tensors = [] if self._node is None else [arg.meta.get("val") for arg in self._node.all_input_nodes]
        dtypes = {t.dtype for t in tensors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point}
        wanted = dtypes.pop() if len(dtypes) == 1 else torch.get_default_dtype()
        return B.cast_to(self.builder, made, dtype_name(wanted))

    def type_of(self, tensor: torch.Tensor) -> TensorType:
        """Return the type of a fake tensor; constants in float8 are held in f32."""
        dtype = "f32" if is_float8(tensor) else dtype_name(tensor.dtype)
        return TensorType(dtype, tuple(self.symbols.dim(size) for size in tensor.shape))

    def _check(self, node: torch.fx.Node, result: Any, found: Any) -> None:
        """Raise VerifyError where a converter's result has another type than PyTorch's."""
        if overload_of(node) == _UNTRACED:
            return
        pairs = list(zip(result, found, strict=False)) if isinstance(result, tuple) else [(result, found)]
        for value, expected in pairs[:1] if overload_of(node) in _MISTRACED else pairs:
            if isinstance(value, Value) and isinstance(expected, torch.Tensor):
                wanted = self.type_of(expected)
                same = (
                    isinstance(value.type, TensorType)
                    and value.type.dtype == wanted.dtype
                    and value.type.rank == wanted.rank
                )
                if not same or not all(map(may_equal, value.tensor.shape, wanted.shape)):
                    raise VerifyError(
                        f"{overload_of(node)}: imported as {value.type}, PyTorch makes {wanted}",
                        source=source_of(node),
                    )


_PART = "export.access_subclass_inner_tensor.default"
_UNTRACED = "aten.unique_consecutive.default"  # with a dim its traced rank is wrong
#: PyTorch traces their statistics as f32 and computes them in the dtype of the parameters.
_MISTRACED = (
    "aten._native_batch_norm_legit_functional.default",
    "aten._batch_norm_with_update_functional.default",
)


def require_strided(tensor: torch.Tensor, name: str) -> None:
    """Raise UnsupportedOp for a tensor whose elements do not lie in memory at strides."""
    if tensor.layout != torch.strided:
        raise UnsupportedOp(
            f"{name} is {tensor.layout}, which no program takes: give it dense, by its method to_dense()"
        )


def all_nodes(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Yield the nodes of a module's graph and of those that it hands to operators."""
    for node in module.graph.nodes:
        yield node
        found = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(found, torch.fx.GraphModule):
            yield from all_nodes(found)


def is_operator(node: torch.fx.Node) -> bool:
    """Return True for calls of torch operators, those with functions as arguments (cond, map) included."""
    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return node.op == "call_function" and isinstance(node.target, kinds) and not is_size(node)


_OFFSET = "aten.sym_storage_offset"


def is_size(node: torch.fx.Node) -> bool:
    """Return True for calls that read a size."""
    return str(node.target).startswith(("aten.sym_size", "aten.sym_numel", "aten.sym_stride", _OFFSET))


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


#: Operators that make a tensor of numbers, which PyTorch computes while a program is compiled.
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
    """Return what an operator that takes no tensor gives."""
    with unset_fake_temporarily():
        return cast(torch._ops.OpOverload, node.target)(*node.args, **{**node.kwargs, "device": "cpu"})


def array_of(tensor: torch.Tensor) -> tuple[np.ndarray, str]:
    """Return a tensor's elements in storage form (bf16 as uint16 bits) and its dtype."""
    tensor = tensor.float() if is_float8(tensor) else tensor
    dtype = dtype_name(tensor.dtype)
    tensor = tensor.detach().cpu().resolve_neg().contiguous()
    return (tensor.view(torch.uint16) if dtype == "bf16" else tensor).numpy(), dtype
