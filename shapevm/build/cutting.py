"""Example arguments cut down to small sizes, and the model's results on them."""

from __future__ import annotations

import ctypes
import logging
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..vm.errors import Error, GuardError
from ..vm.protection import NOBODY, protect
from ..vm.sizes import derived_sizes
from .conditions import joint_conditions

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.program import Input, Program

_MARGIN = 64  # elements after an argument; none before: `as_strided` counts from the first in memory
_FENCE = 1 << 28  # bytes of inaccessible address space after them
_MAP_NORESERVE = 0x4000  # Linux's value; Python names it from 3.12 on


@dataclass(frozen=True)
class Reference:
    """The reference for a program: `model`, run by PyTorch, and example arguments. `unguarded`: an exported
    program without torch.export's guards, for sizes whose range the user gave."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    unguarded: Any = None


@dataclass(frozen=True)
class Cut:
    """How the example arguments are cut. `sizes`: values of symbols by position; `zero`: integers are 0;
    `drawn`: floats are distinct random numbers; `guarded`: the model checks torch.export's guards; `margin`:
    the byte that follows every argument in memory."""

    sizes: Mapping[int, int]
    zero: bool = False
    drawn: bool = False
    guarded: bool = True
    margin: int = 0


class Cuts:
    """The example arguments of a model, cut to small sizes."""

    def __init__(self, exe: Executable, program: Program, reference: Reference) -> None:
        self.exe, self.program, self.reference = exe, program, reference
        self.sizes = exe.bind(*reference.args, **reference.kwargs)
        self.joint = joint_conditions(program)
        self.derived = derived_sizes(program, self.sizes)

    def of(self, index: int, value: int) -> Iterator[Cut]:
        """Yield cuts in which the symbol at `index` is `value`: the example's data, cut; the same with all
        integers 0; with no indices at all; and with other sizes that must or may have to be equal."""
        symbols = self.exe.machine.symbols
        guarded = not (symbols[index].why and self.reference.unguarded is not None)
        yield Cut({index: value}, guarded=guarded)
        if self._integers():
            yield Cut({index: value}, zero=True, guarded=guarded)
            others = {a.symbol for row in self._integers() for a in row.axes if a.symbol is not None}
            none = {i: 0 for i in others if symbols[i].min <= 0} | {index: value}
            yield Cut(none, zero=True, guarded=guarded)
        if any(index in condition for condition in self.joint):
            yield Cut(dict.fromkeys(self._partners(index, value), value), guarded=guarded)
        if len(alike := self._alike(index, value)) > 1:
            yield Cut(dict.fromkeys(alike, value), guarded=guarded)

    def is_possible(self, index: int, value: int) -> bool:
        """Return whether the example can be cut so that the symbol at `index` is `value`."""
        name = self.exe.machine.symbols[index].name
        return value <= self.sizes[name] and name not in self.derived

    def _partners(self, index: int, value: int) -> set[int]:
        """Return `index` and the symbols that share a guard with it, allow `value`, and are at least `value`
        in the example."""
        found = set().union(*(condition for condition in self.joint if index in condition))
        symbols = self.exe.machine.symbols
        reached = {i for i in found if value <= self.sizes[symbols[i].name]}
        return {i for i in reached if value in small_values(symbols[i])}

    def _alike(self, index: int, value: int) -> set[int]:
        """Return the symbols that the example gives the same size as that at `index`, and that allow
        `value`."""
        symbols = self.exe.machine.symbols
        size = self.sizes[symbols[index].name]
        return {i for i, s in enumerate(symbols) if self.sizes[s.name] == size and value in small_values(s)}

    def _integers(self) -> list[Any]:
        return [row for row in self.exe.machine.inputs if _is_integer(row)]

    def model(self, cut: Cut) -> Any:
        """Return the model that a cut is for."""
        return self.reference.model if cut.guarded else self.reference.unguarded

    def arguments(self, cut: Cut) -> tuple[Any, Any]:
        """Return copies of the arguments, which a call may change."""
        import torch
        from torch.utils._pytree import tree_map

        values = self._with_derived(cut.sizes)
        args, kwargs = self.reference.args, dict(self.reference.kwargs)
        leaves = self.exe.flat(args, kwargs)
        rows = self.exe.machine.inputs  # the state follows them
        made: dict[int, Any] = {}
        generator = torch.Generator().manual_seed(0)
        for leaf, row in zip(leaves, rows, strict=False):
            if row.kind == "tensor":
                made[id(leaf)] = _filled(_narrowed(leaf, row, values), row, cut, generator)
        changed: Any = tree_map(lambda leaf: made.get(id(leaf), leaf), (args, kwargs))
        return changed

    def _with_derived(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return sizes by symbol and those derived from them, as far as the example is large enough."""
        symbols = self.exe.machine.symbols
        sizes = {s.name: values.get(i, self.sizes[s.name]) for i, s in enumerate(symbols)}
        found = derived_sizes(self.program, sizes)
        more = {i: found[s.name] for i, s in enumerate(symbols) if found.get(s.name, -1) >= 0}
        return {**values, **{i: size for i, size in more.items() if size <= self.sizes[symbols[i].name]}}


#: The results of a model or a program for a cut: its tensors, None for other results.
Results = list[Any]


def model_results(cuts: Cuts, cut: Cut) -> Results:
    """Return the model's results. Raises the model's errors."""
    model = cuts.model(cut)
    args, kwargs = cuts.arguments(cut)
    with _as_before(cuts.exe, model):
        return _tensors(model(*args, **kwargs))


def program_results(cuts: Cuts, cut: Cut) -> Results | tuple[str, int | None, int | None]:
    """Return the program's results, or its refusal with the function and the instruction of the guard."""
    args, kwargs = cuts.arguments(cut)
    try:
        with _as_before(cuts.exe, cuts.model(cut)):
            return _tensors(cuts.exe(*args, **kwargs))
    except Error as error:
        first = (str(error).splitlines() or [""])[0]
        is_guard = isinstance(error, GuardError)
        return (first, error.function, error.pc) if is_guard else (first, None, None)


def fails_at_shapes(cuts: Cuts, cut: Cut) -> bool:
    """Return True if the model fails for any data, that is, also on meta tensors."""
    from torch._subclasses import fake_tensor as fake

    model, mode = cuts.model(cut), fake.FakeTensorMode(allow_non_fake_inputs=True)
    args, kwargs = cuts.arguments(cut)
    try:
        with _as_before(cuts.exe, model), _quiet(fake.log), mode:
            model(*_faked(mode, args), **_faked(mode, kwargs))
    except (
        fake.DataDependentOutputException,
        fake.DynamicOutputShapeException,
        fake.UnsupportedOperatorException,
    ):
        return False
    except Exception:  # anything that a model may raise
        return True
    return False


def _tensors(values: Any) -> Results:
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(values)
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else None for leaf in leaves]


def small_values(symbol: Any) -> list[int]:
    """Return which of 0 and 1 a symbol may be."""
    return [value for value in range(max(symbol.min, 0), 2) if value % symbol.multiple_of == 0]


def _is_integer(row: Input) -> bool:
    return row.kind == "tensor" and row.dtype in ("i32", "i64")


def _narrowed(leaf: Any, row: Input, values: Mapping[int, int]) -> Any:
    for position, axis in enumerate(row.axes):
        if axis.symbol is not None and axis.symbol in values:
            leaf = leaf.narrow(position, 0, axis.scale * values[axis.symbol] + axis.offset)
    return leaf


def _filled(leaf: Any, row: Input, cut: Cut, generator: Any) -> Any:
    """Return a copy of a tensor for a cut, followed by bytes of `margin`."""
    import torch

    if leaf.layout != torch.strided:
        return leaf.clone()
    around = _fenced(leaf.numel() + _MARGIN, leaf.dtype)
    around.view(torch.uint8).fill_(cut.margin)
    made = around[: leaf.numel()].view(leaf.shape)
    if cut.zero and _is_integer(row):
        return made.zero_()
    if cut.drawn and leaf.dtype.is_floating_point:
        return made.copy_(torch.randn(leaf.shape, generator=generator))
    return made.copy_(leaf)


def _fenced(n_elements: int, dtype: Any) -> Any:
    """Return a tensor at the end of readable memory: a read beyond it ends the process."""
    import torch

    n_bytes = n_elements * dtype.itemsize
    n_open = -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, n_open + _FENCE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    protect(ctypes.addressof(ctypes.c_char.from_buffer(memory)) + n_open, _FENCE, NOBODY)
    return torch.frombuffer(memory, dtype=dtype, count=n_elements, offset=n_open - n_bytes)


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Suppress a logger's records."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


@contextmanager
def _as_before(exe: Executable, model: Any) -> Iterator[None]:
    """Undo a call's changes: torch's random state, the buffers of the model and the program, and the mode
    that a failing exported vmap leaves on."""
    import torch
    from torch._C import _functorch

    depth = _functorch.get_dynamic_layer_stack_depth()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        exe.reset_state()
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


def _faked(mode: Any, values: Any) -> Any:
    """Return nested arguments with tensors that have a shape and a dtype only."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, values)
