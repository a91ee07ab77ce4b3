"""Scalar bodies as vector code: the part that all kernel families share.

A family makes loops; in the innermost one it calls `BodyEmitter.emit` for the instructions of the body, for
LANES consecutive values of one loop, the *vector loop*. Every instruction's value is an LLVM vector of LANES
elements of its dtype's register type (`jit.llvm.dtypes`), even if all lanes are equal.

    bodies = BodyEmitter(f, spec.body, spec.buffers, sizes, vector_loop=1)      # once, in the entry block
    row = bodies.emit(bodies.hoistable(1), Position((i, 0)))                    # what loop 1 does not change
    with f.loop(0, n, 16) as loop: bodies.emit(bodies.ids, Position((i, loop.index)), given=row)
    bodies.emit(bodies.ids, Position((i, n_whole), tail_mask(f, f.sub(n, n_whole))), given=row)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..llvm.abi import resolve
from ..llvm.access import Access, Accessor, check_divisor, checked
from ..llvm.constants import LANES, splat, splat_int, tail_mask
from ..llvm.conversion import cast, saturated
from ..llvm.function import Function, Int, Value
from ..llvm.vector import Vec, select
from ..math.table import OPS, apply, result_dtype
from ..spec import Body, Buffer, Index, Instr
from .saturation import find_saturating

__all__ = ["LANES", "BodyEmitter", "Position", "splat", "tail_mask"]


@dataclass(frozen=True)
class Position:
    """Where in the domain code is emitted for.

    `loops[i]`: the value of domain loop i; of the vector loop, its value in lane 0 (lane l has that plus l).
    `mask` (<LANES x i1>, at least lane 0 set): the lanes that exist; None: all. Masked lanes of loads are 0.
    `bypasses`: whole vectors that are stored side by side are whole cache lines, and go past the caches.
    """

    loops: tuple[Int, ...]
    mask: Value | None = None
    bypasses: bool = False


def _is_reduction(instr: Instr) -> bool:
    return instr.op.startswith("reduce.")


def load_addresses(f: Function, n_buffers: int) -> list[Value]:
    """Return the addresses of the kernel's buffers; call it in the entry block."""
    return [f.load("ptr", f.at(f.params[0], "ptr", i), align=8) for i in range(n_buffers)]


def sources_of(instr: Instr) -> tuple[int, ...]:
    """Return the ids that `instr` reads: its arguments and its gather indices."""
    return (*instr.args, *(place.value for place in instr.index if place.value is not None))


def is_along(instr: Instr, loop: int) -> bool:
    """Return whether a load or store has unit stride along `loop` on its last axis, without gathered
    indices."""
    return instr.index[-1:] == (Index(loop=loop),) and all(place.value is None for place in instr.index)


def find_depends(
    body: Body, row_loop: int | None, vector_loop: int | None = None
) -> tuple[frozenset[int], ...]:
    """Return for each instruction the loops that it depends on: a reduction's value not on the row loop, the
    family's `acc` on the vector loop."""
    found: list[frozenset[int]] = []
    for instr in body:
        loops = {place.loop for place in instr.index if place.loop is not None}
        loops |= {loop for source in sources_of(instr) for loop in found[source]}
        if instr.op == "iota" and instr.loop is not None:
            loops.add(instr.loop)
        if instr.op == "acc" and vector_loop is not None:
            loops.add(vector_loop)
        if _is_reduction(instr):
            loops -= {row_loop}
        found.append(frozenset(loops))
    return tuple(found)


class BodyEmitter:
    """Emits one body. Construct it in the entry block: it loads the buffers' addresses, unless given.

    `vector_loop`: the loop along the lanes; None: no loop varies along the lanes (loads broadcast, a store
    writes lane 0). `row_loop`: the loop of reductions, by default the vector loop. `ids`: all instruction
    ids, in order. `depends[i]`: the loops on which instruction i depends.
    """

    def __init__(
        self,
        f: Function,
        body: Body,
        buffers: Sequence[Buffer],
        sizes: Sequence[Int],
        vector_loop: int | None,
        addresses: Sequence[Value] | None = None,
        row_loop: int | None = None,
    ) -> None:
        self.f = f
        self.body = body
        self.buffers = buffers
        self.sizes = sizes
        self.vector_loop = vector_loop
        self.ids: tuple[int, ...] = tuple(range(len(body)))
        self.addresses = load_addresses(f, len(buffers)) if addresses is None else addresses
        self.depends = find_depends(body, vector_loop if row_loop is None else row_loop, vector_loop)
        self.saturating = find_saturating(body)

    # what depends on what
    @staticmethod
    def sources(instr: Instr) -> tuple[int, ...]:
        """Return the ids that `instr` reads; see `sources_of`."""
        return sources_of(instr)

    def needed(self, roots: Iterable[int], given: Iterable[int] = ()) -> tuple[int, ...]:
        """Return `roots` and their operands (arguments, gather indices), ascending, stopping at `given`."""
        known, found, pending = set(given), set(), list(roots)
        while pending:
            i = pending.pop()
            if i not in found and i not in known:
                found.add(i)
                pending.extend(self.sources(self.body[i]))
        return tuple(sorted(found))

    def hoistable(self, loop: int, ids: Iterable[int] | None = None) -> tuple[int, ...]:
        """Return those of `ids` (default: all) that can be emitted once before `loop` starts.

        These are the instructions that do not depend on `loop`, without stores, `acc`, reductions and users
        of the latter two. Loads are included, so the kernel must not write the memory that they read.
        """
        fixed: set[int] = set()
        for i, instr in enumerate(self.body):
            late = instr.op in ("store", "acc") or _is_reduction(instr) or loop in self.depends[i]
            if not late and all(source in fixed for source in self.sources(instr)):
                fixed.add(i)
        return tuple(i for i in (self.ids if ids is None else ids) if i in fixed)

    # emission
    def emit(
        self,
        ids: Iterable[int],
        at: Position,
        given: Mapping[int, Value] | None = None,
        acc: Value | None = None,
    ) -> dict[int, Value]:
        """Emit the instructions `ids` that are not in `given`; return `given` and all new values, by id.

        `given`: values known already: hoisted ones, and the family's results of reduce instructions (vectors
        of LANES equal elements). `acc`: the value of every `acc` instruction (a vector). A gather out of
        range sets rt->error, error_value and error_bound (the parameter `rt` of the kernel) and continues in
        safe memory: it reads some element of the axis or, if the axis may be empty, 0; a store out of range
        must not happen. Raises ValueError for an unknown op, an operand dtype that the op does not accept, or
        a missing `given`. A divisor of 0 sets rt->error.
        """
        values = dict(given or {})
        for i in sorted(ids):
            if i not in values:
                value = self._instr(i, at, values, acc)
                if value is not None:
                    values[i] = value
        return values

    def _instr(self, i: int, at: Position, values: dict[int, Value], acc: Value | None) -> Value | None:
        instr, f = self.body[i], self.f
        for source in self.sources(instr):
            if source not in values:
                raise ValueError(
                    f"body: instruction {i} ({instr.op}) needs the value of {source}, which is not there"
                )
        args = [values[a] for a in instr.args]
        if instr.op == "load":
            return self._load(instr, at, values)
        if instr.op == "store":
            self._store(instr, at, values)
            return None
        if instr.op == "const":
            return splat(f, instr.dtype, instr.value)
        if instr.op == "iota":
            assert instr.loop is not None
            return splat_int(f, at.loops[instr.loop], step=int(instr.loop == self.vector_loop))
        if instr.op == "dim":
            assert instr.size is not None
            return splat_int(f, resolve(instr.size, self.sizes))
        if instr.op == "checked":
            return self._checked(instr, at, args)
        if instr.op == "divisor":
            size = None if instr.size is None else resolve(instr.size, self.sizes)
            check_divisor(f, args[0], at.mask, size)
            return args[0]
        if instr.op == "acc" and acc is not None:
            return acc
        if instr.op == "cast":
            limited = values.get(self.saturating.get(i, -1))
            if limited is not None:
                return saturated(Vec(f, limited)).value
            return cast(Vec(f, args[0]), self.body[instr.args[0]].dtype, instr.dtype).value
        if instr.op == "select":
            return self._select(i, args)
        if instr.op in OPS:
            return self._math(i, args)
        given = instr.op == "acc" or _is_reduction(instr)
        raise ValueError(
            f"body: instruction {i}: {instr.op!r} {'must be given' if given else 'is no operation'}"
        )

    def _checked(self, instr: Instr, at: Position, args: Sequence[Value]) -> Value:
        assert instr.size is not None
        size = resolve(instr.size, self.sizes)
        index, given = ((arg, self.body[a].dtype) for arg, a in zip(args, instr.args, strict=True))
        return checked(self.f, index, given, all(map(self._is_uniform, instr.args)), size, at.mask)

    def _is_uniform(self, i: int) -> bool:
        """Return whether the value of instruction i is the same in all lanes."""
        return self.vector_loop is None or self.vector_loop not in self.depends[i]

    def _select(self, i: int, args: list[Value]) -> Value:
        dtypes = [self.body[a].dtype for a in self.body[i].args]
        if dtypes != ["bool", self.body[i].dtype, self.body[i].dtype]:
            raise ValueError(
                f"body: instruction {i}: select of {', '.join(dtypes)} is no {self.body[i].dtype}"
            )
        return select(*(Vec(self.f, a) for a in args)).value

    def _math(self, i: int, args: list[Value]) -> Value:
        instr = self.body[i]
        dtypes = {self.body[a].dtype for a in instr.args}
        if len(dtypes) != 1:
            raise ValueError(
                f"body: instruction {i}: {instr.op} takes operands of one dtype, not {sorted(dtypes)}"
            )
        dtype = dtypes.pop()
        result = result_dtype(instr.op, dtype)
        if instr.dtype != result:
            raise ValueError(
                f"body: instruction {i}: {instr.op} of {dtype} gives {result}, not {instr.dtype}"
            )
        return apply(self.f, instr.op, dtype, *args)

    # memory
    def _access(self, instr: Instr, at: Position, values: Mapping[int, Value]) -> tuple[Accessor, Access]:
        assert instr.buffer is not None
        buffer = self.buffers[instr.buffer]
        if len(instr.index) != len(buffer.shape):
            raise ValueError(
                f"body: buffer {instr.buffer} has {len(buffer.shape)} axes, not {len(instr.index)}"
            )
        accessor = Accessor(self.f, self.addresses[instr.buffer], buffer.dtype, at.mask)
        shape = [resolve(size, self.sizes) for size in buffer.shape]
        access = Access()
        stride: Int = 1
        for place, size in reversed(list(zip(instr.index, shape, strict=True))):
            offset = resolve(place.offset, self.sizes)
            if place.value is not None:
                index = values[place.value], self.body[place.value].dtype
                uniform = self._is_uniform(place.value)
                accessor.add_gather(access, index, uniform, place.scale, offset, size, stride)
            else:
                loop = 0 if place.loop is None else at.loops[place.loop]
                along = place.loop is not None and place.loop == self.vector_loop
                accessor.add_axis(access, loop, along, place.scale, offset, stride)
            stride = self.f.mul(stride, size)
        return accessor, access

    def _load(self, instr: Instr, at: Position, values: Mapping[int, Value]) -> Value:
        accessor, access = self._access(instr, at, values)
        if accessor.dtype != instr.dtype:
            raise ValueError(f"body: load of {instr.dtype} from buffer {instr.buffer} of {accessor.dtype}")
        return accessor.load(access).value

    def offset(self, i: int, at: Position) -> Int:
        """Return the element of load or store i in lane 0; none of its indices is gathered."""
        return self._access(self.body[i], at, {})[1].offset

    def registers(self, i: int, raw: Value) -> Value:
        """Return the value of load i for its elements as they are in memory."""
        instr = self.body[i]
        assert instr.buffer is not None
        return Accessor(self.f, self.addresses[instr.buffer], instr.dtype, None).registers(raw).value

    def _store(self, instr: Instr, at: Position, values: Mapping[int, Value]) -> None:
        accessor, access = self._access(instr, at, values)
        if self.body[instr.args[0]].dtype != accessor.dtype:
            found = self.body[instr.args[0]].dtype
            raise ValueError(
                f"body: store of {found} to buffer {instr.buffer} of {accessor.dtype}; cast it first"
            )
        accessor.store(access, Vec(self.f, values[instr.args[0]]), at.bypasses)
