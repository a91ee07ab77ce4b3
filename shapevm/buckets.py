"""Buckets: ranges of sizes whose kernels are compiled ahead and travel in the artifact.

    buckets={"length": [16, 32, (33, 128), "max 512", "multiple 8"]}

An item is a size, a range (low, high), "max N" (from behind the greatest size before it to N) or "multiple N"
(the multiples of N). Several dimensions make the product of their items, in order. A launch takes exact code
of its sizes, else the first bucket that they are in, else generic code. Kernels take any number of rows and
columns as they are, so nothing is padded: "multiple N" is for the multiples of N only, whose kernels need no
code for remainders.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .vm.errors import ArgumentError
from .vm.program import KernelKey, Program, SizeRange, Symbol
from .vm.sizes import kernel_keys

if TYPE_CHECKING:
    from .jit.store import KernelStore
    from .vm.program import KernelObject

MAX_CELLS = 4096  # of a product of buckets

#: One cell of the product: for each dimension that is named a size or a range.
Cell = dict[str, int | SizeRange]
Buckets = Mapping[str, Sequence[Any]]

_ITEM = re.compile(
    r"(?P<low>\d+)\.\.(?P<high>\d+)?(/(?P<step>\d+))?|(?P<size>\d+)|max *(?P<max>\d+)"
    r"|multiple *(?P<multiple>\d+)"
)


def parse_buckets(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Return the buckets that texts like "length=16,32,33..128,max512,multiple8" say.

    Raises ArgumentError for a text of another form.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, items = text.partition("=")
        if not equals or not items:
            raise ArgumentError(f"buckets {text!r} must look like length=16,32,33..128,max512,multiple8")
        found.setdefault(name.strip(), []).extend(item.strip() for item in items.split(","))
    return found


def format_buckets(buckets: Buckets, symbols: Sequence[Symbol]) -> list[str]:
    """Return buckets as the command line takes them, one text for each dimension."""
    known = {symbol.name: symbol for symbol in symbols}
    return [f"{name}={','.join(map(str, _items(known[name], items)))}" for name, items in buckets.items()]


def cells(buckets: Buckets, symbols: Sequence[Symbol]) -> list[Cell]:
    """Return the cells of the product of all dimensions' items.

    Raises ArgumentError for a dimension or an item that the contract does not have room for.
    """
    known = {symbol.name: symbol for symbol in symbols}
    for name in buckets:
        if name not in known:
            raise ArgumentError(
                f"buckets: no size is named {name!r}; the program has {', '.join(known) or 'none'}"
            )
    items = [_items(known[name], wanted) for name, wanted in buckets.items()]
    total = math.prod(map(len, items))
    if total > MAX_CELLS:
        raise ArgumentError(f"buckets: their product has {total} cells; at most {MAX_CELLS} are allowed")
    return (
        [dict(zip(buckets, choice, strict=True)) for choice in itertools.product(*items)] if buckets else []
    )


def _items(symbol: Symbol, wanted: Sequence[Any]) -> list[int | SizeRange]:
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence) or not wanted:
        raise ArgumentError(f"buckets: {symbol.name} is {wanted!r}; it must be a list of sizes and ranges")
    found: list[int | SizeRange] = []
    top = symbol.min - 1
    for item in wanted:
        made = _item(symbol, item, top)
        found.append(made)
        end = made if isinstance(made, int) else made.max
        top = max(top, end) if end is not None else top
    return found


def _item(symbol: Symbol, item: Any, top: int) -> int | SizeRange:
    """Return one item; `top`: the greatest size before it."""
    match item:
        case bool():
            pass
        case int():
            return _fitted(symbol, item, SizeRange(item, item))
        case SizeRange():
            return _fitted(symbol, item, item)
        case (int(low), int(high)):
            return _fitted(symbol, item, SizeRange(low, high))
        case str() if parts := _ITEM.fullmatch(item.strip()):
            return _fitted(symbol, item, _range_of(parts, symbol, top))
    raise ArgumentError(
        f"buckets: {symbol.name} has the item {item!r}; an item is a size, a pair (low, high), "
        '"max N", "multiple N" or "LOW..HIGH/STEP"'
    )


def _range_of(parts: re.Match[str], symbol: Symbol, top: int) -> SizeRange:
    number = {name: int(text) for name, text in parts.groupdict().items() if text is not None}
    if "size" in number:
        return SizeRange(number["size"], number["size"])
    if "max" in number:
        return SizeRange(top + 1, number["max"])
    if "multiple" in number:
        return SizeRange(symbol.min, symbol.max, number["multiple"])
    return SizeRange(number["low"], number.get("high", symbol.max), number.get("step", 1))


def _fitted(symbol: Symbol, item: Any, wanted: SizeRange) -> int | SizeRange:
    """Return the part of a range that the contract allows, as a size where it is one."""
    bounds = f"{symbol.min}..{'' if symbol.max is None else symbol.max}"
    if wanted.multiple_of < 1:
        raise ArgumentError(f"buckets: {symbol.name} has the item {item!r}; multiples are of 1 or more")
    step = math.lcm(wanted.multiple_of, symbol.multiple_of)
    low = -(-max(wanted.min, symbol.min) // step) * step
    tops = [x for x in (wanted.max, symbol.max) if x is not None]
    high = min(tops) // step * step if tops else None
    is_outside = wanted.min < symbol.min or (
        symbol.max is not None and wanted.max is not None and wanted.max > symbol.max
    )
    if is_outside or (high is not None and high < low):
        text = f", a multiple of {symbol.multiple_of}" if symbol.multiple_of != 1 else ""
        raise ArgumentError(f"buckets: {symbol.name} has the item {item!r}; the program takes {bounds}{text}")
    return low if low == high else SizeRange(low, high, step)


# Programs ---------------------------------------------------------------------------------------------


def keys_of(program: Program, wanted: Iterable[Cell]) -> dict[int, list[KernelKey]]:
    """Return the keys that the kernels have in these cells, by kernel; exact ones come first."""
    found: dict[int, dict[KernelKey, None]] = {}
    for cell in wanted:
        for kernel, key in kernel_keys(program, cell, list(cell)):
            found.setdefault(kernel, {})[key] = None
    return {k: sorted(keys, key=lambda key: not _is_exact(key)) for k, keys in found.items()}


def _is_exact(key: KernelKey) -> bool:
    return key is not None and all(isinstance(size, int) for size in key)


def add_keys(
    program: Program,
    store: KernelStore,
    wanted: Mapping[int, Sequence[KernelKey]],
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Program:
    """Return `program` with code for these keys, behind what it has; keys that it has code for stay as they
    are."""
    from .jit.spec import from_json

    kernels, done, total = list(program.kernels), 0, sum(map(len, wanted.values()))
    for index, keys in wanted.items():
        kernel = kernels[index]
        spec, have = from_json(kernel.spec), {o.key for o in kernel.objects}
        made: list[KernelObject] = []
        for key in keys:
            notify(done, total)
            done += 1
            if key not in have:
                made.append(store.object(spec, key))
        kernels[index] = replace(kernel, objects=(*kernel.objects, *made))
    return replace(program, kernels=tuple(kernels))
