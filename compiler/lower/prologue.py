"""Which nodes a matmul computes on the way in, as its operand a, without a pass over memory.

The operand is computed once for every block of rows in every share of the tiles: only a few cheap pointwise
nodes that nothing else uses, on values that are in memory anyway and are read along k one element after the
other or not at all. What another kernel computes for this matmul alone stays with that kernel, which has it
for nothing in its epilogue or the last stage of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..ir.graph import Node, Value
from ..ops import OPS
from .access import Access, through_view
from .operands import CONTRACTIONS, in_memory, is_alias, is_kernel_work, is_view, operand_access

#: Operators cheap enough to be computed again for every element that a broadcast makes of theirs.
CHEAP = frozenset(
    [
        "add",
        "sub",
        "mul",
        "neg",
        "and",
        "or",
        "not",
        "xor",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "cast",
        "where",
        "abs",
        "minimum",
        "maximum",
    ]
)
#: A longer chain costs more each time than one pass over memory.
MAX_NODES = 12


def find_prologue(
    matmul: Node, inside: set[Node], is_used_outside: Callable[[Value], bool]
) -> frozenset[Node]:
    """Return the nodes that compute operand a of `matmul` in its kernel; none where it is read from memory.

    `inside`: the nodes of the matmul's block; `is_used_outside`: whether more than its kernels use a value.
    """
    operand, access = matmul.arg(0), operand_access(matmul, 0)
    other, _, _ = in_memory(matmul.arg(1), operand_access(matmul, 1))
    if operand.tensor.dtype != "f32":
        return frozenset()
    shared = {other.node}
    while True:
        chain = _Chain(access[-1].along, inside, shared)
        chain.follow(operand, access)
        used = _Uses(chain.nodes | {matmul}, is_used_outside)
        found = {node for node in chain.nodes if not used.only_here(node.result)}
        if not found:
            break
        shared |= found
    ready = (leaf.node in shared or used.elsewhere(leaf) for leaf in chain.computed)
    fits = chain.is_streamed and len(chain.nodes) <= MAX_NODES
    return frozenset(chain.nodes) if fits and all(ready) else frozenset()


def is_read(value: Value, prologue: frozenset[Node]) -> bool:
    """Return True where a node of `prologue` reads its argument `value` from memory."""
    while is_view(value) and not is_alias(value.definition):
        value = value.definition.arg(0)
    return not (value.node in prologue or _is_source(value))


def _is_source(value: Value) -> bool:
    return value.node is not None and value.node.op in OPS and OPS[value.node.op].kind == "source"


@dataclass
class _Chain:
    """Cheap pointwise nodes found from an operand down, stopping at those in `shared`.

    `computed`: the values of other kernels that they read. `is_streamed`: all that they read, they read with
    unit stride or none along loop `k`.
    """

    k: int
    inside: set[Node]
    shared: set[Node | None]
    nodes: set[Node] = field(default_factory=set)
    computed: set[Value] = field(default_factory=set)
    seen: set[tuple[Value, Access]] = field(default_factory=set)
    is_streamed: bool = True

    def follow(self, value: Value, access: Access) -> None:
        """Add what makes `value` at `access`, up to one node too many."""
        if (value, access) in self.seen or len(self.nodes) > MAX_NODES:
            return
        self.seen.add((value, access))
        while is_view(value):
            node = value.definition
            moved = through_view(node, access)
            if moved is None:  # the reshaped memory
                self.is_streamed = self.is_streamed and self._is_stream(access)
                return
            value, access = node.arg(0), moved
        made = value.node
        if made in self.inside and made.op in CHEAP and made not in self.shared:
            self.nodes.add(made)
            for arg in made.args:
                if arg is not None:
                    self.follow(arg, access)
        elif not _is_source(value):
            self.is_streamed = self.is_streamed and self._is_stream(access)
            if made in self.inside and is_kernel_work(made):
                self.computed.add(value)

    def _is_stream(self, access: Access) -> bool:
        using = [axis for axis, index in enumerate(access) if index.loop == self.k]
        return not using or using == [len(access) - 1] and access[-1].scale == 1


@dataclass(frozen=True)
class _Uses:
    """Who uses a value, besides the nodes `here`."""

    here: set[Node]
    is_used_outside: Callable[[Value], bool]

    def only_here(self, value: Value) -> bool:
        """Return True where only the nodes `here` use the value, through views or not."""
        if self.is_used_outside(value):
            return False
        return all(
            user in self.here
            or (OPS[user.op].kind == "view" and not is_alias(user) and self.only_here(user.result))
            for user in value.users
        )

    def elsewhere(self, value: Value) -> bool:
        """Return True where something uses the value that does not end up in the nodes `here` alone."""
        seen, pending = {value}, [value]
        while pending:
            used = pending.pop()
            others = [user for user in used.users if user not in self.here]
            if self.is_used_outside(used) or any(OPS[user.op].kind in CONTRACTIONS for user in others):
                return True
            pending += {user.result for user in others} - seen
            seen |= {user.result for user in others}
        return False
