"""Every setting, in one typed table. Each reads the environment variable SHAPEVM_<NAME>;
`settings.scope(...)` overrides it for a while; `shapevm settings` lists them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .vm.codes import CODES, DEFAULTS, LIMITS
from .vm.errors import ArgumentError

_LOG = logging.getLogger("shapevm")


@dataclass(frozen=True)
class Setting:
    """One setting: its type is that of `default`; `choices` limits it, where given."""

    name: str
    default: int | str | bool
    doc: str
    choices: tuple[str, ...] = ()
    greatest: int = (1 << 31) - 1  # of a number

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return f"SHAPEVM_{self.name.upper()}"

    def parse(self, text: str) -> int | str | bool:
        """Return the value that the environment's `text` means. Raises ArgumentError as `check` does."""
        value: int | str | bool = text
        if isinstance(self.default, bool):
            value = {"0": False, "1": True}.get(text, text)
        elif isinstance(self.default, int) and NUMBER.fullmatch(text):
            value = int(text)
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
        return self.check(value, f"{self.variable}={shown!r}")

    def check(self, value: Any, what: str) -> int | str | bool:
        """Return `value`, given as `what`. Raises ArgumentError with `what` and what is allowed."""
        if isinstance(self.default, bool):
            allowed, is_allowed = "0 or 1 (False or True)", isinstance(value, bool)
        elif isinstance(self.default, int):
            allowed = f"a whole number from 0 to {self.greatest}"
            is_allowed = type(value) is int and 0 <= value <= self.greatest
        else:
            known = ", ".join(choice or "nothing" for choice in self.choices)
            allowed = f"one of {known}" if self.choices else "a string"
            is_allowed = isinstance(value, str) and (not self.choices or value in self.choices)
        if not is_allowed:
            raise ArgumentError(f"{what} must be {allowed}")
        return value


NUMBER = re.compile(r"\s*-?[0-9]{1,19}\s*")
MAX_SHOWN = 60  # characters of a wrong value in a message
STRATEGIES = tuple(CODES["strategy"])
#: Those of `jit.llvm.target`, which needs a compiler's packages.
TARGETS = (
    "x86-64-v4-amx",
    "x86-64-v4-bf16",
    "x86-64-v4-vnni",
    "x86-64-v4",
    "x86-64-v3-vnni",
    "x86-64-v3",
    "aarch64-i8mm",
    "aarch64-dotprod",
    "aarch64",
)


def _default(name: str) -> int:
    return DEFAULTS[name][0]


TABLE: tuple[Setting, ...] = (
    Setting(
        "strategy", "auto",
        "; ".join(f"{name}: {meaning}" for name, (_, meaning) in CODES["strategy"].items()), STRATEGIES,
    ),
    Setting(
        "threads", 0, "threads that run kernels, set when a program is loaded; 0: one per CPU",
        greatest=LIMITS["THREADS"][0],
    ),
    Setting("hot_calls", _default("HOT_CALLS"),
            "under auto: runs of a kernel at a shape before it is considered for exact code"),
    Setting("compile_budget", 200, "under auto: milliseconds of background compilation per second, for "
            "what its gain pays for; 0: for all"),
    Setting("compile_processes", 0, "processes that compile a program's kernels side by side, this one "
            "included; 0: one per CPU", greatest=LIMITS["THREADS"][0]),
    Setting("code_mib", _default("CODE_BYTES") >> 20,
            "MiB of exact code kept mapped; beyond that the least used is evicted"),
    Setting(
        "huge_pages", "auto",
        "weights on huge pages; "
        + "; ".join(f"{name}: {meaning}" for name, (_, meaning) in CODES["huge_pages"].items()),
        tuple(CODES["huge_pages"]),
    ),
    Setting(
        "bands", "auto",
        "kernels that follow each other run in bands of an image's lines, of which a cache holds what one "
        "gives the next; " + "; ".join(f"{name}: {meaning}" for name, (_, meaning) in CODES["bands"].items()),
        tuple(CODES["bands"]),
    ),
    Setting("fuel", 0, "instructions that one call may run; 0: no limit", greatest=(1 << 63) - 1),
    Setting("memory_mib", 0, "MiB that one call may hold at once, results included; 0: no limit"),
    Setting("timeout_ms", 0, "milliseconds that one call may take; 0: no limit"),
    Setting("call_depth", _default("CALL_DEPTH"), "calls within calls of a program's functions; "
            f"0: {LIMITS['CALL_DEPTH'][0]}", greatest=LIMITS["CALL_DEPTH"][0]),
    Setting("nesting", _default("NESTING"), "containers within containers, of inputs, results and what is "
            f"between; 0: {LIMITS['NESTING'][0]}", greatest=LIMITS["NESTING"][0]),
    Setting("plans", _default("PLANS"), "whole-call plans kept per program, one per shape"),
    Setting("cache", True, "keep compiled kernels on disk between processes"),
    Setting("cache_dir", "", "where; empty: the user's cache directory"),
    Setting("cache_mib", 256, "MiB of compiled kernels kept on disk"),
    Setting("artifacts_mib", 8192, "MiB of artifacts kept that were fetched from URLs"),
    Setting(
        "cache_url", "",
        "a cache behind that on disk, shared by a fleet: a directory or a URL of fsspec; empty: none",
    ),
    Setting(
        "cache_secret_file", "",
        "a file with the secret that seals entries of cache_url; empty: whoever may write there is trusted",
    ),
    Setting("measured_tiles", True, "compile products for the register tiles that were measured fastest on "
            "this machine, and measure them in the background; 0: for those of a built-in table"),
    Setting("verify", False, "verify the graph between all passes when compiling"),
    Setting("native_code", True, "run artifacts' machine code; 0: compile kernels from their specs"),
    Setting("perf_map", False, "write the names of generated code to /tmp/perf-PID.map for perf"),
    Setting("target", "", "compile for this target; empty: the host's", ("", *TARGETS)),
)  # fmt: skip


def nearest(name: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return the question whether the nearest of the `known` names was meant; `otherwise` where none is
    near, `cutoff` of 1 alike."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def unknown_name(what: str, name: Any, known: Iterable[str]) -> ArgumentError:
    """Return the error for a name that is none of the `known` ones of its kind."""
    names = list(known)
    hint = nearest(str(name), names, f"known are {', '.join(names)}")
    return ArgumentError(f"{what} {name!r} is unknown; {hint}")


def warn_of_unknown(environment: Iterable[str]) -> None:
    """Log a warning for each variable that begins as those of settings do and is none."""
    known = [setting.variable for setting in TABLE]
    for name in environment:
        if name.startswith("SHAPEVM_") and name not in known:
            hint = nearest(name, known, "`shapevm settings` lists them", cutoff=0.8)
            _LOG.warning("%s in the environment is no setting; %s", name[:MAX_SHOWN], hint)


class Settings:
    """The current values, as attributes: scope, then environment, then default."""

    def __init__(self) -> None:
        self._table = {setting.name: setting for setting in TABLE}
        self._is_checked = False
        self._overrides: ContextVar[dict[str, Any]] = ContextVar("overrides", default={})  # noqa: B039 (never mutated)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._table:
            raise AttributeError(
                f"no setting is named {name!r}; there are {', '.join(s.name for s in TABLE)}"
            )
        if name in self._overrides.get():
            return self._overrides.get()[name]
        if not self._is_checked:
            self._is_checked = True
            warn_of_unknown(os.environ)
        setting = self._table[name]
        text = os.environ.get(setting.variable)
        return setting.parse(text) if text else setting.default

    @contextmanager
    def scope(self, **values: Any) -> Iterator[None]:
        """Override settings within a `with` block, in this thread or task.

        Raises ArgumentError for a setting that does not exist or a value that it cannot have.
        """
        for name, value in values.items():
            if name not in self._table:
                raise ArgumentError(f"no setting is named {name!r}; there are {', '.join(self._table)}")
            self._table[name].check(value, f"{name}={value!r}")
        token = self._overrides.set({**self._overrides.get(), **values})
        try:
            yield
        finally:
            self._overrides.reset(token)

    def check(self) -> None:
        """Raise ArgumentError for a value in the environment that a setting cannot have."""
        for name in self._table:
            getattr(self, name)

    def cache_path(self) -> Path | None:
        """Return the directory of the kernel cache, None where it is off."""
        if not self.cache:
            return None
        if self.cache_dir:
            return Path(self.cache_dir).expanduser()
        from platformdirs import user_cache_path

        return user_cache_path("shapevm") / "kernels"

    def artifact_path(self) -> Path | None:
        """Return the directory of artifacts fetched from URLs, None where nothing is kept."""
        if self.cache and self.cache_dir:
            return Path(self.cache_dir).expanduser() / "artifacts"
        kernels = self.cache_path()
        return kernels.with_name("artifacts") if kernels is not None else None


settings = Settings()
