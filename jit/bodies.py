"""Scalar bodies as vector code: the part that all kernel families share.

A family makes loops; in the innermost one it asks `BodyEmitter.emit` for the instructions of the body, for
LANES consecutive values of one loop, the *vector loop*. Every instruction's value is an LLVM vector of LANES
elements of its dtype's register type (`jit.dtypes`), also where all lanes are equal.

    bodies = BodyEmitter(f, spec.body, spec.buffers, sizes, vector_loop=1)      # once, in the entry block
    row = bodies.emit(bodies.hoistable(1), Position((i, 0)))                    # what loop 1 does not change
    with f.loop(0, n, 16) as loop: bodies.emit(bodies.ids, Position((i, loop.index)), given=row)
    bodies.emit(bodies.ids, Position((i, n_whole), tail_mask(f, f.sub(n, n_whole))), given=row)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .llvm import Function, Int, Value
from .spec import Body, Buffer

LANES = 16


@dataclass(frozen=True)
class Position:
    """Where in the domain code is emitted for.

    `loops[i]`: the value of domain loop i; of the vector loop, its value in lane 0 (lane l has that plus l).
    `mask` (<LANES x i1>, at least lane 0 set): the lanes that exist; None: all. Masked lanes of loads are 0.
    """

    loops: tuple[Int, ...]
    mask: Value | None = None


def tail_mask(f: Function, remaining: Int) -> Value:
    """Return the mask of the lanes l < remaining, for remaining >= 0 (all lanes at remaining >= LANES)."""
    raise NotImplementedError


def splat(f: Function, dtype: str, value: int | float | bool | str) -> Value:
    """Return the constant `value` ("inf", "-inf", "nan" allowed) of `dtype` in every lane; emits nothing."""
    raise NotImplementedError


class BodyEmitter:
    """Emits one body. Construct it in the entry block (it loads the buffers' addresses there).

    `vector_loop`: the loop along which lanes lie; None: no loop varies along the lanes (loads broadcast, a store
    writes lane 0). `ids`: all instruction ids, in order. `depends[i]`: the loops on which instruction i depends.
    """

    def __init__(
        self, f: Function, body: Body, buffers: Sequence[Buffer], sizes: Sequence[Int], vector_loop: int | None
    ) -> None:
        self.f = f
        self.body = body
        self.buffers = buffers
        self.sizes = sizes
        self.vector_loop = vector_loop
        self.ids: tuple[int, ...] = tuple(range(len(body)))
        self.depends: tuple[frozenset[int], ...] = ()
        self.addresses: list[Value] = []  # of each buffer's first element

    def needed(self, roots: Iterable[int], given: Iterable[int] = ()) -> tuple[int, ...]:
        """Return `roots` and all that they need (arguments, gather indices), ascending, stopping at `given`."""
        raise NotImplementedError

    def hoistable(self, loop: int, ids: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return those of `ids` (default: all) that can be emitted once before `loop` starts.

        These are the instructions that do not depend on `loop`, without stores, `acc`, reductions and what needs
        the latter two. Loads are included, so it must hold that the kernel does not write what they read.
        """
        raise NotImplementedError

    def emit(
        self,
        ids: Iterable[int],
        at: Position,
        given: Mapping[int, Value] | None = None,
        acc: Value | None = None,
    ) -> dict[int, Value]:
        """Emit the instructions `ids` that are not in `given`; return `given` and all new values, by id.

        `given`: values known already: hoisted ones, and the family's results of reduce instructions (vectors of
        LANES equal elements). `acc`: the value of every `acc` instruction (a vector). A gather out of range sets
        rt->error, error_value and error_bound (the parameter `rt` of the kernel) and goes on in safe memory.
        Raises ValueError for an unknown op, an operand dtype that the op does not take, or a missing `given`.
        """
        raise NotImplementedError
