"""Fusion: decide which values exist in memory, and which nodes each kernel computes.

Every kernel is a `Group` around one value in memory, its root. The nodes are visited backwards: a node joins
the groups of its consumers if the kernel family can compute it in place; otherwise it becomes a root, which
its consumers load. Views and index sources are free, so they join every group that uses them; other nodes are
computed once, in one group. The pass then moves each group into the region of a `fused` node:

    %k9: f32[rows, 3] = fused()
      body:
        %v7: f32[rows, 3] = matmul(%x, %v21)
        %v8: f32[rows, 3] = expand(%v2) {shape=[rows, 3]}
        %v9: f32[rows, 3] = add(%v7, %v8)
        yield %v9
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple, cast

from ...vm.layout import LIMITS
from ..ir.graph import Block, Graph, Node, Value, replace_uses
from ..ops import OPS
from .access import Access, used_loops
from .bind import bound
from .collapse import collapsed
from .group import Group, arg_demands, around, can_compute
from .operands import CONTRACTIONS, MASKS, is_alias, is_kernel_work
from .pieces import can_cut
from .specs import spec_of

#: Operators cheap enough to be recomputed for every element of a broadcast.
CHEAP = frozenset(
    ("add", "sub", "mul", "neg", "abs", "minimum", "maximum", "and", "or", "not", "xor")
    + ("eq", "ne", "lt", "le", "gt", "ge", "where", "cast", "place")
)
#: Most accesses at which a kernel recomputes a value for one element of its result; beyond that it is read
#: from memory.
MAX_PLACES = 4
#: Most nodes of one kernel, not counting views and sources.
MAX_NODES = 256
#: A group of fewer nodes cannot exceed a kernel's limits on buffers and dims.
SMALL_GROUP = 12


def fuse(graph: Graph) -> None:
    """Move the nodes of every kernel into the region of a `fused` node. Standalone operators, constants and
    reshapes of memory stay outside."""
    fits = partial(fits_in_kernel, accurate=graph.accurate)
    fusions = [grouped(block, fits) for block in graph.blocks()]
    nodes = [_fused_nodes(graph, fusion) for fusion in fusions]
    graph.replace_results({root: node.result for fused in nodes for root, node in fused.items()})
    for fusion, fused in zip(fusions, nodes, strict=True):
        _outline(graph, fusion, fused)


def fits_in_kernel(group: Group, accurate: bool) -> bool:
    """Return True if the buffers and dims of `group` are within a kernel's limits."""
    if len(group.places) < SMALL_GROUP:
        return True
    spec, dims = bound(collapsed(spec_of(group, accurate)[0]))
    return len(dims) <= LIMITS["DIMS"][0] and len(spec.buffers) <= LIMITS["BUFFERS"][0]


class Demand(NamedTuple):
    """One use of a value by a kernel, at `access`; `memory`: it is read from memory, at most through
    views."""

    group: Group
    access: Access | None  # None: as a whole
    memory: bool


class Fusion:
    """The groups of one block, by root value, in no particular order; `members` lists the groups of every
    node."""

    def __init__(self, block: Block, apart: Set[Node] = frozenset()) -> None:
        """`apart`: nodes whose values must exist in memory."""
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
        """Put `node` into the groups of its consumers, or make it a root, or drop it if it has no
        consumer."""
        demands = list(self._demands(node.result))
        kind = OPS[node.op].kind
        in_memory = self._used_outside(node.result) or any(
            demand.access is None or (demand.memory and kind != "view") for demand in demands
        )
        if in_memory and kind == "view" and self._read_around(node):
            demands = list(self._demands(node.result))
        one_group = len({demand.group for demand in demands}) == 1
        is_free = kind in ("view", "source") or node.op == "divisor"
        joins = bool(demands) and not in_memory and (one_group or is_free)
        if kind not in ("view", "source") and len({demand.access for demand in demands}) > MAX_PLACES:
            joins = False  # overlapping windows: computed once, not for each of their taps
        places = {demand.access for demand in demands if demand.group.cuts}
        if len(places) > 1 and kind in ("pointwise", "gather") and node.op not in CHEAP:
            joins = False  # computed once, not in several pieces
        if any(demand.group.row or demand.group.cuts for demand in demands) and node in self._in_epilogues:
            joins = False  # computed once, as the matmul's epilogue, not in every stage or piece
        if node in self._in_epilogues and _is_narrowing(node) and any(map(_contracts, demands)):
            joins = False  # the other product's kernel would read its sums, which are wider
        is_full = kind not in ("view", "source") and any(len(d.group.places) >= MAX_NODES for d in demands)
        if is_full or node in self._apart:
            joins = False  # compilation time grows faster than the body
        if joins and all(can_join(node, group, places) for group, places in _by_group(demands).items()):
            for demand in demands:
                self._join(node, demand.group, cast(Access, demand.access), demand.memory)
        elif demands or in_memory:
            self._make_root(node)

    def _read_around(self, node: Node) -> bool:
        """Let views of `node` through which kernels read memory read a copy of it if `node`, itself a view,
        is needed in memory: they were chosen for the memory order below both."""
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
        """Return True if something other than a kernel of this block uses the value (or an alias of it)."""
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
        group.join(node, access)
        if memory:
            group.from_memory.add(node)
        if group not in self.members.setdefault(node, []):
            self.members[node].append(group)

    def _make_root(self, node: Node) -> None:
        group = around(node.result)
        self.groups[node.result] = group
        self._join(node, group, group.access, memory=False)


def _is_narrowing(node: Node) -> bool:
    """Whether a node converts f32 to bytes."""
    return node.op == "cast" and node.attrs["dtype"] in ("u8", "i8") and node.arg(0).tensor.dtype == "f32"


def _contracts(demand: Demand) -> bool:
    """Whether a kernel already has a product."""
    return any(OPS[node.op].kind in CONTRACTIONS for node in demand.group.places)


def _aliases(value: Value) -> Iterator[Value]:
    """Yield `value` and, transitively, every reshape of it in the same memory."""
    pending = [value]
    while pending:
        alias = pending.pop()
        yield alias
        pending += [
            u.result for u in reversed(dict.fromkeys(alias.users)) if is_kernel_work(u) and is_alias(u)
        ]


def _yielded(block: Block) -> Iterator[Value]:
    """Yield the results of a block and of nested blocks, which may be values of the block itself."""
    yield from block.results
    for node in block.nodes:
        for region in node.regions:
            yield from _yielded(region)


def _epilogues(block: Block) -> set[Node]:
    """Return the pointwise nodes that can end a matmul's epilogue: the values in between have no other
    users."""
    found: set[Node] = set()
    for node in block.nodes:
        alone = [arg.node for arg in node.present if len(arg.users) == 1]
        follows = any(
            before is not None and (before.op in ("matmul", "conv") or before in found) for before in alone
        )
        if follows and node.op in OPS and OPS[node.op].kind == "pointwise":
            found.add(node)
    return found


def _by_group(demands: Sequence[Demand]) -> dict[Group, list[Access]]:
    """Return the accesses at which each group needs a node that all of them compute."""
    found: dict[Group, list[Access]] = {}
    for demand in demands:
        found.setdefault(demand.group, []).append(cast(Access, demand.access))
    return found


def can_join(node: Node, group: Group, places: Sequence[Access]) -> bool:
    """Return True if `group`'s kernel can compute `node` at all of `places`."""
    kind = OPS[node.op].kind
    if kind == "concat":
        return can_cut(node, group, places)
    if kind in ("pointwise", "gather"):
        return all(_worth_repeating(node, group, access) for access in places)
    if kind in CONTRACTIONS and len(set(places)) > 1:
        return False  # a kernel has each sum once, at one access
    return all(can_compute(node, group, access) for access in places)


def _worth_repeating(node: Node, group: Group, access: Access) -> bool:
    """Return True unless joining would compute an expensive node more often than it has elements."""
    if node.op in CHEAP:
        return True
    if node.op == "divisor" and (group.contraction is not None or group.cuts):
        return False
    if group.contraction is not None and group.contraction.op in MASKS:
        return False  # a mask is used once for every head
    unused = set(range(len(group.domain))) - used_loops(access)
    unused.discard(len(group.domain) - 1)  # values independent of the last loop are computed before it
    return all(group.domain[loop] == 1 for loop in unused)


def grouped(block: Block, fits: Callable[[Group], bool]) -> Fusion:
    """Return the fusion of `block`; a group that exceeds a kernel's limits is cut in the middle."""
    apart: set[Node] = set()
    while True:
        fusion = Fusion(block, apart)
        middles = [_middle(group) for group in fusion.groups.values() if not fits(group)]
        if not any(middles):
            return fusion
        apart |= {node for node in middles if node is not None}


def _middle(group: Group) -> Node | None:
    """Return the node at which a group is cut, None if there is none."""
    work = [node for node in group.places if OPS[node.op].kind in ("pointwise", "gather")]
    inner = [node for node in work if node is not group.root.node]
    return inner[len(inner) // 2] if inner else None


# The graph's new form -----------------------------------------------------------------------------


def _fused_nodes(graph: Graph, fusion: Fusion) -> dict[Value, Node]:
    """Return for every root of a block a still empty `fused` node, whose result replaces the root's."""
    made = {}
    for node in fusion.block.nodes:
        if len(node.results) == 1 and node.result in fusion.groups:
            fused = Node("fused", [], source=node.source)
            fused.results = [Value(graph.new_name("k"), node.result.type, fused)]
            replace_uses(node.result, fused.result)
            made[node.result] = fused
    return made


def _outline(graph: Graph, fusion: Fusion, fused: Mapping[Value, Node]) -> None:
    """Move the groups of a block into the regions of their `fused` nodes, which take the roots' positions."""
    taken: set[Node] = set()
    for root, node in fused.items():
        region, own = _region(graph, fusion.groups[root], fusion.members)
        node.regions = [region]
        taken |= own
    left: list[Node] = []
    for node in reversed(fusion.block.nodes):
        if len(node.results) == 1 and node.result in fused:
            left.append(fused[node.result])
        elif node in fusion.members and not node.result.users:
            node.set_args([])  # every kernel that uses it has its own copy
        elif node not in taken:
            left.append(node)
    fusion.block.nodes[:] = reversed(left)


def _region(graph: Graph, group: Group, members: Mapping[Node, Sequence[Group]]) -> tuple[Block, set[Node]]:
    """Return the region that computes `group`, and the nodes that it removes from the graph: those without
    other users. The others are copied."""
    region, own, copies = Block(), set(), dict[Value, Value]()
    for node in reversed(group.places):
        args = [copies.get(arg, arg) if arg is not None else None for arg in node.args]
        if len(members[node]) == 1 and all(user in group.places for user in node.result.users):
            own.add(node)
            if args != node.args:
                node.set_args(args)
        else:
            copy = Node(node.op, args, node.attrs, source=node.source)
            copy.results = [Value(graph.new_name(), node.result.type, copy)]
            copies[node.result], node = copy.result, copy
        region.nodes.append(node)
    region.results = [group.root]
    return region, own
