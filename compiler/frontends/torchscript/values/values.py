"""Values of a TorchScript program during import.

A value that does not depend on the input is itself: None, a bool, int, float, str, a tuple of values.
Ints that are computed from sizes are dimension expressions; other run-time numbers are graph values of a
scalar type. Everything that a program can change is a `Cell`.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field
from typing import Any, Protocol

import sympy

from ....ir.errors import ShapeError, UnsupportedOp
from ....ir.graph import Block, Value
from ....ir.types import ListType, ScalarType, TensorType, TupleType, Type
from ....ops.complex import Complex

_SERIAL = itertools.count(1)


class Uninitialized:
    """The value that TorchScript gives to variables that are never read."""

    def __repr__(self) -> str:
        return "uninitialized"


UNINITIALIZED = Uninitialized()


@dataclass(eq=False)
class Cell:
    """A location whose content a program can change. `birth` orders cells by when they were made."""

    content: Any
    birth: int = field(default_factory=lambda: next(_SERIAL))


@dataclass(eq=False)
class Memory(Cell):
    """The memory of tensors; `content`: the newest value of the tensor that owns it. `version` changes
    with it.

    `others`: memory that may alias it, after a branch; `stale`: why reading it would be wrong.
    `name`: of the input or the module's attribute that it is, else "". `is_in_rows`: the tensor is row-major
    in it, however the value was computed.
    """

    name: str = ""
    version: int = 0
    others: set[Memory] = field(default_factory=set)
    stale: str = ""
    is_in_rows: bool = False


@dataclass(frozen=True)
class View:
    """How a view is made from its parent: result number `index` of the call of `overload`."""

    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None = None


class Place(Protocol):
    """A position in a list or dict of run-time length."""

    @property
    def index(self) -> Value:
        """Its position."""

    def read(self) -> Value:
        """Return what lies there now."""

    def write(self, new: Value) -> None:
        """Put a tensor's new value there: a change in place."""


@dataclass(eq=False)
class Tensor:
    """A tensor of the program: the owner of `memory`, a view of `parent`, which has the same memory, or an
    element of a list or dict with that memory, at `place`. `known`: its value in a version of the memory, and
    the block in which that was made."""

    memory: Memory
    parent: Tensor | None = None
    view: View | None = None
    known: tuple[int, Block, Value] | None = None
    place: Place | None = None


@dataclass(frozen=True)
class Ties:
    """The relations of a list to others. `is_given`: it is in another one, too, and not changed by itself;
    `is_copied`: lists in it are in others, too; `follows`: lists whose elements it is or has, since when;
    `twins`: lists that it may itself be, and when they held the same."""

    is_given: bool = False
    is_copied: bool = False
    follows: tuple[tuple[Holder, int], ...] = ()
    twins: tuple[tuple[Holder, int], ...] = ()

    def __or__(self, other: Ties) -> Ties:
        """Return the ties of a list that may be either."""
        follows = tuple(dict.fromkeys((*self.follows, *other.follows)))
        twins = tuple(dict.fromkeys((*self.twins, *other.twins)))
        return Ties(self.is_given or other.is_given, self.is_copied or other.is_copied, follows, twins)


@dataclass(frozen=True)
class Source:
    """A list or dict from which all elements were taken when it was last `resized`, or, at `path`, a part of
    each."""

    holder: Holder
    path: tuple[int, ...]
    resized: int


@dataclass(eq=False)
class Holder(Cell):
    """A list or dict. For a run-time length, `memory` represents that of the tensors in it. `declared`: the
    type of its elements or pairs, if the source gives it. `changed`: when a list in it changed last;
    `layout`: when lists among its elements moved last; `version`: when it changed last itself; `moved`: when
    elements of it or of a list in it moved last; `resized`: when it or a list in it got other elements last,
    not counting in-place changes of its tensors. `source`: of which it has the elements, in their order."""

    memory: Memory = field(default_factory=lambda: Memory(None))
    ties: Ties = Ties()
    declared: Type | None = None
    changed: int = 0
    version: int = 0
    layout: int = 0
    moved: int = 0
    resized: int = 0
    source: Source | None = None

    @property
    def root(self) -> Holder:
        """The outermost list or dict that this one is in."""
        return self

    def read(self) -> Any:
        """Return the content. Raises UnsupportedOp if a tensor in a list of run-time length was changed in
        place outside of it."""
        if self.memory.stale and is_run_time_list(self.content):
            raise UnsupportedOp(self.memory.stale)
        return self.content


@dataclass(eq=False)
class List(Holder):
    """A list. `content`: a Python list, or the graph value of a list of run-time length."""


@dataclass(eq=False)
class Dict(Holder):
    """A dict. `content`: a Python dict, whose keys are known, or the graph value of a list of its pairs."""


class Partial(str):
    """A text, such as an error message, with "?" for run-time values that no instruction formats. The program
    cannot compute with it."""


@dataclass(eq=False)
class Object:
    """A module or another object of a TorchScript class; `attributes` are those that were read or set."""

    script: Any
    path: str
    attributes: dict[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A member of an enumeration; `index`: which, in the order of the class."""

    kind: type[enum.Enum]
    index: Any

    @property
    def content(self) -> list[Any]:
        """The content that branches pass on."""
        return [self.index]


class Fails(ShapeError):
    """The imported code raises a Python error whenever it is reached."""


@dataclass(frozen=True, eq=False)
class Maybe:
    """An optional whose presence is known only at run time: `value` if `is_there`."""

    is_there: Value
    value: Any


@dataclass(frozen=True, eq=False)
class Variant:
    """A value of two forms, such as tensors of different ranks: `other` where `is_other`, else `one`."""

    is_other: Value
    one: Any
    other: Any


def next_version() -> int:
    """Return a version that no memory has had."""
    return next(_SERIAL)


def is_run_time(x: Any) -> bool:
    """Return True for a run-time number, bool or str, except sizes."""
    return isinstance(x, Value) and isinstance(x.type, ScalarType)


def is_run_time_list(x: Any) -> bool:
    """Return True for the content of a list of run-time length."""
    return isinstance(x, Value) and isinstance(x.type, ListType)


def is_size(x: Any) -> bool:
    """Return True for an int that is computed from sizes."""
    return isinstance(x, sympy.Expr)


def is_tensor_value(x: Any) -> bool:
    """Return True for a tensor of the graph, or a complex one, of which the graph has the parts."""
    return isinstance(x, Value | Complex) and isinstance(x.type, TensorType)


def kind_of(x: Any) -> str:
    """Return "bool", "int", "float", "str", "none" for a plain value, else ""."""
    if isinstance(x, Value):
        return x.type.kind if isinstance(x.type, ScalarType) else ""
    if is_size(x):
        return "int"
    return {bool: "bool", int: "int", float: "float", str: "str", type(None): "none"}.get(type(x), "")


def snapshot(x: Any) -> Any:
    """Return the nested contents of a list or dict as tuples, independent of later changes."""
    if isinstance(x, Dict) and isinstance(x.content, dict):
        return tuple(x.content), tuple(map(snapshot, x.content.values()))
    if isinstance(x, List) and isinstance(x.content, list):
        return tuple(map(snapshot, x.content))
    return x.content if isinstance(x, List | Dict) else x


def has_same_items(a: Any, b: Any) -> bool:
    """Return True for two lists of the same elements, as long as neither is changed."""
    if not (isinstance(a, List) and isinstance(b, List)) or any(is_run_time_list(x.content) for x in (a, b)):
        return False
    return len(a.content) == len(b.content) and all(map(is_same, a.content, b.content))


def is_same(a: Any, b: Any) -> bool:
    """Return True if both are the same value, and the same object if mutable."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, Member) and isinstance(b, Member):
        return a.kind is b.kind and is_same(a.index, b.index)
    plain = (bool, int, float, str, type(None), sympy.Expr)
    return isinstance(a, plain) and type(a) is type(b) and bool(a == b)


# Lists in lists -------------------------------------------------------------------------------------


class Part(Holder):
    """A list or dict that is an element of another one."""

    @property
    def list_type(self) -> ListType:
        """The type of the list, without reading it."""
        raise NotImplementedError


def has_lists(x: Any) -> bool:
    """Return True for a list or dict of a run-time length with lists or dicts among its elements."""
    if isinstance(x, Part):
        return _has_lists(x.list_type.element)
    return is_run_time_list(x.content) and _has_lists(x.content.type.element)


def _has_lists(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_has_lists, type.elements))
    return isinstance(type, ListType)


def check_read(x: Any) -> None:
    """Raise UnsupportedOp for a list whose elements are stale because one of them was changed."""
    if isinstance(x, List | Dict) and any(root.changed > since for root, since in x.ties.follows):
        raise UnsupportedOp(
            "a list is read that may be, or may have, one that was changed in another list; read it there"
        )
    if isinstance(x, List | Dict) and any(twin.version > since for twin, since in x.ties.twins):
        raise UnsupportedOp(
            "a list or dict is read that may be one which was changed by another name, depending on which "
            "way the program goes; change a copy of it instead, as x.copy() makes"
        )
