"""What a program with `Dim.AUTO` on every axis takes, beside what torch.export's own program takes.

Sizes are drawn from the ranges of torch.export's program and the examples are repeated or cut to them. Where
eager runs at such sizes and torch.export's program takes them, shapevm's must give eager's values.
"""

from __future__ import annotations

import copy
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from shapevm.compiler.frontends.dynamic_shapes import user_inputs
from shapevm.compiler.frontends.narrowing import at
from shapevm.compiler.frontends.symbols import finite
from torch.utils._pytree import tree_leaves

import shapevm
from shapevm.settings import settings

from ..opinfo import verdicts as eager
from ..opinfo.cases import Call
from ..opinfo.verdicts import Verdict, line
from .cases import Spread, of_tensors

#: `narrower`: sizes that torch.export's program takes are refused, and a log line says so; `silent`: none
#: does; `raw`: an error that is not one of shapevm's. The others are those of `opinfo.verdicts`.
BAD = ("narrower", "silent", "refused", "raw", "differs", "crash", "slow")
SIZES = (2, 3, 5, 7, 11)
DRAWS = 3
Given = Callable[[Sequence[torch.Tensor]], tuple[Sequence[Any], dict[str, Any]]]
ROUNDING = 2e-6  # as a part of the greatest result


def prepare() -> None:
    """Make this process quick, and let shapevm's log lines be seen."""
    eager.prepare()
    logging.disable(logging.NOTSET)


def judge_one(op: str, call: Call, mode: str = "dynamic") -> Verdict:
    """Return the verdict of one call."""
    case = eager._case(op, call)
    if isinstance(case, Verdict):
        return case
    shapes = (tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in call.tensors),)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            own = torch.export.export(call, _copies(call.tensors), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        return Verdict("skipped", f"export: {line(error)}")
    with torch.no_grad():
        drawn = list(_drawn(own, call.tensors))
    return judge_against(case, own.module, drawn, call, dynamic_shapes=shapes)


def judge_traced(op: str, call: Call, mode: str = "") -> Verdict:
    """Return the verdict of a traced program: at other sizes it must give what the trace gives there."""
    try:
        with torch.no_grad():
            traced = torch.jit.trace(call, tuple(x.clone() for x in call.tensors), check_trace=False)
    except Exception as error:
        return Verdict("skipped", f"trace: {line(error)}")
    case = eager._case(op, of_tensors(traced, call.tensors))
    if isinstance(case, Verdict):
        return case
    case.call.in_f64 = lambda: _traced_in_f64(call)
    return judge_against(case, lambda: traced, _other_sizes(case.call.tensors), traced)


def _traced_in_f64(call: Call) -> Any:
    """Return the trace of a call in f64: one made in f32 holds constants of f32."""
    with torch.no_grad():
        return torch.jit.trace(_in_f64(call), _wide(call.tensors), check_trace=False)


def _in_f64(call: Call) -> Any:
    """Return a call with all its floats in f64, also those that are neither weights nor buffers."""
    wide = copy.deepcopy(call).double()
    for module in wide.modules():
        for name, x in list(vars(module).items()):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                setattr(module, name, x.double())
    return wide


def judge_scripted(op: str, call: Call, mode: str = "") -> Verdict:
    """Return the verdict of a scripted module: at other sizes it must give what the script gives there."""
    scripted = copy.copy(call)
    try:
        assert isinstance(call.function, Spread)
        program = torch.jit.script(copy.deepcopy(call.function.function))
        scripted.function = Spread(program)
    except Exception as error:
        return Verdict("skipped", f"script: {line(error)}")
    case = eager._case(op, scripted)
    if isinstance(case, Verdict):
        return case

    def given(tensors: Sequence[torch.Tensor]) -> tuple[Any, dict[str, Any]]:
        (args,), kwargs = scripted.arguments(tensors)
        return args, kwargs

    return judge_against(case, lambda: scripted, _other_sizes(case.call.tensors), program, given)


def _other_sizes(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return the tensors with a first axis of another size, where equal sizes stay equal, and with all axes
    longer; none where one has no elements."""
    if any(x.numel() == 0 for x in tensors):
        return []
    first = [{x.shape[0]: size for x in tensors if x.dim()} for size in (1, 5)]
    longer = {size: 2 * size for x in tensors for size in x.shape}
    return [
        [resized(x, (sizes.get(x.shape[0], 0), *x.shape[1:]) if x.dim() else ()) for x in tensors]
        for sizes in first
    ] + [[resized(x, [longer[size] for size in x.shape]) for x in tensors]]


def judge_against(
    case: eager.Case,
    own: Callable[[], Any],
    drawn: Sequence[Sequence[torch.Tensor]],
    program: Any,
    given: Given = lambda tensors: (tensors, {}),
    **options: Any,
) -> Verdict:
    """Compile `program`, which gives eager's results at the example of `case` and at what is `drawn`, where
    `own()`, PyTorch's program, takes that. `given(tensors)`: its (args, kwargs)."""
    args, kwargs = given(_copies(case.call.tensors))
    try:
        with _lines() as log, settings.scope(threads=1):
            exe = shapevm.compile(program, args, kwargs, strategy="generic", **options)
    except shapevm.Error as error:
        return Verdict("refused", f"{type(error).__name__}: {line(error)}")
    except Exception as error:
        return Verdict("raw", f"{type(error).__name__}: {line(error)}")
    with exe:
        return _judged(own, exe, case, drawn, log, given)


def _judged(
    own: Callable[[], Any],
    exe: shapevm.Executable,
    case: eager.Case,
    drawn: Sequence[Sequence[torch.Tensor]],
    log: Sequence[str],
    given: Given,
) -> Verdict:
    """Return the verdict of a program that compiles."""
    for tensors in (case.call.tensors, *drawn):
        call = copy.copy(case.call)
        call.tensors = list(tensors)
        at_sizes = eager._case(case.op, call)
        if isinstance(at_sizes, Verdict):
            continue
        sizes = [list(x.shape) for x in tensors]
        args, kwargs = given(_copies(tensors))
        try:
            found = exe(*args, **kwargs)
        except shapevm.Error as error:
            if _takes(own(), tensors):
                return Verdict("narrower" if log else "silent", f"{sizes}: {line(error)}; log: {list(log)}")
            continue
        except Exception as error:
            return Verdict("raw", f"{sizes}: {type(error).__name__}: {line(error)}")
        verdict = eager._verdict(at_sizes, found, found, bool(exe.machine.externs))
        is_wrong = verdict.verdict == "differs" and not _is_rounding(found, at_sizes.expected)
        if is_wrong and not _is_as_exact(found, at_sizes.expected, call):
            return Verdict("differs", f"{sizes}: {verdict.detail}")
    return Verdict("fallback", ", ".join(exe.machine.externs)) if exe.machine.externs else Verdict("native")


def _is_rounding(found: Any, expected: Any) -> bool:
    """Whether results differ by less than sums of thousands of terms in f32 may."""
    pairs = list(zip(tree_leaves(found), tree_leaves(expected), strict=True))
    if any(a.shape != b.shape or a.dtype != torch.float32 or b.dtype != a.dtype for a, b in pairs):
        return False
    return all((a - b).abs().max() <= ROUNDING * b.abs().max() for a, b in pairs if b.numel())


def _is_as_exact(found: Any, expected: Any, call: Call) -> bool:
    """Whether those results in f32 that are not close are about as near as eager's to those in f64: great
    numbers before a softmax, for example, are rounded by both."""
    try:
        program = call.in_f64() if hasattr(call, "in_f64") else _in_f64(call)
        with torch.no_grad():
            exact = tree_leaves(program(*_wide(call.tensors)))
    except Exception:
        return False
    leaves = list(zip(tree_leaves(found), tree_leaves(expected), exact, strict=True))
    if any(a.shape != b.shape or b.shape != c.shape or a.dtype != b.dtype for a, b, c in leaves):
        return False
    distant = [row for row in leaves if not torch.allclose(*row[:2], rtol=1.3e-6, atol=1e-5, equal_nan=True)]
    if any(b.dtype != torch.float32 or c.dtype != torch.float64 for _, b, c in distant):
        return False
    return all(_error(a, c) <= 2 * _error(b, c) for a, b, c in distant)


def _error(x: torch.Tensor, exact: torch.Tensor) -> float:
    return float((x - exact).abs().max()) if x.numel() else 0.0


def _takes(own: Any, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether torch.export's program runs on tensors."""
    try:
        with torch.no_grad():
            own(*_copies(tensors))
    except Exception:
        return False
    return True


def _wide(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(x.double() if x.is_floating_point() else x.clone() for x in tensors)


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(x.clone() for x in tensors)


@contextmanager
def _lines() -> Iterator[list[str]]:
    """Collect what shapevm says of dynamic_shapes."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("shapevm")
    level, log.propagate = log.level, False
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True


def _drawn(own: Any, tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors at some sizes in the ranges of torch.export's program."""
    values = [node.meta["val"] for node in user_inputs(own)]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    sizes_of = [size for shape in shapes for size in shape if not isinstance(size, int)]
    symbols = {symbol for size in sizes_of for symbol in size.node.expr.free_symbols}
    drawn = random.Random(len(symbols))
    if not symbols or any(x.numel() == 0 for x in tensors) or len(shapes) != len(tensors):
        return
    for _ in range(DRAWS):
        sizes = {s: _size(own.range_constraints.get(s), drawn) for s in sorted(symbols, key=str)}
        wanted = [[at(size, sizes) for size in shape] for shape in shapes]
        if all(size is not None for shape in wanted for size in shape):
            yield [resized(x, shape) for x, shape in zip(tensors, wanted, strict=True)]


def _size(limits: Any, drawn: random.Random) -> int:
    low, high = (finite(limits.lower), finite(limits.upper)) if limits is not None else (2, None)
    size = max(drawn.choice(SIZES), low or 0)
    return size if high is None else min(size, high)


def resized(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return a tensor with its rows repeated or cut; one row of ordered numbers stays ordered."""
    is_ordered = x.dim() == 1 and bool((x.diff() >= 0).all())
    for axis, size in enumerate(shape):
        if size != x.shape[axis]:
            x = x.index_select(axis, torch.arange(size) % x.shape[axis])
            x = x + 0.01 * torch.randn_like(x) if x.is_floating_point() else x  # no ties
    return x.sort().values if is_ordered else x
