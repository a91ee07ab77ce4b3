"""Loops: unrolled if the number of iterations is known, else as a `while` whose body is imported
separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.dims import symbol
from ....ir.errors import UnsupportedOp
from ....ir.graph import Block, Node, Value, erase
from ....ir.types import BOOL, ScalarType, Type
from ..values.regions import Region, tensors_in
from ..values.scalars import scalar_op, value_of
from ..values.values import Cell, Holder, Memory, Tensor, is_same, is_tensor_value, next_version
from ..walk import Walk
from .joining import merger_of, share_memory, taken, tie_all
from .merging import Merger, Plan, Same

MAX_UNROLLED = 64  # iterations of a loop with a known count
MAX_UNROLLED_AFTER_ALL = 1000  # of one that cannot be a `while`
MAX_ROUNDS = 16  # to find out what a loop changes


def import_loop(importer: Walk, node: Any) -> list[Any]:
    """Import prim::Loop: unrolled if the number of iterations is known, else as a `while`."""
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
    importer: Walk, trip: Any, condition: Any, inits: Sequence[Any], body: Any, most: int
) -> list[Any] | None:
    """Unroll a loop; None, with nothing imported, if the number of iterations is a run-time value or above
    `most`."""
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

    def __init__(self, importer: Walk, trip: Any, condition: Any, inits: Sequence[Any], body: Any) -> None:
        self.importer, self.body, self.inits = importer, body, list(inits)
        self.trip, self.condition = trip, condition
        self.plans: list[Plan] = [Same(x) for x in inits]
        self.cells: dict[Cell, Plan] = {}
        self.values: dict[int, Value] = {}  # of tensors outside
        self.held: dict[int, list[Memory]] = {}  # by variable: lists with the previous iteration's tensor
        self.before: tuple[Region, list[Any]] | None = None  # the previous iteration, and its results
        for leaf in (leaf for x in inits for leaf in tensors_in(x)):
            self.values[id(leaf)] = importer.tensors.read(leaf)

    def run(self) -> list[Any]:
        """Import the loop; return its variables after it."""
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
            share_memory(self.importer, x, [init])
            for memory in self.held.get(i, ()) if isinstance(x, Tensor) else ():
                self.importer.tensors.share(x.memory, memory)
        for cell, plan in self.cells.items():
            self.importer.regions.keep(cell)
            cell.content = merger.made(plan, rest)
            if isinstance(cell, Memory | Holder):
                cell.version = next_version()
        sources = [self._found(i, region, init) for i, init in enumerate(self.inits)]
        tie_all(self.importer, made, sources)
        counter = params[0].type.expr  # type: ignore[union-attr]
        region.results = self.importer.run_block(self.body, [counter, *made])
        for i, x in enumerate(region.results[1:]):
            if isinstance(x, Tensor):
                memories = (x.memory, *x.memory.others)
                self.held[i] = [memory for memory in memories if memory.content is None]

    def _found(self, i: int, region: Region, init: Any) -> list[tuple[Region, Any]]:
        """Return what a variable may be: its value before the loop, or the previous iteration's result."""
        found = [(region, init)]
        if self.before is not None:
            found.append((self.before[0], self.before[1][i]))
        return found

    def _outside(self) -> Merger:
        return Merger(self.importer.builder, self.importer.tensors, lambda dim: True, lambda x: True)

    def _widened(self) -> bool:
        """Import the body tentatively; return True if it changes more than was known."""
        importer, outside = self.importer, self._outside()
        params = self._params(outside)
        with importer.trial(), importer.regions.region(params) as region:
            self._turn(params, region, outside)
        self.before = region, region.results[1:]
        importer.regions.tie_as([region])
        before = self._every_plan
        try:
            self._widen(region)
        finally:
            for made in list(region.block.nodes):
                erase(region.block, made)
        return before != self._every_plan

    def _widen(self, region: Region) -> None:
        """Widen the plans to fit an iteration's results."""
        importer, merger = self.importer, merger_of(self.importer, [region])
        values = {**self.values, **region.values}
        found = [
            x if isinstance(plan, Same) and is_same(plan.value, x) else region.at_end(x)
            for plan, x in zip(self.plans, region.results[1:], strict=True)
        ]
        self.plans = [merger.widen(plan, x, values) for plan, x in zip(self.plans, found, strict=True)]
        for cell, x in region.after.items():
            plan = self.cells.get(cell)
            if plan is None:
                for leaf in tensors_in(cell.content):
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
            merger = merger_of(importer, [region])
            contents = [cell.content for cell in self.cells]
            items = list(zip(self._every_plan, [*region.results[1:], *contents], strict=True))
            proceed = value_of(b, scalar_op(b, "Bool", [region.results[0]]), "bool")
            leaves = [leaf for plan, x in items for leaf in merger.leaves(plan, x, importer.tensors.read)]
            one = b.one("int_add", params[0], b.size(1))
            region.block.results = [one, proceed, *leaves]
        blocks = [self._condition_block(outside), region.block]
        results = b.insert(Node("while", carried, regions=blocks), self._types(outside))
        found = [[init, x] for init, x in zip(self.inits, region.results[1:], strict=True)]
        made = taken(importer, outside, self._every_plan, found, list(self.cells), results[2:])
        tie_all(importer, made, [[(region, each) for each in pair] for pair in found])
        importer.regions.tie_as([region])
        return made

    def _carried(self, merger: Merger) -> list[Value]:
        """Return the loop's initial values."""
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
    """Return an immutable copy of a cell's content, for comparison with plans: lists are changed in place."""
    if isinstance(content, dict):
        return dict(content)
    return list(content) if isinstance(content, list) else content
