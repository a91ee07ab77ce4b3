"""Early end of a trace that torch.export will certainly refuse.

torch.export traces the whole program before it reports that a guard excludes sizes of the user's range. A
model that checks whether a size is 1, while the range includes 1, usually does so in its first lines
(transformers' masks do), so the rest of the trace is wasted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.fx.experimental import _config as fx_config
from torch.fx.experimental.symbolic_shapes import ShapeEnv, StrictMinMaxConstraint


class EarlyRefusal(BaseException):
    """A guard excludes a size of 1 that the user's range includes. Neither the model nor torch, which logs
    errors, should handle it, so it is not an Exception."""


@dataclass
class _Watch:
    """`sizes`: symbols that the user lets be 1, by the environment that they belong to; `refused`: whether
    one was found to be excluded."""

    sizes: set[tuple[int, sympy.Symbol]] = field(default_factory=set)
    refused: bool = False


_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def until_refused() -> Iterator[None]:
    """Raise EarlyRefusal from a trace in this thread at sizes that are alike (`backed_size_oblivious`), once
    a guard excludes a size of 1 that a `Dim` includes. Nothing is raised early if torch does not report
    guards."""
    _install()
    watch = _Watch()
    token = _watch.set(watch)
    try:
        yield
    except Exception as error:
        if watch.refused:  # whatever the model and torch made of it
            raise EarlyRefusal from error
        raise
    finally:
        _watch.reset(token)
    if watch.refused:  # the model has caught it
        raise EarlyRefusal


def _install() -> None:
    """Have torch's environments of symbols report symbols and guards to the current watch."""
    made, logged = getattr(ShapeEnv, "create_symbol", None), getattr(ShapeEnv, "_log_guard", None)
    if made is None or logged is None or hasattr(made, "_is_watched"):
        return

    def create_symbol(self: Any, val: Any, source: Any, *rest: Any, **options: Any) -> Any:
        symbol = made(self, val, source, *rest, **options)
        constraint = options.get("constraint_dim", rest[1] if len(rest) > 1 else None)
        watch = _watch.get()
        if watch is not None and isinstance(symbol, sympy.Symbol) and _may_be_one(constraint):
            watch.sizes.add((id(self), symbol))
        return symbol

    def log_guard(self: Any, prefix: str, guard: Any, *rest: Any, **options: Any) -> Any:
        watch = _watch.get()
        if watch is not None and prefix == "eval" and _excludes_one(guard, watch, id(self)):
            watch.refused = True
            raise EarlyRefusal
        return logged(self, prefix, guard, *rest, **options)

    vars(create_symbol)["_is_watched"] = True
    setattr(ShapeEnv, "create_symbol", create_symbol)  # noqa: B010 (mypy: a method)
    setattr(ShapeEnv, "_log_guard", log_guard)  # noqa: B010


def _may_be_one(constraint: Any) -> bool:
    """Whether a size has a range that the user gave, with 1 in it."""
    if not isinstance(constraint, StrictMinMaxConstraint) or constraint.warn_only:
        return False
    return bool(constraint.vr.lower <= 1 <= constraint.vr.upper)


def _excludes_one(guard: Any, watch: _Watch, env: int) -> bool:
    if not isinstance(guard, sympy.Ne) or not getattr(fx_config, "backed_size_oblivious", False):
        return False
    return guard.rhs == 1 and (env, guard.lhs) in watch.sizes
