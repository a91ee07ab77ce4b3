"""The threads of this process that run kernels, and the CPU that they run on."""

from __future__ import annotations

from ._runtime import ffi, lib
from .errors import ArgumentError
from .values import check, text_of


def set_threads(n: int) -> None:
    """Set the number of threads that run kernels in this process, the caller included; 0: one per available
    CPU, and no more than control groups grant whole ones. Raises ArgumentError for another number than 0 to
    256.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not -(1 << 31) <= n < 1 << 31:
        raise ArgumentError(f"threads: {n!r} is no number of threads; give 1 to 256, or 0 for one per CPU")
    error = ffi.new("svm_error *")
    check(lib.svm_set_threads(n, error), error)


def get_threads() -> int:
    """Return the number of threads that run kernels in this process."""
    return int(lib.svm_get_threads())


def cpu_quota() -> float | None:
    """Return how many CPUs the control groups of this process grant, None without a limit."""
    return int(lib.svm_cpu_quota()) / 1000 or None


def host_target() -> str:
    """Return the name of the best target that this CPU runs, "" if none."""
    return text_of(lib.svm_host_target())
