"""Branches and loops that only a call decides: blocks are imported apart, then joined by `merging`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...ir.dims import DimExpr, symbol, symbols_of
from ...ir.errors import UnsupportedOp
from ...ir.graph import Block, Node, Value, erase
from ...ir.sizes import sizes_named
from ...ir.types import BOOL, ScalarType, Type
from ...ops.conditions import add_guard
from .merging import Merger, Plan, Same
from .scalars import condition_of, scalar_op, value_of
from .values import (
    UNINITIALIZED,
    Cell,
    Fails,
    Maybe,
    Memory,
    Tensor,
    Variant,
    is_tensor_value,
    next_version,
)

if TYPE_CHECKING:
    from .importer import ScriptImporter

MAX_UNROLLED = 64  # turns of a loop whose number is known
MAX_UNROLLED_AFTER_ALL = 1000  # of one that cannot be a `while`
MAX_ROUNDS = 16  # until it is known what a loop changes


@dataclass(eq=False)
class Region:
    """A block that is imported apart. `start`: the birth of what is made in it; `before`: the contents of
    cells that it changes; `after`: those it leaves; `results`; `values`: those of the results' tensors at
    its end."""

    block: Block
    start: int
    before: dict[Cell, Any] = field(default_factory=dict)
    after: dict[Cell, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)


class Regions:
    """The blocks that are open while a program is imported."""

    def __init__(self, importer: ScriptImporter) -> None:
        self.importer, self.open = importer, list[Region]()
        self.blocks = [importer.graph.body]

    def note(self, cell: Cell) -> None:
        """Keep what a cell holds before it changes."""
        for region in self.open:
            if cell.birth < region.start:
                region.before.setdefault(cell, _state(cell))

    def is_open(self, block: Block) -> bool:
        """Return True where what a block makes may be used now."""
        return block in self.blocks

    @contextmanager
    def region(self, params: Sequence[Value] = ()) -> Iterator[Region]:
        """Import into a new block; what cells held before is put back at its end."""
        b = self.importer.builder
        region = Region(Block(params=list(params)), next_version())
        outer, places, generator = b.block, dict(b.places), b.generator
        b.block, b.places, b.generator = region.block, dict(places), None
        self.open.append(region)
        self.blocks.append(region.block)
        try:
            yield region
            self._finish(region)
        finally:
            self.open.pop()
            self.blocks.pop()
            b.block, b.places, b.generator = outer, places, generator
            for cell, state in region.before.items():
                if cell not in region.after:
                    region.after[cell] = cell.content
                _restore(cell, state)

    def _finish(self, region: Region) -> None:
        region.after = {cell: cell.content for cell in region.before}
        for x in (*region.results, *region.after.values()):
            for leaf in _tensors(x):
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


def _restore(cell: Cell, state: tuple[Any, int]) -> None:
    cell.content, version = state
    if isinstance(cell, Memory):
        cell.version = version


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, tuple | list):
        for item in x:
            yield from _tensors(item)
    elif isinstance(x, dict):
        yield from _tensors(list(x.values()))
    elif isinstance(x, Cell):
        yield from _tensors(x.content)
    elif isinstance(x, Maybe):
        yield from _tensors(x.value)
    elif isinstance(x, Variant):
        yield from _tensors((x.one, x.other))


def _merger(importer: ScriptImporter, regions: Sequence[Region]) -> Merger:
    """Return a merger for what these regions yield."""
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
    """Return True for a size that is computed from others, which gives no name to a new one."""
    if node.op == "size":
        return True
    types = [arg.type for arg in node.present]
    return node.op.startswith("int_") and all(getattr(type, "expr", None) is not None for type in types)


# Branches -------------------------------------------------------------------------------------------


def import_if(importer: ScriptImporter, node: Any) -> list[Any]:
    """Import prim::If: one block where the condition is known, else both."""
    condition = importer.get(node.inputsAt(0))
    blocks = list(node.blocks())
    if isinstance(condition, Variant):
        return _import_choice(importer, condition, blocks)
    if isinstance(condition, bool):
        return importer.run_block(blocks[0 if condition else 1])
    failing = [_raise_in(block) for block in blocks]
    if any(failing) and not all(failing):
        which = 0 if failing[0] else 1
        return _import_check(importer, condition, blocks, which, node)
    flag, truths = condition, (True, False)
    while flag.node is not None and flag.node.op == "bool_not":
        (flag,), truths = flag.node.present, truths[::-1]

    def way(block: Any, is_so: bool) -> Callable[[], list[Any]]:
        return lambda: importer.knowing(flag, is_so, lambda: importer.run_block(block))

    pairs = sorted(zip(truths, blocks, strict=True), key=lambda pair: not pair[0])
    return branch(importer, flag, [way(block, is_so) for is_so, block in pairs], tells_form=True)


def _import_choice(importer: ScriptImporter, condition: Variant, blocks: Sequence[Any]) -> list[Any]:
    """A branch on which form a tensor has: in each block it has that form."""
    if not isinstance(condition.one, bool) or not isinstance(condition.other, bool):
        raise UnsupportedOp("a condition on a tensor whose rank only a call tells cannot be compiled")
    if condition.one is condition.other:
        return importer.run_block(blocks[0 if condition.one else 1])
    flag = condition.is_other

    def way(block: Any, is_other: bool) -> Callable[[], list[Any]]:
        return lambda: importer.knowing(flag, is_other, lambda: importer.run_block(block))

    when_one, when_other = (blocks[0 if found else 1] for found in (condition.one, condition.other))
    return branch(importer, flag, [way(when_other, True), way(when_one, False)], tells_form=True)


def _raise_in(block: Any) -> Any:
    """Return the node of a block that always raises, None where there is none."""
    return next((node for node in block.nodes() if node.kind() == "prim::RaiseException"), None)


def _import_check(
    importer: ScriptImporter, condition: Value, blocks: Sequence[Any], which: int, node: Any
) -> list[Any]:
    """A branch that raises is a guard; what follows is the other one."""
    b = importer.builder
    raising = _raise_in(blocks[which])

    def fail() -> list[Any]:
        for inner in blocks[which].nodes():
            if inner is raising or inner.kind() == "prim::RaiseException":
                break
            importer.run_node(inner)
        return [importer.message_of(raising)]

    right = b.one("bool_not", condition) if which == 0 else condition
    needed = condition_of(right)
    if needed is not None and b.assume is not None:
        b.assume(needed)
    with importer.trial():
        (message,) = fail()
    if isinstance(message, Value):
        return _import_message(importer, condition, blocks, which, fail)
    b.source = importer.line_of(raising)
    if needed is None:
        b.apply("guard", right, message=message)
    else:
        add_guard(b, needed, message)
    return importer.run_block(blocks[1 - which])


def _import_message(
    importer: ScriptImporter,
    condition: Value,
    blocks: Sequence[Any],
    which: int,
    fail: Callable[[], list[Any]],
) -> list[Any]:
    """A branch that raises with a message that it computes."""

    def way() -> list[Any]:
        b = importer.builder
        (message,) = fail()
        b.apply("guard", b.one("bool_not", b.one("literal", value=True)), message)
        return []

    ways = [way, list]
    branch(importer, condition, ways if which == 0 else ways[::-1])
    return importer.run_block(blocks[1 - which])


def branch(
    importer: ScriptImporter,
    condition: Value,
    ways: Sequence[Callable[[], list[Any]]],
    tells_form: bool = False,
) -> list[Any]:
    """Import two ways, of which the condition chooses when a call runs; return their joined results.
    `tells_form`: the condition is which form a value of two has."""
    arms, failed = _imported(importer, ways)
    if failed:
        return _only_way(importer, condition, ways, failed)
    merger = _merger(importer, arms)
    cells = list(dict.fromkeys(cell for arm in arms for cell in arm.after))
    items = [
        *([arm.results[i] for arm in arms] for i in range(len(arms[0].results))),
        *([arm.after.get(cell, cell.content) for arm in arms] for cell in cells),
    ]
    if tells_form:
        forms = (True, False)
        items = [
            [importer.in_form(x, condition, form) for x, form in zip(item, forms, strict=True)]
            for item in items
        ]
    values = _all_values(importer, arms, items)
    plans = [merger.widen(merger.widen(Same(UNINITIALIZED), one, values), two, values) for one, two in items]
    for i, arm in enumerate(arms):
        with importer.regions.again_in(arm):
            leaves = [
                leaf
                for plan, item in zip(plans, items, strict=True)
                for leaf in merger.leaves(plan, item[i], lambda x: values[id(x)])
            ]
            arm.block.results = leaves
    types = [type for plan in plans for type in merger.types(plan)]
    if not types and not any(arm.block.nodes for arm in arms):
        return [plan.value for plan in plans if isinstance(plan, Same)][: len(arms[0].results)]
    results = importer.builder.insert(Node("if", [condition], regions=[arm.block for arm in arms]), types)
    found = _taken(importer, merger, plans, items, cells, results)
    return [_under(condition, *pair) for pair in zip(found, items, strict=False)] if tells_form else found


def _under(flag: Value, made: Any, item: Sequence[Any]) -> Any:
    """Return what a branch on a form gives, `item` for the other form and for the one. Where these differ in
    form, the same flag tells which it is: values that depend on it then fit together."""
    if isinstance(made, Variant) and not any(isinstance(x, Variant) for x in item):
        return Variant(flag, made.other, made.one)
    return made


def _imported(
    importer: ScriptImporter, ways: Sequence[Callable[[], list[Any]]]
) -> tuple[list[Region], list[tuple[int, Fails]]]:
    """Import ways, each into a region of its own; return these, or which ways fail, without regions."""
    arms: list[Region] = []
    failed: list[tuple[int, Fails]] = []
    for i, way in enumerate(ways):
        try:
            with importer.regions.region() as arm:
                arm.results = way()
            arms.append(arm)
        except Fails as error:
            failed.append((i, error))
            _discard(importer, arm.block)
    for arm in arms if failed else ():
        _discard(importer, arm.block)
    return arms, failed


def _discard(importer: ScriptImporter, block: Block) -> None:
    """Take back all nodes of a block."""
    for node in reversed(list(block.nodes)):
        erase(block, node)


def _only_way(
    importer: ScriptImporter,
    condition: Value,
    ways: Sequence[Callable[[], list[Any]]],
    failed: Sequence[tuple[int, Fails]],
) -> list[Any]:
    """A branch of which one way always fails becomes a guard that it is the other. Raises Fails where both
    do."""
    i, error = failed[0]  # the other way may have been imported: it is imported again, outside of a block
    if len(failed) == len(ways):
        raise error
    b = importer.builder
    right = b.one("bool_not", condition) if i == 0 else condition
    b.apply("guard", right, message=str(error))
    return ways[1 - i]()


def _all_values(
    importer: ScriptImporter, regions: Sequence[Region], items: Sequence[Sequence[Any]]
) -> dict[int, Value]:
    """Return the values of all tensors in `items`, those that no region changed read here."""
    values = {key: value for region in regions for key, value in region.values.items()}
    for leaf in (leaf for item in items for x in item for leaf in _tensors(x)):
        if id(leaf) not in values:
            values[id(leaf)] = importer.tensors.read(leaf)
    return values


def _taken(
    importer: ScriptImporter,
    merger: Merger,
    plans: Sequence[Plan],
    items: Sequence[Sequence[Any]],
    cells: Sequence[Cell],
    results: Sequence[Value],
) -> list[Any]:
    """Return what a node's results stand for; the last of `plans` are of `cells`, which get them."""
    rest = iter(results)
    made = [merger.made(plan, rest) for plan in plans]
    n = len(plans) - len(cells)
    for x, found in zip(made[:n], items, strict=False):
        _share(importer, x, found)
    for cell, content in zip(cells, made[n:], strict=True):
        importer.regions.note(cell)
        cell.content = content
        if isinstance(cell, Memory):
            cell.version = next_version()
    return made[:n]


def _share(importer: ScriptImporter, made: Any, found: Sequence[Any]) -> None:
    """A tensor that a branch or loop gives may be the memory of one from outside."""
    if not isinstance(made, Tensor):
        return
    for each in found:
        if isinstance(each, Tensor) and each.memory is not made.memory:
            importer.tensors.share(made.memory, each.memory)


# Loops ----------------------------------------------------------------------------------------------


def import_loop(importer: ScriptImporter, node: Any) -> list[Any]:
    """Import prim::Loop: turn by turn where the number of turns is known, else as a `while`."""
    trip, condition, *inits = (importer.get(value) for value in node.inputs())
    (body,) = node.blocks()
    found = _unrolled(importer, trip, condition, inits, body, MAX_UNROLLED)
    if found is not None:
        return found
    try:
        with importer.trial() as trial:
            found = _Loop(importer, trip, condition, inits, body).run()
            trial.keep()
    except UnsupportedOp:  # such as a list of tensors of several sizes
        found = _unrolled(importer, trip, condition, inits, body, MAX_UNROLLED_AFTER_ALL)
        if found is None:
            raise
    return found


def _unrolled(
    importer: ScriptImporter, trip: Any, condition: Any, inits: Sequence[Any], body: Any, most: int
) -> list[Any] | None:
    """Import a loop turn by turn; None, and nothing imported, where only a call tells how many there are, or
    there are more than `most`."""
    is_while = trip == 2**63 - 1
    if not isinstance(trip, int) or not isinstance(condition, bool) or (trip > most and not is_while):
        return None
    with importer.trial() as trial:
        values, turn = list(inits), 0
        while condition and turn < trip:
            condition, *values = importer.run_block(body, [turn, *values])
            turn += 1
            if not isinstance(condition, bool) or turn > most:
                return None
        trial.keep()
        return values
    raise AssertionError


class _Loop:
    """A `while` node in the making. Variables and cells that it changes are carried; others are as
    outside."""

    def __init__(
        self, importer: ScriptImporter, trip: Any, condition: Any, inits: Sequence[Any], body: Any
    ) -> None:
        self.importer, self.body, self.inits = importer, body, list(inits)
        self.trip, self.condition = trip, condition
        self.plans: list[Plan] = [Same(x) for x in inits]
        self.cells: dict[Cell, Plan] = {}
        self.values: dict[int, Value] = {}  # of tensors outside
        self.held: dict[int, list[Memory]] = {}  # by variable: lists that have the tensor of the turn before
        for leaf in (leaf for x in inits for leaf in _tensors(x)):
            self.values[id(leaf)] = importer.tensors.read(leaf)

    def run(self) -> list[Any]:
        """Import the loop; return its variables behind it."""
        for _ in range(MAX_ROUNDS):
            if not self._widened():
                break
        else:
            raise UnsupportedOp("it is not known what a loop changes", source=self.importer.builder.source)
        return self._inserted()

    @property
    def _every_plan(self) -> list[Plan]:
        return [*self.plans, *self.cells.values()]

    def _types(self, merger: Merger) -> list[Type]:
        counter = ScalarType("int", symbol(self.importer.builder.graph.new_name("i")))
        return [counter, BOOL, *(type for plan in self._every_plan for type in merger.types(plan))]

    def _params(self, merger: Merger) -> list[Value]:
        graph = self.importer.builder.graph
        return [Value(graph.new_name("p"), type) for type in self._types(merger)]

    def _turn(self, params: Sequence[Value], region: Region, merger: Merger) -> None:
        """Import the body once."""
        rest = iter(params[2:])
        made = [merger.made(plan, rest) for plan in self.plans]
        for i, (x, init) in enumerate(zip(made, self.inits, strict=True)):
            _share(self.importer, x, [init])
            for memory in self.held.get(i, ()) if isinstance(x, Tensor) else ():
                self.importer.tensors.share(x.memory, memory)
        for cell, plan in self.cells.items():
            self.importer.regions.note(cell)
            cell.content = merger.made(plan, rest)
            if isinstance(cell, Memory):
                cell.version = next_version()
        counter = params[0].type.expr  # type: ignore[union-attr]
        region.results = self.importer.run_block(self.body, [counter, *made])
        for i, x in enumerate(region.results[1:]):
            if isinstance(x, Tensor):
                self.held[i] = [memory for memory in x.memory.others if memory.content is None]

    def _outside(self) -> Merger:
        return Merger(self.importer.builder, self.importer.tensors, lambda dim: True, lambda x: True)

    def _widened(self) -> bool:
        """Import the body for a trial; return True where it changes more than was known."""
        importer, outside = self.importer, self._outside()
        params = self._params(outside)
        with importer.trial(), importer.regions.region(params) as region:
            self._turn(params, region, outside)
        before = self._every_plan
        try:
            self._widen(region)
        finally:
            for made in list(region.block.nodes):
                erase(region.block, made)
        return before != self._every_plan

    def _widen(self, region: Region) -> None:
        """Let the plans fit what a turn gives."""
        importer, merger = self.importer, _merger(self.importer, [region])
        values = {**self.values, **region.values}
        self.plans = [
            merger.widen(plan, x, values) for plan, x in zip(self.plans, region.results[1:], strict=True)
        ]
        for cell, x in region.after.items():
            plan = self.cells.get(cell)
            if plan is None:
                for leaf in _tensors(cell.content):
                    values[id(leaf)] = self.values[id(leaf)] = importer.tensors.read(leaf)
                content = cell.content
                plan = merger.plan_of(content, values) if is_tensor_value(content) else Same(_frozen(content))
            self.cells[cell] = merger.widen(plan, x, values)

    def _inserted(self) -> list[Any]:
        importer, b, outside = self.importer, self.importer.builder, self._outside()
        params = self._params(outside)
        carried = self._carried(outside)
        with importer.regions.region(params) as region:
            self._turn(params, region, outside)
            merger = _merger(importer, [region])
            contents = [cell.content for cell in self.cells]
            items = list(zip(self._every_plan, [*region.results[1:], *contents], strict=True))
            proceed = value_of(b, scalar_op(b, "Bool", [region.results[0]]), "bool")
            leaves = [leaf for plan, x in items for leaf in merger.leaves(plan, x, importer.tensors.read)]
            one = b.one("int_add", params[0], b.size(1))
            region.block.results = [one, proceed, *leaves]
        blocks = [self._condition_block(outside), region.block]
        results = b.insert(Node("while", carried, regions=blocks), self._types(outside))
        found = [[init, x] for init, x in zip(self.inits, region.results[1:], strict=True)]
        return _taken(importer, outside, self._every_plan, found, list(self.cells), results[2:])

    def _carried(self, merger: Merger) -> list[Value]:
        """Return what the loop begins with."""
        b = self.importer.builder
        carried = [b.one("int_sub", b.size(0), b.size(0)), value_of(b, self.condition, "bool")]
        inits = [*self.inits, *(cell.content for cell in self.cells)]
        for plan, x in zip(self._every_plan, inits, strict=True):
            carried += merger.leaves(plan, x, self.importer.tensors.read)
        return carried

    def _condition_block(self, merger: Merger) -> Block:
        params = self._params(merger)
        with self.importer.regions.region(params) as region:
            b, is_while = self.importer.builder, self.trip == 2**63 - 1
            found = params[1]
            if not is_while:
                found = b.one("bool_and", found, b.one("int_lt", params[0], value_of(b, self.trip, "int")))
            region.block.results = [found]
        return region.block


def _frozen(content: Any) -> Any:
    """Return a cell's content as a plan can compare it: lists are changed in place."""
    if isinstance(content, dict):
        return dict(content)
    return list(content) if isinstance(content, list) else content


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
        for cell, state in self.region.before.items():
            _restore(cell, state)
        while len(went_stale) > self.n_stale:
            went_stale.pop().stale = ""
        b.places, b.generator = self.places, self.generator
        kept = self.importer.constant_nodes
        for node in reversed(self.block.nodes[self.n_nodes :]):
            if node not in kept:
                erase(self.block, node)


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


Handler = Callable[["ScriptImporter", Any], list[Any]]
HANDLERS: dict[str, Handler] = {"prim::If": import_if, "prim::Loop": import_loop}
__all__ = ["HANDLERS", "UNINITIALIZED", "Regions", "trial"]
