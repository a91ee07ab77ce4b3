"""Dependence analysis: the rows of a batch on which the elements of a kernel's results depend, from its spec
alone.

One symbol of a program, such as `batch`, is under test: it has the value `batch`, a large prime that no other
size has as a factor. So an axis or a loop holds rows exactly if `batch` divides its size, also after loops
were merged. A tensor is described by its elements in memory, so views do not matter:

Shared       independent of the batch
Rows         element e depends on row e // inner % batch of the inputs, and on shared data
Alike        the same, and elements are equal along e // inner % count, a multiple of batch
Positions    element e is the number of its row, e // inner % batch, times `scale`
Mixed        elements depend on other rows, or on the number of rows; `causes` gives the reasons

Everything errs towards Mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from operator import mul

from .spec import Body, Dim, Index, Instr, KernelSpec, Size


@dataclass(frozen=True)
class Number:
    """An int of the program at one value of its symbols; `varies`: with the symbol under test. `fixed`: a
    factor that does not vary."""

    value: int
    varies: bool = False
    fixed: int = 1


@dataclass(frozen=True)
class Shared:
    """The tensor is independent of the batch. `below`: all elements are ints from 0 to below it, if known."""

    below: int | None = None


@dataclass(frozen=True)
class Rows:
    """Element e depends on row e // inner % batch."""

    inner: int


@dataclass(frozen=True)
class Alike:
    """As Rows, and elements do not differ along e // inner % count, a multiple of the batch."""

    inner: int
    count: int


@dataclass(frozen=True)
class Positions:
    """Element e is the number of its row, e // inner % batch, times `scale`."""

    inner: int
    scale: int = 1


@dataclass(frozen=True)
class Mixed:
    """Elements depend on more than their row; `causes`: the operations that made it so."""

    causes: frozenset[str]

    @classmethod
    def by(cls, cause: str) -> Mixed:
        """Return the layout of one cause."""
        return cls(frozenset({cause}))


Layout = Shared | Rows | Alike | Positions | Mixed

OTHER_ROWS = "pairs rows with each other"
PART = "takes some of the rows"
REGROUPED = "regroups elements across rows"
NUMBERED = "uses the rows' numbers"
COUNTED = "uses the number of rows"
CHOSEN = "chooses rows by data"


def merged(a: Layout, b: Layout, batch: int) -> Layout:
    """Return the layout of a tensor with some elements laid out as `a`, the others as `b`."""
    if a == b:
        return a
    if isinstance(a, Mixed) or isinstance(b, Mixed):
        return Mixed(frozenset().union(*(x.causes for x in (a, b) if isinstance(x, Mixed))))
    if isinstance(a, Shared) and isinstance(b, Shared):
        return Shared()
    if isinstance(a, Alike) and isinstance(b, Alike):
        inner, end = max(a.inner, b.inner), min(a.inner * a.count, b.inner * b.count)
        both = Alike(inner, end // inner)
        is_alike = _within(both, a) and _within(both, b) and both.count % batch == 0
        return both if is_alike else Mixed.by(REGROUPED)
    if isinstance(b, Alike):
        a, b = b, a
    if isinstance(a, Alike) and isinstance(b, Rows):
        return b if _within(Alike(b.inner, batch), a) else Mixed.by(REGROUPED)
    return Mixed.by(NUMBERED if Positions in (type(a), type(b)) else REGROUPED)


def keeps_rows(layout: Layout, begin: Number, batch: int) -> bool:
    """Whether a tensor's elements from `begin` on, in memory, are laid out like the whole: they begin with a
    first row, which does not depend on the number of rows."""
    if isinstance(layout, Shared | Mixed):
        return not begin.varies
    period = layout.inner * (layout.count if isinstance(layout, Alike) else batch)
    return begin.value % period == 0 and begin.value in (0, batch * begin.fixed)


def _within(part: Alike, whole: Alike) -> bool:
    """Whether elements that are equal along `whole` are equal along `part`."""
    return part.inner % whole.inner == 0 and whole.inner * whole.count % (part.inner * part.count) == 0


@dataclass(frozen=True)
class Scalar:
    """The dependences of one value of a body.

    `rows`: (loop, inner): the row is loop // inner % batch. `loops`: those along which it may differ.
    `position`: its factor to the number of the one row in `rows`; `within`: the same after division by this.
    `step`: a divisor of it within its row. `number`: its constant value. `below`: it is an int from 0 to
    below this.
    """

    rows: frozenset[tuple[int, int]] = frozenset()
    loops: frozenset[int] = frozenset()
    causes: frozenset[str] = frozenset()
    position: int | None = None
    within: int | None = None
    step: int = 1
    below: int | None = None
    number: int | None = None

    def but(self, cause: str) -> Scalar:
        """Return the value with one more cause."""
        return Scalar(self.rows, self.loops, self.causes | {cause})

    def along(self, *loops: int) -> Scalar:
        """Return the value, which may also differ along `loops`."""
        return replace(self, loops=self.loops | set(loops))


def joined(values: Iterable[Scalar]) -> Scalar:
    """Return the value of any operation on all of `values`."""
    values = list(values)
    rows, loops, causes = (
        frozenset().union(*(getattr(v, name) for v in values)) for name in ("rows", "loops", "causes")
    )
    if any(v.position is not None or v.within is not None for v in values):
        causes |= {NUMBERED}
    if len(rows) > 1:
        causes |= {OTHER_ROWS}
    return Scalar(rows, loops, causes)


@dataclass
class _Tensor:
    """A buffer of a launch."""

    sizes: list[Number]
    layout: Layout
    strides: list[int] = field(init=False)

    def __post_init__(self) -> None:
        sizes = [s.value for s in self.sizes]
        self.strides = [*accumulate(reversed(sizes[1:]), mul, initial=1)][::-1] if sizes else []

    def row_axis(self, inner: int, batch: int) -> tuple[int, int] | None:
        """Return (axis, inner) such that a row is index // inner % batch; None: not along one axis."""
        for axis, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            if inner % stride == 0 and size.value % (batch * (inner // stride)) == 0:
                return axis, inner // stride
        return None


class Launch:
    """One launch of a kernel: the values of its `dims`, the layouts of its buffers.

    A family's `follow` reads and writes through it; `written` then holds the layouts of its outputs by buffer
    position.
    """

    def __init__(
        self, spec: KernelSpec, dims: Sequence[Number], layouts: Sequence[Layout], batch: int
    ) -> None:
        self.spec, self.dims, self.batch = spec, dims, batch
        self.tensors = [
            _Tensor(self.numbers(*buffer.shape), layout)
            for buffer, layout in zip(spec.buffers, layouts, strict=True)
        ]
        self.loops: list[Number] = []
        self.row_loop: int | None = None
        self.body: Body = ()
        self.values: list[Scalar] = []
        self.written: dict[int, Layout] = {}

    def number(self, size: Size) -> Number:
        """Return a size of the spec as a number."""
        return self.dims[size.index] if isinstance(size, Dim) else Number(size)

    def numbers(self, *sizes: Size) -> list[Number]:
        """Return the sizes of axes or loops; 0 counts as 1, because empty ones have no elements."""
        return [n if n.value else replace(n, value=1) for n in map(self.number, sizes)]

    def is_odd(self, size: Number) -> bool:
        """Whether a size depends on the number of rows, but is not a multiple of it."""
        return size.varies and size.value % self.batch != 0

    # Accesses
    def read(self, buffer: int, index: Sequence[Index], values: Sequence[Scalar] = ()) -> Scalar:
        """Return the dependences of an element at `index`."""
        tensor = self.tensors[buffer]
        layout = tensor.layout
        given = joined(values[i.value] for i in index if i.value is not None)
        found = replace(given, loops=given.loops | {i.loop for i in index if i.loop is not None})
        if isinstance(layout, Mixed):
            return replace(found, causes=found.causes | layout.causes)
        if any(map(self.is_odd, tensor.sizes)):
            return found.but(COUNTED)
        if isinstance(layout, Alike):
            alike = self._alike_axes(tensor, layout)
            if alike is not None:
                return self._settled(found, index, alike)
            layout = Rows(layout.inner * (layout.count // self.batch))
        if isinstance(layout, Shared):
            settled = self._settled(found, index, set())
            return settled if settled.causes else replace(settled, below=layout.below)
        return self._read_rows(tensor, layout, index, values)

    def _alike_axes(self, tensor: _Tensor, layout: Alike) -> set[int] | None:
        """Return the axes that hold rows, if elements are equal along all of them."""
        axes = {a for a, size in enumerate(tensor.sizes) if size.value % self.batch == 0}
        whole = all(_within(Alike(tensor.strides[a], tensor.sizes[a].value), layout) for a in axes)
        return axes if whole else None

    def _settled(self, found: Scalar, index: Sequence[Index], alike: set[int]) -> Scalar:
        """Return a value that was read if axes other than `alike` hold no rows."""
        if any(self.number(i.offset).varies for a, i in enumerate(index) if a not in alike):
            return found.but(COUNTED)
        here = {i.loop for a, i in enumerate(index) if a not in alike and i.loop is not None}
        if any(self.loops[loop].value % self.batch == 0 or self.is_odd(self.loops[loop]) for loop in here):
            return found.but(NUMBERED)
        given = {i.loop for a, i in enumerate(index) if a in alike} - here
        return replace(found, loops=found.loops - {loop for loop in given if loop is not None})

    def _read_rows(
        self, tensor: _Tensor, layout: Rows | Positions, index: Sequence[Index], values: Sequence[Scalar]
    ) -> Scalar:
        at = tensor.row_axis(layout.inner, self.batch)
        axis, inner = at or (-1, 1)
        found = joined(values[i.value] for a, i in enumerate(index) if i.value is not None and a != axis)
        found = replace(found, loops=found.loops | {i.loop for i in index if i.loop is not None})
        if at is None:
            return found.but(REGROUPED)
        for a, i in enumerate(index):
            if a != axis and i.loop is not None and self.holds_rows(i.loop):
                return found.but(REGROUPED)
            if a != axis and self.number(i.offset).varies:
                return found.but(COUNTED)
        row = self._row_of(index[axis], inner, tensor.sizes[axis], values)
        if isinstance(row, str):
            chooser = [values[v] for v in [index[axis].value] if v is not None]
            return joined([found, *(replace(c, position=None, within=None) for c in chooser)]).but(row)
        own = Scalar(frozenset({row}), frozenset({row[0]}))
        if isinstance(layout, Positions):
            if found.rows or found.causes:
                return joined([found, own]).but(NUMBERED)
            return replace(own, loops=own.loops | found.loops, position=layout.scale)
        at_value = index[axis].value
        chosen = [] if at_value is None else [replace(values[at_value], position=None, within=None)]
        return joined([found, own, *chosen])

    def holds_rows(self, loop: int) -> bool:
        """Whether a loop runs over rows."""
        return self.loops[loop].value % self.batch == 0 or self.is_odd(self.loops[loop])

    def _row_of(self, i: Index, inner: int, size: Number, values: Sequence[Scalar]) -> tuple[int, int] | str:
        """Return the row at `i` along an axis, as (loop, inner), or why it is not one."""
        offset = self.number(i.offset).value
        if i.value is not None:
            value = values[i.value]
            is_whole = (i.scale, offset, size.value) == (1, 0, self.batch * inner)
            is_own = value.within == inner or (value.position, inner) == (1, 1)
            return next(iter(value.rows)) if is_whole and is_own else CHOSEN
        if i.loop is None:
            return PART
        loop = self.loops[i.loop]
        if loop.value % self.batch or i.scale < 1 or inner % i.scale:
            return PART
        within = inner // i.scale
        starts = offset % (self.batch * inner) < i.scale
        return (i.loop, within) if starts and loop.value % (self.batch * within) == 0 else PART

    def write(self, buffer: int, index: Sequence[Index], value: Scalar) -> None:
        """Note the effect of a store of `value` on an output."""
        made = self._stored(self.tensors[buffer], index, value)
        old = self.written.get(buffer)
        self.written[buffer] = made if old is None else merged(old, made, self.batch)

    def _stored(self, tensor: _Tensor, index: Sequence[Index], value: Scalar) -> Layout:
        causes = value.causes | (frozenset() if value.within is None else {NUMBERED})
        if any(map(self.is_odd, tensor.sizes)) or any(self.is_odd(self.number(i.offset)) for i in index):
            causes |= {COUNTED}
        if len(value.rows) > 1:
            causes |= {OTHER_ROWS}
        if causes:
            return Mixed(causes)
        if not value.rows:
            return self._stored_alike(tensor, index, value)
        ((loop, inner),) = value.rows
        for axis, i in enumerate(index):
            if i.loop != loop:
                continue
            if i.scale < 1:
                return Mixed.by(PART)
            offset, along = self.number(i.offset).value, inner * i.scale
            fits = tensor.sizes[axis].value % (self.batch * along) == 0
            if not fits or offset % (self.batch * along) >= i.scale:
                return Mixed.by(PART)
            at = tensor.strides[axis] * along
            return Rows(at) if value.position is None else Positions(at, value.position)
        return Mixed.by(OTHER_ROWS)

    def _stored_alike(self, tensor: _Tensor, index: Sequence[Index], value: Scalar) -> Layout:
        axes = [a for a, size in enumerate(tensor.sizes) if size.value % self.batch == 0]
        if not axes:
            return Shared()

        def is_alike(a: int) -> bool:
            i, size = index[a], tensor.sizes[a].value
            if size == 1:
                return True
            whole = i.loop is not None and (i.scale, i.offset) == (1, 0)
            return whole and i.loop not in value.loops and self.loops[i.loop or 0].value == size

        first = last = axes[0]
        if len(axes) > 1 or not is_alike(first):
            return Mixed.by(PART)
        while first > 0 and is_alike(first - 1):
            first -= 1
        while last + 1 < len(index) and is_alike(last + 1):
            last += 1
        return Alike(tensor.strides[last], prod(s.value for s in tensor.sizes[first : last + 1]))

    # Bodies
    def run(self, body: Body, acc: Scalar | None = None) -> list[Scalar]:
        """Analyse a body over `loops`; note its stores."""
        self.body, self.values = body, []
        for instr in body:
            self.values.append(self._step(instr, self.values, acc))
        return self.values

    def _step(self, instr: Instr, values: list[Scalar], acc: Scalar | None) -> Scalar:
        args = [values[a] for a in instr.args]
        if instr.op == "load":
            assert instr.buffer is not None
            return self.read(instr.buffer, instr.index, values)
        if instr.op == "store":
            assert instr.buffer is not None
            self.write(instr.buffer, instr.index, args[0])
            return Scalar()
        if instr.op == "iota":
            assert instr.loop is not None
            return self._iota(instr.loop)
        if instr.op == "dim":
            assert instr.size is not None
            size = self.number(instr.size)
            return Scalar().but(COUNTED) if size.varies else Scalar(number=size.value)
        if instr.op == "acc":
            assert acc is not None
            return acc
        if instr.op == "const":
            return Scalar(number=instr.value if type(instr.value) is int else None)
        if instr.op in ("checked", "divisor"):
            return args[0]
        if instr.op == "cast":  # positions in memory are never rounded to these
            return args[0] if instr.dtype in ("i64", "i32") else replace(joined(args), number=None)
        known = self._numbered(instr, args)
        if known is not None:
            return known
        if instr.op.startswith("reduce."):
            return self.reduced(instr.op.removeprefix("reduce."), args[0], self.row_loop)
        return joined(args)

    def _numbered(self, instr: Instr, args: Sequence[Scalar]) -> Scalar | None:
        """Return the result of an operation on a row's number if it still depends on no other row: a position
        inside of the row, as gathers from merged axes compute."""
        if instr.op == "mul":
            for a, b in (args, args[::-1]):
                if b.number is not None and b.number > 0 and a.position is not None:
                    return replace(a, position=a.position * b.number)
                if b.number is not None and b.number > 0 and a.within is not None:
                    return replace(a, within=a.within * b.number, step=a.step * b.number)
        if instr.op == "add":
            x, y = args
            for a, b, other in ((x, y, instr.args[1]), (y, x, instr.args[0])):
                if a.position is not None and b.position is None and not b.causes and b.rows <= a.rows:
                    found = joined([replace(a, position=None), b])
                    is_within = self._is_below(other, a.position)
                    return replace(found, within=a.position) if is_within else found.but(NUMBERED)
                if a.within is not None and b.below is not None and b.below <= a.step and not b.rows:
                    return replace(a, loops=a.loops | b.loops, step=1)
        if instr.op == "lt" and args[0].position is not None and args[1].number == 0:
            return Scalar(number=0)  # row numbers are not negative
        if instr.op == "select" and args[0].number == 0:
            return args[2]
        return None

    def _is_below(self, value: int, width: int) -> bool:
        """Whether instruction `value` is an index from 0 to below `width`: otherwise the launch fails."""
        instr = self.body[value]
        return instr.op == "checked" and instr.size is not None and self.number(instr.size).value <= width

    def _iota(self, loop: int) -> Scalar:
        size = self.loops[loop].value
        if size == self.batch:
            return Scalar(frozenset({(loop, 1)}), frozenset({loop}), position=1)
        found = Scalar(loops=frozenset({loop}), below=size)
        return found.but(NUMBERED) if self.holds_rows(loop) else found

    def reduced(self, what: str, value: Scalar, loop: int | None) -> Scalar:
        """Return a value reduced over `loop`, which may mix rows."""
        assert loop is not None
        value = joined([value])
        rows = frozenset(row for row in value.rows if row[0] != loop)
        rest = replace(value, rows=rows, loops=value.loops - {loop})
        counts = what in ("sum", "prod") and self.holds_rows(loop)
        return rest.but(f"{what} over rows") if counts or rest.rows != value.rows else rest

    # What families follow
    def nest(self, domain: Sequence[Size], body: Body) -> None:
        """Analyse a body over the loops `domain`, of which the last is the row loop."""
        self.loops, self.row_loop = self.numbers(*domain), len(domain) - 1
        self.run(body)

    def constant(self, buffer: int, what: str) -> Scalar:
        """Return the dependences of the elements of a buffer that is not read by loops: `what`, such as
        weights."""
        layout = self.tensors[buffer].layout
        if isinstance(layout, Mixed):
            return Scalar(causes=layout.causes)
        return Scalar() if isinstance(layout, Shared) else Scalar().but(f"takes rows as {what}")

    def spread(self, buffer: int) -> tuple[Index, ...]:
        """Return the access of a buffer whose axes are the loops' or 1."""
        shape = self.spec.buffers[buffer].shape
        return tuple(Index() if s == 1 else Index(loop=a) for a, s in enumerate(shape))

    def along(self, loops: Sequence[Size], across: int, what: str) -> None:
        """Analyse a family that works along loop `across` of contiguous buffers over `loops`."""
        self.loops = self.numbers(*loops)
        values = []
        for number, buffer in enumerate(self.spec.buffers):
            if not buffer.is_output:
                self.loops[across] = self.tensors[number].sizes[across]
                if self.holds_rows(across):
                    values.append(Scalar().but(what))
                values.append(self.read(number, self.spread(number)))
        total = joined(values)
        if any(row[0] == across for row in total.rows):
            total = total.but(what)
        for number, buffer in enumerate(self.spec.buffers):
            if buffer.is_output:
                self.loops[across] = self.tensors[number].sizes[across]
                index = tuple(Index(loop=a) for a in range(len(buffer.shape)))
                self.write(number, index, total.along(across))

    def altogether(self, what: str) -> None:
        """Analyse a family each of whose results depends on all elements of the inputs."""
        inputs = [t for t, b in zip(self.tensors, self.spec.buffers, strict=True) if not b.is_output]
        is_shared = all(isinstance(t.layout, Shared) and not self._counts(t) for t in inputs)
        for number, buffer in enumerate(self.spec.buffers):
            if buffer.is_output:
                shared = is_shared and not self._counts(self.tensors[number])
                self.written[number] = Shared() if shared else Mixed.by(what)

    def _counts(self, tensor: _Tensor) -> bool:
        """Whether an axis holds rows, or has a size that depends on their number."""
        return any(size.value % self.batch == 0 or self.is_odd(size) for size in tensor.sizes)
