"""The state of a TorchScript program: attributes that calls change are inputs and, with new values, outputs.

A tensor or number is one input; a tensor whose rank changes after a call, and an optional, also have a flag.
The elements of a list, tuple or dict are separate state as long as their number and the keys stay the same;
else the whole is one input, a list whose elements are of one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ...ir.dims import DimExpr, symbol
from ...ir.errors import UnsupportedOp
from ...ir.graph import SymbolInfo, Value
from ...ir.types import ListType, ScalarType, TensorType, TupleType, Type
from ...ops import build as B
from ..dtypes import TORCH_DTYPES, dtype_name
from ..fx_nodes import array_of
from .flow.merging import Forms, Merger, Optional, Parts, RunTimeList, Scalar, TensorPlan
from .values import elements
from .values.scalars import value_of
from .values.values import (
    Cell,
    Dict,
    List,
    Maybe,
    Object,
    Partial,
    Tensor,
    Variant,
    is_run_time_list,
    is_same,
    kind_of,
    snapshot,
)
from .walk import Walk

MAX_PARTS = 16  # of plain values in a list that are separate state
_DTYPES = {"bool": "bool", "int": "i64", "float": "f64"}
_FIRST: dict[str, Any] = {"bool": False, "int": 0, "float": 0.0, "str": ""}
_NUMPY = {"bool": np.bool_, "i64": np.int64, "f64": np.float64}


class State:
    """Adds state to a program's graph. Its form between calls: a `TensorType`; a `TensorPlan` if sizes or the
    rank change after the first call; a `Scalar`; an `Optional` of these; a `RunTimeList`; `Parts`, whose
    elements have separate entries."""

    def __init__(self, importer: Walk) -> None:
        self.importer = importer
        self._kept: dict[str, Any] = {}  # by path
        self._watched: list[tuple[Cell, str, Any, Any]] = []  # lists and dicts, and their initial contents

    # At the start of a call

    def add(self, path: str, found: Any) -> Any:
        """Add an attribute that calls change as an input; return its value at the start of a call."""
        form = self.importer.assumptions.state[path]
        if form is None:
            form = self._first_form(path, found)
        self._kept[path] = form
        return self._added(path, found, form)

    def _first_form(self, path: str, found: Any) -> Any:
        if isinstance(found, torch.Tensor):
            return TensorType(dtype_name(found.dtype), tuple(found.shape))
        if found is None:
            return None
        if kind_of(found):
            return Scalar(kind_of(found))
        if isinstance(found, list) and len(found) > MAX_PARTS and all(map(kind_of, found)):
            return RunTimeList(ScalarType(kind_of(found[0])), "list")
        if isinstance(found, list | tuple):
            return Parts("tuple" if isinstance(found, tuple) else "list", tuple(range(len(found))))
        if isinstance(found, dict):
            return Parts("dict", tuple(range(len(found))), tuple(found))
        raise UnsupportedOp(
            f"attribute {path}, which calls change, is a {found.__class__.__name__}; only tensors, numbers, "
            "strings, optionals, lists, tuples and dicts can be the program's state"
        )

    def _added(self, path: str, found: Any, form: Any) -> Any:
        if form is None:
            return None
        if isinstance(form, TensorType):
            return self.importer.tensors.fresh(self._input(path, *array_of(found), form))
        if isinstance(form, Scalar):
            return self._number(path, _FIRST[form.kind] if found is None else found, form.kind)
        if isinstance(form, Optional):
            flag = self._number(f"{path}.is_set", found is not None, "bool")
            inner = self._tensor if isinstance(form.inner, TensorPlan) else self._added
            return Maybe(flag, inner(path, found, form.inner))
        if isinstance(form, RunTimeList):
            return self._whole(path, found, form)
        if isinstance(form, Parts):
            return self._parts(path, found)
        return self._of_forms(path, found, form)

    def _input(self, path: str, first: Any, dtype: str, type: Type) -> Value:
        graph, name = self.importer.graph, f"state.{path}"
        graph.state[name] = first, dtype
        graph.structure.setdefault("state", []).append(path)
        return graph.input(name, type)

    def watch(self, cell: Cell, path: str, found: List | Dict) -> None:
        """Note the content of a list or dict that is initially in an attribute's cell."""
        self._watched.append((cell, path, found, snapshot(found)))

    def find_changes(self) -> None:
        """Make attributes whose lists and dicts have changed contents state."""
        for cell, path, held, first in self._watched:
            if not is_same(snapshot(cell.content), first) or not is_same(snapshot(held), first):
                self.importer.keep_state(path)

    def _number(self, path: str, first: Any, kind: str) -> Value:
        """Read a number of the state, or a string, at the start of the program."""
        if kind == "str":
            return self._input(path, first, "str", ScalarType("str"))
        dtype = _DTYPES[kind]
        value = self._input(path, np.array(first, _NUMPY[dtype]), dtype, TensorType(dtype, ()))
        b = self.importer.builder
        outer, b.block, b.position = b.block, self.importer.graph.body, 0
        made = b.one("item", value)
        b.block, b.position = outer, None
        return made

    def _parts(self, path: str, found: Any) -> Any:
        pairs = list(found.items() if isinstance(found, dict) else enumerate(found))
        for key, _ in pairs:
            self.importer.assumptions.state.setdefault(f"{path}.{key}", None)
        made = [self.add(f"{path}.{key}", item) for key, item in pairs]
        if isinstance(found, dict):
            return Dict(dict(zip(found, made, strict=True)), 0)
        return tuple(made) if isinstance(found, tuple) else List(made, 0)

    def _whole(self, path: str, found: Any, form: RunTimeList) -> List | Dict:
        items = [] if found is None else list(found.items() if isinstance(found, dict) else found)
        type = ListType(form.element)
        first = tuple(_plain(item, form.element) for item in items)
        return (Dict if form.kind == "dict" else List)(self._input(path, first, str(type), type), 0)

    def _tensor(self, path: str, found: Any, form: TensorPlan) -> Tensor:
        """Add a tensor of changing sizes, which may be absent."""
        dims = tuple(self._size(0) if dim is None else dim for dim in form.dims)
        array = array_of(found if isinstance(found, torch.Tensor) else _zeros(form, 0))
        return self.importer.tensors.fresh(self._input(path, *array, TensorType(form.dtype, dims)))

    def _of_forms(self, path: str, found: torch.Tensor, form: TensorPlan) -> Any:
        """Add a tensor of the state whose sizes or rank change after the first call."""
        if dtype_name(found.dtype) == form.dtype and found.ndim == len(form.dims):
            return self._tensor(path, found, form)
        dims = tuple(self._size(1) if dim is None else dim for dim in form.dims)
        flag = self._number(f"{path}.is_set", False, "bool")
        type = TensorType(form.dtype, dims)
        made = self.importer.tensors.fresh(self._input(path, *array_of(_zeros(form, 1)), type))
        return Variant(flag, self.importer.tensors.fresh(self._empty(found)), made)

    def _empty(self, found: torch.Tensor) -> Value:
        b = self.importer.builder
        outer, b.block = b.block, self.importer.graph.body
        made = self.importer.constant(*array_of(found), "")
        b.block = outer
        return made

    def _size(self, low: int) -> DimExpr:
        graph = self.importer.graph
        name = graph.new_name("kept")
        graph.symbols[name] = SymbolInfo(name, low)
        return symbol(name)

    # At the end of a call

    def results(self) -> list[tuple[str, Value]]:
        """Return the new values of the state, in the order of the inputs."""
        found: dict[str, Value] = {}
        containers: dict[int, str] = {}
        for path, form in list(self._kept.items()):
            x = self._at(self.importer.root, path)
            if isinstance(x, List | Dict) and containers.setdefault(id(x), path) != path:
                raise UnsupportedOp(
                    f"attributes {containers[id(x)]} and {path}, which calls change, are one "
                    f"{'dict' if isinstance(x, Dict) else 'list'} after a call; give one of them a copy"
                )
            for name, value in self._results(path, x, form):
                found[name] = value
        return [(f"state.{name}", found[name]) for name in self.importer.graph.structure.get("state", [])]

    def _at(self, owner: Any, path: str) -> Any:
        """Return the current value at a path."""
        if isinstance(owner, Object):
            name, _, rest = path.partition(".")
            found = self.importer.attribute(owner, name)
        else:
            content = getattr(owner, "content", owner)
            keys = list(content) if isinstance(owner, Dict) else range(len(content))
            key = next(k for k in keys if path == str(k) or path.startswith(f"{k}."))
            found, rest = content[key], path[len(str(key)) + 1 :]
        return self._at(found, rest) if rest and self._is_whole(found) else found

    @staticmethod
    def _is_whole(x: Any) -> bool:
        """Return True for a value with known parts."""
        return isinstance(x, Object | tuple) or (
            isinstance(x, List | Dict) and not is_run_time_list(x.content)
        )

    def _results(self, path: str, x: Any, form: Any) -> Iterable[tuple[str, Value]]:
        if isinstance(form, Parts):
            self._check_parts(path, x, form)
            return ()
        if isinstance(form, RunTimeList):
            return [(path, self._leaf(path, x, form))]
        if isinstance(form, Optional):
            return self._optional(path, x, form)
        if form is None or x is None or isinstance(x, Maybe):
            return self._became_optional(path, x)
        if isinstance(form, Scalar):
            return [(path, self._plain(path, x, form))]
        if isinstance(form, TensorPlan):
            return self._form_results(path, x, form)
        return [(path, self._same_tensor(path, x, form))]

    def _plain(self, path: str, x: Any, form: Scalar) -> Value:
        b = self.importer.builder
        if isinstance(x, Partial) or kind_of(x) != form.kind:
            raise UnsupportedOp(
                f"attribute {path}, which calls change, is a {form.kind} at first and "
                f"{'a string with a tensor in it' if isinstance(x, Partial) else 'of another type'} later"
            )
        value = value_of(b, x, form.kind)
        return value if form.kind == "str" else b.one("scalar", value, dtype=_DTYPES[form.kind])

    def _same_tensor(self, path: str, x: Any, type: TensorType) -> Value:
        if isinstance(x, Variant):
            self.importer.keep_form(path, self._form(x.other))
        made = self.importer.tensors.read(x)
        if made.type != type:
            self.importer.keep_form(path, self._form(x))
        return made

    def _form(self, x: Tensor) -> TensorPlan:
        """Return the invariant part of a tensor's form from call to call: constant sizes."""
        type = B.type_of(self.importer.tensors.read(x))
        return TensorPlan(type.dtype, tuple(dim if isinstance(dim, int) else None for dim in type.shape))

    def _form_results(self, path: str, x: Any, form: TensorPlan) -> Iterator[tuple[str, Value]]:
        """Yield the new value of a tensor of two forms, and its form."""
        importer = self.importer
        forms = [self._form(each) for each in ((x.one, x.other) if isinstance(x, Variant) else (x,))]
        first = self._form(importer.tensor_constant(importer.initial(path), path))
        is_alike = _is_alike(first, form)
        for each in forms:
            self._widened(path, form, each, None)
            if not _is_alike(each, form) and is_alike:
                importer.keep_form(path, each)
        if is_alike:
            yield path, importer.tensors.read(x)
            return
        leaves = list(self._merger().leaves(Forms(first, form), x, importer.tensors.read))
        yield f"{path}.is_set", importer.builder.one("scalar", leaves[0], dtype="bool")
        yield path, leaves[-1]

    def _widened(self, path: str, form: TensorPlan, found: TensorPlan, wrap: Any) -> None:
        """Restart if a tensor's size differs from the known invariant."""
        if not _is_alike(form, found):
            return
        dims = tuple(a if a == c else None for a, c in zip(form.dims, found.dims, strict=True))
        if dims != form.dims:
            wider = TensorPlan(form.dtype, dims)
            self.importer.keep_form(path, wider if wrap is None else wrap(wider))

    def _merger(self) -> Merger:
        return Merger(self.importer.builder, self.importer.tensors, lambda dim: True, lambda x: True)

    # Optionals

    def _became_optional(self, path: str, x: Any) -> Iterable[tuple[str, Value]]:
        """Restart for an attribute that was initially None, or is None now."""
        first = self.importer.initial(path)
        if x is None and first is None:
            return ()
        if isinstance(first, torch.Tensor):
            inner: Any = TensorPlan(dtype_name(first.dtype), tuple(first.shape))
        elif first is not None and kind_of(first):
            inner = Scalar(kind_of(first))
        else:
            inner = self._form_of(path, x.value if isinstance(x, Maybe) else x)
        self.importer.keep_form(path, Optional(inner))
        return ()

    def _form_of(self, path: str, x: Any) -> Any:
        if isinstance(x, Tensor):
            return self._form(x)
        if kind_of(x) not in ("", "none"):
            return Scalar(kind_of(x))
        if isinstance(x, List | Dict):
            return RunTimeList(self._element(path, x), "dict" if isinstance(x, Dict) else "list")
        raise UnsupportedOp(
            f"attribute {path} is None until a call sets it: call the model once before compiling it"
        )

    def _optional(self, path: str, x: Any, form: Optional) -> Iterator[tuple[str, Value]]:
        inner = x.value if isinstance(x, Maybe) else x
        if isinstance(form.inner, TensorPlan) and isinstance(inner, Tensor):
            found = self._form(inner)
            self._widened(path, form.inner, found, Optional)
            if not _is_alike(form.inner, found):
                raise UnsupportedOp(
                    f"attribute {path}, which calls change, is {found.dtype} of rank {len(found.dims)} or "
                    f"{form.inner.dtype} of rank {len(form.inner.dims)}; these must stay the same"
                )
        leaves = list(self._merger().leaves(form, x, self.importer.tensors.read))
        yield f"{path}.is_set", self.importer.builder.one("scalar", leaves[0], dtype="bool")
        if isinstance(form.inner, Scalar) and form.inner.kind != "str":
            yield path, self.importer.builder.one("scalar", leaves[-1], dtype=_DTYPES[form.inner.kind])
        else:
            yield path, leaves[-1]

    # Lists and dicts

    def _check_parts(self, path: str, x: Any, form: Parts) -> None:
        """Restart if a list's length or a dict's keys have changed."""
        if isinstance(x, tuple) and len(x) == len(form.parts):
            return
        content = getattr(x, "content", None)
        keys = tuple(content) if isinstance(content, dict) else ()
        if isinstance(content, list | dict) and (len(content), keys) == (len(form.parts), form.keys):
            return
        if not isinstance(x, List | Dict):
            raise UnsupportedOp(
                f"attribute {path}, which calls change, is a {form.kind} at first and something else later"
            )
        self.importer.keep_form(path, RunTimeList(self._element(path, x), form.kind))

    def _element(self, path: str, x: List | Dict) -> Type:
        """Return the type of all elements of a list, or of all pairs of a dict, now and at first."""
        types: dict[str, Type] = {}
        for each in (*self._types(x), *map(_type_of, _items(self.importer.initial(path)))):
            fixed = self._fixed(each)
            types[str(fixed)] = fixed
        if len(types) != 1:
            raise UnsupportedOp(
                f"attribute {path}, whose length or keys calls change, has elements of "
                f"{' and '.join(types) or 'an unknown type'}; they must be of one type, tensors of one size"
            )
        return next(iter(types.values()))

    def _types(self, x: List | Dict) -> Iterator[Type]:
        read = self.importer.tensors.read
        if is_run_time_list(x.content):
            yield x.content.type.element
            return
        for item in x.content.items() if isinstance(x, Dict) else x.content:
            yield elements.type_of(item, lambda tensor: B.type_of(read(tensor)))

    def _fixed(self, type: Type) -> Type:
        """Return a type without names: sizes of the inputs are fixed to the example's, because all tensors
        that calls put into a list must have one size."""
        if isinstance(type, TupleType):
            return TupleType(tuple(map(self._fixed, type.elements)))
        if isinstance(type, ScalarType):
            return ScalarType(type.kind)
        for dim in type.shape if isinstance(type, TensorType) else ():
            example = self.importer.example_of(dim)
            if not isinstance(dim, int) and example is not None:
                self.importer.require_equal(dim, example)
        return type

    def _leaf(self, path: str, x: Any, form: RunTimeList) -> Value:
        if not isinstance(x, List | Dict):
            raise UnsupportedOp(f"attribute {path}, which calls change, is a {form.kind} or something else")
        if {str(self._fixed(each)) for each in self._types(x)} - {str(form.element)}:
            self._element(path, x)  # reports the difference
        (leaf,) = self._merger().leaves(form, x, self.importer.tensors.read)
        return leaf


def _is_alike(a: TensorPlan, b: TensorPlan) -> bool:
    return a.dtype == b.dtype and len(a.dims) == len(b.dims)


def _zeros(form: TensorPlan, size: int) -> torch.Tensor:
    sizes = [size if dim is None else int(dim) for dim in form.dims]
    return torch.zeros(sizes, dtype=TORCH_DTYPES[form.dtype])


def _items(found: Any) -> Sequence[Any]:
    """Return the elements of a list of the model, or the pairs of a dict."""
    return list(found.items()) if isinstance(found, dict) else found or []


def _type_of(x: Any) -> Type:
    """Return the type of a value of the model."""
    if isinstance(x, torch.Tensor):
        return TensorType(dtype_name(x.dtype), tuple(x.shape))
    return TupleType(tuple(map(_type_of, x))) if isinstance(x, tuple) else ScalarType(kind_of(x))


def _plain(x: Any, type: Type) -> Any:
    """Return a value of the model in the form of a graph's text: arrays, and tuples for containers."""
    if isinstance(type, TupleType):
        return tuple(_plain(item, inner) for item, inner in zip(x, type.elements, strict=True))
    return array_of(x)[0] if isinstance(x, torch.Tensor) else x
