"""Joins the results of separately imported blocks: one value for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....ir.dims import DimExpr, symbols_of
from ....ir.graph import Block, Node, Value
from ....ir.sizes import sizes_named
from ..values.nested import Element
from ..values.regions import Region, tensors_in
from ..values.values import Cell, Dict, Holder, List, Maybe, Memory, Tensor, next_version
from ..walk import Walk
from .merging import Merger, Plan


def merger_of(importer: Walk, regions: Sequence[Region]) -> Merger:
    """Return a merger for the results of these regions."""
    inside = {name for region in regions for name in _names(region.block)}
    start = min(region.start for region in regions)
    made = {value for region in regions for value in _values(region.block)}

    def is_visible(dim: DimExpr) -> bool:
        return not symbols_of(dim) & inside

    def is_outer(x: Any) -> bool:
        return x not in made if isinstance(x, Value) else x.birth < start

    return Merger(importer.builder, importer.tensors, is_visible, is_outer)


def _values(block: Block) -> Iterator[Value]:
    yield from block.params
    for node in block.nodes:
        yield from node.results
        for inner in node.regions:
            yield from _values(inner)


def _names(block: Block) -> Iterator[str]:
    """Yield the names of sizes that are not known outside of a block."""
    for value in _values(block):
        if value.node is None or not _is_computed(value.node):
            yield from sizes_named(value)


def _is_computed(node: Node) -> bool:
    """Return True for a size that is computed from others, which does not name a new one."""
    if node.op == "size":
        return True
    types = [arg.type for arg in node.present]
    return node.op.startswith("int_") and all(getattr(type, "expr", None) is not None for type in types)


def all_values(importer: Walk, regions: Sequence[Region], items: Sequence[Sequence[Any]]) -> dict[int, Value]:
    """Return the values of all tensors in `items`, those that no region changed read here."""
    values = {key: value for region in regions for key, value in region.values.items()}
    for leaf in (leaf for item in items for x in item for leaf in tensors_in(x)):
        if id(leaf) not in values:
            values[id(leaf)] = importer.tensors.read(leaf)
    return values


def taken(
    importer: Walk,
    merger: Merger,
    plans: Sequence[Plan],
    items: Sequence[Sequence[Any]],
    cells: Sequence[Cell],
    results: Sequence[Value],
) -> list[Any]:
    """Return the values of a node's results; the last of `plans` belong to `cells`, which get them."""
    rest = iter(results)
    made = [merger.made(plan, rest) for plan in plans]
    n = len(plans) - len(cells)
    for x, found in zip(made[:n], items, strict=False):
        share_memory(importer, x, found)
    for cell, content in zip(cells, made[n:], strict=True):
        importer.regions.keep(cell)
        cell.content = content
        if isinstance(cell, Memory | Holder):
            cell.version = next_version()
    return made[:n]


def tie_all(importer: Walk, made: Sequence[Any], found: Sequence[Sequence[tuple[Region, Any]]]) -> None:
    """Tie the results of a branch or loop to the lists that they may be, and to their aliases."""
    for x, sources in zip(made, found, strict=True):
        tie(importer, x, sources)
    for i, x in enumerate(made):
        for j in range(i):
            if x is not made[j] and isinstance(x, Holder) and isinstance(made[j], Holder):
                pairs = zip(found[i], found[j], strict=False)
                if any(one is two for (_, one), (_, two) in pairs):
                    importer.regions.may_be(x, made[j])


def tie(importer: Walk, made: Any, found: Sequence[tuple[Region, Any]]) -> None:
    """A list that results from a branch or loop has the ties of those that it may be."""
    if isinstance(made, Maybe):
        made = made.value
    found = [(region, x.value if isinstance(x, Maybe) else x) for region, x in found]
    if isinstance(made, List | Dict) and not isinstance(made, Element):
        for region, x in found:
            if isinstance(x, Holder) and x is not made:
                ties = region.ties_of(x)
                made.ties |= replace(ties, twins=())
                for twin in dict.fromkeys((x, *(twin for twin, _ in ties.twins))):
                    if twin is not made and not isinstance(twin, Element):
                        importer.regions.may_be(made, twin)
    sources = [(region, _parts(x)) for region, x in found]
    for key, part in _parts(made).items():
        tie(importer, part, [(region, parts[key]) for region, parts in sources if key in parts])


def _parts(x: Any) -> dict[Any, Any]:
    """Return the parts of a tuple, or of a known list or dict, by their positions."""
    content = x.content if isinstance(x, List | Dict) and not isinstance(x, Element) else x
    if isinstance(content, tuple | list):
        return dict(enumerate(content))
    return content if isinstance(content, dict) else {}


def share_memory(importer: Walk, made: Any, found: Sequence[Any]) -> None:
    """A tensor that results from a branch or loop, or one in a resulting list, may share memory with an outer
    one."""
    if isinstance(made, Maybe):
        made, found = made.value, [each.value if isinstance(each, Maybe) else each for each in found]
    for each in found if isinstance(made, Tensor | Holder) else ():
        memories = [leaf.memory for leaf in tensors_in(each)]
        if isinstance(each, Holder) and len(memories) > 1:
            importer.tensors.tangle(made.memory)
        for memory in (*memories, each.memory) if isinstance(each, Holder) else memories:
            importer.tensors.share(made.memory, memory)
    sources = [_parts(each) for each in found]
    for key, part in _parts(made).items():
        share_memory(importer, part, [parts[key] for parts in sources if key in parts])
