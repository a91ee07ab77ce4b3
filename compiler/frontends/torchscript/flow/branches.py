"""Run-time branches: both ways are imported separately, then joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....ir.errors import Error, UnsupportedOp
from ....ir.graph import Node, Value
from ....ops.conditions import add_guard
from ..values.regions import Region, take_back
from ..values.scalars import condition_of
from ..values.values import UNINITIALIZED, Fails, Maybe, Variant, is_same
from ..walk import Walk
from .joining import all_values, merger_of, taken, tie_all
from .merging import Same


def import_if(importer: Walk, node: Any) -> list[Any]:
    """Import prim::If: one block if the condition is known, else both."""
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


def _import_choice(importer: Walk, condition: Variant, blocks: Sequence[Any]) -> list[Any]:
    """A branch on which form a tensor has: in each block it has that form."""
    if not isinstance(condition.one, bool) or not isinstance(condition.other, bool):
        raise UnsupportedOp("a condition on a tensor of run-time rank cannot be compiled")
    if condition.one is condition.other:
        return importer.run_block(blocks[0 if condition.one else 1])
    flag = condition.is_other

    def way(block: Any, is_other: bool) -> Callable[[], list[Any]]:
        return lambda: importer.knowing(flag, is_other, lambda: importer.run_block(block))

    when_one, when_other = (blocks[0 if found else 1] for found in (condition.one, condition.other))
    return branch(importer, flag, [way(when_other, True), way(when_one, False)], tells_form=True)


def _raise_in(block: Any) -> Any:
    """Return the node of a block that always raises, None if there is none."""
    return next((node for node in block.nodes() if node.kind() == "prim::RaiseException"), None)


def _import_check(
    importer: Walk, condition: Value, blocks: Sequence[Any], which: int, node: Any
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
    importer: Walk,
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
    importer: Walk,
    condition: Value,
    ways: Sequence[Callable[[], list[Any]]],
    tells_form: bool = False,
) -> list[Any]:
    """Import two ways between which the condition chooses at run time; return their joined results.
    `tells_form`: the condition selects the form of a value of two forms."""
    arms, failed = _imported(importer, ways)
    if failed:
        return _only_way(importer, condition, ways, failed)
    with _taken_back(arms):
        return _joined(importer, condition, arms, tells_form)


def _joined(importer: Walk, condition: Value, arms: Sequence[Region], tells_form: bool) -> list[Any]:
    """Make an `if` of two ways; return their joined results."""
    merger = merger_of(importer, arms)
    cells = list(dict.fromkeys(cell for arm in arms for cell in arm.after))
    items = [
        *(_results(arms, i) for i in range(len(arms[0].results))),
        *([arm.after.get(cell, cell.content) for arm in arms] for cell in cells),
    ]
    if tells_form:
        forms = (True, False)
        items = [
            [importer.in_form(x, condition, form) for x, form in zip(item, forms, strict=True)]
            for item in items
        ]
    values = all_values(importer, arms, items)
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
        importer.regions.tie_as(arms)
        return [plan.value for plan in plans if isinstance(plan, Same)][: len(arms[0].results)]
    results = importer.builder.insert(Node("if", [condition], regions=[arm.block for arm in arms]), types)
    found = taken(importer, merger, plans, items, cells, results)
    ways_of = [list(zip(arms, pair, strict=True)) for pair in items]
    tie_all(importer, [*found, *(cell.content for cell in cells)], ways_of)
    importer.regions.tie_as(arms)
    found = [_under(condition, *pair) for pair in zip(found, items, strict=False)] if tells_form else found
    is_so = [pair[0] is True and pair[1] is False for pair in items]  # as `x is not None and x.dim() == 2`
    return [condition if so else x for x, so in zip(found, is_so, strict=False)]


def _results(arms: Sequence[Region], i: int) -> list[Any]:
    """Return the arms' values of a variable, as of their ends if these differ."""
    found = [arm.results[i] for arm in arms]
    if all(is_same(found[0], x) for x in found):
        return found
    return [arm.at_end(x) for arm, x in zip(arms, found, strict=True)]


def _under(flag: Value, made: Any, item: Sequence[Any]) -> Any:
    """Return the result of a branch on a form from the items of both forms. If these differ in form, or one
    is None, the same flag selects it, so that dependent values match."""
    if isinstance(made, Maybe) and item[1] is None and not (item[0] is None or isinstance(item[0], Maybe)):
        return Maybe(flag, made.value)
    if isinstance(made, Variant) and not any(isinstance(x, Variant) for x in item):
        return Variant(flag, made.other, made.one)
    return made


def _imported(
    importer: Walk, ways: Sequence[Callable[[], list[Any]]]
) -> tuple[list[Region], list[tuple[int, Fails]]]:
    """Import ways, each into a separate region; return these, or which ways fail, without regions."""
    arms: list[Region] = []
    failed: list[tuple[int, Fails]] = []
    with _taken_back(arms):
        for i, way in enumerate(ways):
            try:
                with importer.regions.region() as arm:
                    arm.results = way()
                arms.append(arm)
            except Fails as error:
                failed.append((i, error))
    for arm in arms if failed else ():
        take_back(arm.block)
    return arms, failed


@contextmanager
def _taken_back(arms: Sequence[Region]) -> Iterator[None]:
    """After an error nothing of these ways is left."""
    try:
        yield
    except Error:
        for arm in arms:
            take_back(arm.block)
        raise


def _only_way(
    importer: Walk,
    condition: Value,
    ways: Sequence[Callable[[], list[Any]]],
    failed: Sequence[tuple[int, Fails]],
) -> list[Any]:
    """A branch of which one way always fails becomes a guard that it is the other. Raises Fails if both
    do."""
    i, error = failed[0]  # the other way may have been imported: it is imported again, outside of a block
    if len(failed) == len(ways):
        raise error
    b = importer.builder
    right = b.one("bool_not", condition) if i == 0 else condition
    b.apply("guard", right, message=str(error))
    return ways[1 - i]()
