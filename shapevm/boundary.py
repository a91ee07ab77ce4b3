"""Sizes 0 and 1, checked by running the model once at each.

torch.export traces a program at sizes of 2 or more and answers questions about 0 and 1 as it would for
those: does this broadcast, is this contiguous. Where a model takes another branch at 1, the traced program is
not the model there. So where the contract allows 0 or 1, both are run at that size, on the example inputs cut
down to it, and compared. An exported program is compared with what PyTorch makes of it.

What does not work is refused where the user gave the range with a `Dim`. A range that nobody gave
(`Dim.AUTO`, `Dim.DYNAMIC`) becomes the range that works, and a log record says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .conditions import condition_symbols, joint_conditions
from .state import RANDOM
from .unchecked import checked
from .vm.errors import Error, GuardError, ShapeError
from .vm.sizes import derived_sizes

if TYPE_CHECKING:
    from .executable import Executable
    from .vm.program import Input, Program, Symbol

_LOG = logging.getLogger("shapevm")

#: The distance from 1 to the next number, of what a program's weights and products' operands are rounded to.
PRECISIONS = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10, "int8": 2.0**-6, "int4": 2.0**-2}
#: The same of quantised activations: a last bit can move one by a step, and that others in the layers behind.
QUANTISED = 2.0**-4
#: Far more than rounding, far less than another branch. RELATIVE counts in units of the dtype's precision.
RELATIVE, LEAST_RELATIVE, ABSOLUTE = 16, 1e-3, 1e-4


@dataclass(frozen=True)
class Reference:
    """What a program is compared with: `model`, as PyTorch runs it, and example arguments. `unguarded`: an
    exported program without the guards that torch.export added, for sizes whose range the user gave."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    unguarded: Any = None


@dataclass(frozen=True)
class Problem:
    """What is wrong at a size. `is_refused`: the program says so itself at every call; `is_joint`: by a guard
    on this size and others, which may hold beside other sizes; `is_lost`: the model works there."""

    text: str
    is_refused: bool = False
    is_joint: bool = False
    is_lost: bool = True


@dataclass(frozen=True)
class Least:
    """The least value that a symbol may have, and why."""

    value: int
    why: str


def boundary_check(
    reference: Reference | None, rounded: Sequence[str]
) -> Callable[[Executable, Program], dict[str, Least]] | None:
    """Return `check_boundaries` for a program, where there is something to compare it with."""
    return None if reference is None else lambda exe, of: check_boundaries(exe, of, reference, rounded)


def _quantises(exe: Executable) -> bool:
    """Whether a program rounds floats to integers of a byte: which way a float is rounded may depend on the
    order of a sum."""
    from .compiler.ir.types import FLOAT_DTYPES
    from .jit.spec import bodies
    from .jit.spec_reader import from_json

    return any(
        instr.op == "cast" and instr.dtype in ("i8", "u8") and body[instr.args[0]].dtype in FLOAT_DTYPES
        for kernel in exe.machine.kernels
        if '"i8"' in kernel.spec or '"u8"' in kernel.spec
        for body in bodies(from_json(kernel.spec))
        for instr in body
    )


def check_boundaries(
    exe: Executable, program: Program, reference: Reference, rounded: Sequence[str] = ()
) -> dict[str, Least]:
    """Compare `exe`, which runs `program`, with the model at size 0 and 1 of every symbol that may be so
    small.

    Returns the least values of those symbols that nobody gave a range and that must not be so small. Raises
    ShapeError that names the size and the bound to give, where the two differ or the model itself fails at a
    size that the user gave. `rounded`: the dtypes that weights and operands of products were rounded to.
    """
    import torch

    from .compiler.frontends.evaluation import in_evaluation

    precision = max(QUANTISED if _quantises(exe) else 0.0, *(PRECISIONS[name] for name in ("f32", *rounded)))
    trial = _Trial(exe, program, reference, precision)
    least: dict[str, Least] = {}
    with in_evaluation(reference.model), _threads_that_run(), torch.no_grad():
        for index, symbol in enumerate(exe.machine.symbols):
            for value in _small_values(symbol):
                problem = trial.problem(index, value)
                if problem is not None and symbol.why:
                    _report(symbol, value, problem)
                elif problem is not None and not problem.is_joint:  # nobody gave its range
                    least[symbol.name] = Least(value + 1, f"at {value} {problem.text}")
                    level = logging.WARNING if problem.is_lost else logging.INFO
                    text = "size %s is at least %d: at %d %s"
                    _LOG.log(level, text, symbol.name, value + 1, value, problem.text)
    return least


def _report(symbol: Symbol, value: int, problem: Problem) -> None:
    """Say what is wrong at a size that the user gave. Raises ShapeError unless the program does so itself."""
    if problem.is_refused:
        _LOG.warning("at %s = %d %s", symbol.name, value, problem.text)
        return
    bound = f"give torch.export.Dim({symbol.name!r}, min={value + 1})"
    raise ShapeError(f"at {symbol.name} = {value} {problem.text}; {bound}")


def _small_values(symbol: Symbol) -> list[int]:
    return [value for value in range(max(symbol.min, 0), 2) if value % symbol.multiple_of == 0]


def _is_integer(row: Input) -> bool:
    return row.kind == "tensor" and row.dtype in ("i32", "i64")


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Keep a logger's records back."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


@contextmanager
def _threads_that_run() -> Iterator[None]:
    """Let torch use no more threads than there are idle CPUs, as far as the load tells: those of others are
    waited for at the end of every operator, which takes seconds on a busy machine."""
    import torch

    before = torch.get_num_threads()
    idle = (os.cpu_count() or 1) - os.getloadavg()[0] + 1  # this process is part of the load
    limited = min(before, max(1, round(idle)))
    if limited < before:
        torch.set_num_threads(limited)
    try:
        yield
    finally:
        if limited < before:
            torch.set_num_threads(before)


class _Trial:
    """A program beside its model, on example inputs that are cut down to small sizes."""

    def __init__(self, exe: Executable, program: Program, reference: Reference, precision: float) -> None:
        self.exe, self.reference, self.precision = exe, reference, precision
        self.model = reference.model
        self.sizes = exe.bind(*reference.args, **reference.kwargs)
        self.program = program
        self.joint = joint_conditions(program)
        self.derived = derived_sizes(program, self.sizes)

    def problem(self, index: int, value: int) -> Problem | None:
        """Return what is wrong where the symbol at `index` is `value`; None where nothing is, the example is
        no larger, or nothing can be said: a log record says that.

        Example data that is cut may become invalid, such as an index of a row that was cut away, or a size
        that must fit others. So several arguments are tried until the model and the program take some.
        """
        symbol = self.exe.machine.symbols[index]
        if value >= self.sizes[symbol.name] or symbol.name in self.derived:
            return None
        is_unguarded = symbol.why and self.reference.unguarded is not None
        self.model = self.reference.unguarded if is_unguarded else self.reference.model
        failures: list[Exception] = []
        tried, joint = [], None
        for args, kwargs in self._arguments(index, value):
            tried.append((args, kwargs))
            try:
                expected = self._expected(args, kwargs)
            except Exception as error:  # anything that a model may raise
                failures.append(error)
            else:
                problem = self._difference(args, kwargs, expected)
                if problem is None or not problem.is_joint:
                    return problem
                joint = joint or problem
        if joint is not None:
            return joint
        reason = (str(failures[0]).splitlines() or [""])[0]
        reason = f"{type(failures[0]).__name__}: {reason}"
        if all(self._fails_at_shapes(*arguments) for arguments in tried):
            return Problem(f"the model itself fails ({reason})", is_lost=False)
        if not self._refuses(*tried[0]):
            text = "size %s = %d is not checked: the model fails on the example inputs cut to it (%s)"
            _LOG.warning(text, symbol.name, value, reason)
        return None

    def _arguments(self, index: int, value: int) -> Iterator[tuple[Any, Any]]:
        """Yield arguments in which the symbol at `index` is `value`: the example's, cut; these with integers
        that are indices of the first element; and those with no indices at all."""
        yield self._cut({index: value})
        if self._integers():
            yield self._cut({index: value}, zero=True)
            symbols = self.exe.machine.symbols
            others = {a.symbol for row in self._integers() for a in row.axes if a.symbol is not None}
            yield self._cut({i: 0 for i in others if symbols[i].min <= 0} | {index: value}, zero=True)
        if any(index in condition for condition in self.joint):
            yield self._cut(dict.fromkeys(self._partners(index, value), value))

    def _partners(self, index: int, value: int) -> set[int]:
        """Return `index` and the symbols that stand in a guard with it, may be `value`, and are no smaller in
        the example."""
        found = set().union(*(condition for condition in self.joint if index in condition))
        symbols = self.exe.machine.symbols
        reached = {i for i in found if value <= self.sizes[symbols[i].name]}
        return {i for i in reached if value in _small_values(symbols[i])}

    def _integers(self) -> list[Any]:
        return [row for row in self.exe.machine.inputs if _is_integer(row)]

    def _cut(self, values: Mapping[int, int], zero: bool = False) -> tuple[Any, Any]:
        """Return the example arguments with sizes cut to `values`; `zero`: with integers that are 0."""
        import torch
        from torch.utils._pytree import tree_map

        values = self._with_derived(values)
        args, kwargs = self.reference.args, dict(self.reference.kwargs)
        leaves = self.exe.flat(args, kwargs)
        rows = self.exe.machine.inputs  # behind them comes the state
        cut: dict[int, Any] = {}
        for leaf, row in zip(leaves, rows, strict=False):
            if row.kind != "tensor":
                continue
            made = leaf
            for position, axis in enumerate(row.axes):
                if axis.symbol is not None and axis.symbol in values:
                    made = made.narrow(position, 0, axis.scale * values[axis.symbol] + axis.offset)
            cut[id(leaf)] = torch.zeros_like(made) if zero and _is_integer(row) else made
        changed: Any = tree_map(lambda leaf: cut.get(id(leaf), leaf), (args, kwargs))
        return changed

    def _with_derived(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return sizes by symbol with those that follow from them, as far as the example has so much."""
        symbols = self.exe.machine.symbols
        sizes = {s.name: values.get(i, self.sizes[s.name]) for i, s in enumerate(symbols)}
        found = derived_sizes(self.program, sizes)
        more = {i: found[s.name] for i, s in enumerate(symbols) if found.get(s.name, -1) >= 0}
        return {**values, **{i: size for i, size in more.items() if size <= self.sizes[symbols[i].name]}}

    def _expected(self, args: Any, kwargs: Any) -> Any:
        with _as_before(self.exe, self.model), checked():
            results = self.model(*_copied(args), **_copied(kwargs))
            return _copied(results)  # they may be buffers, which are set back

    def _refuses(self, args: Any, kwargs: Any) -> bool:
        """Return True where the program itself says that it is not for these arguments."""
        try:
            with _as_before(self.exe, self.model), checked():
                self.exe(*_copied(args), **_copied(kwargs))
        except Error:
            return True
        return False

    def _fails_at_shapes(self, args: Any, kwargs: Any) -> bool:
        """Return True where the model fails whatever the data: also on tensors that have a shape only."""
        from torch._subclasses import fake_tensor as fake

        model, mode = self.model, fake.FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with _as_before(self.exe, model), _quiet(fake.log), mode:
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

    def _difference(self, args: Any, kwargs: Any, expected: Any) -> Problem | None:
        """Return how the program's results differ from `expected`, None where they agree."""
        import torch
        from torch.utils._pytree import tree_leaves

        try:
            with _as_before(self.exe, self.model):
                found = tree_leaves(self.exe(*_copied(args), **_copied(kwargs)))
        except Error as error:
            reason = (str(error).splitlines() or [""])[0]
            text = f"the model works, the program does not ({reason})"
            return Problem(text, is_refused=True, is_joint=self._is_joint(error))
        theirs = tree_leaves(expected)
        if len(found) != len(theirs):
            return Problem("the model gives other results than at larger sizes")
        is_random = RANDOM in self.exe.state()
        for a, b in zip(found, theirs, strict=True):
            if isinstance(b, torch.Tensor) and not agree(a, b, self.precision, is_random):
                return Problem("the model takes another way than at larger sizes, and the results differ")
        return None

    def _is_joint(self, error: Error) -> bool:
        """Return True for a guard on several sizes."""
        is_guard = isinstance(error, GuardError)
        return is_guard and len(condition_symbols(self.program, error.function, error.pc)) > 1


@contextmanager
def _as_before(exe: Executable, model: Any) -> Iterator[None]:
    """Undo what a call changes: the random numbers of torch, the model's buffers and the program's, and the
    mode that an exported vmap leaves on where it fails."""
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


def _copied(values: Any) -> Any:
    """Return nested arguments with tensors of their own, which a call may change."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, values)


def _faked(mode: Any, values: Any) -> Any:
    """Return nested arguments with tensors that have a shape and a dtype only."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, values)


def agree(ours: Any, theirs: Any, precision: float, is_random: bool = False) -> bool:
    """Return whether two results agree as far as rounding lets them; of random ones only the type counts.
    `precision`: the distance from 1 to the next number of the coarsest dtype that they were computed in."""
    import torch

    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if is_random or _are_close(ours, theirs):
        return True
    precision = max(precision, torch.finfo(theirs.dtype).eps) if theirs.dtype.is_floating_point else 0.0
    ours, theirs = ours.double(), theirs.double()
    relative = max(LEAST_RELATIVE, RELATIVE * precision)
    finite = theirs[theirs.isfinite()].abs() if precision else theirs.flatten()[:0]
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0  # sums that cancel err as their terms do
    return bool(torch.allclose(ours, theirs, relative, max(ABSOLUTE, precision) * scale, equal_nan=True))


def _are_close(ours: Any, theirs: Any) -> bool:
    """Return True where no two numbers differ by more than half of ABSOLUTE, which is always allowed: that
    takes a fraction of the time of the whole comparison. Of any others nothing is said."""
    import torch

    if theirs.dtype not in (torch.float32, torch.float64) or not theirs.numel():
        return False
    return bool((ours - theirs).abs_().max().item() <= ABSOLUTE / 2)  # False with anything that is not finite
