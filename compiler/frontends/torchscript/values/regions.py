"""Separately imported blocks, and tentative imports: at their end the previous contents of cells are
restored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....ir.errors import Error, UnsupportedOp
from ....ir.graph import Block, Builder, Node, Value, erase
from .tensors import Tensors
from .values import (
    Cell,
    Dict,
    Holder,
    List,
    Maybe,
    Memory,
    Part,
    Tensor,
    Ties,
    Variant,
    has_lists,
    next_version,
)


@dataclass(eq=False)
class Region:
    """A separately imported block. `start`: the birth of values made in it; `before`: the contents of
    cells that it changes; `after`: those it leaves; `untied`, `tied`: the ties of lists before and after;
    `results`; `values`: those of the results' tensors at its end; `ended`: the contents at its end of changed
    lists and dicts among the results, by identity."""

    block: Block
    start: int
    before: dict[Cell, Any] = field(default_factory=dict)
    untied: dict[Holder, Ties] = field(default_factory=dict)
    tied: dict[Holder, Ties] = field(default_factory=dict)
    after: dict[Cell, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)
    ended: dict[int, Any] = field(default_factory=dict)

    def untie(self) -> None:
        """Give lists the ties that they had before."""
        for x, ties in self.untied.items():
            self.tied[x], x.ties = x.ties, ties

    def keep_lists(self, x: Any) -> None:
        """Keep the present contents of lists and dicts in a result that the region changes."""
        if isinstance(x, Holder) and x.root in self.before:
            self.ended[id(x)] = x.content
        elif isinstance(x, Maybe):
            self.keep_lists(x.value)
        for part in x if isinstance(x, tuple) else ():
            self.keep_lists(part)

    def at_end(self, x: Any) -> Any:
        """Return a result as of the end of the region, whose changes have been reverted."""
        if id(x) in self.ended:
            content = self.ended[id(x)]
            form = List if isinstance(x, List) else Dict
            return form(content, memory=x.memory, declared=x.declared)
        if isinstance(x, Maybe):
            return Maybe(x.is_there, self.at_end(x.value))
        return tuple(map(self.at_end, x)) if type(x) is tuple else x

    def ties_of(self, x: Holder) -> Ties:
        """Return the ties that a list has at the end of the region."""
        if isinstance(x, Part):
            return Ties(True, True, ((x.root, next_version()),))
        return self.tied.get(x, x.ties)


class Regions:
    """The blocks that are open while a program is imported. `read`: the newest value of a tensor."""

    def __init__(self, builder: Builder, read: Callable[[Tensor], Value]) -> None:
        self.builder, self._read, self.open = builder, read, list[Region]()
        self.blocks = [builder.graph.body]

    def note(self, cell: Cell, moves: bool = True) -> None:
        """Keep the content of a cell before the program changes it. `moves`: a list's elements may move.
        Raises UnsupportedOp for a list that is an element of another one, which would change with it."""
        if isinstance(cell, Holder):
            if cell.ties.is_given:
                raise UnsupportedOp(
                    "a list is changed that is in another list, too; change it there (rows[i].append(x)), or "
                    "put it there when it is complete"
                )
            if moves:
                cell.root.moved = next_version()
                cell.root.layout = next_version() if has_lists(cell) else cell.root.layout
            cell = cell.root
            cell.resized = next_version()
        self.keep(cell)
        if isinstance(cell, Holder):
            cell.version = next_version()

    def note_tensor(self, x: Holder) -> None:
        """Keep the content of a list or dict before a tensor in it is changed in place."""
        if x.ties.is_given:
            raise UnsupportedOp(
                "a tensor is changed in place that is in a list which is in another one, too; take the list "
                "out of that one (rows[i][k].add_(1))"
            )
        self.keep(x.root)
        x.root.version = next_version()

    def tie(self, x: Holder, ties: Ties) -> None:
        """Note that a list is related to others."""
        for region in self.open:
            region.untied.setdefault(x, x.ties)
        x.ties |= ties

    def may_be(self, x: Holder, other: Holder) -> None:
        """Note that two names may refer to one list, with equal contents now."""
        now = next_version()
        self.tie(x, Ties(twins=((other, now),)))
        self.tie(other, Ties(twins=((x, now),)))

    def tie_as(self, regions: Sequence[Region]) -> None:
        """Note the relations of lists after one of these regions."""
        for region in regions:
            for x, ties in region.tied.items():
                self.tie(x, ties)

    def keep(self, cell: Cell) -> None:
        """Keep the content of a cell before it is replaced."""
        for region in self.open:
            if cell.birth < region.start:
                region.before.setdefault(cell, _state(cell))

    def is_open(self, block: Block) -> bool:
        """Return True if values made in a block may be used now."""
        return block in self.blocks

    @contextmanager
    def region(self, params: Sequence[Value] = ()) -> Iterator[Region]:
        """Import into a new block; the previous contents of cells are restored at its end. After an error
        nothing is left in the block."""
        b = self.builder
        region = Region(Block(params=list(params)), next_version())
        outer, places, generator = b.block, dict(b.places), b.generator
        b.block, b.places, b.generator = region.block, dict(places), None
        self.open.append(region)
        self.blocks.append(region.block)
        try:
            yield region
            self._finish(region)
        except Error:
            take_back(region.block)
            raise
        finally:
            self.open.pop()
            self.blocks.pop()
            b.block, b.places, b.generator = outer, places, generator
            for cell, state in region.before.items():
                if cell not in region.after:
                    region.after[cell] = cell.content
                restore(cell, state)
            region.untie()

    def _finish(self, region: Region) -> None:
        region.after = {cell: cell.content for cell in region.before}
        for x in region.results:
            region.keep_lists(x)
        for x in (*region.results, *region.after.values()):
            for leaf in tensors_in(x):
                region.values[id(leaf)] = self._read(leaf)

    @contextmanager
    def trial(self, went_stale: list[Memory], constants: Set[Node]) -> Iterator[Trial]:
        """Import for a trial. `went_stale`: memories as they went stale; `constants`: nodes that stay."""
        made = Trial(self.builder, went_stale, constants)
        self.open.append(made.region)
        try:
            yield made
        finally:
            self.open.remove(made.region)
            made.end()

    @contextmanager
    def again_in(self, region: Region) -> Iterator[None]:
        """Append more to a region's block."""
        b = self.builder
        outer, b.block = b.block, region.block
        self.blocks.append(region.block)
        try:
            yield
        finally:
            self.blocks.pop()
            b.block = outer


class Making(Protocol):
    """What values are made with; the walk is one."""

    builder: Builder
    tensors: Tensors
    regions: Regions


def _state(cell: Cell) -> tuple[Any, int]:
    content = list(cell.content) if isinstance(cell.content, list) else cell.content
    content = dict(content) if isinstance(content, dict) else content
    return content, getattr(cell, "version", 0)


def restore(cell: Cell, state: tuple[Any, int]) -> None:
    """Restore the content of a cell."""
    cell.content, version = state
    if isinstance(cell, Memory | Holder):
        cell.version = version


def tensors_in(x: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, tuple | list):
        for item in x:
            yield from tensors_in(item)
    elif isinstance(x, dict):
        yield from tensors_in(list(x.values()))
    elif isinstance(x, Cell) and not isinstance(x, Part):
        yield from tensors_in(x.content)
    elif isinstance(x, Maybe):
        yield from tensors_in(x.value)
    elif isinstance(x, Variant):
        yield from tensors_in((x.one, x.other))


# Trials ---------------------------------------------------------------------------------------------


class Trial:
    """Everything imported within it is reverted at its end, unless `keep` is called."""

    def __init__(self, builder: Builder, went_stale: list[Memory], constants: Set[Node]) -> None:
        self.builder, self.block, self.n_nodes = builder, builder.block, len(builder.block.nodes)
        self.places, self.generator = dict(builder.places), builder.generator
        self.region = Region(builder.block, next_version())
        self.went_stale, self.n_stale, self.constants = went_stale, len(went_stale), constants
        self.is_kept = False

    def keep(self) -> None:
        """Keep everything."""
        self.is_kept = True

    def end(self) -> None:
        """Revert the import."""
        if self.is_kept:
            return
        self.region.untie()
        for cell, state in self.region.before.items():
            restore(cell, state)
        while len(self.went_stale) > self.n_stale:
            self.went_stale.pop().stale = ""
        self.builder.places, self.builder.generator = self.places, self.generator
        for node in reversed(self.block.nodes[self.n_nodes :]):
            if node not in self.constants:
                erase(self.block, node)


def take_back(block: Block) -> None:
    """Take all nodes out of a block."""
    for node in reversed(list(block.nodes)):
        erase(block, node)
