"""Compiling one module and judging it against eager PyTorch."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

import shapevm
from shapevm.pytorch import dynamo
from shapevm.settings import settings

from ..opinfo.cases import DTYPES, SEED
from ..opinfo.verdicts import OTHER_SEEDS, Verdict, compare, has_drawn, line, set_seed
from .cases import Case

#: `static`: the module as it is. `dynamic`: as an ExportedProgram, every axis of every tensor `Dim.AUTO`.
#: `compiled`: torch.compile with dynamic sizes. `training`: torch.compile in training mode, with gradients.
MODES = ("static", "dynamic", "compiled", "training")


def judge_one(op: str, case: Case, mode: str) -> Verdict:
    """Return the verdict of one case."""
    try:
        expected = _eager(case, mode, SEED)
        seeds = OTHER_SEEDS if has_drawn() else OTHER_SEEDS[:1]
        again = [_eager(case, mode, other) for other in seeds]
    except Exception as error:
        return Verdict("skipped", f"eager: {line(error)}")
    if any(_is_foreign(x) for x in tree_leaves((case.args, case.kwargs, expected))):
        return Verdict("foreign")
    prints = redirect_stdout(io.StringIO())  # torch.export prints the graphs that it cannot export
    with settings.scope(threads=1), warnings.catch_warnings(), prints:
        warnings.simplefilter("ignore")
        judge = _by_dynamo if mode in ("compiled", "training") else _exported
        return judge(op, case, mode, expected, again)


def _is_foreign(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.dtype not in DTYPES.values() or x.layout != torch.strided)


# Outcomes -----------------------------------------------------------------------------------------------


def outcome(
    call: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any, training: bool
) -> dict[str, Any]:
    """Call `call` and return what there is to see afterwards: its results, the arguments, which it may have
    changed, and the buffers of `module`; in training also the gradients of arguments and weights."""
    if not training:
        with torch.no_grad():
            results = call(*args, **kwargs)
        return {"results": results, "arguments": (args, kwargs), "buffers": list(module.buffers())}
    tensors: list[torch.Tensor] = [x for x in tree_leaves((args, kwargs)) if _is_differentiable(x)]
    leaves = {id(x): x.detach().requires_grad_() for x in tensors}
    changed = [leaf.clone() for leaf in leaves.values()]  # a leaf cannot be changed in place
    given = dict(zip(leaves, changed, strict=True))
    args, kwargs = tree_map(lambda x: given.get(id(x), x), (args, kwargs))
    results = call(*args, **kwargs)
    loss = sum((x * _factors(x)).sum() for x in tree_leaves(results) if getattr(x, "requires_grad", False))
    if isinstance(loss, torch.Tensor):
        loss.backward()
    gradients = [x.grad for x in (*leaves.values(), *module.parameters())]
    seen = {"results": results, "arguments": (args, kwargs), "buffers": list(module.buffers())}
    return tree_map_only(torch.Tensor, torch.detach, seen | {"gradients": gradients})


def _is_differentiable(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def _factors(x: torch.Tensor) -> torch.Tensor:
    """Return numbers that give every element a gradient of its own."""
    return torch.arange(x.numel(), dtype=torch.float64).cos().view(x.shape).to(x.dtype)


def _eager(case: Case, mode: str, number: int, wide: bool = False) -> Any:
    """Return eager's outcome after a seed; `wide`: computed in f64."""
    module, (args, kwargs) = case.copy(), case.arguments()
    if wide:
        module = module.double()
        args, kwargs = tree_map(lambda x: x.double() if _is_differentiable(x) else x, (args, kwargs))
    set_seed(number)
    with warnings.catch_warnings(), _without_short_cuts():
        warnings.simplefilter("ignore")
        return outcome(module, module, args, kwargs, mode == "training")


@contextmanager
def _without_short_cuts() -> Iterator[None]:
    """Keep transformers' encoders from skipping padding, which gives it other values: torch.export and
    torch.compile do not skip it."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _problem(op: str, case: Case, mode: str, found: Any, expected: Any, again: Any) -> str:
    """Return how an outcome differs from eager's, "" where it does not; eager in f64 counts as well."""
    scaled = [_in_scale(mode, each, expected) for each in (found, expected, *again)]
    problem = compare(scaled[0], scaled[1], scaled[2:], op)
    if not problem:
        return ""
    try:
        wide = tree_leaves(_eager(case, mode, SEED, wide=True))
    except Exception:  # a dtype among the other arguments, say
        return problem
    dtypes = [x.dtype if isinstance(x, torch.Tensor) else None for x in tree_leaves(expected)]
    rounded = [x.to(dtype) if dtype is not None else x for x, dtype in zip(wide, dtypes, strict=True)]
    counted = _in_scale(mode, rounded, expected)
    return problem if compare(scaled[0], scaled[1], scaled[2:], op, counted) else ""


def _in_scale(mode: str, found: Any, expected: Any) -> Any:
    """Return an outcome of training divided by the largest value of each tensor of `expected`, where that is
    above 1: gradients are sums, whose small elements have the rounding of the large ones."""
    (ours, structure), theirs = tree_flatten(found), tree_leaves(expected)
    if mode != "training" or len(ours) != len(theirs):
        return found
    pairs = zip(ours, theirs, strict=True)
    return tree_unflatten([x / _scale(y) if _is_differentiable(x) else x for x, y in pairs], structure)


def _scale(x: Any) -> float:
    finite = x[x.isfinite()].abs() if _is_differentiable(x) else torch.empty(0)
    return max(float(finite.max()), 1.0) if finite.numel() else 1.0


# Exported -----------------------------------------------------------------------------------------------


def _exported(op: str, case: Case, mode: str, expected: Any, again: Any) -> Verdict:
    try:
        program = _program(case, mode)
    except Exception as error:
        return Verdict("skipped", f"export: {line(error)}")
    try:
        args, kwargs = case.arguments()
        exe = shapevm.compile(program, args, kwargs, strategy="generic")
        found, exact = (_called(exe, case), _called(exe.using("jit"), case))
    except Exception as error:
        return _failed(error)
    problem = _problem(op, case, mode, found, expected, again)
    if not problem and compare(found, exact, again, op):
        problem = "the exact tier gives other values"
    if problem:
        return Verdict("differs", problem)
    return Verdict("fallback", ", ".join(exe.machine.externs)) if exe.machine.externs else Verdict("native")


def _called(exe: Callable[..., Any], case: Case) -> Any:
    module, (args, kwargs) = case.copy(), case.arguments()
    return outcome(exe, module, args, kwargs, False)


def _program(case: Case, mode: str) -> Any:
    """Return what shapevm compiles."""
    module, (args, kwargs) = case.copy(), case.arguments()
    if mode == "static":
        torch.export.export(module, args, kwargs)  # fails where PyTorch cannot export the module
        return case.copy()
    return torch.export.export(module, args, kwargs, dynamic_shapes=case.dynamic_shapes())


def _failed(error: Exception) -> Verdict:
    is_refused = isinstance(error, shapevm.Error) and not isinstance(error, AssertionError)
    return Verdict("refused" if is_refused else "crash", f"{type(error).__name__}: {line(error)}")


# torch.compile ------------------------------------------------------------------------------------------


def _by_dynamo(op: str, case: Case, mode: str, expected: Any, again: Any) -> Verdict:
    try:
        with _versions() as versions:
            found = _compiled(case, mode, "shapevm")
    except Exception as error:
        try:
            _compiled(case, mode, "aot_eager")
        except Exception as its_own:
            return Verdict("skipped", f"torch.compile: {line(its_own)}")
        return _failed(error)
    problem = _problem(op, case, mode, found, expected, again)
    if problem:
        return Verdict("differs", problem)
    called = {
        name for version in versions if version.executable for name in version.executable.machine.externs
    }
    if any(version.executable is None for version in versions):
        called.add("a whole graph")
    called.update(_graph_breaks())
    return Verdict("fallback", ", ".join(sorted(called))) if called else Verdict("native")


def _graph_breaks() -> set[str]:
    """Return why Dynamo left parts of the module to Python."""
    counters = torch._dynamo.utils.counters
    reasons = {reason.splitlines()[0] for reason in counters["graph_break"]}
    if not counters["stats"] and not reasons:
        reasons = {"it left the whole frame"}
    return {f"what Dynamo has no graph of ({reason})" for reason in reasons}


#: What is off by default in Dynamo and leaves modules to Python: recurrent layers, sizes and numbers that
#: data give.
CAPTURED = {"allow_rnn": True, "capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


@torch._dynamo.config.patch(**CAPTURED)
def _compiled(case: Case, mode: str, backend: str) -> Any:
    """Return the outcome of torch.compile."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    module, (args, kwargs) = case.copy(), case.arguments()
    options = {"strategy": "generic"} if backend == "shapevm" else None
    run = torch.compile(
        module, backend=backend, dynamic=True if mode == "compiled" else None, options=options
    )
    set_seed(SEED)
    return outcome(run, module, args, kwargs, mode == "training")


@contextmanager
def _versions() -> Iterator[list[Any]]:
    """Collect the programs that graphs become."""
    made: list[Any] = []
    make = dynamo.CompiledGraph._new_version

    def keep(*args: Any) -> Any:
        made.append(make(*args))
        return made[-1]

    with mock.patch.object(dynamo.CompiledGraph, "_new_version", keep):
        yield made
