"""Sizes 0 and 1, checked by running the model once at each.

torch.export traces a program at sizes of 2 or more and assumes that sizes 0 and 1 behave alike (broadcasting,
contiguity). If a model takes another branch at 1, the traced program differs from the model there. So
wherever the contract allows 0 or 1, both are run at that size, on the example inputs cut down to it, and
compared. An exported program is compared with PyTorch's own execution of it.

A size that does not work is refused if the user gave the range with a `Dim`. An unspecified range
(`Dim.AUTO`, `Dim.DYNAMIC`) is narrowed to the range that works, and a log record says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..calls.state import RANDOM
from ..program.opening import Least
from ..vm.errors import ShapeError
from .apart import Apart, CallFailed
from .conditions import is_joint
from .cutting import (
    Cut,
    Cuts,
    Reference,
    Results,
    fails_at_shapes,
    model_results,
    program_results,
    small_values,
)

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.program import Program, Symbol

_LOG = logging.getLogger("shapevm")

#: The distance from 1 to the next number, by the dtype to which weights and operands of products are rounded.
PRECISIONS = {
    "f32": 2.0**-23,
    "bf16x6": 2.0**-23,
    "i16": 2.0**-15,
    "bf16": 2.0**-7,
    "f16": 2.0**-10,
    "int8": 2.0**-6,
    "int4": 2.0**-2,
}
#: The same for quantised activations: a last bit can move one by a step, which moves others in later layers.
QUANTISED = 2.0**-4
#: Far more than rounding errors, far less than the effect of another branch. RELATIVE is in units of the
#: dtype's precision.
RELATIVE, LEAST_RELATIVE, ABSOLUTE = 16, 1e-3, 1e-4
_OTHER_MARGIN = 0x3F  # as a float about 0.75, as an integer large


@dataclass(frozen=True)
class Problem:
    """A problem at a size. `is_refused`: the program itself refuses every call; `is_joint`: it refuses by a
    guard that also depends on other sizes or on data, and so may hold for others; `is_lost`: the model works
    there."""

    text: str
    is_refused: bool = False
    is_joint: bool = False
    is_lost: bool = True


def boundary_check(
    reference: Reference | None, rounded: Sequence[str]
) -> Callable[[Executable, Program], dict[str, Least]] | None:
    """Return `check_boundaries` for a program, if there is something to compare it with."""
    return None if reference is None else lambda exe, of: check_boundaries(exe, of, reference, rounded)


def _quantises(exe: Executable) -> bool:
    """Whether a program rounds floats to integers of a byte: the direction of rounding may depend on the
    order of a sum."""
    from ..compiler.ir.types import FLOAT_DTYPES
    from ..jit.spec import bodies
    from ..jit.spec_reader import from_json

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
    """Compare `exe`, which runs `program`, with the model at size 0 and 1 of every symbol that allows these.

    Returns the required lower bounds of symbols with an unspecified range. Raises ShapeError, naming the size
    and the bound to give, if the two differ or the model itself fails at a size that the user allowed.
    `rounded`: the dtypes that weights and operands of products were rounded to.
    """
    import torch

    from ..compiler.frontends.evaluation import in_evaluation

    precision = max(QUANTISED if _quantises(exe) else 0.0, *(PRECISIONS[name] for name in ("f32", *rounded)))
    cuts, least = Cuts(exe, program, reference), {}
    with in_evaluation(reference.model), torch.no_grad(), Apart(cuts) as apart:
        trial = _Trial(cuts, apart, precision)
        for index, symbol in enumerate(exe.machine.symbols):
            for value in small_values(symbol):
                problem = trial.problem(index, value)
                if problem is not None and symbol.why:
                    _report(symbol, value, problem)
                elif problem is not None and not problem.is_joint:  # its range is unspecified
                    least[symbol.name] = Least(value + 1, f"at {value} {problem.text}")
                    level = logging.WARNING if problem.is_lost else logging.INFO
                    text = "size %s is at least %d: at %d %s"
                    _LOG.log(level, text, symbol.name, value + 1, value, problem.text)
    return least


def _report(symbol: Symbol, value: int, problem: Problem) -> None:
    """Report a problem at a size that the user allowed. Raises ShapeError unless the program does so
    itself."""
    if problem.is_refused:
        _LOG.warning("at %s = %d %s", symbol.name, value, problem.text)
        return
    bound = f"give torch.export.Dim({symbol.name!r}, min={value + 1})"
    raise ShapeError(f"at {symbol.name} = {value} {problem.text}; {bound}")


class _Trial:
    """A program beside its model, on example inputs that are cut down to small sizes. Both run in a child
    process, because PyTorch's operators do not check all truncated data."""

    def __init__(self, cuts: Cuts, apart: Apart, precision: float) -> None:
        self.cuts, self.apart, self.precision = cuts, apart, precision

    def problem(self, index: int, value: int) -> Problem | None:
        """Return the problem if the symbol at `index` is `value`. None if there is none, the example is
        smaller, or the check is inconclusive, which a log record says.

        Cutting may make example data invalid, such as an index of a row that was removed, or a size that must
        match others. So several arguments are tried until the model and the program accept some.
        """
        if not self.cuts.is_possible(index, value):
            return None
        failures: list[CallFailed] = []
        tried, joint = list(self.cuts.of(index, value)), None
        for cut in tried:
            try:
                problem = self._problem_of(cut, self.apart(model_results, cut))
            except CallFailed as error:
                failures.append(error)
            else:
                if problem is None or not problem.is_joint:
                    return problem
                joint = joint or problem
        if joint is not None:
            return joint
        if all(self._fails_at_shapes(cut) for cut in tried):
            return Problem(f"the model itself fails ({failures[0]})", is_lost=False)
        if not self._refuses(tried[0]):
            text = "size %s = %d is not checked: the model fails on the example inputs cut to it (%s)"
            _LOG.warning(text, self.cuts.exe.machine.symbols[index].name, value, failures[0])
        return None

    def _fails_at_shapes(self, cut: Cut) -> bool:
        try:
            return bool(self.apart(fails_at_shapes, cut))
        except CallFailed:
            return True

    def _refuses(self, cut: Cut) -> bool:
        """Return True if the program itself refuses these arguments."""
        try:
            return isinstance(self.apart(program_results, cut), tuple)
        except CallFailed:  # the program also calls PyTorch
            return False

    def _problem_of(self, cut: Cut, expected: Results) -> Problem | None:
        """Return how the program's results differ from the model's. None if they agree, or if the difference
        is meaningless: PyTorch reads outside its arguments, or chooses among equal elements."""
        found = self.apart(program_results, cut)
        if isinstance(found, tuple):
            text = f"the model works, the program does not ({found[0]})"
            return Problem(text, is_refused=True, is_joint=self._is_joint(*found[1:]))
        if self._agree(found, expected) or not self._is_confirmed(cut, expected):
            return None
        return Problem("the model takes another way than at larger sizes, and the results differ")

    def _is_confirmed(self, cut: Cut, expected: Results) -> bool:
        """Whether the model gives the same results with other bytes around its arguments, and also differs
        from the program on random numbers."""
        drawn = replace(cut, drawn=True)
        try:
            if not self._agree(expected, self.apart(model_results, replace(cut, margin=_OTHER_MARGIN))):
                return False
            return not self._agree(self.apart(program_results, drawn), self.apart(model_results, drawn))
        except CallFailed:  # the model does not accept such numbers
            return True

    def _agree(self, found: Any, expected: Results) -> bool:
        is_random = RANDOM in self.cuts.exe.state()
        return len(found) == len(expected) and all(
            b is None or a is not None and agree(a, b, self.precision, is_random)
            for a, b in zip(found, expected, strict=True)
        )

    def _is_joint(self, function: int | None, pc: int | None) -> bool:
        """Return True for a guard that may hold for other sizes or data."""
        return function is not None and pc is not None and is_joint(self.cuts.program, function, pc)


def agree(ours: Any, theirs: Any, precision: float, is_random: bool = False) -> bool:
    """Return whether two results agree up to rounding; for random ones only the type counts. `precision`: the
    distance from 1 to the next number in the coarsest dtype of their computation."""
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
    """Return True if no two numbers differ by more than half of ABSOLUTE, which is always allowed. This check
    takes a fraction of the time of the full comparison; False proves nothing."""
    import torch

    if theirs.dtype not in (torch.float32, torch.float64) or not theirs.numel():
        return False
    return bool((ours - theirs).abs_().max().item() <= ABSOLUTE / 2)  # False for non-finite numbers
