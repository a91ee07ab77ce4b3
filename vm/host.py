"""The threads of this process that run kernels, and the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ._runtime import ffi, lib
from .errors import ArgumentError
from .values import check, text_of


def set_threads(n: int) -> None:
    """Set the number of threads that run kernels in this process, the caller included; 0: one per available
    CPU, at most the number of whole CPUs that control groups grant. Raises ArgumentError for a number outside
    of 0 to 256.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not -(1 << 31) <= n < 1 << 31:
        raise ArgumentError(f"threads: {n!r} is no number of threads; give 1 to 256, or 0 for one per CPU")
    error = ffi.new("svm_error *")
    check(lib.svm_set_threads(n, error), error)


def get_threads() -> int:
    """Return the number of threads that run kernels in this process."""
    return int(lib.svm_get_threads())


@contextmanager
def float_mode() -> Iterator[None]:
    """Let this thread compute in the floating-point mode of kernels within the block, whatever the host has
    set: rounding to nearest, subnormal numbers kept. For computations at compile time."""
    before = ffi.new("svm_float_mode *")
    lib.svm_enter_float_mode(before)
    try:
        yield
    finally:
        lib.svm_leave_float_mode(before)


def cpu_quota() -> float | None:
    """Return how many CPUs the control groups of this process grant, None without a limit."""
    return int(lib.svm_cpu_quota()) / 1000 or None


def host_target() -> str:
    """Return the name of the best target that this CPU runs, "" if none."""
    return text_of(lib.svm_host_target())
