"""Lists and dicts of any length as *columns*: flat lists, one for each number, string or array in an element.

A *kind* describes an element:
  "int", "float", "bool", "str"    a plain value
  [dtype, rank]                    an array
  {"tuple": [kind, ..]}            a tuple of these
  {"record": {key: kind, ..}}      a dict of these keys
  {"many": kind}                   a list of any length of elements of one kind
  {"pairs": [kind, kind]}          a dict of any keys, plain ones, with values of one kind
  {"optional": kind}               None, or an element of the kind
A plain value or an array has one column, a tuple or record the columns of its parts. A list has the columns
of the elements of all lists, concatenated; a nested list has a column of lengths before these. A dict has the
columns of its keys and of its values, also after a column of lengths if it is nested. An optional has a
column of flags, which mark the values that are present, and the columns of those values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..vm.arrays import is_array, library_of
from ..vm.errors import ArgumentError
from ..vm.program import NUMPY_DTYPES
from ..vm.schema import Fixed, Integer, ListOf, MapOf, Object, OneOf, Schema, Text
from ..vm.verify import MAX_RANK

Kind = Any
ZEROS: dict[str, Any] = {"bool": False, "int": 0, "float": 0.0, "str": ""}
LENGTHS, ITEMS, KEYS, VALUES = "lengths", "items", "keys", "values"
GIVEN = "is_given"  # the name of the flag of an optional value
#: From the position of an element to its name in a message.
Place = Callable[[int], str]


def _whole_kinds() -> Sequence[Schema]:
    return _KINDS[2:4]


def _kinds() -> Sequence[Schema]:
    return _KINDS


#: The schema of kinds, and that of lists and dicts.
KIND, WHOLE = OneOf(_kinds, "a kind of elements"), OneOf(_whole_kinds)
_PLAIN = Text(among=ZEROS)
_KINDS = (
    _PLAIN,
    Fixed((Text(among=NUMPY_DTYPES), Integer(0, MAX_RANK))),
    Object({"many": KIND}),
    Object({"pairs": Fixed((_PLAIN, KIND))}),
    Object({"tuple": ListOf(KIND, least=1)}),
    Object({"record": MapOf(KIND, least=1)}),
    Object({"optional": KIND}),
)


def names(kind: Kind, prefix: str) -> list[str]:
    """Return the names of the columns of a list ({"many": ..}) or dict ({"pairs": ..})."""
    if "many" in kind:
        return element_names(kind["many"], prefix)
    keys, values = kind["pairs"]
    return [*element_names(keys, join(prefix, KEYS)), *element_names(values, join(prefix, VALUES))]


def element_names(kind: Kind, prefix: str) -> list[str]:
    """Return the names of the columns of elements of a kind."""
    if not isinstance(kind, dict):
        return [prefix]
    if "optional" in kind:
        return [join(prefix, GIVEN), *element_names(kind["optional"], prefix)]
    if "many" in kind:
        return [join(prefix, LENGTHS), *names(kind, join(prefix, ITEMS))]
    if "pairs" in kind:
        return [join(prefix, LENGTHS), *names(kind, prefix)]
    return [name for key, part in _parts(kind) for name in element_names(part, join(prefix, str(key)))]


def columns_of(value: Any, kind: Kind, path: str) -> list[list[Any]]:
    """Return the columns of a list ({"many": ..}) or dict ({"pairs": ..}). Raises ArgumentError for any other
    value, naming the wrong part, such as targets[1]['boxes']."""
    return _columns([value], kind, lambda _: path)[1:]


def value_of(columns: Sequence[Sequence[Any]], kind: Kind) -> Any:
    """Return the list or dict that has these columns. Raises ArgumentError if they do not match the kind."""
    try:
        found = _whole(iter(columns), kind)
        return dict(found) if "pairs" in kind else found
    except ValueError as error:
        raise ArgumentError(f"columns of {described(kind)} do not fit together: {error}") from None


def described(kind: Kind, is_one: bool = True) -> str:
    """Return a kind in words: "a list of tuples of a str and an int"."""
    if isinstance(kind, str):
        return ("an int" if kind == "int" else f"a {kind}") if is_one else kind
    if isinstance(kind, list):
        return f"{'a tensor' if is_one else 'tensors'} of {kind[0]} and rank {kind[1]}"
    plural = "" if is_one else "s"
    before = "a " if is_one else ""
    if "many" in kind:
        return f"{before}list{plural} of {described(kind['many'], False)}"
    if "pairs" in kind:
        return f"{before}dict{plural} of {' to '.join(described(part, False) for part in kind['pairs'])}"
    if "optional" in kind:
        return f"{described(kind['optional'], is_one)} or None"
    if "record" in kind:
        inside = ", ".join(f"{key!r}: {described(part)}" for key, part in kind["record"].items())
        return f"{before}dict{plural} of {inside}"
    return f"{before}tuple{plural} of ({', '.join(described(part) for part in kind['tuple'])})"


def _parts(kind: Kind) -> Iterable[tuple[Any, Kind]]:
    """Return the kinds of a tuple's or record's parts by their keys."""
    found: Iterable[tuple[Any, Kind]] = (
        kind["record"].items() if "record" in kind else enumerate(kind["tuple"])
    )
    return found


def _whole(columns: Iterator[Sequence[Any]], kind: Kind) -> list[Any]:
    """Return the elements of a list, or the pairs of a dict, from the next columns."""
    if "many" in kind:
        return _elements(columns, kind["many"])
    keys, values = (_elements(columns, part) for part in kind["pairs"])
    return list(zip(keys, values, strict=True))


def _elements(columns: Iterator[Sequence[Any]], kind: Kind) -> list[Any]:
    """Return the elements of one kind from the next columns."""
    if not isinstance(kind, dict):
        return list(next(columns))
    if "tuple" in kind or "record" in kind:
        rows = list(zip(*[_elements(columns, part) for _, part in _parts(kind)], strict=True))
        return [dict(zip(kind["record"], row, strict=True)) for row in rows] if "record" in kind else rows
    lengths = next(columns)
    found = _elements(columns, kind["optional"]) if "optional" in kind else _whole(columns, kind)
    if sum(lengths) != len(found):
        raise ValueError(f"the lengths are {sum(lengths)} in all, the elements {len(found)}")
    items = iter(found)
    if "optional" in kind:
        return [next(items) if is_there else None for is_there in lengths]
    form: Callable[[Any], Any] = dict if "pairs" in kind else list
    return [form(itertools.islice(items, length)) for length in lengths]


def _columns(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    """Return the columns of elements of one kind."""
    if isinstance(kind, str):
        return [_plain(items, kind, place)]
    if isinstance(kind, list):
        return [_arrays(items, kind[0], kind[1], place)]
    if "optional" in kind:
        at = [i for i, item in enumerate(items) if item is not None]
        there = [items[i] for i in at]
        found = _columns(there, kind["optional"], lambda j: place(at[j]))
        return [[item is not None for item in items], *found]
    if "tuple" in kind:
        return _of_tuples(items, kind, place)
    if "record" in kind:
        return _of_records(items, kind, place)
    return _of_dicts(items, kind, place) if "pairs" in kind else _of_lists(items, kind, place)


def _of_lists(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    for i, item in enumerate(items):
        _check(isinstance(item, list | tuple), place, item, kind, i)

    def inner_place(j: int) -> str:
        i, k = _position(items, j)
        return f"{place(i)}[{k}]"

    found = _columns([x for item in items for x in item], kind["many"], inner_place)
    return [list(map(len, items)), *found]


def _of_dicts(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    for i, item in enumerate(items):
        _check(isinstance(item, Mapping), place, item, kind, i)
    keys = [key for item in items for key in item]

    def value_place(j: int) -> str:
        return f"{place(_position(items, j)[0])}[{keys[j]!r}]"

    key_kind, value_kind = kind["pairs"]
    return [
        list(map(len, items)),
        *_columns(keys, key_kind, lambda j: f"the key {keys[j]!r} of {place(_position(items, j)[0])}"),
        *_columns([x for item in items for x in item.values()], value_kind, value_place),
    ]


def _position(items: Sequence[Any], j: int) -> tuple[int, int]:
    """Return which of `items` holds the overall element j, and its index there."""
    i = 0
    while j >= len(items[i]):
        j -= len(items[i])
        i += 1
    return i, j


def _of_tuples(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    n = len(kind["tuple"])
    for i, item in enumerate(items):
        _check(isinstance(item, tuple | list) and len(item) == n, place, item, kind, i)
    parts: Iterable[Any] = zip(*items, strict=True) if items else [()] * n
    found: list[list[Any]] = []
    for (k, inner), part in zip(_parts(kind), parts, strict=True):
        found += _columns(part, inner, _inside(place, k))
    return found


def _of_records(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    wanted = kind["record"].keys()
    for i, item in enumerate(items):
        _check(isinstance(item, Mapping), place, item, kind, i)
        if item.keys() != wanted:
            raise ArgumentError(
                f"{place(i)} has the keys {listed(item) or 'none'}; they must be {listed(wanted)}"
            )
    found: list[list[Any]] = []
    for key, inner in _parts(kind):
        found += _columns([item[key] for item in items], inner, _inside(place, key))
    return found


def _inside(place: Place, key: Any) -> Place:
    return lambda i: f"{place(i)}[{key!r}]"


def _plain(items: Sequence[Any], kind: str, place: Place) -> list[Any]:
    """Return plain values of one kind; ints become floats if the kind is float."""
    wanted = type(ZEROS[kind])
    found = [float(x) if type(x) is int else x for x in items] if kind == "float" else list(items)
    if set(map(type, found)) <= {wanted}:
        return found
    i = next(i for i, x in enumerate(found) if type(x) is not wanted)
    raise ArgumentError(f"{place(i)} is {described_value(found[i])}; it must be of kind {kind}")


def _arrays(items: Sequence[Any], dtype: str, rank: int, place: Place) -> list[Any]:
    """Return arrays of one dtype and rank."""
    for i, x in enumerate(items):
        if not is_array(x):
            wanted = f"it must be a tensor of {dtype} and rank {rank}"
            raise ArgumentError(f"{place(i)} is {described_value(x)}; {wanted}")
        _, found = library_of(x).array(x, place(i))
        if (found, len(x.shape)) != (dtype, rank):
            given = f"{found} and rank {len(x.shape)}"
            raise ArgumentError(f"{place(i)} is of {given}; it must be of {dtype} and rank {rank}")
    return list(items)


def _check(is_right: bool, place: Place, value: Any, kind: Kind, i: int) -> None:
    if not is_right:
        raise ArgumentError(f"{place(i)} is {described_value(value)}; it must be {described(kind)}")


def described_value(value: Any) -> str:
    """Return the type of a value in words, and the length of a list or tuple."""
    name = type(value).__name__
    return f"a {name}" + (f" of {len(value)}" if isinstance(value, list | tuple) else "")


def listed(keys: Iterable[Any]) -> str:
    """Return the keys of a dict for a message."""
    return ", ".join(str(key) if str(key).isprintable() else repr(key) for key in keys)


def join(prefix: str, key: str) -> str:
    """Return the name of a part of the value named `prefix`; either may be ""."""
    return f"{prefix}.{key}" if prefix and key else prefix or key
