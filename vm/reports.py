"""Reports of a loaded program: its tables, and the history of its call sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._runtime import ffi, lib
from .codes import names
from .errors import OK, KernelError
from .values import text_of

SITE_STATES, TIERS, ENTRY_STATES = names("site"), names("tier"), names("entry")


@dataclass(frozen=True)
class KernelInfo:
    """An entry of the kernel table: `spec` is JSON, `n_objects`: the number of code objects that this CPU
    runs, all of one `target`.
    """

    label: str
    source: str
    spec: str
    n_dims: int
    n_buffers: int
    n_objects: int
    code_bytes: int
    target: str


@dataclass(frozen=True)
class FunctionInfo:
    """A function; `is_static_flow`: its calls are planned once per shape and replayed."""

    name: str
    n_params: int
    n_results: int
    n_registers: int
    is_static_flow: bool


@dataclass(frozen=True)
class EntryStats:
    """An entry of a call site. `new_dims`: positions whose value no earlier entry had."""

    dims: tuple[int, ...]
    tier: str
    state: str
    hits: int
    n_tiles: int
    code_bytes: int
    new_dims: tuple[int, ...]
    schedule: str
    failure: str


@dataclass(frozen=True)
class SiteStats:
    """A call site: one per kernel-table entry. `outside`: misses at sizes without exact code or a bucket, of
    a kernel that has buckets. `by_dim`: misses with a new size of a dim, by position (a miss may count
    several times); `by_combination`: misses without any new size.
    """

    state: str
    hits: int
    misses: int
    outside: int
    by_dim: tuple[int, ...]
    by_combination: int
    entries: tuple[EntryStats, ...]


def read_kernels(program: Any) -> tuple[KernelInfo, ...]:
    """Return the kernel table of an `svm_program *`."""
    rows = [lib.svm_kernel(program, i) for i in range(lib.svm_n_kernels(program))]
    return tuple(
        KernelInfo(
            text_of(r.label), text_of(r.source), text_of(r.spec), r.n_dims, r.n_buffers, r.n_objects,
            r.code_bytes, text_of(r.target),
        )
        for r in rows
    )  # fmt: skip


def read_functions(program: Any) -> tuple[FunctionInfo, ...]:
    """Return the functions; the first is main."""
    rows = [lib.svm_function(program, i) for i in range(lib.svm_n_functions(program))]
    return tuple(
        FunctionInfo(text_of(r.name), r.n_params, r.n_results, r.n_registers, bool(r.is_static_flow))
        for r in rows
    )


def read_site(program: Any, kernel: int) -> SiteStats:
    """Return the call site of a kernel-table entry. Raises KernelError for an index out of range."""
    stats = ffi.new("svm_site_stats *")
    if lib.svm_get_site(program, kernel, stats) != OK:
        raise KernelError(f"kernel {kernel} does not exist; the program has {lib.svm_n_kernels(program)}")
    entries, row = [], ffi.new("svm_entry_stats *")
    for index in range(stats.n_entries):
        if lib.svm_get_entry(program, kernel, index, row) == OK:
            entries.append(_entry(row))
    causes = tuple(stats.by_dim[0 : lib.svm_kernel(program, kernel).n_dims]), stats.by_combination
    numbers = (stats.hits, stats.misses, stats.outside, *causes)
    return SiteStats(SITE_STATES[stats.state], *numbers, tuple(entries))


def read_counters(program: Any) -> dict[str, int]:
    """Return the counters of `svm_stats` by name."""
    stats = ffi.new("svm_stats *")
    lib.svm_get_stats(program, stats)
    return {name: getattr(stats, name) for name, _ in ffi.typeof("svm_stats").fields}


def _entry(row: Any) -> EntryStats:
    new = tuple(i for i in range(row.n_dims) if row.new_dims >> i & 1)
    return EntryStats(
        tuple(row.dims[0 : row.n_dims]), TIERS[row.tier], ENTRY_STATES[row.state], row.hits, row.n_tiles,
        row.code_bytes, new, text_of(row.schedule), text_of(row.failure),
    )  # fmt: skip
