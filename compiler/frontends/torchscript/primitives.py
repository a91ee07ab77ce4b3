"""TorchScript's primitives: constants, attributes, tuples, types, constructors of lists, dicts and
objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.dims import evaluate, symbol, symbols_of
from ...ir.errors import ShapeError, UnsupportedOp
from ...ir.graph import Value
from ...ir.types import BOOL, FLOAT, INT, STR, ListType, TupleType, Type
from ...ops import build as B
from ...ops.complex import dtype_of
from ..dtypes import NUMBER_OF, TORCH_DTYPES
from .bounds import check_length
from .flow.optionals import there
from .operators import library, run_time_dicts
from .operators.containers import content, get_item, key_of
from .operators.run_time_lists import RUN_TIME_LISTS, element
from .values.scalars import scalar_op
from .values.values import (
    UNINITIALIZED,
    Cell,
    Dict,
    List,
    Maybe,
    Member,
    Object,
    Tensor,
    has_same_items,
    is_run_time,
    is_run_time_list,
    is_same,
    is_size,
    kind_of,
)
from .walk import Walk

Handler = Callable[["Walk", Any], list[Any]]


@dataclass(eq=False)
class Attribute(Cell):
    """An attribute of a module; `path`: its name in the model."""

    path: str = ""


def _constant(importer: Walk, node: Any) -> list[Any]:
    found = node.output().toIValue()
    return [importer.abstract(found, f"constant_{node.output().debugName()}")]


def _to_list(importer: Walk, node: Any) -> list[Any]:
    """x.tolist(): a number, or a list of them."""
    x, type = importer.get(node.inputsAt(0)), node.output().type()
    kind = type.kind() if type.kind() != "ListType" else type.getElementType().kind()
    element = _SCALARS.get(kind)
    if element is None and kind == "ListType":
        element = _SCALARS.get(type.getElementType().getElementType().kind())
        if element is not None:
            return [library.run(importer, "tolist2", [x], element)]
    if element is None:
        raise UnsupportedOp("tolist of a tensor of more than two axes cannot be compiled")
    if type.kind() == "ListType":
        known = _positions(importer.tensors.read(x))
        return [library.run(importer, "tolist", [x], element) if known is None else List(known)]
    return [importer.builder.one("item", importer.tensors.read(x))]


def _positions(line: Value) -> list[int] | None:
    """Return the elements of a short range of known numbers, such as `torch.arange(1, x.dim())`, or None."""
    if line.node is None or line.node.op != "iota" or line.tensor.dtype != "i64":
        return None
    start, step, length = (line.node.attrs[name] for name in ("start", "step", "length"))
    if not all(isinstance(each, int) for each in (start, step, length)) or length > MAX_POSITIONS:
        return None
    return [start + step * i for i in range(length)]


MAX_POSITIONS = 64  # of a range that is a list of known length
_SCALARS: dict[str, Type] = {"IntType": INT, "FloatType": FLOAT, "BoolType": BOOL, "StringType": STR}


def _get_attribute(importer: Walk, node: Any) -> list[Any]:
    return [importer.attribute(importer.get(node.inputsAt(0)), node.s("name"))]


def _set_attribute(importer: Walk, node: Any) -> list[Any]:
    owner, new = importer.get(node.inputsAt(0)), importer.get(node.inputsAt(1))
    if owner.script is None and node.s("name") not in owner.attributes:
        owner.attributes[node.s("name")] = Attribute(new)
        return []
    cell = importer.attribute_cell(owner, node.s("name"))
    if not is_same(cell.content, new):
        if cell.path and not has_same_items(cell.content, new):
            importer.keep_state(cell.path)
        importer.regions.note(cell)
        cell.content = new
    return []


def _values(importer: Walk, node: Any) -> list[Any]:
    return [importer.get(value) for value in node.inputs()]


def _list(importer: Walk, node: Any) -> list[Any]:
    declared = _declared(node.output().type().getElementType())
    return [List(_values(importer, node), declared=declared)]


def _declared(type: Any) -> Type | None:
    """Return the type of elements of a list, None if it depends on tensors."""
    kind = type.kind()
    if kind == "ListType":
        inner = _declared(type.getElementType())
        return None if inner is None else ListType(inner)
    if kind == "TupleType":
        parts = [_declared(part) for part in type.elements()]
        return None if None in parts else TupleType(tuple(part for part in parts if part is not None))
    if kind == "OptionalType":
        inner = _declared(type.getElementType())
        return None if inner is None else ListType(inner, "optional")
    if kind == "DictType":
        pair = _declared_pair(type)
        return None if pair is None else ListType(pair, "dict")
    return _SCALARS.get(kind)


def _declared_pair(type: Any) -> Type | None:
    """Return the type of the pairs of a dict, None if it depends on tensors."""
    key, value = _declared(type.getKeyType()), _declared(type.getValueType())
    return None if key is None or value is None else TupleType((key, value))


def _dict(importer: Walk, node: Any) -> list[Any]:
    found = _values(importer, node)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    made = Dict({}, declared=_declared_pair(node.output().type()))
    if any(is_run_time(key) or is_size(key) for key, _ in pairs):
        for key, item in pairs:
            run_time_dicts.set_key(importer, made, key, item)
    else:
        made.content = {key_of(key): item for key, item in pairs}
    return [made]


def _unpack(importer: Walk, node: Any) -> list[Any]:
    found = importer.get(node.inputsAt(0))
    n = node.outputsSize()
    if isinstance(found, List) and is_run_time_list(found.content):
        b = importer.builder
        is_so = b.one("int_eq", b.one("len", found.content), b.size(n))
        b.apply("guard", is_so, message=f"a list is unpacked to {n} names; it must have as many elements")
        return [element(importer, found, i) for i in range(n)]
    items = found if isinstance(found, tuple) else content(importer, found)
    if len(items) != n:
        raise ShapeError(f"a list of {len(items)} is unpacked to {n} names")
    return list(items)


def _tuple_index(importer: Walk, node: Any) -> list[Any]:
    items, index = _values(importer, node)
    return [items[index]]


def _tuple_slice(importer: Walk, node: Any) -> list[Any]:
    return [importer.get(node.inputsAt(0))[node.i("beg") : node.i("end")]]


def _unwrapped(importer: Walk, node: Any) -> list[Any]:
    found = importer.get(node.inputsAt(0))
    return [there(importer, found.value) if isinstance(found, Maybe) else found]


def _number_to_tensor(importer: Walk, node: Any) -> list[Any]:
    b, x = importer.builder, importer.get(node.inputsAt(0))
    dtype = {"int": "i64", "float": "f32", "bool": "bool"}[kind_of(x)]
    made = b.one("scalar", x, dtype=dtype) if is_run_time(x) else B.full(b, x, dtype)
    return [importer.tensors.fresh(made)]


def _raise(importer: Walk, node: Any) -> list[Any]:
    b = importer.builder
    message = importer.message_of(node)
    if len(importer.regions.blocks) == 1 and isinstance(message, str):
        raise ShapeError(f"the model raises: {message}")
    never = b.one("literal", value=False)
    if isinstance(message, Value):
        b.apply("guard", never, message)
    else:
        b.apply("guard", never, message=message)
    return []


def _dtype(importer: Walk, node: Any) -> list[Any]:
    return [NUMBER_OF[dtype_of(importer.tensors.read(importer.get(node.inputsAt(0))))]]


def _always(value: Any) -> Handler:
    return lambda importer, node: [value] * node.outputsSize()


def _shape(importer: Walk, node: Any) -> list[Any]:
    return [List(list(B.shape_of(importer.tensors.read(importer.get(node.inputsAt(0))))))]


def _create(importer: Walk, node: Any) -> list[Any]:
    return [Object(None, "")]


def _isinstance(importer: Walk, node: Any) -> list[Any]:
    found = importer.get(node.inputsAt(0))
    types, value = node.tys("types"), found.value if isinstance(found, Maybe) else found
    is_one = any(_is_of(importer, value, type) for type in types)
    if not isinstance(found, Maybe) or is_one is any(_is_of(importer, None, type) for type in types):
        return [is_one]
    return [found.is_there if is_one else importer.builder.one("bool_not", found.is_there)]


def _is_of(importer: Walk, x: Any, type: Any) -> bool:
    """Return True for a value of a TorchScript type. An empty list or dict has any type."""
    test = _TYPE_TESTS.get(type.kind())
    if test is None:
        raise UnsupportedOp(f"isinstance of {type.annotation_str} cannot be compiled")
    return test(importer, x, type)


def _is_list(importer: Walk, x: Any, type: Any) -> bool:
    if not isinstance(x, List):
        return False
    items = [element(importer, x, 0)] if is_run_time_list(x.content) else x.content
    return all(_is_of(importer, item, type.getElementType()) for item in items)


def _is_tuple(importer: Walk, x: Any, type: Any) -> bool:
    inner = type.elements()
    if not isinstance(x, tuple) or len(x) != len(inner):
        return False
    return all(_is_of(importer, item, each) for item, each in zip(x, inner, strict=True))


def _is_dict(importer: Walk, x: Any, type: Any) -> bool:
    if not isinstance(x, Dict) or is_run_time_list(x.content):
        return isinstance(x, Dict)
    pairs = [(type.getKeyType(), key) for key in x.content]
    pairs += [(type.getValueType(), item) for item in x.content.values()]
    return all(_is_of(importer, item, each) for each, item in pairs)


def _is_object(importer: Walk, x: Any, type: Any) -> bool:
    if isinstance(x, Object) and x.script is None:
        raise UnsupportedOp("isinstance of an object that the program makes cannot be compiled")
    return isinstance(x, Object) and str(x.script._type()) == str(type)


def _of_kind(kind: str) -> Callable[..., bool]:
    return lambda importer, x, type: kind_of(x) == kind


_TYPE_TESTS: dict[str, Callable[..., bool]] = {
    "TensorType": lambda importer, x, type: isinstance(x, Tensor),
    "NoneType": _of_kind("none"),
    "IntType": _of_kind("int"),
    "FloatType": _of_kind("float"),
    "BoolType": _of_kind("bool"),
    "StringType": _of_kind("str"),
    "NumberType": lambda importer, x, type: kind_of(x) in ("int", "float"),
    "AnyListType": lambda importer, x, type: isinstance(x, List),
    "AnyTupleType": lambda importer, x, type: isinstance(x, tuple),
    "ListType": _is_list,
    "TupleType": _is_tuple,
    "DictType": _is_dict,
    "ClassType": _is_object,
    "EnumType": lambda importer, x, type: isinstance(x, Member),
    "OptionalType": lambda importer, x, type: x is None or _is_of(importer, x, type.getElementType()),
    "UnionType": lambda importer, x, type: any(_is_of(importer, x, t) for t in type.containedTypes()),
}


def _of_member(tell: Callable[[Any], Any]) -> Handler:
    """Return the handler of a known property of enumeration members."""

    def handler(importer: Walk, node: Any) -> list[Any]:
        member = importer.get(node.inputsAt(0))
        every = List([importer.abstract(tell(each), "") for each in member.kind])
        return [get_item(importer, every, member.index)]

    return handler


def _plain(name: str) -> Handler:
    def handler(importer: Walk, node: Any) -> list[Any]:
        args = _values(importer, node)
        if len(args) == 1 and isinstance(args[0], List) and is_run_time_list(args[0].content):
            return [RUN_TIME_LISTS[name](importer, args[0])]
        if len(args) == 1 and isinstance(args[0], List):
            args = content(importer, args[0])
        made = args[0]
        for other in args[1:]:
            made = scalar_op(importer.builder, name, (made, other))
        return [scalar_op(importer.builder, name, args) if len(args) == 1 and name == "abs" else made]

    return handler


def _fork(importer: Walk, node: Any) -> list[Any]:
    """torch.jit.fork: the work is done at once, as in a single-threaded program."""
    graph = node.g("Subgraph")
    torch._C._jit_pass_inline(graph)
    results = importer.run_apart(graph, _values(importer, node))
    return [results[0] if len(results) == 1 else tuple(results)]


def _python(importer: Walk, node: Any) -> list[Any]:
    """A traced autograd function, whose operators the trace holds. PyTorch runs the function itself."""
    name = node.pyname().rsplit(".", 1)[-1]
    if not node.hasAttribute("Subgraph"):
        raise UnsupportedOp(
            f"the program calls the Python function {name}, of which it does not "
            "hold the operators; trace the module, or write the function in TorchScript, without "
            "torch.jit.ignore"
        )
    importer.python_functions.add(name)
    _fix_sizes_of_loops(importer, node)
    return _fork(importer, node)


def _fix_sizes_of_loops(importer: Walk, node: Any) -> None:
    """Fix the sizes of a Python function's tensors of which others give other operators: a loop or branch of
    Python depends on them."""
    values = [importer.tensors.read(x) for x in _values(importer, node) if isinstance(x, Tensor)]
    names = {name: symbol(name) for x in values for size in B.shape_of(x) for name in symbols_of(size)}
    sizes: dict[str, Any] = {name: importer.example_of(size) for name, size in names.items()}
    as_example = None if None in sizes.values() else _operators(node, values, sizes)
    for name, n in sizes.items() if as_example is not None else ():
        alike = [each for each, size in sizes.items() if size == n]
        found: list[Any] = []
        for changed in ([name], alike):  # together, where the function refuses one alone
            if not any(found):
                others = [dict.fromkeys(changed, other) for other in (n + 1, 2 * n)]
                found = [_operators(node, values, {**sizes, **other}) for other in others]
        if any(each not in (None, as_example) for each in found):
            importer.require_equal(names[name], n)


def _operators(node: Any, values: Sequence[Any], sizes: Mapping[str, Any]) -> list[Any] | None:
    """Return the operators of a Python function for tensors of these sizes, which it may refuse: None."""

    def call(*tensors: torch.Tensor) -> Any:
        given, rest = iter(tensors), iter(node.scalar_args())
        return node.pyobj()(*(next(given if kind == "d" else rest) for kind in node.cconv()))

    try:
        shapes = [[evaluate(size, sizes) for size in B.shape_of(x)] for x in values]
        dtypes = [TORCH_DTYPES[dtype_of(x)] for x in values]
        tensors = [torch.ones(row, dtype=dtype) for row, dtype in zip(shapes, dtypes, strict=True)]
        with torch.no_grad():
            graph = torch.jit.trace(call, tuple(tensors), check_trace=False).graph
        (inner,) = (each for each in graph.nodes() if each.kind() == "prim::PythonOp")
        return [(each.kind(), _number(each)) for each in inner.g("Subgraph").nodes()]
    except Exception:  # whatever the function raises
        return None


def _number(node: Any) -> Any:
    found = node.output().toIValue() if node.kind() == "prim::Constant" else None
    return found if isinstance(found, bool | int | float) else None


def _range(importer: Walk, node: Any) -> list[Any]:
    (n,) = _values(importer, node)
    if not isinstance(n, int):
        raise UnsupportedOp("a list of a range with a run-time end cannot be compiled")
    check_length(n)
    return [List(list(range(n)))]


def _call_method(importer: Walk, node: Any) -> list[Any]:
    """A method of an interface, resolved by the actual module."""
    owner = importer.get(node.inputsAt(0))
    if not isinstance(owner, Object) or owner.script is None:
        raise UnsupportedOp(f"the method {node.s('name')} of {node.inputsAt(0).type()} cannot be compiled")
    graph = owner.script._get_method(node.s("name")).graph.copy()
    torch._C._jit_pass_inline(graph)
    results = importer.run_apart(graph, _values(importer, node))
    return [results[0] if len(results) == 1 else tuple(results)]


HANDLERS: dict[str, Handler] = {
    "prim::Constant": _constant,
    "prim::GetAttr": _get_attribute,
    "prim::SetAttr": _set_attribute,
    "prim::ListConstruct": _list,
    "prim::TupleConstruct": lambda importer, node: [tuple(_values(importer, node))],
    "prim::DictConstruct": _dict,
    "prim::TupleUnpack": _unpack,
    "prim::ListUnpack": _unpack,
    "prim::TupleIndex": _tuple_index,
    "prim::TupleSlice": _tuple_slice,
    "prim::Uninitialized": _always(UNINITIALIZED),
    "prim::unchecked_cast": _unwrapped,
    "prim::unchecked_unwrap_optional": _unwrapped,
    "aten::_unwrap_optional": _unwrapped,
    "prim::NumToTensor": _number_to_tensor,
    "prim::tolist": _to_list,
    "prim::RaiseException": _raise,
    "prim::dtype": _dtype,
    "prim::device": _always("cpu"),
    "prim::layout": _always(0),
    "prim::type": _always("cpu"),
    "prim::is_cuda": _always(False),
    "prim::is_nested": _always(False),
    "prim::is_sparse": _always(False),
    "prim::is_quantized": _always(False),
    "prim::is_mkldnn": _always(False),
    "prim::requires_grad": _always(True),  # so that no inference-only kernel of torch is chosen
    "prim::data": lambda importer, node: [importer.get(node.inputsAt(0))],
    "prim::shape": _shape,
    "prim::CreateObject": _create,
    "prim::isinstance": _isinstance,
    "prim::EnumName": _of_member(lambda member: member.name),
    "prim::EnumValue": _of_member(lambda member: member.value),
    "prim::Print": _always(None),
    "prim::min": _plain("min"),
    "prim::max": _plain("max"),
    "prim::abs": _plain("abs"),
    "prim::rangelist": _range,
    "prim::CallMethod": _call_method,
    "prim::fork": _fork,
    "prim::PythonOp": _python,
    "aten::wait": _values,
    "aten::warn": _always(None),
    "aten::is_grad_enabled": _always(True),
    "aten::is_autocast_enabled": _always(False),
    "aten::is_scripting": _always(True),
}
