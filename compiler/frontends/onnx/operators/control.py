"""Control flow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
import sympy

from ....ir.dims import DimExpr, simplify
from ....ir.errors import Error, UnsupportedOp
from ....ir.graph import Block, Node, Value, detach
from ....ir.types import TensorType, types_equal
from ....ops import build as B
from ....ops.conditions import add_guard, truth
from ....ops.loops import block, require_types, row_of, with_row
from ..known import Known, known
from ..rows import Call, Operand, row

_LOG = logging.getLogger("shapevm")
SCAN_WITHOUT_BATCH = 9  # the version from which Scan has no axis of a batch
MAX_REPEATED = 64  # turns of a loop that are written out one after the other
OPEN_TRIPS = 2**63 - 1  # of a loop that ends by its condition only
MAX_ROWS = 1 << 24


@row("If")
def _if(call: Call) -> Any:
    condition, ways = call.input(0), (call.attr("then_branch"), call.attr("else_branch"))
    decided = condition.items.reshape(-1)[0] if isinstance(condition, Known) else None
    if decided is not None and not isinstance(decided, sympy.Basic):
        return call.scope.graph(ways[0] if decided else ways[1], [])
    b = call.b
    if decided is not None:
        test = truth(b, decided)
    else:
        test = b.one("item", B.reshape(b, call.value(0), []))
    blocks = [call.scope.block([], partial(call.scope.graph, way, [])) for way in ways]
    if decided is not None and _ranks(blocks[0]) != _ranks(blocks[1]):
        for node in (node for each in blocks for node in each.nodes):
            detach(node)
        return _first_way(call, decided)
    if _shapes(blocks[0]) != _shapes(blocks[1]) and _ranks(blocks[0]) == _ranks(blocks[1]):
        return _of_any_size(call, test, blocks)
    return b.insert(Node("if", [test], regions=blocks), _common_types(call, blocks))


def _ranks(block: Block) -> list[int]:
    return [result.tensor.rank for result in block.results]


def _shapes(block: Block) -> list[tuple[DimExpr, ...]]:
    return [result.tensor.shape for result in block.results]


def _first_way(call: Call, condition: Any) -> Any:
    """Take the first branch where both give tensors of other ranks, as exporters write for an axis that is
    dropped if its size is 1; calls check the sizes."""
    message = f"If: its branches give tensors of other ranks; only {condition} can be run, which"
    _LOG.info("%s of the model needs %s: the other branch gives a tensor of another rank", call.op, condition)
    add_guard(call.b, condition, f"{message} these sizes do not meet")
    return call.scope.graph(call.attr("then_branch"), [])


def _common_types(call: Call, blocks: list[Block]) -> list[TensorType]:
    """Return the types of both branches' results, which must agree."""
    for one, other in zip(blocks[0].results, blocks[1].results, strict=True):
        if not types_equal(one.type, other.type):
            raise UnsupportedOp(f"If: its branches give {one.type} and {other.type}; both must have one type")
    return [result.tensor for result in blocks[0].results]


def _of_any_size(call: Call, test: Value, blocks: list[Block]) -> Any:
    """An If whose branches give other sizes: their results are padded to the larger one, and cut to the size
    of the branch that is taken."""
    b = call.b
    taken = call.read(B.cast_to(b, B.tensor_of(b, test), "i64"))
    pairs = list(zip(*([result.tensor for result in each.results] for each in blocks), strict=True))
    large = [[simplify(sympy.Max(p, q)) for p, q in zip(x.shape, y.shape, strict=True)] for x, y in pairs]
    for each in blocks:
        outer, b.block = b.block, each
        each.results = [
            B.pad(b, x, [(0, simplify(most - size)) for most, size in zip(sizes, B.shape_of(x), strict=True)])
            for x, sizes in zip(each.results, large, strict=True)
        ]
        b.block = outer
    made = list(b.insert(Node("if", [test], regions=blocks), _common_types(call, blocks)))
    for i, (x, y) in enumerate(pairs):
        for axis, (p, q) in enumerate(zip(x.shape, y.shape, strict=True)):
            made[i] = B.take(b, made[i], axis, 0, simplify(q + taken * (p - q)))
    return tuple(made)


# Loops ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Body:
    """The graph that a loop repeats: `run(place, carried)` gives its results for a 0-d i64 `place`; the first
    `n_carried` are the new carried values (the others rows of results). `starts`: the carried values."""

    call: Call
    run: Callable[[Operand, Sequence[Operand]], list[Operand]]
    starts: list[Value]

    def types(self) -> list[TensorType]:
        """Return the types of the results of one turn, which is not kept."""
        b, params = self.call.b, [Value(self.call.b.graph.new_name("p"), each.type) for each in self.starts]
        place = Value(b.graph.new_name("p"), TensorType("i64", ()))
        made = self.call.scope.block([place, *params], partial(self.run, place, params))
        found = [result.tensor for result in made.results]
        for node in made.nodes:
            detach(node)
        return found

    def looped(self, length: DimExpr, go: Value | None, may_stop: bool) -> list[Value]:
        """Run it `length` times, or until the first result is false if it `may_stop`; return the carried
        values, and the other results as rows."""
        call, b, n = self.call, self.call.b, len(self.starts)
        types = self.types()[int(may_stop) :]
        wholes = [B.full(b, 0, each.dtype, (length, *each.shape)) for each in types[n:]]
        start = [B.full(b, 0, "i64"), *([go] if go is not None else []), *self.starts, *wholes]
        first = len(start) - len(wholes) - n

        def turn(place: Value, *carried: Value) -> list[Operand]:
            values, kept = carried[first - 1 : first - 1 + n], carried[first - 1 + n :]
            made = [call.scope.value(each) for each in self.run(place, values)]
            flag = [B.reshape(b, made.pop(0), [])][: int(go is not None)] if may_stop else []
            rows = [with_row(b, whole, part, place) for whole, part in zip(kept, made[n:], strict=True)]
            return [B.pointwise(b, "add", place, 1), *flag, *made[:n], *rows]

        def goes_on(place: Value, *carried: Value) -> list[Operand]:
            test = B.pointwise(b, "lt", place, B.full(b, length, "i64"))
            return [b.one("item", test if go is None else b.one("and", test, carried[0]))]

        blocks = [self._block(start, goes_on), self._block(start, turn)]
        require_types(call.op, "its body gives", [each.type for each in start], blocks[1])
        made = b.insert(Node("while", start, regions=blocks), [each.type for each in start])
        if go is None or not wholes:
            return made[first:]
        count = call.read(made[0])
        return [*made[first : first + n], *(B.take(b, each, 0, 0, count) for each in made[first + n :])]

    def _block(self, start: list[Value], fill: Callable[..., list[Any]]) -> Block:
        params = [Value(self.call.b.graph.new_name("p"), each.type) for each in start]
        return block(self.call.b, params, partial(fill, *params))

    def repeated(self, length: int, may_stop: bool) -> list[Value]:
        """Write the graph `length` times, so that types may change from turn to turn."""
        b, carried, rows = self.call.b, list(self.starts), []
        for i in range(length):
            made = [self.call.scope.value(each) for each in self.run(known(i, "i64"), carried)][
                int(may_stop) :
            ]
            carried = made[: len(carried)]
            rows.append([B.add_axis(b, each, 0) for each in made[len(carried) :]])
        return [*carried, *(B.concat(b, parts, 0) for parts in zip(*rows, strict=True))]


@row("Loop")
def _loop(call: Call) -> Any:
    graph, b = call.attr("body"), call.b
    starts = [call.value(i) for i in range(2, len(call.inputs))]
    go = call.input(1) if call.has(1) else known(True, "bool")
    is_while = not (isinstance(go, Known) and bool(go.items.all()) and _keeps_on(graph))

    def run(place: Operand, carried: Sequence[Operand]) -> list[Operand]:
        flag = known(True, "bool") if not is_while else B.full(b, True, "bool")
        return call.scope.graph(graph, [place, flag, *carried])

    body = _Body(call, run, starts)
    length = _trips(call, len(graph.output) - 1 - len(starts))
    is_short = isinstance(length, int) and 0 < length <= MAX_REPEATED and not is_while
    if is_short and not _keeps_types(body):
        assert isinstance(length, int)
        return tuple(body.repeated(length, True))
    flag = B.reshape(b, call.scope.value(go), []) if is_while else None
    return tuple(body.looped(length, flag, True))


def _keeps_on(graph: onnx.GraphProto) -> bool:
    """Whether a loop's body hands its condition on as it is, or always gives true."""
    name = graph.output[0].name
    made = {output: node for node in graph.node for output in node.output}
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if name in made and made[name].op_type == "Constant":
        (value,) = made[name].attribute
        return value.name == "value" and bool(onnx.numpy_helper.to_array(value.t).all())
    return name == graph.input[1].name


def _keeps_types(body: _Body) -> bool:
    """Whether the carried values have the same types after a turn."""
    try:
        found = body.types()[1:]
    except Error:
        return False
    return all(types_equal(one.type, other) for one, other in zip(body.starts, found, strict=False))


def _trips(call: Call, n_rows: int) -> DimExpr:
    """Return the highest number of turns of a Loop with `n_rows` results that get a row in each turn."""
    found = call.input(0) if call.has(0) else known(OPEN_TRIPS, "i64")
    if not isinstance(found, Known):
        return call.read(B.pointwise(call.b, "maximum", B.cast_to(call.b, call.value(0), "i64"), 0))
    (trips,) = found.dims
    if n_rows and isinstance(trips, int) and trips > MAX_ROWS:
        raise UnsupportedOp(
            f"Loop: it may run {trips} times and collects a row each time; give it a number of turns"
        )
    return B.positive_part(call.b, trips)


@row("Scan")
def _scan(call: Call) -> Any:
    if call.version < SCAN_WITHOUT_BATCH:
        return _scan_batch(call)
    b, n = call.b, call.attr("num_scan_inputs")
    states = [call.value(i) for i in range(len(call.inputs) - n)]
    scanned = _scanned(call, [call.value(i) for i in range(len(states), len(call.inputs))])
    made = _scan_rows(call, states, scanned)
    axes, ways = call.attr("scan_output_axes") or [], call.attr("scan_output_directions") or []
    for i in range(len(states), len(made)):
        at = i - len(states)
        x = B.flip(b, made[i], [0]) if ways and ways[at] else made[i]
        rank = len(B.shape_of(x))
        axis = B.axis_of("Scan", axes[at], rank) if axes else 0
        order = list(range(1, rank))
        order.insert(axis, 0)
        made[i] = B.permute(b, x, order)
    return tuple(made)


def _scan_batch(call: Call) -> Any:
    """Version 8: a Scan of each item of a batch, along the axis behind it. Items may end earlier: then the
    state stays, and the rows that are missing are zeros."""
    b, n = call.b, call.attr("num_scan_inputs")
    ways = call.attr("directions") or [0] * n
    if call.has(0) and any(ways):
        raise UnsupportedOp("Scan of version 8: sequence_lens with directions is not compiled; use version 9")
    values = [call.value(i) for i in range(1, len(call.inputs))]
    first = len(values) - n
    values[first:] = [B.flip(b, x, [1]) if way else x for x, way in zip(values[first:], ways, strict=True)]
    values = [*([call.value(0)] if call.has(0) else []), *values]
    batch = B.shape_of(values[0])[0]
    values = [B.of_size(b, "Scan", x, 0, batch) for x in values]

    def run(place: Operand, carried: Sequence[Operand]) -> list[Operand]:
        rows = [row_of(b, x, call.scope.value(place)) for x in values]
        end = rows.pop(0) if call.has(0) else None
        return list(_scan_rows(call, rows[:first], rows[first:], end))

    return tuple(_Body(call, run, []).looped(batch, None, False))


def _scan_rows(
    call: Call, states: list[Value], scanned: list[Value], end: Value | None = None
) -> list[Value]:
    """Return the last states, and the rows that the body gives for each row of `scanned` before `end`."""
    b, graph = call.b, call.attr("body")
    length = B.shape_of(scanned[0])[0]
    scanned = [B.of_size(b, "Scan", x, 0, length) for x in scanned]

    def run(place: Operand, carried: Sequence[Operand]) -> list[Operand]:
        at = call.scope.value(place)
        rows = [row_of(b, x, at) for x in scanned]
        made = call.scope.graph(graph, [*carried, *rows])
        if end is None:
            return list(made)
        goes_on, new = B.pointwise(b, "lt", at, end), [call.scope.value(each) for each in made]
        old = [*map(call.scope.value, carried), *(0 for _ in new[len(carried) :])]
        return [B.where(b, goes_on, x, y) for x, y in zip(new, old, strict=True)]

    return _Body(call, run, states).looped(length, None, False)


def _scanned(call: Call, inputs: list[Value]) -> list[Value]:
    """Return the scanned inputs with their axis first, in the order of the turns."""
    b = call.b
    axes = call.attr("scan_input_axes") or [0] * len(inputs)
    ways = call.attr("scan_input_directions") or [0] * len(inputs)
    made = []
    for x, axis, way in zip(inputs, axes, ways, strict=True):
        rank = len(B.shape_of(x))
        first = B.axis_of("Scan", axis, rank)
        x = B.permute(b, x, [first, *(i for i in range(rank) if i != first)])
        made.append(B.flip(b, x, [0]) if way else x)
    return made
