"""Whether a program treats the rows of a batch independently, decided from its bytecode and kernel specs.

For one symbol of the contract the program is interpreted abstractly: every tensor has a layout
(`jit.dependence`) that gives the row on which each of its elements depends. Dependences on other rows are
reported by kernel and model line. Both sides of branches are analysed, and loops to a fixed point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...jit.dependence import Alike, Layout, Mixed, Number, Positions, Rows, Shared
from ...jit.families.table import family_of
from ...jit.spec_reader import from_json
from ...vm.program import Kernel, Program
from .flow import Flow
from .rules import MAX_STEPS, Budget, TooLong, Walk
from .values import BATCH, Known, State, Tensor, Unknown, layout_of

AMX = "x86-64-v4-amx"
_PACKED = "tokens are packed by "


@dataclass(frozen=True)
class Verdict:
    """The dependences of one result of a program: `layout`, of `sizes` at BATCH rows."""

    name: str
    layout: Layout
    sizes: tuple[Number, ...]
    order: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def causes(self) -> list[str]:
        """Why the rows of the result are not independent, in the program's order; empty if they are."""
        found = self.layout.causes if isinstance(self.layout, Mixed) else ()
        return sorted(found, key=lambda cause: (self.order.get(cause, -1), cause))

    @property
    def inner(self) -> int | None:
        """The number of adjacent elements of one row, in units of BATCH; None: it has no rows."""
        if isinstance(self.layout, Alike):
            return self.layout.inner * (self.layout.count // BATCH)
        return self.layout.inner if isinstance(self.layout, Rows) else None

    @property
    def place(self) -> tuple[int, bool] | None:
        """The axis that holds the rows, and whether a row's elements along it are adjacent (else their
        distance is the number of rows); None if no single axis does."""
        stride = 1
        for axis in reversed(range(len(self.sizes))):
            size = self.sizes[axis].value
            if size and size % BATCH == 0 and self.inner is not None and self.inner % stride == 0:
                if size // BATCH == self.inner // stride:
                    return axis, True
                if self.inner == stride:
                    return axis, False
            stride *= max(size, 1)
        return None


def verdicts(program: Program, symbol: str, budget: Budget | None = None) -> list[Verdict]:
    """Return the dependences of each result of `program` along `symbol` of its contract. Raises TooLong if
    the analysis takes more steps than `budget` has."""
    walk = Walk(program, symbol, budget or Budget())
    state = State({}, {})
    for i, row in enumerate(program.inputs):
        if row.kind == "tensor":
            sizes = tuple(_axis_size(walk, a.symbol, a.scale, a.offset) for a in row.axes)
            state.registers[i] = Tensor((-1, i), sizes)
            state.storages[-1, i] = _input_layout(row.name, sizes)
        else:
            known = walk.symbols[row.symbol] if row.symbol is not None else Number(walk.prime(row.name))
            state.registers[i] = known if row.kind == "int" else Unknown()
    for i, number in enumerate(walk.symbols):
        state.registers[len(program.inputs) + i] = number
    results, state = Flow(walk, program.functions[0], state, 0).run()
    return [
        _verdict(walk, output.name, known, state)
        for output, known in zip(program.outputs, results, strict=True)
    ]


def _axis_size(walk: Walk, symbol: int | None, scale: int, offset: int) -> Number:
    if symbol is None:
        return Number(offset)
    known = walk.symbols[symbol]
    return Number(scale * known.value + offset, known.varies)


def _input_layout(name: str, sizes: Sequence[Number]) -> Layout:
    """Return an input's layout: its one axis of rows is the one that has the symbol."""
    found = [a for a, size in enumerate(sizes) if size.varies]
    if not found:
        return Shared()
    if len(found) > 1 or sizes[found[0]].value % BATCH:
        return Mixed.by(f"input {name}: its sizes are no multiples of the rows")
    inner = sizes[found[0]].value // BATCH
    for size in sizes[found[0] + 1 :]:
        inner *= size.value
    return Rows(inner) if inner else Alike(1, BATCH)


def _verdict(walk: Walk, name: str, known: Known, state: State) -> Verdict:
    layout = layout_of(known, state)
    if isinstance(layout, Positions):
        layout = Mixed.by(f"result {name}: the rows' numbers")
    if walk.control:
        layout = Mixed(walk.control | (layout.causes if isinstance(layout, Mixed) else frozenset()))
    if isinstance(known, Number) and known.varies:
        layout = Mixed.by(f"result {name}: the number of rows")
    verdict = Verdict(name, layout, known.sizes if isinstance(known, Tensor) else (), walk.order)
    varying = [axis for axis, size in enumerate(verdict.sizes) if size.varies]
    is_square = any(verdict.sizes[axis].value % BATCH**2 == 0 for axis in varying)  # n rows for each of n
    if verdict.causes or (varying == [p[0] for p in (verdict.place,) if p] and not is_square):
        return verdict
    return replace(verdict, layout=Mixed.by(f"result {name}: its sizes are no multiples of the rows"))


def row_symbols(program: Program) -> dict[str, list[Verdict]]:
    """Return the verdicts of every symbol that is the size of some input's axis. Raises ValueError for a
    kernel spec that cannot be read."""
    bound = {a.symbol for row in program.inputs for a in row.axes} - {None}
    found, budget, packed = {}, Budget(), packed_sizes(program)
    for name in (s.name for i, s in enumerate(program.symbols) if i in bound):
        if name in packed:
            why = Mixed.by(f"{_PACKED}{program.meta['packed']}; `shapevm prove` compares texts alone")
            found[name] = [Verdict(output.name, why, ()) for output in program.outputs]
            continue
        try:
            found[name] = verdicts(program, name, budget)
        except TooLong:
            unknown = Mixed.by(f"the program takes more than {MAX_STEPS:,} steps to follow")
            found[name] = [Verdict(output.name, unknown, ()) for output in program.outputs]
    return found


def packed_sizes(program: Program) -> list[str]:
    """Return the names of the sizes batch and length of a program whose tokens are packed, else none."""
    masks = [row for row in program.inputs if row.name == program.meta.get("packed")]
    return [program.symbols[a.symbol].name for row in masks for a in row.axes if a.symbol is not None]


def along(found: Mapping[str, Sequence[Verdict]]) -> dict[str, dict[str, list[str]]]:
    """Return the causes of each symbol's verdicts, by result; none for results with independent rows."""
    return {name: {v.name: v.causes for v in verdicts} for name, verdicts in found.items()}


def along_text(causes_of: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return the result of `along` as text."""
    lines = []
    for symbol, results in causes_of.items():
        bad = {name: causes for name, causes in results.items() if causes}
        if not bad:
            lines.append(f"invariant along {symbol}: a row's results depend on nothing but the row")
            continue
        if all(cause.startswith(_PACKED) for each in bad.values() for cause in each):
            lines.append(f"along {symbol} {next(iter(bad.values()))[0]}")
            continue
        kept = ", ".join(name for name in results if name not in bad)
        rest = f" (but {kept} is)" if kept else ""
        lines.append(f"not invariant along {symbol}: {', '.join(bad)}{rest}")
        causes = dict.fromkeys(cause for each in bad.values() for cause in each)
        lines += [f"  {cause}" for cause in list(causes)[:8]]
    return lines


def is_exception(kernel: Kernel) -> bool:
    """Return True for a kernel with code whose bits depend on the number of rows: products of f32 on AMX
    tiles, which the option `precision="bf16x6"` allows. Byte products are exact, and bf16 tiles compute any
    number of rows."""
    if not any(o.target == AMX for o in kernel.objects):
        return False
    spec = from_json(kernel.spec)
    return family_of(spec).extensions(spec) == ("amx",)


def exceptions(program: Program) -> list[str]:
    """Return the kernels of `program` whose bits depend on the number of rows."""
    from ...jit.families.matmul.amx import MIN_ROWS

    kernels = enumerate(program.kernels)
    found = [f"k{number} {kernel.label}" for number, kernel in kernels if is_exception(kernel)]
    if not found:
        return []
    return [
        f"{', '.join(found)} on {AMX}: with {MIN_ROWS} rows and more products are sums of bf16 products; "
        "compile without precision=bf16x6 to have the same bits in any batch"
    ]
