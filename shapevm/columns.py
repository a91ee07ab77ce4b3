"""Lists and dicts of any length as *columns*: flat lists, one for each number, string or array in an element.

A *kind* says what an element is:
  "int", "float", "bool", "str"    a plain value
  [dtype, rank]                    an array
  {"tuple": [kind, ..]}            a tuple of these
  {"many": kind}                   a list of any length of elements of one kind
  {"pairs": [kind, kind]}          a dict of any keys, plain ones, with values of one kind
A plain value or an array has one column, a tuple those of its parts. A list has those of the elements of all
lists behind each other; where it is in another one, the column of its lengths stands before these. A dict has
the columns of its keys and those of its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from .vm.arrays import is_array, library_of
from .vm.errors import ArgumentError
from .vm.program import NUMPY_DTYPES
from .vm.verify import MAX_RANK

Kind = Any
ZEROS: dict[str, Any] = {"bool": False, "int": 0, "float": 0.0, "str": ""}
LENGTHS, ITEMS, KEYS, VALUES = "lengths", "items", "keys", "values"
#: From the position of an element to its name.
Place = Callable[[int], str]


def is_kind(kind: Any) -> bool:
    """Return True for a kind of elements."""
    if isinstance(kind, str):
        return kind in ZEROS
    if isinstance(kind, dict) and len(kind) == 1:
        ((name, inner),) = kind.items()
        parts = [inner] if name == "many" else inner
        is_right = name == "many" or (isinstance(inner, list) and (name == "tuple" or len(inner) == 2))
        is_right = is_right and (name != "pairs" or inner[0] in list(ZEROS))
        return name in ("tuple", "many", "pairs") and is_right and bool(parts) and all(map(is_kind, parts))
    is_pair = isinstance(kind, list) and len(kind) == 2 and isinstance(kind[0], str)
    return is_pair and kind[0] in NUMPY_DTYPES and kind[1] in range(MAX_RANK + 1)


def names(kind: Kind, prefix: str) -> list[str]:
    """Return the names of the columns of elements of a kind."""
    if not isinstance(kind, dict):
        return [prefix]
    if "many" in kind:
        return [join(prefix, LENGTHS), *names(kind["many"], join(prefix, ITEMS))]
    parts = enumerate(kind["tuple"]) if "tuple" in kind else zip((KEYS, VALUES), kind["pairs"], strict=True)
    return [name for key, part in parts for name in names(part, join(prefix, str(key)))]


def columns_of(value: Any, kind: Kind, path: str) -> list[list[Any]]:
    """Return the columns of a list ({"many": ..}) or dict ({"pairs": ..}). Raises ArgumentError for another
    value, with the name of the part that is wrong."""
    if "pairs" in kind:
        keys, values = kind["pairs"]
        _check(isinstance(value, Mapping), path, value, kind)
        pairs = list(value)
        return [
            *_columns(pairs, keys, lambda i: f"{path}.{KEYS}.{i}"),
            *_columns(list(value.values()), values, lambda i: f"{path}.{pairs[i]}"),
        ]
    _check(isinstance(value, list | tuple), path, value, kind)
    return _columns(value, kind["many"], lambda i: f"{path}.{i}")


def value_of(columns: Sequence[Sequence[Any]], kind: Kind) -> Any:
    """Return the list or dict that has these columns. Raises ArgumentError where they do not fit."""
    given = iter(columns)
    try:
        if "pairs" in kind:
            keys, values = (_elements(given, part) for part in kind["pairs"])
            return dict(zip(keys, values, strict=True))
        return _elements(given, kind["many"])
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
    return f"{before}tuple{plural} of ({', '.join(described(part) for part in kind['tuple'])})"


def _elements(columns: Iterator[Sequence[Any]], kind: Kind) -> list[Any]:
    """Return the elements of one kind that have the next columns."""
    if not isinstance(kind, dict):
        return list(next(columns))
    if "tuple" in kind:
        return list(zip(*[_elements(columns, part) for part in kind["tuple"]], strict=True))
    lengths, items = next(columns), iter(_elements(columns, kind["many"]))
    return [list(itertools.islice(items, length)) for length in lengths]


def _columns(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    """Return the columns of elements of one kind."""
    if isinstance(kind, str):
        return [_plain(items, kind, place)]
    if isinstance(kind, list):
        return [_arrays(items, kind[0], kind[1], place)]
    if "tuple" in kind:
        return _of_tuples(items, kind, place)
    for i, item in enumerate(items):
        _check(isinstance(item, list | tuple), place, item, kind, i)
    places = [(i, k) for i, item in enumerate(items) for k in range(len(item))]
    inner = [x for item in items for x in item]
    found = _columns(inner, kind["many"], lambda j: f"{place(places[j][0])}.{places[j][1]}")
    return [list(map(len, items)), *found]


def _of_tuples(items: Sequence[Any], kind: Kind, place: Place) -> list[list[Any]]:
    n = len(kind["tuple"])
    for i, item in enumerate(items):
        _check(isinstance(item, tuple | list) and len(item) == n, place, item, kind, i)
    parts: Iterable[Any] = zip(*items, strict=True) if items else [()] * n
    found: list[list[Any]] = []
    for k, (part, inner) in enumerate(zip(parts, kind["tuple"], strict=True)):
        found += _columns(part, inner, partial(_place_in, place, k))
    return found


def _place_in(place: Place, key: int, i: int) -> str:
    return f"{place(i)}.{key}"


def _plain(items: Sequence[Any], kind: str, place: Place) -> list[Any]:
    """Return plain values of one kind; ints become floats where these are wanted."""
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


def _check(is_right: bool, place: str | Place, value: Any, kind: Kind, i: int = 0) -> None:
    if not is_right:
        path = place if isinstance(place, str) else place(i)
        raise ArgumentError(f"{path} is {described_value(value)}; it must be {described(kind)}")


def described_value(value: Any) -> str:
    """Return the type of a value in words, and the length of a list or tuple."""
    name = type(value).__name__
    return f"a {name}" + (f" of {len(value)}" if isinstance(value, list | tuple) else "")


def join(prefix: str, key: str) -> str:
    """Return the name of a part of what is named `prefix`; either may be ""."""
    return f"{prefix}.{key}" if prefix and key else prefix or key
