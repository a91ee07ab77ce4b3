"""The passes over the rows of a body with reductions, and the computation of each.

Pass p computes the reductions whose argument depends on a chain of p reductions (softmax: max, then the sum
of exp, then the quotient); the last pass stores. Values that are expensive and needed in a later pass are
kept in scratch memory, the others are recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...llvm.dtypes import DTYPES
from ...loops.bodies import BodyEmitter
from ...math.table import OPS
from ...spec import Instr
from .reduce import REDUCTIONS

# A pass over a row with at most SHORT_PASS cheap instructions does several chunks per iteration (10 % faster
# in cache); other innermost loops gain nothing from it, and each copy of a body costs compile time.
SHORT_PASS = 6


def is_dear(instr: Instr) -> bool:
    """Whether computing `instr` costs more than reloading it: true for operations that use polynomials."""
    return instr.op in OPS and max(OPS[instr.op].ulp) > 0


def weight(instr: Instr) -> int:
    """Return a rough cost in bytes of traffic or flops."""
    if instr.op in ("load", "store"):
        return DTYPES[instr.dtype].bytes
    return 40 if is_dear(instr) else 2


@dataclass(frozen=True)
class Pass:
    """One run over the row: its reductions and stores, the instructions that it computes (`ids`), writes to
    scratch (`kept`) and reads from there (`reread`)."""

    reduces: Sequence[int]
    stores: Sequence[int]
    ids: Sequence[int]
    kept: Sequence[int]
    reread: Sequence[int]

    def is_short(self, bodies: BodyEmitter) -> bool:
        """Whether it has at most SHORT_PASS cheap instructions."""
        return sum(weight(bodies.body[i]) // 2 for i in self.ids) <= SHORT_PASS


def _levels(bodies: BodyEmitter) -> list[int]:
    """Return for each instruction the length of the chain of reductions that its value needs."""
    levels: list[int] = []
    for instr in bodies.body:
        level = max((levels[i] for i in bodies.sources(instr)), default=0)
        levels.append(level + (instr.op in REDUCTIONS))
    return levels


@dataclass(frozen=True)
class Plan:
    """Properties of each instruction: the length of the chain of reductions that its value needs (`levels`),
    and whether it varies along the row; and the passes."""

    levels: Sequence[int]
    varying: Sequence[bool]
    reductions: Sequence[int]
    passes: Sequence[Pass]


def plan_of(bodies: BodyEmitter, row: int) -> Plan:
    """Return the plan for a body whose rows run along loop `row`."""
    body, levels = bodies.body, _levels(bodies)
    varying = [row in loops for loops in bodies.depends]
    reductions = [i for i, instr in enumerate(body) if instr.op in REDUCTIONS]
    reduces = {i: levels[i] - 1 for i in reductions}
    stores = [i for i, instr in enumerate(body) if instr.op == "store" and varying[i]]
    n = max([*reduces.values(), *(levels[i] for i in stores)]) + 1
    fixed = {i for i in bodies.ids if not varying[i]}
    dear: set[int] = set()  # computed by an earlier pass
    passes = []
    for number in range(n):
        of_pass = [i for i, level in reduces.items() if level == number]
        # stores are in the last pass, because a row may overwrite its operands
        passes.append(_pass(bodies, of_pass, stores if number == n - 1 else [], fixed, dear))
        dear |= {i for i in passes[-1].ids if is_dear(body[i])}
    reread = {i for p in passes for i in p.reread}
    return Plan(
        levels, varying, reductions, [replace(p, kept=[i for i in p.ids if i in reread]) for p in passes]
    )


def _pass(
    bodies: BodyEmitter, reduces: Sequence[int], stores: Sequence[int], fixed: set[int], dear: set[int]
) -> Pass:
    """Return a pass after those that have computed `dear`; `fixed` is known before all passes."""
    roots = [*(bodies.body[i].args[0] for i in reduces), *stores]
    ids = bodies.needed(roots, fixed | dear)
    read = {source for i in ids for source in bodies.sources(bodies.body[i])}
    return Pass(reduces, stores, ids, [], sorted(dear & (read | set(roots))))
