"""Every setting, in one typed table. Each reads the environment variable SHAPEVM_<NAME>; `settings.scope(...)` overrides
it for a while; `shapevm settings` lists them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One setting: its type is that of `default`; `choices` limits it, where given."""

    name: str
    default: int | str | bool
    doc: str
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return f"SHAPEVM_{self.name.upper()}"

    def parse(self, text: str) -> int | str | bool:
        """Return the value written as `text`. Raises ValueError with the variable, the value and what is allowed."""
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.variable}={text!r} is not one of {', '.join(self.choices)}")
        if isinstance(self.default, bool):
            if text not in ("0", "1"):
                raise ValueError(f"{self.variable}={text!r} must be 0 or 1")
            return text == "1"
        if isinstance(self.default, int):
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{self.variable}={text!r} must be a whole number") from None
        return text


STRATEGIES = ("auto", "jit", "generic")

TABLE: tuple[Setting, ...] = (
    Setting("strategy", "auto", "auto: generic kernels at once, exact ones in the background; jit: exact before the first run; generic: never exact", STRATEGIES),
    Setting("threads", 0, "threads that run kernels, the caller included; 0: one per CPU available"),
    Setting("hot_calls", 2, "under auto: runs of a kernel at a shape before it is compiled for that shape"),
    Setting("code_mib", 64, "MiB of exact code kept mapped; beyond that the least used is evicted"),
    Setting("plans", 256, "whole-call plans kept per program, one per shape"),
    Setting("cache", True, "keep compiled kernels on disk between processes"),
    Setting("cache_dir", "", "where; empty: the user's cache directory"),
    Setting("cache_mib", 256, "MiB of compiled kernels kept on disk"),
    Setting("verify", False, "verify the graph between all passes when compiling"),
    Setting("perf_map", False, "write the names of generated code to /tmp/perf-PID.map for perf"),
    Setting("target", "", "compile for this target instead of the host's: x86-64-v3, x86-64-v4 or aarch64"),
)  # fmt: skip


class Settings:
    """The current values, as attributes: scope, then environment, then default."""

    def __init__(self) -> None:
        self._table = {setting.name: setting for setting in TABLE}
        self._overrides: ContextVar[dict[str, Any]] = ContextVar("overrides", default={})  # noqa: B039 (never mutated)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._table:
            raise AttributeError(f"no setting is named {name!r}; there are {', '.join(s.name for s in TABLE)}")
        if name in self._overrides.get():
            return self._overrides.get()[name]
        setting = self._table[name]
        text = os.environ.get(setting.variable)
        return setting.default if text is None else setting.parse(text)

    @contextmanager
    def scope(self, **values: Any) -> Iterator[None]:
        """Override settings within a `with` block, in this thread or task."""
        for name in values:
            if name not in self._table:
                raise AttributeError(f"no setting is named {name!r}; there are {', '.join(self._table)}")
        token = self._overrides.set({**self._overrides.get(), **values})
        try:
            yield
        finally:
            self._overrides.reset(token)

    def cache_path(self) -> Path | None:
        """Return the directory of the kernel cache, None where it is off."""
        if not self.cache:
            return None
        if self.cache_dir:
            return Path(self.cache_dir)
        from platformdirs import user_cache_path

        return user_cache_path("shapevm") / "kernels"


settings = Settings()
