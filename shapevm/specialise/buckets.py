"""Buckets: ranges of sizes whose kernels are compiled ahead and stored in the artifact.

    buckets={"length": [16, 32, (33, 128), "round 64 to 512", "max 2048", "multiple 8"]}

An item is a size, a range (low, high), "max N" (from above the preceding item to N), "round N to M" (one
range for each multiple of N: all sizes that round up to it share a kernel; from above the preceding item to
M, by default the greatest size allowed) or "multiple N" (the multiples of N only, whose kernels need no code
for remainders). Several dimensions form the product of their items, in order. A launch uses exact code for
its sizes, else the first bucket that contains them, else generic code.

Kernels for sizes that round up to the same multiple of 16 process the same number of vectors at each of them,
the last one masked: lanes beyond the size are computed and discarded. No tensor is padded and no sum changes
its terms.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..vm.errors import ArgumentError
from ..vm.program import KernelKey, Program, SizeRange, Symbol
from ..vm.sizes import kernel_keys

if TYPE_CHECKING:
    from ..jit.store import KernelStore
    from ..vm.program import KernelObject

MAX_CELLS = 4096  # of a product of buckets
MAX_KERNELS = 1 << 14  # of all buckets together: some minutes of compiling, some 100 MB

#: One cell of the product: a size or a range for each named dimension.
Cell = dict[str, int | SizeRange]
Buckets = Mapping[str, Sequence[Any]]

_ITEM = re.compile(
    r"(?P<low>\d+)\.\.(?P<high>\d+)?(/(?P<step>\d+))?|(?P<size>\d+)|max *(?P<max>\d+)"
    r"|multiple *(?P<multiple>\d+)|round *(?P<round>\d+)( *to *(?P<to>\d+))?"
)


def parse_buckets(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Parse buckets from texts like "length=16,32,33..128,round64to512".

    Raises ArgumentError for a text of any other form.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, items = text.partition("=")
        if not equals or not items:
            raise ArgumentError(f"buckets {text!r} must look like length=16,32,33..128,round64to512")
        found.setdefault(name.strip(), []).extend(item.strip() for item in items.split(","))
    return found


def cells(buckets: Buckets, symbols: Sequence[Symbol]) -> list[Cell]:
    """Return the cells of the product of all dimensions' items.

    Raises ArgumentError for a dimension or an item that the contract does not allow.
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
        raise ArgumentError(
            f"buckets: their product has {total} cells; at most {MAX_CELLS} are allowed: "
            "take wider ranges, or round up to greater multiples"
        )
    return (
        [dict(zip(buckets, choice, strict=True)) for choice in itertools.product(*items)] if buckets else []
    )


def _items(symbol: Symbol, wanted: Sequence[Any]) -> list[int | SizeRange]:
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence) or not wanted:
        raise ArgumentError(f"buckets: {symbol.name} is {wanted!r}; it must be a list of sizes and ranges")
    found: list[int | SizeRange] = []
    top = symbol.min - 1
    for item in wanted:
        found += _item(symbol, item, top)
        end = found[-1] if isinstance(found[-1], int) else found[-1].max
        top = max(top, end) if end is not None else top
    return found


def _item(symbol: Symbol, item: Any, top: int) -> list[int | SizeRange]:
    """Return the sizes and ranges of one item; `top`: the greatest size before it."""
    match item:
        case bool():
            pass
        case int():
            return [_fitted(symbol, item, SizeRange(item, item))]
        case SizeRange():
            return [_fitted(symbol, item, item)]
        case (int(low), int(high)):
            return [_fitted(symbol, item, SizeRange(low, high))]
        case str() if parts := _ITEM.fullmatch(item.strip()):
            if parts["round"]:
                return _classes(symbol, item, int(parts["round"]), parts["to"], top)
            return [_fitted(symbol, item, _range_of(parts, symbol, top))]
    raise ArgumentError(
        f"buckets: {symbol.name} has the item {item!r}; an item is a size, a pair (low, high), "
        '"max N", "round N to M", "multiple N" or "LOW..HIGH/STEP"'
    )


def _classes(symbol: Symbol, item: str, multiple: int, to: str | None, top: int) -> list[int | SizeRange]:
    """Return the ranges of sizes above `top` that round up to the same multiple, up to `to`."""
    what = f"buckets: {symbol.name} has the item {item!r}"
    end = symbol.max if to is None else int(to)
    if end is None:
        raise ArgumentError(f'{what} and no greatest size; say where it ends: "round {multiple} to 512"')
    if multiple < 1:
        raise ArgumentError(f"{what}; sizes round up to multiples of 1 or more")
    if end <= top:
        raise ArgumentError(f"{what} behind {top}, which leaves no sizes up to {end}; put it before")
    whole = _fitted(symbol, item, SizeRange(top + 1, end))
    low, high = (whole, whole) if isinstance(whole, int) else (whole.min, whole.max or 0)
    step = symbol.multiple_of
    edges = range(-(-low // multiple), -(-high // multiple) + 1)
    if len(edges) > MAX_CELLS:
        raise ArgumentError(
            f"{what}, {len(edges)} buckets; at most {MAX_CELLS} are allowed: round up to a greater multiple"
        )
    ranges = [(max(low, (n - 1) * multiple + 1), min(high, n * multiple)) for n in edges]
    return [
        _fitted(symbol, item, SizeRange(first, last))
        for first, last in ranges
        if -(-first // step) * step <= last
    ]


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
    """Return the part of a range that the contract allows, as a size if it is a single one."""
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
    if wanted.max is not None and wanted.max < wanted.min:
        raise ArgumentError(
            f"buckets: {symbol.name} has the item {item!r}; a range begins with its least size"
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


def keys_of_buckets(program: Program, buckets: Buckets) -> tuple[dict[int, list[KernelKey]], str]:
    """Return `keys_of` the buckets' cells, and their number as text.

    Raises ArgumentError for more than MAX_KERNELS kernels, and the errors of `cells`.
    """
    wanted = cells(buckets, program.symbols)
    found = keys_of(program, wanted)
    n_kernels = sum(map(len, found.values()))
    text = f"{n_kernels:,} kernels for {len(wanted):,} bucket{'' if len(wanted) == 1 else 's'}"
    if n_kernels > MAX_KERNELS:
        raise ArgumentError(
            f"buckets: {text}; at most {MAX_KERNELS:,} are compiled: take wider ranges, or round up to "
            "greater multiples"
        )
    return found, text


def _is_exact(key: KernelKey) -> bool:
    return key is not None and all(isinstance(size, int) for size in key)


def add_keys(
    program: Program,
    store: KernelStore,
    wanted: Mapping[int, Sequence[KernelKey]],
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Program:
    """Return `program` with code for these keys appended; existing keys keep their code."""
    from ..jit.spec_reader import from_json

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


def add_cells(program: Program, store: KernelStore, wanted: Iterable[Cell]) -> Program:
    """Return `program` with the code that its kernels have in these cells appended."""
    return add_keys(program, store, keys_of(program, wanted))
