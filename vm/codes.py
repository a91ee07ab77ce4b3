"""Codes, limits and defaults that Python and C share, a table of each.

`python -m shapevm.vm.isa` writes them into runtime_c/include/svm_codes.h: SVM_STRATEGY_AUTO is a code and
SVM_STRATEGY_NAMES are the names by code, SVM_LIMIT_THREADS is a limit, SVM_DEFAULT_HOT_CALLS a default. Limits of
the artifact's bytes are in vm/layout.py.
"""

# ruff: noqa: E501 (rows of tables)

from __future__ import annotations

from typing import Final, Literal, get_args

#: table -> name -> (code, meaning). Codes are part of the C API, those of `guard` of the format: append only.
CODES: Final[dict[str, dict[str, tuple[int, str]]]] = {
    # When exact code is compiled; all give the same bits. auto and jit also run a bucket's code if exact code
    # is missing.
    "strategy": {
        "auto": (0, "generic kernels at once, exact kernels in the background"),
        "jit": (1, "exact kernels, compiled before their first run"),
        "bucket": (3, "kernels of the artifact; nothing is compiled"),
        "generic": (2, "generic kernels only"),
    },
    # When the weights' hashes are checked; all else of an artifact is always checked.
    "verify": {
        "auto": (0, "full up to VERIFY_BYTES of weights, else lazy"),
        "full": (1, "before the program is opened"),
        "lazy": (2, "by a thread of the lowest priority; a mismatch fails every call from then on"),
        "none": (3, "never"),
    },
    # Whether a file is copied into memory; otherwise weights are mapped, and calls fail if the file was
    # changed.
    "copy": {
        "auto": (0, "up to COPY_BYTES, or if a digest is required"),
        "always": (1, "yes"),
        "never": (2, "no"),
    },
    # Whether weights are on huge pages (transparent ones, of 2 MiB on most machines), for fewer TLB misses.
    "huge_pages": {
        "auto": (0, "for copies, and for mapped files if the file system supports it"),
        "always": (1, "files are copied into memory for it, which processes then do not share"),
        "never": (2, "never"),
    },
    # Whether consecutive kernels run in bands of an image's lines, so that intermediate results stay in a
    # cache.
    "bands": {
        "auto": (0, "if that is faster in the first calls at a shape"),
        "always": (1, "wherever possible"),
        "never": (2, "never"),
    },
    # The sizes that a call site has met.
    "site": {
        "uninitialised": (0, "no launch"),
        "monomorphic": (1, "one tuple of sizes"),
        "polymorphic": (2, "a few"),
        "megamorphic": (3, "many: they are hashed"),
    },
    # The code that a launch runs.
    "tier": {
        "none": (0, "it has not run"),
        "generic": (1, "for any sizes"),
        "exact": (2, "for these sizes"),
        "bucket": (3, "for a range of sizes"),
    },
    # The state of the compilation of an entry's exact code.
    "entry": {
        "idle": (0, "nobody has asked"),
        "queued": (1, "it waits"),
        "compiling": (2, "in progress"),
        "compiled": (3, "it is there"),
        "failed": (4, "it could not be compiled"),
        "declined": (5, "it does not pay"),
    },
    # `guard` of a code object: the sizes that it serves.
    "guard": {
        "generic": (0, "any"),
        "exact": (1, "given ones"),
        "bucket": (2, "ranges"),
    },
}  # fmt: skip

#: The names of `CODES["strategy"]`.
Strategy = Literal["auto", "jit", "bucket", "generic"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
#: When weights are compared with their hashes: names of `CODES["verify"]` without "auto".
Verify = Literal["full", "lazy", "none"]
#: Strategies under which missing exact code is compiled.
COMPILING: Final = ("auto", "jit")

LIMITS: Final[dict[str, tuple[int, str]]] = {
    "THREADS": (256, "threads that run kernels"),
    "TIMEOUT_S": (10**9, "seconds of a call's timeout"),
    "CALL_DEPTH": (1 << 20, "calls within calls of a program's functions, at any setting"),
    "NESTING": (1000, "containers within containers, at any setting"),
    "STRING_BYTES": (1 << 28, "bytes of a string that a program makes"),
}

#: Defaults of `svm_options` and `svm_limit_depth`, and the meaning of the former's `auto`s.
DEFAULTS: Final[dict[str, tuple[int, str]]] = {
    "HOT_CALLS": (2, "under auto: runs of an entry before it is considered for exact code"),
    "CODE_BYTES": (64 << 20, "of exact code kept mapped"),
    "PLANS": (256, "plans kept per program"),
    "PLAN_BYTES": (64 << 20, "of plans kept, without arenas"),
    "CALL_DEPTH": (1000, "calls within calls of a program's functions"),
    "NESTING": (200, "containers within containers"),
    "VERIFY_BYTES": (64 << 20, "verify auto: weights up to this size are checked at once"),
    "COPY_BYTES": (16 << 20, "copy auto: files up to this size are copied"),
}


def codes(table: str) -> dict[str, int]:
    """Return a table's codes by name."""
    return {name: code for name, (code, _) in CODES[table].items()}


def names(table: str) -> tuple[str, ...]:
    """Return a table's names by code."""
    return tuple(sorted(CODES[table], key=codes(table).__getitem__))
