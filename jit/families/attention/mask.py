"""Scores of attention: sums q . k, scaled and masked by the spec's body, and their unit.

A weight e^x is 2^y with y = x log2(e). If a body only selects -inf, log2(e) is part of the scale, and scores
are powers of two (`Mask.unit` 1). Values that a body adds or computes are not scaled: times log2(e), a large
number would be rounded once more, and so would the difference of two scores. Instead scores are multiplied by
the unit log2(e) after the greatest is subtracted. A body that adds to the score, or replaces it by -inf, is a
bias: one multiply-add then computes a score from a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, inf, log2

from ...llvm.function import Function, Value
from ...llvm.vector import Vec, fma, select
from ...loops.bodies import BodyEmitter, Position, splat
from ...spec import Body
from .spec import Attention

LOG2E = log2(e)


@dataclass(frozen=True)
class Bias:
    """The term that a body adds to scores: instruction `value` (None: none); `is_mask`: -inf where it is
    false."""

    value: int | None = None
    is_mask: bool = False


class Mask:
    """Emits the body of `spec` in the kernel's function; `bodies`: its emitter."""

    def __init__(self, f: Function, spec: Attention, bodies: BodyEmitter) -> None:
        softmax = spec.softmax
        self.f, self.spec, self.bodies = f, spec, bodies
        self.row_loop = len(spec.extents.batch)
        self.bias = _find_bias(softmax.body, bodies)
        adds = self.bias is None or (self.bias.value is not None and not self.bias.is_mask)
        self.unit = LOG2E if adds else 1.0  # of scores, as powers of two
        self.scale = softmax.scale if adds else softmax.scale * LOG2E

    @property
    def is_bias(self) -> bool:
        """Whether the body is a bias."""
        return self.bias is not None

    @property
    def is_same_in_rows(self) -> bool:
        """Whether it is a bias that does not depend on the query."""
        if self.bias is None:
            return False
        return self.bias.value is None or self.row_loop not in self.bodies.depends[self.bias.value]

    def known(self, outer: tuple[Value | int, ...]) -> dict[int, Value]:
        """Emit the parts of the body that do not depend on the key."""
        return self.bodies.emit(self.bodies.hoistable(self.row_loop + 1), Position((*outer, 0)))

    def biases(self, at: Position, known: dict[int, Value]) -> Vec:
        """Return the biases of a vector of keys; -inf in lanes outside the mask of `at`."""
        return self._whole(self._biases(at, known), at.mask)

    def scores(self, sums: Vec, at: Position, known: dict[int, Value]) -> Vec:
        """Return the scores of a vector of sums; -inf in lanes outside the mask of `at`."""
        if self.bias is not None:
            return self._whole(fma(sums, self.scale, self._biases(at, known)), at.mask)
        ids = self.bodies.ids
        score = self.bodies.emit(ids, at, known, (sums * self.spec.softmax.scale).value)[ids[-1]]
        return self._whole(Vec(self.f, score), at.mask)

    def _biases(self, at: Position, known: dict[int, Value]) -> Vec:
        zero = Vec(self.f, splat(self.f, "f32", 0.0))
        assert self.bias is not None
        if self.bias.value is None:
            return zero
        ids = self.bodies.needed([self.bias.value])
        value = Vec(self.f, self.bodies.emit(ids, at, known)[self.bias.value])
        return select(value, zero, -inf) if self.bias.is_mask else value

    def _whole(self, x: Vec, mask: Value | None) -> Vec:
        return x if mask is None else select(Vec(self.f, mask), x, -inf)


def _find_bias(body: Body, bodies: BodyEmitter) -> Bias | None:
    """Return the bias that the body is equivalent to, None if it does more than add one."""
    if not body:
        return Bias()
    last = body[-1]
    ops = [body[i].op for i in last.args]
    value = None
    if last.op == "add" and "acc" in ops:
        value = last.args[1 - ops.index("acc")]
    elif last.op == "select" and ops[1:] == ["acc", "const"] and body[last.args[2]].value == "-inf":
        value = last.args[0]
    if value is None or any(body[i].op == "acc" for i in bodies.needed([value])):
        return None
    return Bias(value, is_mask=last.op == "select")
