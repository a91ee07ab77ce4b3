"""Addresses that move along A's rows, whose distance is known only to the caller.

A micro-kernel for rows of any length is compiled once for all of them, if registers hold the addresses of its
rows. An address of x86 adds one register to another times 1, 2, 4 or 8, so every fifth row's address and two
distances reach all rows: five registers for 14 rows. The addresses are hidden from LLVM's loop passes, which
would keep one for each row, and spill them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...llvm.function import Function, Int, Value

FLOAT_BYTES = 4
_HIDE = "llvm.launder.invariant.group.p0"  # costs no instruction
#: How rows after a walker are reached: by the distance of three rows or of one, times an element's bytes.
_REACHED = ((False, ""), (False, "i8"), (False, "i16"), (True, "i8"), (False, "i32"))


@dataclass(frozen=True)
class Walkers:
    """The addresses of every fifth row, and the bytes from a row to the next and to the third one."""

    places: Sequence[Value]
    apart: Int
    thrice: Int

    @classmethod
    def begin(cls, g: Function, a: Value, lda: Value, rows: int) -> Walkers:
        """Return the walkers of `rows` rows, `lda` f32 apart, of which the first is at `a`."""
        apart = g.mul(lda, FLOAT_BYTES)
        places = [g.at(a, "i8", g.mul(apart, r)) for r in range(0, rows, len(_REACHED))]
        return cls(places, apart, g.mul(apart, 3))

    def hidden(self, g: Function, places: Sequence[Value]) -> Walkers:
        """Return them at `places`, hidden, as loop-carried values."""
        return replace(self, places=[g.call("ptr", _HIDE, place) for place in places])

    def steps(self, g: Function, n: int, rows: int) -> list[list[Value]]:
        """Return the addresses of n successive steps by step and row, [] without walkers."""
        return [[self._row(g, r, step) for r in range(rows)] for step in range(n)] if self.places else []

    def _row(self, g: Function, r: int, step: int) -> Value:
        """Return the address of row `r`, `step` steps ahead."""
        place = g.at(self.places[r // len(_REACHED)], "float", step)
        is_thrice, element = _REACHED[r % len(_REACHED)]
        return g.at(place, element, self.thrice if is_thrice else self.apart) if element else place

    def moved(self, g: Function, steps: int) -> list[Value]:
        """Return their addresses, `steps` steps ahead."""
        return [g.at(place, "float", steps) for place in self.places]


NO_WALKERS = Walkers((), 0, 0)
