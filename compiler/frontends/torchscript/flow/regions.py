"""Blocks that are imported apart, and imports for a trial: their end puts back what cells held before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....ir.errors import Error, UnsupportedOp
from ....ir.graph import Block, Value, erase
from ..values.nested import Element, has_lists
from ..values.values import Cell, Dict, Holder, List, Maybe, Memory, Tensor, Ties, Variant, next_version

if TYPE_CHECKING:
    from ..importer import ScriptImporter


@dataclass(eq=False)
class Region:
    """A block that is imported apart. `start`: the birth of what is made in it; `before`: the contents of
    cells that it changes; `after`: those it leaves; `untied`, `tied`: the ties of lists before and after;
    `results`; `values`: those of the results' tensors at its end; `ended`: what lists and dicts among the
    results that it changes hold at its end, by identity."""

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
        """Keep what lists and dicts in a result hold now, where the region changes them."""
        if isinstance(x, Holder) and x.root in self.before:
            self.ended[id(x)] = x.content
        elif isinstance(x, Maybe):
            self.keep_lists(x.value)
        for part in x if isinstance(x, tuple) else ():
            self.keep_lists(part)

    def at_end(self, x: Any) -> Any:
        """Return a result as it is at the end of the region, of which changes have been taken back."""
        if id(x) in self.ended:
            content = self.ended[id(x)]
            form = List if isinstance(x, List) else Dict
            return form(content, memory=x.memory, declared=x.declared)
        if isinstance(x, Maybe):
            return Maybe(x.is_there, self.at_end(x.value))
        return tuple(map(self.at_end, x)) if type(x) is tuple else x

    def ties_of(self, x: Holder) -> Ties:
        """Return the ties that a list has at the end of the region."""
        if isinstance(x, Element):
            return Ties(True, True, ((x.root, next_version()),))
        return self.tied.get(x, x.ties)


class Regions:
    """The blocks that are open while a program is imported."""

    def __init__(self, importer: ScriptImporter) -> None:
        self.importer, self.open = importer, list[Region]()
        self.blocks = [importer.graph.body]

    def note(self, cell: Cell, moves: bool = True) -> None:
        """Keep what a cell holds before the program changes it. `moves`: a list's elements may move. Raises
        UnsupportedOp for a list that is an element of another one, which would change with it."""
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
        """Keep what a list or dict holds before a tensor in it is changed in place."""
        if x.ties.is_given:
            raise UnsupportedOp(
                "a tensor is changed in place that is in a list which is in another one, too; take the list "
                "out of that one (rows[i][k].add_(1))"
            )
        self.keep(x.root)
        x.root.version = next_version()

    def tie(self, x: Holder, ties: Ties) -> None:
        """Note that a list has to do with others."""
        for region in self.open:
            region.untied.setdefault(x, x.ties)
        x.ties |= ties

    def may_be(self, x: Holder, other: Holder) -> None:
        """Note that two names may be of one list, which holds the same by both now."""
        now = next_version()
        self.tie(x, Ties(twins=((other, now),)))
        self.tie(other, Ties(twins=((x, now),)))

    def tie_as(self, regions: Sequence[Region]) -> None:
        """Note what lists have to do with others after one of these regions."""
        for region in regions:
            for x, ties in region.tied.items():
                self.tie(x, ties)

    def keep(self, cell: Cell) -> None:
        """Keep what a cell holds before it gets something else."""
        for region in self.open:
            if cell.birth < region.start:
                region.before.setdefault(cell, _state(cell))

    def is_open(self, block: Block) -> bool:
        """Return True where what a block makes may be used now."""
        return block in self.blocks

    @contextmanager
    def region(self, params: Sequence[Value] = ()) -> Iterator[Region]:
        """Import into a new block; what cells held before is put back at its end. After an error nothing is
        left in the block."""
        b = self.importer.builder
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
                region.values[id(leaf)] = self.importer.tensors.read(leaf)

    @contextmanager
    def again_in(self, region: Region) -> Iterator[None]:
        """Append more to a region's block."""
        b = self.importer.builder
        outer, b.block = b.block, region.block
        self.blocks.append(region.block)
        try:
            yield
        finally:
            self.blocks.pop()
            b.block = outer


def _state(cell: Cell) -> tuple[Any, int]:
    content = list(cell.content) if isinstance(cell.content, list) else cell.content
    content = dict(content) if isinstance(content, dict) else content
    return content, getattr(cell, "version", 0)


def restore(cell: Cell, state: tuple[Any, int]) -> None:
    """Put back what a cell held."""
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
    elif isinstance(x, Cell) and not isinstance(x, Element):
        yield from tensors_in(x.content)
    elif isinstance(x, Maybe):
        yield from tensors_in(x.value)
    elif isinstance(x, Variant):
        yield from tensors_in((x.one, x.other))


# Trials ---------------------------------------------------------------------------------------------


class Trial:
    """What is imported within it is taken back at its end, unless `keep` is called."""

    def __init__(self, importer: ScriptImporter) -> None:
        b = importer.builder
        self.importer, self.block, self.n_nodes = importer, b.block, len(b.block.nodes)
        self.places, self.generator = dict(b.places), b.generator
        self.region = Region(b.block, next_version())
        self.n_stale = len(importer.tensors.went_stale)
        self.is_kept = False

    def keep(self) -> None:
        """Take nothing back."""
        self.is_kept = True

    def end(self) -> None:
        """Take back what was imported."""
        if self.is_kept:
            return
        b, went_stale = self.importer.builder, self.importer.tensors.went_stale
        self.region.untie()
        for cell, state in self.region.before.items():
            restore(cell, state)
        while len(went_stale) > self.n_stale:
            went_stale.pop().stale = ""
        b.places, b.generator = self.places, self.generator
        kept = self.importer.constant_nodes
        for node in reversed(self.block.nodes[self.n_nodes :]):
            if node not in kept:
                erase(self.block, node)


def take_back(block: Block) -> None:
    """Take all nodes out of a block."""
    for node in reversed(list(block.nodes)):
        erase(block, node)


@contextmanager
def trial(importer: ScriptImporter) -> Iterator[Trial]:
    """Import for a trial."""
    made = Trial(importer)
    importer.regions.open.append(made.region)
    try:
        yield made
    finally:
        importer.regions.open.remove(made.region)
        made.end()
