"""Lists in lists and dicts whose length only a call tells.

Such a list is a value of the graph, and a list in it is a part of that value. So `rows[i]` is an `Element`:
it is read out of `rows` whenever it is used, and a change of it changes `rows`. What else may be the same
list (one that was appended, an element that is in two lists, a copy of the outer list) is known by `Ties`: it
is not changed, and not read once the list that it is tied to has been changed from within.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.errors import UnsupportedOp
from ...ir.graph import Value
from ...ir.types import ListType, TensorType, TupleType, Type
from . import elements
from .values import Dict, Holder, List, Maybe, Ties, is_run_time_list, next_version

if TYPE_CHECKING:
    from .importer import ScriptImporter


class Element(Holder):
    """The list or dict at `place` of `owner`; `path`: where it is in the tuple that is there."""

    def __init__(self, importer: ScriptImporter, owner: Holder, place: Value, path: tuple[int, ...]) -> None:
        self.importer, self.owner, self.place, self.path = importer, owner, place, path
        self.birth, self.memory = next_version(), owner.memory
        self.ties, self.declared, self.changed, self.layout, self.version = Ties(), None, 0, 0, 0
        self._layout = self.root.layout

    @property
    def root(self) -> Holder:
        """The outermost list or dict."""
        return self.owner.root

    @property
    def content(self) -> Any:
        """The value of the list as it is now."""
        if self.root.layout != self._layout:
            raise UnsupportedOp(
                "a list in a list is used after elements of the outer one moved; take it out again (rows[i])"
            )
        return self._parts()[-1]

    @content.setter
    def content(self, new: Any) -> None:
        if self.root.ties.is_copied or self.owner.ties.is_copied:
            raise UnsupportedOp(
                "a list is changed that may be in two lists; change a copy of it instead, as x.copy() makes"
            )
        b, parts = self.importer.builder, self._parts()
        for i, tuple_ in zip(reversed(self.path), reversed(parts[:-1]), strict=True):
            assert isinstance(tuple_.type, TupleType)
            n = len(tuple_.type.elements)
            new = b.one("tuple", *(new if k == i else b.one("get", tuple_, b.size(k)) for k in range(n)))
        self.owner.content = b.one("list_set", self.owner.read(), self.place, new)
        self.root.changed = next_version()

    @property
    def list_type(self) -> ListType:
        """The type of the list, without reading it."""
        outer: Any = self.owner.list_type if isinstance(self.owner, Element) else self.owner.content.type
        found: Any = outer.element
        for i in self.path:
            found = found.elements[i]
        assert isinstance(found, ListType)
        return found

    def _parts(self) -> list[Value]:
        """Return what lies at the place, and what is in it along the path."""
        b = self.importer.builder
        found = [b.one("get", self.owner.read(), self.place)]
        for i in self.path:
            found.append(b.one("get", found[-1], b.size(i)))
        return found


class ListElement(Element, List):
    """A list that is an element."""


class DictElement(Element, Dict):
    """A dict that is an element."""


def has_lists(x: Any) -> bool:
    """Return True for a list or dict of a run-time length with lists or dicts among its elements."""
    if isinstance(x, Element):
        return _has_lists(x.list_type.element)
    return is_run_time_list(x.content) and _has_lists(x.content.type.element)


def _has_lists(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_has_lists, type.elements))
    return isinstance(type, ListType)


def taken(importer: ScriptImporter, owner: Holder, place: Value) -> Any:
    """Return the element of a list or dict at a place, the lists and dicts in it as elements of `owner`."""
    return _taken(importer, owner, place, elements.got(importer.builder, owner.read(), place), ())


def _taken(importer: ScriptImporter, owner: Holder, place: Value, value: Value, path: tuple[int, ...]) -> Any:
    b, type = importer.builder, value.type
    if isinstance(type, ListType):
        if type.form == "optional":
            return _optional(importer, owner, place, value)
        return (DictElement if type.form == "dict" else ListElement)(importer, owner, place, path)
    if isinstance(type, TupleType):
        parts = [elements.got(b, value, b.size(i)) for i in range(len(type.elements))]
        found = [_taken(importer, owner, place, part, (*path, i)) for i, part in enumerate(parts)]
        if type.keys:
            return Dict(dict(zip(type.keys, found, strict=True)), ties=_ties_to(owner))
        return tuple(found)
    return importer.tensors.fresh(value) if isinstance(type, TensorType) else value


def _optional(importer: ScriptImporter, owner: Holder, place: Value, value: Value) -> Maybe:
    """Return the optional that a list of what is there stands for. Lists in it cannot be changed there."""
    b, type = importer.builder, value.type
    assert isinstance(type, ListType)
    is_there = b.one("int_lt", b.size(0), b.one("len", value))
    some = b.one("append", value, elements.zero(b, type.element))
    found = elements.got(b, some, b.size(0))
    apart = List(some, memory=owner.memory)
    return Maybe(is_there, _fixed(owner, _taken(importer, apart, b.size(0), found, ())))


def _ties_to(owner: Holder) -> Ties:
    """Return the ties of a list or dict that is in another one and cannot be changed by itself."""
    return Ties(True, True, ((owner.root, next_version()),))


def _fixed(owner: Holder, x: Any) -> Any:
    """Return what was taken out of an optional in `owner`, lists and dicts so that they cannot be changed."""
    if isinstance(x, tuple):
        return tuple(_fixed(owner, part) for part in x)
    if isinstance(x, Dict):
        content = x.content
        if isinstance(content, dict):
            content = {key: _fixed(owner, part) for key, part in content.items()}
        return Dict(content, memory=owner.memory, ties=_ties_to(owner))
    return List(x.content, memory=owner.memory, ties=_ties_to(owner)) if isinstance(x, List) else x


def detached(importer: ScriptImporter, owner: Holder, x: Any) -> Any:
    """Return what was taken out of `owner` without its place there, which it is about to lose."""
    if isinstance(x, Element):
        found = (Dict if isinstance(x, Dict) else List)(x.content, memory=owner.memory)
        found.ties = Ties(owner.ties.is_copied, True, owner.ties.follows)
        return found
    return tuple(detached(importer, owner, part) for part in x) if isinstance(x, tuple) else x


def give(importer: ScriptImporter, owner: Holder, x: Any) -> None:
    """`x` is put into `owner`."""
    if isinstance(x, tuple):
        for part in x:
            give(importer, owner, part)
    if isinstance(x, Maybe):
        give(importer, owner, x.value)
    if not isinstance(x, Holder):
        return
    importer.tensors.share(owner.memory, x.memory)
    if isinstance(x, Element):
        importer.regions.tie(owner.root, Ties(False, True, ((x.root, next_version()),)))
    else:
        is_copied = x.ties.is_given or x.ties.is_copied
        if is_copied or x.ties.follows:
            importer.regions.tie(owner.root, Ties(False, is_copied, x.ties.follows))
        importer.regions.tie(x, Ties(True, False, ((owner.root, next_version()),)))


def alone(x: Any) -> Any:
    """Return what a function of the library is given for `x`, which it puts into a list of its own."""
    if isinstance(x, tuple):
        return tuple(map(alone, x))
    if isinstance(x, Maybe):
        return Maybe(x.is_there, alone(x.value))
    if isinstance(x, Dict):
        return Dict(x.content, memory=x.memory, declared=x.declared)
    return List(x.content, memory=x.memory, declared=x.declared) if isinstance(x, List) else x


def follow(importer: ScriptImporter, owner: Holder, x: Any) -> None:
    """`x` may be a list out of `owner`, whose place there is not known."""
    x = x.value if isinstance(x, Maybe) else x
    if isinstance(x, Holder) and not isinstance(x, Element):
        importer.regions.tie(x, Ties(True, True, ((owner.root, next_version()),)))


def copied(importer: ScriptImporter, made: Holder, *sources: Holder) -> None:
    """`made` has the elements of other lists."""
    for source in sources:
        if has_lists(made):
            follows = (*source.ties.follows, (source.root, next_version()))
            importer.regions.tie(made.root, Ties(False, True, follows))


def check_read(x: Any) -> None:
    """Raise UnsupportedOp for a list that has the elements which it had before one of them was changed."""
    if isinstance(x, List | Dict) and any(root.changed > since for root, since in x.ties.follows):
        raise UnsupportedOp(
            "a list is read that may be, or may have, one that was changed in another list; read it there"
        )
    if isinstance(x, List | Dict) and any(twin.version > since for twin, since in x.ties.twins):
        raise UnsupportedOp(
            "a list or dict is read that may be one which was changed by another name, depending on which "
            "way the program goes; change a copy of it instead, as x.copy() makes"
        )
