"""Plans: which parts of a value are the same on every path, and which are passed through branches and loops
as values of the graph.

`plan_of` a value and `widen` by the other one's, until nothing changes; then `leaves` gives the graph
values that a block yields, and `made` the value again from those that the node gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from ....ir.dims import OPEN, DimExpr, equal, symbol
from ....ir.errors import UnsupportedOp
from ....ir.graph import Builder, Value
from ....ir.types import (
    BOOL,
    NONE,
    ListType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    common_type,
    with_open_sizes,
)
from ....ops import build as B
from ....ops.complex import DTYPES, Complex, dtype_of, view_as_complex, view_as_real
from ..values.elements import dict_type, packed, type_of
from ..values.nested import Element
from ..values.scalars import value_of
from ..values.tensors import Tensors
from ..values.values import (
    UNINITIALIZED,
    Dict,
    List,
    Maybe,
    Member,
    Tensor,
    Variant,
    is_run_time_list,
    is_same,
    is_tensor_value,
    kind_of,
)


@dataclass(frozen=True)
class Same:
    """The same value on every path."""

    value: Any


@dataclass(frozen=True)
class Scalar:
    """A bool, int, float or str. `is_size`: an int that is never below 0, represented as a size."""

    kind: str
    is_size: bool = False


@dataclass(frozen=True)
class TensorPlan:
    """A tensor; None: a run-time size. `is_raw`: the content of a memory."""

    dtype: str
    dims: tuple[DimExpr | None, ...]
    is_raw: bool = False


@dataclass(frozen=True)
class Parts:
    """A tuple (`kind` "tuple"), a list object ("list"), or the content of one ("items"); a dict object
    ("dict") with `keys`, or the content of one ("pairs"); a member of an enumeration ("enum") that `keys`
    holds. `declared`: the type of the elements of an empty list."""

    kind: str
    parts: tuple[Any, ...]
    keys: tuple[Any, ...] = ()
    declared: Any = None


@dataclass(frozen=True)
class RunTimeList:
    """A list object of run-time length ("list"), or a dict object with run-time keys ("dict"), or the content
    of one, which is a list ("items")."""

    element: Type
    kind: str


@dataclass(frozen=True)
class Optional:
    """A value that may be there."""

    inner: Any


@dataclass(frozen=True)
class Forms:
    """A tensor of one of two forms, which differ in rank or dtype."""

    one: TensorPlan
    other: TensorPlan

    def is_other(self, plan: TensorPlan) -> bool:
        """Return True for a tensor of the second form. Raises UnsupportedOp for one of a third."""
        for i, form in enumerate((self.one, self.other)):
            if _is_one_form(form, plan):
                return i == 1
        raise UnsupportedOp(
            f"a tensor is {_shown(self.one)}, {_shown(self.other)} or {_shown(plan)}, depending on which way "
            "the program goes; it may have two ranks or dtypes at most"
        )


Plan = Forms | Same | Scalar | TensorPlan | Parts | RunTimeList | Optional


class Merger:
    """Makes plans. `is_visible(size)`: whether a size is known outside; `is_outer(object)`: whether a
    tensor's memory, or a list, was made outside."""

    def __init__(
        self,
        builder: Builder,
        tensors: Tensors,
        is_visible: Callable[[DimExpr], bool],
        is_outer: Callable[[Any], bool],
    ) -> None:
        self.builder, self.tensors = builder, tensors
        self._is_visible, self._is_outer = is_visible, is_outer

    # Plans

    def plan_of(self, x: Any, values: dict[int, Value]) -> Plan:
        """Return the plan of a value that changes. `values`: those of tensors, by identity, where they
        were."""
        if isinstance(x, Tensor):
            return self._tensor_plan(values[id(x)], False)
        if is_tensor_value(x):
            return self._tensor_plan(x, True)
        if kind_of(x) not in ("", "none"):
            return Scalar(kind_of(x), kind_of(x) == "int" and self._is_size(x))
        if isinstance(x, Member):
            return Parts("enum", (self.widen(Same(x.index), x.index, values),), (x.kind,))
        if isinstance(x, tuple):
            return Parts("tuple", tuple(self.widen(Same(part), part, values) for part in x))
        if isinstance(x, list):
            return Parts("items", tuple(self.widen(Same(part), part, values) for part in x))
        if isinstance(x, dict):
            parts = tuple(self.widen(Same(part), part, values) for part in x.values())
            return Parts("pairs", parts, tuple(x))
        if isinstance(x, List | Dict):
            kind = "list" if isinstance(x, List) else "dict"
            if isinstance(x, Element):
                return RunTimeList(with_open_sizes(x.list_type.element, self._is_visible), kind)
            inner = self.plan_of(x.content, values)
            if isinstance(inner, RunTimeList):
                return RunTimeList(inner.element, kind)
            assert isinstance(inner, Parts)
            return Parts(kind, inner.parts, inner.keys, x.declared)
        if is_run_time_list(x):
            return RunTimeList(with_open_sizes(x.type.element, self._is_visible), "items")
        if isinstance(x, Maybe):
            return Optional(self.plan_of(x.value, values))
        if isinstance(x, Variant) and isinstance(x.one, Tensor) and isinstance(x.other, Tensor):
            return Forms(
                cast(TensorPlan, self.plan_of(x.one, values)), cast(TensorPlan, self.plan_of(x.other, values))
            )
        if isinstance(x, Variant):
            raise UnsupportedOp(
                "a number or list that depends on a tensor's rank or dtype, which differs between calls, "
                "changes in a branch or loop, which is not compiled: give the tensor one rank and dtype first"
            )
        raise UnsupportedOp(
            f"a {type(x).__name__} that depends on which way the program goes cannot be compiled"
        )

    def _is_size(self, x: Any) -> bool:
        low = None if isinstance(x, Value) else B.bounds_of(self.builder, x)[0]
        return low is not None and low >= 0

    def _tensor_plan(self, x: Value | Complex, is_raw: bool) -> TensorPlan:
        dims = tuple(dim if self._is_visible(dim) else None for dim in B.shape_of(x))
        return TensorPlan(dtype_of(x), dims, is_raw)

    def widen(self, plan: Plan, x: Any, values: dict[int, Value]) -> Plan:
        """Return a plan that `x` also fits."""
        if x is UNINITIALIZED:
            return plan
        if isinstance(plan, Same):
            if plan.value is UNINITIALIZED:
                return Same(x) if self._is_known_outside(x) else self.plan_of(x, values)
            if is_same(plan.value, x) and self._is_known_outside(x):
                return plan
            if plan.value is None or x is None:
                other = x if plan.value is None else plan.value
                inner = self.plan_of(other, values)
                return inner if isinstance(inner, Optional) else Optional(inner)
            return self.widen(self.plan_of(plan.value, values), x, values)
        if isinstance(plan, Optional):
            inner = x.value if isinstance(x, Maybe) else x
            return plan if x is None else Optional(self.widen(plan.inner, inner, values))
        if x is None or isinstance(x, Maybe):
            return self.widen(Optional(plan), x, values)
        return self._both(plan, self.plan_of(x, values), x, values)

    def _both(self, plan: Plan, other: Plan, x: Any, values: dict[int, Value]) -> Plan:
        if isinstance(plan, TensorPlan) and isinstance(other, TensorPlan) and _is_one_form(plan, other):
            return self._both_tensors(plan, other)
        if isinstance(plan, TensorPlan | Forms) and isinstance(other, TensorPlan | Forms):
            return self._both_forms(plan, other)
        if isinstance(plan, Parts) and isinstance(other, Parts) and plan.kind == other.kind:
            items = _items(x)
            if len(items) == len(plan.parts) and plan.keys == other.keys:
                parts = zip(plan.parts, items, strict=True)
                widened = tuple(self.widen(p, item, values) for p, item in parts)
                return Parts(plan.kind, widened, plan.keys, plan.declared)
        if all(isinstance(p, RunTimeList | Parts) and p.kind not in ("tuple", "enum") for p in (plan, other)):
            return self._both_lists(plan, other)
        if isinstance(plan, Scalar) and isinstance(other, Scalar) and plan.kind == other.kind:
            return plan if other.is_size else other
        if plan != other:
            raise UnsupportedOp(
                f"a value is {_shown(plan)} or {_shown(other)}, depending on which way the program goes"
            )
        return plan

    def _both_forms(self, plan: TensorPlan | Forms, other: TensorPlan | Forms) -> Plan:
        """Tensors of different ranks or dtypes. Raises UnsupportedOp if memory would change its type."""
        if isinstance(plan, TensorPlan) and isinstance(other, TensorPlan):
            if plan.is_raw or other.is_raw:
                return self._both_tensors(plan, other)
            return Forms(plan, other)
        forms = plan if isinstance(plan, Forms) else cast(Forms, other)
        rest = other if forms is plan else plan
        for form in (rest.one, rest.other) if isinstance(rest, Forms) else (rest,):
            if forms.is_other(form):
                forms = Forms(forms.one, self._both_tensors(forms.other, form))
            else:
                forms = Forms(self._both_tensors(forms.one, form), forms.other)
        return forms

    def _both_tensors(self, plan: TensorPlan, other: TensorPlan) -> TensorPlan:
        if plan.dtype != other.dtype or len(plan.dims) != len(other.dims):
            raise UnsupportedOp(
                f"a tensor is {_shown(plan)} or {_shown(other)}, depending on which way the program goes; "
                "its dtype and rank must be the same both ways"
            )
        dims = (
            one if one is not None and two is not None and equal(one, two) else None
            for one, two in zip(plan.dims, other.dims, strict=True)
        )
        return TensorPlan(plan.dtype, tuple(dims), plan.is_raw)

    def _both_lists(self, plan: Plan, other: Plan) -> Plan:
        """Lists of different lengths, or dicts of different keys: of elements of one type."""
        types = [t for p in (plan, other) for t in _element_types(p)]
        common = common_type(types)
        if common is None:
            raise UnsupportedOp(
                "a list whose length, or a dict whose keys, depend on which way the program goes has "
                f"elements of {' and '.join(sorted({str(t) for t in types})) or 'an unknown type'}; "
                "they must be of one type"
            )
        kind = cast(Parts | RunTimeList, plan).kind
        return RunTimeList(common, "items" if kind == "pairs" else kind)

    def _is_known_outside(self, x: Any) -> bool:
        if isinstance(x, tuple | Member):
            return all(map(self._is_known_outside, _items(x)))
        if isinstance(x, Value):
            return self._is_outer(x)
        if isinstance(x, Tensor):
            return self._is_outer(x.memory) and (x.place is None or self._is_outer(x.place.index))
        if isinstance(x, List | Dict):
            return self._is_outer(x)
        if kind_of(x) == "int" and not isinstance(x, int):
            return self._is_visible(x)
        if isinstance(x, Variant):
            return self._is_outer(x.is_other)
        return not isinstance(x, Maybe) or self._is_outer(x.is_there)

    # Values

    def leaves(self, plan: Plan, x: Any, read: Callable[[Tensor], Value]) -> Iterator[Value]:
        """Yield the graph values that represent `x`, in the current block; anything for one that is never
        read."""
        b = self.builder
        if isinstance(plan, Same):
            return
        if isinstance(plan, Scalar):
            default: Any = {"bool": False, "int": 0, "float": 0.0, "str": ""}[plan.kind]
            yield value_of(b, default if _is_absent(x) else x, plan.kind)
        elif isinstance(plan, TensorPlan):
            yield from self._tensor_leaves(plan, x, read)
        elif isinstance(plan, Parts):
            items = [UNINITIALIZED] * len(plan.parts) if _is_absent(x) else _items(x)
            for part, item in zip(plan.parts, items, strict=True):
                yield from self.leaves(part, item, read)
        elif isinstance(plan, RunTimeList):
            yield self._list_leaf(plan, x, read)
        elif isinstance(plan, Forms):
            yield from self._form_leaves(plan, x, read)
        else:
            is_there = x.is_there if isinstance(x, Maybe) else b.one("literal", value=not _is_absent(x))
            yield is_there
            yield from self.leaves(plan.inner, x.value if isinstance(x, Maybe) else x, read)

    def _form_leaves(self, plan: Forms, x: Any, read: Callable[[Tensor], Value]) -> Iterator[Value]:
        if isinstance(x, Variant):
            forms = [self._tensor_plan(read(form), False) for form in (x.one, x.other)]
            is_swapped = plan.is_other(forms[0])
            yield self.builder.one("bool_not", x.is_other) if is_swapped else x.is_other
            one, other = (x.other, x.one) if is_swapped else (x.one, x.other)
        else:
            is_other = not _is_absent(x) and plan.is_other(self._tensor_plan(read(x), False))
            yield self.builder.one("literal", value=is_other)
            one, other = (UNINITIALIZED, x) if is_other else (x, UNINITIALIZED)
        yield from self._tensor_leaves(plan.one, one, read)
        yield from self._tensor_leaves(plan.other, other, read)

    def _tensor_leaves(self, plan: TensorPlan, x: Any, read: Callable[[Tensor], Value]) -> Iterator[Value]:
        b = self.builder
        if _is_absent(x):
            dims = tuple(0 if dim is None else dim for dim in plan.dims)
            zero = B.full(b, 0, DTYPES.get(plan.dtype, plan.dtype), dims)
            value = Complex(zero, zero) if plan.dtype in DTYPES else zero
        else:
            value = read(x) if isinstance(x, Tensor) else x
        for dim, size in zip(plan.dims, B.shape_of(value), strict=True):
            if dim is None:
                yield b.size(size)
        yield view_as_real(b, value) if isinstance(value, Complex) else value

    def _list_leaf(self, plan: RunTimeList, x: Any, read: Callable[[Tensor], Value]) -> Value:
        content = [] if _is_absent(x) else getattr(x, "content", x)
        if isinstance(content, Value):
            return content
        made = self.builder.one("list", element=plan.element)
        for item in content.items() if isinstance(content, dict) else content:
            made = self.builder.one("append", made, packed(self.builder, item, plan.element, read))
        return made

    def types(self, plan: Plan) -> Iterator[Type]:
        """Yield new types of the leaves: run-time sizes get new names."""
        if isinstance(plan, Scalar):
            name = symbol(self.builder.graph.new_name("n")) if plan.is_size else None
            yield ScalarType(plan.kind, name)
        elif isinstance(plan, TensorPlan):
            names = [
                None if dim is not None else symbol(self.builder.graph.new_name("n")) for dim in plan.dims
            ]
            yield from (ScalarType("int", name) for name in names if name is not None)
            dims = (name if dim is None else dim for dim, name in zip(plan.dims, names, strict=True))
            is_complex = plan.dtype in DTYPES
            yield TensorType(DTYPES.get(plan.dtype, plan.dtype), (*dims, *[2] * is_complex))
        elif isinstance(plan, Parts):
            for part in plan.parts:
                yield from self.types(part)
        elif isinstance(plan, RunTimeList):
            yield ListType(plan.element)
        elif isinstance(plan, Optional):
            yield BOOL
            yield from self.types(plan.inner)
        elif isinstance(plan, Forms):
            yield BOOL
            yield from self.types(plan.one)
            yield from self.types(plan.other)

    def made(self, plan: Plan, values: Iterator[Value]) -> Any:
        """Return the value whose leaves are the next of `values`."""
        if isinstance(plan, Same):
            return plan.value
        if isinstance(plan, Scalar):
            value = next(values)
            return value.type.expr if plan.is_size else value  # type: ignore[union-attr]
        if isinstance(plan, TensorPlan):
            for dim in plan.dims:
                if dim is None:
                    next(values)
            value = next(values)
            found = view_as_complex(self.builder, value) if plan.dtype in DTYPES else value
            return found if plan.is_raw else self.tensors.fresh(found)
        if isinstance(plan, Parts):
            items = [self.made(part, values) for part in plan.parts]
            if plan.kind == "enum":
                return Member(plan.keys[0], items[0])
            if plan.kind in ("dict", "pairs"):
                pairs = dict(zip(plan.keys, items, strict=True))
                return pairs if plan.kind == "pairs" else Dict(pairs, declared=plan.declared)
            if plan.kind == "list":
                return List(items, declared=plan.declared)
            return tuple(items) if plan.kind == "tuple" else items
        if isinstance(plan, RunTimeList):
            value = next(values)
            return {"items": value, "list": List(value), "dict": Dict(value)}[plan.kind]
        is_there = next(values)
        if isinstance(plan, Forms):
            return Variant(is_there, self.made(plan.one, values), self.made(plan.other, values))
        return Maybe(is_there, self.made(plan.inner, values))


def _is_one_form(a: TensorPlan, b: TensorPlan) -> bool:
    """Return True for tensors of one rank and dtype."""
    return a.dtype == b.dtype and len(a.dims) == len(b.dims)


def _items(x: Any) -> list[Any]:
    """Return the parts of a tuple, list or dict, or of the content of one."""
    found = getattr(x, "content", x)
    return list(found.values() if isinstance(found, dict) else found)


def _is_absent(x: Any) -> bool:
    return x is UNINITIALIZED or x is None


def _element_types(plan: Plan) -> Iterator[Type]:
    if isinstance(plan, RunTimeList):
        yield plan.element
    elif isinstance(plan, Parts):
        types = map(_element_type, plan.parts)
        if plan.kind in ("dict", "pairs"):
            keys = (ScalarType(kind_of(key)) for key in plan.keys)
            yield from map(TupleType, zip(keys, types, strict=True))
            return
        yield from types


def _element_type(plan: Plan) -> Type:
    if isinstance(plan, Scalar):
        return ScalarType(plan.kind)
    if isinstance(plan, Same) and kind_of(plan.value) in ("bool", "int", "float", "str"):
        return ScalarType(kind_of(plan.value))
    if isinstance(plan, Same) and isinstance(plan.value, tuple):
        return TupleType(tuple(_element_type(Same(item)) for item in plan.value))
    if isinstance(plan, Same) and plan.value is None:
        return ListType(NONE, "optional")
    if isinstance(plan, Optional):
        return ListType(_element_type(plan.inner), "optional")
    if isinstance(plan, RunTimeList) and plan.kind == "dict":
        return ListType(plan.element, "dict")
    if isinstance(plan, Parts) and plan.kind == "dict":
        return dict_type(plan.keys, list(map(_element_type, plan.parts)), plan.declared)
    if isinstance(plan, Parts) and plan.kind == "tuple":
        return TupleType(tuple(map(_element_type, plan.parts)))
    if isinstance(plan, RunTimeList) and plan.kind == "list":
        return ListType(plan.element)
    if isinstance(plan, Parts) and plan.kind == "list":
        common = common_type(map(_element_type, plan.parts)) if plan.parts else plan.declared
        if common is not None:
            return ListType(common)
    if isinstance(plan, Same) and isinstance(plan.value, List | Dict):
        return type_of(plan.value, _type_of_tensor)
    if (
        isinstance(plan, Same)
        and isinstance(plan.value, Tensor)
        and (plan.value.known is not None or is_tensor_value(plan.value.memory.content))
    ):
        plan = TensorPlan(*_type_of(plan.value))
    if isinstance(plan, TensorPlan):
        if plan.dtype in DTYPES:
            raise UnsupportedOp(
                "a list of run-time length holds a complex tensor; hold torch.view_as_real of it"
            )
        return TensorType(plan.dtype, tuple(OPEN if dim is None else dim for dim in plan.dims))
    raise UnsupportedOp(
        f"a list whose length depends on which way the program goes holds {_shown(plan)}; its elements must "
        "be numbers, strings, tensors or tuples of these"
    )


def _type_of_tensor(x: Tensor) -> TensorType:
    return cast(TensorType, _element_type(TensorPlan(*_type_of(x))))


def _type_of(x: Tensor) -> tuple[str, tuple[DimExpr, ...]]:
    value = x.known[2] if x.known is not None else x.memory.content
    return dtype_of(value), B.shape_of(value)


def _shown(plan: Plan) -> str:
    if isinstance(plan, TensorPlan):
        return f"{plan.dtype}[{', '.join('?' if dim is None else str(dim) for dim in plan.dims)}]"
    if isinstance(plan, Scalar):
        return f"of type {plan.kind}"
    if isinstance(plan, Parts):
        return f"a {'list' if plan.kind != 'tuple' else 'tuple'} of {len(plan.parts)}"
    return {Same: "a constant", RunTimeList: "a list"}.get(type(plan), "an optional")
