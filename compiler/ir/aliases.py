"""Which results of a graph own their memory, and which may share it with something else."""

from __future__ import annotations

from .graph import Graph, Value
from .types import TensorType

Base = Value | None  # a value that owns memory; None: memory that may be visible elsewhere


def fresh_results(graph: Graph) -> list[bool]:
    """Return for each result whether it can be returned without a copy, which is always true except for
    tensors."""
    memory = _Memory(graph)
    given: set[Base] = {None}
    answers = []
    for value in graph.body.results:
        owners = memory.owners(value)
        answers.append(not isinstance(value.type, TensorType) or not owners & given)
        if answers[-1]:
            given |= owners
    return answers


class _Memory:
    """Follows values to the nodes that made their memory."""

    def __init__(self, graph: Graph) -> None:
        self.inputs = set(graph.body.params)
        self.carried = {
            param: (node, i)
            for node in graph.nodes()
            if node.op == "while"
            for region in node.regions
            for i, param in enumerate(region.params)
        }

    def owners(self, value: Value) -> frozenset[Base]:
        """Return the values whose memory `value` may share; None represents that of inputs and constants."""
        found: set[Base] = set()
        seen: set[Value] = set()
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in seen:
                seen.add(value)
                sources = self._sources(value)
                pending += sources
                if not sources:
                    found.add(None if self._is_shared(value) else value)
        return frozenset(found)

    def _is_shared(self, value: Value) -> bool:
        return value in self.inputs or value.node is None or value.node.op in ("constant", "get", "part")

    def _sources(self, value: Value) -> list[Value]:
        """Return the values of which `value` may be one or a view; none if it owns its memory."""
        node, position = self.carried.get(value, (value.node, -1))
        if node is None:
            return []
        position = position if position >= 0 else node.results.index(value)
        if node.op == "reshape":
            return node.present
        if node.op == "while":
            initial = node.args[position]
            return [node.regions[1].results[position]] + ([initial] if initial is not None else [])
        return [region.results[position] for region in node.regions]
