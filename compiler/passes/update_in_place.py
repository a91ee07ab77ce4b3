"""Loops that change part of a carried tensor change it in place, instead of copying all of it each time.

This applies to a scatter of a carried tensor without other users, whose result is carried on in its place.
The initial value is copied once, unless the loop is its only user.

State that a function writes in place (`structure["in_place"]`) is treated in the same way: the function's
result for it is removed, because the caller's memory holds it.
"""

from __future__ import annotations

from ...jit.families.scatter.spec import Scatter
from ..ir.errors import UnsupportedOp
from ..ir.graph import Block, Builder, Graph, Node, Value
from .copy_results import copy
from .rewrite import while_loops


def update_in_place(graph: Graph) -> None:
    """Set attribute `in_place` on such kernels: the result takes over the first argument's memory.

    Raises UnsupportedOp for state that must be written in place and cannot be.
    """
    for block, loop in while_loops(graph.body):
        _update(graph, block, loop)
    for name in graph.structure.get("in_place", []):
        _update_state(graph, name)


def _update_state(graph: Graph, name: str) -> None:
    """Let the buffer `name` change in place."""
    param, output = _state(graph, name)
    update = _update_of(graph.body, param, graph.body.results[output])
    if update is None:
        raise UnsupportedOp(
            f"buffer {name!r} is updated in place, so it must be updated once, by index_copy of itself, and "
            "its old value must have no other use; or make it a buffer without in_place"
        )
    update.attrs["in_place"] = True
    del graph.outputs[output], graph.body.results[output]


def _state(graph: Graph, name: str) -> tuple[Value, int]:
    """Return the parameter of a buffer, and the result that holds its new value."""
    whole = f"state.{name}"
    if whole not in graph.state or whole not in graph.outputs:
        raise UnsupportedOp(
            f"buffer {name!r} is to be updated in place; it is no state that {graph.name!r} updates"
        )
    return graph.body.params[graph.inputs.index(whole)], graph.outputs.index(whole)


def find_updates(graph: Graph) -> None:
    """Make the results for state that is written in place the scatters themselves: they have the buffer's
    memory, in whatever shape. So no kernel copies a view of it."""
    for name in graph.structure.get("in_place", []):
        _, output = _state(graph, name)
        value = graph.body.results[output]
        while value.node is not None and value.node.op == "reshape":
            value = value.node.arg(0)
        graph.body.results[output] = value


def _update(graph: Graph, block: Block, loop: Node) -> None:
    condition, body = loop.regions
    for i, (seen, param) in enumerate(zip(condition.params, body.params, strict=True)):
        update = _update_of(body, param, body.results[i])
        if update is None or seen.users or seen in condition.results:
            continue
        update.attrs["in_place"] = True
        start = loop.args[i]
        assert start is not None
        if not _is_only_for(loop, start, block):
            builder = Builder(graph, block, block.nodes.index(loop))
            own = copy(builder, start)
            loop.set_args([*loop.args[:i], own, *loop.args[i + 1 :]])


def _update_of(body: Block, param: Value, result: Value) -> Node | None:
    """Return the scatter that makes `result` of `param` alone, if there is one in `body` and no other use."""
    node = result.node
    is_scatter = node is not None and node.op == "kernel" and isinstance(node.attrs["spec"], Scatter)
    if node is None or not is_scatter or node not in body.nodes:
        return None
    is_alone = param.users == [node] and param not in body.results and node.args[0] is param
    return node if is_alone and body.results.count(result) == 1 else None


def _is_only_for(loop: Node, value: Value, block: Block) -> bool:
    """Whether `value` owns its memory, and is made in the loop's block for the loop alone."""
    made = value.node is not None and value.node.op == "kernel" and value.node in block.nodes
    return made and value.users == [loop] and value not in block.results
