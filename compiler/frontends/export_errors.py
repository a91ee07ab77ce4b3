"""torch.export's refusals in one sentence: the size or value, the model's line, and the fix."""

from __future__ import annotations

import builtins
import linecache
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import gcd
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.export._trace
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
    ShapeEnv,
)

from ...vm.errors import ArgumentError
from ..ir.errors import ShapeError, UnsupportedOp
from .packed_weights import ADVICE

_LOG = logging.getLogger("shapevm")
REFUSALS = (UserError, ConstraintViolationError, GuardOnDataDependentSymNode)
#: Raised for an operator, by its name, that has no form without data.
UNTRACEABLE = (UnsupportedOperatorException, DynamicOutputShapeException, DataDependentOutputException)
#: Folders whose frames are not the user's: torch's, ours and, but for packages in it, the standard library's.
_OURS = tuple(
    f"{Path(str(file)).parent}{os.sep}"
    for file in (torch.__file__, Path(__file__).parent, sys.modules[__name__.partition(".")[0]].__file__)
)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SOURCE = r"L\['(\w+)'\]((?:\[[^\]]+\])*)\.size\(\)\[(\d+)\]"
_NAMED = re.compile(rf"(\w+) = ({_SOURCE})")
_FIXED = re.compile(r"You marked (.+?) as dynamic but your code specialized it to be a constant \((-?\d+)\)")
_EQUAL = re.compile(rf"The values of (\S+) = ({_SOURCE}) and (\S+) = ({_SOURCE}) must always be equal")
_UNMET = re.compile(
    r"Not all values of (\S+) = (\S+) in the specified range.*? satisfy the generated guard (.*)"
)
_RELATED = re.compile(
    rf"The values of (\S+) = {_SOURCE} must always be related to the values of .* by \1 = (.+?)\.?$"
)
_CONTAINER = re.compile(r"(Found|Unsupported input type) <class '([^']+)'>")
_OPERAND = re.compile(r"([\w:]+)\(\) Expected a value of type '[^']+' for argument '(\w+)' but .*'Sym", re.S)
_FIX = re.compile(r"^\s+(\w+) = (.+)$", re.M)
_MULTIPLE = re.compile(r"(\d+)\*\w+")
_REMAINDER = re.compile(r"\(?\(?(?:(\d+)\*)?\w+\)? % (\d+)\)? == 0")

# What torch prints ----------------------------------------------------------------------------------

_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)


def _print(*values: Any, **options: Any) -> None:
    """Print, except for the whole graph that torch.export prints when it fails."""
    if not _is_quiet.get():
        builtins.print(*values, **options)


def _may_log(_record: logging.LogRecord) -> bool:
    return not _is_quiet.get() or "TORCH_LOGS" in os.environ


@contextmanager
def quiet() -> Iterator[None]:
    """Let torch.export print neither a graph nor a traceback of raised errors in this thread."""
    vars(torch.export._trace)["print"] = _print
    for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes"):
        logging.getLogger(name).addFilter(_may_log)  # once: an existing filter is not added again
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


# The user's lines -----------------------------------------------------------------------------------


def _is_users(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    is_standard = name.startswith(_STANDARD) and "site-packages" not in name
    return not is_standard and not name.startswith((*_OURS, "<"))


def _line_of(frame: FrameType, number: int) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{number}"


def _raised_at(trace: TracebackType | None) -> tuple[str, str]:
    """Return the user's innermost line in a traceback, and its text; "" if there is none."""
    found = ("", "")
    while trace is not None:
        frame, number = trace.tb_frame, trace.tb_lineno
        if _is_users(frame) and frame.f_code.co_name != "<module>":
            found = _line_of(frame, number), linecache.getline(frame.f_code.co_filename, number).strip()
        trace = trace.tb_next
    return found


#: (sources of the sizes in a guard, the user's line), of all guards since recording began.
Guards = list[tuple[frozenset[str], str]]
_recorded: ContextVar[Guards | None] = ContextVar("recorded", default=None)


def _record(env: Any, guard: Any) -> None:
    guards = _recorded.get()
    if guards is None:
        return
    sources = set()
    for symbol in guard.free_symbols:
        for source in env.var_to_sources.get(symbol, [])[:1]:
            sources.add(source.name() if callable(source.name) else source.name)
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    if frame is not None and frame.f_code.co_name != "<module>":
        guards.append((frozenset(sources), _line_of(frame, frame.f_lineno)))


def _guards(trace_again: Callable[[], object]) -> Guards:
    """Return the guards of a failing trace; none if torch does not report them."""
    log = getattr(ShapeEnv, "_log_guard", None)
    if log is None:
        return []
    if not hasattr(log, "_is_recording"):

        def recording(self: Any, prefix: str, guard: Any, *rest: Any, **options: Any) -> Any:
            _record(self, guard)
            return log(self, prefix, guard, *rest, **options)

        vars(recording)["_is_recording"] = True
        setattr(ShapeEnv, "_log_guard", recording)  # noqa: B010 (mypy: a method)
    guards: Guards = []
    token = _recorded.set(guards)
    try:
        trace_again()
    except Exception:  # the same again: only the guards are wanted
        _LOG.debug("torch.export refuses the program again", exc_info=True)
    finally:
        _recorded.reset(token)
    return guards


# Sentences ------------------------------------------------------------------------------------------


def refusal(error: Exception, trace_again: Callable[[], object], sources: Mapping[str, str]) -> Exception:
    """Return the error to raise for torch.export's `error`: ShapeError for sizes, UnsupportedOp for data
    dependence. The whole text goes to the log `shapevm` at level DEBUG. `trace_again()` runs the export once
    more, to find the lines. `sources`: of `dims_by_source`.
    """
    _LOG.debug("torch.export refuses the program: %s", error)
    text = str(error)
    if "data-dependent" in text:
        return _data_dependent(error, text)
    violations = [line.strip()[2:] for line in text.splitlines() if line.strip().startswith("- ")]
    if not violations:
        first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        return ShapeError(f"torch.export refuses the program: {first.split('. For more')[0]}")
    names = _Names(text, sources, _guards(trace_again))
    by_size: dict[str, str] = {}
    for violation in violations:
        sentence = names.sentence(violation)
        by_size.setdefault(sentence.split()[0], sentence)
    sentences = list(by_size.values())
    rest = f" (and {len(sentences) - 1} more of the sizes)" if len(sentences) > 1 else ""
    return ShapeError(f"dynamic_shapes: {sentences[0]}{rest}")


def cannot_run(error: Exception) -> ArgumentError:
    """Return the error to raise for a model that raises `error` when called with the example inputs."""
    line, code = _raised_at(error.__traceback__)
    at = f" ({line}: {code[:80]})" if line else ""
    said = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    fix = "give inputs that model(*args) takes"
    return ArgumentError(f"the model cannot be called with the example inputs{at}: {said[:200]}; {fix}")


def untraceable(error: Exception) -> UnsupportedOp:
    """Return the error to raise for an operator that torch.export cannot trace."""
    line, code = _raised_at(error.__traceback__)
    operator = str(error).split()[0]
    fix = "write it in other operators"
    if "quantize" in operator:
        fix = ADVICE
    return UnsupportedOp(
        f"torch.export cannot trace {operator}, whose result PyTorch cannot tell without computing it; {fix}",
        source=f"{line}: {code[:80]}" if line else "",
    )


def untraced(error: Exception) -> UnsupportedOp:
    """Return what to raise for any other error of a model that eager runs and torch.export does not trace."""
    line, code = _raised_at(error.__traceback__)
    said = " ".join(str(error).split("\n\n")[0].split())
    return UnsupportedOp(
        f"torch.export cannot trace the model, which eager runs ({type(error).__name__}: {said[:200]}); "
        "write this part in other operators, or compile torch.jit.script(model)",
        source=f"{line}: {code[:80]}" if line else "",
    )


def unknown_operand(error: Exception) -> UnsupportedOp | None:
    """Return what to raise where an operator of torch takes constants alone and is given another number; None
    for another error."""
    found = _OPERAND.match(str(error))
    if found is None:
        return None
    line, code = _raised_at(error.__traceback__)
    return UnsupportedOp(
        f"{found[1]}: the argument {found[2]} is a number that a tensor or a size gives, and torch.export "
        "takes a constant there only; pass a constant, or write it in other operators",
        source=f"{line}: {code[:80]}" if line else "",
    )


def unknown_container(error: Exception) -> ArgumentError | None:
    """Return the error to raise if the model takes or returns an object that torch.export cannot flatten;
    None for another error."""
    found = _CONTAINER.match(str(error))
    if found is None:
        return None
    name = found[2].rpartition(".")[2]
    verb, take = ("returns", "return") if found[1] == "Found" else ("takes", "give")
    cache = (
        ", or give use_cache=False; the tensors of a cache are layer.keys, layer.values of each of its layers"
        if name.endswith("Cache")
        else f", or make {name} a dataclass and call torch.export.register_dataclass({name})"
        if "." in found[2]  # not a class of Python itself
        else ""
    )
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    return ArgumentError(
        f"the model {verb} {article} {name}, which torch.export does not know; {take} its tensors in a "
        f"tuple, list or dict{cache}"
    )


def _data_dependent(error: Exception, text: str) -> Exception:
    line, code = _raised_at(error.__traceback__)
    at = f" ({line}: {code[:80]})" if line else ""
    if "Could not guard" in text:
        return UnsupportedOp(
            f"the model branches on a tensor's value{at}, which torch.export cannot trace; write torch.where "
            "or torch.cond there, or compile torch.jit.script(model), which keeps the branch"
        )
    return UnsupportedOp(
        f"the model uses a tensor's value as a number{at}, which torch.export cannot trace; keep it a "
        "tensor, state its range with torch._check, or compile torch.jit.script(model)"
    )


def _factor(fix: str, condition: str) -> int:
    """Return the required divisor of a size, by torch's suggestion or the condition; 0 if there is none."""
    if multiple := _MULTIPLE.fullmatch(fix):
        return int(multiple[1])
    remainder = _REMAINDER.fullmatch(condition)
    return int(remainder[2]) // gcd(int(remainder[1] or 1), int(remainder[2])) if remainder else 0


class _Names:
    """The names of the sizes in torch's message, and the lines at which they are decided."""

    def __init__(self, text: str, sources: Mapping[str, str], guards: Guards) -> None:
        self.sources = {**sources, **{found[1]: found[2] for found in _NAMED.finditer(text)}}
        self.guards = guards
        self.fixes = dict(_FIX.findall(text.partition("Suggested fixes:")[2]))

    def shown(self, name: str) -> str:
        """Return "n (axis 0 of x)" from a Dim's name, "axis 0 of x" from a source."""
        place = re.fullmatch(_SOURCE, self.sources.get(name, name))
        if place is None:
            return name
        axis = f"axis {place[3]} of {place[1]}{place[2]}"
        return axis if name.startswith("L[") else f"{name} ({axis})"

    def line(self, *names: str) -> str:
        """Return " (model.py:7)", where these sizes are decided together, "" if unknown."""
        wanted = {self.sources.get(name, name) for name in names}
        exact = [line for sources, line in self.guards if sources == wanted]
        found = exact or [line for sources, line in self.guards if sources & wanted]
        return f" ({found[0]})" if found else ""

    def unmet(self, name: str, source: str, guard: str) -> str:
        """Return a condition that not all sizes of a range meet, with the fix."""
        at, fix = self.line(name), self.fixes.get(name, "")
        if fix.isdigit():
            return f"{self.shown(name)} is always {fix} in this model{at}; leave that axis out"
        condition = guard.replace(source, name).rstrip(".")
        if factor := _factor(fix, condition):
            dim = self.fixes.get(f"_{name}", f"Dim('_{name}', min=1)").replace(", max=oo", "")
            write = f"write _{name} = {dim} and give {factor}*_{name} as its Dim"
            return f"{self.shown(name)} must be a multiple of {factor} in this model{at}; {write}"
        write = f"write {name} = {fix}" if fix else "give a Dim for which that always holds"
        return f"{self.shown(name)} must satisfy {condition} in this model{at}; {write}"

    def sentence(self, violation: str) -> str:
        """Return a violation with its line and the fix."""
        if fixed := _FIXED.match(violation):
            name, value = fixed.groups()
            at = self.line(name)
            return f"{self.shown(name)} is always {value} in this model{at}; leave that axis out"
        if equal := _EQUAL.match(violation):
            one, other = equal[1], equal[6]
            both = f"{self.shown(one)} and {self.shown(other)}"
            return f"{both} are always equal in this model{self.line(one, other)}; give both the same Dim"
        if related := _RELATED.match(violation):
            name, relation = related[1], related[5]
            always = f"{self.shown(name)} is always {relation} in this model{self.line(name)}"
            return f"{always}; give {relation} as its Dim"
        if unmet := _UNMET.match(violation):
            return self.unmet(*unmet.groups())
        return violation
