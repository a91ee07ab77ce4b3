"""The inputs, state and outputs of a TorchScript program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ....calls.columns import GIVEN
from ....calls.pytree import LEAF, Structure, distinct, form, to_json
from ....calls.records import class_name
from ...ir.dims import DimExpr, evaluate, symbol, symbols_of
from ...ir.errors import UnsupportedOp
from ...ir.graph import SymbolInfo, Value
from ...ir.types import BOOL, ListType, ScalarType, TensorType
from ...ops.complex import as_output
from ..dtypes import dtype_name
from ..dynamic_shapes import axis_dim
from .flow.optionals import can_be_open, inner_type, named_sizes, part_type, zero_of
from .state import State
from .values import columns
from .values.named_tuples import named_tuple
from .values.scalars import value_of
from .values.values import Dict, List, Maybe, Memory, Partial, Tensor, Variant, is_run_time_list, kind_of
from .walk import Bound, Walk

_PLAIN = {bool: "bool", int: "int", float: "float", str: "str"}


class Inputs:
    """Adds inputs to a program's graph. `examples`: the sizes of the example, by symbol."""

    def __init__(self, importer: Walk, dynamic_shapes: Any, least: int | None) -> None:
        self.importer, self.dynamic_shapes, self.least = importer, dynamic_shapes, least or 0
        self.examples: dict[str, int] = {}
        self._bounds: dict[str, list[Bound]] = {}  # of tensors that may be absent, by name
        self._may_be_absent = False  # the current argument
        self._open: set[str] = set()  # sizes of such tensors
        self._varying = importer.script.varying()
        self._shared: set[str] = set()  # the user's sizes that other inputs share
        self._memories: dict[str, Memory] = {}  # of inputs, by name
        #: Where a size occurs first, and whether it has a `Dim` of the user, by name.
        self._places: dict[str, tuple[str, bool]] = {}
        self._lists: dict[str, tuple[ListType, List | Dict]] = {}  # of any length or keys, by path

    # What is known of sizes

    def is_of_user(self, name: str) -> bool:
        """Return True for a size with a `Dim` of the user."""
        return name in self._places and self._places[name][1]

    def is_fixed(self, name: str) -> bool:
        """Return True for a size that keeps its range: the user's own, and those of tensors
        that may be absent."""
        return self.is_of_user(name) or name in self._open

    def is_open(self, name: str) -> bool:
        """Return True for a size of a tensor that may be absent."""
        return name in self._open

    def order(self, name: str) -> int:
        """Return the position of a size in order of occurrence."""
        return list(self.examples).index(name) if name in self.examples else -1

    def decide(self, condition: Any) -> bool:
        """Return True for a condition only on sizes of the inputs."""
        return {str(s) for s in condition.free_symbols} <= set(self.examples)

    def holds(self, condition: Any) -> bool:
        """Return True for a condition only on sizes of the inputs that the example satisfies."""
        if not condition.free_symbols or not self.decide(condition):
            return False
        return evaluate(condition.lhs, self.examples) == evaluate(condition.rhs, self.examples)

    def example_of(self, size: DimExpr) -> int | None:
        """Return a size's value in the example, None if the example does not have it."""
        return evaluate(size, self.examples) if symbols_of(size) <= set(self.examples) else None

    def shown(self, sizes: Mapping[str, DimExpr | str]) -> str:
        """Return what sizes of the inputs are, in words."""
        places = {name: place for name, (place, _) in self._places.items()}
        return ", ".join(f"{places.get(x, x)} is {places.get(str(n), n)}" for x, n in sizes.items())

    # Inputs

    def add(self) -> list[Any]:
        """Add all inputs; return the arguments of the program."""
        script, given = self.importer.script, self.importer.script.arguments
        parameters: dict[str, Structure] = {}
        found = {}
        types = script.types()
        shapes = {name: self._shapes_of(name, i) for i, name in enumerate(given)}
        for name, x in given.items():
            type = None if name in self.importer.assumptions.fixed else types.get(name)
            if type is not None and name in {path.partition(".")[0] for path in self._varying}:
                continue  # its tensors bind no size
            self._shared.update(named_sizes(x, shapes[name], type, _inner))
        for name, x in given.items():
            parameters[name], found[name] = self._argument(name, x, shapes[name], types.get(name))
        for name, x in script.defaults.items():
            found[name] = self.importer.abstract(x, name)
            if x is None or isinstance(x, bool | int | float | str):
                parameters[name] = {"constant": x}
        order = list(dict.fromkeys([*script.positional, *found]))
        positional = []
        for name in script.positional:
            if name not in parameters:
                break
            positional.append(name)
        signature = {
            "positional": positional,
            "parameters": {n: parameters[n] for n in order if n in parameters},
        }
        self.importer.graph.structure["inputs"] = to_json(signature)
        return [found[name] for name in order]

    def _shapes_of(self, name: str, position: int) -> Any:
        """Return the dynamic_shapes of an argument; `ANY` if there is none."""
        shapes = self.dynamic_shapes
        if shapes is None:
            return ANY
        if isinstance(shapes, Mapping):
            return shapes.get(name)
        return shapes[position] if position < len(shapes) else None

    def _argument(self, path: str, x: Any, shapes: Any, type_: Any) -> tuple[Structure, Any]:
        """Return the structure of an argument of type `type_`, and its value in the program."""
        inner = inner_type(type_)
        is_fixed = path.split(".")[0] in self.importer.assumptions.fixed
        if inner is not None and not is_fixed:
            example = zero_of(inner) if x is None else x
            is_open = self._list_type(path, example, shapes, inner) is not None or can_be_open(example, type_)
            if is_open:
                return self._optional(path, example, shapes, inner)
        found = None if is_fixed else self._list_type(path, x, shapes, type_)
        if found is not None:
            return self._of_any_length(path, found, self._rules(path, found, x, shapes))
        if isinstance(x, torch.Tensor):
            return LEAF, self._tensor(path, x, shapes)
        if type(x) in _PLAIN and path.split(".")[0] not in self.importer.assumptions.frozen:
            value = self.importer.graph.input(path, ScalarType(_PLAIN[type(x)]))
            return LEAF, value
        if x is None or isinstance(x, bool | int | float | str):
            return {"constant": x}, x
        if isinstance(x, list | tuple):
            pairs = [self._part(path, i, item, shapes, inner or type_) for i, item in enumerate(x)]
            parts, made = [s for s, _ in pairs], [v for _, v in pairs]
            if isinstance(x, tuple):
                return {"tuple": parts}, tuple(made)
            why = self._why_of_this_length(path, x, inner or type_)
            return {"list": parts, **({"why": why} if why else {})}, List(made)
        if isinstance(x, dict) and all(isinstance(key, str | int) for key in x):
            items = {key: self._part(path, key, item, shapes, inner or type_) for key, item in x.items()}
            structure: dict[str, Any] = {"dict": {str(key): s for key, (s, _) in items.items()}}
            if x and all(isinstance(key, int) for key in x):
                structure["int_keys"] = True
            return structure, Dict({key: v for key, (_, v) in items.items()})
        raise UnsupportedOp(
            f"input {path} is a {type(x).__name__}; give tensors, numbers, lists, tuples or dicts"
        )

    def _list_type(self, path: str, x: Any, shapes: Any, type_: Any) -> ListType | None:
        """Return the type of a list of any length, or of a dict of any keys; None for any other value."""
        if path not in self._varying or not isinstance(x, list | tuple | dict):
            return None
        found = columns.type_of(type_, [x])
        if not isinstance(found, ListType) or found.form == "optional":
            return None
        is_said = shapes is not ANY and columns.has_tensors(found)
        return None if is_said and self._rules(path, found, x, shapes) is None else found

    def _rules(self, path: str, type_: ListType, x: Any, shapes: Any) -> columns.Rules | None:
        """Return the `dynamic_shapes` of the tensors in a list or dict of any structure; None if there is
        none, or if it differs among them."""
        if shapes is ANY or not columns.has_tensors(type_):
            return None
        rules: list[list[columns.AxisRule]] = []
        for found in columns.examples_of(type_, [(x, shapes)], _inner):
            axes = [self._rule(path, axis, found) for axis in range(found[0][0].ndim)]
            if None in axes:
                return None
            rules.append([axis for axis in axes if axis is not None])
        return rules

    def _rule(self, path: str, axis: int, found: list[tuple[Any, Any]]) -> columns.AxisRule | None:
        """Return the rule for an axis of the tensors in a column; None if they must differ."""
        sizes, dims = {x.shape[axis] for x, _ in found}, [axis_dim(shapes, axis) for _, shapes in found]
        if any(dim is None or isinstance(dim, int) or getattr(dim, "name", "") == "STATIC" for dim in dims):
            return columns.AxisRule(min(sizes)) if len(sizes) == 1 else None
        names = {str(getattr(dim, "__name__", "")) for dim in dims}
        if len(names) == 1 and names <= self._shared:
            return columns.AxisRule(self._size(path, axis, min(sizes), found[0][1]))
        if names & self._shared:
            return None
        lows = [int(getattr(dim, "min", None) or 0) for dim in dims]
        highs: list[Any] = [getattr(dim, "max", None) for dim in dims]
        is_open = any(high is None or high >= 2**62 for high in highs)
        return columns.AxisRule(None, min(lows), None if is_open else max(map(int, highs)))

    def _of_any_length(
        self, path: str, type_: ListType, rules: columns.Rules | None
    ) -> tuple[Structure, Any]:
        """Return the structure of a list of any length or a dict of any keys, and its value in the
        program."""
        value = columns.given(self.importer.builder, path, type_, rules)
        made = Dict(value) if type_.form == "dict" else List(value)
        self.importer.tensors.given.add(made.memory)
        self._lists[path] = type_, made
        return columns.structure_of(type_), made

    def _why_of_this_length(self, path: str, x: list[Any], type_: Any) -> str:
        """Return why a list with tensors has the example's length; "" for another list."""
        inner = type_.getElementType() if type_ is not None and type_.kind() == "ListType" else None
        if path not in self._varying or inner is None or "Tensor" not in inner.annotation_str:
            return ""
        if not x:
            return "the example is an empty list, which has no dtype and rank; compile with a tensor in it"
        tensors = [item for item in x if isinstance(item, torch.Tensor)]
        types = dict.fromkeys(f"{dtype_name(item.dtype)} and rank {item.ndim}" for item in tensors)
        if len(types) > 1:
            shown = ", ".join(types)
            return f"its tensors in the example are of {shown}; of one dtype and rank it has any length"
        if columns.type_of(type_, [x]) is None:
            return "the example does not tell one dtype and rank for each place of a tensor in its elements"
        if path.partition(".")[0] in self.importer.assumptions.fixed:
            return "the program changes its tensors in place, or an operator takes them all as arguments"
        return "dynamic_shapes says different things of sizes of its tensors"

    def _part(self, path: str, key: Any, x: Any, shapes: Any, type_: Any) -> tuple[Structure, Any]:
        return self._argument(f"{path}.{key}", x, _inner(shapes, key), part_type(type_, key))

    def _optional(self, path: str, x: Any, shapes: Any, type_: Any) -> tuple[Structure, Any]:
        """Return the structure of an argument that may be None, and its value in the program."""
        graph = self.importer.graph
        is_there = graph.input(f"{path}.{GIVEN}", BOOL)
        n, outer = len(graph.body.params), self._may_be_absent
        self._may_be_absent = True
        structure, made = self._argument(path, x, shapes, type_)
        self._may_be_absent = outer
        kinds = [columns.structure_of(x.type) for x in graph.body.params[n:]]
        return {"optional": structure, "absent": kinds}, Maybe(is_there, made)

    def _tensor(self, path: str, x: torch.Tensor, shapes: Any) -> Tensor:
        if self._may_be_absent:
            dims = tuple(self._open_size(path, axis, size, shapes) for axis, size in enumerate(x.shape))
        else:
            dims = tuple(self._size(path, axis, size, shapes) for axis, size in enumerate(x.shape))
        value = self.importer.graph.input(path, TensorType(dtype_name(x.dtype), dims))
        made = self.importer.tensors.fresh(value)
        self._memories[path] = made.memory
        made.memory.birth = 0
        return made

    def _size(self, path: str, axis: int, example: int, shapes: Any) -> DimExpr:
        dim = None if shapes is ANY else axis_dim(shapes, axis)
        if shapes is not ANY and (
            dim is None or isinstance(dim, int) or getattr(dim, "name", "") == "STATIC"
        ):
            return example
        root = getattr(dim, "__name__", None)
        name = str(root) if root is not None and str(root).isidentifier() else f"s{len(self.examples)}"
        if name not in self.examples:
            self.examples[name] = example
            self._places[name] = f"axis {axis} of {path}", root is not None
            if name not in self.importer.assumptions.sizes:
                self._declare(name, dim, root is not None)
        return self.importer.assumptions.size(symbol(name))

    def _open_size(self, path: str, axis: int, example: int, shapes: Any) -> DimExpr:
        """Return the size of an axis of a tensor that may be absent; note its required value."""
        dim = None if shapes is ANY else axis_dim(shapes, axis)
        bounds, symbols = self._bounds.setdefault(path, []), self.importer.graph.symbols
        root = getattr(dim, "__name__", None)
        wanted: DimExpr | None = None
        if shapes is not ANY and (
            dim is None or isinstance(dim, int) or getattr(dim, "name", "") == "STATIC"
        ):
            wanted = example
        elif root is not None and str(root) in self._shared:
            wanted = self._size(path, axis, example, shapes)
        name = f"s{len(self.examples)}"
        while name in self.examples:
            name += "_"
        self.examples[name] = example
        self._open.add(name)
        known = self.importer.assumptions.size(symbol(name))
        if wanted is None and known != symbol(name):
            wanted = known
        given = symbol(name if wanted is None else f"{name}_given")
        symbols[str(given)] = SymbolInfo(str(given), 0, None, 1, "")
        low, high = getattr(dim, "min", None) or 0, getattr(dim, "max", None)
        if wanted is not None or low or high is not None:
            bounds.append(Bound(axis, given, wanted, int(low), None if high is None else int(high)))
        return given

    def _declare(self, name: str, dim: Any, is_of_user: bool) -> None:
        low, high = getattr(dim, "min", None), getattr(dim, "max", None)
        low = self.least if low is None else int(low)
        high = None if high is None or high >= 2**62 else int(high)
        why = f"dynamic_shapes: {name}" if is_of_user else ""
        self.importer.graph.symbols[name] = SymbolInfo(name, low, high, 1, why)

    def bounds_of(self, x: Tensor) -> tuple[str, list[Bound]]:
        """Return the name of an input that may be absent, and the bounds of its sizes if it is present."""
        names = (name for name in self._bounds if self._memories[name] is x.memory and x.parent is None)
        name = next(names, "")
        return name, self._bounds.get(name, [])

    def changed(self) -> Iterator[tuple[str, Value]]:
        """Yield the inputs that the program changes in place with their new values."""
        for name, memory in self._memories.items():
            if memory.version:
                yield name, memory.content
        for path, (type, made) in self._lists.items():
            if made.memory.version:
                yield from self._changed_columns(path, type, made)

    def _changed_columns(self, path: str, type: ListType, made: List | Dict) -> Iterator[tuple[str, Value]]:
        if made.resized:
            raise UnsupportedOp(
                f"tensors in {path} are changed in place, and it gets other elements, too; change a copy of "
                "the list, as x.copy() makes, or of the tensors"
            )
        found = columns.columns_of(self.importer.builder, made.read(), type.element)
        for name, value in zip(columns.names(columns.structure_of(type), path), found, strict=True):
            if isinstance(value.type, ListType) and isinstance(value.type.element, TensorType):
                yield name, value


class _Any:
    """Every axis is of any size."""


ANY = _Any()


def _inner(shapes: Any, key: Any) -> Any:
    if shapes is ANY or shapes is None:
        return shapes
    if isinstance(shapes, Mapping):
        return shapes.get(key)
    return shapes[key] if isinstance(key, int) and key < len(shapes) else None


# Outputs --------------------------------------------------------------------------------------------


def outputs_of(importer: Walk, inputs: Inputs, state: State, result: Any) -> None:
    """Make the graph's outputs: the program's result, the inputs that it changes, its state."""
    graph = importer.graph
    values: list[Value] = []
    structure = _structure(importer, result, values, _output_type(importer))
    graph.structure["outputs"] = to_json(structure)
    graph.outputs = [path or "output" for path in form(structure).paths()]
    changed = list(inputs.changed())
    if changed:
        graph.structure["changed"] = [name for name, _ in changed]
    behind = [(f"changed.{name}", value) for name, value in changed] + list(state.results())
    names = [name for name, _ in behind]
    graph.outputs = [*distinct(graph.outputs, names), *names]
    graph.body.results = list(map(as_output, [*values, *(value for _, value in behind)]))


def _output_type(importer: Walk) -> Any:
    """Return TorchScript's type of the result; None if there are several."""
    types = [value.type() for value in importer.script.graph.outputs()]
    return types[0] if len(types) == 1 else None


def _structure(importer: Walk, x: Any, values: list[Value], type: Any) -> Structure:
    if isinstance(x, Tensor):
        values.append(importer.tensors.read(x))
        return LEAF
    if x is None or isinstance(x, bool | float | str):
        if isinstance(x, Partial):
            raise UnsupportedOp(
                "an output is a string with a tensor or an optional in it; return the value itself"
            )
        return {"constant": x}
    if kind_of(x):
        values.append(value_of(importer.builder, x))
        return LEAF
    if isinstance(x, List | Dict) and is_run_time_list(x.content):
        return _of_any_length(importer, x, values)
    type = (inner_type(type) if type is not None else None) or type
    if isinstance(x, tuple | List):
        content = x if isinstance(x, tuple) else x.content
        items = [_structure(importer, item, values, part_type(type, i)) for i, item in enumerate(content)]
        named = named_tuple(type) if isinstance(x, tuple) else None
        if named is not None and len(named._fields) == len(items):
            return {"namedtuple": class_name(named), "fields": dict(zip(named._fields, items, strict=True))}
        return {"tuple" if isinstance(x, tuple) else "list": items}
    if isinstance(x, Dict):
        entries = {
            str(key): _structure(importer, item, values, part_type(type, key))
            for key, item in x.content.items()
        }
        is_of_ints = bool(x.content) and all(isinstance(key, int) for key in x.content)
        return {"dict": entries, **({"int_keys": True} if is_of_ints else {})}
    if isinstance(x, Maybe):
        values.append(x.is_there)
        return {"optional": _structure(importer, x.value, values, type)}
    if isinstance(x, Variant):
        values.append(x.is_other)
        return {"either": [_structure(importer, each, values, type) for each in (x.one, x.other)]}
    raise UnsupportedOp(
        f"an output is a {x.__class__.__name__}; return tensors, numbers, lists, tuples or dicts"
    )


def _of_any_length(importer: Walk, x: List | Dict, values: list[Value]) -> Structure:
    """Return the structure of a list or dict with run-time length or keys: its columns are outputs if it
    contains a dict or an optional, else it is one output itself."""
    value = x.read()
    type = ListType(value.type.element, "dict" if isinstance(x, Dict) else "list")
    if not columns.has_forms(type):
        values.append(value)
        return LEAF
    values += columns.columns_of(importer.builder, value, type.element)
    return columns.structure_of(type)
