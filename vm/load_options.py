"""How an artifact is loaded: `svm_options` from Python."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from ._runtime import ffi, lib
from .codes import DEFAULTS, codes
from .errors import ArgumentError
from .values import text_of

STRATEGIES, VERIFY, HUGE_PAGES = codes("strategy"), codes("verify"), codes("huge_pages")
BANDS = codes("bands")
NUMBERS = ("hot_calls", "native_code", "has_compiler", "perf_map")  # fields with the same name in C
COPY = dict(zip((None, True, False), codes("copy").values(), strict=True))


@dataclass(frozen=True)
class CacheLimits:
    """The limits of what a program keeps between calls; 0: no limit, None: the runtime's default."""

    code_bytes_max: int | None = None
    plans_max: int | None = None
    plan_bytes_max: int | None = None


@dataclass(frozen=True)
class CallLimits:
    """The limits of one call; 0: no limit, None: the runtime's default."""

    fuel: int | None = None
    memory_max: int | None = None
    timeout_ms: int | None = None


@dataclass(frozen=True)
class DepthLimits:
    """The depth limits of one call (`svm_limit_depth`); 0: the runtime's maximum.

    `calls`: calls within calls of the program's functions. `nesting`: containers within containers.
    """

    calls: int = DEFAULTS["CALL_DEPTH"][0]
    nesting: int = DEFAULTS["NESTING"][0]


@dataclass(frozen=True)
class Reading:
    """How the file is read: whether its weights are checked, whether it is copied (None: if it is small), its
    required digest, and whether its weights are on huge pages."""

    verify: str = "auto"
    copy: bool | None = None
    sha256: bytes | None = None
    huge_pages: str = "auto"


@dataclass(frozen=True)
class LoadOptions:
    """How to load a program; see `svm_options`. `plugins`: paths of shared libraries for it
    (`Machine.load_plugin`). `bands`: see `svm_use_bands`."""

    strategy: str = "auto"
    bands: str = "auto"
    hot_calls: int | None = None
    native_code: bool = True
    has_compiler: bool = False
    perf_map: bool = False
    caches: CacheLimits = CacheLimits()
    limits: CallLimits = CallLimits()
    depths: DepthLimits = DepthLimits()
    reading: Reading = Reading()
    plugins: tuple[str, ...] = ()

    def without_digest(self) -> LoadOptions:
        """Return the options for a file of any digest."""
        return replace(self, reading=replace(self.reading, sha256=None))

    def c(self, keep: list[Any]) -> Any:
        """Return the `svm_options`, to be used while `keep` lives. Raises ArgumentError for an unknown
        strategy, kind of verification or kind of pages, and for an invalid digest.
        """
        made = ffi.new("svm_options *")
        lib.svm_options_init(made)
        own = {name: getattr(self, name) for name in NUMBERS}
        for name, value in (own | vars(self.caches) | vars(self.limits)).items():
            if value is not None:
                setattr(made, name, int(value))
        made.strategy, made.verify = strategy_code(self.strategy), verify_code(self.reading.verify)
        made.copy, made.sha256 = COPY[self.reading.copy], _digest(self.reading.sha256, keep)
        made.huge_pages = huge_pages_code(self.reading.huge_pages)
        made.damaged = lib.svm_py_damaged
        return made


def strategy_code(name: str) -> int:
    """Return a strategy's code in C. Raises ArgumentError for an unknown one."""
    if name not in STRATEGIES:
        raise ArgumentError(f"strategy {name!r} is unknown; known are {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def verify_code(name: str) -> int:
    """Return the code in C of a kind of weight verification. Raises ArgumentError for an unknown one."""
    if name not in VERIFY:
        raise ArgumentError(f"verify {name!r} is unknown; known are {', '.join(VERIFY)}")
    return VERIFY[name]


def bands_code(name: str) -> int:
    """Return the code in C of whether kernels run in bands. Raises ArgumentError for an unknown one."""
    if name not in BANDS:
        raise ArgumentError(f"bands {name!r} is unknown; known are {', '.join(BANDS)}")
    return BANDS[name]


def huge_pages_code(name: str) -> int:
    """Return the code in C of when weights lie on huge pages. Raises ArgumentError for an unknown one."""
    if name not in HUGE_PAGES:
        raise ArgumentError(f"huge_pages {name!r} is unknown; known are {', '.join(HUGE_PAGES)}")
    return HUGE_PAGES[name]


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
