"""How an artifact is loaded: `svm_options` from Python."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any

from ._runtime import ffi, lib
from .codes import codes
from .errors import ArgumentError
from .values import text_of

STRATEGIES, VERIFY = codes("strategy"), codes("verify")
COPY = dict(zip((None, True, False), codes("copy").values(), strict=True))


@dataclass(frozen=True)
class LoadOptions:
    """How to load a program; see `svm_options`. Limits of 0: none. None: the runtime's default. `sha256`: the
    digest that the file must have. `plugins`: paths of shared libraries for it (`Machine.load_plugin`).
    """

    strategy: str = "auto"
    hot_calls: int | None = None
    native_code: bool = True
    has_compiler: bool = False
    perf_map: bool = False
    code_bytes_max: int | None = None
    plans_max: int | None = None
    plan_bytes_max: int | None = None
    fuel: int | None = None
    memory_max: int | None = None
    timeout_ms: int | None = None
    verify: str = "auto"
    copy: bool | None = None
    sha256: bytes | None = None
    plugins: tuple[str, ...] = ()

    def c(self, keep: list[Any]) -> Any:
        """Return the `svm_options`, to be used while `keep` lives. Raises ArgumentError for an unknown
        strategy or way to verify, and for a digest that is none.
        """
        made = ffi.new("svm_options *")
        lib.svm_options_init(made)
        coded = {"strategy": strategy_code(self.strategy), "verify": verify_code(self.verify)}
        coded["copy"] = COPY[self.copy]
        for field in fields(self):
            value = coded.get(field.name, getattr(self, field.name))
            if field.name == "plugins":  # loaded into the program, once it is open
                continue
            if field.name == "sha256":
                made.sha256 = _digest(value, keep)
            elif value is not None:
                setattr(made, field.name, int(value))
        made.damaged = lib.svm_py_damaged
        return made


def strategy_code(name: str) -> int:
    """Return a strategy's code in C. Raises ArgumentError for an unknown one."""
    if name not in STRATEGIES:
        raise ArgumentError(f"strategy {name!r} is unknown; known are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def verify_code(name: str) -> int:
    """Return the code in C of a way to verify weights. Raises ArgumentError for an unknown one."""
    if name not in VERIFY:
        raise ArgumentError(f"verify {name!r} is unknown; known are {', '.join(VERIFY)}")
    return VERIFY[name]


def _digest(sha256: bytes | None, keep: list[Any]) -> Any:
    if sha256 is None:
        return ffi.NULL
    if len(sha256) != 32:
        raise ArgumentError(f"a SHA-256 has 32 bytes, the digest given has {len(sha256)}")
    keep.append(ffi.new("uint8_t[]", sha256))
    return keep[-1]


@ffi.def_extern(name="svm_py_damaged")
def _damaged(_context: Any, message: Any) -> None:
    logging.getLogger("shapevm").error("%s", text_of(message))
