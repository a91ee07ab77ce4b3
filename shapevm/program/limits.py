"""The strategy and the limits of calls: the runtime's options from the settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..settings import settings
from ..vm.codes import LIMITS, STRATEGIES, Strategy
from ..vm.errors import ArgumentError
from ..vm.load_options import CacheLimits, CallLimits, DepthLimits, LoadOptions, Reading

MAX_TIMEOUT = LIMITS["TIMEOUT_S"][0]  # seconds


@dataclass(frozen=True)
class Limits:
    """The limits of one call. None: the setting of that name; 0: no limit.

    `fuel`: instructions of the virtual machine. `memory`: bytes that the call holds at once: intermediates,
    results, copies of inputs. `timeout`: seconds. `call_depth`: calls within calls of the program's
    functions. `nesting`: containers within containers. For these two, 0 is the runtime's maximum.
    """

    fuel: int | None = None
    memory: int | None = None
    timeout: float | None = None
    call_depth: int | None = None
    nesting: int | None = None

    def of(self, options: LoadOptions) -> LoadOptions:
        """Return the runtime's options with these limits. Raises ArgumentError for an invalid limit."""
        fuel = settings.fuel if self.fuel is None else _count("fuel", self.fuel)
        memory = settings.memory_mib << 20 if self.memory is None else _count("memory", self.memory)
        timeout = settings.timeout_ms if self.timeout is None else milliseconds(self.timeout or None)
        calls, nesting = _depth("call_depth", self.call_depth), _depth("nesting", self.nesting)
        return replace(options, limits=CallLimits(fuel, memory, timeout), depths=DepthLimits(calls, nesting))


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ArgumentError(f"{name}={value!r} must be a whole number from 0 (no limit) to 2**63 - 1")
    return value


def _depth(name: str, value: Any) -> int:
    greatest = LIMITS[name.upper()][0]
    if value is None:
        return int(getattr(settings, name))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= greatest:
        raise ArgumentError(f"{name}={value!r} must be a whole number from 0 (the greatest) to {greatest}")
    return value


def milliseconds(timeout: float | None) -> int:
    """Return seconds as whole milliseconds, at least 1; None as 0. Raises ArgumentError unless the value is a
    positive number."""
    if timeout is None:
        return 0
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= MAX_TIMEOUT:
        raise ArgumentError(f"timeout={timeout!r} must be a number of seconds above 0, at most {MAX_TIMEOUT}")
    return math.ceil(timeout * 1000)


def machine_options(strategy: str | None, has_compiler: bool, limits: Limits | None = None) -> LoadOptions:
    """Return the runtime's options from the settings. Raises ArgumentError for an unknown strategy and for an
    invalid limit."""
    settings.check()
    options = LoadOptions(
        strategy=check_strategy(strategy),
        hot_calls=settings.hot_calls,
        has_compiler=has_compiler,
        perf_map=settings.perf_map,
        caches=CacheLimits(settings.code_mib << 20, settings.plans),
        reading=Reading(huge_pages=settings.huge_pages),
        bands=settings.bands,
    )
    return (limits or Limits()).of(options)


def check_strategy(strategy: str | None) -> Strategy:
    """Return the strategy, the setting's for None. Raises ArgumentError for an unknown one."""
    if strategy is None:
        return settings.strategy
    if strategy not in STRATEGIES:
        raise ArgumentError(f"strategy {strategy!r} is unknown; known are {', '.join(STRATEGIES)}")
    return STRATEGIES[STRATEGIES.index(strategy)]
