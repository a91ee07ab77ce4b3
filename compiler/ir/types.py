"""Types of graph values: tensors with symbolic shapes, plain values, containers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...vm.isa import DTYPES
from .dims import OPEN, DimExpr, equal, format_dim, parse_dim

FLOAT_DTYPES = ("f64", "f32", "f16", "bf16")
INT_DTYPES = ("i64", "i32", "i16", "i8", "u8")


@dataclass(frozen=True)
class TensorType:
    """A tensor of `dtype` (a name in `vm.isa.DTYPES`) with one dimension per axis; () is 0-d."""

    dtype: str
    shape: tuple[DimExpr, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(format_dim(d) for d in self.shape)}]"


@dataclass(frozen=True)
class ScalarType:
    """A plain value: `kind` is int, float, bool, str or none; `expr`: an int in size symbols, if known."""

    kind: str
    expr: DimExpr | None = None

    def __str__(self) -> str:
        return self.kind if self.expr is None else f"{self.kind}({format_dim(self.expr)})"


@dataclass(frozen=True)
class ListType:
    """A list of any length with equal element types. `form`: what it represents in the model: a "list"; a
    "dict", whose pairs it holds; an "optional", whose value it holds if present."""

    element: Type
    form: str = field(default="list", compare=False)

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class TupleType:
    """A tuple with one type per element. `keys`: those of the dict that it represents in the model, else
    none."""

    elements: tuple[Type, ...]
    keys: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class DictType:
    """A dict from `key` (str or int) to `value`."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"dict<{self.key}, {self.value}>"


@dataclass(frozen=True)
class OptionalType:
    """Either none or an `element`."""

    element: Type

    def __str__(self) -> str:
        return f"optional<{self.element}>"


Type = TensorType | ScalarType | ListType | TupleType | DictType | OptionalType

INT, FLOAT, BOOL, STR, NONE = (ScalarType(kind) for kind in ("int", "float", "bool", "str", "none"))


def types_equal(a: Type, b: Type) -> bool:
    """Return True if both types hold the same values, ignoring known values of ints; an open size equals any
    other."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype != b.dtype or a.rank != b.rank:
            return False
        return all(OPEN in (x, y) or equal(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    if isinstance(a, ScalarType) and isinstance(b, ScalarType):
        return a.kind == b.kind
    parts_a, parts_b = parts(a), parts(b)
    same_form = type(a) is type(b) and len(parts_a) == len(parts_b)
    return same_form and all(types_equal(x, y) for x, y in zip(parts_a, parts_b, strict=True))


def joined(a: Type, b: Type) -> Type | None:
    """Return the common type of `a` and `b`, in which differing sizes are open. None: there is none."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and (a.dtype, a.rank) == (b.dtype, b.rank):
        pairs = zip(a.shape, b.shape, strict=True)
        return TensorType(a.dtype, tuple(x if equal(x, y) else OPEN for x, y in pairs))
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.elements) == len(b.elements):
        found = [joined(x, y) for x, y in zip(a.elements, b.elements, strict=True)]
        if None in found or (a.keys and b.keys and a.keys != b.keys):
            return None
        return TupleType(tuple(type for type in found if type is not None), a.keys or b.keys)
    if isinstance(a, ListType) and isinstance(b, ListType):
        inner = joined(a.element, b.element)
        if inner is not None:
            return ListType(inner, b.form if a.form == "list" else a.form)
    if is_optional(a) or is_optional(b):
        return _joined_optional(a, b)
    return a if types_equal(a, b) else None


def is_optional(type: Type) -> bool:
    """Return True for the list that represents an optional."""
    return isinstance(type, ListType) and type.form == "optional"


def _joined_optional(a: Type, b: Type) -> Type | None:
    """Return the common type of an optional and another one, or its value type; the type of None holds
    NONE."""
    inner = [type.element if isinstance(type, ListType) and is_optional(type) else type for type in (a, b)]
    if NONE in inner:
        return ListType(inner[0] if inner[1] == NONE else inner[1], "optional")
    found = joined(*inner)
    return None if found is None else ListType(found, "optional")


def common_type(types: Iterable[Type | None]) -> Type | None:
    """Return the common type of these; None if there is none."""
    found: Type | None = None
    for i, type in enumerate(types):
        found = type if i == 0 else joined(found, type) if found is not None and type is not None else None
    return found


def with_open_sizes(type: Type, is_known: Callable[[DimExpr], bool]) -> Type:
    """Return a type with open sizes wherever sizes are unknown."""
    if isinstance(type, TensorType):
        return TensorType(type.dtype, tuple(x if is_known(x) else OPEN for x in type.shape))
    if isinstance(type, TupleType):
        return replace(type, elements=tuple(with_open_sizes(each, is_known) for each in type.elements))
    if isinstance(type, ListType):
        return replace(type, element=with_open_sizes(type.element, is_known))
    return type


def parts(type: Type) -> tuple[Type, ...]:
    """Return the types that a container type is made of, () for tensors and scalars."""
    match type:
        case ListType(element) | OptionalType(element):
            return (element,)
        case TupleType(elements):
            return elements
        case DictType(key, value):
            return key, value
    return ()


# Text ---------------------------------------------------------------------------------------------

_SCALARS = {str(scalar): scalar for scalar in (INT, FLOAT, BOOL, STR, NONE)}


def parse_type(text: str) -> Type:
    """Return the type that `str(type)` wrote, such as "f32[2, s0]". Raises ValueError naming the part."""
    text = text.strip()
    if text in _SCALARS:
        return _SCALARS[text]
    opener = _OPENERS.get(text[-1:], "")
    head, _, inner = text[:-1].partition(opener) if opener else (text, "", "")
    parts = split_commas(inner)
    if opener == "[" and head in DTYPES:
        return TensorType(head, tuple(parse_dim(part) for part in parts))
    if opener == "(" and head in _SCALARS and len(parts) >= 1:
        return ScalarType(head, parse_dim(inner))
    if opener == "<" and head == "tuple":
        return TupleType(tuple(parse_type(part) for part in parts))
    if opener == "<" and head in _CONTAINERS and len(parts) == _CONTAINERS[head][1]:
        return _CONTAINERS[head][0](*(parse_type(part) for part in parts))
    scalars = ", ".join(_SCALARS)
    raise ValueError(f"type {text!r} is not a tensor such as f32[2, s0], a scalar ({scalars}) or a container")


def split_commas(text: str) -> list[str]:
    """Return the parts of `text` between commas outside of brackets and strings, stripped."""
    parts, depth, quoted, escaped, start = [], 0, False, False, 0
    for i, char in enumerate(text):
        if quoted:
            quoted, escaped = char != '"' or escaped, char == "\\" and not escaped
        elif char == '"':
            quoted = True
        elif char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
        else:
            depth += (char in "([{<") - (char in ")]}>")
    rest = text[start:].strip()
    return [*parts, rest] if rest or parts else []


_OPENERS = {"]": "[", ")": "(", ">": "<"}
_CONTAINERS: dict[str, tuple[type, int]] = {
    "list": (ListType, 1), "dict": (DictType, 2), "optional": (OptionalType, 1),
}  # fmt: skip
