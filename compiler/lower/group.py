"""Groups: the nodes that one kernel computes, its loops, and the accesses at which each node is computed.

A `fused` node holds the nodes of a kernel in its region, from what is read from memory to the *root*, the
value that the kernel stores. `group_of` finds the kernel's loops: it adds the nodes backwards from the root,
each at the accesses that its users need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...jit.spec import Index
from ..ir.dims import DimExpr, equal
from ..ir.errors import VerifyError
from ..ir.graph import Block, Node, Value
from ..ops import OPS
from .access import Access, arg_access, is_loop, loops, part_sizes, shape_of, through_view
from .operands import CONTRACTIONS, MASKS, is_readable_in_place, operand_access, result_loops

Cuts = dict[int, tuple[DimExpr, ...]]
#: Operands of contractions that kernels read as a whole from memory.
WHOLE = {("conv", 0), ("segment_attention", 3)}


@dataclass(eq=False)
class Group:
    """The nodes that one kernel computes. `domain`: sizes of its loops; `access`: that of the root's store.

    `row`: reductions run over the last loop. `contraction`: the matmul, conv or attention node inside, if
    any; then the loops are those of its family. `places`: for each member the accesses at which it is
    computed, the last member first. `from_memory`: views through which fusion found that an operand is read.
    `prologue`: the members that compute a matmul's operand a as it is loaded. `cuts`: the loops along
    concats' axes, with the sizes of the parts (`compiler.lower.pieces`).
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

    @property
    def divides(self) -> bool:
        """Whether a divisor is checked. Tiles of products and pieces of concats may extend beyond the
        data."""
        return any(node.op == "divisor" for node in self.places)

    def join(self, node: Node, access: Access) -> None:
        """Compute `node` at `access`; a reduce, concat or contraction gives the group its loops."""
        kind = OPS[node.op].kind
        if kind == "reduce":
            make_row(node, self, access)
        if kind == "concat":
            self.cuts[access[node.attrs["axis"]].along] = part_sizes(node)
        if kind in CONTRACTIONS:
            access = make_contraction(node, self, access)
        places = self.places.setdefault(node, [])
        if access not in places:
            places.append(access)


def around(root: Value) -> Group:
    """Return a new group for a root, before the root joins it."""
    shape = shape_of(root)
    access = loops(len(shape))
    if shape and shape[-1] == 1 and OPS[root.definition.op].kind not in (*CONTRACTIONS, "concat"):
        access = (*access[:-1], Index())  # a row loop may take the place of the last one
    return Group(root, list(shape), access)


def group_of(fused: Node) -> Group:
    """Return the group of a `fused` node. Raises VerifyError if one kernel cannot compute its region."""
    (block,) = fused.regions
    (root,) = block.results
    if root.node is None or root.node not in block.nodes:
        raise VerifyError(f"%{root.name} is not computed in its region")
    group = around(root)
    for node in reversed(block.nodes):
        places = [group.access] if node is root.node else list(dict.fromkeys(_places(node, group)))
        if not places:
            raise VerifyError(f"nothing in the region needs %{node.result.name}")
        for access in places:
            if not can_compute(node, group, access):
                raise VerifyError(f"no kernel computes {node.op} together with what follows it")
            group.join(node, access)
        if node.op == "matmul":
            group.prologue = _prologue(node, block)
    return group


def _places(node: Node, group: Group) -> Iterator[Access]:
    """Yield the accesses at which the members of `group` need `node`."""
    for user in dict.fromkeys(node.result.users):
        for place in group.places.get(user, ()):
            for arg, access, _ in arg_demands(user, place, group):
                if arg is node.result:
                    if access is None:
                        raise VerifyError(f"{user.op} reads %{arg.name} as a whole: it must be in memory")
                    yield access


def _prologue(matmul: Node, block: Block) -> frozenset[Node]:
    """Return the pointwise nodes of `block` that compute operand a of `matmul`."""
    inside = set(block.nodes)
    found: set[Node] = set()
    pending = [matmul.arg(0).node]
    while pending:
        node = pending.pop()
        if node is not None and node in inside and node not in found:
            found.add(node)
            pending += [arg.node for arg in node.present]
    return frozenset(node for node in found if OPS[node.op].kind == "pointwise")


def arg_demands(node: Node, access: Access, group: Group) -> Iterator[tuple[Value, Access | None, bool]]:
    """Yield (argument, access, memory) for computing `node` at `access` in `group`, as in `Demand`."""
    kind = OPS[node.op].kind
    args = node.present
    if kind == "pointwise":
        for arg in args:
            yield arg, access, False
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
            if (node.op, position) in WHOLE:
                yield operand, None, True
            elif position == MASKS.get(node.op) or (position == 0 and group.prologue):
                yield operand, wanted, False
            else:
                readable = is_readable_in_place(operand, wanted)
                yield operand, wanted if readable else None, True


def can_compute(node: Node, group: Group, access: Access) -> bool:
    """Return True if the family of the group's kernel can compute `node` at `access`."""
    kind = OPS[node.op].kind
    if kind == "reduce":
        return _can_reduce(node, group, access)
    if kind == "concat":
        return _can_cut(node, group, access)
    return kind not in CONTRACTIONS or _can_contract(node, group, access)


def _can_reduce(node: Node, group: Group, access: Access) -> bool:
    """A reduce joins if its outer axes are the group's outer loops and the row loop is free or the same."""
    if group.contraction is not None or group.cuts:
        return False
    *outer, length = shape_of(node.arg(0))
    if _takes_last_loop(outer, group, access):
        return group.domain[-1] == 1 and not group.row or equal(group.domain[-1], length)
    return not group.row and _runs_over(outer, group, access)


def _takes_last_loop(outer: Sequence[DimExpr], group: Group, access: Access) -> bool:
    """Whether the row of a reduce over `outer` axes at `access` would be the group's last loop."""
    return len(outer) == len(group.domain) - 1 and all(
        is_loop(index, i) and equal(outer[i], group.domain[i]) for i, index in enumerate(access[:-1])
    )


def _runs_over(outer: Sequence[DimExpr], group: Group, access: Access) -> bool:
    """Whether `outer` axes at `access` are all loops of the group in order, except those of size 1."""
    axes = [(index, size) for index, size in zip(access, outer, strict=False) if size != 1]
    left = [i for i, size in enumerate(group.domain) if size != 1]
    return len(axes) == len(left) and all(
        is_loop(index, i) and equal(size, group.domain[i])
        for (index, size), i in zip(axes, left, strict=True)
    )


def _can_contract(node: Node, group: Group, access: Access) -> bool:
    """A contraction joins if the root is its result up to pointwise nodes and permutations that keep the last
    axis."""
    if group.contraction is not None or group.row or group.cuts or group.divides:
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
    return node.op not in MASKS or all(OPS[member.op].kind == "view" for member in group.places)


def _can_cut(node: Node, group: Group, access: Access) -> bool:
    """A concat joins if one loop runs along its axis and can be cut into the concat's parts."""
    index, sizes = access[node.attrs["axis"]], part_sizes(node)
    if group.contraction is not None or group.row or group.divides or index.loop is None:
        return False
    if not is_loop(index, index.loop) or not equal(group.domain[index.loop], sum(sizes)):
        return False
    known = group.cuts.get(index.loop, sizes)
    return len(known) == len(sizes) and all(equal(a, b) for a, b in zip(known, sizes, strict=True))


def make_row(node: Node, group: Group, access: Access) -> None:
    """Give the group the row loop of the reduce that joins at `access`."""
    *outer, length = shape_of(node.arg(0))
    if _takes_last_loop(outer, group, access):
        group.domain[-1] = length
    else:
        group.domain.append(length)
    group.row = True


def make_contraction(node: Node, group: Group, access: Access) -> Access:
    """Make the contraction's loops the group's; return its own access in them."""
    group.contraction = node
    names = dict(enumerate(result_loops(node)))
    rename: dict[int | None, int] = {
        index.loop: names[axis] for axis, index in enumerate(access) if index.loop is not None
    }
    for member, places in group.places.items():
        group.places[member] = [_renamed(place, rename) for place in places]
    group.access = _renamed(group.access, rename)
    group.domain = list(shape_of(node.result))
    return tuple(Index(loop=loop) for loop in names.values())


def _renamed(access: Access, rename: dict[int | None, int]) -> Access:
    """Rename loops; those of size 1 that the contraction does not have become the constant 0."""
    return tuple(
        replace(index, loop=rename[index.loop]) if index.loop in rename else replace(index, loop=None)
        for index in access
    )
