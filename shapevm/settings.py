"""Every setting, in one typed table. Each reads the environment variable SHAPEVM_<NAME>;
`settings.scope(...)` overrides it within a block; `shapevm settings` lists them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from .vm.codes import CODES, DEFAULTS, LIMITS, STRATEGIES
from .vm.errors import ArgumentError

_LOG = logging.getLogger("shapevm")
_WARNED: set[tuple[object, ...]] = set()  # the warnings that `warn_once` has logged


@dataclass(frozen=True)
class Setting:
    """One setting: its type is that of `default`; `choices`, if given, limits it."""

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
        """Return the value of the environment's `text`. Raises ArgumentError like `check`."""
        value: int | str | bool = text
        if isinstance(self.default, bool):
            value = {"0": False, "1": True}.get(text, text)
        elif isinstance(self.default, int) and NUMBER.fullmatch(text):
            value = int(text)
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
        return self.check(value, f"{self.variable}={shown!r}")

    def check(self, value: Any, what: str) -> int | str | bool:
        """Return `value`, given as `what`. Raises ArgumentError naming `what` and the allowed values."""
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
#: Those of `jit.llvm.target`, which needs a compiler's packages.
Target = Literal[
    "x86-64-v4-amx",
    "x86-64-v4-bf16",
    "x86-64-v4-vnni",
    "x86-64-v4",
    "x86-64-v3-vnni",
    "x86-64-v3",
    "aarch64-i8mm",
    "aarch64-dotprod",
    "aarch64",
]
TARGETS = get_args(Target)


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
            "under auto: runs of a kernel at a shape before exact code is considered"),
    Setting("compile_budget", 200, "under auto: milliseconds of background compilation per second, for "
            "kernels whose gain pays for it; 0: no limit, for all kernels"),
    Setting("compile_processes", 0, "processes that compile a program's kernels in parallel, including "
            "this one; 0: one per CPU", greatest=LIMITS["THREADS"][0]),
    Setting("code_mib", _default("CODE_BYTES") >> 20,
            "MiB of exact code kept mapped; the least recently used code beyond that is evicted"),
    Setting(
        "huge_pages", "auto",
        "weights on huge pages; "
        + "; ".join(f"{name}: {meaning}" for name, (_, meaning) in CODES["huge_pages"].items()),
        tuple(CODES["huge_pages"]),
    ),
    Setting(
        "bands", "auto",
        "run successive kernels in bands of an image's lines, so that intermediate results stay in cache; "
        + "; ".join(f"{name}: {meaning}" for name, (_, meaning) in CODES["bands"].items()),
        tuple(CODES["bands"]),
    ),
    Setting("fuel", 0, "instructions that one call may run; 0: no limit", greatest=(1 << 63) - 1),
    Setting("memory_mib", 0, "MiB that one call may hold at once, results included; 0: no limit"),
    Setting("timeout_ms", 0, "milliseconds that one call may take; 0: no limit"),
    Setting("call_depth", _default("CALL_DEPTH"), "depth of calls between a program's functions; "
            f"0: {LIMITS['CALL_DEPTH'][0]}", greatest=LIMITS["CALL_DEPTH"][0]),
    Setting("nesting", _default("NESTING"), "depth of nested containers, in inputs, results and the program; "
            f"0: {LIMITS['NESTING'][0]}", greatest=LIMITS["NESTING"][0]),
    Setting("plans", _default("PLANS"), "whole-call plans kept per program, one per shape"),
    Setting("cache", True, "keep compiled kernels on disk between processes"),
    Setting("cache_dir", "", "directory of the kernel cache; empty: the user's cache directory"),
    Setting("cache_mib", 256, "MiB of compiled kernels kept on disk"),
    Setting("artifacts_mib", 8192, "MiB of artifacts fetched from URLs that are kept"),
    Setting(
        "cache_url", "",
        "a second cache, shared by several machines: a directory or a URL of fsspec; empty: none",
    ),
    Setting(
        "cache_secret_file", "",
        "file with the secret that seals entries of cache_url; empty: everybody who may write there is "
        "trusted",
    ),
    Setting("measured_tiles", True, "use the register tiles that were measured fastest on this machine, and "
            "measure them in the background; 0: use a built-in table"),
    Setting("verify", False, "verify the graph between all passes when compiling"),
    Setting("native_code", True, "run the machine code of artifacts; 0: compile kernels from their specs"),
    Setting("perf_map", False, "write the names of generated code to /tmp/perf-PID.map, for perf"),
    Setting("target", "", "target to compile for; empty: this machine", ("", *TARGETS)),
)  # fmt: skip


def warn_of_unknown(environment: Iterable[str]) -> None:
    """Log a warning for each variable with the settings' prefix that is not a setting."""
    from .vm.spelling import nearest

    known = [setting.variable for setting in TABLE]
    for name in environment:
        if name.startswith("SHAPEVM_") and name not in known:
            hint = nearest(name, known, "`shapevm settings` lists them", cutoff=0.8)
            _LOG.warning("%s in the environment is no setting; %s", name[:MAX_SHOWN], hint)


class Settings:
    """The current values as attributes, from the scope, else the environment, else the default."""

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

        Raises ArgumentError for an unknown setting or an invalid value.
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
        """Raise ArgumentError for an invalid value in the environment."""
        for name in self._table:
            getattr(self, name)

    def cache_path(self) -> Path | None:
        """Return the directory of the kernel cache, None if it is off, or if the user has no home directory,
        which is logged once."""
        if not self.cache:
            return None
        if self.cache_dir:
            return known_path(self.cache_dir)
        from platformdirs import user_cache_path

        path = None
        with suppress(RuntimeError):  # earlier versions of platformdirs return a relative path instead
            path = user_cache_path("shapevm") / "kernels"
        if path is not None and path.is_absolute():
            return path
        _warn_of_no_home("the user's cache directory")
        return None

    def artifact_path(self) -> Path | None:
        """Return the directory of artifacts fetched from URLs, beside that of kernels; None if nothing is
        kept."""
        kernels = self.cache_path()
        if kernels is None:
            return None
        return kernels / "artifacts" if self.cache_dir else kernels.with_name("artifacts")

    def shared_cache(self) -> str:
        """Return `cache_url` with ~ expanded; "" if there is no shared cache, or if it is in a home directory
        and the user has none, which is logged once."""
        url: str = self.cache_url if self.cache else ""
        return url if "://" in url or not url else str(known_path(url) or "")


def known_path(text: str) -> Path | None:
    """Return the path of a cache, None if it is in a home directory and the user has none, which is logged
    once."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        _warn_of_no_home(text)
        return None


def _warn_of_no_home(place: str) -> None:
    """Log once that nothing is kept in `place`."""
    reason = "HOME is not set and passwd has no entry, or it is no absolute path"
    fix = "set SHAPEVM_CACHE_DIR to a directory, or SHAPEVM_CACHE=0"
    warn_once(
        "user %d has no home directory (%s): nothing is kept in %s; %s", os.getuid(), reason, place, fix
    )


def warn_once(message: str, *values: object) -> None:
    """Log a warning unless the process has done so."""
    if (message, values) not in _WARNED:
        _WARNED.add((message, values))
        _LOG.warning(message, *values)


settings = Settings()
