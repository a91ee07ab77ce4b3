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
from ...ir.types import ListType, TupleType, Type
from . import elements
from .values import Dict, Holder, List, Maybe, Ties, is_run_time_list, next_version

if TYPE_CHECKING:
    from .importer import ScriptImporter


class Element(List):
    """The list at `place` of `owner`; `path`: where it is in the tuple that is there."""

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


def has_lists(x: Any) -> bool:
    """Return True for a list or dict of a run-time length with lists among its elements."""
    if isinstance(x, Element):
        return _has_lists(x.list_type.element)
    return is_run_time_list(x.content) and _has_lists(x.content.type.element)


def _has_lists(type: Type) -> bool:
    if isinstance(type, TupleType):
        return any(map(_has_lists, type.elements))
    return isinstance(type, ListType)


def taken(importer: ScriptImporter, owner: Holder, place: Value) -> Any:
    """Return the element of a list or dict at a place, the lists in it as elements of `owner`."""
    return _taken(importer, owner, place, elements.got(importer.builder, owner.read(), place), ())


def _taken(importer: ScriptImporter, owner: Holder, place: Value, value: Value, path: tuple[int, ...]) -> Any:
    if isinstance(value.type, ListType):
        return Element(importer, owner, place, path)
    if not isinstance(value.type, TupleType):
        return elements.unpacked(importer.builder, value, importer.tensors.fresh)
    b, n = importer.builder, len(value.type.elements)
    parts = [elements.got(b, value, b.size(i)) for i in range(n)]
    return tuple(_taken(importer, owner, place, part, (*path, i)) for i, part in enumerate(parts))


def detached(importer: ScriptImporter, owner: Holder, x: Any) -> Any:
    """Return what was taken out of `owner` without its place there, which it is about to lose."""
    if isinstance(x, Element):
        found = List(x.content, memory=owner.memory)
        found.ties = Ties(owner.ties.is_copied, True, owner.ties.follows)
        return found
    return tuple(detached(importer, owner, part) for part in x) if isinstance(x, tuple) else x


def give(importer: ScriptImporter, owner: Holder, x: Any) -> None:
    """`x` is put into `owner`."""
    if isinstance(x, tuple):
        for part in x:
            give(importer, owner, part)
    if not isinstance(x, List):
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
    return List(x.content, memory=x.memory, declared=x.declared) if isinstance(x, List) else x


def follow(importer: ScriptImporter, owner: Holder, x: Any) -> None:
    """`x` may be a list out of `owner`, whose place there is not known."""
    x = x.value if isinstance(x, Maybe) else x
    if isinstance(x, List) and not isinstance(x, Element):
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
