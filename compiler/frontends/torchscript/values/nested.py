"""Lists in lists and dicts of run-time length.

Such a list is a value of the graph, and a list in it is a part of that value. So `rows[i]` is an `Element`:
it is read from `rows` whenever it is used, and a change of it changes `rows`. `Ties` track possible aliases
of the list (one that was appended, an element that is in two lists, a copy of the outer list): an alias is
not changed, and not read once the tied list has been changed from within.
"""

from __future__ import annotations

from typing import Any

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ir.types import ListType, TensorType, TupleType
from . import elements
from .regions import Making
from .values import Dict, Holder, List, Maybe, Part, Source, Tensor, Ties, has_lists, next_version


class Spot:
    """The item at `index` of `owner`, a list or dict; `path`: its position in the tuple there."""

    def __init__(
        self,
        importer: Making,
        owner: Holder,
        index: Value,
        path: tuple[int, ...],
        is_tensor: bool = False,
    ) -> None:
        self.importer, self.owner, self.index, self.path = importer, owner, index, path
        self.is_tensor = is_tensor
        self.asked: Any = None  # the program's index, which may count from the end
        self._layout, self._moved = owner.root.layout, owner.root.moved

    def is_at(self, owner: Holder, asked: Any) -> bool:
        """Return True for the position in `owner` that the program denotes by `asked`."""
        is_unmoved = self.owner is owner and self._moved == owner.root.moved
        return is_unmoved and (self.asked is asked or (isinstance(asked, int) and self.asked == asked))

    def read(self) -> Value:
        """Return the current value there."""
        return self._parts()[-1]

    def put(self, new: Value) -> None:
        """Put something there."""
        b, parts = self.importer.builder, self._parts()
        for i, tuple_ in zip(reversed(self.path), reversed(parts[:-1]), strict=True):
            assert isinstance(tuple_.type, TupleType)
            n = len(tuple_.type.elements)
            new = b.one("tuple", *(new if k == i else b.one("get", tuple_, b.size(k)) for k in range(n)))
        self.owner.content = b.one("list_set", self.owner.read(), self.index, new)

    def write(self, new: Value) -> None:
        """Put a tensor's new value there: a change in place."""
        self.importer.regions.note_tensor(self.owner)
        self.put(new)

    def _parts(self) -> list[Value]:
        """Return the value at the position, and its parts along the path."""
        root = self.owner.root
        if root.layout != self._layout or (self.is_tensor and root.moved != self._moved):
            raise UnsupportedOp(
                "a part of a list is used after elements of the list moved; take it out again (rows[i])"
            )
        b = self.importer.builder
        found = [elements.got(b, self.owner.read(), self.index)]
        for i in self.path:
            found.append(elements.got(b, found[-1], b.size(i)))
        return found


class Element(Part):
    """The list or dict at a position of `owner`."""

    def __init__(self, importer: Making, owner: Holder, index: Value, path: tuple[int, ...]) -> None:
        self.owner, self._spot = owner, Spot(importer, owner, index, path)
        self.birth, self.memory = next_version(), owner.memory
        self.ties, self.declared, self.changed, self.layout, self.version = Ties(), None, 0, 0, 0

    @property
    def root(self) -> Holder:
        """The outermost list or dict."""
        return self.owner.root

    @property
    def content(self) -> Any:
        """The current value of the list."""
        return self._spot.read()

    @content.setter
    def content(self, new: Any) -> None:
        if self.root.ties.is_copied or self.owner.ties.is_copied:
            raise UnsupportedOp(
                "a list is changed that may be in two lists; change a copy of it instead, as x.copy() makes"
            )
        self._spot.put(new)
        self.root.changed = next_version()

    @property
    def list_type(self) -> ListType:
        """The type of the list, without reading it."""
        outer: Any = self.owner.list_type if isinstance(self.owner, Element) else self.owner.content.type
        found: Any = outer.element
        for i in self._spot.path:
            found = found.elements[i]
        assert isinstance(found, ListType)
        return found


class ListElement(Element, List):
    """A list that is an element."""


class DictElement(Element, Dict):
    """A dict that is an element."""


def taken(importer: Making, owner: Holder, place: Value) -> Any:
    """Return the element of a list or dict at a position, with nested lists and dicts as elements of
    `owner`."""
    path: tuple[int, ...] = ()
    source = owner.source
    while source is not None and _is_as(owner, source):
        owner, path, source = source.holder, (*source.path, *path), source.holder.source
    b = importer.builder
    value = elements.got(b, owner.read(), place)
    for i in path:
        value = elements.got(b, value, b.size(i))
    return _taken(importer, owner, place, value, path)


def _is_as(x: Holder, source: Source) -> bool:
    """Return True if a list still has the same elements as its source."""
    return not x.resized and source.holder.root.resized == source.resized


def has_all_of(x: List, holder: Holder, path: tuple[int, ...] = ()) -> List:
    """Note that a new list has all elements of another one, or the parts at `path` of each."""
    x.source = Source(holder, path, holder.root.resized)
    return x


def _taken(importer: Making, owner: Holder, place: Value, value: Value, path: tuple[int, ...]) -> Any:
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
    if isinstance(type, TensorType):
        return importer.tensors.element(owner.memory, Spot(importer, owner, place, path, True), value)
    return value


def _optional(importer: Making, owner: Holder, place: Value, value: Value) -> Maybe:
    """Return the optional that a list represents. Lists in it cannot be changed there."""
    b, type = importer.builder, value.type
    assert isinstance(type, ListType)
    is_there = b.one("int_lt", b.size(0), b.one("len", value))
    some = b.one("append", value, elements.zero(b, type.element))
    found = elements.got(b, some, b.size(0))
    apart = List(some, memory=importer.tensors.apart(owner.memory))
    return Maybe(is_there, _fixed(owner, _taken(importer, apart, b.size(0), found, ())))


def _ties_to(owner: Holder) -> Ties:
    """Return the ties of a list or dict that is in another one and cannot be changed by itself."""
    return Ties(True, True, ((owner.root, next_version()),))


def _fixed(owner: Holder, x: Any) -> Any:
    """Return a value taken out of an optional in `owner`, with immutable lists and dicts."""
    if isinstance(x, tuple):
        return tuple(_fixed(owner, part) for part in x)
    if isinstance(x, Dict):
        content = x.content
        if isinstance(content, dict):
            content = {key: _fixed(owner, part) for key, part in content.items()}
        return Dict(content, memory=owner.memory, ties=_ties_to(owner))
    return List(x.content, memory=owner.memory, ties=_ties_to(owner)) if isinstance(x, List) else x


def detached(importer: Making, owner: Holder, x: Any) -> Any:
    """Return a value taken out of `owner` without its position there, which it is about to lose."""
    if isinstance(x, Element):
        memory = importer.tensors.apart(owner.memory)
        found = (Dict if isinstance(x, Dict) else List)(x.content, memory=memory)
        found.ties = Ties(owner.ties.is_copied, True, owner.ties.follows)
        return found
    if isinstance(x, Tensor):
        made = importer.tensors.fresh(importer.tensors.read(x))
        importer.tensors.share(made.memory, owner.memory)
        return made
    return tuple(detached(importer, owner, part) for part in x) if isinstance(x, tuple) else x


def give(importer: Making, owner: Holder, x: Any) -> None:
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


def apart(importer: Making, x: Holder) -> List:
    """Return a list with the same elements, or the pairs of a dict, under another name."""
    return List(x.content, memory=importer.tensors.apart(x.memory), ties=x.ties)


def alone(x: Any) -> Any:
    """Return the argument of a library function for `x`, which it puts into a new list."""
    if isinstance(x, tuple):
        return tuple(map(alone, x))
    if isinstance(x, Maybe):
        return Maybe(x.is_there, alone(x.value))
    if isinstance(x, Dict):
        return Dict(x.content, memory=x.memory, declared=x.declared)
    return List(x.content, memory=x.memory, declared=x.declared) if isinstance(x, List) else x


def follow(importer: Making, owner: Holder, x: Any) -> None:
    """`x` may be a list from `owner`, at an unknown position."""
    x = x.value if isinstance(x, Maybe) else x
    if isinstance(x, Holder) and not isinstance(x, Element):
        importer.regions.tie(x, Ties(True, True, ((owner.root, next_version()),)))


def copied(importer: Making, made: Holder, *sources: Holder) -> None:
    """`made` has the elements of other lists."""
    for source in sources:
        if has_lists(made):
            follows = (*source.ties.follows, (source.root, next_version()))
            importer.regions.tie(made.root, Ties(False, True, follows))
