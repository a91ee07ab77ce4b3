"""Fusion: decide which values exist in memory, and which nodes each kernel computes.

Every kernel is a `Group` around one materialised value, its `root`. Walking the nodes backwards, a node
joins the groups of
its consumers when the kernel family can compute it in place; otherwise it becomes a root and its consumers
load it. Views
and index sources are free, so they join every group that uses them; other nodes are computed once, in one
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from ...jit.spec import Index
from ..ir.dims import DimExpr, equal
from ..ir.graph import Block, Node, Value
from ..ops import OPS
from .access import Access, is_loop, loops, shape_of, through_view, used_loops
from .operands import CONTRACTIONS, is_alias, is_kernel_work, is_readable_in_place, operand_access
from .pieces import Cuts, arg_access, can_cut, part_sizes
from .prologue import CHEAP, find_prologue, is_read

#: A kernel computes a value at so many places of its result at most for one element; more are read from
#: memory.
MAX_PLACES = 4
#: Nodes of one kernel, views and sources apart.
MAX_NODES = 256


class Demand(NamedTuple):
    """One use of a value by a kernel: at `access`; `memory`: it is read from memory there (through views at
    most)."""

    group: Group
    access: Access | None  # None: as a whole
    memory: bool


@dataclass(eq=False)
class Group:
    """The nodes that one kernel computes. `domain`: sizes of its loops; `access`: where the root is stored.

    `row`: reductions run over the last loop. `contraction`: the matmul or attention node inside, if any;
    then the loops
    are those of its family. `places`: for each member the accesses at which it is computed. `from_memory`:
    views through
    which an operand is read. `prologue`: the members that compute a matmul's operand a on the way in. `cuts`:
    the loops along concats' axes, with the sizes of the parts (`compiler.lower.pieces`).
    """

    root: Value
    domain: list[DimExpr]
    access: Access
    row: bool = False
    contraction: Node | None = None
    places: dict[Node, list[Access]] = field(default_factory=dict)
    from_memory: set[Node] = field(default_factory=set)
    prologue: frozenset[Node] = frozenset()
    cuts: Cuts = field(default_factory=dict)


class Fusion:
    """The groups of one block, by root value, in no particular order; `members` lists the groups of every
    node."""

    def __init__(self, block: Block, apart: Set[Node] = frozenset()) -> None:
        """`apart`: nodes whose values exist in memory in any case."""
        self.block, self._apart = block, apart
        self.groups: dict[Value, Group] = {}
        self.members: dict[Node, list[Group]] = {}
        self._inside = set(block.nodes)
        self._yielded = set(_yielded(block))
        self._in_epilogues = _epilogues(block)
        for node in reversed(list(block.nodes)):
            if is_kernel_work(node) and not is_alias(node):
                self._place(node)

    def _place(self, node: Node) -> None:
        """Put `node` into the groups of its consumers, or make it a root, or drop it when it has no
        consumer."""
        demands = list(self._demands(node.result))
        kind = OPS[node.op].kind
        in_memory = self._used_outside(node.result) or any(
            demand.access is None or (demand.memory and kind != "view") for demand in demands
        )
        if in_memory and kind == "view" and self._read_around(node):
            demands = list(self._demands(node.result))
        one_group = len({demand.group for demand in demands}) == 1
        joins = bool(demands) and not in_memory and (one_group or kind in ("view", "source"))
        if kind not in ("view", "source") and len({demand.access for demand in demands}) > MAX_PLACES:
            joins = False  # windows that overlap: computed once, not for each of their taps
        places = {demand.access for demand in demands if demand.group.cuts}
        if len(places) > 1 and kind in ("pointwise", "gather") and node.op not in CHEAP:
            joins = False  # computed once, not in several pieces
        if any(demand.group.row or demand.group.cuts for demand in demands) and node in self._in_epilogues:
            joins = False  # computed once, as the matmul's epilogue, not in every stage or piece
        is_full = kind not in ("view", "source") and any(len(d.group.places) >= MAX_NODES for d in demands)
        if is_full or node in self._apart:
            joins = False  # what a compiler takes for a body grows faster than the body
        if joins and all(can_join(node, group, places) for group, places in _by_group(demands).items()):
            for demand in demands:
                self._join(node, demand.group, cast(Access, demand.access), demand.memory)
        elif demands or in_memory:
            self._make_root(node)

    def _read_around(self, node: Node) -> bool:
        """Let views through which kernels read memory, and whose argument is `node`, a view that is itself
        needed in memory, read a twin of it: they were chosen for the order that lies below both."""
        views = [
            user
            for user in dict.fromkeys(node.result.users)
            if any(user in group.from_memory for group in self.members.get(user, ()))
        ]
        if views:
            twin = Node(node.op, node.args, node.attrs, source=node.source)
            twin.results = [Value(f"{node.result.name}_twin", node.result.type, twin)]
            self.block.nodes.insert(self.block.nodes.index(node), twin)
            self._inside.add(twin)
            for view in views:
                view.set_args([twin.result if arg is node.result else arg for arg in view.args])
            self._place(twin)
        return bool(views)

    def _used_outside(self, value: Value) -> bool:
        """Return True where something other than a kernel of this block uses the value (or an alias of
        it)."""
        for alias in _aliases(value):
            if alias in self._yielded:
                return True
            if any(user not in self._inside or not is_kernel_work(user) for user in alias.users):
                return True
        return False

    def _demands(self, value: Value) -> Iterator[Demand]:
        """Yield every use of `value` by the kernels made so far."""
        for alias in _aliases(value):
            for demand in self._demands_of(alias):
                yield demand if alias is value else Demand(demand.group, None, True)

    def _demands_of(self, value: Value) -> Iterator[Demand]:
        for user in dict.fromkeys(value.users):
            for group in self.members.get(user, []):
                for place in group.places[user]:
                    for arg, access, memory in arg_demands(user, place, group):
                        if arg is value:
                            yield Demand(group, access, memory)

    def _join(self, node: Node, group: Group, access: Access, memory: bool) -> None:
        if OPS[node.op].kind == "reduce":
            make_row(node, group)
        if node.op == "concat":
            group.cuts[access[node.attrs["axis"]].along] = part_sizes(node)
        if OPS[node.op].kind in CONTRACTIONS:
            access = make_contraction(node, group, access)
            if node.op == "matmul":
                group.prologue = find_prologue(node, self._inside, self._used_outside)
        places = group.places.setdefault(node, [])
        if access not in places:
            places.append(access)
        if memory:
            group.from_memory.add(node)
        if group not in self.members.setdefault(node, []):
            self.members[node].append(group)

    def _make_root(self, node: Node) -> None:
        shape = shape_of(node.result)
        access = loops(len(shape))
        if shape and shape[-1] == 1 and OPS[node.op].kind not in (*CONTRACTIONS, "concat"):
            access = (*access[:-1], Index())  # a row loop may take the place of the last one
        group = Group(node.result, list(shape), access)
        self.groups[node.result] = group
        self._join(node, group, access, memory=False)


def _aliases(value: Value) -> Iterator[Value]:
    """Yield `value` and every reshape of it, of these and so on, that lies in its memory."""
    pending = [value]
    while pending:
        alias = pending.pop()
        yield alias
        pending += [
            u.result for u in reversed(dict.fromkeys(alias.users)) if is_kernel_work(u) and is_alias(u)
        ]


def _yielded(block: Block) -> Iterator[Value]:
    """Yield the results of a block and of those inside of it, which may be values of the block itself."""
    yield from block.results
    for node in block.nodes:
        for region in node.regions:
            yield from _yielded(region)


def _epilogues(block: Block) -> set[Node]:
    """Return the pointwise nodes that can end a matmul's epilogue: only they use what lies between."""
    found: set[Node] = set()
    for node in block.nodes:
        alone = [arg.node for arg in node.present if len(arg.users) == 1]
        follows = any(
            before is not None and (before.op in ("matmul", "conv") or before in found) for before in alone
        )
        if follows and node.op in OPS and OPS[node.op].kind == "pointwise":
            found.add(node)
    return found


def arg_demands(node: Node, access: Access, group: Group) -> Iterator[tuple[Value, Access | None, bool]]:
    """Yield (argument, access, memory) for computing `node` at `access` in `group`, as in `Demand`."""
    kind = OPS[node.op].kind
    args = node.present
    if kind == "pointwise":
        for arg in args:
            yield arg, access, node in group.prologue and is_read(arg, group.prologue)
    elif kind == "view":
        yield args[0], through_view(node, access), node in group.from_memory
    elif kind == "concat":
        for part, arg in enumerate(args):
            yield arg, arg_access(node, part, access), False
    elif kind == "reduce":
        yield args[0], (*access[:-1], Index(loop=len(group.domain) - 1)), False
    elif kind == "gather":
        axis, rank = node.attrs["axis"], len(shape_of(args[1]))
        yield args[0], loops(len(shape_of(args[0]))), True
        yield args[1], access[axis : axis + rank], False
    elif kind in CONTRACTIONS:
        for position, operand in enumerate(args):
            wanted = operand_access(node, position)
            if node.op == "conv" and position == 0:
                yield operand, None, True
            elif (node.op == "attention" and position == 3) or (position == 0 and group.prologue):
                yield operand, wanted, False
            else:
                readable = is_readable_in_place(operand, wanted)
                yield operand, wanted if readable else None, True


def _by_group(demands: Sequence[Demand]) -> dict[Group, list[Access]]:
    """Return the accesses at which each group needs a node that all of them compute."""
    found: dict[Group, list[Access]] = {}
    for demand in demands:
        found.setdefault(demand.group, []).append(cast(Access, demand.access))
    return found


def can_join(node: Node, group: Group, places: Sequence[Access]) -> bool:
    """Return True where `group`'s kernel can compute `node` at all of `places`."""
    kind = OPS[node.op].kind
    if kind in ("view", "source"):
        return True
    if kind == "concat":
        return can_cut(node, group, places)
    fits = _can_reduce if kind == "reduce" else _can_contract if kind in CONTRACTIONS else _worth_repeating
    return all(fits(node, group, access) for access in places)


def _worth_repeating(node: Node, group: Group, access: Access) -> bool:
    """Return True unless joining would compute an expensive node more often than it has elements."""
    if node.op in CHEAP:
        return True
    if group.contraction is not None and group.contraction.op == "attention":
        return False  # a mask is used once for every head
    unused = set(range(len(group.domain))) - used_loops(access)
    unused.discard(len(group.domain) - 1)  # what the last loop does not change is computed once before it
    return all(group.domain[loop] == 1 for loop in unused)


def _can_reduce(node: Node, group: Group, access: Access) -> bool:
    """A reduce joins where its outer axes are the group's outer loops and the row loop is free or the
    same."""
    if group.contraction is not None or group.cuts:
        return False
    *outer, length = shape_of(node.arg(0))
    n = len(group.domain)
    same_outer = all(is_loop(index, i) for i, index in enumerate(access[:-1]))
    if not same_outer or not all(equal(a, b) for a, b in zip(outer, group.domain, strict=False)):
        return False
    if len(outer) == n:
        return not group.row
    free = group.domain[-1:] == [1] and not group.row
    return len(outer) == n - 1 and (free or equal(group.domain[-1], length))


def make_row(node: Node, group: Group) -> None:
    """Give the group the row loop of the reduce that joins."""
    *outer, length = shape_of(node.arg(0))
    if len(outer) == len(group.domain):
        group.domain.append(length)
    else:
        group.domain[-1] = length
    group.row = True


def _can_contract(node: Node, group: Group, access: Access) -> bool:
    """A contraction joins where the root is its result up to pointwise nodes and permutations that keep the
    last axis."""
    if group.contraction is not None or group.row or group.cuts:
        return False
    pairs = [(index, size) for index, size in zip(access, shape_of(node.result), strict=True) if size != 1]
    if any(index.loop is None or index != Index(loop=index.loop) for index, _ in pairs):
        return False
    if not all(equal(group.domain[index.along], size) for index, size in pairs):
        return False  # the root is a slice of it
    if sorted(index.along for index, _ in pairs) != [i for i, size in enumerate(group.domain) if size != 1]:
        return False
    if not is_loop(access[-1], len(group.domain) - 1):
        return False
    return node.op != "attention" or all(OPS[member.op].kind == "view" for member in group.places)


def make_contraction(node: Node, group: Group, access: Access) -> Access:
    """Make the contraction's loops the group's; return its own access in them."""
    group.contraction = node
    last = len(access) - 1
    names = {
        axis: axis + 1 if node.op == "attention" and axis == last else axis for axis in range(len(access))
    }
    rename: dict[int | None, int] = {
        index.loop: names[axis] for axis, index in enumerate(access) if index.loop is not None
    }
    for member, places in group.places.items():
        group.places[member] = [_renamed(place, rename) for place in places]
    group.access = _renamed(group.access, rename)
    group.domain = list(shape_of(node.result))
    return tuple(Index(loop=names[axis]) for axis in range(len(access)))


def _renamed(access: Access, rename: dict[int | None, int]) -> Access:
    """Rename loops; those of size 1 that the contraction does not have become the constant 0."""
    return tuple(
        replace(index, loop=rename[index.loop]) if index.loop in rename else replace(index, loop=None)
        for index in access
    )


def fuse(block: Block, fits: Callable[[Group], bool]) -> Fusion:
    """Return the fusion of `block`; a group that does not fit into a kernel is cut in the middle."""
    apart: set[Node] = set()
    while True:
        fusion = Fusion(block, apart)
        middles = [_middle(group) for group in fusion.groups.values() if not fits(group)]
        if not any(middles):
            return fusion
        apart |= {node for node in middles if node is not None}


def _middle(group: Group) -> Node | None:
    """Return the node at which a group is cut, None where it has none."""
    work = [node for node in group.places if OPS[node.op].kind in ("pointwise", "gather")]
    inner = [node for node in work if node is not group.root.node and node not in group.prologue]
    return inner[len(inner) // 2] if inner else None
